//! The normal distribution, the error function and the Gaussian error linear unit.
//!
//! All come from the tail Φ(−t) = exp(−t²/2) K(t), t ≥ 0, where the square is taken in twice the precision: so even
//! Φ(−13) has all its digits, and so does GELU far below zero.

use crate::float::{Float, Real};
use crate::isa::Isa;
use crate::math::double::{constant, fast_two_sum, multiply_add, product, quotient, two_product, two_sum};
use crate::math::exp::Exponential;
use crate::math::{Pair, polynomials};
use crate::scalar::{GELU_LINEAR, Scalar};

/// t and exp(−t²/2).
struct Tail<T, I> {
    t: Float<T, I>,
    gauss: Exponential<T, I>,
}

/// What the tail is multiplied by.
#[derive(Clone, Copy, PartialEq)]
enum Times {
    One,
    T,
}

impl<T: Real, I: Isa> Tail<T, I> {
    #[inline(always)]
    fn of(t: Float<T, I>) -> Self {
        let t = t.at_most(T::TAIL_END);
        Self { t, gauss: Exponential::of_square(t) }
    }

    /// Φ(−t), or t Φ(−t).
    #[inline(always)]
    fn times(&self, factor: Times) -> Float<T, I> {
        let fraction = self.gauss.fraction;
        if !T::DOUBLE {
            let (k, k_low) = polynomials::tail_in_eighths(self.t);
            let tail = match factor {
                Times::One => {
                    let (tail, lost) = multiply_add(k, fraction, k);
                    if I::FUSED { tail } else { tail + lost }
                }
                Times::T => {
                    let (product, low) = two_product(k, self.t);
                    product + product.fma(fraction, k_low.fma(self.t, low))
                }
            };
            return self.gauss.scale_down(tail);
        }
        let ((k, k_low), near) = polynomials::tail(self.t);
        // K (1 + fraction), with its rounding error.
        let (high, low) = multiply_add(k, fraction, k);
        let low = low + k_low.fma(fraction, k_low);
        let (zero, one) = (Float::c(0.0), Float::c(1.0));
        let tail = match factor {
            Times::One => quotient((high, low), (Float::pick(near, one, self.t), zero)),
            Times::T => {
                let factor = Float::pick(near, self.t, one);
                factor.fma(high, factor * low)
            }
        };
        self.gauss.scale_down(tail)
    }
}

/// Φ(x).
#[inline(always)]
pub(crate) fn cdf<T: Real, I: Isa>(x: Float<T, I>) -> Float<T, I> {
    let tail = Tail::of(x.abs()).times(Times::One);
    Float::pick(x.lt(Float::c(0.0)), tail, Float::c(1.0) - tail)
}

/// φ(x).
#[inline(always)]
pub(crate) fn pdf<T: Real, I: Isa>(x: Float<T, I>) -> Float<T, I> {
    let Exponential { fraction, rounded } = Tail::of(x.abs()).gauss;
    let factor = Float::c(0.398_942_280_401_432_7);
    Exponential { fraction, rounded }.scale_down(factor.fma(fraction, factor))
}

/// The error function.
#[inline(always)]
pub(crate) fn erf<T: Real, I: Isa>(x: Float<T, I>) -> Float<T, I> {
    let magnitude = x.abs();
    let inner = x.fma(polynomials::erf(x * x), x);
    let outer = Float::c(1.0) - Tail::of(magnitude * std::f64::consts::SQRT_2).times(Times::One) * 2.0;
    Float::pick(magnitude.lt(Float::c(1.0)), inner, outer).with_sign_of(x)
}

/// x Φ(x).
#[inline(always)]
pub(crate) fn gelu<T: Real, I: Isa>(x: Float<T, I>) -> Float<T, I> {
    let tail = Tail::of(x.abs()).times(Times::T);
    // Of −∞ the result is −0.
    Float::pick(x.lt(Float::c(-0.0)), Float::c(-0.0), x) - tail
}

/// x/2 (1 + tanh u) = x / (1 + exp(−2u)), with 2u in two parts.
#[inline(always)]
pub(crate) fn gelu_tanh<T: Real, I: Isa>(x: Float<T, I>) -> Float<T, I> {
    let size = x.abs().at_most(T::GELU_END);
    let (high, low) = gelu_argument(size);
    let parts = Exponential::of_sum(-high, -low);
    let (e, e_low) = fast_two_sum(Float::c(1.0), parts.fraction);
    let (top, top_low) = two_product(size, e);
    let bottom = fast_two_sum(Float::c(1.0), parts.scale_down(e));
    let tail = parts.scale_down(quotient((top, size.fma(e_low, top_low)), bottom));
    // Of −∞ the result is −0.
    Float::pick(x.lt(Float::c(-0.0)), Float::c(-0.0), x) - tail
}

/// 2u of `gelu_tanh`, x (a + b x²), in two parts, for x ≥ 0.
#[inline(always)]
fn gelu_argument<T: Real, I: Isa>(x: Float<T, I>) -> Pair<T, I> {
    let (linear, linear_low) = constant(GELU_LINEAR, -9.96930880911092e-17);
    let cubic = product(two_product(x, x), constant(0.07135481627260025, -6.175149918155315e-19));
    let (factor, low) = two_sum(linear, cubic.0);
    product((factor, low + (cubic.1 + linear_low)), (x, Float::c(0.0)))
}
