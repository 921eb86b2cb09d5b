//! Nests as code: loops, and what is in registers and addresses in them.

use std::collections::BTreeMap;

use super::asm::{Asm, Gpr, Rm};
use super::calls;
use super::frame::Frame;
use super::place::FRAME;
use super::straight::{MOST_VECTORS, Straight};
use super::tile::{carried, varying_in_code};
use super::vectors::Vectors;
use super::wanted::Wanted;
use super::writer::{At, MOST_SPILLED, Object, POINTERS, Register, Writer, count_reads};
use crate::axes::{Axes, Axis};
use crate::expr::{Nest, Step, Sum};

/// Machine code: a function of the address of its frame, by the calling convention of x86-64 on Linux.
#[derive(Clone, Debug)]
pub struct Code {
    /// The code, which may lie anywhere.
    pub bytes: Vec<u8>,
    /// The memory that it has for itself.
    pub frame: Frame,
    /// Where the vectors of each register of the nest are in the frame.
    pub registers: Vec<usize>,
}

/// What a function has to leave as it was.
/// RAX is among it so that the stack is aligned where functions are called.
const SAVED: [Gpr; 7] = [Gpr::RBX, Gpr::RBP, Gpr::R12, Gpr::R13, Gpr::R14, Gpr::R15, Gpr::RAX];

/// Code does not go along the lanes where they have so few vectors and another axis is longer.
const FEW_VECTORS: usize = 2;
/// The most bytes of a frame.
const MOST_BYTES: usize = 1 << 22;

/// How loops are written.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// The most vectors of a row that is written out.
    most_vectors: usize,
    /// Whether what is the same in all turns of a loop stays in registers.
    holds: bool,
}

impl Way {
    /// All ways, the best first: where short rows written out take too many registers, loops do; where what is held does, it is read in
    /// each turn.
    pub const ALL: [Way; 3] = [
        Way { most_vectors: MOST_VECTORS, holds: true },
        Way { most_vectors: 0, holds: true },
        Way { most_vectors: 0, holds: false },
    ];
}

/// The code of a nest for vectors of AVX2 and FMA, or of AVX-512, and float16 conversions where an argument is of those; none if it does
/// what code written in this way cannot.
pub fn compile(wanted: &Wanted<'_>, vectors: Vectors, way: Way) -> Option<Code> {
    let straight = Straight::new(wanted, vectors, way.most_vectors);
    Writer::new(wanted, vectors, straight, way.holds)?.written()
}

/// The registers of a nest, and where in the frame they are.
fn registers(
    wanted: &Wanted<'_>,
    vectors: Vectors,
    varies: &[Axes],
    frame: &mut Frame,
) -> Option<Vec<Register>> {
    let (nest, bytes) = (wanted.nest, vectors.bytes());
    let mut registers: Vec<Register> = Vec::with_capacity(nest.registers.len());
    for axes in &nest.registers {
        let mut count = 1_usize;
        let mut along = Vec::new();
        for axis in axes.iter() {
            along.push((axis, i32::try_from(bytes * count).ok()?));
            let size = wanted.sizes[axis.index()];
            count = count.checked_mul(if nest.lanes == Some(axis) {
                size.div_ceil(vectors.width())
            } else {
                size
            })?;
            if count > MOST_BYTES / bytes {
                return None;
            }
        }
        let mut tiled = Vec::new();
        let copied = varies[registers.len()].minus(*axes);
        let counts = wanted.tile.counts.iter().chain(&wanted.tile.inner);
        for (axis, copies) in counts.filter(|(axis, _)| copied.has(*axis)) {
            tiled.push((*axis, i32::try_from(bytes * count).ok()?));
            count *= copies;
        }
        let slot = if along.is_empty() { 0 } else { frame.room(8) };
        registers.push(Register { first: frame.room(bytes * count.max(1)), count, tiled, along, slot });
    }
    Some(registers)
}

impl<'a> Writer<'a> {
    fn new(wanted: &'a Wanted<'a>, vectors: Vectors, straight: Straight<'a>, holds: bool) -> Option<Self> {
        let (nest, bytes) = (wanted.nest, vectors.bytes());
        let mut frame = Frame::new(wanted.lies.len(), vectors);
        // They are in the same places for all tiles of a nest.
        for (argument, lies) in wanted.lies.iter().enumerate() {
            for axis in lies.axes.iter() {
                frame.stride(argument, axis);
            }
            if let Some(lanes) = nest.lanes.filter(|lanes| lies.axes.minus(lies.dense).has(*lanes)) {
                frame.distance(argument, lanes);
            }
        }
        let varies = varying_in_code(wanted, &straight);
        let registers = registers(wanted, vectors, &varies, &mut frame)?;
        let spills = frame.room(bytes * MOST_SPILLED);
        let mut reads = vec![0; registers.len()];
        count_reads(&nest.steps, &mut reads);
        // Positions that are read are integers of four bytes.
        if straight.indexed.iter().any(|axis| wanted.sizes[axis.index()] > i32::MAX as usize / 2) {
            return None;
        }
        let asm = Asm::new(vectors);
        let (mut again_sums, mut counts) = (BTreeMap::new(), BTreeMap::new());
        find_again(&nest.steps, &mut again_sums);
        find_counts(&nest.steps, wanted.sizes, &mut counts);
        Some(Self {
            straight,
            holds,
            counts,
            again_sums,
            varies,
            carried: carried(wanted, &straight),
            wanted,
            vectors,
            asm,
            frame,
            registers,
            reads,
            spills,
        })
    }

    fn written(mut self) -> Option<Code> {
        self.all()?;
        let Writer { asm, frame, registers, .. } = self;
        let registers = registers.iter().map(|register| register.first as usize).collect();
        (frame.bytes <= MOST_BYTES).then(|| Code { bytes: asm.finish(), frame, registers })
    }

    /// The function: for so many positions of the fastest outermost axis, all steps.
    fn all(&mut self) -> Option<()> {
        let nest = self.wanted.nest;
        let (from, to) = self.wanted.steps;
        let arguments = self.straight.arguments(&nest.steps[from..to]);
        for register in SAVED {
            self.asm.push(register);
        }
        self.asm.get_address(FRAME, Gpr::RDI);
        for register in &self.registers {
            if !register.along.is_empty() {
                self.asm.get_address(Gpr::RAX, FRAME);
                self.asm.add_to(Rm::General(Gpr::RAX), register.first);
                self.asm.put(Gpr::RAX, Rm::At(FRAME, register.slot));
            }
        }
        let steps = &nest.steps[from..to];
        let mut at = At { len: self.wanted.tile.last, ..At::default() };
        if self.wanted.part.is_none() && steps.iter().all(|step| self.straight.has(step)) {
            for (argument, gpr) in arguments.iter().zip(POINTERS) {
                self.asm.get(gpr, Rm::At(FRAME, self.frame.address(*argument)));
                at.addresses.insert(Object::Argument(*argument), gpr);
            }
        }
        let again = self.asm.label();
        self.asm.here(again);
        self.steps(steps, &at, self.wanted.part)?;
        if let Some(axis) = fastest(nest, self.wanted.sizes, self.vectors) {
            for argument in arguments {
                if self.wanted.lies[argument].axes.has(axis) {
                    let object = Object::Argument(argument);
                    let slot = Rm::At(FRAME, self.frame.address(argument));
                    let address = at.addresses.get(&object).map_or(slot, |gpr| Rm::General(*gpr));
                    self.go_on_by(object, axis, address, self.wanted.tile.count(axis));
                }
            }
            let step = if nest.lanes == Some(axis) { self.width() } else { 1 } * self.wanted.tile.count(axis);
            self.asm.add_to(Rm::At(FRAME, self.frame.position(axis)), step as i32);
            self.asm.count_down(Rm::At(FRAME, self.frame.count as i32), again);
        }
        self.asm.clear_upper();
        for register in SAVED.iter().rev() {
            self.asm.pop(*register);
        }
        self.asm.give_back();
        if let Some(label) = self.asm.out() {
            calls::write(&mut self.asm, &mut self.frame, label);
        }
        Some(())
    }
}

/// The outermost axis along which addresses go on from unit to unit: that of the lanes if it has some vectors, or the last one.
pub fn fastest(nest: &Nest, sizes: &[usize], vectors: Vectors) -> Option<Axis> {
    let lanes = nest.lanes.filter(|lanes| nest.free.has(*lanes));
    let size = |axis: &Axis| sizes[axis.index()];
    match lanes {
        Some(lanes) if size(&lanes) <= FEW_VECTORS * vectors.width() => {
            let longer = nest.free.without(lanes).iter().filter(|axis| size(axis) > FEW_VECTORS);
            longer.max_by_key(size).or(Some(lanes))
        }
        _ => lanes.or_else(|| nest.free.iter().next_back()),
    }
}

fn find_again(steps: &[Step], found: &mut BTreeMap<usize, Sum>) {
    for step in steps {
        if let Step::Loop { steps, sums, .. } = step {
            found.extend(sums.iter().filter(|sum| sum.is_again).map(|sum| (sum.part, *sum)));
            find_again(steps, found);
        }
    }
}

fn find_counts(steps: &[Step], sizes: &[usize], found: &mut BTreeMap<usize, f64>) {
    for step in steps {
        match step {
            Step::Count { axis, to } => {
                found.insert(*to, sizes[axis.index()] as f64);
            }
            Step::Loop { steps, .. } => find_counts(steps, sizes, found),
            _ => {}
        }
    }
}
