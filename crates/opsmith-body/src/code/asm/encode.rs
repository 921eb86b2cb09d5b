//! The bytes of instructions: prefixes, opcodes and operands.

use super::{Asm, Gpr, Rm, Target, Vector};

/// How instructions are told apart that have the same opcode: the prefix that they would have, the map of opcodes, and bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    prefix: u8,
    map: u8,
    /// The bit for wide numbers of shorter vectors, and whether longer ones have it not even for float64.
    wide: bool,
    is_narrow: bool,
    touched: Touched,
}

/// How much memory an operand is.
#[derive(Clone, Copy, Debug)]
enum Touched {
    Vector,
    HalfVector,
    Bytes(u8),
}

pub(super) const fn form(prefix: u8, map: u8, wide: bool) -> Form {
    Form { prefix, map, wide, is_narrow: false, touched: Touched::Vector }
}

impl Form {
    /// The same for numbers of four bytes, whatever the code computes with.
    pub(super) const fn narrow(self) -> Self {
        Self { is_narrow: true, ..self }
    }

    /// The same for memory of half a vector.
    pub(super) const fn of_half(self) -> Self {
        Self { touched: Touched::HalfVector, ..self }
    }

    /// The same for memory of so many bytes.
    pub(super) const fn of_bytes(self, bytes: usize) -> Self {
        Self { touched: Touched::Bytes(bytes as u8), ..self }
    }
}

/// The length of vectors: those that the code computes with, or half as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Half = 0,
    Full = 1,
}

/// A register of a bit for each number of a vector, under which an instruction is done; without one all numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mask(pub(crate) u8);

/// Which numbers an instruction is done for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Under {
    All,
    /// Those of the mask; the others stay, or are chosen otherwise.
    Mask(Mask),
    /// Those of the mask; the others become 0.
    Zeroed(Mask),
}

impl Asm {
    /// An instruction on vectors: `register` and `rm` are in its operands, `second` is in its prefix.
    #[allow(clippy::too_many_arguments, reason = "they are the fields of the encoding")]
    pub(super) fn vector(
        &mut self,
        form: Form,
        length: Length,
        opcode: u8,
        register: u8,
        second: u8,
        rm: Rm,
        last: Option<u8>,
    ) {
        if self.vectors.wide {
            return self.wide(form, length, opcode, (register, second, rm), last, Under::All);
        }
        let base = base(rm);
        let rest = (!second & 15) << 3 | (length as u8) << 2 | form.prefix;
        let (high, far) = (register & 8 == 0, base & 8 == 0);
        if form.map == 1 && !form.wide && far {
            self.code.extend([0xc5, u8::from(high) << 7 | rest]);
        } else {
            let first = u8::from(high) << 7 | 0x40 | u8::from(far) << 5 | form.map;
            self.code.extend([0xc4, first, u8::from(form.wide) << 7 | rest]);
        }
        self.code.push(opcode);
        self.operands(register, rm, usize::from(last.is_some()), 1);
        self.code.extend(last);
    }

    /// The same of AVX-512.
    pub(super) fn wide(
        &mut self,
        form: Form,
        length: Length,
        opcode: u8,
        (register, second, rm): (u8, u8, Rm),
        last: Option<u8>,
        under: Under,
    ) {
        // Of a vector register the bit that an index would have is one more.
        let beyond = matches!(rm, Rm::Vector(Vector(number)) if number & 16 != 0);
        self.wide_prefix(form, length, (register, second), (base(rm), beyond), under);
        self.code.push(opcode);
        let vector = 32_i32 << length as u8;
        let touched = match form.touched {
            Touched::Vector => vector,
            Touched::HalfVector => vector / 2,
            Touched::Bytes(bytes) => bytes.into(),
        };
        self.operands(register, rm, usize::from(last.is_some()), touched);
        self.code.extend(last);
    }

    /// The four bytes before the opcode; `index` is the register of distances, or a bit of another operand.
    pub(super) fn wide_prefix(
        &mut self,
        form: Form,
        length: Length,
        (register, second): (u8, u8),
        (base, index): (u8, bool),
        under: Under,
    ) {
        let not = |bit: bool, at: u8| u8::from(!bit) << at;
        let is_wide = form.wide || self.vectors.double && !form.is_narrow;
        let (mask, zeroed) = match under {
            Under::All => (0, false),
            Under::Mask(Mask(number)) => (number, false),
            Under::Zeroed(Mask(number)) => (number, true),
        };
        self.code.extend([
            0x62,
            not(register & 8 != 0, 7)
                | not(index, 6)
                | not(base & 8 != 0, 5)
                | not(register & 16 != 0, 4)
                | form.map,
            u8::from(is_wide) << 7 | (!second & 15) << 3 | 4 | form.prefix,
            u8::from(zeroed) << 7 | (1 + length as u8) << 5 | not(second & 16 != 0, 3) | mask,
        ]);
    }

    /// The bytes that name two operands; `after` more bytes of the instruction come behind them. Short distances count `unit` bytes.
    pub(super) fn operands(&mut self, register: u8, rm: Rm, after: usize, unit: i32) {
        let reg = (register & 7) << 3;
        match rm {
            Rm::Vector(Vector(number)) | Rm::General(Gpr(number)) => {
                self.code.push(0xc0 | reg | (number & 7))
            }
            Rm::At(Gpr(base), distance) => {
                let short = i8::try_from(distance / unit).ok().filter(|_| distance % unit == 0);
                self.code.push(if short.is_some() { 0x40 } else { 0x80 } | reg | (base & 7));
                if base & 7 == 4 {
                    self.code.push(0x24);
                }
                match short {
                    Some(short) => self.code.push(short as u8),
                    None => self.code.extend(distance.to_le_bytes()),
                }
            }
            Rm::Constant(position) => {
                self.code.push(reg | 5);
                let at = self.code.len();
                self.distances.push((at, at + 4 + after, Target::Constant(position)));
                self.code.extend([0; 4]);
            }
        }
    }

    /// An instruction on general registers of 8 bytes, or 4 where it is not wide.
    pub(super) fn general(&mut self, wide: bool, opcode: &[u8], register: u8, rm: Rm, after: usize) {
        let prefix = 0x40 | u8::from(wide) << 3 | (register >> 3) << 2 | base(rm) >> 3;
        if prefix != 0x40 {
            self.code.push(prefix);
        }
        self.code.extend(opcode);
        self.operands(register, rm, after, 1);
    }
}

/// The number of the register of an operand that is one, or of its address.
fn base(rm: Rm) -> u8 {
    match rm {
        Rm::Vector(Vector(number)) | Rm::General(Gpr(number)) | Rm::At(Gpr(number), _) => number,
        Rm::Constant(_) => 0,
    }
}
