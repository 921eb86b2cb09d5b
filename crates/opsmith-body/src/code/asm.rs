//! Instructions of x86-64 with AVX2 and FMA, or AVX-512, as bytes.
//!
//! The encodings are those of Intel's Software Developer's Manual, volume 2. A test has them read back by a disassembler.

mod encode;
mod masks;

use super::vectors::Vectors;
pub(crate) use encode::Mask;
use encode::{Length, form};
pub(crate) use masks::{Bitwise, First};

/// A general register, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gpr(pub(crate) u8);

impl Gpr {
    pub(crate) const RAX: Self = Self(0);
    pub(crate) const RCX: Self = Self(1);
    pub(crate) const RDX: Self = Self(2);
    pub(crate) const RBX: Self = Self(3);
    pub(crate) const RBP: Self = Self(5);
    pub(crate) const RSI: Self = Self(6);
    pub(crate) const RDI: Self = Self(7);
    pub(crate) const R8: Self = Self(8);
    pub(crate) const R9: Self = Self(9);
    pub(crate) const R10: Self = Self(10);
    pub(crate) const R11: Self = Self(11);
    pub(crate) const R12: Self = Self(12);
    pub(crate) const R13: Self = Self(13);
    pub(crate) const R14: Self = Self(14);
    pub(crate) const R15: Self = Self(15);
}

/// A vector register, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Vector(pub(crate) u8);

/// Where a last operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rm {
    Vector(Vector),
    General(Gpr),
    /// So many bytes from where a register points to.
    At(Gpr, i32),
    /// The constant of that position in [`Asm::constants`].
    Constant(usize),
}

impl From<Vector> for Rm {
    fn from(register: Vector) -> Self {
        Self::Vector(register)
    }
}

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// Arithmetic on two vectors, with the opcode for either float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arith {
    Add = 0x58,
    Mul = 0x59,
    Sub = 0x5c,
    Min = 0x5d,
    Div = 0x5e,
    Max = 0x5f,
    And = 0x54,
    AndNot = 0x55,
    Or = 0x56,
    Xor = 0x57,
}

/// What is taken away in a product and a sum, with the number that is added to the opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signs {
    Same = 0,
    LessTerm = 2,
    LessProduct = 4,
}

/// Comparisons, with the number that says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Eq = 0,
    Lt = 17,
    Le = 18,
    Unordered = 3,
    /// Neither equal nor NaN, of which one is 0 here.
    NotZero = 12,
}

/// When to jump, after a comparison of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Equal = 4,
    NotEqual = 5,
}

/// Code that is being written.
pub(crate) struct Asm {
    vectors: Vectors,
    code: Vec<u8>,
    /// Constants, vectors that come after the code.
    constants: Vec<Vec<u8>>,
    labels: Vec<Option<usize>>,
    /// Where functions are called with all registers saved, if they are.
    out: Option<Label>,
    /// Where a distance of four bytes is to be written, from which place on it counts, and to what.
    distances: Vec<(usize, usize, Target)>,
}

#[derive(Clone, Copy)]
enum Target {
    Label(Label),
    Constant(usize),
}

impl Asm {
    pub(crate) fn new(vectors: Vectors) -> Self {
        Self {
            vectors,
            code: Vec::new(),
            constants: Vec::new(),
            labels: Vec::new(),
            out: None,
            distances: Vec::new(),
        }
    }

    /// The code with its constants behind it.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.code.resize(self.code.len().next_multiple_of(self.vectors.bytes()), 0xcc);
        let first = self.code.len();
        for (at, from, target) in &self.distances {
            let to = match target {
                Target::Label(label) => self.labels[label.0].expect("a label is somewhere"),
                Target::Constant(position) => first + self.vectors.bytes() * position,
            };
            let distance = to as i64 - *from as i64;
            self.code[*at..at + 4].copy_from_slice(&(distance as i32).to_le_bytes());
        }
        self.code.extend(self.constants.iter().flatten());
        self.code
    }

    /// A constant of so many numbers, by the bits of each.
    pub(crate) fn constant(&mut self, number: impl Fn(usize) -> u64) -> Rm {
        let mut bytes = vec![0; self.vectors.bytes()];
        for (lane, to) in bytes.chunks_exact_mut(self.vectors.number()).enumerate() {
            to.copy_from_slice(&number(lane).to_le_bytes()[..to.len()]);
        }
        let position = self.constants.iter().position(|other| *other == bytes).unwrap_or_else(|| {
            self.constants.push(bytes);
            self.constants.len() - 1
        });
        Rm::Constant(position)
    }

    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label is here.
    pub(crate) fn here(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// The prefix by which the same opcode is for float32 or float64.
    fn packed(&self) -> u8 {
        u8::from(self.vectors.double)
    }

    /// The prefix by which the same opcode is for one float32 or float64.
    fn single(&self) -> u8 {
        if self.vectors.double { 3 } else { 2 }
    }

    pub(crate) fn load(&mut self, to: Vector, from: Rm) {
        self.vector(form(self.packed(), 1, false), Length::Full, 0x10, to.0, 0, from, None);
    }

    pub(crate) fn store(&mut self, from: Vector, to: Rm) {
        self.vector(form(self.packed(), 1, false), Length::Full, 0x11, from.0, 0, to, None);
    }

    pub(crate) fn copy(&mut self, to: Vector, from: Vector) {
        if to != from {
            self.vector(form(self.packed(), 1, false), Length::Full, 0x28, to.0, 0, from.into(), None);
        }
    }

    /// One number of memory everywhere.
    pub(crate) fn broadcast(&mut self, to: Vector, from: Rm) {
        let opcode = 0x18 + self.packed();
        let one = form(1, 2, false).of_bytes(self.vectors.number());
        self.vector(one, Length::Full, opcode, to.0, 0, from, None);
    }

    pub(crate) fn arith(&mut self, op: Arith, to: Vector, a: Vector, b: Rm) {
        self.vector(form(self.packed(), 1, false), Length::Full, op as u8, to.0, a.0, b, None);
    }

    pub(crate) fn sqrt(&mut self, to: Vector, from: Rm) {
        self.vector(form(self.packed(), 1, false), Length::Full, 0x51, to.0, 0, from, None);
    }

    pub(crate) fn floor(&mut self, to: Vector, from: Rm) {
        self.vector(form(1, 3, false), Length::Full, 0x08 + self.packed(), to.0, 0, from, Some(9));
    }

    /// `to = a * to + b`.
    pub(crate) fn multiply_add(&mut self, signs: Signs, to: Vector, a: Vector, b: Rm) {
        let opcode = 0xa8 + signs as u8;
        self.vector(form(1, 2, self.vectors.double), Length::Full, opcode, to.0, a.0, b, None);
    }

    /// `to = a * b + to`.
    pub(crate) fn add_product(&mut self, signs: Signs, to: Vector, a: Vector, b: Rm) {
        let opcode = 0xb8 + signs as u8;
        self.vector(form(1, 2, self.vectors.double), Length::Full, opcode, to.0, a.0, b, None);
    }

    /// The sum of integers as wide as the numbers.
    pub(crate) fn add_int(&mut self, to: Vector, a: Vector, b: Rm) {
        let opcode = if self.vectors.double { 0xd4 } else { 0xfe };
        self.vector(form(1, 1, false), Length::Full, opcode, to.0, a.0, b, None);
    }

    pub(crate) fn shift_left(&mut self, to: Vector, from: Vector, count: u8) {
        let opcode = 0x72 + self.packed();
        self.vector(form(1, 1, false), Length::Full, opcode, 6, to.0, from.into(), Some(count));
    }

    pub(crate) fn shift_right(&mut self, to: Vector, from: Vector, count: u8) {
        let opcode = 0x72 + self.packed();
        self.vector(form(1, 1, false), Length::Full, opcode, 2, to.0, from.into(), Some(count));
    }

    /// Two quarters of `a` and two of `b`, by two bits of `order` for each; of vectors of 32 bytes a half of each, by four bits: which of
    /// `a`'s halves, or of `b`'s from 2 on.
    pub(crate) fn quarters(&mut self, to: Vector, a: Vector, b: Vector, order: u8) {
        let opcode = if self.vectors.wide { 0x23 } else { 0x06 };
        self.vector(form(1, 3, false), Length::Full, opcode, to.0, a.0, b.into(), Some(order));
    }

    /// Within each half of 16 bytes, the numbers in the order that `order` says: two bits for each float32, one for each float64.
    pub(crate) fn permute(&mut self, to: Vector, from: Vector, order: u8) {
        let opcode = 0x04 + self.packed();
        self.vector(form(1, 3, false), Length::Full, opcode, to.0, 0, from.into(), Some(order));
    }

    /// Those float32 whose places the low bits of `places` say, three of 8 and four of 16.
    pub(crate) fn choose(&mut self, to: Vector, places: Vector, numbers: Rm) {
        self.vector(form(1, 2, false), Length::Full, 0x16, to.0, places.0, numbers, None);
    }

    /// One integer of four bytes everywhere: in as many places as there are numbers.
    pub(crate) fn broadcast_int(&mut self, to: Vector, from: Rm) {
        let length = if self.vectors.double { Length::Half } else { Length::Full };
        self.vector(form(1, 2, false).narrow().of_bytes(4), length, 0x58, to.0, 0, from, None);
    }

    /// The sum of integers of four bytes.
    pub(crate) fn add_int32(&mut self, to: Vector, a: Vector, b: Rm) {
        self.vector(form(1, 1, false).narrow(), Length::Full, 0xfe, to.0, a.0, b, None);
    }

    /// Numbers from integers of four bytes.
    pub(crate) fn convert_ints(&mut self, to: Vector, from: Vector) {
        let (prefix, opcode) = if self.vectors.double { (2, 0xe6) } else { (0, 0x5b) };
        self.vector(form(prefix, 1, false).narrow(), Length::Full, opcode, to.0, 0, from.into(), None);
    }

    /// Float32 from as many float16 in memory.
    pub(crate) fn load_halves(&mut self, to: Vector, from: Rm) {
        self.vector(form(1, 2, false).of_half(), Length::Full, 0x13, to.0, 0, from, None);
    }

    /// Float32 to as many float16 in memory, rounded to the nearest.
    pub(crate) fn store_halves(&mut self, from: Vector, to: Rm) {
        self.vector(form(1, 3, false).of_half(), Length::Full, 0x1d, from.0, 0, to, Some(0));
    }

    /// Integers of four bytes from as many of two in memory.
    pub(crate) fn widen_ints(&mut self, to: Vector, from: Rm) {
        self.vector(form(1, 2, false).of_half(), Length::Full, 0x33, to.0, 0, from, None);
    }

    /// The low two bytes of each four, one after another in the low half; larger integers lose the others.
    pub(crate) fn narrow_ints(&mut self, to: Vector, from: Vector) {
        if self.vectors.wide {
            return self.vector(form(2, 2, false), Length::Full, 0x33, from.0, 0, to.into(), None);
        }
        self.vector(form(1, 2, false), Length::Full, 0x2b, to.0, from.0, from.into(), None);
        self.vector(form(1, 3, true), Length::Full, 0x00, to.0, 0, to.into(), Some(0b1000));
    }

    /// Writes the lower half.
    pub(crate) fn store_half(&mut self, from: Vector, to: Rm) {
        self.vector(form(0, 1, false), Length::Half, 0x11, from.0, 0, to, None);
    }

    /// The upper halves of all vector registers become 0, so that older instructions do not wait for them.
    pub(crate) fn clear_upper(&mut self) {
        self.code.extend([0xc5, 0xf8, 0x77]);
    }

    /// Reads an address or an integer of 8 bytes.
    pub(crate) fn get(&mut self, to: Gpr, from: Rm) {
        self.general(true, &[0x8b], to.0, from, 0);
    }

    pub(crate) fn put(&mut self, from: Gpr, to: Rm) {
        self.general(true, &[0x89], from.0, to, 0);
    }

    /// Copies an address.
    pub(crate) fn get_address(&mut self, to: Gpr, from: Gpr) {
        self.general(true, &[0x8b], to.0, Rm::General(from), 0);
    }

    /// Multiplies integers.
    pub(crate) fn multiply(&mut self, to: Gpr, by: Rm) {
        self.general(true, &[0x0f, 0xaf], to.0, by, 0);
    }

    pub(crate) fn shift_left_general(&mut self, register: Gpr, count: u8) {
        self.general(true, &[0xc1], 4, Rm::General(register), 1);
        self.code.push(count);
    }

    pub(crate) fn subtract_from(&mut self, to: Rm, from: Gpr) {
        self.general(true, &[0x29], from.0, to, 0);
    }

    /// Reads so many bytes, 1, 2, 4 or 8, with zeros above.
    pub(crate) fn get_bytes(&mut self, bytes: usize, to: Gpr, from: Rm) {
        match bytes {
            1 => self.general(false, &[0x0f, 0xb6], to.0, from, 0),
            2 => self.general(false, &[0x0f, 0xb7], to.0, from, 0),
            4 => self.general(false, &[0x8b], to.0, from, 0),
            _ => self.get(to, from),
        }
    }

    /// A number from an integer of 8 bytes in memory; the rest of the register is anything.
    pub(crate) fn number_of_int(&mut self, to: Vector, from: Rm) {
        self.vector(form(self.single(), 1, true).of_bytes(8), Length::Half, 0x2a, to.0, to.0, from, None);
    }

    /// Writes the first number.
    pub(crate) fn store_one(&mut self, from: Vector, to: Rm) {
        self.vector(
            form(self.single(), 1, false).of_bytes(self.vectors.number()),
            Length::Half,
            0x11,
            from.0,
            0,
            to,
            None,
        );
    }

    /// An integer of 8 bytes from a number in memory, without its fraction.
    pub(crate) fn int_of_number(&mut self, to: Gpr, from: Rm) {
        self.vector(
            form(self.single(), 1, true).of_bytes(self.vectors.number()),
            Length::Half,
            0x2c,
            to.0,
            0,
            from,
            None,
        );
    }

    /// All bits set where a register is not 0.
    pub(crate) fn is_not_zero(&mut self, register: Gpr) {
        self.general(true, &[0xf7], 3, Rm::General(register), 0);
        self.general(true, &[0x19], register.0, Rm::General(register), 0);
    }

    /// The bits that a number has too.
    pub(crate) fn and_number(&mut self, register: Gpr, number: i32) {
        self.general(true, &[0x81], 4, Rm::General(register), 4);
        self.code.extend(number.to_le_bytes());
    }

    /// Writes the low so many bytes, 1, 2, 4 or 8.
    pub(crate) fn put_bytes(&mut self, bytes: usize, from: Gpr, to: Rm) {
        match bytes {
            // Of RBP the low byte has a name only with a prefix, even an empty one.
            1 => {
                let Rm::At(base, _) = to else { unreachable!("bytes are written to memory") };
                self.code.push(0x40 | (from.0 >> 3) << 2 | base.0 >> 3);
                self.code.push(0x88);
                self.operands(from.0, to, 0, 1);
            }
            2 => {
                self.code.push(0x66);
                self.general(false, &[0x89], from.0, to, 0);
            }
            4 => self.general(false, &[0x89], from.0, to, 0),
            _ => self.put(from, to),
        }
    }

    pub(crate) fn set(&mut self, to: Gpr, number: i32) {
        self.general(true, &[0xc7], 0, Rm::General(to), 4);
        self.code.extend(number.to_le_bytes());
    }

    /// A number of 8 bytes.
    pub(crate) fn get_wide(&mut self, to: Gpr, number: i64) {
        self.code.extend([0x48 | to.0 >> 3, 0xb8 | (to.0 & 7)]);
        self.code.extend(number.to_le_bytes());
    }

    pub(crate) fn add_to(&mut self, to: Rm, number: i32) {
        self.general(true, &[0x81], 0, to, 4);
        self.code.extend(number.to_le_bytes());
    }

    pub(crate) fn add_register(&mut self, to: Rm, from: Gpr) {
        self.general(true, &[0x01], from.0, to, 0);
    }

    pub(crate) fn add_from(&mut self, to: Gpr, from: Rm) {
        self.general(true, &[0x03], to.0, from, 0);
    }

    /// Jumps where a number that is counted down by one is not 0.
    pub(crate) fn count_down(&mut self, number: Rm, to: Label) {
        self.add_to(number, -1);
        self.jump(When::NotEqual, to);
    }

    pub(crate) fn jump(&mut self, when: When, to: Label) {
        self.code.extend([0x0f, 0x80 | when as u8]);
        let at = self.code.len();
        self.distances.push((at, at + 4, Target::Label(to)));
        self.code.extend([0; 4]);
    }

    /// Goes on elsewhere.
    pub(crate) fn go_to(&mut self, to: Label) {
        self.code.push(0xe9);
        let at = self.code.len();
        self.distances.push((at, at + 4, Target::Label(to)));
        self.code.extend([0; 4]);
    }

    pub(crate) fn push(&mut self, register: Gpr) {
        if register.0 > 7 {
            self.code.push(0x41);
        }
        self.code.push(0x50 | (register.0 & 7));
    }

    pub(crate) fn pop(&mut self, register: Gpr) {
        if register.0 > 7 {
            self.code.push(0x41);
        }
        self.code.push(0x58 | (register.0 & 7));
    }

    /// Calls the function whose address a register has.
    pub(crate) fn call(&mut self, function: Gpr) {
        self.general(false, &[0xff], 2, Rm::General(function), 0);
    }

    /// Goes where functions are called, and back.
    pub(crate) fn call_out(&mut self) {
        let out = self.out.unwrap_or_else(|| self.label());
        self.out = Some(out);
        self.code.push(0xe8);
        let at = self.code.len();
        self.distances.push((at, at + 4, Target::Label(out)));
        self.code.extend([0; 4]);
    }

    /// The place of that, if something goes there.
    pub(crate) fn out(&self) -> Option<Label> {
        self.out
    }

    pub(crate) fn give_back(&mut self) {
        self.code.push(0xc3);
    }
}

#[cfg(test)]
mod tests;
