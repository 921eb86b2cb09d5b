//! The loops over long rows that lie across memory: up to 128 rows at a time, each a lane of the blocks, as their elements
//! at a position lie one after another. The numbers of a row one by one would be a line of the cache each.
//!
//! Folds give the same bits as row by row: of each chunk there are 128 folds side by side, of every 128th position, and these
//! are folded as the lanes of a block are.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use opsmith_body::{BLOCK, Block, Level, Source as Read};
use opsmith_core::tensor::Extents;
use opsmith_core::{Compute, Result, memory};

use super::folds::{CHUNK, fold_blocks, identity, of_chunk_blocks, of_lanes};
use super::lanes::Lanes;
use super::program::{Folded, PassProgram};
use super::run::{Room, Task, before, of_every_chunk};
use crate::axes::Space;
use crate::operand::Source;
use crate::stored::Stored;

/// From how many rows on it pays.
const LEAST_ROWS: usize = BLOCK / 16;
/// Up to how many groups of rows the threads share one group.
const FEW_GROUPS: usize = 8;

/// Whether so many rows may be gone through in this way.
pub(crate) fn may_be_across(rows: usize) -> bool {
    rows >= LEAST_ROWS
}

/// Whether all operands of a space lie along the rows, and one of them not along the positions.
pub(crate) fn are_across(positions: &Space, turned: &Space, operands: usize) -> bool {
    let is_along = |space: &Space, operand: usize| matches!(space.strides(operand)[0], 0 | 1);
    (0..operands).all(|operand| is_along(turned, operand))
        && (0..operands).any(|operand| !is_along(positions, operand))
}

impl<T: Stored> Task<'_, T> {
    /// Computes all rows. Many groups of rows are shared by the threads, of few the chunks of each.
    pub(super) fn run_across(&self, compute: &Compute<'_>) -> Result<()> {
        let groups = self.rows.len().div_ceil(BLOCK);
        if groups <= FEW_GROUPS {
            let mut room = self.room_across()?;
            let mut each = |group| self.group_across(Some(compute), group * BLOCK, &mut room);
            return (0..groups).try_for_each(&mut each);
        }
        compute.try_parallel_for(groups, self.length.saturating_mul(self.program.cost), |mut groups| {
            let mut room = self.room_across()?;
            groups.try_for_each(|group| self.group_across(None, group * BLOCK, &mut room))
        })
    }

    fn room_across(&self) -> Result<Room<T>> {
        Room::new(self.program, 0, (CHUNK, CHUNK))
    }

    /// Computes a group of rows, from a first one on, on the threads of `compute` if there are any.
    fn group_across(&self, compute: Option<&Compute<'_>>, first: usize, room: &mut Room<T>) -> Result<()> {
        let rows = BLOCK.min(self.rows.len() - first);
        let chunks = self.blocks().div_ceil(CHUNK);
        self.load_ones(first, rows, room);
        for pass in &self.program.passes {
            before(pass, room);
            if pass.is_empty() {
                continue;
            }
            let mut folded = of_every_chunk(Block::default(), chunks, pass)?;
            match compute {
                None => (0..chunks).try_for_each(|chunk| {
                    self.chunk_across(pass, (first, rows), chunk, room)?;
                    put(&room.ones_of_chunk, chunk, &mut folded);
                    Ok(())
                })?,
                Some(compute) => {
                    let (all, ones) = (Mutex::new(&mut folded), &room.ones);
                    compute.try_parallel_for(
                        chunks,
                        self.program.cost * CHUNK * BLOCK,
                        |chunks: Range<usize>| {
                            let mut room = self.room_across()?;
                            room.ones.clone_from(ones);
                            for chunk in chunks {
                                self.chunk_across(pass, (first, rows), chunk, &mut room)?;
                                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                                put(&room.ones_of_chunk, chunk, &mut all);
                            }
                            Ok(())
                        },
                    )?;
                }
            }
            for (&(_, fold, one), chunks) in pass.folds.iter().zip(&mut folded) {
                room.ones[one] = of_chunk_blocks(Level::best(), fold, chunks);
            }
        }
        self.store_ones(first, rows, room, &mut Vec::new());
        Ok(())
    }

    /// Computes a chunk of some rows: stores what is for outputs, and leaves the folds, a lane for each row.
    fn chunk_across(
        &self,
        pass: &PassProgram,
        (first, count): (usize, usize),
        chunk: usize,
        room: &mut Room<T>,
    ) -> Result<()> {
        let level = Level::best();
        let begin = chunk * CHUNK * BLOCK;
        let end = self.length.min(begin + CHUNK * BLOCK);
        let sides = BLOCK.min(end - begin);
        let mut folds = std::mem::take(&mut room.sides);
        folds.resize(pass.folds.len(), Vec::new());
        for (side, (_, fold, _)) in folds.iter_mut().zip(&pass.folds) {
            side.clear();
            memory::reserve(side, sides, "the folds of a chunk of rows")?;
            side.resize(sides, Block([identity(*fold); BLOCK]));
        }
        for from in (begin..end).step_by(CHUNK) {
            let lanes = Lanes { first, count, positions: from..end.min(from + CHUNK) };
            let blocks = lanes.positions.len();
            self.find_lanes(pass, &lanes, room);
            // SAFETY: pointers are references; each is to a whole block, of an input or of the room.
            let read = unsafe { &*(room.read.as_slice() as *const [_] as *const [&[T::Wide; BLOCK]]) };
            room.written.clear();
            for strip in &mut room.results[..pass.each_results.len()] {
                room.written.extend(strip[..blocks].iter_mut().map(|block| &raw mut block.0));
            }
            {
                // SAFETY: as above; each is to another block, of the room.
                let written = unsafe {
                    &mut *(room.written.as_mut_slice() as *mut [_] as *mut [&mut [T::Wide; BLOCK]])
                };
                pass.each.eval_many(level, &room.lens, read, written);
            }
            // SAFETY: as above, and nobody writes to them any more.
            let written = unsafe { &*(room.written.as_slice() as *const [_] as *const [&[T::Wide; BLOCK]]) };
            for (&(of, fold, _), sides) in pass.folds.iter().zip(&mut folds) {
                let numbers = match of {
                    Folded::Input(input) => &read[input * blocks..][..blocks],
                    Folded::Result(result) => &written[result * blocks..][..blocks],
                };
                fold_blocks(level, fold, count, &mut sides[(from - begin) % BLOCK..][..blocks], numbers);
            }
            self.store_lanes(pass, &lanes, room, &mut Vec::new());
        }
        room.ones_of_chunk.clear();
        room.ones_of_chunk.extend(
            pass.folds.iter().zip(&mut folds).map(|((_, fold, _), sides)| of_lanes(level, *fold, sides)),
        );
        room.sides = folds;
        Ok(())
    }

    /// Finds where the blocks of all inputs of a pass are at some positions, and gathers those that do not lie one after
    /// another.
    fn find_lanes(&self, pass: &PassProgram, lanes: &Lanes, room: &mut Room<T>) {
        let Room { raw, wide, inputs, ones, read, lens, .. } = room;
        let blocks = lanes.positions.len();
        lens.clear();
        lens.resize(blocks, lanes.count);
        read.clear();
        let index = |position: usize| self.lane_index(lanes, position);
        let ends = [lanes.positions.start, lanes.positions.end - 1]
            .map(|end| self.positions.coordinates(index(end)));
        for (source, strip) in pass.each_inputs.iter().zip(inputs) {
            let source = match *source {
                Read::One(one) => {
                    read.extend((0..blocks).map(|_| &raw const ones[one].0));
                    continue;
                }
                Read::Input(input) => self.inputs[input].as_ref(),
                Read::Kept(_) => None,
            };
            let Some(source) = source else {
                strip[0] = Block::default();
                read.extend((0..blocks).map(|_| &raw const strip[0].0));
                continue;
            };
            if let Some((first, step)) = self.in_steps(source, lanes, &ends) {
                read.extend((0..blocks).map(|block| first.wrapping_add(block * step).cast()));
                continue;
            }
            for (position, room) in lanes.positions.clone().zip(strip) {
                let begin = self.lane_index(lanes, position);
                let from = self.positions.coordinates(begin);
                // SAFETY: the indices are in the space; the block is there until the next one is read.
                room.0 = unsafe {
                    *source.block(self.positions, Level::best(), (begin, &from), lanes.count, (raw, wide))
                };
                read.push(&room.0);
            }
        }
    }

    /// Where the first of an input's blocks is and how far the next ones are from there, if the whole of each is there.
    fn in_steps(&self, source: &Source<T>, lanes: &Lanes, ends: &[Extents; 2]) -> Option<(*const T, usize)> {
        let index = |position: usize| self.lane_index(lanes, position);
        let begins = [index(lanes.positions.start), index(lanes.positions.end - 1)];
        let is_whole = lanes.count == BLOCK || source.has_elements(self.positions, begins[1] + BLOCK);
        let steps = lanes.positions.len() - 1;
        // Only along one dim, and as far each time: no position between them is elsewhere.
        let mut moved = ends[0].iter().zip(&ends[1]).filter(|(from, to)| from != to);
        let along = moved.next().is_none_or(|(from, to)| to > from && (to - from).is_multiple_of(steps));
        if !T::AS_IT_IS || !is_whole || !along || moved.next().is_some() {
            return None;
        }
        let [first, last] =
            [0, 1].map(|end| source.run(self.positions, (begins[end], &ends[end]), lanes.count));
        let (first, last) = (first?, last?);
        let bytes = last.addr().checked_sub(first.addr())?;
        Some((first, bytes / size_of::<T>() / steps.max(1)))
    }
}

/// Puts the folds of a chunk where those of all chunks are.
fn put<W: Copy>(own: &[Block<W>], chunk: usize, all: &mut [Vec<Block<W>>]) {
    for (all, own) in all.iter_mut().zip(own) {
        all[chunk] = *own;
    }
}
