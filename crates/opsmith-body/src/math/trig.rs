//! Sine and cosine, with a reduction of the argument that is exact for every float.
//!
//! x · 2/π is needed modulo 4 only, so the bits of 2/π that make multiples of 4 are left out (Payne and Hanek 1983):
//! for each range of exponents there is a constant with the bits that count.

use crate::float::Float;
use crate::isa::Isa;
use crate::math::double::{fast_two_sum, two_product, two_sum};
use crate::math::horner;
use crate::math::two_over_pi::{BANDS_F32, BANDS_F64};
use crate::scalar::{Lane, Scalar};

/// π/2 in two parts.
const HALF_PI: (f64, f64) = (std::f64::consts::FRAC_PI_2, 6.123233995736766e-17);
/// Rounds what is added to it to a multiple of 4.
const ROUND_TO_FOURS: f64 = 1.5 * (1u64 << 54) as f64;
/// Rounds to an integer.
const ROUND: f64 = 1.5 * (1u64 << 52) as f64;

/// A small angle, and the number of quarter turns that have been taken off.
struct Reduced<I> {
    angle: Float<f64, I>,
    low: Float<f64, I>,
    quarters: u64,
}

impl<I: Isa> Reduced<I> {
    /// Picks sine or cosine of the small angle, and the sign, for a function that begins `lead` quarter turns on.
    #[inline(always)]
    fn choose(&self, lead: u64, sine: Float<f64, I>, cosine: Float<f64, I>) -> Float<f64, I> {
        let quarters = self.quarters.wrapping_add(lead);
        let magnitude = Float::pick(Lane(quarters & 1 == 0), sine, cosine);
        Float::new(f64::from_bits(magnitude.get().to_bits() ^ ((quarters & 2) << 62)))
    }
}

/// A number modulo 4, exactly, for numbers below 2⁵³.
#[inline(always)]
fn modulo_four<I: Isa>(x: Float<f64, I>) -> Float<f64, I> {
    x - ((x + ROUND_TO_FOURS) - ROUND_TO_FOURS)
}

/// Reduces a float32, by float64 arithmetic: products of 24 and 29 bits are exact.
#[inline(always)]
fn reduce_f32<I: Isa>(x: Float<f32, I>) -> Reduced<I> {
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
    let rounded = (high + middle) + ROUND;
    let turns = wide.fma(Float::new(parts[2]), (high - (rounded - ROUND)) + middle);
    Reduced { angle: turns * HALF_PI.0, low: Float::c(0.0), quarters: rounded.get().to_bits() }
}

/// The function that begins `lead` quarter turns on from the sine, within 0.51 units in the last place.
#[inline(always)]
pub(crate) fn sine_f32<I: Isa>(x: Float<f32, I>, lead: u64) -> Float<f32, I> {
    let reduced = reduce_f32(x);
    let z = reduced.angle * reduced.angle;
    let sine = horner!(z; 1.0, -0.16666654915738707, 0.008332176104500367, -0.00019517003491014893);
    let cosine = horner!(z; 1.0, -0.5, 0.04166664681933839, -0.0013887364968178787, 2.4438139094715725e-05);
    Float::new(reduced.choose(lead, reduced.angle * sine, cosine).get() as f32)
}

/// A product with one of the constants, modulo 4.
#[inline(always)]
fn product_modulo_four<I: Isa>(a: Float<f64, I>, b: f64) -> (Float<f64, I>, Float<f64, I>) {
    const COARSE: f64 = 1.5 * (1u128 << 72) as f64;
    let (high, low) = two_product(a, Float::new(b));
    let high = high - ((high + COARSE) - COARSE);
    (modulo_four(high), modulo_four(low))
}

/// Reduces a float64.
#[inline(always)]
fn reduce_f64<I: Isa>(x: Float<f64, I>) -> Reduced<I> {
    let bits = x.get().to_bits();
    let exponent = ((bits >> 52) & 0x7ff).max(0x3ff) - 0x3ff;
    let band = exponent >> 4;
    let parts = &BANDS_F64[(band & 63) as usize];
    let scaled = Float::<f64, I>::new(f64::from_bits(bits.wrapping_sub(band << 56)));
    let (h0, l0) = product_modulo_four(scaled, parts[0]);
    let (h1, l1) = product_modulo_four(scaled, parts[1]);
    let (h2, l2) = two_product(scaled, Float::new(parts[2]));
    let (start, start_low) = two_sum(h0 + l0, h1);
    let rounded = start + ROUND;
    let (a, a_low) = two_sum(start - (rounded - ROUND), start_low);
    let (b, b_low) = two_sum(a, l1);
    let (c, c_low) = two_sum(b, h2);
    let low = (a_low + b_low + c_low) + scaled.fma(Float::new(parts[3]), l2);
    let (turns, turns_low) = fast_two_sum(c, low);
    let (angle, angle_low) = two_product(turns, Float::c(HALF_PI.0));
    let angle_low = turns.fma(Float::c(HALF_PI.1), turns_low.fma(Float::c(HALF_PI.0), angle_low));
    Reduced { angle, low: angle_low, quarters: rounded.get().to_bits() }
}

/// The function that begins `lead` quarter turns on from the sine; kernels after FreeBSD's `k_sin.c` and `k_cos.c`.
#[inline(always)]
pub(crate) fn sine_f64<I: Isa>(x: Float<f64, I>, lead: u64) -> Float<f64, I> {
    let reduced = reduce_f64(x);
    let (r, low) = (reduced.angle, reduced.low);
    let z = r * r;
    let odd = horner!(z; -0.16666666666666632, 0.008333333333322373, -0.00019841269829773357,
        2.7557313679424475e-06, -2.5050756082591485e-08, 1.5896673701945567e-10);
    let sine = r + (z * r).fma(odd, z.fma(low * -0.5, low));
    let even = horner!(z; 0.0416666666666666, -0.0013888888888874077, 2.480158728945074e-05,
        -2.7557314342754834e-07, 2.0875721906275618e-09, -1.1359573774766474e-11);
    let half = z * 0.5;
    let one = Float::c(1.0) - half;
    let cosine = one + (((Float::c(1.0) - one) - half) + (z * z).fma(even, -(r * low)));
    let result = reduced.choose(lead, sine, cosine);
    let size = x.abs();
    let tiny = Lane(lead == 0) & size.lt(Float::c(1e-9));
    let result = Float::pick(tiny, x, result);
    Float::pick(size.lt(Float::c(f64::INFINITY)), result, Float::c(f64::NAN))
}
