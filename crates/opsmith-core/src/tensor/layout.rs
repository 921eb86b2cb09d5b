//! How elements lie in memory: sizes, strides, addresses.

use ndarray::Dimension;
use smallvec::SmallVec;

use super::Strides;
use crate::{DType, Device, DeviceKind, Element, Error, Result, bail, ensure};

/// The most dims that a tensor has: those of TensorFlow, whose tensors have the most. A vector that holds a shape, or a number for
/// each dim, is not longer.
pub const MAX_RANK: usize = 254;

/// The number of elements of a shape, or `None` where it does not fit a pointer's offset.
#[inline]
pub fn checked_num_elements(shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim)).filter(|&n| n <= isize::MAX as usize)
}

/// Row-major strides of a shape, in elements.
#[inline]
pub fn row_major_strides(shape: &[usize]) -> Strides {
    let mut strides: Strides = match shape.len() {
        rank @ ..=6 => SmallVec::from_buf_and_len([1; 6], rank),
        rank => SmallVec::from_elem(1, rank),
    };
    let mut stride = 1isize;
    for (its, &dim) in strides.iter_mut().zip(shape).rev() {
        *its = stride;
        stride = stride.wrapping_mul(dim.max(1) as isize);
    }
    strides
}

/// Whether elements lie row-major without gaps. Strides of dims of size 1 do not matter.
#[inline]
pub fn is_row_major(shape: &[usize], strides: &[isize]) -> bool {
    let mut expected = 1isize;
    for (&dim, &stride) in shape.iter().zip(strides).rev() {
        if dim == 0 {
            return true;
        }
        if dim != 1 {
            if stride != expected {
                return false;
            }
            expected *= dim as isize;
        }
    }
    true
}

/// How `ndarray` is to see foreign memory: it wants non-negative strides from the lowest address.
pub(super) struct Layout<D> {
    pub(super) strides: D,
    pub(super) offset: isize,
    /// Bit `i` is set when axis `i` runs backwards. No framework has more than 64 dims.
    pub(super) inverted: u64,
}

#[inline]
pub(super) fn check_typed(expected: DType, dtype: DType, device: Device) -> Result<()> {
    if expected == dtype && device.kind == DeviceKind::Cpu {
        return Ok(());
    }
    Err(not_typed(expected, dtype, device))
}

/// What is wrong with a tensor for a view of `expected`. Not a part of what asks, of which there is one for each type.
#[cold]
#[inline(never)]
fn not_typed(expected: DType, dtype: DType, device: Device) -> Error {
    if expected == dtype {
        let kind = device.kind;
        return Error::invalid_argument(format!("expected a tensor in host memory, got one on {kind}"));
    }
    Error::invalid_argument(format!("expected dtype {expected}, got {dtype}"))
}

/// That elements do not lie row-major without gaps.
#[cold]
#[inline(never)]
pub(super) fn not_contiguous(strides: &[isize]) -> Error {
    Error::invalid_argument(format!("expected a contiguous tensor, got strides {strides:?}"))
}

/// Checks that a shape is one that `ndarray` can have, with `rank` dims unless any number will do.
pub(crate) fn check_shape(shape: &[usize], rank: Option<usize>) -> Result<()> {
    ensure!(shape.len() <= 64, InvalidArgument, "expected at most 64 dims, got {}", shape.len());
    // An expanded tensor may claim more elements than memory could hold, and `ndarray` counts on that not being so.
    let dims = shape.iter().filter(|dim| **dim != 0);
    let count = dims.fold(1usize, |count, &dim| count.saturating_mul(dim));
    ensure!(count <= isize::MAX as usize, InvalidArgument, "expected fewer elements, got shape {shape:?}");
    if let Some(rank) = rank
        && rank != shape.len()
    {
        bail!(InvalidArgument, "expected rank {rank}, got rank {} (shape {shape:?})", shape.len());
    }
    Ok(())
}

#[inline]
pub(super) fn typed_layout<T: Element, D: Dimension>(
    dtype: DType,
    device: Device,
    shape: &[usize],
    strides: &[isize],
) -> Result<(D, Layout<D>)> {
    check_typed(T::DTYPE, dtype, device)?;
    check_shape(shape, D::NDIM)?;
    let mut dim = D::zeros(shape.len());
    let mut layout = Layout { strides: D::zeros(shape.len()), offset: 0, inverted: 0 };
    let is_empty = shape.contains(&0);
    for (axis, (&size, &stride)) in shape.iter().zip(strides).enumerate() {
        dim.slice_mut()[axis] = size;
        if is_empty {
            // Those of a tensor without elements may be anything, and `ndarray` takes some for elements that overlap: it looks at
            // the least stride first.
            layout.strides.slice_mut()[axis] = usize::from(size != 0);
            continue;
        }
        if stride < 0 && size > 1 {
            layout.offset += stride * (size as isize - 1);
            layout.inverted |= 1 << axis;
        }
        // The stride of a dim of size 0 or 1 is never used; frameworks leave anything there.
        layout.strides.slice_mut()[axis] = if size > 1 { stride.unsigned_abs() } else { 0 };
    }
    Ok((dim, layout))
}

/// How `ndarray` is to see dense memory of a shape that has been seen before; nothing if dtype or rank are others.
#[inline]
pub(crate) fn dense_shape<T: Element, D: Dimension>(
    dtype: Option<DType>,
    shape: &[usize],
    data: *mut u8,
) -> Option<(D, *mut T)> {
    if dtype != Some(T::DTYPE) || D::NDIM.is_some_and(|rank| rank != shape.len()) {
        return None;
    }
    let mut dims = D::zeros(shape.len());
    dims.slice_mut().copy_from_slice(shape);
    Some((dims, anchor(data, shape, 0)))
}

/// The typed address `offset` elements from `data`; well aligned and not null even for an empty tensor.
#[inline]
pub(super) fn anchor<T>(data: *mut u8, shape: &[usize], offset: isize) -> *mut T {
    if shape.contains(&0) {
        return std::ptr::NonNull::dangling().as_ptr();
    }
    // SAFETY: the element at `offset` is one that shape and strides reach, so it is in the same allocation.
    unsafe { data.cast::<T>().offset(offset) }
}

pub(super) fn byte_range(
    data: usize,
    dtype: DType,
    shape: &[usize],
    strides: &[isize],
) -> std::ops::Range<usize> {
    if shape.contains(&0) {
        return data..data;
    }
    let (mut low, mut high) = (0isize, 0isize);
    for (&dim, &stride) in shape.iter().zip(strides) {
        let reach = stride * (dim as isize - 1);
        if reach < 0 { low += reach } else { high += reach }
    }
    let size = dtype.size() as isize;
    data.wrapping_add_signed(low * size)..data.wrapping_add_signed((high + 1) * size)
}

/// Whether two indices may reach the same element. No stride may be within what the smaller ones reach together.
pub(super) fn may_overlap_itself(shape: &[usize], strides: &[isize]) -> bool {
    if shape.contains(&0) {
        return false;
    }
    let axes = || shape.iter().zip(strides).map(|(&dim, stride)| (stride.unsigned_abs(), dim)).enumerate();
    axes().filter(|(_, (_, dim))| *dim > 1).any(|(at, (stride, _))| {
        let smaller = axes().filter(|&(other, (its_stride, _))| (its_stride, other) < (stride, at));
        let reach = smaller.fold(0usize, |reach, (_, (its_stride, dim))| {
            reach.saturating_add(its_stride.saturating_mul(dim - 1))
        });
        stride <= reach
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_do_not_overlap_themselves_and_windows_do() {
        for (shape, strides) in [
            (&[3, 4][..], &[4, 1][..]),
            (&[4, 3], &[1, 4]),
            (&[2, 2], &[-8, 2]),
            (&[5], &[-1]),
            (&[1, 3], &[0, 1]),
            (&[0, 3], &[0, 0]),
            (&[], &[]),
        ] {
            assert!(!may_overlap_itself(shape, strides), "{shape:?} {strides:?}");
        }
        for (shape, strides) in
            [(&[3][..], &[0][..]), (&[4, 4], &[1, 1]), (&[2, 4], &[-3, 1]), (&[2, 2, 2], &[3, 2, 1])]
        {
            assert!(may_overlap_itself(shape, strides), "{shape:?} {strides:?}");
        }
    }

    #[test]
    fn contiguity_ignores_dims_of_size_one() {
        assert!(is_row_major(&[2, 1, 3], &[3, 77, 1]));
        assert!(!is_row_major(&[2, 3], &[1, 2]));
        assert!(is_row_major(&[], &[]));
        assert_eq!(row_major_strides(&[2, 3, 4]).as_slice(), &[12, 4, 1]);
        assert_eq!(checked_num_elements(&[usize::MAX, 2]), None);
        assert_eq!(checked_num_elements(&[usize::MAX, 0]), Some(0));
    }
}
