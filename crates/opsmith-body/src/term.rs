//! A number that remembers whether it is a product, so that adding it to a sum is one fused operation.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::scalar::Scalar;

/// The terms of a sum: what a body gives when it is computed with these is added by [`Term::add_to`].
///
/// Whether a body ends in a product is known when it is compiled, so nothing is asked at run time, and the product
/// itself, where nobody needs it, is not computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term<S> {
    value: S,
    factors: Option<(S, S)>,
}

impl<S: Scalar> Term<S> {
    #[inline(always)]
    pub(crate) fn new(value: S) -> Self {
        Self { value, factors: None }
    }

    /// The number.
    #[inline(always)]
    pub(crate) fn value(self) -> S {
        self.value
    }

    /// `sum + self`.
    #[inline(always)]
    pub(crate) fn add_to(self, sum: S) -> S {
        match self.factors {
            Some((a, b)) => a.mul_add(b, sum),
            None => sum + self.value,
        }
    }
}

impl<S: Scalar> Mul for Term<S> {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Self { value: self.value * other.value, factors: Some((self.value, other.value)) }
    }
}

impl<S: Scalar> Neg for Term<S> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        match self.factors {
            Some((a, b)) => Self { value: -self.value, factors: Some((-a, b)) },
            None => Self::new(-self.value),
        }
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:tt),*) => {$(
        impl<S: Scalar> $trait for Term<S> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self::new(self.value $op other.value)
            }
        }
    )*};
}

operators!(Add add +, Sub sub -, Div div /);

macro_rules! with_constant {
    ($($trait:ident $method:ident $op:tt),*) => {$(
        impl<S: Scalar> $trait<f64> for Term<S> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, constant: f64) -> Self {
                self $op Self::of(constant)
            }
        }
    )*};
}

with_constant!(Add add +, Sub sub -, Mul mul *, Div div /);

macro_rules! functions {
    ($($method:ident)*) => {$(
        #[inline(always)]
        fn $method(self) -> Self {
            Self::new(self.value.$method())
        }
    )*};
}

macro_rules! functions_of_two {
    ($($method:ident)*) => {$(
        #[inline(always)]
        fn $method(self, other: Self) -> Self {
            Self::new(self.value.$method(other.value))
        }
    )*};
}

macro_rules! comparisons {
    ($($method:ident)*) => {$(
        #[inline(always)]
        fn $method(self, other: Self) -> S::Mask {
            self.value.$method(other.value)
        }
    )*};
}

impl<S: Scalar> Scalar for Term<S> {
    type Mask = S::Mask;

    #[inline(always)]
    fn of(constant: f64) -> Self {
        Self::new(S::of(constant))
    }
    #[inline(always)]
    fn attr(name: &'static str, value: f64) -> Self {
        Self::new(S::attr(name, value))
    }
    functions! {
        exp log log1p expm1 tanh sigmoid erf normal_cdf normal_pdf sin cos sqrt rsqrt abs sign floor elu gelu gelu_tanh
        softplus
    }
    functions_of_two! { pow min max }
    comparisons! { lt le eq }
    #[inline(always)]
    fn select(mask: S::Mask, yes: Self, no: Self) -> Self {
        Self::new(S::select(mask, yes.value, no.value))
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        Self::new(self.value.mul_add(factor.value, term.value))
    }
}
