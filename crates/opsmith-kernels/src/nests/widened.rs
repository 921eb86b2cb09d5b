//! Numbers of 16 bits as float32, where each is read often, as in products of matrices: copies of the inputs before, and of the outputs
//! behind.

use opsmith_body::{BLOCK, Block, Graph, Kind, Level};
use opsmith_core::space::IndexSpace;
use opsmith_core::{Compute, Result};
use smallvec::SmallVec;

use super::axes::Lie;
use super::{Argument, Placed};
use crate::stored::Stored;

/// How many times as much memory as its numbers an argument may lie in.
const MOST_SPREAD: usize = 4;

/// For how many numbers of the largest intermediate result there is at most one of an argument where copies pay.
const LEAST_OFTEN: usize = 8;

/// The places of an argument's numbers, from where it begins.
struct Places {
    space: IndexSpace,
    /// The first of all, and how many there are from it to the last one.
    first: isize,
    span: usize,
}

impl Places {
    fn new(lie: &Lie, sizes: &[usize]) -> Places {
        let dim = |axis: opsmith_body::Axis| (sizes[axis.index()], lie.along[axis.index()]);
        let mut dims: SmallVec<[(usize, isize); 8]> = lie.axes.iter().map(dim).collect();
        dims.sort_by_key(|(_, stride)| stride.unsigned_abs());
        let (mut space, mut first, mut last) = (IndexSpace::with_room(dims.len(), 1), 0, 0);
        for (size, stride) in dims {
            space.push(size, [stride]);
            let end = stride * size.saturating_sub(1) as isize;
            (first, last) = (first + end.min(0), last + end.max(0));
        }
        Places { space, first, span: (last - first) as usize + 1 }
    }

    /// Copies a number at each place, on threads: `copy` gets the first place of a few, at most [`BLOCK`], the step from one to the next,
    /// and their count.
    fn each(&self, compute: &Compute<'_>, copy: impl Fn(isize, isize, usize) + Sync) {
        let [step] = self.space.steps([0]);
        compute.parallel_for(self.space.len(), 1, |range| {
            self.space.runs([0], range, |_, [place], count| {
                for begin in (0..count).step_by(BLOCK) {
                    copy(place + begin as isize * step, step, BLOCK.min(count - begin));
                }
            });
        });
    }
}

/// Addresses that threads share, each of which has places of its own.
struct Shared<T>(*mut T);

// SAFETY: no two threads have the same places, but for inputs whose strides overlap in part: there they write equal numbers.
unsafe impl<T> Sync for Shared<T> {}

impl<T: Copy> Shared<T> {
    /// The numbers at some places.
    ///
    /// # Safety
    /// They must be there.
    unsafe fn get(&self, (place, step, count): (isize, isize, usize), to: &mut [T; BLOCK]) {
        for (at, to) in to[..count].iter_mut().enumerate() {
            // SAFETY: promised by the caller.
            *to = unsafe { *self.0.wrapping_offset(place + at as isize * step) };
        }
    }

    /// Sets them.
    ///
    /// # Safety
    /// They must be there, and nobody else's.
    unsafe fn set(&self, (place, step): (isize, isize), from: &[T]) {
        for (at, from) in from.iter().enumerate() {
            // SAFETY: promised by the caller.
            unsafe { *self.0.wrapping_offset(place + at as isize * step) = *from };
        }
    }
}

/// Whether numbers are read so often that copies pay, which take little more memory than the numbers.
pub(super) fn pays(graph: &Graph, placed: &[Placed], lies: &[Lie], sizes: &[usize]) -> bool {
    let copied = placed.iter().zip(lies).filter(|(placed, _)| is_copied(placed.data, placed.kind));
    let mut numbers = 0_usize;
    for (_, lie) in copied {
        let places = Places::new(lie, sizes);
        // Where positions share a number, threads would write one copy at a time.
        if places.span / MOST_SPREAD > places.space.len() || places.span < places.space.len() {
            return false;
        }
        numbers = numbers.saturating_add(places.space.len());
    }
    graph.most_positions(sizes) / LEAST_OFTEN >= numbers.max(1)
}

fn is_copied(data: *mut u8, kind: Kind) -> bool {
    kind == Kind::Number && !data.is_null()
}

/// Calls `compute` with copies of the arguments in float32 that lie as they do, the inputs first, and copies what it computed back.
///
/// # Safety
/// As [`Runner::run`](super::Runner::run), for arguments that lie so.
pub(super) unsafe fn with_copies<T: Stored>(
    compute: &Compute<'_>,
    sizes: &[usize],
    (arguments, lies): (&[Argument], &[Lie]),
    inputs: usize,
    body: impl FnOnce(&[Argument]) -> Result<()>,
) -> Result<()> {
    let level = Level::best();
    let mut wide: SmallVec<[Argument; 8]> = arguments.iter().copied().collect();
    let mut outputs: SmallVec<[(usize, Places); 2]> = SmallVec::new();
    for (at, lie) in lies.iter().enumerate() {
        let Argument { data, kind } = arguments[at];
        if !is_copied(data, kind) {
            continue;
        }
        let places = Places::new(lie, sizes);
        let memory = compute.temp::<T::Wide>(places.span)?;
        let (from, to) =
            (Shared(data.cast::<T>()), Shared(memory.as_mut_ptr().wrapping_offset(-places.first)));
        wide[at].data = to.0.cast();
        if at >= inputs {
            outputs.push((at, places));
            continue;
        }
        places.each(compute, |place, step, count| {
            let (mut few, mut block) = ([T::default(); BLOCK], Block::<T::Wide>::default());
            // SAFETY: the numbers are those of an input, and their copies have the same places in memory of our own.
            unsafe {
                from.get((place, step, count), &mut few);
                T::widen_few(level, &few[..count], &mut block);
                to.set((place, step), &block.0[..count]);
            }
        });
    }
    body(&wide)?;
    for (at, places) in outputs {
        let (from, to) = (Shared(wide[at].data.cast::<T::Wide>()), Shared(arguments[at].data.cast::<T>()));
        places.each(compute, |place, step, count| {
            let (mut block, mut few) = (Block::<T::Wide>::default(), [T::default(); BLOCK]);
            // SAFETY: as above, of an output, which is nobody else's.
            unsafe {
                from.get((place, step, count), &mut block.0);
                T::narrow(level, &block.0, &mut few[..count]);
                to.set((place, step), &few[..count]);
            }
        });
    }
    Ok(())
}
