//! Tensors on a card seen in another way: dims in another order, parts of them, other dims over the same memory.

use std::marker::PhantomData;
use std::ops::Range;

use opsmith_core::tensor::{Extents, Strides, row_major_strides};
use opsmith_core::{Error, Result, ensure};

use crate::view::{CudaElement, DeviceLayout, DeviceTensor, DeviceView, DeviceViewMut};

/// A tensor on a card, or a part of one, with dims of its own: what products take, and any kernel.
///
/// ```no_run
/// # use opsmith_core::Result;
/// # use opsmith_cuda::{CudaCall, DeviceView, DeviceViewMut};
/// # fn layer(call: &CudaCall, x: DeviceView<f32>, weights: DeviceView<f32>, y: DeviceViewMut<f32>) -> Result<()> {
/// // y = x · weightsᵀ
/// call.gemm(1.0, &x.array(), &weights.array().t()?, 0.0, &y.array())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct DeviceArray<'a, T> {
    data: *mut T,
    shape: Extents,
    strides: Strides,
    memory: PhantomData<&'a T>,
}

impl<'a, T: CudaElement> DeviceArray<'a, T> {
    /// A dense, row-major array of this shape that begins at an address.
    pub(crate) fn dense(data: *mut T, shape: &[usize]) -> DeviceArray<'a, T> {
        DeviceArray { data, shape: shape.into(), strides: row_major_strides(shape), memory: PhantomData }
    }

    fn of(tensor: &dyn DeviceTensor) -> DeviceArray<'a, T> {
        let DeviceLayout { data, shape, strides } = tensor.layout();
        DeviceArray { data: data.cast(), shape: shape.into(), strides: strides.into(), memory: PhantomData }
    }

    /// The dims.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// With the last two dims in the other order: each matrix transposed.
    ///
    /// # Errors
    /// `InvalidArgument` when there are fewer than two dims.
    pub fn t(mut self) -> Result<DeviceArray<'a, T>> {
        let rank = self.shape.len();
        ensure!(
            rank >= 2,
            InvalidArgument,
            "expected rank 2 or more, got rank {rank} (shape {:?})",
            self.shape
        );
        self.shape.swap(rank - 2, rank - 1);
        self.strides.swap(rank - 2, rank - 1);
        Ok(self)
    }

    /// The part along a dim that has these positions.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such dim, or it is shorter.
    pub fn part(mut self, dim: usize, range: Range<usize>) -> Result<DeviceArray<'a, T>> {
        let Range { start, end } = range;
        if !self.shape.get(dim).is_some_and(|&size| start <= end && end <= size) {
            return Err(Error::invalid_argument(format!(
                "there is no part {start}..{end} along dim {dim} of shape {:?}",
                self.shape
            )));
        }
        if end > start {
            self.data = self.data.wrapping_offset(start as isize * self.strides[dim]);
        }
        self.shape[dim] = end - start;
        Ok(self)
    }
}

impl<T: CudaElement> DeviceTensor for DeviceArray<'_, T> {
    fn layout(&self) -> DeviceLayout<'_> {
        DeviceLayout { data: self.data.cast(), shape: &self.shape, strides: &self.strides }
    }
}

impl<'a, T: CudaElement> DeviceView<'a, T> {
    /// The tensor as an array, to be seen in another way.
    pub fn array(&self) -> DeviceArray<'a, T> {
        DeviceArray::of(self)
    }
}

impl<T: CudaElement> DeviceViewMut<'_, T> {
    /// The tensor as an array, to be seen in another way.
    pub fn array(&self) -> DeviceArray<'_, T> {
        DeviceArray::of(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_transposes_stay_where_they_are() {
        let base = 4096 as *mut f32;
        let array = || DeviceArray::dense(base, &[2, 3, 4]);
        let turned = array().t().unwrap();
        assert_eq!((turned.shape(), turned.layout().strides), (&[2, 4, 3][..], &[12, 1, 4][..]));
        let part = array().part(1, 1..3).unwrap().part(2, 2..3).unwrap();
        assert_eq!((part.shape(), part.layout().strides), (&[2, 2, 1][..], &[12, 4, 1][..]));
        assert_eq!(part.layout().data as usize, 4096 + 4 * (4 + 2));
        let none = array().part(0, 2..2).unwrap();
        assert_eq!((none.shape(), none.layout().data as usize), (&[0, 3, 4][..], 4096));
        let error = array().part(1, 2..4).unwrap_err();
        assert_eq!(error.message(), "there is no part 2..4 along dim 1 of shape [2, 3, 4]");
        assert!(DeviceArray::dense(base, &[3]).t().unwrap_err().message().contains("got rank 1"));
    }
}
