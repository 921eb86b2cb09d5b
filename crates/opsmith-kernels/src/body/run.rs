//! Nests, run: by blocks, on the threads of the call.

use std::ops::Range;

use opsmith_body::{
    Axes, Axis, BLOCK, Block, Level, Nest, Nests, PART, Place, Step, Sum, across, add_part, fold_block,
    sum_up,
};
use opsmith_core::{Compute, Result, memory};
use smallvec::SmallVec;

use super::memory::{At, Batch, Operand};
use crate::stored::{Stored, Wide};

/// What a step takes, in nanoseconds, for a block.
const STEP_COST: usize = 30;

/// The nests of a call, and what they read and write.
pub(super) struct Task<'a, T: Stored> {
    pub(super) nests: &'a Nests,
    pub(super) sizes: &'a [usize],
    /// The inputs, the outputs and the temporaries.
    pub(super) operands: Vec<Operand<T>>,
    /// How many inputs there are, and outputs.
    pub(super) counts: (usize, usize),
    pub(super) batch: &'a Batch,
}

impl<T: Stored> Task<'_, T> {
    /// Runs all nests, for one position of the batch's outer loop after another.
    pub(super) fn run(&self, compute: &Compute<'_>) -> Result<()> {
        let (outer, inner) = self.batch.counts();
        for outer in 0..outer {
            for nest in &self.nests.nests {
                let units = nest.free.iter().map(|axis| self.positions(nest, axis)).product::<usize>();
                let cost = self.cost(nest, &nest.steps).min(1 << 30);
                compute.try_parallel_for(inner.saturating_mul(units), cost, |range| {
                    Machine::new(self, nest)?.units(outer, units, range);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    /// How many positions the loop along an axis has, which goes by blocks along the lanes.
    fn positions(&self, nest: &Nest, axis: Axis) -> usize {
        let size = self.sizes[axis.index()];
        if nest.lanes == Some(axis) { size.div_ceil(BLOCK) } else { size }
    }

    /// Roughly the nanoseconds that steps take.
    fn cost(&self, nest: &Nest, steps: &[Step]) -> usize {
        let cost = |step: &Step| match step {
            Step::Loop { axis, steps, .. } => {
                self.cost(nest, steps).saturating_mul(self.positions(nest, *axis))
            }
            Step::Compute { program, .. } => STEP_COST.saturating_mul(program.len()),
            _ => STEP_COST,
        };
        steps.iter().map(cost).fold(0, usize::saturating_add)
    }

    /// Which operand a place is.
    fn operand(&self, place: Place) -> usize {
        let (inputs, outputs) = self.counts;
        match place {
            Place::Input(input) => input,
            Place::Output(output) => inputs + output,
            Place::Temporary(array) => inputs + outputs + array,
        }
    }
}

/// A register's blocks: where they begin, and how far it is from one position of an axis to the next.
struct Register {
    first: usize,
    count: usize,
    along: SmallVec<[(Axis, usize); 2]>,
}

/// A thread's part of a nest.
struct Machine<'a, T: Stored> {
    task: &'a Task<'a, T>,
    nest: &'a Nest,
    level: Level,
    blocks: Vec<Block<T::Wide>>,
    registers: Vec<Register>,
    /// How far each operand is at the position of the batch.
    offsets: Vec<isize>,
    at: At,
    /// The position of each loop, which along the lanes is that of the block.
    position: [usize; Axis::MOST],
}

impl<'a, T: Stored> Machine<'a, T> {
    fn new(task: &'a Task<'a, T>, nest: &'a Nest) -> Result<Self> {
        let mut registers = Vec::with_capacity(nest.registers.len());
        let mut first = 0;
        for axes in &nest.registers {
            let mut count = 1;
            let mut along = SmallVec::new();
            for axis in axes.iter() {
                along.push((axis, count));
                count *= task.positions(nest, axis);
            }
            registers.push(Register { first, count, along });
            first += count;
        }
        Ok(Machine {
            task,
            nest,
            level: Level::best(),
            blocks: memory::filled(Block::default(), first, "the registers of a body")?,
            registers,
            offsets: Vec::with_capacity(task.operands.len()),
            at: At { along: [0; Axis::MOST], lanes: None },
            position: [0; Axis::MOST],
        })
    }

    /// Computes some units of the batch's inner loop, of which each position has so many.
    fn units(&mut self, outer: usize, each: usize, range: Range<usize>) {
        let (nest, task) = (self.nest, self.task);
        for unit in range.clone() {
            if unit == range.start || unit % each == 0 {
                let offset = |operand: &Operand<T>| operand.offset(task.batch, outer, unit / each);
                self.offsets.clear();
                self.offsets.extend(task.operands.iter().map(offset));
            }
            let mut rest = unit % each;
            for axis in free_inside_out(nest) {
                let positions = self.task.positions(nest, axis);
                self.go_to(axis, rest % positions);
                rest /= positions;
            }
            self.steps(&nest.steps);
        }
    }

    /// Puts the loop along an axis at a position.
    fn go_to(&mut self, axis: Axis, position: usize) {
        self.position[axis.index()] = position;
        if self.nest.lanes == Some(axis) {
            let first = position * BLOCK;
            self.at.along[axis.index()] = first;
            self.at.lanes = Some((axis, (self.task.sizes[axis.index()] - first).min(BLOCK)));
        } else {
            self.at.along[axis.index()] = position;
        }
    }

    /// How many numbers of a block there are.
    fn len(&self) -> usize {
        self.at.lanes.map_or(BLOCK, |(_, count)| count)
    }

    /// The block of a register where the loops are.
    fn block(&self, register: usize) -> usize {
        let register = &self.registers[register];
        let offsets = register.along.iter().map(|(axis, stride)| self.position[axis.index()] * stride);
        register.first + offsets.sum::<usize>()
    }

    fn steps(&mut self, steps: &'a [Step]) {
        for step in steps {
            self.step(step);
        }
    }

    fn step(&mut self, step: &'a Step) {
        match step {
            Step::Load { from, to } => {
                let to = self.block(*to);
                let from = self.task.operand(*from);
                let (operand, offset) = (&self.task.operands[from], self.offsets[from]);
                // SAFETY: the loops are within the sizes of the call, and what is read was written by a nest before.
                unsafe { operand.load(self.level, offset, &self.at, &mut self.blocks[to]) };
            }
            Step::Store { from, to } => {
                let from = self.block(*from);
                let to = self.task.operand(*to);
                let (operand, offset) = (&self.task.operands[to], self.offsets[to]);
                // SAFETY: the loops are within the sizes of the call, and the positions of this unit are its own.
                unsafe { operand.store(self.level, offset, &self.at, &self.blocks[from]) };
            }
            Step::Index { axis, to } => {
                let to = self.block(*to);
                let first = self.at.along[axis.index()] as f64;
                let step = f64::from(u8::from(self.at.lanes.is_some_and(|(lanes, _)| lanes == *axis)));
                for (lane, number) in self.blocks[to].0.iter_mut().enumerate() {
                    *number = T::Wide::of_double(first + step * lane as f64);
                }
            }
            Step::Count { axis, to } => {
                let to = self.block(*to);
                let size = self.task.sizes[axis.index()] as f64;
                self.blocks[to].0 = [T::Wide::of_double(size); BLOCK];
            }
            Step::Compute { program, inputs, outputs, .. } => self.compute(program, inputs, outputs),
            Step::Fill { register, value } => {
                let Register { first, count, .. } = self.registers[*register];
                self.blocks[first..first + count].fill(Block([T::Wide::of_double(*value); BLOCK]));
            }
            Step::Fold { op, from, into } => {
                let (from, into, len) = (self.block(*from), self.block(*into), self.len());
                let from = self.blocks[from];
                fold_block(self.level, *op, &mut self.blocks[into], &from, len);
            }
            Step::Loop { axis, steps, sums } => self.go_along(*axis, steps, sums),
            Step::Across { op, register } => {
                let Register { first, count, .. } = self.registers[*register];
                self.blocks[first..first + count].iter_mut().for_each(|block| across(*op, block));
            }
        }
    }

    fn compute(&mut self, program: &opsmith_body::Interpreted, inputs: &[usize], outputs: &[usize]) {
        let lens = [self.len()];
        let read: SmallVec<[usize; 8]> = inputs.iter().map(|register| self.block(*register)).collect();
        let written: SmallVec<[usize; 8]> = outputs.iter().map(|register| self.block(*register)).collect();
        debug_assert!(written.iter().all(|block| !read.contains(block)));
        let blocks = self.blocks.as_mut_ptr();
        // SAFETY: the blocks are within the registers. What is written are registers of their own, which the step that made
        // them says, so none is read here and none is there twice.
        unsafe {
            let read: SmallVec<[&[T::Wide; BLOCK]; 8]> =
                read.iter().map(|block| &(*blocks.add(*block)).0).collect();
            let mut written: SmallVec<[&mut [T::Wide; BLOCK]; 8]> =
                written.iter().map(|block| &mut (*blocks.add(*block)).0).collect();
            program.eval_many(self.level, &lens, &read, &mut written);
        }
    }

    fn go_along(&mut self, axis: Axis, steps: &'a [Step], sums: &[Sum]) {
        let positions = self.task.positions(self.nest, axis);
        // There may be a loop along the axis around this one.
        let around = (self.position[axis.index()], self.at.clone());
        for position in 0..positions {
            self.go_to(axis, position);
            self.steps(steps);
            if position % PART == PART - 1 && position + 1 < positions {
                self.sums(sums, add_part);
            }
        }
        (self.position[axis.index()], self.at) = around;
        if positions > PART {
            self.sums(sums, sum_up);
        }
    }

    /// Does something with the three blocks of every sum.
    fn sums(&mut self, sums: &[Sum], act: SumFn<T::Wide>) {
        for sum in sums {
            for index in 0..self.registers[sum.part].count {
                let places =
                    [sum.part, sum.total, sum.lost].map(|register| self.registers[register].first + index);
                let mut blocks = places.map(|place| self.blocks[place]);
                let [part, total, lost] = &mut blocks;
                act(self.level, part, total, lost);
                for (place, block) in places.into_iter().zip(blocks) {
                    self.blocks[place] = block;
                }
            }
        }
    }
}

type SumFn<W> = fn(Level, &mut Block<W>, &mut Block<W>, &mut Block<W>);

/// The free axes, the fastest first: that of the lanes, then the last ones.
fn free_inside_out(nest: &Nest) -> impl Iterator<Item = Axis> {
    let lanes = nest.lanes.filter(|axis| nest.free.has(*axis));
    let others = lanes.map_or(nest.free, |axis| nest.free.minus(Axes::of(axis)));
    lanes.into_iter().chain(others.iter().rev())
}
