//! Copies between tensors of the same dtype and shape, whatever their strides.
//!
//! The axes are gone through as the elements lie in the copy, so that it is written from its beginning to its end. Where the
//! source has them in another order, two axes are gone through in blocks of whole cache lines: one that is the innermost
//! in the copy, and one that is in the source. Else each line of the source would be fetched for one element.

use std::ops::Range;

use smallvec::SmallVec;

use crate::kernel::Compute;
use crate::space::goes_on;
use crate::tensor::{TensorView, TensorViewMut};
use crate::{DType, Result, ensure};

/// One axis of a copy: its length, and the bytes from one element to the next on either side.
#[derive(Clone, Copy)]
struct Axis {
    len: usize,
    from: isize,
    to: isize,
}

/// Copies every element of `from` to the same index of `to`.
///
/// # Errors
/// `InvalidArgument` when dtypes or shapes differ, and for `string`, whose text may live shorter than `to`.
pub fn copy(from: TensorView<'_>, to: &mut TensorViewMut<'_>) -> Result<()> {
    ensure!(from.dtype() != DType::String, InvalidArgument, "text is not copied with its elements");
    copy_elements(from, to, None)
}

impl Compute<'_> {
    /// Copies every element of a tensor to the same index of another one of the same dtype and shape, whatever the strides
    /// of the two, on the call's threads.
    ///
    /// # Errors
    /// As [`copy`].
    pub fn copy(&self, from: TensorView<'_>, to: &mut TensorViewMut<'_>) -> Result<()> {
        ensure!(from.dtype() != DType::String, InvalidArgument, "text is not copied with its elements");
        copy_elements(from, to, Some(self))
    }
}

impl TensorViewMut<'_> {
    /// Copies every element of a tensor of the same dtype and shape, whatever the strides of the two.
    ///
    /// # Errors
    /// As [`copy`].
    pub fn assign(&mut self, from: TensorView<'_>) -> Result<()> {
        copy(from, self)
    }
}

/// As [`copy`], for `string` too: the elements of `to` then refer to the text of `from`.
pub(crate) fn copy_elements(
    from: TensorView<'_>,
    to: &mut TensorViewMut<'_>,
    compute: Option<&Compute<'_>>,
) -> Result<()> {
    ensure!(
        from.dtype() == to.dtype(),
        InvalidArgument,
        "expected dtype {}, got {}",
        to.dtype(),
        from.dtype()
    );
    ensure!(
        from.shape() == to.shape(),
        InvalidArgument,
        "expected shape {:?}, got {:?}",
        to.shape(),
        from.shape()
    );
    let Some(copy) = Copy::new(from, to) else { return Ok(()) };
    let Some(compute) = compute else {
        // SAFETY: every index of the shape is an element of both tensors, which do not overlap: one is exclusive.
        unsafe { copy.all() };
        return Ok(());
    };
    let (axis, size) = copy.units();
    let length = copy.length(axis);
    compute.parallel_for(
        length.div_ceil(size),
        copy.bytes() / length * size / BYTES_PER_NANOSECOND,
        |units| {
            // SAFETY: as above, and each part is written by one thread.
            unsafe { copy.part(axis, units.start * size..length.min(units.end * size)).all() };
        },
    );
    Ok(())
}

/// What a thread copies in a nanosecond, roughly: less where it is transposed, more in the cache.
const BYTES_PER_NANOSECOND: usize = 4;
/// The least bytes that are a unit of the threads' work.
const UNIT: usize = 1 << 16;
/// The bytes of a line of the cache.
const LINE: usize = 64;
/// How many lines are read of each row of the source before the next rows are: each of those is on a page of its own.
const LINES: usize = 4;

/// A copy of all elements that some axes reach, of which there are some.
struct Copy {
    from: *const u8,
    to: *mut u8,
    /// The innermost of the copy is the last.
    axes: SmallVec<[Axis; 6]>,
    /// How many bytes lie one after another on both sides.
    run: usize,
    /// Which axis is the innermost of the source, if it is not the last one and elements are all that lies together.
    turned: Option<usize>,
}

// SAFETY: it is pointers to what whoever copies may read and write, each element from one thread.
unsafe impl Sync for Copy {}

impl Copy {
    /// The copy, if there is anything to copy.
    fn new(from: TensorView<'_>, to: &mut TensorViewMut<'_>) -> Option<Copy> {
        let size = from.dtype().size();
        let strides = from.strides().iter().zip(to.strides());
        let mut axes: SmallVec<[Axis; 6]> = from
            .shape()
            .iter()
            .zip(strides)
            .filter(|(len, _)| **len != 1)
            .map(|(&len, (&from, &to))| Axis { len, from: from * size as isize, to: to * size as isize })
            .collect();
        if axes.iter().any(|axis| axis.len == 0) {
            return None;
        }
        sort_by_stride(&mut axes);
        // Axes that both sides walk as if they were one are one.
        axes.dedup_by(|inner, outer| {
            let merges = goes_on(inner.len, inner.from, outer.from) && goes_on(inner.len, inner.to, outer.to);
            if merges {
                *outer = Axis { len: outer.len * inner.len, ..*inner };
            }
            merges
        });
        let mut run = size;
        if let Some(axis) = axes.last()
            && axis.from == size as isize
            && axis.to == size as isize
        {
            run *= axis.len;
            axes.pop();
        }
        let last = axes.len().saturating_sub(1);
        let moving = (0..axes.len()).filter(|&at| axes[at].from != 0);
        let innermost = moving.min_by_key(|&at| axes[at].from.unsigned_abs());
        let turned = innermost.filter(|&at| run == size && at < last && axes[last].from != 0);
        Some(Copy { from: from.data_ptr(), to: to.data_ptr(), axes, run, turned })
    }

    fn bytes(&self) -> usize {
        self.run * self.axes.iter().map(|axis| axis.len).product::<usize>()
    }

    /// The longest axis and how many places along it are a unit of work; of one run, `None` and how many bytes.
    fn units(&self) -> (Option<usize>, usize) {
        let Some(axis) = (0..self.axes.len()).max_by_key(|&axis| self.axes[axis].len) else {
            return (None, UNIT);
        };
        let len = self.axes[axis].len;
        let size = UNIT.div_ceil((self.bytes() / len).max(1));
        (Some(axis), size.next_multiple_of(LINE).min(len))
    }

    fn length(&self, axis: Option<usize>) -> usize {
        axis.map_or(self.run, |axis| self.axes[axis].len)
    }

    /// The part along an axis; of one run, that of some bytes.
    fn part(&self, axis: Option<usize>, range: Range<usize>) -> Copy {
        let (mut axes, mut run) = (self.axes.clone(), self.run);
        let (from, to) = match axis {
            Some(axis) => {
                axes[axis].len = range.len();
                (axes[axis].from, axes[axis].to)
            }
            None => {
                run = range.len();
                (1, 1)
            }
        };
        let start = range.start as isize;
        let (from, to) = (self.from.wrapping_offset(start * from), self.to.wrapping_offset(start * to));
        Copy { from, to, axes, run, turned: self.turned }
    }

    /// # Safety
    /// All elements must be readable, and writable by this thread alone.
    unsafe fn all(&self) {
        let Copy { from, to, run, .. } = *self;
        let Some((&last, outer)) = self.axes.split_last() else {
            // SAFETY: promised by the caller.
            return unsafe { to.copy_from_nonoverlapping(from, run) };
        };
        // SAFETY: promised by the caller; runs of an element's size are copied as a whole.
        unsafe {
            let Some(turned) = self.turned else {
                return match run {
                    1 => walk(from, to, outer, &|from, to| copy_axis::<1>(from, to, last)),
                    2 => walk(from, to, outer, &|from, to| copy_axis::<2>(from, to, last)),
                    4 => walk(from, to, outer, &|from, to| copy_axis::<4>(from, to, last)),
                    8 => walk(from, to, outer, &|from, to| copy_axis::<8>(from, to, last)),
                    16 => walk(from, to, outer, &|from, to| copy_axis::<16>(from, to, last)),
                    _ => walk(from, to, outer, &|from, to| copy_runs(from, to, last, run)),
                };
            };
            let mut rest: SmallVec<[Axis; 6]> = outer.into();
            let across = rest.remove(turned);
            match run {
                1 => walk(from, to, &rest, &|from, to| transpose::<1>(from, to, across, last)),
                2 => walk(from, to, &rest, &|from, to| transpose::<2>(from, to, across, last)),
                4 => walk(from, to, &rest, &|from, to| transpose::<4>(from, to, across, last)),
                8 => walk(from, to, &rest, &|from, to| transpose::<8>(from, to, across, last)),
                _ => walk(from, to, &rest, &|from, to| transpose::<16>(from, to, across, last)),
            }
        }
    }
}

/// Calls `each` for all places that some axes reach.
///
/// # Safety
/// The places must be in memory that both sides may reach.
unsafe fn walk(from: *const u8, to: *mut u8, axes: &[Axis], each: &impl Fn(*const u8, *mut u8)) {
    let Some((axis, inner)) = axes.split_first() else { return each(from, to) };
    for i in 0..axis.len as isize {
        // SAFETY: promised by the caller.
        unsafe { walk(from.offset(i * axis.from), to.offset(i * axis.to), inner, each) };
    }
}

/// # Safety
/// `SIZE` bytes must be readable and writable at every place of the axis.
unsafe fn copy_axis<const SIZE: usize>(from: *const u8, to: *mut u8, axis: Axis) {
    for i in 0..axis.len as isize {
        // SAFETY: promised by the caller; an array of bytes has no alignment.
        unsafe {
            *to.offset(i * axis.to).cast::<[u8; SIZE]>() = *from.offset(i * axis.from).cast::<[u8; SIZE]>()
        };
    }
}

/// # Safety
/// As for [`copy_axis`], with as many bytes as a run has.
unsafe fn copy_runs(from: *const u8, to: *mut u8, axis: Axis, run: usize) {
    for i in 0..axis.len as isize {
        // SAFETY: promised by the caller.
        unsafe { to.offset(i * axis.to).copy_from_nonoverlapping(from.offset(i * axis.from), run) };
    }
}

/// Copies the elements along two axes: `row` is the inner one of the source, `column` that of the copy.
///
/// # Safety
/// As for [`copy_axis`], at every place of both.
unsafe fn transpose<const SIZE: usize>(from: *const u8, to: *mut u8, row: Axis, column: Axis) {
    let side = LINE / SIZE;
    let upto = |len: usize, first: usize, count: usize| first..len.min(first + count);
    for strip in (0..row.len).step_by(LINES * side) {
        for j in (0..column.len).step_by(side) {
            for i in upto(row.len, strip, LINES * side).step_by(side) {
                for i in upto(row.len, i, side) {
                    let along = Axis { len: upto(column.len, j, side).len(), ..column };
                    // SAFETY: promised by the caller.
                    unsafe {
                        let from = from.offset(i as isize * row.from + j as isize * column.from);
                        let to = to.offset(i as isize * row.to + j as isize * column.to);
                        copy_axis::<SIZE>(from, to, along);
                    }
                }
            }
        }
    }
}

/// Largest strides of `to` first, others as they are. By insertion: there are few, and what sorts many is larger than all of
/// this file.
fn sort_by_stride(axes: &mut [Axis]) {
    for end in 1..axes.len() {
        let stride = axes[end].to.unsigned_abs();
        let at = axes[..end].iter().position(|axis| axis.to.unsigned_abs() < stride).unwrap_or(end);
        axes[at..=end].rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array3, ArrayViewD, IxDyn};
    use proptest::prelude::*;

    use std::ptr::NonNull;

    use super::*;
    use crate::kernel::Services;
    use crate::tensor::row_major_strides;
    use crate::{Device, Element, Error};

    /// Three threads, however small a unit is.
    struct Threads;

    // SAFETY: it lends no memory, and the scope ends when all ranges are done.
    unsafe impl Services for Threads {
        fn allocate_output(&self, _: usize, _: DType, _: &[usize]) -> Result<*mut u8> {
            Err(Error::internal("no outputs here"))
        }

        fn allocate_temp(&self, _: usize) -> Result<NonNull<u8>> {
            Err(Error::internal("no memory here"))
        }

        fn keep_string(&self, _: &[u8]) -> Result<NonNull<u8>> {
            Err(Error::internal("no strings here"))
        }

        fn num_threads(&self) -> usize {
            3
        }

        fn parallel_for(&self, total: usize, _: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
            std::thread::scope(|scope| {
                for unit in 0..total {
                    scope.spawn(move || body(unit..unit + 1));
                }
            });
        }
    }

    fn check<T: Element>(shape: [usize; 3], order: [usize; 3], flip: [bool; 3], fill: impl Fn(usize) -> T) {
        let data: Vec<T> = (0..shape.iter().product()).map(fill).collect();
        let mut source = Array3::from_shape_vec(shape, data).unwrap().permuted_axes(order);
        for (axis, _) in flip.iter().enumerate().filter(|(_, flip)| **flip) {
            source.invert_axis(ndarray::Axis(axis));
        }
        let dense = row_major_strides(source.shape());
        let mut copied = vec![T::default(); source.len()];
        // SAFETY: shapes and strides are those of the arrays.
        unsafe {
            let from = TensorView::from_raw_parts(
                source.as_ptr().cast(),
                T::DTYPE,
                Device::CPU,
                source.shape(),
                source.strides(),
            );
            let to = copied.as_mut_ptr().cast();
            let mut to = TensorViewMut::from_raw_parts(to, T::DTYPE, Device::CPU, source.shape(), &dense);
            copy(from, &mut to).unwrap();
            assert_eq!(
                ArrayViewD::from_shape(IxDyn(source.shape()), &copied).unwrap(),
                source.view().into_dyn()
            );
            copied.fill(T::default());
            let to = copied.as_mut_ptr().cast();
            let mut to = TensorViewMut::from_raw_parts(to, T::DTYPE, Device::CPU, source.shape(), &dense);
            Compute::new(&Threads).copy(from, &mut to).unwrap();
        }
        assert_eq!(ArrayViewD::from_shape(IxDyn(source.shape()), &copied).unwrap(), source.view().into_dyn());
    }

    proptest! {
        #[test]
        fn a_copy_has_each_element_at_its_index(
            shape in prop::array::uniform3(0usize..5),
            order in Just([0, 1, 2]).prop_shuffle(),
            flip in prop::array::uniform3(any::<bool>()),
        ) {
            check(shape, order, flip, |i| i as u8);
            check(shape, order, flip, |i| i as f32);
            check(shape, order, flip, |i| num_complex::Complex::new(i as f64, -1.0));
        }

        #[test]
        fn a_long_copy_too(
            shape in (1usize..150, 1usize..150, 1usize..4).prop_map(|(a, b, c)| [a, b, c]),
            turn in 0usize..3,
            order in Just([0, 1, 2]).prop_shuffle(),
            flip in prop::array::uniform3(any::<bool>()),
        ) {
            let shape = std::array::from_fn(|axis| shape[(axis + turn) % 3]);
            check(shape, order, flip, |i| i as u8);
            check(shape, order, flip, |i| i as u16);
            check(shape, order, flip, |i| i as f32);
            check(shape, order, flip, |i| i as f64);
        }
    }
}
