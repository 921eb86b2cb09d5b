//! The loop over all elements: gather a block of each input, compute, store or add up each output.

use std::ops::Range;
use std::sync::OnceLock;

use opsmith_body::{BLOCK, Block, Level};
use opsmith_core::space::{IndexSpace, Layout};
use opsmith_core::{Compute, Result, memory};
use smallvec::SmallVec;

use crate::arithmetic::{Arithmetic, Ready, Scratch};
use crate::operand::{Sink, Source, Sums};
use crate::stored::{Stored, Wide};

/// The least number of elements whose sums are one part.
const PART: usize = 1 << 16;
/// The least number of parts of a space with many more elements than that.
const PARTS: usize = 64;
/// How often a part adds to a place, where that is possible.
const PER_PLACE: usize = 8;
/// How many sums are put together at a time.
const TOTALS: usize = 1 << 12;

/// Where an output goes.
pub(crate) enum Target<T> {
    /// Every number is an element.
    Elements(Sink<T>),
    /// The numbers are summed up along the dims in which the operand with this position in the space stays where it is;
    /// its elements lie row-major.
    Sums(usize, Totals<T>),
}

/// The elements of an output that is summed up.
pub(crate) struct Totals<T> {
    data: *mut T,
    len: usize,
}

// SAFETY: each element is written by one thread, as whoever made it promised.
unsafe impl<T: Send> Sync for Totals<T> {}

impl<T> Totals<T> {
    /// # Safety
    /// While sums are put there, `len` elements at `data` must be writable and nobody else's.
    pub(crate) unsafe fn new(data: *mut T, len: usize) -> Totals<T> {
        Totals { data, len }
    }
}

impl<T: Stored> Totals<T> {
    /// Stores the totals of the sums of all parts, in their order.
    pub(crate) fn put_together<'a, P: Iterator<Item = &'a Sums>>(
        &self,
        compute: &Compute<'_>,
        parts: impl Fn() -> P + Sync,
    ) {
        compute.parallel_for(self.len.div_ceil(TOTALS), TOTALS * 4, |range| {
            let mut sums = [0.0; TOTALS];
            for begin in range.map(|index| index * TOTALS) {
                let sums = &mut sums[..TOTALS.min(self.len - begin)];
                sums.fill(0.0);
                parts().for_each(|part| part.add_to(begin, sums));
                // SAFETY: the places are below `len`, and each is in one range.
                let places = unsafe { std::slice::from_raw_parts_mut(self.data.add(begin), sums.len()) };
                for (sums, places) in sums.chunks(BLOCK).zip(places.chunks_mut(BLOCK)) {
                    let mut numbers = Block::<T::Wide>::default();
                    for (number, &sum) in numbers.0.iter_mut().zip(sums) {
                        *number = T::Wide::of_double(sum);
                    }
                    T::narrow(Level::best(), &numbers.0, places);
                }
            }
        });
    }
}

/// A computation over a space.
pub(crate) struct Task<'a, T> {
    pub(crate) arithmetic: &'a Arithmetic,
    pub(crate) space: &'a IndexSpace,
    /// For each input, where it is read; zeros where nowhere.
    pub(crate) inputs: &'a [Option<Source<T>>],
    pub(crate) outputs: &'a [Target<T>],
}

/// A block of an input, as it lies in memory and as it is computed with.
type Gathered<T> = (Block<T>, Block<<T as Stored>::Wide>);

/// The blocks that one thread works on: on the stack for the usual bodies, as small calls cost little else.
struct Room<T: Stored> {
    /// Of each input, as it is gathered and as it is computed with.
    inputs: SmallVec<[Gathered<T>; 3]>,
    outputs: SmallVec<[Block<T::Wide>; 2]>,
    scattered: Block<T>,
}

/// Computes blocks at every index of `shape`: from inputs that broadcast to it, to outputs that have it.
///
/// # Safety
/// Until it returns, the elements that the layouts reach must be readable, those of outputs writable and nobody else's,
/// and no two indices of outputs may reach the same.
pub(crate) unsafe fn each_element<'a, T: Stored>(
    compute: &Compute<'_>,
    arithmetic: &Arithmetic,
    shape: &[usize],
    inputs: impl Iterator<Item = (*const T, Layout<'a>)>,
    outputs: impl Iterator<Item = (*mut T, Layout<'a>)>,
) -> Result<()> {
    let mut layouts: SmallVec<[Layout<'_>; 16]> = SmallVec::new();
    let mut layout_of = |layout| {
        layouts.push(layout);
        layouts.len() - 1
    };
    let read: SmallVec<[_; 8]> = inputs.map(|(data, layout)| (data, layout_of(layout))).collect();
    let written: SmallVec<[_; 8]> = outputs.map(|(data, layout)| (data, layout_of(layout))).collect();
    let mut space = IndexSpace::with_room(shape.len(), layouts.len());
    space.add(shape, &layouts)?;
    // SAFETY: promised by the caller.
    let source = |&(data, operand): &(_, usize)| unsafe { Some(Source::new(&space, operand, data)) };
    let target = |&(data, operand): &(_, usize)| {
        // SAFETY: as above.
        Target::Elements(unsafe { Sink::new(&space, operand, data) })
    };
    let inputs: SmallVec<[Option<Source<T>>; 8]> = read.iter().map(source).collect();
    let outputs: SmallVec<[Target<T>; 8]> = written.iter().map(target).collect();
    Task { arithmetic, space: &space, inputs: &inputs, outputs: &outputs }.run(compute)
}

impl<T: Stored> Task<'_, T> {
    /// Computes everything, on the call's threads. Results do not depend on how many there are.
    pub(crate) fn run(&self, compute: &Compute<'_>) -> Result<()> {
        if self.outputs.iter().any(|target| matches!(target, Target::Sums(..))) {
            return self.run_with_sums(compute);
        }
        compute.parallel_for(self.space.len().div_ceil(BLOCK), self.arithmetic.cost(), |blocks| {
            let end = self.space.len().min(blocks.end * BLOCK);
            self.range(blocks.start * BLOCK..end, &mut []);
        });
        Ok(())
    }

    /// Sums are those of parts, which depend on the shapes alone, put together in their order.
    fn run_with_sums(&self, compute: &Compute<'_>) -> Result<()> {
        let len = self.space.len();
        let size = self.part_size();
        let parts: Vec<OnceLock<Vec<Sums>>> =
            memory::collected((0..len.div_ceil(size)).map(|_| OnceLock::new()), "the sums of a gradient")?;
        compute.try_parallel_for(parts.len(), self.arithmetic.cost() * (size / BLOCK), |range| {
            for index in range {
                let (begin, end) = (index * size, len.min((index + 1) * size));
                let reach = |operand| self.space.reach(operand, begin, end);
                let summed = self.summed().map(|(operand, _)| Sums::new(operand, reach(operand)));
                let mut sums: Vec<Sums> = summed.collect::<Result<_>>()?;
                self.range(begin..end, &mut sums);
                // It is empty: each index is in one range.
                let _ = parts[index].set(sums);
            }
            Ok(())
        })?;
        for (position, (_, totals)) in self.summed().enumerate() {
            totals
                .put_together(compute, || parts.iter().filter_map(OnceLock::get).map(|sums| &sums[position]));
        }
        Ok(())
    }

    /// The outputs that are summed up.
    fn summed(&self) -> impl Iterator<Item = (usize, &Totals<T>)> {
        self.outputs.iter().filter_map(|target| match target {
            Target::Sums(operand, totals) => Some((*operand, totals)),
            _ => None,
        })
    }

    /// How many elements make a part: enough that each adds to a place several times, so that parts are smaller than
    /// what they sum up, but few enough that there are parts for all threads.
    fn part_size(&self) -> usize {
        let span = |(operand, _): (usize, &Totals<T>)| {
            let (dims, strides) = (self.space.dims(), self.space.strides(operand));
            // All that is inside of the outermost dim that is summed over.
            let outermost = (0..dims.len()).rev().find(|&dim| strides[dim] == 0).unwrap_or(0);
            dims[..outermost].iter().product::<usize>()
        };
        let span = self.summed().map(span).max().unwrap_or(1);
        let most = (self.space.len() / PARTS).max(PART);
        span.saturating_mul(PER_PLACE).clamp(PART, most).next_multiple_of(BLOCK)
    }

    /// Computes a range of indices that begins with a block.
    fn range(&self, range: Range<usize>, sums: &mut [Sums]) {
        let range = self.whole_blocks(range);
        if range.is_empty() {
            return;
        }
        // Filled where they lie: collected ones would be copied, which takes a small call longer than computing.
        let mut room =
            Room::<T> { inputs: SmallVec::new(), outputs: SmallVec::new(), scattered: Block::default() };
        room.inputs.resize_with(self.inputs.len(), Default::default);
        room.outputs.resize_with(self.outputs.len(), Block::default);
        let mut scratch = Scratch::new();
        let mut ready = self.arithmetic.ready::<T::Wide>(0, &mut scratch);
        for begin in range.clone().step_by(BLOCK) {
            self.block(&mut ready, begin, BLOCK.min(range.end - begin), &mut room, sums);
        }
    }

    fn block(
        &self,
        ready: &mut Ready<'_, T::Wide>,
        begin: usize,
        count: usize,
        room: &mut Room<T>,
        sums: &mut [Sums],
    ) {
        let (space, level) = (self.space, Level::best());
        let from = space.coordinates(begin);
        let at = (begin, from.as_slice());
        let mut read: SmallVec<[*const [T::Wide; BLOCK]; 8]> = SmallVec::new();
        for (source, (raw, wide)) in self.inputs.iter().zip(&mut room.inputs) {
            read.push(match source {
                // SAFETY: the indices are in the space.
                Some(source) => unsafe { source.block(space, level, at, count, (raw, wide)) },
                None => &wide.0,
            });
        }
        // SAFETY: references are pointers, and each points to a block that nobody writes to before the next statement
        // is done: a block of `room.inputs`, or elements that only this thread may write to.
        let read = unsafe { &*(read.as_slice() as *const [_] as *const [&[T::Wide; BLOCK]]) };
        ready.block(count, read, &mut room.outputs);
        let mut sums = sums.iter_mut();
        for (target, numbers) in self.outputs.iter().zip(&room.outputs) {
            match target {
                // SAFETY: the indices are in the space, and this thread's.
                Target::Elements(sink) => unsafe {
                    sink.store(space, level, at, count, (numbers, &mut room.scattered));
                },
                Target::Sums(..) => {
                    if let Some(sums) = sums.next() {
                        sums.add(space, &from, count, numbers);
                    }
                }
            }
        }
    }
}
