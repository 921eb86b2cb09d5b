//! Powers.

use crate::float::{Float, Real};
use crate::isa::Isa;
use crate::math::double::{constant, fast_two_sum, two_product};
use crate::math::exp::Exponential;
use crate::math::{Pair, polynomials};
use crate::scalar::Scalar;

/// x to the power y, with the special cases of C99 and IEEE 754.
#[inline(always)]
pub(crate) fn pow<T: Real, I: Isa>(x: Float<T, I>, y: Float<T, I>) -> Float<T, I> {
    let (zero, one, infinity) = (Float::c(0.0), Float::c(1.0), Float::<T, I>::c(f64::INFINITY));
    let base = x.abs();
    let is_finite = base.lt(infinity);
    let (log, log_low) = log_double(base);
    // Of infinity and NaN that is the same.
    let log = Float::pick(base.eq(zero), -infinity, Float::pick(is_finite, log, base));
    let exponent = y.at_most(T::LARGE).at_least(-T::LARGE);
    let (high, low) = two_product(exponent, log);
    let low = exponent.fma(log_low, low);
    let bounded = high.at_most(T::EXP_RANGE.1).at_least(T::EXP_RANGE.0);
    let parts = Exponential::of_sum(bounded, Float::pick(bounded.eq(high), low, zero));
    let power = parts.scale(parts.fraction + 1.0, bounded.lt(zero));

    let half = y * 0.5;
    let integer = y.floor().eq(y);
    let odd = integer & half.floor().ne(half);
    let sign = x.get().and_bits(T::from_pattern(1 << T::SIGN_BIT));
    let power = Float::pick(odd, Float::new(power.get().or_bits(sign)), power);
    let undefined = x.lt(zero) & is_finite & !integer;
    let power = Float::pick(undefined, Float::c(f64::NAN), power);
    Float::pick(x.eq(one) | y.eq(zero), one, power)
}

/// log x in twice the precision, for positive finite x: s (2 + (2/3) s² + s⁴ …).
#[inline(always)]
pub(crate) fn log_double<T: Real, I: Isa>(x: Float<T, I>) -> Pair<T, I> {
    let tiny = x.lt(Float::c(T::NORMAL));
    let (m, k) = Float::pick(tiny, x * T::LIFT.0, x).get().split();
    let k = Float::new(k) - Float::pick(tiny, Float::c(T::LIFT.1), Float::c(0.0));
    let m = Float::new(m);
    // s = (m − 1)/(m + 1), corrected by the remainder of the division.
    let numerator = m - 1.0;
    let (denominator, lost) = fast_two_sum(Float::c(1.0), m);
    let inverse = Float::c(1.0) / denominator;
    let s = numerator * inverse;
    let (back, back_low) = two_product(s, denominator);
    let s_low = ((numerator - back) - back_low - s * lost) * inverse;
    let (z, z_low) = two_product(s, s);
    let z_low = (s + s).fma(s_low, z_low);
    let two_thirds = constant::<T, I>(2.0 / 3.0, 3.700743415417188e-17);
    let (factor, factor_low) = fast_two_sum(two_thirds.0, z * polynomials::power_log(z));
    let factor_low = factor_low + two_thirds.1;
    let (rest, rest_low) = two_product(z, factor);
    let rest_low = rest_low + z.fma(factor_low, z_low * factor);
    let (series, series_low) = fast_two_sum(Float::c(2.0), rest);
    let (log_m, log_m_low) = two_product(s, series);
    let log_m_low = log_m_low + s.fma(series_low + rest_low, s_low * series);
    let ln2 = constant(std::f64::consts::LN_2, 2.319046813846299e-17);
    let (shift, shift_low) = two_product(k, ln2.0);
    let (high, low) = fast_two_sum(shift, log_m);
    fast_two_sum(high, low + (k.fma(ln2.1, shift_low) + log_m_low))
}
