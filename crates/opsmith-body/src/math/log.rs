//! Logarithms, by the method of FreeBSD's `e_log.c` and `s_log1p.c`.

use crate::float::{Float, Real};
use crate::isa::Isa;
use crate::math::polynomials;
use crate::scalar::Scalar;

/// log(1 + f) + k log 2 for 1 + f in [√½, √2).
#[inline(always)]
fn log_parts<T: Real, I: Isa>(f: Float<T, I>, k: Float<T, I>) -> Float<T, I> {
    let s = f / (f + 2.0);
    let z = s * s;
    let half_square = f * f * 0.5;
    let low = s.fma(z.fma(polynomials::log(z), half_square), k * T::LN2.1);
    k.fma(Float::c(T::LN2.0), f - (half_square - low))
}

/// The result for positive finite arguments, or the limit or NaN for the others.
#[inline(always)]
fn with_limits<T: Real, I: Isa>(argument: Float<T, I>, result: Float<T, I>) -> Float<T, I> {
    let infinity = Float::c(f64::INFINITY);
    let beyond = Float::pick(argument.eq(Float::c(0.0)), -infinity, Float::c(f64::NAN));
    let inside = Float::pick(argument.eq(infinity), infinity, result);
    Float::pick(argument.gt(Float::c(0.0)), inside, beyond)
}

/// The natural logarithm.
#[inline(always)]
pub(crate) fn log<T: Real, I: Isa>(x: Float<T, I>) -> Float<T, I> {
    let tiny = x.lt(Float::c(T::NORMAL));
    let lifted = Float::pick(tiny, x * T::LIFT.0, x);
    let (m, k) = lifted.get().split();
    let k = Float::new(k) - Float::pick(tiny, Float::c(T::LIFT.1), Float::c(0.0));
    with_limits(x, log_parts(Float::new(m) - 1.0, k))
}

/// log(1 + x).
#[inline(always)]
pub(crate) fn log1p<T: Real, I: Isa>(x: Float<T, I>) -> Float<T, I> {
    let sum = x + 1.0;
    let rest = Float::pick(x.lt(Float::c(1.0)), x - (sum - 1.0), Float::c(1.0) - (sum - x));
    let (m, k) = sum.get().split();
    // What 1 + x has lost, at the scale of m; it is nothing to large sums.
    let back = Float::<T, I>::c(T::ROUND) - Float::new(k).at_most(100.0);
    let scale = Float::new(T::power_of_two(back.get(), T::biased(0)));
    let f = (Float::new(m) - 1.0) + rest * scale;
    Float::pick(x.eq(Float::c(0.0)), x, with_limits(sum, log_parts(f, Float::new(k))))
}
