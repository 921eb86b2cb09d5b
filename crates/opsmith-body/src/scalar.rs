//! The interface that bodies are written against.

use std::f64::consts::{FRAC_PI_2, LN_2, LOG2_E, LOG10_E, PI};
use std::fmt::Debug;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};

/// A number in a body: an element of a vector, a dual number, or a node of an expression graph.
///
/// Arithmetic is `+ - * /` with another number or an `f64` constant on the right. Comparisons give a
/// [`Mask`](Self::Mask) and not a `bool`, because a body is compiled once for many elements and traced once for all
/// values: write [`select`](Self::select) where ordinary code has `if`.
///
/// The functions of `Float` (see [`crate::F32`], [`crate::F64`]) are within 2 units in the last place over the whole
/// range, with the special values of IEEE 754 and NumPy. Those of the gamma
/// function, and those made of others, are within 5. For negative numbers, the error of the gamma function's is relative to
/// the terms of the reflection formula, which may cancel.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a number of a body",
    label = "not a `Scalar`",
    note = "write the body as a function that is generic over `S: Scalar`, and make constants with `S::of(1.5)`",
    note = "for plain floats, use `F32<Plain>` and `F64<Plain>`"
)]
pub trait Scalar:
    Copy
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + Add<f64, Output = Self>
    + Sub<f64, Output = Self>
    + Mul<f64, Output = Self>
    + Div<f64, Output = Self>
{
    /// What a comparison gives.
    type Mask: Mask;

    /// A constant.
    fn of(constant: f64) -> Self;

    /// The value of an attribute: a constant where a body is compiled, a named parameter where it is traced.
    #[inline(always)]
    fn attr(name: &'static str, value: f64) -> Self {
        let _ = name;
        Self::of(value)
    }

    /// eˣ.
    fn exp(self) -> Self;
    /// The natural logarithm.
    fn log(self) -> Self;
    /// log(1 + x), exact near 0.
    fn log1p(self) -> Self;
    /// eˣ − 1, exact near 0.
    fn expm1(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self;
    /// 1 / (1 + e⁻ˣ).
    fn sigmoid(self) -> Self;
    /// The error function.
    fn erf(self) -> Self;
    /// The normal distribution's cumulative function, Φ(x) = (1 + erf(x/√2)) / 2.
    fn normal_cdf(self) -> Self;
    /// The normal distribution's density, φ(x) = exp(−x²/2) / √(2π).
    fn normal_pdf(self) -> Self;
    /// x Φ(x), the Gaussian error linear unit.
    fn gelu(self) -> Self;
    /// The usual approximation of [`gelu`](Self::gelu): x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))).
    fn gelu_tanh(self) -> Self;
    /// The sine.
    fn sin(self) -> Self;
    /// The cosine.
    fn cos(self) -> Self;
    /// The arc tangent.
    fn atan(self) -> Self;
    /// log |Γ(x)|, the logarithm of the gamma function.
    fn lgamma(self) -> Self;
    /// The derivative of [`lgamma`](Self::lgamma).
    fn digamma(self) -> Self;
    /// The square root.
    fn sqrt(self) -> Self;
    /// 1 / √x.
    fn rsqrt(self) -> Self;
    /// x to the power of `exponent`.
    fn pow(self, exponent: Self) -> Self;
    /// The absolute value.
    fn abs(self) -> Self;
    /// −1, 0 or 1; ±0 and NaN stay what they are.
    fn sign(self) -> Self;
    /// The largest integer that is not larger.
    fn floor(self) -> Self;
    /// The smaller of two, NaN if one is NaN. The gradient goes to the one that is taken, `self` if they are equal.
    fn min(self, other: Self) -> Self;
    /// The larger of two, NaN if one is NaN. The gradient goes to the one that is taken, `self` if they are equal.
    fn max(self, other: Self) -> Self;

    /// The smaller of two, NaN if one is NaN. Two that are equal share the gradient, as in `torch.minimum` and `jnp.minimum`.
    #[inline(always)]
    fn minimum(self, other: Self) -> Self {
        Self::select(self.eq(other), self * 0.5 + other * 0.5, self.min(other))
    }
    /// The larger of two, NaN if one is NaN. Two that are equal share the gradient, as in `torch.maximum` and `jnp.maximum`.
    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        Self::select(self.eq(other), self * 0.5 + other * 0.5, self.max(other))
    }

    /// `self < other`.
    fn lt(self, other: Self) -> Self::Mask;
    /// `self <= other`.
    fn le(self, other: Self) -> Self::Mask;
    /// `self == other`.
    fn eq(self, other: Self) -> Self::Mask;
    /// `self > other`.
    #[inline(always)]
    fn gt(self, other: Self) -> Self::Mask {
        other.lt(self)
    }
    /// `self >= other`.
    #[inline(always)]
    fn ge(self, other: Self) -> Self::Mask {
        other.le(self)
    }
    /// `self != other`; `x.ne(x)` is true for NaN.
    #[inline(always)]
    fn ne(self, other: Self) -> Self::Mask {
        !self.eq(other)
    }

    /// `yes` where the mask is true, else `no`. What is not taken has no effect on the value or on any gradient, even
    /// if it is infinite or NaN.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;

    /// `self * factor + term`, rounded once where the processor has that as one operation, else twice.
    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        self * factor + term
    }

    /// The same number, as a constant where derivatives are taken.
    #[inline(always)]
    #[must_use]
    fn detached(self) -> Self {
        self
    }

    /// x for x > 0, else eˣ − 1.
    #[inline(always)]
    fn elu(self) -> Self {
        Self::select(self.gt(Self::of(0.0)), self, self.expm1())
    }
    /// log(1 + eˣ).
    #[inline(always)]
    fn softplus(self) -> Self {
        self.max(Self::of(0.0)) + (-self.abs()).exp().log1p()
    }
    /// 2ˣ.
    #[inline(always)]
    fn exp2(self) -> Self {
        Self::of(2.0).pow(self)
    }
    /// The logarithm to base 2.
    #[inline(always)]
    fn log2(self) -> Self {
        self.log() * LOG2_E
    }
    /// The logarithm to base 10.
    #[inline(always)]
    fn log10(self) -> Self {
        self.log() * LOG10_E
    }
    /// The tangent.
    #[inline(always)]
    fn tan(self) -> Self {
        self.sin() / self.cos()
    }
    /// The arc sine.
    #[inline(always)]
    fn asin(self) -> Self {
        let one = Self::of(1.0);
        // Two roots: of their product, the slope at the ends would be infinity times 0.
        (self / ((one - self).sqrt() * (self + 1.0).sqrt() + 1.0)).atan() * 2.0
    }
    /// The arc cosine.
    #[inline(always)]
    fn acos(self) -> Self {
        let is_left = self.lt(Self::of(0.0));
        // No `abs`, here and below: at 0 that has no derivative.
        let x = Self::select(is_left, -self, self);
        let angle = ((Self::of(1.0) - x).sqrt() / (x + 1.0).sqrt()).atan() * 2.0;
        Self::select(is_left, Self::of(PI) - angle, angle)
    }
    /// The angle of the point (`x`, `self`), from −π to π.
    #[inline(always)]
    fn atan2(self, x: Self) -> Self {
        let (zero, one, right) = (Self::of(0.0), Self::of(1.0), Self::of(FRAC_PI_2));
        let is_far = self.abs().min(x.abs()).eq(Self::of(f64::INFINITY));
        let (x, y) = (Self::select(is_far, x.sign(), x), Self::select(is_far, self.sign(), self));
        let (is_steep, is_left) = (y.abs().gt(x.abs()), has_sign(x));
        let over = Self::select(is_steep, y, x);
        let angle = Self::select(is_steep, -x, y) / Self::select(over.eq(zero), one, over);
        let angle = angle.atan();
        let turn = Self::select(is_steep, right, Self::of(PI));
        let turned = Self::select(has_sign(y), angle - turn, angle + turn);
        Self::select(is_steep | is_left, turned, angle)
    }
    /// The hyperbolic sine.
    #[inline(always)]
    fn sinh(self) -> Self {
        let (half, other) = ((self * 0.5).expm1(), (self * -0.5).expm1());
        (half - other) * ((half + other) * 0.5 + 1.0)
    }
    /// The hyperbolic cosine.
    #[inline(always)]
    fn cosh(self) -> Self {
        let double = (self * 0.5).expm1() - (self * -0.5).expm1();
        double * 0.5 * double + 1.0
    }
    /// The inverse of [`sinh`](Self::sinh).
    #[inline(always)]
    fn asinh(self) -> Self {
        let is_negative = self.lt(Self::of(0.0));
        let x = Self::select(is_negative, -self, self);
        let result = log1p_or_double(x, x * (x / ((x * x + 1.0).sqrt() + 1.0) + 1.0));
        Self::select(is_negative, -result, result)
    }
    /// The inverse of [`cosh`](Self::cosh).
    #[inline(always)]
    fn acosh(self) -> Self {
        let beyond = self - 1.0;
        log1p_or_double(self, beyond.sqrt() * (self + 1.0).sqrt() + beyond)
    }
    /// The inverse of [`tanh`](Self::tanh).
    #[inline(always)]
    fn atanh(self) -> Self {
        (self.log1p() - (-self).log1p()) * 0.5
    }
    /// The smallest integer that is not smaller.
    #[inline(always)]
    fn ceil(self) -> Self {
        -(-self).floor()
    }
    /// The integer towards 0.
    #[inline(always)]
    fn trunc(self) -> Self {
        Self::select(self.lt(Self::of(0.0)), self.ceil(), self.floor())
    }
    /// The nearest integer, of two the even one.
    #[inline(always)]
    fn round(self) -> Self {
        let down = self.floor();
        let (part, half) = (self - down, Self::of(0.5));
        let is_even = (down * 0.5).floor().eq(down * 0.5);
        // What is rounded up to 0 becomes −0.
        Self::select(part.lt(half) | (part.eq(half) & is_even), down, -(-down - 1.0))
    }
    /// The derivative of [`digamma`](Self::digamma).
    #[inline(always)]
    fn trigamma(self) -> Self {
        let one = Self::of(1.0);
        let is_negative = self.lt(Self::of(0.0));
        // As of `lgamma`, a negative argument is mirrored.
        let x = Self::select(is_negative, one - self, self);
        let mut sum = one / (x * x);
        for k in 1..8 {
            let next = x + f64::from(k);
            sum = sum + one / (next * next);
        }
        let inverse = one / (x + 8.0);
        let z = inverse * inverse;
        let mut series = Self::of(TRIGAMMA[7]);
        for k in (0..7).rev() {
            series = series * z + TRIGAMMA[k];
        }
        let result = sum + (inverse * (z * series) + z * 0.5 + inverse);
        let part = -self - (-self).floor();
        let part = Self::select(part.gt(Self::of(0.5)), one - part, part);
        let turn = Self::of(PI) / (part * PI).sin();
        Self::select(is_negative, turn * turn - result, result)
    }
    /// x to an integer power, by multiplications: for small exponents.
    #[inline(always)]
    fn powi(self, exponent: i32) -> Self {
        let (mut power, mut square, mut left) = (None, self, exponent.unsigned_abs());
        while left > 0 {
            if left & 1 == 1 {
                power = Some(power.map_or(square, |p| p * square));
            }
            left >>= 1;
            if left > 0 {
                square = square * square;
            }
        }
        let power = power.unwrap_or(Self::of(1.0));
        if exponent < 0 { Self::of(1.0) / power } else { power }
    }
}

/// Whether a number is negative, or −0, which shows in its inverse.
#[inline(always)]
fn has_sign<S: Scalar>(x: S) -> S::Mask {
    x.lt(S::of(0.0)) | (S::of(1.0) / x).lt(S::of(0.0))
}

/// log(1 + u), or log(2x) where x is large.
#[inline(always)]
fn log1p_or_double<S: Scalar>(x: S, u: S) -> S {
    let is_large = x.gt(S::of(1e16));
    let log = S::select(is_large, x, u).log1p();
    S::select(is_large, log + LN_2, log)
}

/// The coefficients of the series of [`Scalar::trigamma`], Bernoulli's numbers.
const TRIGAMMA: [f64; 8] = [
    1.0 / 6.0,
    -1.0 / 30.0,
    1.0 / 42.0,
    -1.0 / 30.0,
    5.0 / 66.0,
    -691.0 / 2730.0,
    7.0 / 6.0,
    -3617.0 / 510.0,
];

/// 2 √(2/π), in the argument of the sigmoid of [`Scalar::gelu_tanh`].
pub(crate) const GELU_LINEAR: f64 = 1.595_769_121_605_730_8;
/// The coefficient of the cubic term there.
pub(crate) const GELU_CUBIC: f64 = 0.044715;

/// What a comparison of [`Scalar`]s gives: `&`, `|`, `!`, and then [`Scalar::select`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a mask",
    note = "masks come from comparisons of `Scalar`s: `x.lt(y)`"
)]
pub trait Mask:
    Copy + Debug + 'static + BitAnd<Output = Self> + BitOr<Output = Self> + Not<Output = Self>
{
}

/// The mask of plain floats. It is no `bool`, so that a body that branches fails in every instantiation.
#[derive(Clone, Copy, Debug)]
pub struct Lane(pub(crate) bool);

impl Mask for Lane {}

impl BitAnd for Lane {
    type Output = Self;
    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Lane {
    type Output = Self;
    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Not for Lane {
    type Output = Self;
    #[inline(always)]
    fn not(self) -> Self {
        Self(!self.0)
    }
}
