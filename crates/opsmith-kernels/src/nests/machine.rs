//! The interpreter of nests, for where there can be no machine code: one position of the free axes after another, block by block.

use opsmith_body::{
    Axes, Axis, BLOCK, Block, Fold, Interpreted, Level, Nest, PART, Step, Sum, across, add_part, fold_blocks,
    sum_up,
};
use opsmith_core::{Compute, Result, memory};
use smallvec::SmallVec;

use super::memory::{Lanes, Task};
use crate::stored::{Stored, Wide};

/// What a step takes, in nanoseconds, for a block.
const STEP_COST: usize = 40;

/// Runs a nest.
pub(super) fn run<T: Stored>(task: &Task<'_, T>, nest: &Nest, compute: &Compute<'_>) -> Result<()> {
    let units = nest.free.iter().map(|axis| positions(task, nest, axis)).product::<usize>();
    let cost = cost(task, nest, &nest.steps).min(1 << 30);
    compute.try_parallel_for(units, cost, |range| {
        let mut machine = Machine::new(task, nest)?;
        for unit in range {
            machine.go_to(unit);
            machine.steps(&nest.steps);
        }
        Ok(())
    })
}

/// How many positions the loop along an axis has, which goes by blocks along the lanes.
fn positions<T: Stored>(task: &Task<'_, T>, nest: &Nest, axis: Axis) -> usize {
    let size = task.sizes[axis.index()];
    if nest.lanes == Some(axis) { size.div_ceil(BLOCK) } else { size }
}

/// Roughly the nanoseconds that steps take.
fn cost<T: Stored>(task: &Task<'_, T>, nest: &Nest, steps: &[Step]) -> usize {
    let of_step = |step: &Step| match step {
        Step::Loop { axis, steps, .. } => {
            cost(task, nest, steps).saturating_mul(positions(task, nest, *axis))
        }
        Step::Compute { program, .. } => STEP_COST.saturating_mul(program.len()),
        _ => STEP_COST,
    };
    steps.iter().map(of_step).fold(0, usize::saturating_add)
}

/// A register: a block for each position of some loops.
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
    /// What a step computes, before it is in registers.
    results: Vec<Block<T::Wide>>,
    /// The axes of the loops around, and where they are: the position, and how often they have gone on.
    bound: Axes,
    at: [usize; Axis::MOST],
    turns: [usize; Axis::MOST],
}

impl<'a, T: Stored> Machine<'a, T> {
    fn new(task: &'a Task<'a, T>, nest: &'a Nest) -> Result<Self> {
        let mut first = 0;
        let mut registers: Vec<Register> = Vec::with_capacity(nest.registers.len());
        for axes in &nest.registers {
            let mut count = 1;
            let mut along = SmallVec::new();
            for axis in axes.iter() {
                along.push((axis, count));
                count *= positions(task, nest, axis);
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
            results: Vec::new(),
            bound: nest.free,
            at: [0; Axis::MOST],
            turns: [0; Axis::MOST],
        })
    }

    /// Goes to a position of the free axes.
    fn go_to(&mut self, unit: usize) {
        let mut rest = unit;
        for axis in self.nest.free.iter().rev() {
            let positions = positions(self.task, self.nest, axis);
            self.go(axis, rest % positions);
            rest /= positions;
        }
    }

    fn go(&mut self, axis: Axis, turn: usize) {
        self.turns[axis.index()] = turn;
        self.at[axis.index()] = if self.nest.lanes == Some(axis) { turn * BLOCK } else { turn };
    }

    /// The lanes where the loops are.
    fn lanes(&self) -> Lanes {
        let lanes = self.nest.lanes.filter(|lanes| self.bound.has(*lanes))?;
        Some((lanes, (self.task.sizes[lanes.index()] - self.at[lanes.index()]).min(BLOCK)))
    }

    /// The block of a register where the loops are.
    fn block(&self, register: usize) -> usize {
        let Register { first, along, .. } = &self.registers[register];
        first + along.iter().map(|(axis, stride)| self.turns[axis.index()] * stride).sum::<usize>()
    }

    /// All blocks of a register.
    fn all(&mut self, register: usize) -> &mut [Block<T::Wide>] {
        let Register { first, count, .. } = self.registers[register];
        &mut self.blocks[first..first + count]
    }

    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(step);
        }
    }

    fn step(&mut self, step: &Step) {
        let number = |number: usize| T::Wide::of_double(number as f64);
        match step {
            Step::Load { from, to } => {
                let operand = &self.task.operands[from.argument(self.task.counts)];
                let (offset, lanes, block) =
                    (operand.offset(self.bound, &self.at), self.lanes(), self.block(*to));
                // SAFETY: the loops are within the sizes of the call, and what is read was written by a nest before.
                unsafe { operand.load(self.level, offset, lanes, &mut self.blocks[block]) };
            }
            Step::Store { from, to } => {
                let operand = &self.task.operands[to.argument(self.task.counts)];
                let (offset, block) = (operand.offset(self.bound, &self.at), self.block(*from));
                // SAFETY: the loops are within the sizes of the call, and the positions of this unit are its own.
                unsafe { operand.store(self.level, offset, self.lanes(), &self.blocks[block].0) };
            }
            Step::Index { axis, to } => {
                let (at, block) = (self.at[axis.index()], self.block(*to));
                let step = usize::from(self.nest.lanes == Some(*axis));
                for (lane, to) in self.blocks[block].0.iter_mut().enumerate() {
                    *to = number(at + step * lane);
                }
            }
            Step::Count { axis, to } => {
                let block = self.block(*to);
                self.blocks[block].0 = [number(self.task.sizes[axis.index()]); BLOCK];
            }
            Step::Compute { program, inputs, outputs, .. } => self.compute(program, inputs, outputs),
            Step::Fill { register, value } => {
                self.all(*register).fill(Block([T::Wide::of_double(*value); BLOCK]));
            }
            Step::Fold { op, from, into } => self.fold(*op, *from, *into),
            Step::Loop { axis, steps, sums } => self.go_along(*axis, steps, sums),
            Step::Across { op, register } => across(self.level, *op, self.all(*register)),
            Step::Online(_) => unreachable!("only cards have these"),
        }
    }

    fn fold(&mut self, op: Fold, from: usize, into: usize) {
        let len = self.lanes().map_or(BLOCK, |(_, len)| len);
        let (from, into) = (self.blocks[self.block(from)], self.block(into));
        fold_blocks(self.level, op, &mut self.blocks[into..=into], &[&from.0], &[len]);
    }

    fn compute(&mut self, program: &Interpreted, inputs: &[usize], outputs: &[usize]) {
        self.results.resize(outputs.len(), Block::default());
        let mut results = std::mem::take(&mut self.results);
        let read: SmallVec<[&[T::Wide; BLOCK]; 8]> =
            inputs.iter().map(|register| &self.blocks[self.block(*register)].0).collect();
        program.eval(self.level, &read, &mut results);
        drop(read);
        for (register, result) in outputs.iter().zip(&results) {
            let block = self.block(*register);
            self.blocks[block] = *result;
        }
        self.results = results;
    }

    fn go_along(&mut self, axis: Axis, steps: &[Step], sums: &[Sum]) {
        // There may be a loop along the axis around this one.
        let index = axis.index();
        let around = (self.bound, self.at[index], self.turns[index]);
        let positions = positions(self.task, self.nest, axis);
        if positions > PART {
            for register in sums.iter().flat_map(|sum| [sum.total, sum.lost]) {
                self.all(register).fill(Block::default());
            }
        }
        self.bound = self.bound.with(axis);
        for position in 0..positions {
            self.go(axis, position);
            self.steps(steps);
            if position % PART == PART - 1 && position + 1 < positions {
                self.sums(sums, add_part);
            }
        }
        (self.bound, self.at[index], self.turns[index]) = around;
        if positions > PART {
            self.sums(sums, sum_up);
        }
    }

    /// Does something with the three blocks of every sum.
    fn sums(&mut self, sums: &[Sum], act: SumFn<T::Wide>) {
        for sum in sums {
            let firsts = [sum.part, sum.total, sum.lost].map(|register| self.registers[register].first);
            for index in 0..self.registers[sum.part].count {
                let places = firsts.map(|first| first + index);
                if let Ok([part, total, lost]) = self.blocks.get_disjoint_mut(places) {
                    act(self.level, part, total, lost);
                }
            }
        }
    }
}

type SumFn<W> = fn(Level, &mut Block<W>, &mut Block<W>, &mut Block<W>);
