//! Whole blocks of operands that lie densely: computed where they lie, many at a time, with no walk over dims.

use std::ops::Range;

use opsmith_body::{BLOCK, Block, Level};
use smallvec::SmallVec;

use super::run::{Target, Task};
use crate::operand::Plain;
use crate::stored::{Stored, Wide};

/// How many blocks are computed at a time: so that finding out what to compute costs little, and what several operations
/// read and write stays in the first cache.
const BLOCKS: usize = 8;

/// Where the numbers of an input are.
#[derive(Clone, Copy)]
enum Numbers<W> {
    /// One after another.
    Dense(*const W),
    /// In a block of our own, which is that of all indices.
    Block(usize),
}

impl<T: Stored> Task<'_, T> {
    /// Computes the whole blocks of a range whose begin is a block's, if that can be done where the elements lie. Gives what
    /// is left of the range.
    pub(super) fn whole_blocks(&self, range: Range<usize>) -> Range<usize> {
        let mut same: SmallVec<[Block<T::Wide>; 2]> = SmallVec::new();
        let Some(written) = self.written(range.clone()) else { return range };
        let Some(read) = self.read(range.clone(), &written, &mut same) else { return range };
        let end = range.end - range.len() % BLOCK;
        let mut inputs: SmallVec<[&[T::Wide; BLOCK]; 4 * BLOCKS]> = SmallVec::new();
        let mut outputs: SmallVec<[&mut [T::Wide; BLOCK]; 2 * BLOCKS]> = SmallVec::new();
        for begin in range.clone().step_by(BLOCKS * BLOCK).take_while(|&begin| begin < end) {
            let count = BLOCKS.min((end - begin) / BLOCK);
            inputs.clear();
            outputs.clear();
            let places = (0..count).map(|block| begin + block * BLOCK);
            // SAFETY: these are whole blocks of the range, whose elements the operand has.
            let block = |data: *const T::Wide, at: usize| unsafe { &*data.add(at).cast() };
            for from in &read {
                match *from {
                    Numbers::Dense(data) => inputs.extend(places.clone().map(|at| block(data, at))),
                    Numbers::Block(index) => inputs.extend((0..count).map(|_| &same[index].0)),
                }
            }
            // SAFETY: as above; they are this thread's, and no input's.
            let block = |data: *mut T::Wide, at: usize| unsafe { &mut *data.add(at).cast() };
            for &data in &written {
                outputs.extend(places.clone().map(|at| block(data, at)));
            }
            T::Wide::eval_many(self.blocks, Level::best(), count, &inputs, &mut outputs);
        }
        end..range.end
    }

    /// Where the outputs begin, if all are wanted and lie densely, as numbers that are computed with.
    fn written(&self, range: Range<usize>) -> Option<SmallVec<[*mut T::Wide; 4]>> {
        let place = |target: &Target<T>| match target {
            Target::Elements(sink) => sink.run(0).map(|data| data.cast()),
            _ => None,
        };
        let is_worth_it = T::AS_IT_IS && range.len() >= BLOCK;
        self.outputs.iter().map(|target| is_worth_it.then(|| place(target))?).collect()
    }

    /// Where the inputs' numbers are, if they lie densely or are all the same, and none lies where an output does: that would
    /// be written before all of it has been read.
    fn read(
        &self,
        range: Range<usize>,
        written: &[*mut T::Wide],
        same: &mut SmallVec<[Block<T::Wide>; 2]>,
    ) -> Option<SmallVec<[Numbers<T::Wide>; 4]>> {
        let memory = |data: *const T::Wide| {
            let begin = data.wrapping_add(range.start) as usize;
            begin..begin + range.len() * size_of::<T>()
        };
        let mut read = SmallVec::new();
        for source in self.inputs {
            // SAFETY: the range is not empty.
            let plain = source.as_ref().map(|source| unsafe { source.plain() });
            let block = match plain {
                None => Block::default(),
                Some(Plain::Dense(data)) => {
                    let (data, own) = (data.cast::<T::Wide>(), memory(data.cast()));
                    let meets = |other: &*mut T::Wide| {
                        let other = memory(*other);
                        own.start < other.end && other.start < own.end
                    };
                    if written.iter().any(meets) {
                        return None;
                    }
                    read.push(Numbers::Dense(data));
                    continue;
                }
                Some(Plain::Same(element)) => {
                    let mut block = Block::default();
                    T::widen_few(Level::best(), &[element], &mut block);
                    Block([block.0[0]; BLOCK])
                }
                Some(Plain::Strided) => return None,
            };
            read.push(Numbers::Block(same.len()));
            same.push(block);
        }
        Some(read)
    }
}
