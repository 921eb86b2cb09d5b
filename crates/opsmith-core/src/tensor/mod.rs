//! Tensors as a kernel sees them: borrowed memory with a dtype, a shape and strides, and typed views of it.

mod layout;
mod order;

use std::fmt;
use std::marker::PhantomData;

use ndarray::{ArrayView, ArrayViewMut, Axis, Dimension, ShapeBuilder};
use smallvec::SmallVec;

pub use self::layout::{MAX_RANK, checked_num_elements, is_row_major, row_major_strides};
use self::layout::{anchor, byte_range, check_typed, may_overlap_itself, not_contiguous, typed_layout};
pub(crate) use self::layout::{check_shape, dense_shape};
pub use self::order::DimOrder;
use crate::{DType, Device, DeviceKind, Element, Result, ensure};

/// The dims of a concrete shape; no heap for the usual ranks.
pub type Extents = SmallVec<[usize; 6]>;
/// Strides in elements; no heap for the usual ranks.
pub type Strides = SmallVec<[isize; 6]>;

/// A string element as it lies in a `string` tensor: bytes that live as long as the tensor.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct StrRef {
    /// The first byte; may be null when `len` is 0.
    pub data: *const u8,
    /// How many bytes.
    pub len: usize,
}

/// A tensor to read: borrowed, of any dtype, shape and strides.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    data: *const u8,
    dtype: DType,
    device: Device,
    shape: &'a [usize],
    strides: &'a [isize],
}

// SAFETY: a view gives shared, read-only access to memory that its constructor promised to be valid for `'a`.
unsafe impl Send for TensorView<'_> {}
// SAFETY: as above.
unsafe impl Sync for TensorView<'_> {}

impl fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorView({}{:?} on {})", self.dtype, self.shape, self.device.kind)
    }
}

impl<'a> TensorView<'a> {
    /// A view of foreign memory. `strides` are in elements and may be zero or negative.
    ///
    /// # Safety
    /// For `'a`, every element that `shape` and `strides` reach from `data` must be readable on `device` and not
    /// written by anybody, and `shape` and `strides` must be equally long. Before a typed view is taken, elements
    /// must be aligned for and valid values of `dtype`: [`Plan::run`](crate::Plan::run) copies those that are not.
    pub unsafe fn from_raw_parts(
        data: *const u8,
        dtype: DType,
        device: Device,
        shape: &'a [usize],
        strides: &'a [isize],
    ) -> TensorView<'a> {
        debug_assert_eq!(shape.len(), strides.len());
        TensorView { data, dtype, device, shape, strides }
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Where the elements are.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The dims.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// The strides, in elements.
    pub fn strides(&self) -> &'a [isize] {
        self.strides
    }

    /// The number of dims.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether elements lie row-major without gaps.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        is_row_major(self.shape, self.strides)
    }

    /// Whether the elements are aligned for the dtype.
    #[inline]
    pub fn is_aligned(&self) -> bool {
        (self.data as usize).is_multiple_of(self.dtype.alignment())
    }

    /// Whether the elements can be read as Rust values where they lie: aligned for the dtype and, for `bool`, bytes of
    /// 0 and 1 only. Frameworks lend tensors of which neither is sure.
    #[inline]
    pub fn is_well_formed(&self) -> bool {
        let is_aligned = self.is_aligned();
        if is_aligned && self.dtype != DType::Bool {
            return true;
        }
        let is_read = !self.shape.contains(&0) && self.device.kind == DeviceKind::Cpu;
        !is_read || (is_aligned && self.is_boolean())
    }

    /// Whether all bytes of a `bool` tensor are 0 or 1.
    fn is_boolean(&self) -> bool {
        /// # Safety
        /// The bytes that the strides reach from `at` must be readable, and no dim be 0.
        unsafe fn are_truths(at: *const u8, shape: &[usize], strides: &[isize]) -> bool {
            match (shape, strides) {
                // One element, however often an expanded tensor repeats it.
                // SAFETY: promised by the caller; no dim is 0.
                ([_, shape @ ..], [0, strides @ ..]) => unsafe { are_truths(at, shape, strides) },
                ([dim, shape @ ..], [stride, strides @ ..]) => (0..*dim as isize)
                    // SAFETY: promised by the caller.
                    .all(|index| unsafe { are_truths(at.offset(index * stride), shape, strides) }),
                // SAFETY: promised by the caller.
                _ => unsafe { *at <= 1 },
            }
        }
        let bytes = TensorView { dtype: DType::UInt8, ..*self };
        match bytes.as_slice::<u8>() {
            Ok(bytes) => bytes.iter().all(|byte| *byte <= 1),
            // SAFETY: the constructor promised readable elements.
            Err(_) => unsafe { are_truths(self.data, self.shape, self.strides) },
        }
    }

    /// Whether two indices may reach the same element. Layouts that come of slicing, permuting and flipping a dense
    /// tensor never do; of others, one that only interleaves may be taken for one that overlaps.
    pub fn may_overlap_itself(&self) -> bool {
        may_overlap_itself(self.shape, self.strides)
    }

    /// The address of the element at index 0 of every dim.
    pub fn data_ptr(&self) -> *const u8 {
        self.data
    }

    /// The bytes that this tensor's elements span, as addresses: first and one past the last.
    pub fn byte_range(&self) -> std::ops::Range<usize> {
        byte_range(self.data as usize, self.dtype, self.shape, self.strides)
    }

    /// A typed view with `D` dims.
    ///
    /// # Errors
    /// `InvalidArgument` when the dtype is not `T`, or the rank is not that of `D`.
    pub fn view<T: Element, D: Dimension>(&self) -> Result<ArrayView<'a, T, D>> {
        let (dim, plan) = typed_layout::<T, D>(self.dtype, self.device, self.shape, self.strides)?;
        let data = self.anchor::<T>(plan.offset);
        // SAFETY: the constructor promised valid memory for every index; `typed_layout` checked the dtype and gave
        // the non-negative strides and the offset of the lowest element. An empty view reads nothing.
        let mut view = unsafe { ArrayView::from_shape_ptr(dim.strides(plan.strides), data) };
        if plan.inverted != 0 {
            for axis in (0..self.shape.len()).filter(|axis| plan.inverted >> axis & 1 == 1) {
                view.invert_axis(Axis(axis));
            }
        }
        Ok(view)
    }

    /// The elements as one slice.
    ///
    /// # Errors
    /// `InvalidArgument` when the dtype is not `T` or the elements do not lie row-major without gaps.
    #[inline(never)]
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        let count = self.check_flat(T::DTYPE)?;
        // SAFETY: this is the number that was asked for.
        Ok(unsafe { self.flat(count) })
    }

    /// The elements as one slice, unchecked.
    ///
    /// # Safety
    /// [`check_flat`](Self::check_flat) has given `count` for the dtype of `T`.
    pub(crate) unsafe fn flat<T: Element>(&self, count: usize) -> &'a [T] {
        if count == 0 {
            return &[];
        }
        // SAFETY: dtype, device and contiguity are checked; the constructor promised valid memory.
        unsafe { std::slice::from_raw_parts(self.data.cast(), count) }
    }

    /// The number of elements, if they are of this dtype, in host memory, and row-major without gaps. Of what asks there is one for
    /// each type; of this, one.
    pub(crate) fn check_flat(&self, expected: DType) -> Result<usize> {
        check_typed(expected, self.dtype, self.device)?;
        if !self.is_contiguous() {
            return Err(not_contiguous(self.strides));
        }
        Ok(self.num_elements())
    }

    /// The value of a tensor with one element.
    ///
    /// # Errors
    /// `InvalidArgument` when the dtype is not `T` or there is not exactly one element.
    pub fn scalar<T: Element>(&self) -> Result<T> {
        check_typed(T::DTYPE, self.dtype, self.device)?;
        ensure!(
            self.num_elements() == 1,
            InvalidArgument,
            "expected one element, got shape {:?}",
            self.shape
        );
        // SAFETY: the dtype is `T` and there is one element, at `data` whatever the strides.
        Ok(unsafe { *self.data.cast::<T>() })
    }

    /// The elements of a contiguous `string` tensor, row-major.
    ///
    /// # Errors
    /// `InvalidArgument` when the dtype is not `string` or the elements are not contiguous; `ResourceExhausted` without memory.
    pub fn strings(&self) -> Result<Vec<&'a [u8]>> {
        ensure!(self.dtype == DType::String, InvalidArgument, "expected dtype string, got {}", self.dtype);
        ensure!(
            self.is_contiguous(),
            InvalidArgument,
            "expected a contiguous tensor, got strides {:?}",
            self.strides
        );
        let count = self.num_elements();
        if count == 0 {
            return Ok(Vec::new());
        }
        // SAFETY: a string tensor holds `StrRef`s whose bytes live as long as the tensor.
        let refs = unsafe { std::slice::from_raw_parts(self.data.cast::<StrRef>(), count) };
        crate::memory::collected(refs.iter().map(|s| s.bytes()), "the elements of text")
    }

    fn anchor<T>(&self, offset: isize) -> *const T {
        anchor::<T>(self.data.cast_mut(), self.shape, offset).cast_const()
    }
}

impl StrRef {
    fn bytes<'a>(&self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: whoever made the tensor promised `len` readable bytes for the tensor's life.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

/// A tensor to write: borrowed, of any dtype, shape and strides.
pub struct TensorViewMut<'a> {
    data: *mut u8,
    dtype: DType,
    device: Device,
    shape: &'a [usize],
    strides: &'a [isize],
    exclusive: PhantomData<&'a mut u8>,
}

// SAFETY: a mutable view is the only access to its memory, as `&mut` is.
unsafe impl Send for TensorViewMut<'_> {}
// SAFETY: through a shared reference to a mutable view nothing can be written.
unsafe impl Sync for TensorViewMut<'_> {}

impl fmt::Debug for TensorViewMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorViewMut({}{:?} on {})", self.dtype, self.shape, self.device.kind)
    }
}

impl<'a> TensorViewMut<'a> {
    /// A mutable view of foreign memory. `strides` are in elements.
    ///
    /// # Safety
    /// For `'a`, every element that `shape` and `strides` reach from `data` must be readable and writable on
    /// `device`, aligned for and a valid value of `dtype`, reached by one index only, and used by nobody else.
    /// `shape` and `strides` must be equally long.
    pub unsafe fn from_raw_parts(
        data: *mut u8,
        dtype: DType,
        device: Device,
        shape: &'a [usize],
        strides: &'a [isize],
    ) -> TensorViewMut<'a> {
        debug_assert_eq!(shape.len(), strides.len());
        TensorViewMut { data, dtype, device, shape, strides, exclusive: PhantomData }
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Where the elements are.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The dims.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// The strides, in elements.
    pub fn strides(&self) -> &'a [isize] {
        self.strides
    }

    /// The number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The address of the element at index 0 of every dim.
    pub fn data_ptr(&self) -> *mut u8 {
        self.data
    }

    /// A typed mutable view with `D` dims, for as long as this one.
    ///
    /// # Errors
    /// `InvalidArgument` when the dtype is not `T`, or the rank is not that of `D`.
    pub fn into_view<T: Element, D: Dimension>(self) -> Result<ArrayViewMut<'a, T, D>> {
        let (dim, plan) = typed_layout::<T, D>(self.dtype, self.device, self.shape, self.strides)?;
        let data = anchor::<T>(self.data, self.shape, plan.offset);
        // SAFETY: as in `TensorView::view`, and the constructor promised exclusive access.
        let mut view = unsafe { ArrayViewMut::from_shape_ptr(dim.strides(plan.strides), data) };
        if plan.inverted != 0 {
            for axis in (0..self.shape.len()).filter(|axis| plan.inverted >> axis & 1 == 1) {
                view.invert_axis(Axis(axis));
            }
        }
        Ok(view)
    }

    /// A typed mutable view with `D` dims.
    ///
    /// # Errors
    /// As [`into_view`](Self::into_view).
    pub fn view_mut<T: Element, D: Dimension>(&mut self) -> Result<ArrayViewMut<'_, T, D>> {
        self.reborrow().into_view()
    }

    /// The elements as one slice, for as long as this view.
    ///
    /// # Errors
    /// `InvalidArgument` when the dtype is not `T` or the elements do not lie row-major without gaps.
    #[inline(never)]
    pub fn into_slice<T: Element>(self) -> Result<&'a mut [T]> {
        let count = self.as_view().check_flat(T::DTYPE)?;
        if count == 0 {
            return Ok(&mut []);
        }
        // SAFETY: dtype, device and contiguity are checked; the constructor promised exclusive, valid memory.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.data.cast(), count) })
    }

    /// The elements as one slice.
    ///
    /// # Errors
    /// As [`into_slice`](Self::into_slice).
    pub fn as_slice_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        self.reborrow().into_slice()
    }

    /// The same tensor to read.
    pub fn as_view(&self) -> TensorView<'_> {
        TensorView {
            data: self.data,
            dtype: self.dtype,
            device: self.device,
            shape: self.shape,
            strides: self.strides,
        }
    }

    /// The same tensor, for a shorter time.
    pub fn reborrow(&mut self) -> TensorViewMut<'_> {
        TensorViewMut { exclusive: PhantomData, ..*self }
    }

    /// The elements of a contiguous `string` tensor, to be set.
    pub(crate) fn into_str_refs(self) -> Result<&'a mut [StrRef]> {
        ensure!(self.dtype == DType::String, InvalidArgument, "expected dtype string, got {}", self.dtype);
        let count = self.num_elements();
        if count == 0 {
            return Ok(&mut []);
        }
        // SAFETY: a string tensor holds `StrRef`s, and outputs are contiguous.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.data.cast::<StrRef>(), count) })
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Ix1, Ix2, IxDyn, array};

    use super::*;

    fn f32_view<'a>(data: &'a [f32], at: usize, shape: &'a [usize], strides: &'a [isize]) -> TensorView<'a> {
        // SAFETY: the tests give shapes and strides that stay inside `data`.
        unsafe {
            TensorView::from_raw_parts(
                data[at..].as_ptr().cast(),
                DType::Float32,
                Device::CPU,
                shape,
                strides,
            )
        }
    }

    #[test]
    fn views_follow_positive_negative_and_zero_strides() {
        let data: Vec<f32> = (0..6).map(|i| i as f32).collect();
        let dense = f32_view(&data, 0, &[2, 3], &[3, 1]);
        assert_eq!(dense.view::<f32, Ix2>().unwrap(), array![[0., 1., 2.], [3., 4., 5.]]);
        assert_eq!(dense.as_slice::<f32>().unwrap(), &data[..]);
        let flipped = f32_view(&data, 5, &[2, 3], &[-3, -1]);
        assert_eq!(flipped.view::<f32, Ix2>().unwrap(), array![[5., 4., 3.], [2., 1., 0.]]);
        assert!(flipped.as_slice::<f32>().is_err());
        assert_eq!(flipped.byte_range(), dense.byte_range());
        let repeated = f32_view(&data, 2, &[2, 2], &[0, 1]);
        assert_eq!(repeated.view::<f32, IxDyn>().unwrap(), array![[2., 3.], [2., 3.]].into_dyn());
    }

    #[test]
    fn wrong_dtype_and_rank_are_told() {
        let data = [1f32];
        let view = f32_view(&data, 0, &[1], &[1]);
        assert_eq!(view.view::<f64, Ix1>().unwrap_err().message(), "expected dtype float64, got float32");
        assert_eq!(view.view::<f32, Ix2>().unwrap_err().message(), "expected rank 2, got rank 1 (shape [1])");
        assert_eq!(view.scalar::<f32>(), Ok(1.0));
    }

    #[test]
    fn what_rust_cannot_read_where_it_lies_is_not_well_formed() {
        let bytes = [0u8, 1, 2, 0, 0, 0, 0, 0, 0];
        let view = |at: usize, dtype, shape, strides| {
            // SAFETY: the tests give shapes and strides that stay inside `bytes`; no typed view is taken.
            unsafe { TensorView::from_raw_parts(bytes[at..].as_ptr(), dtype, Device::CPU, shape, strides) }
        };
        let odd = usize::from((bytes.as_ptr() as usize).is_multiple_of(2));
        assert!(!view(odd, DType::Float32, &[1], &[1]).is_well_formed());
        assert!(view(odd, DType::Float32, &[0], &[1]).is_well_formed());
        assert!(view(0, DType::Bool, &[2], &[1]).is_well_formed());
        assert!(view(0, DType::Bool, &[2], &[3]).is_well_formed());
        assert!(!view(0, DType::Bool, &[2, 2], &[1, 1]).is_well_formed());
        assert!(view(0, DType::Bool, &[1 << 40, 2, 1 << 40], &[0, 1, 0]).is_well_formed());
        assert!(!view(1, DType::Bool, &[1 << 40, 2], &[0, 1]).is_well_formed());
    }

    #[test]
    fn a_tensor_of_more_elements_than_there_can_be_has_no_views() {
        let data = [1f32];
        let error = f32_view(&data, 0, &[1 << 40, 1 << 40], &[0, 0]).view::<f32, Ix2>().unwrap_err();
        let expected = "expected fewer elements, got shape [1099511627776, 1099511627776]";
        assert_eq!(error.message(), expected);
        assert!(f32_view(&data, 0, &[1 << 40, 1 << 20], &[0, 0]).view::<f32, Ix2>().is_ok());
    }

    #[test]
    fn what_is_empty_is_viewed_whatever_its_strides() {
        for (shape, strides) in [([3, 0], [0, 1]), ([0, 3], [5, 0]), ([3, 0], [-1, 7]), ([0, 0], [0, 0])] {
            let mut nothing = [0f32; 0];
            let data = nothing.as_mut_ptr().cast();
            // SAFETY: there are no elements.
            let view =
                unsafe { TensorViewMut::from_raw_parts(data, DType::Float32, Device::CPU, &shape, &strides) };
            assert_eq!(view.into_view::<f32, ndarray::Ix2>().unwrap().shape(), shape);
        }
    }

    #[test]
    fn an_empty_tensor_has_empty_views_whatever_its_pointer() {
        // SAFETY: no element is reached.
        let view = unsafe {
            TensorView::from_raw_parts(std::ptr::null(), DType::Float64, Device::CPU, &[0, 4], &[4, 1])
        };
        assert_eq!(view.view::<f64, Ix2>().unwrap().dim(), (0, 4));
        assert_eq!(view.as_slice::<f64>().unwrap(), &[] as &[f64]);
    }
}
