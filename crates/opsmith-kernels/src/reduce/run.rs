//! The loops over rows: gather a block of each input, compute, fold, store or add up each output, pass after pass.

use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use opsmith_body::{BLOCK, Block, Level, Source as Read};
use opsmith_core::tensor::Extents;
use opsmith_core::{Compute, Result, memory};
use smallvec::SmallVec;

use super::batch::Batch;
use super::folds::{CHUNK, identity, of_chunks};
use super::program::{PassProgram, Program};
use crate::axes::Space;
use crate::operand::{Source, Sums};
use crate::pointwise::Target;
use crate::stored::{Stored, Wide};

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
    /// All positions of all rows, a row after the other; where rows are lanes or lie across memory, the rows at each
    /// position.
    pub(crate) positions: &'a Space,
    /// All rows.
    pub(crate) rows: &'a Space,
    /// How many positions a row has.
    pub(crate) length: usize,
    /// Whether [rows are lanes](super::lanes).
    pub(crate) lanes: bool,
    /// Whether rows lie [across memory](super::across); then nothing is kept, and no output is summed up.
    pub(crate) across: bool,
    /// For each input, where it is read in the space that it has; zeros where nowhere.
    pub(crate) inputs: &'a [Option<Source<T>>],
    /// For each output, where it goes; and whether there is one for each row.
    pub(crate) outputs: &'a [(Target<T>, bool)],
}

/// Whether the threads share the rows, which then keep nothing. It does not change results.
pub(crate) fn is_long(rows: usize, length: usize) -> bool {
    rows < FEW && length >= LONG
}

/// Where a block is read, and where one is written.
pub(super) type ReadAt<T> = *const [<T as Stored>::Wide; BLOCK];
pub(super) type WrittenAt<T> = *mut [<T as Stored>::Wide; BLOCK];

/// The blocks that one thread works on.
pub(super) struct Room<T: Stored> {
    /// The elements of a block, and their numbers.
    pub(super) raw: Block<T>,
    pub(super) wide: Block<T::Wide>,
    /// Of each input and of each result of a pass, the blocks of a batch; of a result of rows that are lanes, of a row.
    pub(super) inputs: Vec<Vec<Block<T::Wide>>>,
    pub(super) results: Vec<Vec<Block<T::Wide>>>,
    /// Where the blocks of a batch are read and written, how long they are, and where the rows begin.
    pub(super) read: Vec<ReadAt<T>>,
    pub(super) written: Vec<WrittenAt<T>>,
    pub(super) lens: Vec<usize>,
    pub(super) from: Vec<Extents>,
    /// The batch that these are of.
    pub(super) batch: Option<Batch>,
    /// Of each fold of a pass over rows [across memory](super::across), those of every 128th position of a chunk, and that
    /// of the chunk.
    pub(super) sides: Vec<Vec<Block<T::Wide>>>,
    pub(super) ones_of_chunk: Vec<Block<T::Wide>>,
    /// Of each fold of a pass, those of the row's chunks.
    pub(super) chunks: Vec<Vec<T::Wide>>,
    /// The numbers of which there is one for each row, a lane for each row of a group.
    pub(super) ones: Vec<Block<T::Wide>>,
    /// Those that a pass has computed.
    new_ones: Vec<Block<T::Wide>>,
    /// What is kept: of each kept number, of each row of a group, the blocks; of rows that are lanes, of each position.
    pub(super) kept: Vec<Block<T::Wide>>,
}

impl<T: Stored> Room<T> {
    /// Room for so many blocks of what is kept, and of each input and each result of a pass.
    ///
    /// # Errors
    /// `ResourceExhausted` without memory.
    pub(super) fn new(program: &Program, kept: usize, (inputs, results): (usize, usize)) -> Result<Room<T>> {
        // Aligned as vectors like it: one that lies across two lines of the cache takes twice as long.
        let blocks = |count: usize| memory::filled(Block::default(), count, "blocks of rows");
        let strips = |length: usize| (0..program.width).map(|_| blocks(length)).collect::<Result<_>>();
        Ok(Room {
            raw: Block::default(),
            wide: Block::default(),
            inputs: strips(inputs)?,
            results: strips(results)?,
            read: Vec::new(),
            written: Vec::new(),
            lens: Vec::new(),
            from: Vec::new(),
            batch: None,
            sides: Vec::new(),
            ones_of_chunk: Vec::new(),
            chunks: vec![Vec::new(); program.folds],
            ones: blocks(program.ones)?,
            new_ones: blocks(program.width)?,
            kept: blocks(kept)?,
        })
    }
}

/// The sums for each output that is summed up, of a part of the rows.
pub(super) type PartSums = Vec<Option<Sums>>;

impl<T: Stored> Task<'_, T> {
    /// Computes everything, on the host's threads. Results do not depend on how many there are.
    pub(crate) fn run(&self, compute: &Compute<'_>) -> Result<()> {
        let summed = |(target, _): &(Target<T>, bool)| matches!(target, Target::Sums(..));
        if self.outputs.iter().any(summed) {
            return self.run_with_sums(compute);
        }
        if self.across {
            return self.run_across(compute);
        }
        let rows = self.rows.len();
        if is_long(rows, self.length) {
            return (0..rows).try_for_each(|row| self.long_row(compute, row));
        }
        let group = self.group_size();
        compute.try_parallel_for(rows.div_ceil(group), self.cost(group), |groups| {
            let end = rows.min(groups.end * group);
            self.range(groups.start * group..end, &mut self.room()?, &mut Vec::new())
        })
    }

    /// Sums are those of parts, which depend on the shapes alone, put together in their order.
    fn run_with_sums(&self, compute: &Compute<'_>) -> Result<()> {
        let rows = self.rows.len();
        let size = self.group_size().max(PART_ROWS).max(rows.div_ceil(PARTS));
        let parts: Vec<OnceLock<PartSums>> =
            memory::collected((0..rows.div_ceil(size)).map(|_| OnceLock::new()), "the sums of a gradient")?;
        compute.try_parallel_for(parts.len(), self.cost(size), |range| {
            let mut room = self.room()?;
            for index in range {
                let part = index * size..rows.min((index + 1) * size);
                let mut sums = self.sums(&part)?;
                self.range(part, &mut room, &mut sums)?;
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
            let reach = if self.lanes && !of_rows {
                // No stride is negative, so the first position has the first place and the last one the last.
                let last = (length - 1) * self.rows.len();
                let at = |first: usize| space.reach(*operand, first + part.start, first + part.end);
                (at(0).0, at(last).1)
            } else {
                space.reach(*operand, part.start * length, part.end * length)
            };
            Sums::new(*operand, reach).map(Some)
        };
        self.outputs.iter().map(sums).collect()
    }

    /// How many rows are computed together: as many as have the blocks of a chunk.
    pub(super) fn group_size(&self) -> usize {
        if self.lanes {
            return BLOCK;
        }
        CHUNK / self.blocks().clamp(1, CHUNK)
    }

    /// The nanoseconds that some rows take, roughly.
    fn cost(&self, rows: usize) -> usize {
        let blocks = match self.lanes {
            true => rows.div_ceil(BLOCK).saturating_mul(self.length),
            false => rows.saturating_mul(self.blocks().max(1)),
        };
        blocks.saturating_mul(self.program.cost)
    }

    /// How many blocks a row has.
    pub(super) fn blocks(&self) -> usize {
        self.length.div_ceil(BLOCK)
    }

    /// Room for groups of rows.
    fn room(&self) -> Result<Room<T>> {
        let kept = self.program.kept;
        match self.lanes {
            true => {
                Room::new(self.program, kept.saturating_mul(self.length), (CHUNK, self.length.max(CHUNK)))
            }
            false => {
                // Of a small call, no more than it has: to make room would take longer than to compute.
                let blocks = self.rows.len().saturating_mul(self.blocks()).clamp(1, CHUNK);
                let kept = kept.saturating_mul(self.group_size()).saturating_mul(self.blocks());
                Room::new(self.program, kept, (blocks, blocks))
            }
        }
    }

    /// Computes some rows, group by group.
    fn range(&self, rows: Range<usize>, room: &mut Room<T>, sums: &mut PartSums) -> Result<()> {
        if self.lanes {
            self.lanes(rows, room, sums);
            return Ok(());
        }
        let group = self.group_size();
        for first in rows.clone().step_by(group) {
            let count = group.min(rows.end - first);
            self.load_ones(first, count, room);
            for pass in &self.program.passes {
                before(pass, room);
                self.pass(pass, (first, count), room, sums)?;
            }
            self.store_ones(first, count, room, sums);
        }
        Ok(())
    }

    /// A pass over a group of rows, all at once or, if it is one long row, chunk by chunk.
    fn pass(
        &self,
        pass: &PassProgram,
        (first, rows): (usize, usize),
        room: &mut Room<T>,
        sums: &mut PartSums,
    ) -> Result<()> {
        if pass.is_empty() {
            return Ok(());
        }
        let chunks = self.blocks().div_ceil(CHUNK);
        empty(&mut room.chunks, chunks * rows)?;
        self.splat(pass, rows, room);
        for chunk in 0..chunks {
            self.batch(pass, &Batch::new(first, rows, chunk, self.length), room, sums);
        }
        for (&(_, fold, one), chunks) in pass.folds.iter().zip(&mut room.chunks) {
            let numbers = &mut room.ones[one].0;
            // Of several rows there is one chunk each; of rows without elements there is none.
            match rows {
                1 => numbers[0] = of_chunks(fold, chunks),
                _ if chunks.is_empty() => numbers[..rows].fill(identity(fold)),
                _ => numbers[..rows].copy_from_slice(chunks),
            }
        }
        Ok(())
    }

    /// A row that all threads share.
    fn long_row(&self, compute: &Compute<'_>, row: usize) -> Result<()> {
        let mut room = Room::new(self.program, 0, (CHUNK, CHUNK))?;
        self.load_ones(row, 1, &mut room);
        let chunks = self.blocks().div_ceil(CHUNK);
        for pass in &self.program.passes {
            before(pass, &mut room);
            let folded = Mutex::new(of_every_chunk(T::Wide::default(), chunks, pass)?);
            let ones = &room.ones;
            compute.try_parallel_for(chunks, self.program.cost * CHUNK, |range| {
                let mut room = Room::new(self.program, 0, (CHUNK, CHUNK))?;
                empty(&mut room.chunks, range.len())?;
                room.ones.clone_from(ones);
                self.splat(pass, 1, &mut room);
                let begin = range.start;
                for chunk in range {
                    self.batch(pass, &Batch::new(row, 1, chunk, self.length), &mut room, &mut Vec::new());
                }
                let mut folded = folded.lock().unwrap_or_else(PoisonError::into_inner);
                for (all, own) in folded.iter_mut().zip(&room.chunks) {
                    all[begin..][..own.len()].copy_from_slice(own);
                }
                Ok(())
            })?;
            let mut folded = folded.into_inner().unwrap_or_else(PoisonError::into_inner);
            for (&(_, fold, one), chunks) in pass.folds.iter().zip(&mut folded) {
                room.ones[one].0[0] = of_chunks(fold, chunks);
            }
        }
        self.store_ones(row, 1, &mut room, &mut Vec::new());
        Ok(())
    }

    /// Loads the numbers of which there is one for each row.
    pub(super) fn load_ones(&self, first: usize, count: usize, room: &mut Room<T>) {
        let from = self.rows.coordinates(first);
        for (one, &input) in self.program.row_inputs.iter().enumerate() {
            room.ones[one] = match &self.inputs[input] {
                Some(source) => {
                    let (raw, wide) = (&mut room.raw, &mut room.wide);
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

    /// Spreads the numbers of rows that a pass reads over blocks of their own, and zeros for what is not there.
    fn splat(&self, pass: &PassProgram, rows: usize, room: &mut Room<T>) {
        for (source, strip) in pass.each_inputs.iter().zip(&mut room.inputs) {
            match *source {
                Read::One(one) => {
                    for (block, number) in strip.iter_mut().zip(&room.ones[one].0[..rows]) {
                        block.0 = [*number; BLOCK];
                    }
                }
                Read::Input(input) if self.inputs[input].is_none() => strip[0] = Block::default(),
                Read::Input(_) | Read::Kept(_) => {}
            }
        }
    }

    /// Stores the outputs of which there is one for each row.
    pub(super) fn store_ones(&self, first: usize, count: usize, room: &mut Room<T>, sums: &mut PartSums) {
        let from = self.rows.coordinates(first);
        for &(output, one) in &self.program.row_outputs {
            let numbers = &room.ones[one];
            match &self.outputs[output].0 {
                Target::Nowhere => {}
                // SAFETY: the indices are rows, which one thread computes.
                Target::Elements(sink) => unsafe {
                    let rooms = (numbers, &mut room.raw);
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

/// Empties the folds of chunks, which have room for so many after that.
fn empty<W>(folds: &mut [Vec<W>], room: usize) -> Result<()> {
    folds.iter_mut().try_for_each(|chunks| {
        chunks.clear();
        memory::reserve(chunks, room, "the folds of a row")
    })
}

/// For each fold of a pass, as many of `value` as a row has chunks.
pub(super) fn of_every_chunk<W: Clone>(value: W, chunks: usize, pass: &PassProgram) -> Result<Vec<Vec<W>>> {
    pass.folds.iter().map(|_| memory::filled(value.clone(), chunks, "the folds of a row")).collect()
}

/// Computes what a pass needs for each row.
pub(super) fn before<T: Stored>(pass: &PassProgram, room: &mut Room<T>) {
    if pass.before_results.is_empty() {
        return;
    }
    let read: SmallVec<[&[T::Wide; BLOCK]; 8]> =
        pass.before_inputs.iter().map(|one| &room.ones[*one].0).collect();
    let results = &mut room.new_ones[..pass.before_results.len()];
    T::Wide::eval(&pass.before, Level::best(), &read, results);
    drop(read);
    for (one, result) in pass.before_results.iter().zip(results) {
        room.ones[*one] = *result;
    }
}
