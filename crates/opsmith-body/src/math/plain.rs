//! The floats of the processor.

use crate::float::{Float, Real, Turn};
use crate::isa::Isa;
use crate::math::trig;
use crate::scalar::{Lane, Scalar};

macro_rules! plain {
    ($float:ident, $bits:ident, $far:ident) => {
        impl Real for $float {
            type Truth = Lane;
            const DOUBLE: bool = size_of::<$float>() == 8;

            #[inline(always)]
            fn from_f64(constant: f64) -> Self {
                constant as $float
            }
            #[inline(always)]
            fn fused(self, factor: Self, term: Self) -> Self {
                self.mul_add(factor, term)
            }
            #[inline(always)]
            fn magnitude(self) -> Self {
                self.abs()
            }
            #[inline(always)]
            fn root(self) -> Self {
                self.sqrt()
            }
            #[inline(always)]
            fn floor_native(self) -> Self {
                self.floor()
            }
            #[inline(always)]
            fn with_sign_of(self, sign: Self) -> Self {
                self.copysign(sign)
            }
            #[inline(always)]
            fn less(self, other: Self) -> Lane {
                Lane(self < other)
            }
            #[inline(always)]
            fn less_or_equal(self, other: Self) -> Lane {
                Lane(self <= other)
            }
            #[inline(always)]
            fn equal(self, other: Self) -> Lane {
                Lane(self == other)
            }
            #[inline(always)]
            fn pick(truth: Lane, yes: Self, no: Self) -> Self {
                if truth.0 { yes } else { no }
            }
            #[inline(always)]
            fn from_pattern(bits: u64) -> Self {
                Self::from_bits(bits as $bits)
            }
            #[inline(always)]
            fn add_bits(self, other: Self) -> Self {
                Self::from_bits(self.to_bits().wrapping_add(other.to_bits()))
            }
            #[inline(always)]
            fn and_bits(self, other: Self) -> Self {
                Self::from_bits(self.to_bits() & other.to_bits())
            }
            #[inline(always)]
            fn or_bits(self, other: Self) -> Self {
                Self::from_bits(self.to_bits() | other.to_bits())
            }
            #[inline(always)]
            fn xor_bits(self, other: Self) -> Self {
                Self::from_bits(self.to_bits() ^ other.to_bits())
            }
            #[inline(always)]
            fn of_eight(position: Self, numbers: [f32; 8]) -> Self {
                numbers[(position.to_bits() & 7) as usize].into()
            }
            #[inline(always)]
            fn shift_left(self, by: u8) -> Self {
                Self::from_bits(self.to_bits().wrapping_shl(u32::from(by)))
            }
            #[inline(always)]
            fn shift_right(self, by: u8) -> Self {
                Self::from_bits(self.to_bits().wrapping_shr(u32::from(by)))
            }
            #[inline(always)]
            fn angle<I: Isa>(turn: Turn, x: Float<Self, I>, near: Float<Self, I>) -> Float<Self, I> {
                let far = trig::$far(turn, x);
                // What is near needs products that are exact.
                if I::FUSED { Float::pick(Float::c(Self::FAR).le(x.abs()), far, near) } else { far }
            }
        }
    };
}

plain!(f32, u32, far_f32);
plain!(f64, u64, far_f64);
