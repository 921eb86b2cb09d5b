//! Exponentials, and what is made of them.

use crate::float::{Float, Real};
use crate::isa::Isa;
use crate::math::double::two_product;
use crate::math::polynomials;
use crate::scalar::Scalar;

/// An exponential before it is scaled: eˣ = (1 + `fraction`) 2ᵏ.
pub(crate) struct Exponential<T, I> {
    /// eʳ − 1 for a small r.
    pub(crate) fraction: Float<T, I>,
    /// k + `Real::ROUND`.
    pub(crate) rounded: Float<T, I>,
}

impl<T: Real, I: Isa> Exponential<T, I> {
    /// That of `x`, which is within `Real::EXP_RANGE` or NaN.
    #[inline(always)]
    fn of(x: Float<T, I>) -> Self {
        let (k, rounded) = Self::exponent(x);
        let r = k.fma(Float::c(-T::LN2.1), k.fma(Float::c(-T::LN2.0), x));
        Self { fraction: (r * r).fma(polynomials::exp(r), r), rounded }
    }

    /// That of `x + low`, for a `low` that is small; with all the digits of `fraction`.
    #[inline(always)]
    pub(crate) fn of_sum(x: Float<T, I>, low: Float<T, I>) -> Self {
        let (k, rounded) = Self::exponent(x);
        let start = k.fma(Float::c(-T::LN2.0), x);
        let rest = k.fma(Float::c(T::LN2.1), -low);
        let r = start - rest;
        let lost = (start - r) - rest;
        Self { fraction: (r * r).fma(polynomials::exp(r), lost) + r, rounded }
    }

    /// That of −t²/2, for a t so small that this is within `Real::EXP_RANGE`; with most digits of `fraction`.
    #[inline(always)]
    pub(crate) fn of_square(t: Float<T, I>) -> Self {
        let (square, rest) = two_product(t, t);
        let x = square * -0.5;
        if T::DOUBLE {
            return Self::of_sum(x, rest * -0.5);
        }
        let (k, rounded) = Self::exponent(x);
        let r = k.fma(Float::c(-T::LN2.0), x) - k.fma(Float::c(T::LN2.1), rest * 0.5);
        Self { fraction: (r * r).fma(polynomials::exp(r), r), rounded }
    }

    /// x / log 2, rounded: as a number, and as a sum with `Real::ROUND`.
    #[inline(always)]
    fn exponent(x: Float<T, I>) -> (Float<T, I>, Float<T, I>) {
        let rounded = x.fma(Float::c(std::f64::consts::LOG2_E), Float::c(T::ROUND));
        (rounded - T::ROUND, rounded)
    }

    /// 2ᵏ times a number, with one rounding where the result is subnormal; k is at most 0 where `falls` is true, else at
    /// least 0.
    #[inline(always)]
    pub(crate) fn scale(&self, number: Float<T, I>, falls: T::Truth) -> Float<T, I> {
        let shift = T::pick(falls, T::biased(T::DESCENT), T::biased(-2));
        let back = T::pick(falls, T::from_f64(1.0 / T::ASCENT), T::from_f64(4.0));
        Float::new(number.get().scaled(self.rounded.get(), shift, back))
    }

    /// The same for k that are at most 0.
    #[inline(always)]
    pub(crate) fn scale_down(&self, number: Float<T, I>) -> Float<T, I> {
        let back = T::from_f64(1.0 / T::ASCENT);
        Float::new(number.get().scaled(self.rounded.get(), T::biased(T::DESCENT), back))
    }
}

/// eˣ.
#[inline(always)]
pub(crate) fn exp<T: Real, I: Isa>(x: Float<T, I>) -> Float<T, I> {
    let parts = Exponential::of(x.at_most(T::EXP_RANGE.1).at_least(T::EXP_RANGE.0));
    parts.scale(parts.fraction + 1.0, x.lt(Float::c(0.0)))
}

/// eˣ − 1.
#[inline(always)]
pub(crate) fn expm1<T: Real, I: Isa>(x: Float<T, I>) -> Float<T, I> {
    let parts = Exponential::of_sum(x.at_most(T::EXP_RANGE.1).at_least(T::EXPM1_LOW), Float::c(0.0));
    // 2ᵏ⁻¹ is finite for every finite result.
    let half = Float::new(T::power_of_two(parts.rounded.get(), T::biased(-1)));
    let result = parts.fraction.fma(half, half - 0.5);
    Float::pick(x.abs().lt(Float::c(2.0 * T::NORMAL)), x, result + result)
}

/// The hyperbolic tangent: below ½ from `expm1`, beyond from 1.
#[inline(always)]
pub(crate) fn tanh<T: Real, I: Isa>(x: Float<T, I>) -> Float<T, I> {
    let double = (x.abs() * 2.0).at_most(-T::EXPM1_LOW * 2.0);
    let parts = Exponential::of_sum(double, Float::c(0.0));
    let power = Float::new(T::power_of_two(parts.rounded.get(), T::biased(0)));
    let e = parts.fraction.fma(power, power - 1.0);
    let small = double.lt(Float::c(1.1));
    let quotient = Float::pick(small, e, Float::c(2.0)) / (e + 2.0);
    // e/(e + 2) = e/2 − e/2 · e/(e + 2): the rounding of the quotient counts less.
    let start = Float::pick(small, e * 0.5, Float::c(1.0));
    start.fma(-quotient, start).with_sign_of(x)
}

/// 1 / (1 + e⁻ˣ).
#[inline(always)]
pub(crate) fn sigmoid<T: Real, I: Isa>(x: Float<T, I>) -> Float<T, I> {
    let parts = Exponential::of((-x.abs()).at_least(T::EXP_RANGE.0));
    let e = parts.scale_down(parts.fraction + 1.0);
    let quotient = e / (e + 1.0);
    let start = Float::pick(x.lt(Float::c(0.0)), e, Float::c(1.0));
    start.fma(-quotient, start)
}
