//! Tensors that look at the memory of others: parts, transposes, other shapes; and the elements as plain Rust values.

use opsmith_core::dtype::ToHalf;
use opsmith_core::tensor::{Strides, checked_num_elements, row_major_strides};
use opsmith_core::{DType, Device, Element, Result, bail, ensure};

use super::Tensor;

impl Tensor {
    /// A tensor of rank 0.
    ///
    /// # Errors
    /// `ResourceExhausted` when the memory cannot be had.
    pub fn scalar<T: Element>(value: T) -> Result<Tensor> {
        Tensor::from_slice(&[value], &[])
    }

    /// A tensor of rank 0 of a float dtype, with the number nearest to `value`.
    ///
    /// # Errors
    /// `Unimplemented` for a dtype that is no float; `ResourceExhausted` when the memory cannot be had.
    pub fn scalar_of(dtype: DType, value: f64) -> Result<Tensor> {
        match dtype {
            DType::Float64 => Tensor::scalar(value),
            DType::Float32 => Tensor::scalar(value as f32),
            DType::Float16 => Tensor::scalar(value.to_f16()),
            DType::BFloat16 => Tensor::scalar(value.to_bf16()),
            other => bail!(Unimplemented, "a number as a tensor has to be a float, not {other}"),
        }
    }

    /// Whether the elements lie row-major without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.num_elements() == 0 || opsmith_core::tensor::is_row_major(self.shape(), self.strides())
    }

    /// This tensor, copied unless its elements lie row-major without gaps.
    ///
    /// # Errors
    /// `ResourceExhausted` when there is no memory for the copy; `InvalidArgument` for strings, which are not copied.
    pub fn to_contiguous(&self) -> Result<Tensor> {
        if self.is_contiguous() { Ok(self.clone()) } else { self.to_dense() }
    }

    /// This tensor in memory of our own: a copy where the memory is somebody else's.
    ///
    /// # Errors
    /// `ResourceExhausted` when there is no memory for the copy.
    pub fn into_own(self) -> Result<Tensor> {
        // Strings are never lent: they were copied when the tensor was made.
        if self.is_own() || self.dtype() == DType::String { Ok(self) } else { self.to_dense() }
    }

    /// The elements, row-major.
    ///
    /// # Errors
    /// `InvalidArgument` when the dtype is not `T`; `ResourceExhausted` without memory.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        Ok(self.view::<T, ndarray::IxDyn>()?.iter().copied().collect())
    }

    /// The same elements in another shape; of a tensor with gaps, a copy.
    ///
    /// # Errors
    /// `InvalidArgument` when the shape has another number of elements.
    pub fn reshape(&self, shape: &[usize]) -> Result<Tensor> {
        ensure!(
            checked_num_elements(shape) == Some(self.num_elements()),
            InvalidArgument,
            "a tensor of shape {:?} cannot have the shape {shape:?}, which has another number of elements",
            self.shape()
        );
        let mut tensor = self.to_contiguous()?;
        tensor.strides = row_major_strides(shape);
        tensor.shape = shape.into();
        Ok(tensor)
    }

    /// The same memory with the dims in the order of `permutation`.
    ///
    /// # Errors
    /// `InvalidArgument` when `permutation` does not name each dim once.
    pub fn transpose(&self, permutation: &[usize]) -> Result<Tensor> {
        let mut sorted = permutation.to_vec();
        sorted.sort_unstable();
        ensure!(
            sorted.iter().copied().eq(0..self.shape().len()),
            InvalidArgument,
            "{permutation:?} is no order of the dims of a tensor of shape {:?}",
            self.shape()
        );
        let mut tensor = self.clone();
        tensor.shape = permutation.iter().map(|&dim| self.shape[dim]).collect();
        tensor.strides = permutation.iter().map(|&dim| self.strides[dim]).collect::<Strides>();
        Ok(tensor)
    }

    /// The same memory, of dim `dim` only `begin..end`.
    ///
    /// # Errors
    /// `OutOfRange` when there is no such dim or range.
    pub fn slice(&self, dim: usize, begin: usize, end: usize) -> Result<Tensor> {
        ensure!(
            dim < self.shape().len() && begin <= end && end <= self.shape()[dim],
            OutOfRange,
            "there is no range {begin}..{end} in dim {dim} of a tensor of shape {:?}",
            self.shape()
        );
        let mut tensor = self.clone();
        tensor.shape[dim] = end - begin;
        if begin < end {
            let offset = self.strides[dim] * begin as isize * self.dtype().size() as isize;
            // SAFETY: element `begin` of the dim is one of the tensor's, so within its memory.
            tensor.data = unsafe { self.data.offset(offset) };
        }
        Ok(tensor)
    }

    /// The bytes of a tensor in host memory that lies row-major without gaps.
    pub(crate) fn bytes(&self) -> &[u8] {
        debug_assert!(self.is_contiguous() && self.device() == Device::CPU);
        // SAFETY: `num_elements` elements lie one after the other from `data` on, and `&self` keeps them.
        unsafe { std::slice::from_raw_parts(self.data, self.num_elements() * self.dtype().size()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_share_memory_and_copies_do_not() {
        let tensor = Tensor::from_slice(&[1i32, 2, 3, 4, 5, 6], &[2, 3]).unwrap();
        let turned = tensor.transpose(&[1, 0]).unwrap();
        assert_eq!((turned.shape(), turned.is_contiguous()), (&[3, 2][..], false));
        assert_eq!(turned.to_vec::<i32>().unwrap(), [1, 4, 2, 5, 3, 6]);
        let part = turned.slice(0, 1, 3).unwrap().slice(1, 1, 2).unwrap();
        assert_eq!(part.to_vec::<i32>().unwrap(), [5, 6]);
        assert_eq!(part.reshape(&[2]).unwrap().to_vec::<i32>().unwrap(), [5, 6]);
        assert_eq!(tensor.slice(0, 1, 2).unwrap().bytes().as_ptr(), tensor.bytes()[12..].as_ptr());
        assert_eq!(tensor.reshape(&[3, 2]).unwrap().bytes().as_ptr(), tensor.bytes().as_ptr());
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let tensor = Tensor::from_slice(&[1f32, 2., 3.], &[3]).unwrap();
        assert!(tensor.reshape(&[2]).unwrap_err().message().contains("another number of elements"));
        assert!(tensor.transpose(&[1]).is_err() && tensor.transpose(&[0, 0]).is_err());
        assert!(tensor.slice(0, 2, 4).is_err() && tensor.slice(1, 0, 0).is_err());
        assert!(tensor.slice(0, 3, 3).unwrap().to_vec::<f32>().unwrap().is_empty());
        assert!(tensor.to_vec::<f64>().is_err());
    }
}
