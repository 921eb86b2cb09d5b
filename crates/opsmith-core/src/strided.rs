//! Copies between tensors of the same dtype and shape, whatever their strides.

use smallvec::SmallVec;

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
    copy_elements(from, to)
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
pub(crate) fn copy_elements(from: TensorView<'_>, to: &mut TensorViewMut<'_>) -> Result<()> {
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
        return Ok(());
    }
    // The innermost axis that both sides walk densely makes runs that are copied whole.
    let mut run = size;
    while let Some(axis) = axes.last()
        && axis.from == run as isize
        && axis.to == run as isize
    {
        run *= axis.len;
        axes.pop();
    }
    // SAFETY: every index of the shape is an element of both tensors, which do not overlap: one is exclusive.
    unsafe { copy_axes(from.data_ptr(), to.data_ptr(), &axes, run) };
    Ok(())
}

/// # Safety
/// `run` bytes must be readable and writable at every index that the axes reach.
unsafe fn copy_axes(from: *const u8, to: *mut u8, axes: &[Axis], run: usize) {
    let Some((axis, inner)) = axes.split_first() else {
        // SAFETY: promised by the caller.
        return unsafe { to.copy_from_nonoverlapping(from, run) };
    };
    if inner.is_empty() {
        // SAFETY: promised by the caller; runs of an element's size are copied as a whole.
        return unsafe {
            match run {
                1 => copy_axis::<1>(from, to, *axis),
                2 => copy_axis::<2>(from, to, *axis),
                4 => copy_axis::<4>(from, to, *axis),
                8 => copy_axis::<8>(from, to, *axis),
                16 => copy_axis::<16>(from, to, *axis),
                _ => (0..axis.len as isize).for_each(|i| {
                    to.offset(i * axis.to).copy_from_nonoverlapping(from.offset(i * axis.from), run);
                }),
            }
        };
    }
    for i in 0..axis.len as isize {
        // SAFETY: promised by the caller.
        unsafe { copy_axes(from.offset(i * axis.from), to.offset(i * axis.to), inner, run) };
    }
}

/// # Safety
/// As for `copy_axes`, with a run of `SIZE` bytes.
unsafe fn copy_axis<const SIZE: usize>(from: *const u8, to: *mut u8, axis: Axis) {
    for i in 0..axis.len as isize {
        // SAFETY: promised by the caller; an array of bytes has no alignment.
        unsafe {
            *to.offset(i * axis.to).cast::<[u8; SIZE]>() = *from.offset(i * axis.from).cast::<[u8; SIZE]>()
        };
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array3, ArrayViewD, IxDyn};
    use proptest::prelude::*;

    use super::*;
    use crate::tensor::row_major_strides;
    use crate::{Device, Element};

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
    }
}
