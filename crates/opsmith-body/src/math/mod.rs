//! The elementary functions, branch-free, for any float type and instruction set.
//!
//! Every function is `#[inline(always)]` and has no branch and no call, so that a loop around it is vectorised. The
//! polynomials are fitted by `tools/fit.py`; the methods are the usual ones and named where they are used.

pub(crate) mod double;
pub(crate) mod exp;
mod f32;
mod f64;
pub(crate) mod log;
pub(crate) mod normal;
pub(crate) mod pow;
mod trig;
mod two_over_pi;

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::float::Float;
use crate::isa::Isa;

/// `c0 + x (c1 + x (c2 + …))`, one fused operation per coefficient.
macro_rules! horner {
    ($x:expr; $last:expr) => { $crate::float::Float::c($last) };
    ($x:expr; $first:expr, $($rest:expr),+) => {
        $crate::math::horner!($x; $($rest),+).fma($x, $crate::float::Float::c($first))
    };
}
pub(crate) use horner;

/// As `horner!`, with two polynomials of one degree: the first where `lane` is true.
macro_rules! horner_of_two {
    ($lane:expr, $x:expr; ($a:expr, $b:expr)) => {
        $crate::float::Float::pick($lane, $crate::float::Float::c($a), $crate::float::Float::c($b))
    };
    ($lane:expr, $x:expr; ($a:expr, $b:expr), $($rest:tt),+) => {
        $crate::math::horner_of_two!($lane, $x; $($rest),+).fma(
            $x,
            $crate::float::Float::pick($lane, $crate::float::Float::c($a), $crate::float::Float::c($b)),
        )
    };
}
pub(crate) use horner_of_two;

/// A number as the sum of two, the second far smaller.
pub(crate) type Pair<T, I> = (Float<T, I>, Float<T, I>);

/// What the elementary functions need to know of a float type. Sealed: `f32` and `f64`.
#[allow(private_interfaces, reason = "the trait is sealed by its module, which is private")]
pub trait Real:
    Copy
    + Send
    + Sync
    + 'static
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// Zero.
    const ZERO: Self;
    /// From here on all floats are integers: 2 to the number of explicit bits of the significand.
    const INTEGERS: Self;
    /// 1.5 times [`INTEGERS`](Self::INTEGERS): what is added to it is rounded to an integer, whose bits are the low
    /// bits of the sum.
    const ROUND: f64;
    /// Where `exp` has overflowed, and where it is zero.
    const EXP_RANGE: (f64, f64);
    /// How far exponents of results that are subnormal are lifted, so that powers of two are normal.
    const DESCENT: i32;
    /// 2 to that power.
    const ASCENT: f64;
    /// From here on `expm1(-x)` is −1.
    const EXPM1_LOW: f64;
    /// log 2 in two parts; an exponent times the first part is exact.
    const LN2: (f64, f64);
    /// From here on Φ(−t) is zero.
    const TAIL_END: f64;
    /// From here on the tanh form of GELU is zero for −x.
    const GELU_END: f64;
    /// The factor of Dekker's splitting: 2 to half the significand's bits, plus 1.
    const SPLIT: f64;
    /// The smallest normal number.
    const NORMAL: Self;
    /// 2 to a power that lifts subnormal numbers to normal ones, and the power.
    const LIFT: (f64, f64);

    /// The float nearest to a constant.
    fn from_f64(constant: f64) -> Self;
    /// `self * factor + term` with one rounding.
    fn fused(self, factor: Self, term: Self) -> Self;
    /// The absolute value.
    fn magnitude(self) -> Self;
    /// The square root.
    fn root(self) -> Self;
    /// The library's `floor`.
    fn floor_native(self) -> Self;
    /// The magnitude of `self` with the sign of `sign`.
    fn with_sign_of(self, sign: Self) -> Self;
    /// Whether it is NaN.
    fn is_nan(self) -> bool;
    /// 2 to the power k + shift from k + [`ROUND`](Self::ROUND), for normal results.
    fn power_of_two(rounded: Self, shift: i32) -> Self;
    /// A positive normal number as m 2ᵏ with m in [√½, √2).
    fn split(self) -> (Self, Self);

    /// E in eʳ = 1 + r + r² E(r), for |r| ≤ log(2)/2.
    fn exp_poly<I: Isa>(r: Float<Self, I>) -> Float<Self, I>;
    /// L in log((1+s)/(1−s)) = 2s + s z L(z), with z = s².
    fn log_poly<I: Isa>(z: Float<Self, I>) -> Float<Self, I>;
    /// Q in erf(x) = x + x Q(x²), for |x| ≤ 1.
    fn erf_poly<I: Isa>(z: Float<Self, I>) -> Float<Self, I>;
    /// For t ≥ 0, K(t) = exp(t²/2) Φ(−t) and true where t is small, else t K(t) and false; with its rounding error.
    fn tail_poly<I: Isa>(t: Float<Self, I>) -> (Pair<Self, I>, bool);
    /// 2u in the tanh form of GELU, x/2 (1 + tanh u), in two parts.
    fn gelu_argument<I: Isa>(x: Float<Self, I>) -> Pair<Self, I>;
    /// The sine.
    fn sin<I: Isa>(x: Float<Self, I>) -> Float<Self, I>;
    /// The cosine.
    fn cos<I: Isa>(x: Float<Self, I>) -> Float<Self, I>;
    /// x to the power y for x > 0; infinite and zero x, and infinite y, are the caller's.
    fn pow_positive<I: Isa>(x: Float<Self, I>, y: Float<Self, I>) -> Float<Self, I>;
}
