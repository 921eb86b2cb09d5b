//! Sums and products with their rounding errors (Dekker 1971, Knuth): numbers of twice the precision.

use crate::float::{Float, Real};
use crate::isa::Isa;
use crate::math::Pair;

/// A constant, from a float64 and what that misses.
#[inline(always)]
pub(crate) fn constant<T: Real, I: Isa>(high: f64, low: f64) -> Pair<T, I> {
    let single = f64::from(high as f32);
    if T::DOUBLE { (Float::c(high), Float::c(low)) } else { (Float::c(single), Float::c(high - single)) }
}

/// The rounded sum of two numbers, and what is missing.
#[inline(always)]
pub(crate) fn two_sum<T: Real, I: Isa>(a: Float<T, I>, b: Float<T, I>) -> Pair<T, I> {
    let sum = a + b;
    let from_b = sum - a;
    (sum, (a - (sum - from_b)) + (b - from_b))
}

/// As [`two_sum`], for |a| ≥ |b| or a = 0.
#[inline(always)]
pub(crate) fn fast_two_sum<T: Real, I: Isa>(a: Float<T, I>, b: Float<T, I>) -> Pair<T, I> {
    let sum = a + b;
    (sum, b - (sum - a))
}

/// The rounded product of two numbers, and what is missing.
#[inline(always)]
pub(crate) fn two_product<T: Real, I: Isa>(a: Float<T, I>, b: Float<T, I>) -> Pair<T, I> {
    let product = a * b;
    if I::FUSED {
        return (product, a.fma(b, -product));
    }
    let ((ah, al), (bh, bl)) = (halves(a), halves(b));
    (product, al * bl - (((product - ah * bh) - al * bh) - ah * bl))
}

/// A number as the sum of two of half the significand.
#[inline(always)]
fn halves<T: Real, I: Isa>(a: Float<T, I>) -> Pair<T, I> {
    let scaled = a * T::SPLIT;
    let high = scaled - (scaled - a);
    (high, a - high)
}

/// The product of two numbers of twice the precision.
#[inline(always)]
pub(crate) fn product<T: Real, I: Isa>(a: Pair<T, I>, b: Pair<T, I>) -> Pair<T, I> {
    let (high, low) = two_product(a.0, b.0);
    fast_two_sum(high, low + (a.0.fma(b.1, a.1 * b.0)))
}

/// The quotient of two numbers of twice the precision, rounded once but for a trace.
#[inline(always)]
pub(crate) fn quotient<T: Real, I: Isa>(a: Pair<T, I>, b: Pair<T, I>) -> Float<T, I> {
    let inverse = Float::c(1.0) / b.0;
    let start = a.0 * inverse;
    let rest = if I::FUSED {
        b.0.fma(-start, a.0)
    } else {
        let (back, back_low) = two_product(start, b.0);
        (a.0 - back) - back_low
    };
    (rest + start.fma(-b.1, a.1)).fma(inverse, start)
}

/// `a * b + c` and its rounding error, for |c| ≥ |a b|.
#[inline(always)]
pub(crate) fn multiply_add<T: Real, I: Isa>(a: Float<T, I>, b: Float<T, I>, c: Float<T, I>) -> Pair<T, I> {
    if I::FUSED {
        let sum = a.fma(b, c);
        return (sum, a.fma(b, c - sum));
    }
    let (product, product_low) = two_product(a, b);
    let (sum, low) = fast_two_sum(c, product);
    (sum, low + product_low)
}
