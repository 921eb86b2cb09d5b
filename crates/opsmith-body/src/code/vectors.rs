//! The vectors that code computes with.

use crate::isa::Level;

/// What numbers vectors have, and how long vectors are: 32 bytes, with AVX2, or 64, with AVX-512.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vectors {
    /// Whether the numbers are float64, and not float32.
    pub double: bool,
    /// Whether a vector has 64 bytes.
    pub wide: bool,
}

impl Vectors {
    /// The longest that this processor has.
    pub fn best(double: bool) -> Self {
        Self { double, wide: Level::best() >= Level::Avx512 }
    }

    /// The bytes of a vector.
    pub const fn bytes(self) -> usize {
        if self.wide { 64 } else { 32 }
    }

    /// The bytes of a number.
    pub const fn number(self) -> usize {
        if self.double { 8 } else { 4 }
    }

    /// How many numbers a vector has.
    pub const fn width(self) -> usize {
        self.bytes() / self.number()
    }

    /// How many vector registers there are.
    pub(super) const fn registers(self) -> usize {
        if self.wide { MOST_REGISTERS } else { 16 }
    }
}

/// The most vector registers that there are.
pub(super) const MOST_REGISTERS: usize = 32;
