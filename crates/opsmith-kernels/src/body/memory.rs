//! Where the numbers of a body lie.

use opsmith_body::{Axes, Axis, BLOCK, Block, Kind, Level};
use opsmith_core::tensor::{Extents, Strides, row_major_strides};
use opsmith_core::{TensorView, TensorViewMut};

use crate::stored::{Stored, Wide};

/// The dims before those of the axes, as two loops: the outer one goes along those that an output is summed over.
pub(super) struct Batch {
    dims: Extents,
    /// The positions of the outer loop's dims, and of the inner loop's.
    outer: Extents,
    inner: Extents,
    inner_sizes: Extents,
}

impl Batch {
    /// The loops over `dims`, where these are the outputs' own.
    pub(super) fn new<'a>(dims: &[usize], outputs: impl Iterator<Item = &'a [usize]> + Clone) -> Self {
        let is_outer =
            |&dim: &usize| dims[dim] != 1 && outputs.clone().any(|own| is_repeated(dims, own, dim));
        let (outer, inner): (Extents, Extents) = (0..dims.len()).partition(is_outer);
        let inner_sizes = inner.iter().map(|&dim| dims[dim]).collect();
        Batch { dims: dims.into(), outer, inner, inner_sizes }
    }

    /// The dims of the inner loop.
    pub(super) fn inner_sizes(&self) -> &[usize] {
        &self.inner_sizes
    }

    /// How many positions the outer loop has, and the inner one.
    pub(super) fn counts(&self) -> (usize, usize) {
        let count = |positions: &[usize]| positions.iter().map(|&dim| self.dims[dim]).product();
        (count(&self.outer), count(&self.inner))
    }

    /// Whether an output of these own dims is summed over some of them.
    pub(super) fn is_summed(&self, own: &[usize]) -> bool {
        self.outer.iter().any(|&dim| is_repeated(&self.dims, own, dim))
    }

    /// How far an operand is at a position of both loops, which has these strides along all dims.
    fn offset(&self, strides: &[isize], outer: usize, inner: usize) -> isize {
        let along = |positions: &[usize], mut index: usize| {
            let mut offset = 0;
            for &dim in positions.iter().rev() {
                offset += (index % self.dims[dim]) as isize * strides[dim];
                index /= self.dims[dim];
            }
            offset
        };
        along(&self.outer, outer) + along(&self.inner, inner)
    }

    /// The strides along all dims of an operand that has the last of them, or 1 in their places.
    fn strides(&self, shape: &[usize], strides: &[isize]) -> Strides {
        let of = |dim: usize| {
            let own = (dim + shape.len()).checked_sub(self.dims.len());
            own.filter(|&own| shape[own] != 1).map_or(0, |own| strides[own])
        };
        (0..self.dims.len()).map(of).collect()
    }
}

/// Whether an argument with these own dims is the same along a dim.
fn is_repeated(dims: &[usize], own: &[usize], dim: usize) -> bool {
    (dim + own.len()).checked_sub(dims.len()).is_none_or(|at| own[at] == 1 && dims[dim] != 1)
}

/// What lies somewhere.
#[derive(Clone, Copy)]
enum Data<T: Stored> {
    /// Nothing, which is zeros.
    Absent,
    Given(*mut T),
    /// Numbers as they are computed.
    Wide(*mut T::Wide),
    /// What is written is added.
    Sum(*mut f64),
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

/// How an argument lies: its strides along the dims before those of the axes, and along each axis.
pub(super) struct Lie {
    pub(super) batch: Strides,
    pub(super) along: [isize; Axis::MOST],
}

impl Lie {
    /// Of what is there once.
    pub(super) fn nowhere(batch: &Batch) -> Self {
        Lie { batch: batch.dims.iter().map(|_| 0).collect(), along: [0; Axis::MOST] }
    }

    /// Of an argument whose last dims are these axes.
    pub(super) fn new(shape: &[usize], strides: &[isize], axes: &[usize], batch: &Batch) -> Self {
        let core = shape.len() - axes.len();
        let mut lie = Lie { batch: batch.strides(&shape[..core], &strides[..core]), along: [0; Axis::MOST] };
        for (&axis, &stride) in axes.iter().zip(&strides[core..]) {
            lie.along[axis] = stride;
        }
        lie
    }

    /// Of temporary memory of this shape: the dims of the batch's inner loop, then the axes.
    pub(super) fn temporary(shape: &[usize], axes: Axes, batch: &Batch) -> Self {
        let strides = row_major_strides(shape);
        let (of_batch, of_axes) = strides.split_at(batch.inner.len());
        let mut lie = Lie::nowhere(batch);
        for (&dim, &stride) in batch.inner.iter().zip(of_batch) {
            lie.batch[dim] = stride;
        }
        for (axis, &stride) in axes.iter().zip(of_axes) {
            lie.along[axis.index()] = stride;
        }
        lie
    }
}

/// An argument of a call, or temporary memory.
pub(super) struct Operand<T: Stored> {
    data: Data<T>,
    lie: Lie,
    axes: Axes,
}

// SAFETY: whoever makes a task promises that what it writes is its own, and each number is written by one thread.
unsafe impl<T: Stored> Sync for Operand<T> {}

/// Where the loops along the axes are.
#[derive(Clone)]
pub(super) struct At {
    pub(super) along: [usize; Axis::MOST],
    /// The axis along the lanes while there is a loop along it, and how many positions the block has.
    pub(super) lanes: Option<(Axis, usize)>,
}

impl<T: Stored> Operand<T> {
    pub(super) fn absent(batch: &Batch) -> Self {
        Operand { data: Data::Absent, lie: Lie::nowhere(batch), axes: Axes::NONE }
    }

    pub(super) fn input(view: &TensorView<'_>, kind: Kind, axes: &[usize], batch: &Batch) -> Self {
        let data = Data::of(kind, view.data_ptr().cast_mut().cast());
        Self::new(data, view.shape(), view.strides(), axes, batch)
    }

    pub(super) fn output(view: &TensorViewMut<'_>, kind: Kind, axes: &[usize], batch: &Batch) -> Self {
        Self::new(Data::of(kind, view.data_ptr().cast()), view.shape(), view.strides(), axes, batch)
    }

    /// Sums of an output of this shape.
    pub(super) fn sum(memory: &mut [f64], shape: &[usize], axes: &[usize], batch: &Batch) -> Self {
        Self::new(Data::Sum(memory.as_mut_ptr()), shape, &row_major_strides(shape), axes, batch)
    }

    /// Temporary memory for each position of the batch's inner loop.
    pub(super) fn temporary(memory: &mut [T::Wide], shape: &[usize], axes: Axes, batch: &Batch) -> Self {
        Operand { data: Data::Wide(memory.as_mut_ptr()), lie: Lie::temporary(shape, axes, batch), axes }
    }

    fn new(data: Data<T>, shape: &[usize], strides: &[isize], axes: &[usize], batch: &Batch) -> Self {
        Operand { data, lie: Lie::new(shape, strides, axes, batch), axes: Axes::at(axes) }
    }

    /// How far it is at a position of both loops of the batch.
    pub(super) fn offset(&self, batch: &Batch, outer: usize, inner: usize) -> isize {
        batch.offset(&self.lie.batch, outer, inner)
    }

    /// How far it is where the loops are, from that offset on, and its stride along the lanes if it lies along them.
    fn place(&self, offset: isize, at: &At) -> (isize, Option<(isize, usize)>) {
        let along = at.along.iter().zip(self.lie.along).map(|(&position, stride)| position as isize * stride);
        let lanes = at.lanes.filter(|(axis, _)| self.axes.has(*axis));
        (offset + along.sum::<isize>(), lanes.map(|(axis, count)| (self.lie.along[axis.index()], count)))
    }

    /// Reads a block where the loops are: the numbers along the lanes, or one number everywhere.
    ///
    /// # Safety
    /// The offset must be that of a position of the batch, the loops within the axes, and nobody may write there.
    pub(super) unsafe fn load(&self, level: Level, offset: isize, at: &At, to: &mut Block<T::Wide>) {
        if matches!(self.data, Data::Absent) {
            to.0 = [T::Wide::of_double(0.0); BLOCK];
            return;
        }
        let (offset, lanes) = self.place(offset, at);
        // SAFETY: the element is within the argument, as are those along the lanes from it on.
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
                Data::Absent | Data::Sum(_) => {}
            }
        }
    }

    /// Writes a block where the loops are.
    ///
    /// # Safety
    /// The offset must be that of a position of the batch, the loops within the axes, and nobody else may read or write there.
    pub(super) unsafe fn store(&self, level: Level, offset: isize, at: &At, from: &Block<T::Wide>) {
        if matches!(self.data, Data::Absent) {
            return;
        }
        let (offset, lanes) = self.place(offset, at);
        let (stride, count) = lanes.unwrap_or((0, 1));
        // SAFETY: the element is within the output, as are those along the lanes from it on.
        unsafe {
            match self.data {
                Data::Given(data) if stride == 1 => {
                    let to = std::slice::from_raw_parts_mut(data.offset(offset), count);
                    T::narrow(level, from, to);
                }
                Data::Given(data) => {
                    let mut room = [T::default(); BLOCK];
                    T::narrow(level, from, &mut room[..count]);
                    for (lane, number) in room[..count].iter().enumerate() {
                        *data.offset(offset + lane as isize * stride) = *number;
                    }
                }
                Data::Wide(data) => {
                    for (lane, number) in from.0[..count].iter().enumerate() {
                        *data.offset(offset + lane as isize * stride) = *number;
                    }
                }
                Data::Sum(data) => {
                    for (lane, number) in from.0[..count].iter().enumerate() {
                        *data.offset(offset + lane as isize * stride) += number.double();
                    }
                }
                Data::Positions(data) => {
                    for (lane, number) in from.0[..count].iter().enumerate() {
                        *data.offset(offset + lane as isize * stride) = number.double() as i64;
                    }
                }
                Data::Truths(data) => {
                    for (lane, number) in from.0[..count].iter().enumerate() {
                        *data.offset(offset + lane as isize * stride) = u8::from(number.double() != 0.0);
                    }
                }
                Data::Absent => {}
            }
        }
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

/// Stores sums into the output that they are of, whose elements they are in order.
pub(super) fn store_sum<T: Stored>(sums: *const f64, view: &TensorViewMut<'_>) {
    let count = view.shape().iter().product();
    let (shape, strides) = (view.shape(), view.strides());
    let data: *mut T = view.data_ptr().cast();
    for index in 0..count {
        let mut rest = index;
        let mut offset = 0;
        for (&dim, &stride) in shape.iter().zip(strides).rev() {
            offset += (rest % dim) as isize * stride;
            rest /= dim;
        }
        let mut block = Block::<T::Wide>::default();
        // SAFETY: there is a sum for each element of the output, which is exclusively the call's.
        unsafe {
            block.0[0] = T::Wide::of_double(*sums.add(index));
            T::narrow(Level::best(), &block, std::slice::from_mut(&mut *data.offset(offset)));
        }
    }
}
