//! A thread's part of a nest: registers, and what steps do with them.

use std::ops::Range;

use opsmith_body::{
    Axes, Axis, BLOCK, Block, Interpreted, Level, Nest, PART, Place, Step, Sum, across, add_part,
    fold_block, sum_up,
};
use opsmith_core::{Result, memory};
use smallvec::SmallVec;

use super::memory::Lanes;
use super::run::{Split, Strip, Task};
use crate::stored::{Stored, Wide};

/// A register: a block for each position of some loops, for each unit where it is not the same for all.
struct Register {
    first: usize,
    /// How many blocks there are, but for units.
    count: usize,
    along: SmallVec<[(Axis, usize); 2]>,
    /// Whether each unit has its own.
    varies: bool,
}

/// A thread's part of a nest.
pub(super) struct Machine<'a, T: Stored> {
    task: &'a Task<'a, T>,
    nest: &'a Nest,
    split: Option<&'a Split>,
    level: Level,
    /// The most units, and how many there are.
    together: usize,
    units: usize,
    blocks: Vec<Block<T::Wide>>,
    /// Where each block is: its own place, or where it lies in an argument.
    places: Vec<*const [T::Wide; BLOCK]>,
    registers: Vec<Register>,
    /// Of each operand, how far it is for each unit.
    offsets: Vec<isize>,
    /// Where each unit is along the axes of the outermost loops.
    starts: Vec<[usize; Axis::MOST]>,
    /// How many numbers the blocks of each unit have; of the loop along the lanes, where that is no outermost one.
    lens: Vec<usize>,
    /// How many positions the loop that is split has.
    length: usize,
    /// Where the inner loops are: the position, and how often they have gone on.
    inner: [usize; Axis::MOST],
    turns: [usize; Axis::MOST],
    /// The axes of the inner loops.
    bound: Axes,
    read: Vec<*const [T::Wide; BLOCK]>,
    written: Vec<*mut [T::Wide; BLOCK]>,
}

impl<'a, T: Stored> Machine<'a, T> {
    pub(super) fn new(
        task: &'a Task<'a, T>,
        nest: &'a Nest,
        split: Option<&'a Split>,
        together: usize,
    ) -> Result<Self> {
        let mut registers: Vec<Register> = Vec::with_capacity(nest.registers.len());
        for axes in &nest.registers {
            let mut count = 1;
            let mut along = SmallVec::new();
            for axis in axes.iter() {
                along.push((axis, count));
                count *= task.positions(nest, axis);
            }
            registers.push(Register { first: 0, count, along, varies: false });
        }
        let outer = split.map_or(nest.free, |split| nest.free.with(split.axis));
        find_what_varies(task, outer, &nest.steps, &mut registers);
        let mut first = 0;
        for register in &mut registers {
            register.first = first;
            first += register.count * if register.varies { together } else { 1 };
        }
        let mut blocks: Vec<Block<T::Wide>> = memory::filled(Block::default(), first, "the registers of a body")?;
        let places = memory::collected(blocks.iter_mut().map(|block| &raw const block.0), "the registers of a body")?;
        Ok(Machine {
            task,
            nest,
            split,
            level: Level::best(),
            together,
            units: 0,
            blocks,
            places,
            registers,
            offsets: vec![0; task.operands.len() * together],
            starts: vec![[0; Axis::MOST]; together],
            lens: vec![BLOCK; together],
            length: 0,
            inner: [0; Axis::MOST],
            turns: [0; Axis::MOST],
            bound: Axes::NONE,
            read: Vec::new(),
            written: Vec::new(),
        })
    }

    /// Goes to some units: of each there are `each` for every part of a loop that is split, whose parts have so many positions.
    pub(super) fn go_to(&mut self, strip: &Strip, length: usize, each: usize) {
        let (nest, task) = (self.nest, self.task);
        self.units = strip.units.len();
        self.length = strip.length;
        let outer = self.split.map_or(nest.free, |split| nest.free.with(split.axis));
        for (unit, index) in strip.units.clone().enumerate() {
            let start = &mut self.starts[unit];
            let mut rest = index;
            if let Some(split) = self.split {
                let block = if nest.lanes == Some(split.axis) { BLOCK } else { 1 };
                start[split.axis.index()] = index / each * length * block;
                rest = index % each;
            }
            for axis in free_inside_out(nest) {
                let positions = task.positions(nest, axis);
                let block = if nest.lanes == Some(axis) { BLOCK } else { 1 };
                start[axis.index()] = rest % positions * block;
                rest /= positions;
            }
            self.lens[unit] = match nest.lanes {
                Some(lanes) if nest.free.has(lanes) => (task.sizes[lanes.index()] - start[lanes.index()]).min(BLOCK),
                _ => 1,
            };
            for (operand, own) in task.operands.iter().enumerate() {
                self.offsets[operand * self.together + unit] = own.offset(outer, start);
            }
        }
    }

    /// The lanes of a unit where the loops are.
    fn lanes(&self, unit: usize) -> Lanes {
        let lanes = self.nest.lanes?;
        let is_here = self.nest.free.has(lanes) || self.bound.has(lanes);
        is_here.then_some((lanes, self.lens[unit]))
    }

    /// How many numbers a block has that is the same for all units.
    fn len_of_all(&self) -> usize {
        let is_free = self.nest.lanes.is_some_and(|lanes| self.nest.free.has(lanes));
        if is_free { BLOCK } else { self.lens[0] }
    }

    /// The blocks of a register where the loops are: one, or one of each unit.
    fn range(&self, register: usize) -> Range<usize> {
        let Register { first, along, varies, .. } = &self.registers[register];
        let inner: usize = along.iter().map(|(axis, stride)| self.turns[axis.index()] * stride).sum();
        let each = if *varies { self.together } else { 1 };
        let first = first + inner * each;
        first..first + if *varies { self.units } else { 1 }
    }

    /// All blocks of a register, for all units.
    fn all(&self, register: usize) -> Range<usize> {
        let Register { first, count, varies, .. } = self.registers[register];
        first..first + count * if varies { self.together } else { 1 }
    }

    pub(super) fn steps(&mut self, steps: &'a [Step]) {
        for step in steps {
            self.step(step);
        }
    }

    fn step(&mut self, step: &'a Step) {
        match step {
            Step::Load { from, to } => self.load(*from, *to),
            Step::Store { from, to } => self.store(*from, *to),
            Step::Index { axis, to } => {
                for (unit, block) in self.range(*to).enumerate() {
                    let at = self.starts[unit][axis.index()] + self.inner[axis.index()];
                    let step = usize::from(self.nest.lanes == Some(*axis));
                    for (lane, number) in self.blocks[block].0.iter_mut().enumerate() {
                        *number = T::Wide::of_double((at + step * lane) as f64);
                    }
                }
            }
            Step::Count { axis, to } => {
                let size = T::Wide::of_double(self.task.sizes[axis.index()] as f64);
                for block in self.range(*to) {
                    self.blocks[block].0 = [size; BLOCK];
                }
            }
            Step::Compute { program, inputs, outputs, .. } => self.compute(program, inputs, outputs),
            Step::Fill { register, value } => {
                let range = self.all(*register);
                self.blocks[range].fill(Block([T::Wide::of_double(*value); BLOCK]));
            }
            Step::Fold { op, from, into } => {
                let from = self.range(*from);
                let varies = self.registers[*into].varies;
                for (unit, into) in self.range(*into).enumerate() {
                    let from = self.places[from.start + unit.min(from.len() - 1)];
                    let len = self.lanes(unit).map_or(BLOCK, |(_, len)| if varies { len } else { self.len_of_all() });
                    // SAFETY: a place is that of a whole block, of a register or in an argument; one that is folded into is another.
                    fold_block(self.level, *op, &mut self.blocks[into], unsafe { &*from }, len);
                }
            }
            Step::Loop { axis, steps, sums } => self.go_along(*axis, steps, sums),
            Step::Across { op, register } => {
                let range = self.all(*register);
                self.blocks[range].iter_mut().for_each(|block| across(*op, block));
            }
        }
    }

    fn load(&mut self, from: Place, to: usize) {
        let from = self.task.operand(from);
        let operand = &self.task.operands[from];
        let inner = operand.offset(self.bound, &self.inner);
        for (unit, block) in self.range(to).enumerate() {
            let offset = self.offsets[from * self.together + unit] + inner;
            let lanes = self.lanes(unit);
            self.places[block] = operand.in_place(offset, lanes).unwrap_or_else(|| {
                let to = &mut self.blocks[block];
                // SAFETY: the loops are within the sizes of the call, and what is read was written by a nest before.
                unsafe { operand.load(self.level, offset, lanes, to) };
                &raw const to.0
            });
        }
    }

    fn store(&mut self, from: usize, to: Place) {
        let to = self.task.operand(to);
        let operand = &self.task.operands[to];
        let inner = operand.offset(self.bound, &self.inner);
        let from = self.range(from);
        let units = if operand.axes.both(self.nest.free).is_empty() { 1 } else { self.units };
        for unit in 0..units {
            let offset = self.offsets[to * self.together + unit] + inner;
            let from = self.places[from.start + unit.min(from.len() - 1)];
            // SAFETY: the loops are within the sizes of the call, and the positions of this unit are its own; a place is that of a
            // whole block.
            unsafe { operand.store(self.level, offset, self.lanes(unit), &*from) };
        }
    }

    fn compute(&mut self, program: &Interpreted, inputs: &[usize], outputs: &[usize]) {
        let ranges: SmallVec<[Range<usize>; 4]> = outputs.iter().map(|register| self.range(*register)).collect();
        let units = ranges.iter().map(Range::len).max().unwrap_or(0);
        self.read.clear();
        for &input in inputs {
            let range = self.range(input);
            match range.len() == units {
                true => self.read.extend_from_slice(&self.places[range]),
                false => self.read.extend((0..units).map(|_| self.places[range.start])),
            }
        }
        let blocks = self.blocks.as_mut_ptr();
        self.written.clear();
        for range in &ranges {
            // SAFETY: the blocks are within the registers.
            self.written.extend(range.clone().map(|block| unsafe { &raw mut (*blocks.add(block)).0 }));
        }
        let is_one = self.lanes(0).is_none();
        debug_assert!(self.written.iter().all(|block| !self.read.contains(&block.cast_const())));
        // SAFETY: pointers are references: each is to a whole block, of a register or in an argument. What is written are registers
        // of their own, which the step that made them says, so none is read here and none is there twice.
        unsafe {
            let read = &*(&raw const *self.read.as_slice() as *const [&[T::Wide; BLOCK]]);
            let written = &mut *(&raw mut *self.written.as_mut_slice() as *mut [&mut [T::Wide; BLOCK]]);
            match outputs.iter().all(|register| self.registers[*register].varies) {
                true => program.eval_many(self.level, &self.lens[..units], read, written),
                false => program.eval_many(self.level, &[self.len_of_all()], read, written),
            }
        }
        if is_one {
            // It is the same along the lanes.
            for block in ranges.into_iter().flatten() {
                let number = self.blocks[block].0[0];
                self.blocks[block].0 = [number; BLOCK];
            }
        }
    }

    fn go_along(&mut self, axis: Axis, steps: &'a [Step], sums: &[Sum]) {
        let is_split = self.split.is_some_and(|split| split.axis == axis && !self.bound.has(axis));
        let positions = if is_split { self.length } else { self.task.positions(self.nest, axis) };
        let (index, is_lanes) = (axis.index(), self.nest.lanes == Some(axis));
        let first = if is_split { self.starts[0][index] } else { 0 };
        // There may be a loop along the axis around this one.
        let around = (self.turns[index], self.inner[index], self.bound, self.lens[0]);
        self.bound = self.bound.with(axis);
        for position in 0..positions {
            self.turns[index] = position;
            self.inner[index] = position;
            if is_lanes {
                self.inner[index] = position * BLOCK;
                let len = (self.task.sizes[index] - first - position * BLOCK).min(BLOCK);
                self.lens.fill(len);
            }
            self.steps(steps);
            if position % PART == PART - 1 && position + 1 < positions {
                self.sums(sums, add_part);
            }
        }
        (self.turns[index], self.inner[index], self.bound) = (around.0, around.1, around.2);
        if is_lanes {
            self.lens.fill(around.3);
        }
        if positions > PART {
            self.sums(sums, sum_up);
        }
    }

    /// Does something with the three blocks of every sum.
    fn sums(&mut self, sums: &[Sum], act: SumFn<T::Wide>) {
        for sum in sums {
            let ranges = [sum.part, sum.total, sum.lost].map(|register| self.all(register));
            for index in 0..ranges[0].len() {
                let places = ranges.each_ref().map(|range| range.start + index);
                if let Ok([part, total, lost]) = self.blocks.get_disjoint_mut(places) {
                    act(self.level, part, total, lost);
                }
            }
        }
    }

    /// How many blocks a unit's part of a loop that is split is folded into.
    pub(super) fn folded_blocks(&self) -> usize {
        let folds = self.split.into_iter().flat_map(|split| &split.folds);
        folds.map(|(register, _)| self.registers[*register].count).sum()
    }

    /// The blocks that a unit's part is folded into, in the order of the folds.
    fn folded(&self, unit: usize) -> Vec<usize> {
        let folds = self.split.into_iter().flat_map(|split| &split.folds);
        let blocks = folds.flat_map(|(register, _)| {
            let Register { first, count, varies, .. } = self.registers[*register];
            (0..count).map(move |inner| if varies { first + inner * self.together + unit } else { first + inner })
        });
        blocks.collect()
    }

    /// What a unit's part was folded to.
    pub(super) fn take_folded(&self, unit: usize, to: &mut [Block<T::Wide>]) {
        for (to, block) in to.iter_mut().zip(self.folded(unit)) {
            *to = self.blocks[block];
        }
    }

    /// Folds what the parts of a unit were folded to: by pairs, so that a sum's error is small.
    pub(super) fn put_folded<'p>(&mut self, unit: usize, parts: impl Iterator<Item = &'p [Block<T::Wide>]>)
    where
        T: 'p,
    {
        let ops: Vec<_> = self
            .split
            .into_iter()
            .flat_map(|split| &split.folds)
            .flat_map(|(register, op)| std::iter::repeat_n(*op, self.registers[*register].count))
            .collect();
        let mut parts: Vec<Vec<Block<T::Wide>>> = parts.map(<[_]>::to_vec).collect();
        while parts.len() > 1 {
            let mut pairs = Vec::with_capacity(parts.len().div_ceil(2));
            let mut rest = parts.into_iter();
            while let Some(mut first) = rest.next() {
                if let Some(second) = rest.next() {
                    for ((op, into), from) in ops.iter().zip(&mut first).zip(&second) {
                        fold_block(self.level, *op, into, &from.0, BLOCK);
                    }
                }
                pairs.push(first);
            }
            parts = pairs;
        }
        for (block, folded) in self.folded(unit).into_iter().zip(parts.into_iter().flatten()) {
            self.blocks[block] = folded;
        }
    }
}

type SumFn<W> = fn(Level, &mut Block<W>, &mut Block<W>, &mut Block<W>);

/// Finds which registers are not the same for all units: what is made of what lies along the axes of the outermost loops.
fn find_what_varies<T: Stored>(task: &Task<'_, T>, outer: Axes, steps: &[Step], registers: &mut [Register]) {
    for step in steps {
        match step {
            Step::Load { from, to } => {
                let operand = &task.operands[task.operand(*from)];
                registers[*to].varies = !operand.axes.both(outer).is_empty();
            }
            Step::Index { axis, to } => registers[*to].varies = outer.has(*axis),
            Step::Compute { inputs, outputs, .. } => {
                let varies = inputs.iter().any(|register| registers[*register].varies);
                outputs.iter().for_each(|register| registers[*register].varies = varies);
            }
            Step::Fold { from, into, .. } => registers[*into].varies |= registers[*from].varies,
            Step::Loop { steps, sums, .. } => {
                find_what_varies(task, outer, steps, registers);
                for sum in sums {
                    let varies = registers[sum.part].varies;
                    registers[sum.total].varies = varies;
                    registers[sum.lost].varies = varies;
                }
            }
            Step::Store { .. } | Step::Count { .. } | Step::Fill { .. } | Step::Across { .. } => {}
        }
    }
}

/// The free axes, the fastest first: that of the lanes, then the last ones.
fn free_inside_out(nest: &Nest) -> impl Iterator<Item = Axis> {
    let lanes = nest.lanes.filter(|axis| nest.free.has(*axis));
    let others = lanes.map_or(nest.free, |axis| nest.free.without(axis));
    lanes.into_iter().chain(others.iter().rev())
}
