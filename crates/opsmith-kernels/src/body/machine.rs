//! A thread's part of a nest: registers, and what steps do with them.

use std::ops::Range;

use opsmith_body::{
    Axes, Axis, BLOCK, Block, Fold, Interpreted, Level, Nest, PART, Place, Step, Sum, across, add_part,
    fold_blocks, sum_up,
};
use opsmith_core::{Result, memory};
use smallvec::SmallVec;

use super::memory::Lanes;
use super::run::{MOST_TOGETHER, Split, Strip, Task};
use crate::stored::{Stored, Wide};

/// A register: a block for each position of some loops, for each unit where it is not the same for all.
struct Register {
    first: usize,
    /// How many blocks there are, but for units.
    count: usize,
    along: SmallVec<[(Axis, usize); 2]>,
    /// Whether each unit has its own.
    varies: bool,
    /// Which argument it is computed for and only stored to.
    goes_to: Option<Place>,
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
            registers.push(Register { first: 0, count, along, varies: false, goes_to: None });
        }
        let outer = split.map_or(nest.free, |split| nest.free.with(split.axis));
        find_what_varies(task, outer, &nest.steps, &mut registers);
        find_what_is_stored(&nest.steps, &nest.steps, &mut registers);
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
        let outer = self.outer();
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
        }
        self.find_offsets(outer);
    }

    /// Finds how far each operand is for each unit.
    fn find_offsets(&mut self, outer: Axes) {
        for (operand, own) in self.task.operands.iter().enumerate() {
            let offsets = &mut self.offsets[operand * self.together..][..self.units];
            for (offset, start) in offsets.iter_mut().zip(&self.starts) {
                *offset = own.offset(outer, start);
            }
        }
    }

    /// The axes of the outermost loops, and of one that is split.
    fn outer(&self) -> Axes {
        self.split.map_or(self.nest.free, |split| self.nest.free.with(split.axis))
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
            Step::Fold { op, from, into } => self.fold(*op, *from, *into),
            Step::Loop { axis, steps, sums } => self.go_along(*axis, steps, sums),
            Step::Across { op, register } => {
                let range = self.all(*register);
                across(self.level, *op, &mut self.blocks[range]);
            }
        }
    }

    fn fold(&mut self, op: Fold, from: usize, into: usize) {
        let (from, to) = (self.range(from), self.range(into));
        let all = [self.len_of_all()];
        let lens = match self.lanes(0) {
            None => &[BLOCK; MOST_TOGETHER][..to.len()],
            Some(_) if self.registers[into].varies => &self.lens[..to.len()],
            Some(_) => &all,
        };
        self.read.clear();
        let last = from.len() - 1;
        self.read.extend((0..to.len()).map(|unit| self.places[from.start + unit.min(last)]));
        // SAFETY: pointers are references: each place is that of a whole block, of a register or in an argument; one that is folded
        // into is another.
        let read = unsafe { &*(&raw const *self.read.as_slice() as *const [&[T::Wide; BLOCK]]) };
        fold_blocks(self.level, op, &mut self.blocks[to], read, lens);
    }

    /// Where the block of an output is for a unit where the loops are, if it is computed there.
    fn in_place(&self, operand: usize, unit: usize) -> Option<*const [T::Wide; BLOCK]> {
        let own = &self.task.operands[operand];
        let offset = self.offsets[operand * self.together + unit] + own.offset(self.bound, &self.inner);
        own.in_place(offset, self.lanes(unit))
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
            if operand.in_place(offset, self.lanes(unit)) == Some(from) {
                continue;
            }
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
        for (range, output) in ranges.iter().zip(outputs) {
            let operand = self.registers[*output].goes_to.map(|place| self.task.operand(place));
            for (unit, block) in range.clone().enumerate() {
                let in_place = operand.and_then(|operand| self.in_place(operand, unit));
                // SAFETY: the block is within the registers.
                let own = || unsafe { &raw mut (*blocks.add(block)).0 };
                let place = in_place.map_or_else(own, <*const _>::cast_mut);
                self.places[block] = place;
                self.written.push(place);
            }
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
        let index = axis.index();
        let is_split = self.split.is_some_and(|split| match &self.nest.steps[split.step] {
            Step::Loop { steps: own, .. } => std::ptr::eq(own.as_slice(), steps),
            _ => false,
        });
        // There may be a loop along the axis around this one, which units are somewhere along.
        let around = (self.turns[index], self.inner[index], self.bound);
        let is_within = self.outer().has(axis) && !is_split;
        let starts: SmallVec<[usize; 16]> = self.starts.iter().map(|start| start[index]).collect();
        let lens: SmallVec<[usize; 16]> = self.lens.as_slice().into();
        if is_within {
            self.starts.iter_mut().for_each(|start| start[index] = 0);
            self.find_offsets(self.outer());
        }
        let positions = if is_split { self.length } else { self.task.positions(self.nest, axis) };
        if positions > PART {
            for register in sums.iter().flat_map(|sum| [sum.total, sum.lost]) {
                let range = self.all(register);
                self.blocks[range].fill(Block::default());
            }
        }
        self.bound = self.bound.with(axis);
        for position in 0..positions {
            self.turns[index] = position;
            self.inner[index] = position;
            if self.nest.lanes == Some(axis) {
                self.inner[index] = position * BLOCK;
                let first = self.starts[0][index] + position * BLOCK;
                self.lens.fill((self.task.sizes[index] - first).min(BLOCK));
            }
            self.steps(steps);
            if position % PART == PART - 1 && position + 1 < positions {
                self.sums(sums, add_part);
            }
        }
        (self.turns[index], self.inner[index], self.bound) = around;
        self.lens.copy_from_slice(&lens);
        if is_within {
            self.starts.iter_mut().zip(starts).for_each(|(to, start)| to[index] = start);
            self.find_offsets(self.outer());
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
                        fold_blocks(self.level, *op, std::slice::from_mut(into), &[&from.0], &[BLOCK]);
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

/// Finds which registers are computed in some steps, of all, for one output and nothing else: they may be computed where that is.
fn find_what_is_stored(all: &[Step], steps: &[Step], registers: &mut [Register]) {
    for (position, step) in steps.iter().enumerate() {
        match step {
            Step::Loop { steps, .. } => find_what_is_stored(all, steps, registers),
            Step::Compute { outputs, .. } => {
                for &output in outputs.iter().filter(|output| reads(all, **output) == 1) {
                    let stored = steps[position..].iter().find_map(|step| match step {
                        Step::Store { from, to } if *from == output => Some(*to),
                        _ => None,
                    });
                    registers[output].goes_to = stored.filter(|_| registers[output].varies);
                }
            }
            _ => {}
        }
    }
}

/// How often steps read a register.
fn reads(steps: &[Step], register: usize) -> usize {
    let of_step = |step: &Step| match step {
        Step::Store { from, .. } | Step::Fold { from, .. } => usize::from(*from == register),
        Step::Compute { inputs, .. } => inputs.iter().filter(|input| **input == register).count(),
        Step::Loop { steps, .. } => reads(steps, register),
        _ => 0,
    };
    steps.iter().map(of_step).sum()
}

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
