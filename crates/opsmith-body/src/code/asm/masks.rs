//! Instructions for some of the numbers of a vector: where a mask is set, a vector of AVX2 or a register of a bit for each number.

use super::encode::{Length, Mask, Under, form};
use super::{Asm, Gpr, Rm, Test, Vector};

/// The first numbers of a vector.
#[derive(Clone, Copy, Debug)]
pub(crate) enum First {
    /// Those whose first bit a vector has.
    Vector(Vector),
    Mask(Mask),
}

/// Operations on masks, with the opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bitwise {
    And = 0x41,
    /// The bits of the second that the first does not have.
    AndNot = 0x42,
    Or = 0x45,
}

impl Asm {
    /// Reads the first numbers; the others are 0.
    pub(crate) fn load_first(&mut self, to: Vector, first: First, from: Rm) {
        match first {
            First::Vector(mask) => {
                let opcode = 0x2c + self.packed();
                self.vector(form(1, 2, false), Length::Full, opcode, to.0, mask.0, from, None);
            }
            First::Mask(mask) => {
                let operands = (to.0, 0, from);
                let packed = form(self.packed(), 1, false);
                self.wide(packed, Length::Full, 0x10, operands, None, Under::Zeroed(mask));
            }
        }
    }

    /// Writes the first numbers.
    pub(crate) fn store_first(&mut self, from: Vector, first: First, to: Rm) {
        match first {
            First::Vector(mask) => {
                let opcode = 0x2e + self.packed();
                self.vector(form(1, 2, false), Length::Full, opcode, from.0, mask.0, to, None);
            }
            First::Mask(mask) => {
                let operands = (from.0, 0, to);
                let packed = form(self.packed(), 1, false);
                self.wide(packed, Length::Full, 0x11, operands, None, Under::Mask(mask));
            }
        }
    }

    /// Reads numbers at distances from where a register points to, four-byte integers, the first of them. What says which is
    /// changed.
    pub(crate) fn gather(&mut self, to: Vector, from: Gpr, distances: Vector, first: First) {
        match first {
            First::Vector(mask) => {
                let rest = (!mask.0 & 15) << 3 | 1 << 2 | 1;
                let first = u8::from(to.0 & 8 == 0) << 7
                    | u8::from(distances.0 & 8 == 0) << 6
                    | u8::from(from.0 & 8 == 0) << 5
                    | 2;
                self.code.extend([0xc4, first, u8::from(self.vectors.double) << 7 | rest, 0x92]);
            }
            First::Mask(mask) => {
                // The fifth bit of the distances' register is where a second operand has its own.
                let (register, second) = (to.0, distances.0 & 16);
                let address = (from.0, distances.0 & 8 != 0);
                let (form, under) = (form(1, 2, false), Under::Mask(mask));
                self.wide_prefix(form, Length::Full, (register, second), address, under);
                self.code.push(0x92);
            }
        }
        // A base that is written without a distance would be read as none for two of the registers.
        self.code.extend([0x44 | (to.0 & 7) << 3, (distances.0 & 7) << 3 | (from.0 & 7), 0]);
    }

    /// All bits of a number set where it is true; of vectors with AVX2.
    pub(crate) fn compare(&mut self, test: Test, to: Vector, a: Vector, b: Rm) {
        self.vector(form(self.packed(), 1, false), Length::Full, 0xc2, to.0, a.0, b, Some(test as u8));
    }

    /// `yes` where the mask is set, else `no`; of vectors with AVX2.
    pub(crate) fn select(&mut self, to: Vector, mask: Vector, yes: Rm, no: Vector) {
        let opcode = 0x4a + self.packed();
        self.vector(form(1, 3, false), Length::Full, opcode, to.0, no.0, yes, Some(mask.0 << 4));
    }

    /// The first so many numbers of `first`, and the others of `rest`; of vectors with AVX2.
    pub(crate) fn first_of(&mut self, count: usize, to: Vector, first: Vector, rest: Vector) {
        let opcode = 0x0c + self.packed();
        let mask = (1_u16 << count) - 1;
        self.vector(form(1, 3, false), Length::Full, opcode, to.0, rest.0, first.into(), Some(mask as u8));
    }

    /// A comparison with a bit for each number.
    pub(crate) fn compare_bits(&mut self, test: Test, to: Mask, a: Vector, b: Rm) {
        self.vector(form(self.packed(), 1, false), Length::Full, 0xc2, to.0, a.0, b, Some(test as u8));
    }

    /// `yes` where the mask is set, else `no`.
    pub(crate) fn blend(&mut self, to: Vector, mask: Mask, yes: Rm, no: Vector) {
        let operands = (to.0, no.0, yes);
        self.wide(form(1, 2, false), Length::Full, 0x65, operands, None, Under::Mask(mask));
    }

    /// `to = a * b + to` where the mask is set.
    pub(crate) fn add_product_where(&mut self, to: Vector, mask: Mask, a: Vector, b: Rm) {
        let (form, operands) = (form(1, 2, self.vectors.double), (to.0, a.0, b));
        self.wide(form, Length::Full, 0xb8, operands, None, Under::Mask(mask));
    }

    /// `a` times 2 to the power of `b`, rounded down to an integer; with AVX-512.
    pub(crate) fn scale(&mut self, to: Vector, a: Vector, b: Rm) {
        let (form, operands) = (form(1, 2, self.vectors.double), (to.0, a.0, b));
        self.wide(form, Length::Full, 0x2c, operands, None, Under::All);
    }

    /// All bits of each number whose bit is set.
    pub(crate) fn spread_bits(&mut self, to: Vector, from: Mask) {
        self.vector(form(2, 2, false), Length::Full, 0x38, to.0, 0, Rm::Vector(Vector(from.0)), None);
    }

    /// The first bit of each number.
    pub(crate) fn take_bits(&mut self, to: Mask, from: Vector) {
        self.vector(form(2, 2, false), Length::Full, 0x39, to.0, 0, from.into(), None);
    }

    /// The first so many bits, by a register that is changed.
    pub(crate) fn set_first_bits(&mut self, to: Mask, count: usize, by: Gpr) {
        self.set(by, (1 << count) - 1);
        let far = u8::from(by.0 & 8 == 0) << 5;
        self.code.extend([0xc4, 0xc1 | far, 0x78, 0x92, 0xc0 | to.0 << 3 | by.0 & 7]);
    }

    /// Bits by themselves.
    pub(crate) fn combine_bits(&mut self, op: Bitwise, to: Mask, a: Mask, b: Mask) {
        self.code.extend([0xc5, 0x84 | (!a.0 & 15) << 3, op as u8, 0xc0 | to.0 << 3 | b.0]);
    }

    /// Whether no bit is set, for a jump.
    pub(crate) fn test_bits(&mut self, mask: Mask) {
        let bytes = u8::from(self.vectors.double);
        self.code.extend([0xc5, 0xf8 | bytes, 0x98, 0xc0 | mask.0 << 3 | mask.0]);
    }

    /// The same of a vector of AVX2.
    pub(crate) fn test_vector(&mut self, vector: Vector) {
        self.vector(form(1, 2, false), Length::Full, 0x17, vector.0, 0, vector.into(), None);
    }

    /// Writes the bits of 16 numbers.
    pub(crate) fn put_bits(&mut self, mask: Mask, to: Rm) {
        self.mask_memory(0x91, mask, to);
    }

    /// Reads them.
    pub(crate) fn get_bits(&mut self, mask: Mask, from: Rm) {
        self.mask_memory(0x90, mask, from);
    }

    fn mask_memory(&mut self, opcode: u8, mask: Mask, at: Rm) {
        self.code.extend([0xc5, 0xf8, opcode]);
        self.operands(mask.0, at, 0, 1);
    }
}
