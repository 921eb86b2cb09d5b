//! A pass over some blocks: of several rows, or of a part of one. Numbers are read and written where they lie, in place
//! wherever a whole block of them does; what is at the end of a row may need a block of its own.

use opsmith_body::{BLOCK, Block, Level, Source as Read, Target as Write};
use opsmith_core::tensor::Extents;

use super::folds::{CHUNK, of_rows};
use super::program::{Folded, PassProgram};
use super::run::{PartSums, ReadAt, Room, Task, WrittenAt};
use crate::operand::Source;
use crate::pointwise::Target;
use crate::stored::Stored;

/// Some blocks that a pass computes together: of each of some rows, the same.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Batch {
    first: usize,
    rows: usize,
    /// The first position in the rows, and how many there are.
    offset: usize,
    count: usize,
}

impl Batch {
    /// A chunk of rows of a length, from a first row on.
    pub(super) fn new(first: usize, rows: usize, chunk: usize, length: usize) -> Batch {
        let offset = chunk * CHUNK * BLOCK;
        Batch { first, rows, offset, count: (CHUNK * BLOCK).min(length - offset) }
    }

    /// How many blocks there are of each row.
    fn blocks(&self) -> usize {
        self.count.div_ceil(BLOCK)
    }

    /// How long the last block of each row is.
    fn last(&self) -> usize {
        self.count - (self.blocks() - 1) * BLOCK
    }

    /// The positions that blocks have in a row, and how long they are.
    fn lens(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let count = self.count;
        (0..self.blocks()).map(move |block| (block, BLOCK.min(count - block * BLOCK)))
    }
}

impl<T: Stored> Task<'_, T> {
    /// Computes a batch: stores what is for outputs and later passes, and pushes the folds.
    pub(super) fn batch(&self, pass: &PassProgram, batch: &Batch, room: &mut Room<T>, sums: &mut PartSums) {
        let level = Level::best();
        if room.batch != Some(*batch) {
            room.from.clear();
            room.from.extend((0..batch.rows).map(|row| self.positions.coordinates(self.begin(batch, row))));
            room.lens.clear();
            room.lens.extend((0..batch.rows).flat_map(|_| batch.lens().map(|(_, len)| len)));
            room.batch = Some(*batch);
        }
        self.find_inputs(pass, batch, room);
        self.find_results(pass, batch, room);
        // SAFETY: pointers are references; each is to a whole block, of an input, of the room or kept by an earlier pass,
        // and a pass never writes to what it reads.
        let read = unsafe { &*(room.read.as_slice() as *const [_] as *const [&[T::Wide; BLOCK]]) };
        {
            // SAFETY: as above; each is to another block: of an output, which is nobody else's and is no input, of the
            // room, or kept under an index of this row alone.
            let written =
                unsafe { &mut *(room.written.as_mut_slice() as *mut [_] as *mut [&mut [T::Wide; BLOCK]]) };
            pass.each.eval_many(level, &room.lens, read, written);
        }
        // SAFETY: as above, and nobody writes to them any more.
        let written = unsafe { &*(room.written.as_slice() as *const [_] as *const [&[T::Wide; BLOCK]]) };
        let blocks = batch.rows * batch.blocks();
        for (&(of, fold, _), chunks) in pass.folds.iter().zip(&mut room.chunks) {
            let rows = match of {
                Folded::Input(input) => &read[input * blocks..][..blocks],
                Folded::Result(result) => &written[result * blocks..][..blocks],
            };
            let before = chunks.len();
            chunks.resize(before + batch.rows, T::Wide::default());
            of_rows(level, fold, rows, (batch.blocks(), batch.last()), &mut chunks[before..]);
        }
        for (result, target) in pass.each_results.iter().enumerate() {
            if let Write::Output(output) = *target {
                self.store(output, result, batch, room, sums);
            }
        }
    }

    /// The index of the first position of a row of a batch.
    fn begin(&self, batch: &Batch, row: usize) -> usize {
        (batch.first + row) * self.length + batch.offset
    }

    /// Where the kept blocks of a row of a batch begin.
    fn kept(&self, index: usize, batch: &Batch, row: usize) -> usize {
        (index * self.group_size() + row) * self.blocks() + batch.offset / BLOCK
    }

    /// Finds where the blocks of all inputs of a pass are, and gathers those that do not lie one after another.
    fn find_inputs(&self, pass: &PassProgram, batch: &Batch, room: &mut Room<T>) {
        let Room { raw, wide, inputs, read, from, kept, .. } = room;
        read.clear();
        for (source, strip) in pass.each_inputs.iter().zip(inputs) {
            let source = match *source {
                Read::Input(input) => match &self.inputs[input] {
                    Some(source) => source,
                    None => {
                        read.extend((0..batch.rows * batch.blocks()).map(|_| &raw const strip[0].0));
                        continue;
                    }
                },
                Read::One(_) => {
                    let blocks = |row: &Block<T::Wide>| {
                        let row = &raw const row.0;
                        (0..batch.blocks()).map(move |_| row)
                    };
                    read.extend(strip[..batch.rows].iter().flat_map(blocks));
                    continue;
                }
                Read::Kept(index) => {
                    for row in 0..batch.rows {
                        let row = &kept[self.kept(index, batch, row)..][..batch.blocks()];
                        read.extend(row.iter().map(|block| &raw const block.0));
                    }
                    continue;
                }
            };
            let all = read.len();
            for row in 0..batch.rows {
                let begin = self.begin(batch, row);
                let same = row > 0 && source.is_same(self.positions, &from[row - 1], &from[row]);
                if same {
                    // Of what all rows share, nothing is gathered twice.
                    read.extend_from_within(all + (row - 1) * batch.blocks()..all + row * batch.blocks());
                    continue;
                }
                let strip = &mut strip[row * batch.blocks()..][..batch.blocks()];
                self.find_row(source, batch, (begin, &from[row]), (read, strip), (raw, wide));
            }
        }
    }

    /// Finds the blocks of an input in a row, or gathers them to a strip.
    fn find_row(
        &self,
        source: &Source<T>,
        batch: &Batch,
        (begin, from): (usize, &Extents),
        (read, strip): (&mut Vec<ReadAt<T>>, &mut [Block<T::Wide>]),
        (raw, wide): (&mut Block<T>, &mut Block<T::Wide>),
    ) {
        let run = source.run(self.positions, (begin, from), batch.count).filter(|_| T::AS_IT_IS);
        let end = begin + batch.blocks() * BLOCK;
        let in_place = match run {
            Some(_) if source.has_elements(self.positions, end) => batch.blocks(),
            Some(_) => batch.count / BLOCK,
            None => 0,
        };
        if let Some(run) = run {
            read.extend((0..in_place).map(|block| run.wrapping_add(block * BLOCK).cast()));
        }
        for (block, len) in batch.lens().skip(in_place) {
            let offset = block * BLOCK;
            let at = self.within_row(from, begin, offset);
            let to = &mut strip[block].0;
            let rooms = (&mut *raw, &mut *wide);
            // SAFETY: the indices are positions of a row; the block is there until the next one is read.
            unsafe {
                *to = *source.block(self.positions, Level::best(), (begin + offset, &at), len, rooms);
            }
            read.push(to);
        }
    }

    /// The output's elements of a block from a position on, if the block is computed where they are.
    fn in_place(&self, output: usize, begin: usize, len: usize) -> Option<WrittenAt<T>> {
        match &self.outputs[output].0 {
            Target::Elements(sink) if T::AS_IT_IS && len == BLOCK => sink.run(begin).map(<*mut T>::cast),
            _ => None,
        }
    }

    /// Finds where the blocks of all results of a pass go: to the room if they are folded, added up, or go elsewhere from
    /// there.
    fn find_results(&self, pass: &PassProgram, batch: &Batch, room: &mut Room<T>) {
        let (all_kept, blocks): (WrittenAt<T>, _) = (room.kept.as_mut_ptr().cast(), batch.blocks());
        room.written.clear();
        for (target, strip) in pass.each_results.iter().zip(&mut room.results) {
            let strip = &mut strip[..batch.rows * blocks];
            let begin = room.written.len();
            room.written.extend(strip.iter_mut().map(|own| &raw mut own.0));
            let mut put = |row: usize, place: WrittenAt<T>, count: usize| {
                for (block, to) in room.written[begin + row * blocks..][..count].iter_mut().enumerate() {
                    *to = place.wrapping_add(block);
                }
            };
            for row in 0..batch.rows {
                match *target {
                    Write::Fold(..) => break,
                    Write::Keep(index) => {
                        put(row, all_kept.wrapping_add(self.kept(index, batch, row)), blocks);
                    }
                    Write::Output(output) => match self.in_place(output, self.begin(batch, row), BLOCK) {
                        Some(place) => put(row, place, batch.count / BLOCK),
                        None => break,
                    },
                }
            }
        }
    }

    /// Stores or adds up what is not where it belongs of a result.
    fn store(&self, output: usize, result: usize, batch: &Batch, room: &mut Room<T>, sums: &mut PartSums) {
        if self.in_place(output, 0, batch.last()).is_some() {
            return;
        }
        let mut blocks = room.results[result].iter();
        for (row, from) in room.from.iter().enumerate() {
            let begin = self.begin(batch, row);
            for ((block, len), numbers) in batch.lens().zip(&mut blocks) {
                let offset = block * BLOCK;
                if self.in_place(output, begin + offset, len).is_none() {
                    let at = self.within_row(from, begin, offset);
                    self.store_block(output, (begin + offset, &at), len, (numbers, &mut room.raw), sums);
                }
            }
        }
    }

    /// The coordinates some positions after the beginning of a row, which are found without divisions in the same run.
    fn within_row(&self, from: &Extents, begin: usize, offset: usize) -> Extents {
        if from[0] + offset >= self.positions.dims()[0] {
            return self.positions.coordinates(begin + offset);
        }
        let mut at = from.clone();
        at[0] += offset;
        at
    }

    /// Stores or adds up the first numbers of a block of an output, from an index on whose coordinates are given.
    pub(super) fn store_block(
        &self,
        output: usize,
        at: (usize, &[usize]),
        count: usize,
        (numbers, scattered): (&Block<T::Wide>, &mut Block<T>),
        sums: &mut PartSums,
    ) {
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
}
