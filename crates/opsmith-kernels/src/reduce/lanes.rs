//! The loops over many short rows: up to 128 rows at a time, each a lane of the blocks. The positions of a row are blocks
//! one after another, in a space whose innermost dims are the rows.
//!
//! A short row would leave most of a block empty, and cost what a whole one does. Folds give the same bits as row by row.

use std::ops::Range;

use opsmith_body::{BLOCK, Level, Source as Read, Target as Write};

use super::folds::{CHUNK, of_lanes};
use super::program::PassProgram;
use super::run::{PartSums, Room, Task, before};
use crate::stored::Stored;

/// Rows up to this length are lanes; from there on it is no longer faster.
const SHORT: usize = 56;

/// Whether rows are lanes: where they are short and so many that the lanes are used. It does not change results.
pub(crate) fn are_lanes(rows: usize, length: usize) -> bool {
    (1..=SHORT).contains(&length) && rows >= length.max(BLOCK / 8)
}

/// The rows that are lanes, and some positions of theirs.
pub(super) struct Lanes {
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) positions: Range<usize>,
}

impl<T: Stored> Task<'_, T> {
    /// Computes some rows as lanes.
    pub(super) fn lanes(&self, rows: Range<usize>, room: &mut Room<T>, sums: &mut PartSums) {
        for first in rows.clone().step_by(BLOCK) {
            let count = BLOCK.min(rows.end - first);
            self.load_ones(first, count, room);
            for pass in &self.program.passes {
                before(pass, room);
                self.pass_over_lanes(pass, (first, count), room, sums);
            }
            self.store_ones(first, count, room, sums);
        }
    }

    fn pass_over_lanes(
        &self,
        pass: &PassProgram,
        (first, count): (usize, usize),
        room: &mut Room<T>,
        sums: &mut PartSums,
    ) {
        if pass.each_results.is_empty() {
            return;
        }
        for begin in (0..self.length).step_by(CHUNK) {
            let lanes = Lanes { first, count, positions: begin..self.length.min(begin + CHUNK) };
            self.gather_lanes(pass, &lanes, room);
            self.eval_lanes(pass, &lanes, room);
            self.store_lanes(pass, &lanes, room, sums);
        }
        for (target, blocks) in pass.each_results.iter().zip(&mut room.results) {
            if let Write::Fold(fold, one) = *target {
                room.ones[one] = of_lanes(Level::best(), fold, &mut blocks[..self.length]);
            }
        }
    }

    /// The index of the first of the lanes at a position.
    pub(super) fn lane_index(&self, lanes: &Lanes, position: usize) -> usize {
        position * self.rows.len() + lanes.first
    }

    /// Gathers the inputs of a pass at some positions.
    fn gather_lanes(&self, pass: &PassProgram, lanes: &Lanes, room: &mut Room<T>) {
        let (raw, wide) = (&mut room.raw, &mut room.wide);
        for (block, position) in lanes.positions.clone().enumerate() {
            let begin = self.lane_index(lanes, position);
            let from = self.positions.coordinates(begin);
            for (source, strip) in pass.each_inputs.iter().zip(&mut room.inputs) {
                let Read::Input(input) = *source else { continue };
                let Some(source) = &self.inputs[input] else { continue };
                let rooms = (&mut *raw, &mut *wide);
                // SAFETY: the indices are in the space; the block is there until the next one is read.
                strip[block].0 = unsafe {
                    *source.block(self.positions, Level::best(), (begin, &from), lanes.count, rooms)
                };
            }
        }
    }

    /// Computes all results of a pass at some positions: what is kept goes where it belongs, the rest to the room.
    fn eval_lanes(&self, pass: &PassProgram, lanes: &Lanes, room: &mut Room<T>) {
        let blocks = lanes.positions.len();
        let place = |index: usize| index * self.length + lanes.positions.start;
        let zeros = [T::Wide::default(); BLOCK];
        let kept = room.kept.as_mut_ptr().cast::<[T::Wide; BLOCK]>();
        let Room { inputs, ones, results, read, written, lens, .. } = room;
        lens.clear();
        lens.resize(blocks, lanes.count);
        read.clear();
        for (source, strip) in pass.each_inputs.iter().zip(inputs) {
            read.extend((0..blocks).map(|block| match *source {
                Read::One(one) => &raw const ones[one].0,
                Read::Input(input) if self.inputs[input].is_none() => &raw const zeros,
                Read::Input(_) => &raw const strip[block].0,
                Read::Kept(index) => kept.wrapping_add(place(index) + block).cast_const(),
            }));
        }
        written.clear();
        for (target, strip) in pass.each_results.iter().zip(results) {
            written.extend((0..blocks).map(|block| match *target {
                Write::Fold(..) => &raw mut strip[lanes.positions.start + block].0,
                Write::Output(_) => &raw mut strip[block].0,
                Write::Keep(index) => kept.wrapping_add(place(index) + block),
            }));
        }
        // SAFETY: pointers are references; each is to a block of the room, or to the zeros; those that are written to are
        // different, and a pass never keeps what it reads.
        let (read, written) = unsafe {
            let read = &*(read.as_slice() as *const [_] as *const [&[T::Wide; BLOCK]]);
            (read, &mut *(written.as_mut_slice() as *mut [_] as *mut [&mut [T::Wide; BLOCK]]))
        };
        pass.each.eval_many(Level::best(), lens, read, written);
    }

    /// Stores or adds up the outputs of a pass at some positions.
    pub(super) fn store_lanes(
        &self,
        pass: &PassProgram,
        lanes: &Lanes,
        room: &mut Room<T>,
        sums: &mut PartSums,
    ) {
        for (target, strip) in pass.each_results.iter().zip(&room.results) {
            let Write::Output(output) = *target else { continue };
            for (numbers, position) in strip.iter().zip(lanes.positions.clone()) {
                let begin = self.lane_index(lanes, position);
                let from = self.positions.coordinates(begin);
                self.store_block(output, (begin, &from), lanes.count, (numbers, &mut room.raw), sums);
            }
        }
    }
}
