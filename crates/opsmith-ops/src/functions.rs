//! Functions of one tensor, element by element.

use opsmith::prelude::*;

use crate::define::ops;
use crate::integers;

/// The negative.
#[pointwise]
pub fn neg<S: Scalar>(
    /// Any numbers.
    x: S,
) -> S {
    -x
}

/// The absolute value.
#[pointwise]
pub fn abs<S: Scalar>(
    /// Any numbers.
    x: S,
) -> S {
    x.abs()
}

/// −1, 0 or 1, as a number is negative, zero or positive; NaN of NaN.
#[pointwise]
pub fn sign<S: Scalar>(
    /// Any numbers.
    x: S,
) -> S {
    x.sign()
}

/// The square.
#[pointwise]
pub fn square<S: Scalar>(
    /// Any numbers.
    x: S,
) -> S {
    x * x
}

/// The square root; NaN of negative numbers.
#[pointwise]
pub fn sqrt<S: Scalar>(
    /// Any numbers.
    x: S,
) -> S {
    x.sqrt()
}

/// One over the square root; NaN of negative numbers, infinite of 0.
#[pointwise]
pub fn rsqrt<S: Scalar>(
    /// Any numbers.
    x: S,
) -> S {
    x.rsqrt()
}

/// The exponential, eˣ.
#[pointwise]
pub fn exp<S: Scalar>(
    /// Any numbers.
    x: S,
) -> S {
    x.exp()
}

/// eˣ − 1, exact near 0.
#[pointwise]
pub fn expm1<S: Scalar>(
    /// Any numbers.
    x: S,
) -> S {
    x.expm1()
}

/// The natural logarithm; NaN of negative numbers, −∞ of 0.
#[pointwise]
pub fn log<S: Scalar>(
    /// Any numbers.
    x: S,
) -> S {
    x.log()
}

/// The natural logarithm of 1 + x, exact near 0.
#[pointwise]
pub fn log1p<S: Scalar>(
    /// Any numbers.
    x: S,
) -> S {
    x.log1p()
}

/// The sine.
#[pointwise]
pub fn sin<S: Scalar>(
    /// Angles in radians.
    x: S,
) -> S {
    x.sin()
}

/// The cosine.
#[pointwise]
pub fn cos<S: Scalar>(
    /// Angles in radians.
    x: S,
) -> S {
    x.cos()
}

/// The hyperbolic tangent.
#[pointwise]
pub fn tanh<S: Scalar>(
    /// Any numbers.
    x: S,
) -> S {
    x.tanh()
}

/// The logistic function, 1 / (1 + e⁻ˣ).
#[pointwise]
pub fn sigmoid<S: Scalar>(
    /// Any numbers.
    x: S,
) -> S {
    x.sigmoid()
}

/// The error function.
#[pointwise]
pub fn erf<S: Scalar>(
    /// Any numbers.
    x: S,
) -> S {
    x.erf()
}

/// The largest integer that is not larger.
#[pointwise]
pub fn floor<S: Scalar>(
    /// Any numbers.
    x: S,
) -> S {
    x.floor()
}

/// log(1 + eˣ), without overflow.
#[pointwise]
pub fn softplus<S: Scalar>(
    /// Any numbers.
    x: S,
) -> S {
    x.softplus()
}

/// The rectified linear unit: x where it is positive, else 0.
///
/// Its slope at 0 is 0.
#[pointwise]
pub fn relu<S: Scalar>(
    /// Any numbers.
    x: S,
) -> S {
    S::select(x.le(S::of(0.0)), S::of(0.0), x)
}

/// The exponential linear unit: x where it is positive, else alpha · (eˣ − 1).
#[pointwise]
pub fn elu<S: Scalar>(
    /// Any numbers.
    x: S,
    /// What it tends to, negated, far below 0.
    #[attr(default = 1.0)]
    alpha: S,
) -> S {
    S::select(x.gt(S::of(0.0)), x, alpha * x.expm1())
}

/// The Gaussian error linear unit: x Φ(x), with the normal distribution's cumulative function.
#[pointwise]
pub fn gelu<S: Scalar>(
    /// Any numbers.
    x: S,
    /// Whether it is the usual approximation, by the hyperbolic tangent.
    #[attr(default = false)]
    approximate: bool,
) -> S {
    if approximate { x.gelu_tanh() } else { x.gelu() }
}

ops! {
    /// The op `Neg`: [`neg`](fn@neg), of integers too.
    Neg = integers::also::<integers::Neg, 1>(neg::def()), with neg::COMPANIONS;
    /// The op `Abs`: [`abs`](fn@abs), of integers too.
    Abs = integers::also::<integers::Abs, 1>(abs::def()), with abs::COMPANIONS;
    /// The op `Sign`: [`sign`](fn@sign), of integers too.
    Sign = integers::also::<integers::Sign, 1>(sign::def()), with sign::COMPANIONS;
    /// The op `Square`: [`square`](fn@square), of integers too.
    Square = integers::also::<integers::Square, 1>(square::def()), with square::COMPANIONS;
}
