//! Index spaces: how shapes broadcast by NumPy's rules, and where tensors have their elements along a shape.
//!
//! An [`IndexSpace`] has as few dims as the strides allow, so a loop over it goes through long runs. There is one division for each
//! dim where a loop begins, and none between its runs.
//!
//! ```
//! use opsmith_core::space::{IndexSpace, Layout, broadcast_shape};
//!
//! let (x, y) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [10.0, 20.0]);
//! let x_layout = Layout { shape: &[2, 3], strides: &[3, 1] };
//! let y_layout = Layout { shape: &[2, 1], strides: &[1, 1] };
//! let shape = broadcast_shape([x_layout.shape, y_layout.shape]).unwrap();
//! let space = IndexSpace::new(&shape, &[x_layout, y_layout])?;
//! let ([a, b], mut sums) = (space.steps([0, 1]), vec![0.0; space.len()]);
//! space.runs([0, 1], 0..space.len(), |first, [x_at, y_at], count| {
//!     for i in 0..count {
//!         sums[first + i] = x[x_at as usize + i * a as usize] + y[y_at as usize + i * b as usize];
//!     }
//! });
//! assert_eq!(sums, [11.0, 12.0, 13.0, 24.0, 25.0, 26.0]);
//! # Ok::<(), opsmith_core::Error>(())
//! ```

mod rows;

pub use rows::RowSpace;

use std::ops::Range;

use ndarray::{ArrayBase, Dimension, RawData};
use smallvec::SmallVec;

pub use crate::tensor::{Extents, Strides, checked_num_elements, is_row_major, row_major_strides};
use crate::{Error, Result, TensorView, TensorViewMut};

/// The shape that shapes broadcast to by NumPy's rules; nothing if they do not fit.
pub fn broadcast_shape<'a>(shapes: impl IntoIterator<Item = &'a [usize]>) -> Option<Extents> {
    let mut all = Extents::new();
    for shape in shapes {
        if all.is_empty() {
            all.extend_from_slice(shape);
            continue;
        }
        if shape.len() > all.len() {
            let missing = shape.len() - all.len();
            all.insert_many(0, std::iter::repeat_n(1, missing));
        }
        let first = all.len() - shape.len();
        for (own, &dim) in all[first..].iter_mut().zip(shape) {
            match (*own, dim) {
                (_, 1) => {}
                (1, _) => *own = dim,
                (a, b) if a == b => {}
                _ => return None,
            }
        }
    }
    Some(all)
}

/// The position along each dim of the element with this index in row-major order.
pub fn coordinates(shape: &[usize], index: usize) -> Extents {
    let mut at = Extents::from_slice(shape);
    divide(index, at.iter_mut().rev());
    at
}

/// Puts the coordinates of an index in the place of dims, the innermost first.
#[inline]
fn divide<'a>(mut index: usize, dims: impl Iterator<Item = &'a mut usize>) {
    for dim in dims {
        let size = (*dim).max(1);
        *dim = index % size;
        index /= size;
    }
}

/// Whether an outer dim goes on where an inner one ends, so that the two are one. An empty dim does not go on in a repeated one.
#[inline]
pub(crate) fn goes_on(inner_size: usize, inner: isize, outer: isize) -> bool {
    inner.checked_mul(inner_size as isize) == Some(outer) && (inner == 0) == (outer == 0)
}

/// The dims and strides of a tensor, of which there are as many.
#[derive(Debug, Clone, Copy)]
pub struct Layout<'a> {
    /// The dims.
    pub shape: &'a [usize],
    /// The strides, in elements.
    pub strides: &'a [isize],
}

impl Layout<'_> {
    /// The strides along a shape that the tensor broadcasts to, 0 where it is repeated; nothing if it does not.
    pub fn broadcast(&self, shape: &[usize]) -> Option<Strides> {
        let rank = shape.len();
        let strides = shape.iter().enumerate().map(|(dim, &size)| self.stride(rank - dim, size));
        if self.shape.len() > rank { None } else { strides.collect() }
    }

    /// The stride along a dim of this size of a shape, counted from the end, the last being 1.
    #[inline]
    fn stride(&self, from_end: usize, size: usize) -> Option<isize> {
        let Some(own) = self.shape.len().checked_sub(from_end) else { return Some(0) };
        match self.shape[own] {
            1 => Some(0),
            dim => (dim == size).then(|| self.strides[own]),
        }
    }

    /// How far elements are from the first one, at most: the largest number there is if that does not hold it.
    pub fn span(&self) -> usize {
        self.shape.iter().zip(self.strides).fold(0, |far, (&dim, stride)| {
            far.saturating_add(stride.unsigned_abs().saturating_mul(dim.saturating_sub(1)))
        })
    }
}

impl<'a> TensorView<'a> {
    /// The dims and strides.
    pub fn layout(&self) -> Layout<'a> {
        Layout { shape: self.shape(), strides: self.strides() }
    }
}

impl<'a> TensorViewMut<'a> {
    /// The dims and strides.
    pub fn layout(&self) -> Layout<'a> {
        Layout { shape: self.shape(), strides: self.strides() }
    }
}

impl<'a, S: RawData, D: Dimension> From<&'a ArrayBase<S, D>> for Layout<'a> {
    fn from(array: &'a ArrayBase<S, D>) -> Layout<'a> {
        Layout { shape: array.shape(), strides: array.strides() }
    }
}

/// How the elements of an operand lie along a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after another: the element at a linear index lies at that index.
    Dense,
    /// All are the same element.
    Same,
    /// Any other way.
    Strided,
}

/// The most strides for which nothing is allocated: those of 8 operands along 6 dims.
const FEW: usize = 48;

/// All indices of a shape, in row-major order, and where each of some operands has its element: its place, in elements from
/// the first one's.
///
/// Dims that every operand goes through as if they were one are one, and there are none of 1. Nothing is allocated for ranks up
/// to 6 and 8 operands.
#[derive(Debug)]
pub struct IndexSpace {
    /// The last dim first.
    dims: Extents,
    /// The strides of each operand along them, one operand after another, each with room for as many dims.
    strides: SmallVec<[isize; FEW]>,
    room: usize,
    len: usize,
}

impl IndexSpace {
    /// The space of `shape`, to which all operands broadcast.
    ///
    /// # Errors
    /// `InvalidArgument` when one does not; `ResourceExhausted` when there are more elements than memory could hold.
    #[inline]
    pub fn new(shape: &[usize], operands: &[Layout<'_>]) -> Result<IndexSpace> {
        let mut space = IndexSpace::with_room(shape.len(), operands.len());
        space.add(shape, operands)?;
        Ok(space)
    }

    /// Several spaces, each of some of the dims of `shape`: `part` says of each dim which one has it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// When there is no such part.
    pub fn split<const PARTS: usize>(
        shape: &[usize],
        operands: &[Layout<'_>],
        part: impl Fn(usize) -> usize,
    ) -> Result<[IndexSpace; PARTS]> {
        let mut parts = std::array::from_fn(|_| IndexSpace::with_room(shape.len(), operands.len()));
        let mut fits = operands.iter().all(|operand| operand.shape.len() <= shape.len());
        for dim in (0..shape.len()).rev() {
            fits &= parts[part(dim)].add_dim(shape, operands, dim);
        }
        let len = parts.iter().fold(1usize, |len, part| len.saturating_mul(part.len));
        if fits && len <= isize::MAX as usize { Ok(parts) } else { Err(no_space(shape, operands)) }
    }

    /// A space of one index, with room for so many dims.
    #[inline]
    pub fn with_room(dims: usize, operands: usize) -> IndexSpace {
        let room = dims.max(1);
        let strides = match operands * room {
            few @ ..=FEW => SmallVec::from_buf_and_len([0; FEW], few),
            many => SmallVec::from_elem(0, many),
        };
        IndexSpace { dims: Extents::new(), strides, room, len: 1 }
    }

    /// Adds the dims of `shape`, to which all operands broadcast. A space that is filled where it lies is had sooner than
    /// [`new`](Self::new) gives one: it is large.
    ///
    /// # Errors
    /// As [`new`](Self::new); the space is of no use then.
    ///
    /// # Panics
    /// When there is no room for them.
    #[inline]
    pub fn add(&mut self, shape: &[usize], operands: &[Layout<'_>]) -> Result<()> {
        let mut fits = operands.iter().all(|operand| operand.shape.len() <= shape.len());
        for dim in (0..shape.len()).rev() {
            fits &= self.add_dim(shape, operands, dim);
        }
        if fits && self.len <= isize::MAX as usize { Ok(()) } else { Err(no_space(shape, operands)) }
    }

    /// Adds a dim of `shape`. Gives whether all operands broadcast along it.
    #[inline]
    fn add_dim(&mut self, shape: &[usize], operands: &[Layout<'_>], dim: usize) -> bool {
        let mut fits = true;
        let strides = operands.iter().map(|operand| {
            let stride = operand.stride(shape.len() - dim, shape[dim]);
            fits &= stride.is_some();
            stride.unwrap_or(0)
        });
        self.push(shape[dim], strides);
        fits
    }

    /// Adds a dim before those that there are, with the stride of each operand.
    ///
    /// # Panics
    /// When there is no room for it.
    #[inline]
    pub fn push(&mut self, size: usize, strides: impl IntoIterator<Item = isize>) {
        let (rank, last) = (self.dims.len(), self.dims.last().copied());
        let (mut merges, all) = (last.is_some(), &mut self.strides[..]);
        for (operand, stride) in strides.into_iter().enumerate() {
            let at = operand * self.room + rank;
            all[at] = stride;
            merges = merges && last.is_some_and(|inner| goes_on(inner, all[at - 1], stride));
        }
        self.len = self.len.saturating_mul(size);
        let merged = last.filter(|_| merges).and_then(|inner| inner.checked_mul(size));
        match (merged, self.dims.last_mut()) {
            _ if size == 1 => {}
            (Some(merged), Some(last)) => *last = merged,
            _ => self.dims.push(size),
        }
    }

    /// The same indices in an order for operands that lie along another dim than the last: the last dim in parts of `width`, one part
    /// after another. Then a line of memory that is fetched for a row is there for the next rows too. Of each space, where it begins along
    /// the last dim; the second has what is left of that, and may be empty. None if no operand lies so, or there are few indices.
    pub fn columns(&self, width: usize) -> Option<[(IndexSpace, usize); 2]> {
        /// So many elements apart they are in lines of their own.
        const FAR: usize = 16;
        /// So many indices are in the caches in any order.
        const FEW_INDICES: usize = 1 << 14;
        let (&last, others) = self.dims.split_first()?;
        let operands = self.strides.len() / self.room;
        let is_across = |operand: usize| {
            let strides = self.strides(operand);
            let is_near =
                |(size, stride): (&usize, &isize)| *size >= FAR && (1..FAR).contains(&stride.unsigned_abs());
            strides[0].unsigned_abs() >= FAR && others.iter().zip(&strides[1..]).any(is_near)
        };
        if self.len < FEW_INDICES || last < 2 * width || !(0..operands).any(is_across) {
            return None;
        }
        let space = |width: usize, parts: usize| {
            let mut space = IndexSpace::with_room(self.dims.len() + 1, operands);
            let strides = |dim: usize| (0..operands).map(move |operand| self.strides(operand)[dim]);
            space.push(width, strides(0));
            others.iter().enumerate().for_each(|(dim, size)| space.push(*size, strides(dim + 1)));
            space.push(parts, strides(0).map(|stride| stride * width as isize));
            space
        };
        let rest = last % width;
        Some([(space(width, last / width), 0), (space(rest, 1), last - rest)])
    }

    /// How many indices there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The dims, the last one first. A space of one index has none.
    #[inline]
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The strides of an operand, the last dim first.
    #[inline]
    pub fn strides(&self, operand: usize) -> &[isize] {
        &self.strides[operand * self.room..][..self.dims.len()]
    }

    /// The strides of operands along the last dim: from one element of a run to the next.
    #[inline]
    pub fn steps<const N: usize>(&self, operands: [usize; N]) -> [isize; N] {
        operands.map(|operand| self.strides(operand).first().copied().unwrap_or(0))
    }

    /// How an operand's elements lie.
    pub fn order(&self, operand: usize) -> Order {
        let mut expected = 1isize;
        let mut along = self.dims.iter().zip(self.strides(operand));
        let is_dense = along.all(|(&dim, &stride)| {
            let next = expected.wrapping_mul(dim as isize);
            stride == std::mem::replace(&mut expected, next)
        });
        match self.strides(operand).iter().all(|&stride| stride == 0) {
            _ if is_dense => Order::Dense,
            true => Order::Same,
            false => Order::Strided,
        }
    }

    /// How far the places of an operand are from the first one, at most.
    pub fn span(&self, operand: usize) -> usize {
        Layout { shape: &self.dims, strides: self.strides(operand) }.span()
    }

    /// The position along each dim, the last one first, of an index.
    #[inline]
    pub fn coordinates(&self, index: usize) -> Extents {
        let mut at = Extents::from_slice(&self.dims);
        divide(index, at.iter_mut());
        at
    }

    /// The place of an operand at an index. For a loop over many, [`runs`](Self::runs) is faster.
    #[inline]
    pub fn place(&self, operand: usize, index: usize) -> isize {
        place(self.strides(operand), &self.coordinates(index))
    }

    /// Goes through a range of indices in runs along the last dim: calls `act` with the first index of each, the places there of
    /// these operands, and its length.
    #[inline]
    pub fn runs<const N: usize>(
        &self,
        operands: [usize; N],
        range: Range<usize>,
        mut act: impl FnMut(usize, [isize; N], usize),
    ) {
        let begin = range.start;
        if self.dims.len() < 2 {
            if !range.is_empty() {
                act(begin, self.steps(operands).map(|step| begin as isize * step), range.len());
            }
            return;
        }
        let from = self.coordinates(begin);
        self.runs_from(operands, &from, range.len(), |done, places, count| act(begin + done, places, count));
    }

    /// As [`runs`](Self::runs), of `count` indices from these [`coordinates`](Self::coordinates) on, and with the position of each run
    /// among them.
    #[inline]
    pub fn runs_from<const N: usize>(
        &self,
        operands: [usize; N],
        from: &[usize],
        count: usize,
        mut act: impl FnMut(usize, [isize; N], usize),
    ) {
        let (dims, strides) = (self.dims(), operands.map(|operand| self.strides(operand)));
        let (inner, first) = (dims.first().copied().unwrap_or(1), from.first().copied().unwrap_or(0));
        let (mut places, mut done) = (strides.map(|own| place(own, from)), count.min(inner - first));
        if count > 0 {
            act(0, places, done);
        }
        if done == count {
            return;
        }
        let mut at = Extents::from_slice(from);
        let at = &mut at[..dims.len()];
        (0..N).for_each(|own| places[own] -= first as isize * strides[own][0]);
        while done < count {
            for dim in 1..dims.len() {
                at[dim] += 1;
                // A dim that ends begins again.
                let (steps, ends) =
                    if at[dim] < dims[dim] { (1, false) } else { (1 - dims[dim] as isize, true) };
                (0..N).for_each(|own| places[own] += steps * strides[own][dim]);
                if !ends {
                    break;
                }
                at[dim] = 0;
            }
            let length = inner.min(count - done);
            act(done, places, length);
            done += length;
        }
    }

    /// The first and the last place that an operand, whose strides are not negative, has among the indices from `begin`
    /// up to `end`; both may be further apart than need be.
    pub fn reach(&self, operand: usize, begin: usize, end: usize) -> (usize, usize) {
        let (first, last) = (self.coordinates(begin), self.coordinates(end - 1));
        let differs = (0..self.dims.len()).rev().find(|&dim| first[dim] != last[dim]);
        let (mut low, mut high) = (0, 0);
        for (dim, &stride) in self.strides(operand).iter().enumerate() {
            let stride = stride.unsigned_abs();
            let (from, to) = match differs {
                Some(outermost) if dim < outermost => (0, self.dims[dim] - 1),
                _ => (first[dim], last[dim]),
            };
            low += from * stride;
            high += to * stride;
        }
        (low, high)
    }
}

/// The place at coordinates.
#[inline]
fn place(strides: &[isize], at: &[usize]) -> isize {
    at.iter().zip(strides).map(|(&along, stride)| along as isize * stride).sum()
}

#[cold]
fn no_space(shape: &[usize], operands: &[Layout<'_>]) -> Error {
    match operands.iter().find(|operand| operand.broadcast(shape).is_none()) {
        Some(operand) => {
            Error::invalid_argument(format!("shape {:?} does not broadcast to {shape:?}", operand.shape))
        }
        None => Error::resource_exhausted(format!("a tensor of shape {shape:?} is too large")),
    }
}

#[cfg(test)]
mod tests;
