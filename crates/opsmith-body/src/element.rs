//! What lies in memory, and the numbers it is computed with.

use half::{bf16, f16};

use crate::float::{F32, F64};
use crate::isa::Isa;
use crate::scalar::Scalar;

/// A float type of arrays: `f32` and `f64`, computed as they are, `f16` and `bf16`, computed in float32.
pub trait Element: Copy + Default + Send + Sync + 'static {
    /// The number that bodies are computed with.
    type Number<I: Isa>: Scalar;
    /// The number of an element.
    fn load<I: Isa>(self) -> Self::Number<I>;
    /// The element nearest to a number.
    fn store<I: Isa>(number: Self::Number<I>) -> Self;
}

impl Element for f32 {
    type Number<I: Isa> = F32<I>;
    #[inline(always)]
    fn load<I: Isa>(self) -> F32<I> {
        F32::new(self)
    }
    #[inline(always)]
    fn store<I: Isa>(number: F32<I>) -> Self {
        number.get()
    }
}

impl Element for f64 {
    type Number<I: Isa> = F64<I>;
    #[inline(always)]
    fn load<I: Isa>(self) -> F64<I> {
        F64::new(self)
    }
    #[inline(always)]
    fn store<I: Isa>(number: F64<I>) -> Self {
        number.get()
    }
}

// The conversions of `half` ask the processor what it has, for each number; these are arithmetic, and vectorised.

impl Element for f16 {
    type Number<I: Isa> = F32<I>;

    /// By M. Dukhan's FP16: the exponent is moved by a multiplication, for subnormal numbers by a subtraction.
    #[inline(always)]
    fn load<I: Isa>(self) -> F32<I> {
        let word = u32::from(self.to_bits()) << 16;
        let sign = word & 0x8000_0000;
        let shifted = word.wrapping_add(word);
        let normal = f32::from_bits((shifted >> 4).wrapping_add(0xe0 << 23)) * f32::from_bits(0x780_0000);
        let subnormal = f32::from_bits((shifted >> 17) | (126 << 23)) - 0.5;
        let magnitude = if shifted < (1 << 27) { subnormal.to_bits() } else { normal.to_bits() };
        F32::new(f32::from_bits(sign | magnitude))
    }

    /// By the same: an addition rounds to the digits that a float16 of this size has.
    #[inline(always)]
    fn store<I: Isa>(number: F32<I>) -> Self {
        let word = number.get().to_bits();
        let shifted = word.wrapping_add(word);
        let sign = word & 0x8000_0000;
        let scaled = (number.get().abs() * f32::from_bits(0x7780_0000)) * f32::from_bits(0x880_0000);
        let bias = (shifted & 0xff00_0000).max(0x7100_0000);
        let rounded = (f32::from_bits((bias >> 1).wrapping_add(0x780_0000)) + scaled).to_bits();
        let finite = ((rounded >> 13) & 0x7c00).wrapping_add(rounded & 0xfff);
        let magnitude = if shifted > 0xff00_0000 { 0x7e00 } else { finite };
        Self::from_bits(((sign >> 16) | magnitude) as u16)
    }
}

impl Element for bf16 {
    type Number<I: Isa> = F32<I>;

    #[inline(always)]
    fn load<I: Isa>(self) -> F32<I> {
        F32::new(f32::from_bits(u32::from(self.to_bits()) << 16))
    }

    #[inline(always)]
    fn store<I: Isa>(number: F32<I>) -> Self {
        let bits = number.get().to_bits();
        let rounded = bits.wrapping_add(0x7fff).wrapping_add((bits >> 16) & 1) >> 16;
        let quiet_nan = (bits >> 16) | 0x40;
        let is_nan = bits & 0x7fff_ffff > 0x7f80_0000;
        Self::from_bits((if is_nan { quiet_nan } else { rounded }) as u16)
    }
}

/// What an argument of a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Floats.
    Number,
    /// Positions along an axis, int64.
    Index,
    /// Truth values, bool.
    Mask,
}

impl Kind {
    /// The dtype in the definition language, where numbers are of `T`.
    pub fn dtype(self) -> &'static str {
        match self {
            Self::Number => "T",
            Self::Index => "int64",
            Self::Mask => "bool",
        }
    }
}
