//! What nodes of graphs have in common, of TensorFlow's and of ONNX Runtime's: their tensors are dense and in host memory.

use std::ffi::c_void;

use opsmith_core::tensor::{Extents, Strides, row_major_strides};
use opsmith_core::{DType, Device, TensorView, panic};
use smallvec::SmallVec;

/// An input of a call where it lies.
pub(crate) struct Input {
    dtype: DType,
    data: *const u8,
    shape: Extents,
    strides: Strides,
}

impl Input {
    /// The input whose elements are at `data`.
    pub(crate) fn new(dtype: DType, data: *const u8, shape: Extents) -> Input {
        Input { dtype, data, strides: row_major_strides(&shape), shape }
    }
}

/// The tensors of a call of a node with these dtypes, none for one that is absent; the others are `present`.
///
/// # Safety
/// The elements of the inputs must be there for `'a`. What is not aligned the plan copies.
pub(crate) unsafe fn views<'a>(
    dtypes: &[Option<DType>],
    present: &'a [Input],
) -> SmallVec<[Option<TensorView<'a>>; 8]> {
    let mut present = present.iter();
    let view = |dtype: &Option<DType>| {
        let Input { dtype, data, shape, strides } = dtype.and_then(|_| present.next())?;
        // SAFETY: promised by the caller; the elements are dense and row-major.
        Some(unsafe { TensorView::from_raw_parts(*data, *dtype, Device::CPU, shape, strides) })
    };
    dtypes.iter().map(view).collect()
}

/// Tensors without elements of these dtypes, of which a plan can be made.
pub(crate) fn stand_ins(dtypes: &[Option<DType>]) -> Vec<Option<TensorView<'static>>> {
    let stand_in = |dtype: &Option<DType>| {
        // SAFETY: there are no elements.
        dtype.map(|dtype| unsafe {
            TensorView::from_raw_parts(std::ptr::null(), dtype, Device::CPU, &[0], &[1])
        })
    };
    dtypes.iter().map(stand_in).collect()
}

/// Lets go of a node, or of nothing where `kernel` is null.
///
/// # Safety
/// `kernel` must be a box of `N` that nobody uses any more.
pub(crate) unsafe fn delete<N>(kernel: *mut c_void) {
    if !kernel.is_null() {
        // SAFETY: promised by the caller.
        let node = unsafe { Box::from_raw(kernel.cast::<N>()) };
        // A panic in the drop of an author's kernel ends here, and there is nobody to tell.
        let _ = panic::catch(|| {
            drop(node);
            Ok(())
        });
    }
}
