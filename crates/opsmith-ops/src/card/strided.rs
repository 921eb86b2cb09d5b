//! Tensors on a card seen in another way: dims in another order, or other dims over the same memory.

use std::ffi::c_void;
use std::marker::PhantomData;

use opsmith::Device;
use opsmith::cuda::{CudaElement, DeviceArray, DeviceView};
use opsmith::prelude::*;
use opsmith::space::{Extents, Layout, Strides, row_major_strides};

use crate::parameters::elements;

/// A tensor on a card, or a part of one, with dims of its own.
#[derive(Debug, Clone)]
pub(crate) struct Strided<'a> {
    data: *mut u8,
    device: Device,
    pub(crate) dtype: DType,
    pub(crate) shape: Extents,
    strides: Strides,
    memory: PhantomData<&'a u8>,
}

impl<'a> Strided<'a> {
    /// An input.
    pub(crate) fn of(tensor: TensorView<'a>) -> Strided<'a> {
        Strided {
            data: tensor.data_ptr().cast_mut(),
            device: tensor.device(),
            dtype: tensor.dtype(),
            shape: tensor.shape().into(),
            strides: tensor.strides().into(),
            memory: PhantomData,
        }
    }

    /// Dense memory of an output, or of the call's.
    fn dense(data: *mut u8, device: Device, dtype: DType, shape: &[usize]) -> Strided<'a> {
        let strides = row_major_strides(shape);
        Strided { data, device, dtype, shape: shape.into(), strides, memory: PhantomData }
    }

    /// An output.
    pub(crate) fn output(tensor: &TensorViewMut<'a>) -> Strided<'a> {
        Strided::dense(tensor.data_ptr(), tensor.device(), tensor.dtype(), tensor.shape())
    }

    /// Memory of the call, which nothing has been written to.
    pub(crate) fn temp(
        context: &'a OpKernelContext<'_>,
        dtype: DType,
        shape: &[usize],
    ) -> Result<Strided<'a>> {
        let count = elements(shape).ok_or_else(|| {
            Error::resource_exhausted(format!("a temporary of shape {shape:?} is too large"))
        })?;
        let data = context.device_temp((count * dtype.size()).max(1))?.as_ptr();
        Ok(Strided::dense(data, context.device(), dtype, shape))
    }

    /// Other dims over the same memory.
    pub(crate) fn with(&self, dims: impl Iterator<Item = (usize, isize)>) -> Strided<'a> {
        let (shape, strides) = dims.unzip();
        Strided { shape, strides, ..*self }
    }

    /// With each matrix transposed; there are two dims at least.
    pub(crate) fn transposed(&self) -> Strided<'a> {
        let (mut turned, rank) = (self.clone(), self.shape.len());
        turned.shape.swap(rank - 2, rank - 1);
        turned.strides.swap(rank - 2, rank - 1);
        turned
    }

    /// How many elements it has.
    pub(crate) fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// A dim's size and stride, which is 0 where it leads nowhere: frameworks leave anything there.
    pub(crate) fn dim(&self, at: usize) -> (usize, isize) {
        (self.shape[at], if self.shape[at] > 1 { self.strides[at] } else { 0 })
    }

    /// The dims and strides.
    pub(crate) fn layout(&self) -> Layout<'_> {
        Layout { shape: &self.shape, strides: &self.strides }
    }

    /// The address of the element at index 0 of every dim.
    pub(crate) fn data(&self) -> *mut u8 {
        self.data
    }

    /// The same, as kernels are given it.
    pub(crate) fn address(&self) -> *const c_void {
        self.data.cast_const().cast()
    }

    /// The tensor as products take it.
    pub(crate) fn array<T: CudaElement>(&self) -> Result<DeviceArray<'_, T>> {
        let (data, shape, strides) = (self.data.cast_const(), &self.shape[..], &self.strides[..]);
        // SAFETY: the elements are where the tensor that this was made of has its own, on the same card; nobody reads them here.
        let view = unsafe { TensorView::from_raw_parts(data, self.dtype, self.device, shape, strides) };
        Ok(DeviceView::<T>::new(view)?.array())
    }
}
