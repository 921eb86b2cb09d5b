//! Powers.

use crate::float::Float;
use crate::isa::Isa;
use crate::math::Real;
use crate::math::double::{fast_two_sum, product, sum, two_product, two_sum};
use crate::math::exp::Exponential;
use crate::math::{Pair, horner};
use crate::scalar::Scalar;

/// x to the power y, with the special cases of C99 and IEEE 754, from `power`, which is |x|ʸ in the other cases.
#[inline(always)]
pub(crate) fn with_limits<T: Real, I: Isa>(
    x: Float<T, I>,
    y: Float<T, I>,
    power: Float<T, I>,
) -> Float<T, I> {
    let (zero, one, infinity) = (Float::c(0.0), Float::c(1.0), Float::<T, I>::c(f64::INFINITY));
    let (base, size) = (x.abs(), y.abs());
    // Infinite or zero by the side of 1 that the base is on and the sign of y.
    let (large, positive) = (base.gt(one), y.gt(zero));
    let up = (large & positive) | !(large | positive);
    let extreme = base.eq(zero) | base.eq(infinity) | size.eq(infinity);
    let power = Float::pick(extreme, Float::pick(up, infinity, zero), power);
    let half = y * 0.5;
    let integer = y.floor().eq(y);
    let odd = integer & half.floor().ne(half);
    let power = Float::pick(odd, power.with_sign_of(x), power);
    let undefined = x.lt(zero) & base.lt(infinity) & !integer;
    let power = Float::pick(undefined, Float::c(f64::NAN), power);
    let power = Float::pick(base.ne(base) | size.ne(size), base + size, power);
    let unit = x.eq(one) | y.eq(zero);
    Float::pick(unit | (base.eq(one) & size.eq(infinity)), one, power)
}

/// log x in twice the precision, for positive normal x: 2s + (2/3) s³ + s⁵ …, as SLEEF does it.
#[inline(always)]
fn log_double<I: Isa>(x: Float<f64, I>) -> Pair<f64, I> {
    let tiny = x.lt(Float::c(f64::NORMAL));
    let (m, k) = Float::pick(tiny, x * f64::LIFT.0, x).get().split();
    let k = Float::new(k) - Float::pick(tiny, Float::c(f64::LIFT.1), Float::c(0.0));
    let m = Float::new(m);
    // s = (m − 1)/(m + 1), corrected by the remainder of the division.
    let numerator = m - 1.0;
    let (denominator, lost) = fast_two_sum(Float::c(1.0), m);
    let quotient = numerator / denominator;
    let (back, back_low) = two_product(quotient, denominator);
    let s = (quotient, ((numerator - back) - back_low - quotient * lost) / denominator);
    let z = product(s, s);
    let rest = horner!(z.0; 0.3999999999999998, 0.2857142857144518, 0.22222222217518237,
        0.18181818872698086, 0.15384556700826724, 0.1333632419397114, 0.11674677253060596, 0.11990215140052615);
    let factor = sum((Float::c(0.6666666666666666), Float::c(3.700743415417188e-17)), two_product(z.0, rest));
    let log_m = sum((s.0 + s.0, s.1 + s.1), product(product(s, z), factor));
    let shift = two_product(k, Float::c(std::f64::consts::LN_2));
    let shift = (shift.0, k.fma(Float::c(2.319046813846299e-17), shift.1));
    let (high, low) = two_sum(shift.0, log_m.0);
    fast_two_sum(high, low + (shift.1 + log_m.1))
}

/// xʸ in float64, for positive finite x.
#[inline(always)]
pub(crate) fn pow_f64<I: Isa>(x: Float<f64, I>, y: Float<f64, I>) -> Float<f64, I> {
    let (log, log_low) = log_double(x);
    let y = y.at_most(1e300).at_least(-1e300);
    let (high, low) = two_product(y, log);
    let low = y.fma(log_low, low);
    let bounded = high.at_most(f64::EXP_RANGE.1).at_least(f64::EXP_RANGE.0);
    let low = Float::pick(bounded.eq(high), low, Float::c(0.0));
    let parts = Exponential::of_sum(bounded, low);
    parts.scale(parts.fraction + 1.0, bounded.lt(Float::c(0.0)))
}

/// xʸ in float32, by float64: for positive finite x.
#[inline(always)]
pub(crate) fn pow_f32<I: Isa>(x: Float<f32, I>, y: Float<f32, I>) -> Float<f32, I> {
    let (m, k) = f64::from(x.get()).split();
    let (m, k) = (Float::<f64, I>::new(m), Float::new(k));
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let series = horner!(z; 0.6666666564191076, 0.4000033613691345, 0.2853724248110922, 0.23583495994417883);
    let log = k.fma(Float::c(std::f64::consts::LN_2), (s * z).fma(series, s + s));
    let product = (Float::new(f64::from(y.get())) * log).at_most(100.0).at_least(-120.0);
    let rounded = product.fma(Float::c(std::f64::consts::LOG2_E), Float::c(f64::ROUND));
    let r = (rounded - f64::ROUND).fma(Float::c(-std::f64::consts::LN_2), product);
    let series = horner!(r; 0.5000000046669132, 0.1666666681663732, 0.04166635356058133,
        0.008333273109430956, 0.0013941099556590722, 0.00019914157505954356);
    let power = (r * r).fma(series, r + 1.0) * Float::new(f64::power_of_two(rounded.get(), f64::biased(0)));
    Float::new(power.get() as f32)
}
