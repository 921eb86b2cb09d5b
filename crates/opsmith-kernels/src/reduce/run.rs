//! The loops over rows: gather a block of each input, compute, fold, store or add up each output, pass after pass.

use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use opsmith_body::{BLOCK, Block, Level, Source as Read, Target as Write};
use opsmith_core::tensor::Extents;
use opsmith_core::{Compute, Error, Result};
use smallvec::SmallVec;

use super::folds::{CHUNK, across, identity, into_lanes, of_chunks};
use super::program::{PassProgram, Program};
use crate::axes::Space;
use crate::operand::{Source, Sums};
use crate::pointwise::Target;
use crate::stored::{Stored, Wide};

/// How many elements the rows have that one thread computes together, where rows are short.
const GROUP: usize = 4096;
/// From how many elements on the threads share a row, where there are few.
const LONG: usize = 1 << 15;
/// How many rows are few.
const FEW: usize = 16;
/// At most so many parts of the rows have sums of their own for a gradient that is summed over rows.
const PARTS: usize = 64;
/// The least number of rows of such a part.
const PART_ROWS: usize = 8;

/// A reduction over the rows of tensors.
pub(crate) struct Task<'a, T> {
    /// What is computed; it keeps nothing where [`is_long`] says that the threads share rows.
    pub(crate) program: &'a Program,
    /// All positions of all rows, a row after the other.
    pub(crate) positions: &'a Space,
    /// All rows.
    pub(crate) rows: &'a Space,
    /// How many positions a row has.
    pub(crate) length: usize,
    /// For each input, where it is read in the space that it has; zeros where nowhere.
    pub(crate) inputs: &'a [Option<Source<T>>],
    /// For each output, where it goes; and whether there is one for each row.
    pub(crate) outputs: &'a [(Target<T>, bool)],
}

/// Whether the threads share the rows, which then keep nothing. It does not change results.
pub(crate) fn is_long(rows: usize, length: usize) -> bool {
    rows < FEW && length >= LONG
}

/// The blocks that one thread works on.
struct Room<T: Stored> {
    /// Of each input of a pass: its elements, and its numbers.
    inputs: Vec<(Block<T>, Block<T::Wide>)>,
    /// The elements of an output.
    scattered: Block<T>,
    /// Of each result of a pass: its numbers, the folds of the lanes of a chunk, and those of the row's chunks.
    results: Vec<Block<T::Wide>>,
    lanes: Vec<Block<T::Wide>>,
    chunks: Vec<Vec<T::Wide>>,
    /// The numbers of which there is one for each row, a lane for each row of a group.
    ones: Vec<Block<T::Wide>>,
    /// What is kept: of each kept number, of each row of a group, the blocks.
    kept: Vec<Block<T::Wide>>,
}

/// A row of a group.
#[derive(Clone, Copy)]
struct Row {
    index: usize,
    lane: usize,
}

impl<T: Stored> Room<T> {
    fn new(program: &Program, kept: usize) -> Room<T> {
        let blocks = |count: usize| vec![Block::default(); count];
        Room {
            inputs: vec![(Block::default(), Block::default()); program.width.max(1)],
            scattered: Block::default(),
            results: blocks(program.width),
            lanes: blocks(program.width),
            chunks: vec![Vec::new(); program.width],
            ones: blocks(program.ones),
            kept: blocks(kept),
        }
    }
}

/// The sums for each output that is summed up, of a part of the rows.
type PartSums = Vec<Option<Sums>>;

impl<T: Stored> Task<'_, T> {
    /// Computes everything, on the host's threads. Results do not depend on how many there are.
    pub(crate) fn run(&self, compute: &Compute<'_>) -> Result<()> {
        let summed = |(target, _): &(Target<T>, bool)| matches!(target, Target::Sums(..));
        if self.outputs.iter().any(summed) {
            return self.run_with_sums(compute);
        }
        let rows = self.rows.len();
        if is_long(rows, self.length) {
            (0..rows).for_each(|row| self.long_row(compute, row));
            return Ok(());
        }
        let group = self.group_size();
        compute.parallel_for(rows.div_ceil(group), self.cost(group), |groups| {
            let end = rows.min(groups.end * group);
            self.range(groups.start * group..end, &mut Vec::new());
        });
        Ok(())
    }

    /// Sums are those of parts, which depend on the shapes alone, put together in their order.
    fn run_with_sums(&self, compute: &Compute<'_>) -> Result<()> {
        let rows = self.rows.len();
        let size = self.group_size().max(PART_ROWS).max(rows.div_ceil(PARTS));
        let parts: Vec<OnceLock<PartSums>> = (0..rows.div_ceil(size)).map(|_| OnceLock::new()).collect();
        compute.try_parallel_for(parts.len(), self.cost(size), |range| {
            for index in range {
                let part = index * size..rows.min((index + 1) * size);
                let mut sums = self.sums(&part)?;
                self.range(part, &mut sums);
                // It is empty: each index is in one range.
                let _ = parts[index].set(sums);
            }
            Ok(())
        })?;
        for (position, (target, _)) in self.outputs.iter().enumerate() {
            if let Target::Sums(_, totals) = target {
                let parts =
                    || parts.iter().filter_map(OnceLock::get).filter_map(|sums| sums[position].as_ref());
                totals.put_together(compute, parts);
            }
        }
        Ok(())
    }

    /// Sums of nothing yet, for a part of the rows.
    fn sums(&self, part: &Range<usize>) -> Result<PartSums> {
        let sums = |(target, of_rows): &(Target<T>, bool)| {
            let Target::Sums(operand, _) = target else { return Ok(None) };
            let (space, length) = if *of_rows { (self.rows, 1) } else { (self.positions, self.length) };
            if length == 0 {
                return Ok(None);
            }
            let sums = Sums::new(space, *operand, part.start * length, part.end * length);
            sums.map(Some)
                .ok_or_else(|| Error::resource_exhausted("there is no memory for the sums of a gradient"))
        };
        self.outputs.iter().map(sums).collect()
    }

    /// How many rows are computed together: their numbers of which there is one for each row are lanes of a block.
    fn group_size(&self) -> usize {
        (GROUP / self.length.max(1)).clamp(1, BLOCK)
    }

    /// The nanoseconds that some rows take, roughly.
    fn cost(&self, rows: usize) -> usize {
        rows.saturating_mul(self.length.div_ceil(BLOCK).max(1)).saturating_mul(self.program.cost)
    }

    fn blocks(&self) -> usize {
        self.length.div_ceil(BLOCK)
    }

    /// Computes some rows, group by group.
    fn range(&self, rows: Range<usize>, sums: &mut PartSums) {
        let group = self.group_size();
        let mut room = Room::new(self.program, self.program.kept * group * self.blocks());
        for first in rows.clone().step_by(group) {
            let count = group.min(rows.end - first);
            self.load_ones(first, count, &mut room);
            for pass in &self.program.passes {
                before(pass, &mut room);
                for lane in 0..count {
                    self.row(pass, Row { index: first + lane, lane }, &mut room, sums);
                }
            }
            self.store_ones(first, count, &mut room, sums);
        }
    }

    /// A pass over a row.
    fn row(&self, pass: &PassProgram, row: Row, room: &mut Room<T>, sums: &mut PartSums) {
        room.chunks.iter_mut().for_each(Vec::clear);
        self.splat(pass, row.lane, room);
        for chunk in 0..self.blocks().div_ceil(CHUNK) {
            self.chunk(pass, row, chunk, room, sums);
        }
        for (target, chunks) in pass.each_results.iter().zip(&mut room.chunks) {
            if let Write::Fold(fold, one) = *target {
                room.ones[one].0[row.lane] = of_chunks(fold, chunks);
            }
        }
    }

    /// A row that all threads share.
    fn long_row(&self, compute: &Compute<'_>, row: usize) {
        let mut room = Room::new(self.program, 0);
        self.load_ones(row, 1, &mut room);
        let (row, chunks) = (Row { index: row, lane: 0 }, self.blocks().div_ceil(CHUNK));
        for pass in &self.program.passes {
            before(pass, &mut room);
            let folds = |target: &Write| if matches!(target, Write::Fold(..)) { chunks } else { 0 };
            let folded: Vec<Vec<T::Wide>> =
                pass.each_results.iter().map(|target| vec![T::Wide::default(); folds(target)]).collect();
            let folded = Mutex::new(folded);
            let ones = &room.ones;
            compute.parallel_for(chunks, self.program.cost * CHUNK, |range| {
                let mut room = Room::new(self.program, 0);
                room.ones.clone_from(ones);
                self.splat(pass, row.lane, &mut room);
                let begin = range.start;
                range.for_each(|chunk| self.chunk(pass, row, chunk, &mut room, &mut Vec::new()));
                let mut folded = folded.lock().unwrap_or_else(PoisonError::into_inner);
                for (all, own) in folded.iter_mut().zip(&room.chunks).filter(|(_, own)| !own.is_empty()) {
                    all[begin..][..own.len()].copy_from_slice(own);
                }
            });
            let mut folded = folded.into_inner().unwrap_or_else(PoisonError::into_inner);
            for (target, chunks) in pass.each_results.iter().zip(&mut folded) {
                if let Write::Fold(fold, one) = *target {
                    room.ones[one].0[0] = of_chunks(fold, chunks);
                }
            }
        }
        self.store_ones(row.index, 1, &mut room, &mut Vec::new());
    }

    /// Computes a chunk of a row: stores what is for outputs and later passes, and pushes the folds.
    fn chunk(&self, pass: &PassProgram, row: Row, chunk: usize, room: &mut Room<T>, sums: &mut PartSums) {
        let level = Level::best();
        for (target, lanes) in pass.each_results.iter().zip(&mut room.lanes) {
            if let Write::Fold(fold, _) = *target {
                *lanes = Block([identity(fold); BLOCK]);
            }
        }
        let blocks = chunk * CHUNK..self.blocks().min((chunk + 1) * CHUNK);
        let mut from = self.positions.coordinates(row.index * self.length + blocks.start * BLOCK);
        for block in blocks {
            let begin = row.index * self.length + block * BLOCK;
            let count = BLOCK.min(self.length - block * BLOCK);
            self.block(pass, (begin, &from), count, room, |kept| (kept, row.lane, block));
            self.store(pass, (begin, &from), count, room, sums, |kept| (kept, row.lane, block));
            self.advance(&mut from, begin + BLOCK);
        }
        for ((target, lanes), chunks) in pass.each_results.iter().zip(&room.lanes).zip(&mut room.chunks) {
            if let Write::Fold(fold, _) = *target {
                chunks.push(across(level, fold, *lanes));
            }
        }
    }

    /// The coordinates of the next block, which are found without divisions while it is in the same run.
    fn advance(&self, from: &mut Extents, begin: usize) {
        from[0] += BLOCK;
        if from[0] >= self.positions.dims()[0] {
            *from = self.positions.coordinates(begin);
        }
    }

    /// The place of a kept block.
    fn place(&self, (kept, lane, block): (usize, usize, usize)) -> usize {
        (kept * self.group_size() + lane) * self.blocks() + block
    }

    /// Computes a block of all results of a pass.
    fn block(
        &self,
        pass: &PassProgram,
        at: (usize, &[usize]),
        count: usize,
        room: &mut Room<T>,
        kept: impl Fn(usize) -> (usize, usize, usize),
    ) {
        let level = Level::best();
        let mut read: SmallVec<[*const [T::Wide; BLOCK]; 8]> = SmallVec::new();
        for (source, (raw, wide)) in pass.each_inputs.iter().zip(&mut room.inputs) {
            read.push(match *source {
                Read::One(_) => &wide.0,
                Read::Kept(index) => &room.kept[self.place(kept(index))].0,
                Read::Input(input) => match &self.inputs[input] {
                    // SAFETY: the indices are positions of a row.
                    Some(source) => unsafe { source.block(self.positions, level, at, count, (raw, wide)) },
                    None => &wide.0,
                },
            });
        }
        // SAFETY: references are pointers, and each points to a block that nobody writes to before the next statement
        // is done: a block of the room that is no result, or elements of an input.
        let read = unsafe { &*(read.as_slice() as *const [_] as *const [&[T::Wide; BLOCK]]) };
        T::Wide::eval(&pass.each, level, read, &mut room.results[..pass.each_results.len()]);
    }

    /// Folds, stores and keeps the results of a block.
    fn store(
        &self,
        pass: &PassProgram,
        at: (usize, &[usize]),
        count: usize,
        room: &mut Room<T>,
        sums: &mut PartSums,
        kept: impl Fn(usize) -> (usize, usize, usize),
    ) {
        let level = Level::best();
        for (index, target) in pass.each_results.iter().enumerate() {
            let numbers = &mut room.results[index];
            match *target {
                Write::Fold(fold, _) => {
                    numbers.0[count..].fill(identity(fold));
                    into_lanes(level, fold, &mut room.lanes[index], numbers);
                }
                Write::Keep(index) => room.kept[self.place(kept(index))] = *numbers,
                Write::Output(output) => match &self.outputs[output].0 {
                    Target::Nowhere => {}
                    // SAFETY: the indices are positions of a row, which one thread computes at a time.
                    Target::Elements(sink) => unsafe {
                        sink.store(self.positions, level, at, count, (numbers, &mut room.scattered));
                    },
                    Target::Sums(..) => {
                        if let Some(Some(sums)) = sums.get_mut(output) {
                            sums.add(self.positions, at.1, count, numbers);
                        }
                    }
                },
            }
        }
    }

    /// Loads the numbers of which there is one for each row.
    fn load_ones(&self, first: usize, count: usize, room: &mut Room<T>) {
        let from = self.rows.coordinates(first);
        for (one, &input) in self.program.row_inputs.iter().enumerate() {
            room.ones[one] = match &self.inputs[input] {
                Some(source) => {
                    let (raw, wide) = &mut room.inputs[0];
                    // SAFETY: the indices are rows; the block is there until the next one is read.
                    Block(unsafe {
                        *source.block(self.rows, Level::best(), (first, &from), count, (raw, wide))
                    })
                }
                None => Block::default(),
            };
        }
        let length = T::Wide::of_double(self.length as f64);
        room.ones[self.program.row_inputs.len()] = Block([length; BLOCK]);
    }

    /// Spreads the numbers of a row that a pass reads over blocks of their own, and zeros for what is not there.
    fn splat(&self, pass: &PassProgram, lane: usize, room: &mut Room<T>) {
        for (source, (_, wide)) in pass.each_inputs.iter().zip(&mut room.inputs) {
            match *source {
                Read::One(one) => *wide = Block([room.ones[one].0[lane]; BLOCK]),
                Read::Input(input) if self.inputs[input].is_none() => *wide = Block::default(),
                Read::Input(_) | Read::Kept(_) => {}
            }
        }
    }

    /// Stores the outputs of which there is one for each row.
    fn store_ones(&self, first: usize, count: usize, room: &mut Room<T>, sums: &mut PartSums) {
        let from = self.rows.coordinates(first);
        for &(output, one) in &self.program.row_outputs {
            let numbers = &room.ones[one];
            match &self.outputs[output].0 {
                Target::Nowhere => {}
                // SAFETY: the indices are rows, which one thread computes.
                Target::Elements(sink) => unsafe {
                    let rooms = (numbers, &mut room.scattered);
                    sink.store(self.rows, Level::best(), (first, &from), count, rooms);
                },
                Target::Sums(..) => {
                    if let Some(Some(sums)) = sums.get_mut(output) {
                        sums.add(self.rows, &from, count, numbers);
                    }
                }
            }
        }
    }
}

/// Computes what a pass needs for each row.
fn before<T: Stored>(pass: &PassProgram, room: &mut Room<T>) {
    if pass.before_results.is_empty() {
        return;
    }
    let read: SmallVec<[&[T::Wide; BLOCK]; 8]> =
        pass.before_inputs.iter().map(|one| &room.ones[*one].0).collect();
    let results = &mut room.results[..pass.before_results.len()];
    T::Wide::eval(&pass.before, Level::best(), &read, results);
    drop(read);
    for (one, result) in pass.before_results.iter().zip(results) {
        room.ones[*one] = *result;
    }
}
