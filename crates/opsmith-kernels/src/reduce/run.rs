//! The loops over rows: gather a block of each input, compute, fold, store or add up each output, pass after pass.

use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use opsmith_body::{BLOCK, Block, Level, Source as Read, Strip, Target as Write};
use opsmith_core::tensor::Extents;
use opsmith_core::{Compute, Error, Result};
use smallvec::SmallVec;

use super::folds::{CHUNK, across, identity, of_chunks};
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
    /// All positions of all rows, a row after the other; where rows are lanes, the rows at each position.
    pub(crate) positions: &'a Space,
    /// All rows.
    pub(crate) rows: &'a Space,
    /// How many positions a row has.
    pub(crate) length: usize,
    /// Whether [rows are lanes](super::lanes).
    pub(crate) lanes: bool,
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
pub(super) struct Room<T: Stored> {
    /// The elements of a block, and their numbers.
    pub(super) raw: Block<T>,
    pub(super) wide: Block<T::Wide>,
    /// Of each input and of each result of a pass, the blocks of a chunk; of a result of rows that are lanes, of a row.
    pub(super) inputs: Vec<Vec<[T::Wide; BLOCK]>>,
    pub(super) results: Vec<Vec<[T::Wide; BLOCK]>>,
    /// Of each result, the folds of the lanes of a chunk, and those of the row's chunks.
    lanes: Vec<Block<T::Wide>>,
    chunks: Vec<Vec<T::Wide>>,
    /// The numbers of which there is one for each row, a lane for each row of a group.
    pub(super) ones: Vec<Block<T::Wide>>,
    /// Those that a pass has computed.
    new_ones: Vec<Block<T::Wide>>,
    /// What is kept: of each kept number, of each row of a group, the blocks; of rows that are lanes, of each position.
    pub(super) kept: Vec<[T::Wide; BLOCK]>,
}

/// A part of a row: the index and the coordinates of its first position, and how many there are.
struct Piece {
    begin: usize,
    from: Extents,
    count: usize,
}

impl Piece {
    /// Calls `act` with the number of each block, its first position, and how many positions it has.
    fn blocks(&self, positions: &Space, mut act: impl FnMut(usize, (usize, &[usize]), usize)) {
        let mut from = self.from.clone();
        for block in 0..self.count.div_ceil(BLOCK) {
            let begin = self.begin + block * BLOCK;
            act(block, (begin, &from), BLOCK.min(self.count - block * BLOCK));
            // Found without divisions while it is in the same run.
            from[0] += BLOCK;
            if from[0] >= positions.dims()[0] && (block + 1) * BLOCK < self.count {
                from = positions.coordinates(begin + BLOCK);
            }
        }
    }
}

/// A row of a group.
#[derive(Clone, Copy)]
struct Row {
    index: usize,
    lane: usize,
}

impl<T: Stored> Room<T> {
    /// Room for so many blocks of what is kept and of each result of a pass.
    pub(super) fn new(program: &Program, kept: usize, results: usize) -> Room<T> {
        let blocks = |count: usize| vec![Block::default(); count];
        let strips = |length: usize| vec![vec![[T::Wide::default(); BLOCK]; length]; program.width];
        Room {
            raw: Block::default(),
            wide: Block::default(),
            inputs: strips(CHUNK),
            results: strips(results),
            lanes: blocks(program.width),
            chunks: vec![Vec::new(); program.width],
            ones: blocks(program.ones),
            new_ones: blocks(program.width),
            kept: vec![[T::Wide::default(); BLOCK]; kept],
        }
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
            let reach = if self.lanes && !of_rows {
                // No stride is negative, so the first position has the first place and the last one the last.
                let last = (length - 1) * self.rows.len();
                let at = |first: usize| space.reach(*operand, first + part.start, first + part.end);
                (at(0).0, at(last).1)
            } else {
                space.reach(*operand, part.start * length, part.end * length)
            };
            let sums = Sums::new(*operand, reach);
            sums.map(Some)
                .ok_or_else(|| Error::resource_exhausted("there is no memory for the sums of a gradient"))
        };
        self.outputs.iter().map(sums).collect()
    }

    /// How many rows are computed together: their numbers of which there is one for each row are lanes of a block.
    fn group_size(&self) -> usize {
        if self.lanes {
            return BLOCK;
        }
        (GROUP / self.length.max(1)).clamp(1, BLOCK)
    }

    /// The nanoseconds that some rows take, roughly.
    fn cost(&self, rows: usize) -> usize {
        let blocks = match self.lanes {
            true => rows.div_ceil(BLOCK).saturating_mul(self.length),
            false => rows.saturating_mul(self.blocks().max(1)),
        };
        blocks.saturating_mul(self.program.cost)
    }

    fn blocks(&self) -> usize {
        self.length.div_ceil(BLOCK)
    }

    /// Computes some rows, group by group.
    fn range(&self, rows: Range<usize>, sums: &mut PartSums) {
        if self.lanes {
            return self.lanes(rows, sums);
        }
        let group = self.group_size();
        let mut room = Room::new(self.program, self.program.kept * group * self.blocks(), CHUNK);
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
        if pass.each_results.is_empty() {
            return;
        }
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
        let mut room = Room::new(self.program, 0, CHUNK);
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
                let mut room = Room::new(self.program, 0, CHUNK);
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
        let first = chunk * CHUNK;
        let offset = first * BLOCK;
        let begin = row.index * self.length + offset;
        let piece = Piece {
            begin,
            from: self.positions.coordinates(begin),
            count: (CHUNK * BLOCK).min(self.length - offset),
        };
        let kept = |index: usize| (index * self.group_size() + row.lane) * self.blocks() + first;
        self.gather(pass, &piece, room);
        let direct = self.eval(pass, &piece, room, kept);
        for (index, target) in pass.each_results.iter().enumerate() {
            match *target {
                Write::Fold(fold, _) => room.chunks[index].push(across(level, fold, room.lanes[index])),
                Write::Output(output) if !direct[index] => self.store(output, index, &piece, room, sums),
                Write::Output(_) | Write::Keep(_) => {}
            }
        }
    }

    /// Gathers the inputs of a pass that cannot be read where they lie.
    fn gather(&self, pass: &PassProgram, piece: &Piece, room: &mut Room<T>) {
        for (source, strip) in pass.each_inputs.iter().zip(&mut room.inputs) {
            let Read::Input(input) = *source else { continue };
            let Some(source) = &self.inputs[input] else { continue };
            if self.in_place(source, piece).is_some() {
                continue;
            }
            let (raw, wide) = (&mut room.raw, &mut room.wide);
            piece.blocks(self.positions, |block, at, count| {
                // SAFETY: the indices are positions of a row; the block is there until the next one is read.
                strip[block] = unsafe {
                    *source.block(self.positions, Level::best(), at, count, (&mut *raw, &mut *wide))
                };
            });
        }
    }

    /// Where the numbers of an input lie, if they need no gathering.
    fn in_place(&self, source: &Source<T>, piece: &Piece) -> Option<*const [T::Wide; BLOCK]> {
        let whole = T::AS_IT_IS && piece.count.is_multiple_of(BLOCK);
        let run =
            if whole { source.run(self.positions, (piece.begin, &piece.from), piece.count) } else { None };
        run.map(<*const T>::cast)
    }

    /// Computes all results of a pass, and tells which of them are where they belong. The rest are in the room.
    fn eval(
        &self,
        pass: &PassProgram,
        piece: &Piece,
        room: &mut Room<T>,
        kept: impl Fn(usize) -> usize,
    ) -> SmallVec<[bool; 8]> {
        let blocks = piece.count.div_ceil(BLOCK);
        let all_kept = room.kept.as_mut_ptr();
        let mut read: SmallVec<[&[[T::Wide; BLOCK]]; 8]> = SmallVec::new();
        for (source, strip) in pass.each_inputs.iter().zip(&room.inputs) {
            let place = match *source {
                Read::One(_) => None,
                Read::Kept(index) => Some(all_kept.wrapping_add(kept(index)).cast_const()),
                Read::Input(input) => self.inputs[input]
                    .as_ref()
                    .map(|source| self.in_place(source, piece).unwrap_or(strip.as_ptr())),
            };
            read.push(match place {
                // SAFETY: so many blocks are there: of an input, of the strip, or kept by an earlier pass; and a pass
                // never keeps what it reads.
                Some(place) => unsafe { std::slice::from_raw_parts(place, blocks) },
                None => &strip[..1],
            });
        }
        let mut direct: SmallVec<[bool; 8]> = SmallVec::new();
        let mut written: SmallVec<[Strip<'_, T::Wide>; 8]> = SmallVec::new();
        let rooms = room.lanes.iter_mut().zip(&mut room.results);
        for (target, (lanes, strip)) in pass.each_results.iter().zip(rooms) {
            let place = match *target {
                Write::Fold(fold, _) => {
                    *lanes = Block([identity(fold); BLOCK]);
                    written.push(Strip::Fold(fold, lanes));
                    direct.push(false);
                    continue;
                }
                Write::Keep(index) => Some(all_kept.wrapping_add(kept(index))),
                Write::Output(output) => match &self.outputs[output].0 {
                    Target::Elements(sink) if T::AS_IT_IS && piece.count.is_multiple_of(BLOCK) => {
                        sink.run(piece.begin).map(<*mut T>::cast)
                    }
                    _ => None,
                },
            };
            direct.push(place.is_some());
            written.push(Strip::Blocks(match place {
                // SAFETY: so many blocks are there, of an output, which is nobody else's and is no input, or kept for
                // this row and index alone.
                Some(place) => unsafe { std::slice::from_raw_parts_mut(place, blocks) },
                None => &mut strip[..blocks],
            }));
        }
        let last = piece.count - (blocks - 1) * BLOCK;
        pass.each.eval_strips(Level::best(), (blocks, last), &read, &mut written);
        direct
    }

    /// Stores or adds up a result that is in the room.
    fn store(&self, output: usize, result: usize, piece: &Piece, room: &mut Room<T>, sums: &mut PartSums) {
        let (strip, scattered) = (&room.results[result], &mut room.raw);
        piece.blocks(self.positions, |block, at, count| {
            self.store_block(output, at, count, (&strip[block], &mut *scattered), sums);
        });
    }

    /// Stores or adds up the first numbers of a block of an output, from an index on whose coordinates are given.
    pub(super) fn store_block(
        &self,
        output: usize,
        at: (usize, &[usize]),
        count: usize,
        (numbers, scattered): (&[T::Wide; BLOCK], &mut Block<T>),
        sums: &mut PartSums,
    ) {
        let numbers = &Block(*numbers);
        match &self.outputs[output].0 {
            // SAFETY: the indices are positions of rows, which one thread computes at a time.
            Target::Elements(sink) => unsafe {
                sink.store(self.positions, Level::best(), at, count, (numbers, scattered));
            },
            Target::Sums(..) => {
                if let Some(Some(sums)) = sums.get_mut(output) {
                    sums.add(self.positions, at.1, count, numbers);
                }
            }
            Target::Nowhere => {}
        }
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

    /// Spreads the numbers of a row that a pass reads over blocks of their own, and zeros for what is not there.
    fn splat(&self, pass: &PassProgram, lane: usize, room: &mut Room<T>) {
        for (source, strip) in pass.each_inputs.iter().zip(&mut room.inputs) {
            match *source {
                Read::One(one) => strip[0] = [room.ones[one].0[lane]; BLOCK],
                Read::Input(input) if self.inputs[input].is_none() => strip[0] = [T::Wide::default(); BLOCK],
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
