//! Plain floats as [`Scalar`]s: a float and the instruction set that it is computed with.

use std::marker::PhantomData;
use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::isa::Isa;
use crate::scalar::Mask;

/// What an angle is of: a sine or a cosine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    /// Of a sine.
    Sine,
    /// Of a cosine, which is a sine a quarter turn on.
    Cosine,
}

/// What the elementary functions need to know of a float type. Sealed: `f32`, `f64`, and what records either.
pub trait Real:
    Copy
    + Send
    + Sync
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// What a comparison gives.
    type Truth: Mask;

    /// Whether it is a float64, else it is a float32.
    const DOUBLE: bool;
    /// The explicit bits of the significand.
    const DIGITS: u8 = if Self::DOUBLE { 52 } else { 23 };
    /// What is added to exponents where they are stored.
    const BIAS: i32 = if Self::DOUBLE { 1023 } else { 127 };
    /// The bits of √½.
    const SQRT_HALF: u64 = if Self::DOUBLE { 0x3fe6_a09e_667f_3bcd } else { 0x3f35_04f3 };
    /// From here on all floats are integers: 2 to the number of explicit bits of the significand.
    const INTEGERS: f64 = if Self::DOUBLE { 4_503_599_627_370_496.0 } else { 8_388_608.0 };
    /// 1.5 times [`INTEGERS`](Self::INTEGERS): what is added to it is rounded to an integer, whose bits are the low
    /// bits of the sum.
    const ROUND: f64 = Self::INTEGERS * 1.5;
    /// Where `exp` has overflowed, and where it is zero.
    const EXP_RANGE: (f64, f64) = if Self::DOUBLE { (-746.0, 710.0) } else { (-104.0, 89.0) };
    /// How far exponents of results that are subnormal are lifted, so that powers of two are normal.
    const DESCENT: i32 = if Self::DOUBLE { 512 } else { 64 };
    /// 2 to that power.
    const ASCENT: f64 = if Self::DOUBLE { 1.3407807929942597e154 } else { 18_446_744_073_709_551_616.0 };
    /// From here on `expm1(-x)` is −1.
    const EXPM1_LOW: f64 = if Self::DOUBLE { -40.0 } else { -20.0 };
    /// log 2 in two parts; an exponent times the first part is exact.
    const LN2: (f64, f64) = if Self::DOUBLE {
        (0.6931471803691238, 1.9082149292705877e-10)
    } else {
        (0.693359375, -2.1219444e-4)
    };
    /// The position of the sign's bit.
    const SIGN_BIT: u8 = if Self::DOUBLE { 63 } else { 31 };
    /// π in three parts, none of them rounded up: so a zero keeps its sign when they are taken from it.
    const PI: [f64; 3] = if Self::DOUBLE {
        [std::f64::consts::PI, 1.224646799147353e-16, 2.1657133478438278e-32]
    } else {
        [3.141592502593994, 1.5099578831723193e-07, 1.078060505991553e-14]
    };
    /// From here on π times the quotient is not exact enough for an angle.
    const FAR: f64 = if Self::DOUBLE { 1_073_741_824.0 } else { 32768.0 };
    /// Up to here the sine is its argument.
    const SINE_SMALL: f64 = if Self::DOUBLE { 1e-9 } else { 1e-4 };
    /// From here on Φ(−t) is zero.
    const TAIL_END: f64 = if Self::DOUBLE { 39.0 } else { 14.5 };
    /// A power with such an exponent, or a larger one, is 0, 1 or infinite.
    const LARGE: f64 = if Self::DOUBLE { 1e30 } else { 1e15 };
    /// From here on the tanh form of GELU is zero for −x.
    const GELU_END: f64 = if Self::DOUBLE { 21.7 } else { 11.0 };
    /// The factor of Dekker's splitting: 2 to half the significand's bits, plus 1.
    const SPLIT: f64 = if Self::DOUBLE { 134_217_729.0 } else { 4097.0 };
    /// The smallest normal number.
    const NORMAL: f64 = if Self::DOUBLE { f64::MIN_POSITIVE } else { f32::MIN_POSITIVE as f64 };
    /// 2 to a power that lifts subnormal numbers to normal ones, and the power.
    const LIFT: (f64, f64) =
        if Self::DOUBLE { (18_014_398_509_481_984.0, 54.0) } else { (33_554_432.0, 25.0) };

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

    /// `self < other`.
    fn less(self, other: Self) -> Self::Truth;
    /// `self <= other`.
    fn less_or_equal(self, other: Self) -> Self::Truth;
    /// `self == other`.
    fn equal(self, other: Self) -> Self::Truth;
    /// `yes` where it is true, else `no`.
    fn pick(truth: Self::Truth, yes: Self, no: Self) -> Self;

    /// What has these bits, the low 32 of them in a float32.
    fn from_pattern(bits: u64) -> Self;
    /// The bits added as integers, which wrap around.
    fn add_bits(self, other: Self) -> Self;
    /// The bits that both have.
    fn and_bits(self, other: Self) -> Self;
    /// The bits that one of the two has.
    fn or_bits(self, other: Self) -> Self;
    /// The bits that one of the two has, and not both.
    fn xor_bits(self, other: Self) -> Self;
    /// That of eight float32 which the low three bits say; of a float32.
    fn of_eight(position: Self, numbers: [f32; 8]) -> Self;
    /// The bits shifted left.
    fn shift_left(self, by: u8) -> Self;
    /// The bits shifted right, with zeros coming in.
    fn shift_right(self, by: u8) -> Self;

    /// The bits of an exponent as it is stored, but lowest.
    #[inline(always)]
    fn biased(exponent: i32) -> Self {
        Self::from_pattern((exponent + Self::BIAS) as u64)
    }

    /// 2 to the power k + shift from k + [`ROUND`](Self::ROUND) and [`biased`](Self::biased) of the shift, for normal
    /// results.
    #[inline(always)]
    fn power_of_two(rounded: Self, shift: Self) -> Self {
        // The low bits of `ROUND` are zero, so what is left by the shift of the bits is k and the bias.
        rounded.add_bits(shift).shift_left(Self::DIGITS)
    }

    /// 2ᵏ times a number, from k + [`ROUND`](Self::ROUND), with one rounding: by the power that is `shift` more, which is normal, and
    /// what that is too much.
    #[inline(always)]
    fn scaled(self, rounded: Self, shift: Self, back: Self) -> Self {
        self * Self::power_of_two(rounded, shift) * back
    }

    /// A positive normal number as m 2ᵏ with m in [√½, √2).
    #[inline(always)]
    fn split(self) -> (Self, Self) {
        let bits = Self::from_pattern;
        let one = (Self::BIAS as u64) << Self::DIGITS;
        let shifted = self.add_bits(bits(one - Self::SQRT_HALF));
        let mantissa = shifted.and_bits(bits((1 << Self::DIGITS) - 1)).add_bits(bits(Self::SQRT_HALF));
        // An integer as the low bits of a float from `INTEGERS` on.
        let exponent = shifted.shift_right(Self::DIGITS).or_bits(Self::from_f64(Self::INTEGERS));
        (mantissa, exponent - Self::from_f64(Self::INTEGERS + f64::from(Self::BIAS)))
    }

    /// `near`, or an angle of the same sine as x, or its cosine, where x is from [`FAR`](Self::FAR) on.
    fn angle<I: Isa>(turn: Turn, x: Float<Self, I>, near: Float<Self, I>) -> Float<Self, I>;
}

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
        Self::pick(limit.0.less(self.0), limit, self)
    }

    /// The larger; `self` if one is NaN.
    #[inline(always)]
    pub(crate) fn at_least(self, limit: f64) -> Self {
        let limit = Self::c(limit);
        Self::pick(self.0.less(limit.0), limit, self)
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
