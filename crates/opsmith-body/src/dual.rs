//! Dual numbers: a value and its derivatives by some variables.

#![allow(
    clippy::needless_range_loop,
    clippy::manual_map,
    reason = "no closures: only what is inlined, whatever happens, is compiled for the instruction set"
)]

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::scalar::{GELU_CUBIC, GELU_LINEAR, Scalar};

/// A number with its derivatives by `N` variables.
///
/// What a number does not depend on has no derivative, rather than a zero: when a body is compiled it is known which
/// derivatives there are, so those that are not cost nothing. Nothing is multiplied by a zero that stands for
/// "does not depend", and so no infinity becomes NaN.
///
/// Dual numbers nest: `Dual<Dual<S, N>, N>` has second derivatives.
///
/// ```
/// use opsmith_body::{Dual, F64, Plain, Scalar};
///
/// let x = Dual::<F64<Plain>, 1>::variable(F64::new(3.0), 0);
/// let y = x * x + 1.0;
/// assert_eq!((y.value().get(), y.derivative(0).get()), (10.0, 6.0));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Dual<S: Scalar, const N: usize> {
    value: S,
    partials: [Option<Partial<S>>; N],
}

/// A derivative, and where the number depends on the variable at all, if `select` left that open.
///
/// Where it does not, the derivative is whatever it is until somebody asks: a zero in its place would become NaN when
/// it is multiplied by an infinite derivative further out, as of the root in `x.max(0).sqrt()`.
#[derive(Clone, Copy, Debug)]
struct Partial<S: Scalar> {
    slope: S,
    held: Option<S::Mask>,
}

impl<S: Scalar> Partial<S> {
    /// The derivative, zero where there is none.
    #[inline(always)]
    fn get(self) -> S {
        match self.held {
            Some(held) => S::select(held, self.slope, S::of(0.0)),
            None => self.slope,
        }
    }

    #[inline(always)]
    fn times(self, factor: S) -> Self {
        Self { slope: self.slope * factor, held: self.held }
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        let held = match (self.held, other.held) {
            (Some(a), Some(b)) => Some(a | b),
            _ => None,
        };
        Self { slope: self.get() + other.get(), held }
    }

    /// What counts only where a mask is true.
    #[inline(always)]
    fn only(self, mask: S::Mask) -> Self {
        let held = match self.held {
            Some(held) => held & mask,
            None => mask,
        };
        Self { slope: self.slope, held: Some(held) }
    }
}

impl<S: Scalar, const N: usize> Dual<S, N> {
    /// A number that depends on no variable.
    #[inline(always)]
    pub fn constant(value: S) -> Self {
        Self { value, partials: [None; N] }
    }

    /// The variable with an index below `N`.
    #[inline(always)]
    pub fn variable(value: S, index: usize) -> Self {
        let mut partials = [None; N];
        partials[index] = Some(Partial { slope: S::of(1.0), held: None });
        Self { value, partials }
    }

    /// The value.
    #[inline(always)]
    pub fn value(self) -> S {
        self.value
    }

    /// The derivative by a variable, zero if there is none.
    #[inline(always)]
    pub fn derivative(self, index: usize) -> S {
        match self.partials[index] {
            Some(partial) => partial.get(),
            None => S::of(0.0),
        }
    }

    /// The derivative by a variable, if the number depends on it.
    #[inline(always)]
    pub fn partial(self, index: usize) -> Option<S> {
        match self.partials[index] {
            Some(partial) => Some(partial.get()),
            None => None,
        }
    }

    /// The derivative by a variable times a factor, if the number depends on it; where it does not, that is zero
    /// whatever the factor is.
    #[inline(always)]
    pub fn weighted(self, index: usize, factor: S) -> Option<S> {
        match self.partials[index] {
            Some(partial) => Some(partial.times(factor).get()),
            None => None,
        }
    }

    /// f(self), from its value and its derivative at `self`.
    #[inline(always)]
    fn chain(self, value: S, derivative: S) -> Self {
        let mut partials = [None; N];
        for k in 0..N {
            partials[k] = times(self.partials[k], derivative);
        }
        Self { value, partials }
    }

    /// f(self, other), from its value and its derivatives.
    #[inline(always)]
    fn chain_two(self, other: Self, value: S, by_self: S, by_other: S) -> Self {
        let mut partials = [None; N];
        for k in 0..N {
            partials[k] = plus(times(self.partials[k], by_self), times(other.partials[k], by_other));
        }
        Self { value, partials }
    }

    /// `value`, with the derivatives of `yes` or `no`.
    #[inline(always)]
    fn choose(value: S, mask: S::Mask, yes: &Self, no: &Self) -> Self {
        let mut partials = [None; N];
        for k in 0..N {
            partials[k] = match (yes.partials[k], no.partials[k]) {
                (None, None) => None,
                (Some(yes), None) => Some(yes.only(mask)),
                (None, Some(no)) => Some(no.only(!mask)),
                (Some(yes), Some(no)) => {
                    let held = match (yes.held, no.held) {
                        (None, None) => None,
                        (Some(yes), None) => Some(yes | !mask),
                        (None, Some(no)) => Some(no | mask),
                        (Some(yes), Some(no)) => Some((yes & mask) | (no & !mask)),
                    };
                    Some(Partial { slope: S::select(mask, yes.slope, no.slope), held })
                }
            };
        }
        Self { value, partials }
    }
}

#[inline(always)]
fn times<S: Scalar>(partial: Option<Partial<S>>, factor: S) -> Option<Partial<S>> {
    match partial {
        Some(partial) => Some(partial.times(factor)),
        None => None,
    }
}

#[inline(always)]
fn plus<S: Scalar>(a: Option<Partial<S>>, b: Option<Partial<S>>) -> Option<Partial<S>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.plus(b)),
        (a, None) => a,
        (None, b) => b,
    }
}

#[inline(always)]
fn negated<S: Scalar>(partial: Option<Partial<S>>) -> Option<Partial<S>> {
    match partial {
        Some(partial) => Some(Partial { slope: -partial.slope, held: partial.held }),
        None => None,
    }
}

impl<S: Scalar, const N: usize> Add for Dual<S, N> {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        let mut partials = [None; N];
        for k in 0..N {
            partials[k] = plus(self.partials[k], other.partials[k]);
        }
        Self { value: self.value + other.value, partials }
    }
}

impl<S: Scalar, const N: usize> Neg for Dual<S, N> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        let mut partials = [None; N];
        for k in 0..N {
            partials[k] = negated(self.partials[k]);
        }
        Self { value: -self.value, partials }
    }
}

impl<S: Scalar, const N: usize> Sub for Dual<S, N> {
    type Output = Self;
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        let mut partials = [None; N];
        for k in 0..N {
            partials[k] = plus(self.partials[k], negated(other.partials[k]));
        }
        Self { value: self.value - other.value, partials }
    }
}

impl<S: Scalar, const N: usize> Mul for Dual<S, N> {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.chain_two(other, self.value * other.value, other.value, self.value)
    }
}

impl<S: Scalar, const N: usize> Div for Dual<S, N> {
    type Output = Self;
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        let value = self.value / other.value;
        let inverse = S::of(1.0) / other.value;
        // Without another division where only this is wanted.
        self.chain_two(other, value, inverse, -(self.value * inverse) * inverse)
    }
}

macro_rules! with_constant {
    ($($trait:ident $method:ident $op:tt),*) => {$(
        impl<S: Scalar, const N: usize> $trait<f64> for Dual<S, N> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, constant: f64) -> Self {
                self $op Self::of(constant)
            }
        }
    )*};
}

with_constant!(Add add +, Sub sub -, Mul mul *, Div div /);

impl<S: Scalar, const N: usize> Scalar for Dual<S, N> {
    type Mask = S::Mask;

    #[inline(always)]
    fn of(constant: f64) -> Self {
        Self::constant(S::of(constant))
    }
    #[inline(always)]
    fn attr(name: &'static str, value: f64) -> Self {
        Self::constant(S::attr(name, value))
    }
    #[inline(always)]
    fn exp(self) -> Self {
        let value = self.value.exp();
        self.chain(value, value)
    }
    #[inline(always)]
    fn log(self) -> Self {
        self.chain(self.value.log(), S::of(1.0) / self.value)
    }
    #[inline(always)]
    fn log1p(self) -> Self {
        self.chain(self.value.log1p(), S::of(1.0) / (self.value + 1.0))
    }
    #[inline(always)]
    fn expm1(self) -> Self {
        self.chain(self.value.expm1(), self.value.exp())
    }
    #[inline(always)]
    fn tanh(self) -> Self {
        let value = self.value.tanh();
        self.chain(value, S::of(1.0) - value * value)
    }
    #[inline(always)]
    fn sigmoid(self) -> Self {
        let value = self.value.sigmoid();
        self.chain(value, value * (S::of(1.0) - value))
    }
    #[inline(always)]
    fn erf(self) -> Self {
        let slope = (-(self.value * self.value)).exp() * std::f64::consts::FRAC_2_SQRT_PI;
        self.chain(self.value.erf(), slope)
    }
    #[inline(always)]
    fn normal_cdf(self) -> Self {
        self.chain(self.value.normal_cdf(), self.value.normal_pdf())
    }
    #[inline(always)]
    fn normal_pdf(self) -> Self {
        let value = self.value.normal_pdf();
        self.chain(value, -(self.value * value))
    }
    #[inline(always)]
    fn sin(self) -> Self {
        self.chain(self.value.sin(), self.value.cos())
    }
    #[inline(always)]
    fn cos(self) -> Self {
        self.chain(self.value.cos(), -self.value.sin())
    }
    #[inline(always)]
    fn atan(self) -> Self {
        self.chain(self.value.atan(), S::of(1.0) / (self.value * self.value + 1.0))
    }
    #[inline(always)]
    fn lgamma(self) -> Self {
        self.chain(self.value.lgamma(), self.value.digamma())
    }
    #[inline(always)]
    fn digamma(self) -> Self {
        self.chain(self.value.digamma(), self.value.trigamma())
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        let value = self.value.sqrt();
        self.chain(value, S::of(0.5) / value)
    }
    #[inline(always)]
    fn rsqrt(self) -> Self {
        let value = self.value.rsqrt();
        self.chain(value, value * value * value * -0.5)
    }
    #[inline(always)]
    fn pow(self, exponent: Self) -> Self {
        let (x, y, zero) = (self.value, exponent.value, S::of(0.0));
        let value = x.pow(y);
        // At y = 0 the slope is 0. The formula gives that too, and its own derivatives are right, unless x is NaN or so small that x⁻³,
        // which they need, is infinite: there the slope is a constant.
        let by_base = S::select(y.ne(zero) | x.abs().gt(S::of(1e-12)), y * x.pow(y - 1.0), zero);
        // A power of 0 does not change with its positive exponent.
        let by_exponent = S::select(x.eq(zero) & y.ge(zero), zero, value * x.log());
        self.chain_two(exponent, value, by_base, by_exponent)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        self.chain(self.value.abs(), self.value.sign())
    }
    #[inline(always)]
    fn sign(self) -> Self {
        Self::constant(self.value.sign())
    }
    #[inline(always)]
    fn floor(self) -> Self {
        Self::constant(self.value.floor())
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        let first = self.value.le(other.value) | self.value.ne(self.value);
        Self::choose(self.value.min(other.value), first, &self, &other)
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        let first = self.value.ge(other.value) | self.value.ne(self.value);
        Self::choose(self.value.max(other.value), first, &self, &other)
    }
    #[inline(always)]
    fn lt(self, other: Self) -> S::Mask {
        self.value.lt(other.value)
    }
    #[inline(always)]
    fn le(self, other: Self) -> S::Mask {
        self.value.le(other.value)
    }
    #[inline(always)]
    fn eq(self, other: Self) -> S::Mask {
        self.value.eq(other.value)
    }
    #[inline(always)]
    fn select(mask: S::Mask, yes: Self, no: Self) -> Self {
        Self::choose(S::select(mask, yes.value, no.value), mask, &yes, &no)
    }
    #[inline(always)]
    fn detached(self) -> Self {
        Self::constant(self.value.detached())
    }
    #[inline(always)]
    fn elu(self) -> Self {
        let (zero, one) = (S::of(0.0), S::of(1.0));
        self.chain(self.value.elu(), S::select(self.value.gt(zero), one, self.value.exp()))
    }
    #[inline(always)]
    fn gelu(self) -> Self {
        let slope = self.value.normal_cdf() + self.value * self.value.normal_pdf();
        self.chain(self.value.gelu(), slope)
    }
    #[inline(always)]
    fn gelu_tanh(self) -> Self {
        let x = self.value;
        let square = x * x * GELU_CUBIC;
        let gate = ((square + 1.0) * x * GELU_LINEAR).sigmoid();
        let inner = (square * 3.0 + 1.0) * GELU_LINEAR;
        let slope = gate + x * inner * gate * (S::of(1.0) - gate);
        self.chain(x.gelu_tanh(), slope)
    }
    #[inline(always)]
    fn softplus(self) -> Self {
        self.chain(self.value.softplus(), self.value.sigmoid())
    }
    #[inline(always)]
    fn powi(self, exponent: i32) -> Self {
        let slope = if exponent == 0 {
            S::of(0.0)
        } else {
            self.value.powi(exponent.saturating_sub(1)) * f64::from(exponent)
        };
        self.chain(self.value.powi(exponent), slope)
    }
}
