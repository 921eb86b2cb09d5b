//! A graph computed slice by slice, each in blocks of rows that share their temporary memory.

use std::cell::RefCell;
use std::ops::Range;
use std::ptr::NonNull;

use opsmith_body::code::Lies;
use opsmith_body::{Axes, Axis, Kind, Nests, Piece, Place, Slices};
use opsmith_core::fork::Mutex;
use opsmith_core::kernel::Services;
use opsmith_core::tensor::Extents;
use opsmith_core::{Compute, DType, Error, Result, memory};
use smallvec::SmallVec;

use super::axes::Lie;
use super::stages::{Shape, Stages, Way};
use super::{Argument, bytes, bytes_of};
use crate::kept::Kept;
use crate::product::{OF_A_PART, OF_A_SMALL_PART};
use crate::stored::{Stored, Wide};

/// The nanoseconds that a slice is said to take: each is worth a thread.
const COST: usize = 1 << 20;

/// So many slices are enough for threads. Of fewer, each uses all threads. Threads themselves do not decide that, so that they change no bit.
const ENOUGH: usize = 8;

pub(super) struct Sliced {
    free: Axes,
    along: Axis,
    block: usize,
    kept: Vec<Axes>,
    before: Option<Phase>,
    /// For whole blocks, and for the last one if that has fewer positions.
    whole: Phase,
    rest: Option<Phase>,
    after: Option<Phase>,
}

/// What is computed before the blocks of a slice, for each, or behind them.
struct Phase {
    stages: Stages,
    outputs: Vec<Place>,
}

impl Sliced {
    /// Of arguments that lie so, the inputs first.
    pub(super) fn new<T: Stored>(
        slices: Slices,
        (sizes, own): (&[usize], usize),
        (given, inputs): (&[Lies], usize),
        known: (&Kept<Shape, Nests>, Option<&Compute<'_>>),
    ) -> Sliced {
        let Slices { free, along, block, kept, before, each, after } = slices;
        let size = sizes[along.index()];
        let phase = |piece: &Piece, positions: usize| {
            let sizes = block_sizes(sizes, free, (along, positions));
            let array = |axes: &Axes| Lie::dense(*axes, &sizes, own).held(T::HELD, size_of::<T>());
            let first = Lie::nowhere().held(T::HELD, size_of::<T>());
            let read = given[..inputs].iter().copied().chain(kept.iter().map(array)).chain([first]);
            let made = piece.outputs.iter().map(|place| match *place {
                Place::Temporary(kept_at) => array(&kept[kept_at]),
                Place::Input(input) => given[input],
                Place::Output(output) => given[inputs + output],
            });
            let lies: Vec<Lies> = read.chain(made).collect();
            let given = (&lies[..], inputs + kept.len() + 1);
            let stages = Stages::new::<T>(piece.products.clone(), (&sizes, own), given, known);
            Phase { stages, outputs: piece.outputs.clone() }
        };
        let once = |piece: &Piece| (!piece.outputs.is_empty()).then(|| phase(piece, size));
        let rest = (size > block && size % block > 0).then(|| phase(&each, size % block));
        let (before, whole, after) = (once(&before), phase(&each, block.min(size)), once(&after));
        Sliced { free, along, block, before, whole, rest, after, kept }
    }

    /// Computes the outputs, which come after all inputs; as machine code only if that is allowed.
    ///
    /// # Safety
    /// As [`Runner::run`](super::Runner::run), for arguments that lie as those that this was made for.
    pub(super) unsafe fn run<T: Stored>(
        &self,
        compute: &Compute<'_>,
        (sizes, own): (&[usize], usize),
        arguments: (&[Argument], &[Lie]),
        inputs: usize,
        is_native: bool,
    ) -> Result<()> {
        let count = self.free.iter().map(|axis| sizes[axis.index()]).product::<usize>();
        let is_few = count < ENOUGH;
        let of_a_part = if is_few { OF_A_SMALL_PART } else { OF_A_PART };
        let way = Way { is_native, adds: None, of_a_part };
        let arguments = (Shared(arguments.0), arguments.1);
        let call = Call { sliced: self, sizes, own, arguments, inputs, way };
        if is_few {
            let lender = Lender { threads: Some(compute), lent: RefCell::default() };
            // SAFETY: promised by the caller.
            return (0..count).try_for_each(|slice| unsafe { call.slice::<T>(slice, &lender) });
        }
        let kept: Mutex<Vec<Lent>> = Mutex::new(Vec::new());
        compute.try_parallel_for(count, COST, |mut slices| {
            let lent = kept.lock().pop().unwrap_or_default();
            let lender = Lender { threads: None, lent: RefCell::new(lent) };
            // SAFETY: promised by the caller; slices have outputs of their own.
            slices.try_for_each(|slice| unsafe { call.slice::<T>(slice, &lender) })?;
            kept.lock().push(lender.lent.into_inner());
            Ok(())
        })
    }
}

#[cfg(test)]
impl Sliced {
    /// The nests of all stages, as machine code those that can be.
    pub(super) fn natives(&self) -> impl Iterator<Item = &Option<super::made::Native>> {
        let all = self.before.iter().chain([&self.whole]).chain(&self.rest).chain(&self.after);
        all.flat_map(|phase| phase.stages.natives())
    }
}

/// The sizes of the axes for a block of so many positions.
fn block_sizes(sizes: &[usize], free: Axes, (along, positions): (Axis, usize)) -> Extents {
    let mut own: Extents = sizes.into();
    free.iter().for_each(|axis| own[axis.index()] = 1);
    own[along.index()] = positions;
    own
}

/// A call, of which slices are computed.
struct Call<'a> {
    sliced: &'a Sliced,
    sizes: &'a [usize],
    own: usize,
    arguments: (Shared<'a>, &'a [Lie]),
    inputs: usize,
    way: Way,
}

/// Arguments that threads share.
struct Shared<'a>(&'a [Argument]);

// SAFETY: whoever makes a call promises that its inputs may be read and its outputs written, of which each slice has its own.
unsafe impl Sync for Shared<'_> {}

impl Call<'_> {
    /// Computes a slice.
    ///
    /// # Safety
    /// As [`Sliced::run`]; no two threads compute the same slice.
    unsafe fn slice<T: Stored>(&self, slice: usize, lender: &Lender<'_, '_>) -> Result<()> {
        let Sliced { free, along, block, kept, before, whole, rest, after } = self.sliced;
        let (mut at, mut left) = ([0; Axis::MOST], slice);
        for axis in free.iter() {
            at[axis.index()] = left % self.sizes[axis.index()];
            left /= self.sizes[axis.index()];
        }
        let size = self.sizes[along.index()];
        let sizes = block_sizes(self.sizes, *free, (*along, size));
        lender.lent.borrow_mut().next = 0;
        let arrays = kept.iter().map(|axes| Array::new::<T>(*axes, (&sizes, self.own), lender));
        let arrays: SmallVec<[Array; 8]> = arrays.collect::<Result<_>>()?;
        // SAFETY: promised by the caller, and the arrays are there until another slice is computed.
        unsafe {
            if let Some(before) = before {
                self.part::<T>(before, &at, (size, None), (&arrays, lender))?;
            }
            for begin in (0..size).step_by(*block) {
                at[along.index()] = begin;
                let positions = (*block).min(size - begin);
                let phase = if positions == *block { whole } else { rest.as_ref().unwrap_or(whole) };
                let adds = (begin > 0).then_some(*along);
                self.part::<T>(phase, &at, (positions, adds), (&arrays, lender))?;
            }
            at[along.index()] = 0;
            match after {
                Some(after) => self.part::<T>(after, &at, (size, None), (&arrays, lender)),
                None => Ok(()),
            }
        }
    }

    /// Computes a part of a slice, from some positions on, of which it has so many along its axis.
    ///
    /// # Safety
    /// As [`slice`](Self::slice); the arrays are there.
    unsafe fn part<T: Stored>(
        &self,
        Phase { stages, outputs }: &Phase,
        at: &[usize; Axis::MOST],
        (positions, adds): (usize, Option<Axis>),
        (arrays, lender): (&[Array], &Lender<'_, '_>),
    ) -> Result<()> {
        let Sliced { free, along, .. } = self.sliced;
        let sizes = block_sizes(self.sizes, *free, (*along, positions));
        let mut first = T::Wide::of_double(at[along.index()] as f64);
        let first = Array { data: (&raw mut first).cast(), lie: Lie::nowhere() };
        let given = |argument: usize| {
            let (Argument { data, kind }, lie) = (self.arguments.0.0[argument], &self.arguments.1[argument]);
            let place: isize = at.iter().zip(lie.along).map(|(at, stride)| *at as isize * stride).sum();
            let bytes = if data.is_null() { 0 } else { place * bytes::<T>(kind) as isize };
            (Argument { data: data.wrapping_offset(bytes), kind }, lie.clone())
        };
        let kept = |array: &Array| (Argument { data: array.data, kind: Kind::Number }, array.lie.clone());
        let read = (0..self.inputs).map(given).chain(arrays.iter().map(kept)).chain([kept(&first)]);
        let made = outputs.iter().map(|place| match *place {
            Place::Temporary(array) => kept(&arrays[array]),
            Place::Input(input) => given(input),
            Place::Output(output) => given(self.inputs + output),
        });
        let (arguments, lies): (SmallVec<[Argument; 8]>, SmallVec<[Lie; 8]>) = read.chain(made).unzip();
        lender.lent.borrow_mut().next = arrays.len();
        let (sizes, given) = ((&sizes[..], self.own), (&arguments[..], &lies[..]));
        let inputs = self.inputs + arrays.len() + 1;
        // SAFETY: promised by the caller; arguments of a block lie as those of the whole, and `first` is there until this returns.
        unsafe { stages.run::<T>(&Compute::new(lender), sizes, given, inputs, Way { adds, ..self.way }) }
    }
}

/// An array that is kept for a slice.
struct Array {
    data: *mut u8,
    lie: Lie,
}

impl Array {
    fn new<T: Stored>(axes: Axes, (sizes, own): (&[usize], usize), lender: &Lender<'_, '_>) -> Result<Array> {
        let shape: Extents = axes.iter().map(|axis| sizes[axis.index()]).collect();
        let memory = lender.allocate_temp(bytes_of(&shape, size_of::<T>())?)?;
        Ok(Array { data: memory.as_ptr(), lie: Lie::dense(axes, sizes, own) })
    }
}

/// A part of memory, as long as a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Memory that was lent, and how many pieces of it are in use.
#[derive(Default)]
struct Lent {
    pieces: Vec<Vec<Line>>,
    next: usize,
}

/// Lends the stages of a block memory, the same for each block: they ask for it in the same order.
struct Lender<'a, 'c> {
    /// The threads that a stage uses; none but its own if there are enough slices.
    threads: Option<&'a Compute<'c>>,
    lent: RefCell<Lent>,
}

// SAFETY: a piece is lent to one part of a slice at a time, and replaced between parts only; those of arrays that are kept come first, and
// keep their sizes. The scope of a loop ends when all ranges are done.
unsafe impl Services for Lender<'_, '_> {
    fn allocate_output(&self, _: usize, _: DType, _: &[usize]) -> Result<*mut u8> {
        Err(Error::internal("a block has its outputs"))
    }

    fn allocate_temp(&self, bytes: usize) -> Result<NonNull<u8>> {
        let mut lent = self.lent.borrow_mut();
        let lines = bytes.div_ceil(size_of::<Line>());
        let at = lent.next;
        lent.next += 1;
        if at == lent.pieces.len() {
            memory::reserve(&mut lent.pieces, 1, "temporary memory")?;
            lent.pieces.push(Vec::new());
        }
        let piece = &mut lent.pieces[at];
        if piece.len() < lines {
            *piece = Vec::new();
            *piece = memory::filled(Line([0; 64]), lines, "temporary memory")?;
        }
        Ok(NonNull::from(&mut piece[..]).cast())
    }

    fn keep_string(&self, _: &[u8]) -> Result<NonNull<u8>> {
        Err(Error::internal("a block has no text"))
    }

    fn num_threads(&self) -> usize {
        self.threads.map_or(1, Compute::num_threads)
    }

    fn parallel_for(&self, total: usize, grain: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
        match self.threads {
            Some(compute) => compute.loop_over(total, grain, body),
            None => body(0..total),
        }
    }
}
