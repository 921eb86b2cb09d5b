//! Plain floats as [`Scalar`]s: a float and the instruction set that it is computed with.

use std::marker::PhantomData;
use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::isa::Isa;
use crate::math::{self, Real, Turn};
use crate::scalar::Scalar;

/// A float of type `T` in code for the instruction set `I`. Laid out as `T`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Float<T, I>(T, PhantomData<I>);

/// A float32 of a body.
pub type F32<I> = Float<f32, I>;
/// A float64 of a body.
pub type F64<I> = Float<f64, I>;

impl<T: Copy, I> Float<T, I> {
    /// A float of a body from a plain one.
    #[inline(always)]
    pub const fn new(value: T) -> Self {
        Self(value, PhantomData)
    }

    /// The plain float.
    #[inline(always)]
    pub const fn get(self) -> T {
        self.0
    }
}

impl<T: Real, I: Isa> Float<T, I> {
    /// A constant.
    #[inline(always)]
    pub(crate) fn c(constant: f64) -> Self {
        Self::new(T::from_f64(constant))
    }

    /// `self * factor + term`, fused where that is one operation.
    #[inline(always)]
    pub(crate) fn fma(self, factor: Self, term: Self) -> Self {
        if I::FUSED { Self::new(self.0.fused(factor.0, term.0)) } else { self * factor + term }
    }

    /// `yes` where it is true, else `no`.
    #[inline(always)]
    pub(crate) fn pick(truth: T::Truth, yes: Self, no: Self) -> Self {
        Self::new(T::pick(truth, yes.0, no.0))
    }

    /// The magnitude of `self` with the sign of `sign`.
    #[inline(always)]
    pub(crate) fn with_sign_of(self, sign: Self) -> Self {
        Self::new(self.0.with_sign_of(sign.0))
    }

    /// The smaller; `self` if one is NaN.
    #[inline(always)]
    pub(crate) fn at_most(self, limit: f64) -> Self {
        let limit = Self::c(limit);
        Self::pick(self.gt(limit), limit, self)
    }

    /// The larger; `self` if one is NaN.
    #[inline(always)]
    pub(crate) fn at_least(self, limit: f64) -> Self {
        let limit = Self::c(limit);
        Self::pick(self.lt(limit), limit, self)
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:tt),*) => {$(
        impl<T: Real, I: Isa> $trait for Float<T, I> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self::new(self.0 $op other.0)
            }
        }

        impl<T: Real, I: Isa> $trait<f64> for Float<T, I> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, constant: f64) -> Self {
                self $op Self::c(constant)
            }
        }
    )*};
}

operators!(Add add +, Sub sub -, Mul mul *, Div div /);

impl<T: Real, I: Isa> Neg for Float<T, I> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self::new(-self.0)
    }
}

impl<T: Real, I: Isa> Scalar for Float<T, I> {
    type Mask = T::Truth;

    #[inline(always)]
    fn of(constant: f64) -> Self {
        Self::c(constant)
    }
    #[inline(always)]
    fn exp(self) -> Self {
        math::exp::exp(self)
    }
    #[inline(always)]
    fn log(self) -> Self {
        math::log::log(self)
    }
    #[inline(always)]
    fn log1p(self) -> Self {
        math::log::log1p(self)
    }
    #[inline(always)]
    fn expm1(self) -> Self {
        math::exp::expm1(self)
    }
    #[inline(always)]
    fn tanh(self) -> Self {
        math::exp::tanh(self)
    }
    #[inline(always)]
    fn sigmoid(self) -> Self {
        math::exp::sigmoid(self)
    }
    #[inline(always)]
    fn erf(self) -> Self {
        math::normal::erf(self)
    }
    #[inline(always)]
    fn normal_cdf(self) -> Self {
        math::normal::cdf(self)
    }
    #[inline(always)]
    fn normal_pdf(self) -> Self {
        math::normal::pdf(self)
    }
    #[inline(always)]
    fn sin(self) -> Self {
        math::trig::sine(Turn::Sine, self)
    }
    #[inline(always)]
    fn cos(self) -> Self {
        math::trig::sine(Turn::Cosine, self)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        Self::new(self.0.root())
    }
    #[inline(always)]
    fn rsqrt(self) -> Self {
        Self::c(1.0) / self.sqrt()
    }
    #[inline(always)]
    fn pow(self, exponent: Self) -> Self {
        math::pow::pow(self, exponent)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        Self::new(self.0.magnitude())
    }
    #[inline(always)]
    fn sign(self) -> Self {
        let one = Self::c(1.0).with_sign_of(self);
        Self::pick(self.abs().gt(Self::c(0.0)), one, self)
    }
    #[inline(always)]
    fn floor(self) -> Self {
        if I::ROUND {
            return Self::new(self.0.floor_native());
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
        self.0.less(other.0)
    }
    #[inline(always)]
    fn le(self, other: Self) -> T::Truth {
        self.0.less_or_equal(other.0)
    }
    #[inline(always)]
    fn eq(self, other: Self) -> T::Truth {
        self.0.equal(other.0)
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
        math::normal::gelu(self)
    }
    #[inline(always)]
    fn gelu_tanh(self) -> Self {
        math::normal::gelu_tanh(self)
    }
}
