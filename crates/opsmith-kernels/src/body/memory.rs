//! Where the numbers of a body lie.

use opsmith_body::{Axes, Axis, BLOCK, Block, Kind, Level};
use opsmith_core::tensor::{Extents, Strides, row_major_strides};
use opsmith_core::{Result, ensure};
use smallvec::SmallVec;

use crate::stored::{Stored, Wide};

/// How an argument lies: its strides along the dims before those of the axes, and along each axis.
pub(super) struct Lie {
    pub(super) batch: Strides,
    pub(super) along: [isize; Axis::MOST],
    pub(super) axes: Axes,
}

impl Lie {
    /// Of what is there once.
    pub(super) fn nowhere(batch: &[usize]) -> Self {
        Lie { batch: Strides::from_elem(0, batch.len()), along: [0; Axis::MOST], axes: Axes::NONE }
    }

    /// Of an argument whose last dims are these axes; the dims before them broadcast to `batch`.
    pub(super) fn new(shape: &[usize], strides: &[isize], axes: &[usize], batch: &[usize]) -> Self {
        let core = shape.len() - axes.len();
        let of = |dim: usize| {
            let own = (dim + core).checked_sub(batch.len());
            own.filter(|&own| shape[own] != 1).map_or(0, |own| strides[own])
        };
        let mut lie =
            Lie { batch: (0..batch.len()).map(of).collect(), along: [0; Axis::MOST], axes: Axes::at(axes) };
        for (&axis, &stride) in axes.iter().zip(&strides[core..]) {
            lie.along[axis] = stride;
        }
        lie
    }

    /// The axes along which one number lies after another.
    pub(super) fn dense_along(&self) -> Axes {
        let dense = self.axes.iter().filter(|axis| self.along[axis.index()] == 1);
        dense.map(Axes::of).fold(Axes::NONE, Axes::union)
    }

    /// Of dense memory on some axes, of these sizes.
    pub(super) fn dense(axes: Axes, sizes: &[usize]) -> Self {
        let own: Extents = outside_in(axes).map(|axis| sizes[axis.index()]).collect();
        let mut lie = Lie { batch: Strides::new(), along: [0; Axis::MOST], axes };
        for (axis, &stride) in outside_in(axes).zip(&row_major_strides(&own)) {
            lie.along[axis.index()] = stride;
        }
        lie
    }
}

/// Axes from that of the largest stride on. Those of a batch come after all others, and are outside of them.
fn outside_in(axes: Axes) -> impl Iterator<Item = Axis> {
    axes.iter().rev()
}

/// Makes the dims of a batch axes, from that of position `first` on, as few as the arguments' strides allow; their sizes. A dim along
/// which an argument stays where it is, it does not lie on.
pub(super) fn as_axes(batch: &[usize], first: usize, lies: &mut [Lie]) -> Result<Extents> {
    let mut merged: SmallVec<[(usize, Strides); 4]> = SmallVec::new();
    for (dim, &size) in batch.iter().enumerate().rev().filter(|(_, size)| **size != 1) {
        let strides: Strides = lies.iter().map(|lie| lie.batch[dim]).collect();
        if let Some((inner, of_inner)) = merged.last_mut() {
            let continues = |(&stride, &inner_stride): (&isize, &isize)| {
                inner_stride.checked_mul(*inner as isize) == Some(stride) && (stride == 0) == (inner_stride == 0)
            };
            if strides.iter().zip(of_inner.iter()).all(continues) {
                *inner *= size;
                continue;
            }
        }
        merged.push((size, strides));
    }
    ensure!(
        first + merged.len() <= Axis::MOST,
        Unimplemented,
        "arguments on {first} axes, and with {} dims before those whose strides cannot be told as one",
        merged.len()
    );
    // The innermost dim last: there a number is most often beside the next.
    merged.reverse();
    for (axis, (_, strides)) in merged.iter().enumerate() {
        for (lie, &stride) in lies.iter_mut().zip(strides).filter(|(_, stride)| **stride != 0) {
            lie.along[first + axis] = stride;
            lie.axes = lie.axes.with(Axis::new(first + axis));
        }
    }
    Ok(merged.into_iter().map(|(size, _)| size).collect())
}

/// What lies somewhere.
#[derive(Clone, Copy)]
enum Data<T: Stored> {
    /// Nothing, which is zeros.
    Absent,
    Given(*mut T),
    /// Numbers as they are computed.
    Wide(*mut T::Wide),
    Positions(*mut i64),
    /// 1 where it is true, else 0.
    Truths(*mut u8),
}

impl<T: Stored> Data<T> {
    fn of(kind: Kind, data: *mut u8) -> Self {
        match kind {
            Kind::Number => Self::Given(data.cast()),
            Kind::Index => Self::Positions(data.cast()),
            Kind::Mask => Self::Truths(data),
        }
    }
}

/// An argument of a call, or temporary memory.
pub(super) struct Operand<T: Stored> {
    data: Data<T>,
    along: [isize; Axis::MOST],
    pub(super) axes: Axes,
}

// SAFETY: whoever makes a task promises that what it writes is its own, and each number is written by one thread.
unsafe impl<T: Stored> Sync for Operand<T> {}

/// The numbers of a block: the axis along which they lie, and how many there are.
pub(super) type Lanes = Option<(Axis, usize)>;

impl<T: Stored> Operand<T> {
    pub(super) fn absent() -> Self {
        Operand { data: Data::Absent, along: [0; Axis::MOST], axes: Axes::NONE }
    }

    /// An argument that lies there.
    pub(super) fn new(data: *mut u8, kind: Kind, lie: &Lie) -> Self {
        Operand { data: Data::of(kind, data), along: lie.along, axes: lie.axes }
    }

    /// Temporary memory on some axes, of these sizes.
    pub(super) fn temporary(memory: &mut [T::Wide], axes: Axes, sizes: &[usize]) -> Self {
        Operand { data: Data::Wide(memory.as_mut_ptr()), along: Lie::dense(axes, sizes).along, axes }
    }

    /// How far it is at these positions of some axes.
    pub(super) fn offset(&self, axes: Axes, at: &[usize; Axis::MOST]) -> isize {
        let own = self.axes.both(axes);
        own.iter().map(|axis| at[axis.index()] as isize * self.along[axis.index()]).sum()
    }

    /// Its stride along the lanes, if it lies along them, and how many numbers there are.
    fn lanes(&self, lanes: Lanes) -> Option<(isize, usize)> {
        let lanes = lanes.filter(|(axis, _)| self.axes.has(*axis));
        lanes.map(|(axis, count)| (self.along[axis.index()], count))
    }

    /// Where a whole block lies as it is computed with, if it does.
    pub(super) fn in_place(&self, offset: isize, lanes: Lanes) -> Option<*const [T::Wide; BLOCK]> {
        if self.lanes(lanes) != Some((1, BLOCK)) {
            return None;
        }
        match self.data {
            Data::Given(data) if T::AS_IT_IS => Some(data.wrapping_offset(offset).cast()),
            Data::Wide(data) => Some(data.wrapping_offset(offset).cast()),
            _ => None,
        }
    }

    /// Reads a block from an offset on: the numbers along the lanes, or one number everywhere.
    ///
    /// # Safety
    /// There must be such numbers in the argument, and nobody may write there.
    pub(super) unsafe fn load(&self, level: Level, offset: isize, lanes: Lanes, to: &mut Block<T::Wide>) {
        let lanes = self.lanes(lanes);
        // SAFETY: promised by the caller.
        unsafe {
            match self.data {
                Data::Given(data) => given(level, data.offset(offset), lanes, to),
                Data::Wide(data) => gathered(data.offset(offset), lanes, to, |number| number),
                Data::Positions(data) => {
                    gathered(data.offset(offset), lanes, to, |at| T::Wide::of_double(at as f64));
                }
                Data::Truths(data) => {
                    let number = |truth| T::Wide::of_double(f64::from(u8::from(truth != 0)));
                    gathered(data.offset(offset), lanes, to, number);
                }
                Data::Absent => to.0 = [T::Wide::of_double(0.0); BLOCK],
            }
        }
    }

    /// Writes a block from an offset on.
    ///
    /// # Safety
    /// There must be such numbers in the output, and nobody else may read or write there.
    pub(super) unsafe fn store(&self, level: Level, offset: isize, lanes: Lanes, from: &[T::Wide; BLOCK]) {
        let (stride, count) = self.lanes(lanes).unwrap_or((0, 1));
        let numbers = &from[..count];
        // SAFETY: promised by the caller.
        unsafe {
            match self.data {
                Data::Given(data) if stride == 1 => {
                    T::narrow(level, from, std::slice::from_raw_parts_mut(data.offset(offset), count));
                }
                Data::Given(data) => {
                    let mut room = [T::default(); BLOCK];
                    T::narrow(level, from, &mut room[..count]);
                    scattered(data.offset(offset), stride, &room[..count], |number| number);
                }
                Data::Wide(data) => scattered(data.offset(offset), stride, numbers, |number| number),
                Data::Positions(data) => {
                    scattered(data.offset(offset), stride, numbers, |number| number.double() as i64);
                }
                Data::Truths(data) => {
                    scattered(data.offset(offset), stride, numbers, |number| u8::from(number.double() != 0.0));
                }
                Data::Absent => {}
            }
        }
    }
}

/// # Safety
/// There must be a place for each number from the first on.
unsafe fn scattered<E, W: Copy>(data: *mut E, stride: isize, numbers: &[W], element: impl Fn(W) -> E) {
    for (lane, &number) in numbers.iter().enumerate() {
        // SAFETY: promised by the caller.
        unsafe { data.offset(lane as isize * stride).write(element(number)) };
    }
}

/// # Safety
/// There must be an element, and those along the lanes from it on.
unsafe fn given<T: Stored>(
    level: Level,
    data: *const T,
    lanes: Option<(isize, usize)>,
    to: &mut Block<T::Wide>,
) {
    // SAFETY: promised by the caller.
    unsafe {
        match lanes {
            Some((1, count)) => T::widen_few(level, std::slice::from_raw_parts(data, count), to),
            Some((stride, count)) => {
                let mut room = [T::default(); BLOCK];
                for (lane, number) in room[..count].iter_mut().enumerate() {
                    *number = *data.offset(lane as isize * stride);
                }
                T::widen_few(level, &room[..count], to);
            }
            None => {
                T::widen_few(level, std::slice::from_ref(&*data), to);
                to.0 = [to.0[0]; BLOCK];
            }
        }
    }
}

/// # Safety
/// As [`given`].
unsafe fn gathered<E: Copy, W: Wide>(
    data: *const E,
    lanes: Option<(isize, usize)>,
    to: &mut Block<W>,
    number: impl Fn(E) -> W,
) {
    // SAFETY: promised by the caller.
    unsafe {
        match lanes {
            Some((stride, count)) => {
                for (lane, to) in to.0[..count].iter_mut().enumerate() {
                    *to = number(*data.offset(lane as isize * stride));
                }
            }
            None => to.0 = [number(*data); BLOCK],
        }
    }
}
