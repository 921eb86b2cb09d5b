//! Whole blocks of operands that lie densely: computed where they lie, with no walk over dims.

use std::ops::Range;

use opsmith_body::BLOCK;
use smallvec::SmallVec;

use super::run::{Target, Task};
use crate::arithmetic::{Elements, Scratch};
use crate::operand::Plain;
use crate::stored::Stored;

/// The elements of an input along a range.
enum Read<T> {
    From(*const T),
    One(T),
}

impl<T: Stored> Task<'_, T> {
    /// Computes the whole blocks of a range whose begin is a block's, if that can be done where the elements lie. Gives what
    /// is left of the range.
    pub(super) fn whole_blocks(&self, range: Range<usize>) -> Range<usize> {
        let Some(written) = self.written(&range) else { return range };
        let Some(read) = self.read(&range, &written) else { return range };
        let mut same = 0;
        let elements = |(input, own): (usize, &Read<T>)| match own {
            Read::From(data) => Elements { first: *data, is_one: false },
            Read::One(element) => {
                same |= 1_u64.checked_shl(input as u32).unwrap_or(0);
                Elements { first: element, is_one: true }
            }
        };
        let inputs: SmallVec<[Elements<T>; 4]> = read.iter().enumerate().map(elements).collect();
        let count = range.len() - range.len() % BLOCK;
        let mut scratch = Scratch::new();
        let mut ready = self.arithmetic.ready::<T>(same, &mut scratch);
        // SAFETY: these are whole blocks of the range, whose elements the operands have; those of outputs are this thread's, and an
        // input's only where `read` says that it may be.
        let is_done = unsafe { ready.elements(count, &inputs, &written) };
        if is_done { range.start + count..range.end } else { range }
    }

    /// Where the outputs begin in the range, if all are wanted and lie densely.
    fn written(&self, range: &Range<usize>) -> Option<SmallVec<[*mut T; 2]>> {
        let place = |target: &Target<T>| match target {
            Target::Elements(sink) => sink.run(range.start),
            _ => None,
        };
        self.outputs.iter().map(|target| (range.len() >= BLOCK).then(|| place(target))?).collect()
    }

    /// The inputs' elements, if they lie densely or are all the same, and none lies where an output does, which might be written before all
    /// of it has been read. A single output may lie just where an input does: it is written when that element has been read.
    fn read(&self, range: &Range<usize>, written: &[*mut T]) -> Option<SmallVec<[Read<T>; 4]>> {
        let memory = |data: *const T| data as usize..data as usize + range.len() * size_of::<T>();
        let read = |source: &Option<_>| {
            // SAFETY: the range is not empty.
            let plain = source.as_ref().map(|source: &crate::operand::Source<T>| unsafe { source.plain() });
            match plain {
                None => Some(Read::One(T::default())),
                Some(Plain::Same(element)) => Some(Read::One(element)),
                Some(Plain::Strided) => None,
                Some(Plain::Dense(data)) => {
                    let data = data.wrapping_add(range.start);
                    let own = memory(data);
                    let meets = |other: &*mut T| {
                        let other = memory(*other);
                        let is_same = written.len() == 1 && own == other;
                        own.start < other.end && other.start < own.end && !is_same
                    };
                    (!written.iter().any(meets)).then_some(Read::From(data))
                }
            }
        };
        self.inputs.iter().map(read).collect()
    }
}
