//! The elementary functions, branch-free, for any float type and instruction set.
//!
//! Every function is `#[inline(always)]` and has no branch and no call, so that a loop around it is vectorised. The
//! methods are the usual ones and named where they are used.

pub(crate) mod double;
pub(crate) mod exp;
pub(crate) mod gamma;
pub(crate) mod log;
pub(crate) mod normal;
mod plain;
mod polynomials;
pub(crate) mod pow;
pub(crate) mod trig;
mod two_over_pi;

use crate::float::{Float, Real, Turn};
use crate::isa::Isa;
use crate::scalar::Scalar;

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

impl<T: Real, I: Isa> Scalar for Float<T, I> {
    type Mask = T::Truth;

    #[inline(always)]
    fn of(constant: f64) -> Self {
        Self::c(constant)
    }
    #[inline(always)]
    fn exp(self) -> Self {
        exp::exp(self)
    }
    #[inline(always)]
    fn log(self) -> Self {
        log::log(self)
    }
    #[inline(always)]
    fn log1p(self) -> Self {
        log::log1p(self)
    }
    #[inline(always)]
    fn expm1(self) -> Self {
        exp::expm1(self)
    }
    #[inline(always)]
    fn tanh(self) -> Self {
        exp::tanh(self)
    }
    #[inline(always)]
    fn sigmoid(self) -> Self {
        exp::sigmoid(self)
    }
    #[inline(always)]
    fn erf(self) -> Self {
        normal::erf(self)
    }
    #[inline(always)]
    fn normal_cdf(self) -> Self {
        normal::cdf(self)
    }
    #[inline(always)]
    fn normal_pdf(self) -> Self {
        normal::pdf(self)
    }
    #[inline(always)]
    fn sin(self) -> Self {
        trig::sine(Turn::Sine, self)
    }
    #[inline(always)]
    fn cos(self) -> Self {
        trig::sine(Turn::Cosine, self)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        Self::new(self.get().root())
    }
    #[inline(always)]
    fn rsqrt(self) -> Self {
        Self::c(1.0) / self.sqrt()
    }
    #[inline(always)]
    fn pow(self, exponent: Self) -> Self {
        pow::pow(self, exponent)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        Self::new(self.get().magnitude())
    }
    #[inline(always)]
    fn sign(self) -> Self {
        let one = Self::c(1.0).with_sign_of(self);
        Self::pick(self.abs().gt(Self::c(0.0)), one, self)
    }
    #[inline(always)]
    fn floor(self) -> Self {
        if I::ROUND {
            return Self::new(self.get().floor_native());
        }
        // Beyond 2ᵖ there are only integers; below, adding it rounds to one.
        let magnitude = self.abs();
        let large = Self::c(T::INTEGERS);
        let nearest = ((magnitude + large) - large).with_sign_of(self);
        let down = Self::pick(nearest.gt(self), nearest - 1.0, nearest);
        Self::pick(magnitude.lt(large), down.with_sign_of(self), self)
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Self::pick(self.le(other) | self.ne(self), self, other)
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self::pick(self.ge(other) | self.ne(self), self, other)
    }
    #[inline(always)]
    fn lt(self, other: Self) -> T::Truth {
        self.get().less(other.get())
    }
    #[inline(always)]
    fn le(self, other: Self) -> T::Truth {
        self.get().less_or_equal(other.get())
    }
    #[inline(always)]
    fn eq(self, other: Self) -> T::Truth {
        self.get().equal(other.get())
    }
    #[inline(always)]
    fn select(mask: T::Truth, yes: Self, no: Self) -> Self {
        Self::pick(mask, yes, no)
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        self.fma(factor, term)
    }
    #[inline(always)]
    fn gelu(self) -> Self {
        normal::gelu(self)
    }
    #[inline(always)]
    fn gelu_tanh(self) -> Self {
        normal::gelu_tanh(self)
    }
    #[inline(always)]
    fn atan(self) -> Self {
        trig::atan(self)
    }
    #[inline(always)]
    fn lgamma(self) -> Self {
        gamma::lgamma(self)
    }
    #[inline(always)]
    fn digamma(self) -> Self {
        gamma::digamma(self)
    }
}
