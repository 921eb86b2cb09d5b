//! Sine and cosine, and the arc tangent.
//!
//! Half turns are taken off, in three parts of π (Cody and Waite 1980). For large arguments that is done with the bits of 2/π: x · 2/π is
//! needed modulo 4 only, so the bits that make multiples of 4 are left out (Payne and Hanek 1983): for each range of exponents
//! there is a constant with the bits that count.

use crate::float::{Float, Real, Turn};
use crate::isa::Isa;
use crate::math::double::{constant, fast_two_sum, multiply_add, two_product, two_sum};
use crate::math::polynomials;
use crate::math::two_over_pi::{BANDS_F32, BANDS_F64};
use crate::scalar::Scalar;

/// π/2 in two parts.
const HALF_PI: (f64, f64) = (std::f64::consts::FRAC_PI_2, 6.123233995736766e-17);
/// Rounds what is added to it to a multiple of 4, and of 2, whose half is the low bits of the sum.
const ROUND_TO_FOURS: f64 = 1.5 * (1u64 << 54) as f64;
const ROUND_TO_TWOS: f64 = 1.5 * (1u64 << 53) as f64;

/// sin x, or cos x.
#[inline(always)]
pub(crate) fn sine<T: Real, I: Isa>(turn: Turn, x: Float<T, I>) -> Float<T, I> {
    let turns = match turn {
        Turn::Sine => x * std::f64::consts::FRAC_1_PI,
        Turn::Cosine => x.fma(Float::c(std::f64::consts::FRAC_1_PI), Float::c(0.5)),
    };
    let rounded = turns + T::ROUND;
    let whole = rounded - T::ROUND;
    let halves = if turn == Turn::Sine { whole } else { whole - 0.5 };
    let take = |left: Float<T, I>, part: f64| halves.fma(Float::c(-part), left);
    let near = take(take(take(x, T::PI[0]), T::PI[1]), T::PI[2]);
    let near = Float::new(near.get().xor_bits(rounded.get().shift_left(T::SIGN_BIT)));
    let angle = T::angle(turn, x, near);
    let (z, z_low) = two_product(angle, angle);
    let series = polynomials::sine(z);
    let (sum, lost) = multiply_add(z * angle, series, angle);
    let sum = if I::FUSED { sum } else { sum + (lost + z_low * angle * series) };
    let result = sum.at_most(1.0).at_least(-1.0);
    if turn == Turn::Cosine {
        return result;
    }
    Float::pick(x.abs().lt(Float::c(T::SINE_SMALL)), x, result)
}

/// The arc tangent: beyond 1 from π/2.
#[inline(always)]
pub(crate) fn atan<T: Real, I: Isa>(x: Float<T, I>) -> Float<T, I> {
    let size = x.abs();
    let is_large = Float::c(1.0).lt(size);
    let r = Float::pick(is_large, Float::c(1.0) / size, size);
    let z = r * r;
    let rest = z * r * polynomials::atan(z);
    let (right, right_low) = constant::<T, I>(HALF_PI.0, HALF_PI.1);
    let result = Float::pick(is_large, right - ((r - right_low) + rest), r + rest);
    result.with_sign_of(x)
}

/// A number modulo 4, exactly, for numbers below 2⁵³.
#[inline(always)]
fn modulo_four<I: Isa>(x: Float<f64, I>) -> Float<f64, I> {
    x - ((x + ROUND_TO_FOURS) - ROUND_TO_FOURS)
}

/// Of a number of quarter turns those that are to be taken off, so that a sine is left, and the sign of that.
#[inline(always)]
fn quarters<I: Isa>(turn: Turn, count: Float<f64, I>) -> (Float<f64, I>, u64) {
    let lead = if turn == Turn::Cosine { 1.0 } else { 0.0 };
    let rounded = (count + lead) + ROUND_TO_TWOS;
    ((rounded - ROUND_TO_TWOS) - lead, rounded.get().to_bits() << 63)
}

/// The angle of any float32, by float64 arithmetic: products of 24 and 29 bits are exact.
#[inline(always)]
pub(crate) fn far_f32<I: Isa>(turn: Turn, x: Float<f32, I>) -> Float<f32, I> {
    let wide = Float::<f64, I>::new(f64::from(x.get()));
    let size = wide.abs();
    let mut parts = BANDS_F32[0].1;
    for (start, band) in &BANDS_F32[1..] {
        for (part, other) in parts.iter_mut().zip(band) {
            *part = if size.get() >= *start { *other } else { *part };
        }
    }
    let high = modulo_four(wide * Float::new(parts[0]));
    let middle = modulo_four(wide * Float::new(parts[1]));
    let (whole, sign) = quarters(turn, high + middle);
    let angle = wide.fma(Float::new(parts[2]), (high - whole) + middle) * HALF_PI.0;
    Float::new(f64::from_bits(angle.get().to_bits() ^ sign) as f32)
}

/// A product with one of the constants, modulo 4.
#[inline(always)]
fn product_modulo_four<I: Isa>(a: Float<f64, I>, b: f64) -> (Float<f64, I>, Float<f64, I>) {
    const COARSE: f64 = 1.5 * (1u128 << 72) as f64;
    let (high, low) = two_product(a, Float::new(b));
    let high = high - ((high + COARSE) - COARSE);
    (modulo_four(high), modulo_four(low))
}

/// The angle of any float64.
#[inline(always)]
pub(crate) fn far_f64<I: Isa>(turn: Turn, x: Float<f64, I>) -> Float<f64, I> {
    let bits = x.get().to_bits();
    let exponent = ((bits >> 52) & 0x7ff).max(0x3ff) - 0x3ff;
    let band = exponent >> 4;
    let parts = &BANDS_F64[(band & 63) as usize];
    let scaled = Float::<f64, I>::new(f64::from_bits(bits.wrapping_sub(band << 56)));
    let (h0, l0) = product_modulo_four(scaled, parts[0]);
    let (h1, l1) = product_modulo_four(scaled, parts[1]);
    let (h2, l2) = two_product(scaled, Float::new(parts[2]));
    let (start, start_low) = two_sum(h0 + l0, h1);
    let (whole, sign) = quarters(turn, start);
    let (a, a_low) = two_sum(start - whole, start_low);
    let (b, b_low) = two_sum(a, l1);
    let (c, c_low) = two_sum(b, h2);
    let low = (a_low + b_low + c_low) + scaled.fma(Float::new(parts[3]), l2);
    let (turns, turns_low) = fast_two_sum(c, low);
    let (angle, angle_low) = two_product(turns, Float::c(HALF_PI.0));
    let angle = angle + turns.fma(Float::c(HALF_PI.1), turns_low.fma(Float::c(HALF_PI.0), angle_low));
    let angle = Float::new(f64::from_bits(angle.get().to_bits() ^ sign));
    Float::pick(x.abs().lt(Float::c(f64::INFINITY)), angle, Float::<f64, I>::c(f64::NAN))
}
