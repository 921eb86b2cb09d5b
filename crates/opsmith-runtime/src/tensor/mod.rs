//! The engine's tensors: a dtype, a shape, strides and a shared buffer, copied when written while shared.

mod dlpack;
mod place;
mod print;
mod views;

use std::fmt;
use std::sync::Arc;

use ndarray::{Array, ArrayView, ArrayViewMut, Dimension};
use opsmith_core::tensor::{Extents, StrRef, Strides, checked_num_elements, row_major_strides};
use opsmith_core::{DType, Device, Element, Error, Result, TensorView, TensorViewMut, ensure, memory};

use crate::buffer::{Block, Buffer};
use crate::memory::Owner;

/// A tensor on a device: in host memory, or on a card. Cloning shares the memory; writing to a shared tensor copies it
/// first. What is on a card is not changed, and its elements are looked at after [`to`](Tensor::to)`(Device::CPU)`.
///
/// A `string` tensor holds byte strings; make one with [`Tensor::from_strings`].
#[derive(Clone)]
pub struct Tensor {
    buffer: Buffer,
    data: *mut u8,
    dtype: DType,
    shape: Extents,
    strides: Strides,
}

// SAFETY: the buffer can be sent and shared, and its memory is written through `&mut Tensor` only, when nobody shares it.
unsafe impl Send for Tensor {}
// SAFETY: as above.
unsafe impl Sync for Tensor {}

impl Tensor {
    /// A tensor of zeros (empty strings, `false`).
    ///
    /// # Errors
    /// `ResourceExhausted` when the memory cannot be had.
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Tensor> {
        let block = Block::zeroed(byte_size(dtype, shape)?)?;
        Ok(Tensor::own(block, dtype, shape))
    }

    /// A tensor with these elements, row-major.
    ///
    /// # Errors
    /// `InvalidArgument` when the shape does not have as many elements; `ResourceExhausted` without memory.
    pub fn from_slice<T: Element>(elements: &[T], shape: &[usize]) -> Result<Tensor> {
        check_count(elements.len(), shape)?;
        let block = Block::new(size_of_val(elements))?;
        // SAFETY: the block is new and has room for all elements.
        unsafe {
            std::ptr::copy_nonoverlapping(elements.as_ptr().cast(), block.as_ptr(), size_of_val(elements))
        };
        Ok(Tensor::own(block, T::DTYPE, shape))
    }

    /// A `string` tensor with copies of these byte strings, row-major.
    ///
    /// # Errors
    /// `InvalidArgument` when the shape does not have as many elements; `ResourceExhausted` without memory.
    pub fn from_strings<S: AsRef<[u8]>>(elements: &[S], shape: &[usize]) -> Result<Tensor> {
        check_count(elements.len(), shape)?;
        const TEXT: &str = "a tensor of text";
        let text = elements.iter().map(|element| memory::copied(element.as_ref(), TEXT));
        let text: Vec<Vec<u8>> = memory::try_collected(text, TEXT)?;
        let refs = text.iter().map(|bytes| StrRef { data: bytes.as_ptr(), len: bytes.len() });
        let refs = memory::collected(refs, TEXT)?;
        let strings = Arc::new(Strings { refs, _text: text });
        let data = strings.refs.as_ptr().cast::<u8>();
        // SAFETY: `refs` is a dense array of the elements, and with the text that they point to it lives as long as
        // its owner; nothing writes to either.
        Ok(unsafe { Tensor::from_foreign(strings, data, DType::String, shape, &row_major_strides(shape)) })
    }

    /// A tensor over memory of somebody else's, with no copy. `strides` are in elements. `owner` is kept until the last
    /// tensor that uses the memory is gone.
    ///
    /// # Safety
    /// While `owner` lives, every element that `shape` and `strides` reach from `data` must be readable, aligned for
    /// and a valid value of `dtype`, and not written by anybody while this tensor or one that shares its memory is
    /// read. `shape` and `strides` must be equally long.
    pub unsafe fn from_foreign(
        owner: Owner,
        data: *const u8,
        dtype: DType,
        shape: &[usize],
        strides: &[isize],
    ) -> Tensor {
        debug_assert_eq!(shape.len(), strides.len());
        Tensor {
            buffer: Buffer::Foreign(owner),
            data: data.cast_mut(),
            dtype,
            shape: shape.into(),
            strides: strides.into(),
        }
    }

    /// A dense tensor in a block of its own, whose elements are initialised before anybody reads them.
    pub(crate) fn own(block: Block, dtype: DType, shape: &[usize]) -> Tensor {
        let data = block.as_ptr();
        let buffer = Buffer::Own(Arc::new(block));
        Tensor { buffer, data, dtype, shape: shape.into(), strides: row_major_strides(shape) }
    }

    /// Keeps what the elements point to for as long as the memory: the text of strings.
    pub(crate) fn keep(&mut self, owner: Owner) {
        self.buffer = Buffer::Foreign(Arc::new((self.buffer.clone(), owner)));
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dims.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The strides, in elements.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// The number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// How many bytes its elements have, the text of strings aside.
    pub(crate) fn num_bytes(&self) -> usize {
        self.num_elements() * self.dtype.size()
    }

    /// The tensor as an op sees it.
    pub fn as_view(&self) -> TensorView<'_> {
        // SAFETY: whoever made the tensor promised valid elements while the buffer lives, and `&self` keeps it. On
        // a device kernels wrote them, or will have before others on the stream read them.
        unsafe {
            TensorView::from_raw_parts(self.data, self.dtype, self.device(), &self.shape, &self.strides)
        }
    }

    /// The elements as an `ndarray` view, with no copy.
    ///
    /// # Errors
    /// `InvalidArgument` when the dtype is not `T`, or the rank is not that of `D`.
    pub fn view<T: Element, D: Dimension>(&self) -> Result<ArrayView<'_, T, D>> {
        self.as_view().view()
    }

    /// The elements as a mutable `ndarray` view; copies them first if their memory is shared or foreign.
    ///
    /// # Errors
    /// `InvalidArgument` when the dtype is not `T`, or the rank is not that of `D`; `ResourceExhausted` when there is
    /// no memory for the copy.
    pub fn view_mut<T: Element, D: Dimension>(&mut self) -> Result<ArrayViewMut<'_, T, D>> {
        self.as_view_mut()?.into_view()
    }

    /// The tensor to write; copies it first if its memory is shared or foreign. The text of a `string` tensor cannot be
    /// changed in place.
    ///
    /// # Errors
    /// `InvalidArgument` for a `string` tensor, `ResourceExhausted` when there is no memory for the copy.
    pub fn as_view_mut(&mut self) -> Result<TensorViewMut<'_>> {
        ensure!(self.dtype != DType::String, InvalidArgument, "a string tensor cannot be changed in place");
        self.check_host()?;
        if !self.is_exclusive() {
            *self = self.to_dense()?;
        }
        // SAFETY: nobody shares the block, the borrow is exclusive, and no two indices of one of our own tensors, which
        // are dense or parts or transposes of dense ones, have the same element.
        Ok(unsafe {
            TensorViewMut::from_raw_parts(self.data, self.dtype, Device::CPU, &self.shape, &self.strides)
        })
    }

    /// The byte strings of a `string` tensor, row-major.
    ///
    /// # Errors
    /// `InvalidArgument` when the dtype is not `string` or the elements do not lie row-major without gaps.
    pub fn strings(&self) -> Result<Vec<&[u8]>> {
        self.as_view().strings()
    }

    /// Whether the memory is our own and no other tensor's.
    fn is_exclusive(&mut self) -> bool {
        match &mut self.buffer {
            Buffer::Own(block) => Arc::get_mut(block).is_some(),
            Buffer::Foreign(_) | Buffer::Device(_) => false,
        }
    }

    /// Whether the memory is our own, and nobody else writes to it.
    pub(crate) fn is_own(&self) -> bool {
        !matches!(self.buffer, Buffer::Foreign(_))
    }

    /// A copy in a block of its own.
    pub(crate) fn to_dense(&self) -> Result<Tensor> {
        self.check_host()?;
        let block = Block::new(byte_size(self.dtype, &self.shape)?)?;
        let dense = Tensor::own(block, self.dtype, &self.shape);
        // SAFETY: the block is new, so nobody else reaches it, and it has room for every element.
        let mut to = unsafe {
            TensorViewMut::from_raw_parts(dense.data, dense.dtype, Device::CPU, &dense.shape, &dense.strides)
        };
        opsmith_core::strided::copy(self.as_view(), &mut to)?;
        Ok(dense)
    }
}

/// The elements of a `string` tensor and the text that they point to.
struct Strings {
    refs: Vec<StrRef>,
    _text: Vec<Vec<u8>>,
}

// SAFETY: the pointers in `refs` go to `_text`, which nothing writes.
unsafe impl Send for Strings {}
// SAFETY: as above.
unsafe impl Sync for Strings {}

impl<T: Element, D: Dimension + 'static> From<Array<T, D>> for Tensor {
    /// Takes the array over with no copy, whatever its strides.
    fn from(array: Array<T, D>) -> Tensor {
        let (shape, strides) = (Extents::from(array.shape()), Strides::from(array.strides()));
        let data = array.as_ptr().cast();
        // SAFETY: moving the array does not move its elements; the owner keeps them, and nothing writes to them.
        unsafe { Tensor::from_foreign(Arc::new(array), data, T::DTYPE, &shape, &strides) }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({}{:?}", self.dtype, self.shape())?;
        match self.device() {
            Device::CPU => f.write_str(")"),
            device => write!(f, " on {device})"),
        }
    }
}

/// The bytes of a dense tensor.
///
/// # Errors
/// `ResourceExhausted` when they cannot be addressed.
pub(crate) fn byte_size(dtype: DType, shape: &[usize]) -> Result<usize> {
    checked_num_elements(shape)
        .and_then(|count| count.checked_mul(dtype.size()))
        .ok_or_else(|| Error::resource_exhausted(format!("a {dtype} tensor of shape {shape:?} is too large")))
}

fn check_count(count: usize, shape: &[usize]) -> Result<()> {
    ensure!(
        checked_num_elements(shape) == Some(count),
        InvalidArgument,
        "got {count} elements for a tensor of shape {shape:?}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use ndarray::{Ix1, Ix2, array};

    use super::*;

    #[test]
    fn blocks_are_aligned_and_arrays_are_taken_over_in_place() {
        let zeros = Tensor::zeros(DType::Complex128, &[3, 5]).unwrap();
        assert_eq!(zeros.as_view().data_ptr() as usize % 64, 0);
        let array = array![[1f32, 2., 3.], [4., 5., 6.]].reversed_axes();
        let address = array.as_ptr();
        let tensor = Tensor::from(array);
        assert_eq!(tensor.as_view().data_ptr(), address.cast());
        assert_eq!((tensor.shape(), tensor.strides()), (&[3, 2][..], &[1, 3][..]));
        assert_eq!(tensor.view::<f32, Ix2>().unwrap(), array![[1., 4.], [2., 5.], [3., 6.]]);
    }

    #[test]
    fn a_shared_tensor_is_copied_when_written_and_a_lone_one_is_not() {
        let mut tensor = Tensor::from_slice(&[1i32, 2, 3], &[3]).unwrap();
        let before = tensor.as_view().data_ptr();
        tensor.view_mut::<i32, Ix1>().unwrap()[0] = 7;
        assert_eq!(tensor.as_view().data_ptr(), before);
        let shared = tensor.clone();
        tensor.view_mut::<i32, Ix1>().unwrap()[1] = 8;
        assert_eq!(shared.view::<i32, Ix1>().unwrap(), array![7, 2, 3]);
        assert_eq!(tensor.view::<i32, Ix1>().unwrap(), array![7, 8, 3]);
    }

    #[test]
    fn foreign_memory_lives_as_long_as_its_tensors() {
        let owner = Arc::new(vec![1u8, 2, 3, 4]);
        // SAFETY: the owner holds the four bytes, which nobody writes.
        let tensor = unsafe { Tensor::from_foreign(owner.clone(), owner.as_ptr(), DType::UInt8, &[4], &[1]) };
        let mut copy = tensor.clone();
        assert_eq!(Arc::strong_count(&owner), 3);
        copy.view_mut::<u8, Ix1>().unwrap()[0] = 9;
        assert_eq!((owner[0], Arc::strong_count(&owner)), (1, 2));
        drop(tensor);
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    #[test]
    fn strings_are_bytes_of_any_length() {
        let tensor = Tensor::from_strings(&["", "über", "a\0b"], &[3]).unwrap();
        assert_eq!(tensor.strings().unwrap(), vec![&b""[..], "über".as_bytes(), b"a\0b"]);
        assert!(tensor.clone().as_view_mut().is_err());
        assert!(Tensor::from_strings(&["a"], &[2]).unwrap_err().message().contains("shape [2]"));
    }

    #[test]
    fn a_tensor_too_large_to_address_is_an_error() {
        let error = Tensor::zeros(DType::Float64, &[usize::MAX, 4]).unwrap_err();
        assert_eq!(error.code(), opsmith_core::Code::ResourceExhausted);
        assert!(Tensor::zeros(DType::Float64, &[1 << 50]).is_err());
    }
}
