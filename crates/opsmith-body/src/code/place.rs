//! Straight lines as instructions: which vector is in which register when.

use super::asm::{Asm, Gpr, Mask, Rm, Vector};
use super::line::{Line, Op, Value};
use super::uses::Uses;
use super::vectors::{MOST_REGISTERS, Vectors};

/// The register that points to the frame, the memory that the code has for itself.
pub(crate) const FRAME: Gpr = Gpr::RBX;
/// A register that nothing stays in.
pub(super) const SCRATCH: Gpr = Gpr::RAX;
pub(super) const OTHER_SCRATCH: Gpr = Gpr::RBP;
/// A constant that is read more often is kept in a register.
const OFTEN: usize = 3;
/// The registers for masks of AVX-512: one for a moment, after those in which masks stay.
pub(super) const FIRST: Mask = Mask(7);
pub(super) const MASKS: std::ops::Range<usize> = 1..7;

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pointer {
    Register(Gpr),
    /// In the frame, so many bytes from its beginning.
    Slot(i32),
    /// The frame itself.
    Frame,
}

/// How numbers lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// As they are computed with.
    Same,
    Half,
    BFloat,
    /// An integer of 8 bytes.
    Position,
    /// A byte: 0, or true.
    Truth,
}

impl Stored {
    /// How many bytes a number has.
    pub(super) fn bytes(self, double: bool) -> usize {
        match (self, double) {
            (Self::Same, false) => 4,
            (Self::Same, true) | (Self::Position, _) => 8,
            (Self::Half | Self::BFloat, _) => 2,
            (Self::Truth, _) => 1,
        }
    }
}

/// What is read of memory, or written: which numbers, from an address on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// One after another, the first so many of a vector.
    Dense(usize),
    /// One, everywhere.
    One,
    /// So many, each as many bytes from the one before as the frame says: the number, and the distances of all.
    Apart { count: usize, stride: i32, distances: i32 },
}

impl Which {
    /// How many there are, and where the frame has their stride.
    pub(super) fn count(self) -> (usize, Option<i32>) {
        match self {
            Self::Dense(count) => (count, None),
            Self::One => (1, None),
            Self::Apart { count, stride, .. } => (count, Some(stride)),
        }
    }
}

/// Numbers in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) pointer: Pointer,
    pub(crate) offset: i32,
    pub(crate) stored: Stored,
    pub(crate) which: Which,
}

/// What an input of a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineInput {
    Memory(Address),
    /// In a register, which is kept for it.
    Pinned(Vector),
    /// The position along an axis, which the frame has, and so many more; and one more for each number where it is along the lanes.
    Position {
        counter: i32,
        more: i32,
        along: bool,
    },
}

/// Where a vector goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Memory that the line does not read.
    Memory(Address),
    /// Memory or a register that the line may read: it is written at the end.
    AtEnd(Address),
    Pinned(Vector),
}

/// A line, what it reads and where it writes.
pub(crate) struct Lined<'a> {
    pub(crate) line: &'a Line,
    pub(crate) sources: &'a [LineInput],
    pub(crate) targets: &'a [(Value, Target)],
    /// The registers that something is in from before to after the line.
    pub(crate) pinned: &'a [Vector],
}

/// Writes the instructions of a line; gives how many vectors of the frame it used, from `spills` on.
pub(crate) fn place(asm: &mut Asm, lined: &Lined<'_>, vectors: Vectors, spills: i32) -> usize {
    let ops = lined.line.ops();
    let results: Vec<(Value, bool)> =
        lined.targets.iter().map(|target| (target.0, is_late(ops, target))).collect();
    let uses = Uses::new(ops, &results);
    let mut placer = Placer {
        asm,
        vectors,
        ops,
        sources: lined.sources,
        uses,
        registers: [None; MOST_REGISTERS],
        masks: [None; MASKS.end],
        is_pinned: [false; MOST_REGISTERS],
        is_taken: [false; MOST_REGISTERS],
        at: vec![None; ops.len()],
        spilled: vec![None; ops.len()],
        spills,
        most: 0,
        is_stuck: false,
    };
    for pinned in lined.pinned {
        placer.is_pinned[usize::from(pinned.0)] = true;
    }
    for (index, op) in ops.iter().enumerate() {
        if let Op::Input(position) = op
            && let LineInput::Pinned(register) = lined.sources[*position as usize]
        {
            placer.at[index] = Some(register);
            placer.registers[usize::from(register.0)] = Some(Value(index as u32));
        }
    }
    placer.all(lined.targets);
    if placer.is_stuck { usize::MAX } else { placer.most }
}

/// Whether a vector is written when all is computed.
fn is_late(ops: &[Op], (value, target): &(Value, Target)) -> bool {
    let is_leaf = matches!(ops[value.0 as usize], Op::Input(_) | Op::Constant(_) | Op::Bits(_));
    is_leaf || !matches!(target, Target::Memory(_))
}

pub(super) struct Placer<'a> {
    pub(super) asm: &'a mut Asm,
    pub(super) vectors: Vectors,
    ops: &'a [Op],
    sources: &'a [LineInput],
    pub(super) uses: Uses,
    pub(super) registers: [Option<Value>; MOST_REGISTERS],
    /// What is in the registers for masks, a bit for each number; also what is no longer read.
    pub(super) masks: [Option<Value>; MASKS.end],
    pub(super) is_pinned: [bool; MOST_REGISTERS],
    /// The registers of the instruction that is being written.
    pub(super) is_taken: [bool; MOST_REGISTERS],
    pub(super) at: Vec<Option<Vector>>,
    spilled: Vec<Option<i32>>,
    spills: i32,
    most: usize,
    /// Whether an instruction found no register that is not pinned.
    is_stuck: bool,
}

impl Placer<'_> {
    fn all(&mut self, targets: &[(Value, Target)]) {
        for (index, op) in self.ops.iter().copied().enumerate() {
            let is_live = self.uses.left(Value(index as u32)) > 0;
            if !is_live || matches!(op, Op::Input(_) | Op::Constant(_) | Op::Bits(_)) {
                continue;
            }
            let pin = targets.iter().find_map(|(value, target)| match target {
                Target::Pinned(register) if value.0 as usize == index => Some(*register),
                _ => None,
            });
            self.op(Value(index as u32), op, pin);
            self.is_taken = [false; MOST_REGISTERS];
            for (value, target) in targets.iter().filter(|(value, _)| value.0 as usize == index) {
                if let Target::Memory(place) = target {
                    let from = self.register(*value);
                    self.write(from, place);
                    self.used(*value);
                    // Writing takes registers too, and a vector may go to many places.
                    self.is_taken = [false; MOST_REGISTERS];
                }
            }
        }
        self.end(targets);
    }

    /// What is written when all is computed.
    fn end(&mut self, targets: &[(Value, Target)]) {
        let late = targets.iter().copied().filter(|target| is_late(self.ops, target));
        let late: Vec<(Value, Target)> = late.collect();
        for (value, target) in &late {
            if let Target::Memory(place) | Target::AtEnd(place) = target {
                let from = self.register(*value);
                self.write(from, place);
                self.used(*value);
                self.is_taken = [false; MOST_REGISTERS];
            }
        }
        for (value, target) in &late {
            if let Target::Pinned(to) = target {
                let from = self.register(*value);
                self.asm.copy(*to, from);
                self.used(*value);
                self.is_taken = [false; MOST_REGISTERS];
            }
        }
    }

    /// One reading of a vector less.
    pub(super) fn used(&mut self, value: Value) {
        self.uses.take(value);
        self.last_at(value);
    }

    /// Whether the instruction that is being written is the last to read a vector, once.
    fn dies(&self, value: Value) -> bool {
        self.uses.left(value) == 1
    }

    /// A register that nothing is in, or no longer.
    pub(super) fn free(&mut self) -> Vector {
        let free = (0..self.vectors.registers()).find(|&register| {
            self.registers[register].is_none() && !self.is_taken[register] && !self.is_pinned[register]
        });
        let register = free.unwrap_or_else(|| self.evict());
        self.is_taken[register] = true;
        Vector(register as u8)
    }

    fn has_free(&self) -> bool {
        (0..self.vectors.registers()).any(|register| {
            self.registers[register].is_none() && !self.is_taken[register] && !self.is_pinned[register]
        })
    }

    /// Frees the register of what is read latest.
    fn evict(&mut self) -> usize {
        let next = |value: Value| self.uses.next(value).unwrap_or(usize::MAX);
        let candidates = (0..self.vectors.registers()).filter(|&r| !self.is_taken[r] && !self.is_pinned[r]);
        let latest = candidates.max_by_key(|&register| self.registers[register].map_or(usize::MAX, next));
        let Some(register) = latest else {
            self.is_stuck = true;
            return 0;
        };
        self.spill(register);
        register
    }

    /// Frees a register, whose vector is written to the frame if it cannot be had again otherwise.
    pub(super) fn spill(&mut self, register: usize) {
        let Some(value) = self.registers[register].take() else { return };
        let index = value.0 as usize;
        self.at[index] = None;
        let is_leaf = matches!(self.ops[index], Op::Constant(_) | Op::Bits(_) | Op::Input(_));
        if !is_leaf && self.spilled[index].is_none() && self.mask_of(value).is_none() {
            let slot = self.spill_slot();
            self.spilled[index] = Some(slot);
            self.asm.store(Vector(register as u8), Rm::At(FRAME, slot));
        }
    }

    pub(super) fn spill_slot(&mut self) -> i32 {
        self.most += 1;
        self.spills + (self.vectors.bytes() * (self.most - 1)) as i32
    }

    /// A vector in a register.
    pub(super) fn register(&mut self, value: Value) -> Vector {
        let index = value.0 as usize;
        if let Some(register) = self.at[index] {
            self.is_taken[usize::from(register.0)] = true;
            return register;
        }
        let register = self.free();
        match (self.spilled[index], self.ops[index]) {
            _ if self.mask_of(value).is_some() => {
                let mask = self.mask_of(value).expect("it is in one");
                self.asm.spread_bits(register, mask);
            }
            (Some(slot), _) => self.asm.load(register, Rm::At(FRAME, slot)),
            (None, Op::Constant(_) | Op::Bits(_)) => {
                let from = self.constant(self.ops[index]);
                self.asm.load(register, from);
            }
            (None, Op::Input(position)) => match self.sources[position as usize] {
                LineInput::Memory(place) => self.read(register, &place),
                LineInput::Position { counter, more, along } => self.position(register, counter, more, along),
                LineInput::Pinned(pinned) => self.asm.copy(register, pinned),
            },
            _ => unreachable!("what was computed is in a register or in the frame"),
        }
        self.registers[usize::from(register.0)] = Some(value);
        self.at[index] = Some(register);
        register
    }

    /// A vector where an instruction can read it.
    pub(super) fn anywhere(&mut self, value: Value) -> Rm {
        let index = value.0 as usize;
        if self.at[index].is_some() {
            return Rm::Vector(self.register(value));
        }
        match (self.spilled[index], self.ops[index]) {
            (Some(slot), _) if self.dies(value) => Rm::At(FRAME, slot),
            // One that is read often is in a register if there is one.
            (None, Op::Constant(_) | Op::Bits(_)) if self.uses.left(value) <= OFTEN || !self.has_free() => {
                self.constant(self.ops[index])
            }
            (None, Op::Input(position)) if self.dies(value) => match self.sources[position as usize] {
                LineInput::Memory(Address {
                    pointer,
                    offset,
                    stored: Stored::Same,
                    which: Which::Dense(count),
                }) if count == self.lanes() => {
                    let base = self.address(pointer);
                    Rm::At(base, offset)
                }
                _ => Rm::Vector(self.register(value)),
            },
            _ => Rm::Vector(self.register(value)),
        }
    }

    /// The register for masks that a vector is in.
    pub(super) fn mask_of(&self, value: Value) -> Option<Mask> {
        MASKS.clone().find(|mask| self.masks[*mask] == Some(value)).map(|mask| Mask(mask as u8))
    }

    /// A register for masks that nothing is in, or no longer.
    pub(super) fn free_mask(&mut self) -> Mask {
        let next = |own: &Self, mask: usize| match own.masks[mask] {
            Some(value) => own.uses.next(value).unwrap_or(usize::MAX),
            None => usize::MAX,
        };
        let mask = MASKS.clone().max_by_key(|mask| next(self, *mask)).expect("there are some");
        if next(self, mask) != usize::MAX
            && let Some(value) = self.masks[mask]
        {
            self.out_of_mask(value);
        }
        self.masks[mask] = None;
        Mask(mask as u8)
    }

    /// What is in a register for masks alone is in one for vectors too, or in the frame.
    pub(super) fn out_of_mask(&mut self, value: Value) {
        if self.uses.left(value) > 0 && self.spilled[value.0 as usize].is_none() {
            self.register(value);
        }
    }

    /// A vector as a mask.
    pub(super) fn mask(&mut self, value: Value) -> Mask {
        if let Some(mask) = self.mask_of(value) {
            return mask;
        }
        let from = self.register(value);
        let mask = self.free_mask();
        self.asm.take_bits(mask, from);
        self.masks[usize::from(mask.0)] = Some(value);
        mask
    }

    pub(super) fn lanes(&self) -> usize {
        self.vectors.width()
    }

    pub(super) fn is_near(&self, value: Value) -> bool {
        self.at[value.0 as usize].is_some()
    }

    fn constant(&mut self, op: Op) -> Rm {
        match op {
            Op::Constant(bits) if !self.vectors.double => {
                let number = (f64::from_bits(bits) as f32).to_bits();
                self.asm.constant(|_| number.into())
            }
            Op::Constant(bits) | Op::Bits(bits) => self.asm.constant(|_| bits),
            _ => unreachable!("only constants are"),
        }
    }

    /// The register for a result: that of an operand that is no longer read, or another.
    pub(super) fn result(&mut self, value: Value, pin: Option<Vector>, operands: &[Value]) -> Vector {
        if let Some(pin) = pin {
            // What is in it is read for the last time here, or was before.
            let is_done = self.registers[usize::from(pin.0)].is_none_or(|old| {
                let left = self.uses.left(old);
                left == operands.iter().filter(|operand| **operand == old).count()
            });
            if is_done {
                self.done(operands);
                if let Some(old) = self.registers[usize::from(pin.0)] {
                    self.at[old.0 as usize] = None;
                }
                self.registers[usize::from(pin.0)] = Some(value);
                self.at[value.0 as usize] = Some(pin);
                return pin;
            }
        }
        self.done(operands);
        let own = operands.iter().find_map(|operand| {
            let register = self.last_at(*operand)?;
            (!self.is_pinned[usize::from(register.0)]).then_some(register)
        });
        let register = own.unwrap_or_else(|| self.free());
        self.registers[usize::from(register.0)] = Some(value);
        self.at[value.0 as usize] = Some(register);
        register
    }

    /// Counts the readings of operands.
    pub(super) fn done(&mut self, operands: &[Value]) {
        for operand in operands {
            self.uses.take(*operand);
        }
    }

    /// The register of an operand that nobody reads any more, which is given free.
    fn last_at(&mut self, operand: Value) -> Option<Vector> {
        if self.uses.left(operand) > 0 {
            return None;
        }
        let register = self.at[operand.0 as usize].take()?;
        self.registers[usize::from(register.0)] = None;
        Some(register)
    }

    /// Gives free the registers of operands that nobody reads any more.
    pub(super) fn forget(&mut self, operands: &[Value], result: Value) {
        for operand in operands {
            if *operand != result {
                self.last_at(*operand);
            }
        }
    }
}

/// Where in the frame there is room for a vector, for a moment.
pub(crate) const ROOM: i32 = 0;
