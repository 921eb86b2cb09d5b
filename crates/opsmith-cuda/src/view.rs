//! Tensors on a card as launch functions see them, and as kernels get them.

use std::marker::PhantomData;

use half::{bf16, f16};
use opsmith_core::space::{Layout, checked_num_elements};
use opsmith_core::{Element, Error, Result, TensorView, TensorViewMut, ensure};

/// Types of elements that kernels have.
pub trait CudaElement: Element {
    /// The type's name in CUDA C++.
    const NAME: &'static str;
}

macro_rules! elements {
    ($($rust:ty => $cuda:literal),* $(,)?) => {
        $(impl CudaElement for $rust {
            const NAME: &'static str = $cuda;
        })*
    };
}

elements! {
    f32 => "float", f64 => "double", f16 => "opsmith::half", bf16 => "opsmith::bfloat16",
    i8 => "signed char", i16 => "short", i32 => "int", i64 => "long long",
    u8 => "unsigned char", u16 => "unsigned short", u32 => "unsigned", u64 => "unsigned long long",
    bool => "bool",
}

/// Where a tensor lies on a card.
#[derive(Debug, Clone, Copy)]
pub struct DeviceLayout<'a> {
    pub(crate) data: *mut u8,
    pub(crate) shape: &'a [usize],
    pub(crate) strides: &'a [isize],
}

impl DeviceLayout<'_> {
    /// Whether all places, dims and counts can be told in 32 bits with a sign.
    fn fits_32_bits(&self) -> bool {
        // A loop goes past the end by less than a step.
        let most = i32::MAX as usize - (1 << 16);
        if self.shape.contains(&0) {
            return self.shape.iter().all(|&dim| dim <= most);
        }
        self.plain().span() <= most && checked_num_elements(self.shape).is_some_and(|count| count <= most)
    }

    /// The dims and strides.
    pub(crate) fn plain(&self) -> Layout<'_> {
        Layout { shape: self.shape, strides: self.strides }
    }

    /// A stride as it is packed: of a dim of one element, which leads nowhere, frameworks leave anything.
    pub(crate) fn stride(&self, dim: usize) -> isize {
        if self.shape[dim] > 1 { self.strides[dim] } else { 0 }
    }
}

/// A tensor on a card.
pub trait DeviceTensor {
    /// Where it lies.
    fn layout(&self) -> DeviceLayout<'_>;
}

macro_rules! views {
    ($($(#[$doc:meta])* $view:ident of $tensor:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub struct $view<'a, T> {
                layout: DeviceLayout<'a>,
                elements: PhantomData<&'a T>,
            }

            impl<'a, T: CudaElement> $view<'a, T> {
                /// The view of a tensor, whose elements nobody reads here.
                ///
                /// # Errors
                /// `InvalidArgument` when the dtype is not `T`.
                pub fn new(tensor: $tensor<'a>) -> Result<Self> {
                    let (dtype, expected) = (tensor.dtype(), T::DTYPE);
                    ensure!(dtype == expected, InvalidArgument, "expected dtype {expected}, got {dtype}");
                    let (data, shape, strides) = (tensor.data_ptr(), tensor.shape(), tensor.strides());
                    let layout = DeviceLayout { data: data as *mut u8, shape, strides };
                    Ok($view { layout, elements: PhantomData })
                }

                /// The dims.
                pub fn shape(&self) -> &'a [usize] {
                    self.layout.shape
                }

                /// The dims, which are `N`.
                ///
                /// # Errors
                /// `InvalidArgument` when they are not.
                pub fn dims<const N: usize>(&self) -> Result<[usize; N]> {
                    let shape = self.layout.shape;
                    let wrong = || {
                        let rank = shape.len();
                        Error::invalid_argument(format!("expected rank {N}, got rank {rank} (shape {shape:?})"))
                    };
                    shape.try_into().map_err(|_| wrong())
                }

                /// How many elements it has.
                pub fn num_elements(&self) -> usize {
                    self.layout.shape.iter().product()
                }

                /// The strides, in elements.
                pub fn strides(&self) -> &'a [isize] {
                    self.layout.strides
                }

                /// The address on the card of the element at index 0 of every dim.
                pub fn data_ptr(&self) -> *mut T {
                    self.layout.data.cast()
                }
            }

            impl<T: CudaElement> DeviceTensor for $view<'_, T> {
                fn layout(&self) -> DeviceLayout<'_> {
                    self.layout
                }
            }
        )*
    };
}

views! {
    /// An input on a card, of any strides.
    DeviceView of TensorView;
    /// An output or a temporary on a card.
    DeviceViewMut of TensorViewMut;
}

impl<T> Clone for DeviceView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceView<'_, T> {}

/// The bits of a kernel's indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    /// `int`.
    Bits32,
    /// `long long`.
    Bits64,
}

impl Index {
    /// What all these tensors fit: 32 bits wherever they do, for a card computes faster with them.
    pub fn of(tensors: &[&dyn DeviceTensor]) -> Index {
        match tensors.iter().all(|tensor| tensor.layout().fits_32_bits()) {
            true => Index::Bits32,
            false => Index::Bits64,
        }
    }

    /// The type's name in CUDA C++.
    pub fn name(self) -> &'static str {
        match self {
            Index::Bits32 => "int",
            Index::Bits64 => "long long",
        }
    }
}

#[cfg(test)]
mod tests {
    use opsmith_core::{DType, Device, DeviceKind};

    use super::*;

    fn index(shape: &[usize], strides: &[isize]) -> Index {
        let device = Device { kind: DeviceKind::Cuda, index: 0 };
        // SAFETY: nobody reads the elements.
        let tensor =
            unsafe { TensorView::from_raw_parts(4096 as *const u8, DType::Float32, device, shape, strides) };
        Index::of(&[&DeviceView::<f32>::new(tensor).unwrap()])
    }

    #[test]
    fn more_than_32_bits_hold_takes_64() {
        let most = i32::MAX as usize - (1 << 16);
        assert_eq!(index(&[most], &[1]), Index::Bits32);
        assert_eq!(index(&[most + 1], &[1]), Index::Bits64, "the count does not fit");
        assert_eq!(index(&[2], &[1 << 31]), Index::Bits64, "the place does not fit");
        assert_eq!(index(&[2, 1], &[1 << 30, 1 << 40]), Index::Bits32, "a dim of one leads nowhere");
        assert_eq!(index(&[2, 2], &[-(1 << 30), -(1 << 30)]), Index::Bits64, "places below count too");
        assert_eq!(index(&[1 << 20, 1 << 20], &[0, 0]), Index::Bits64, "repeated elements are counted");
        assert_eq!(index(&[0, 7], &[1 << 40, 1 << 40]), Index::Bits32);
        assert_eq!(index(&[], &[]), Index::Bits32);
    }

    #[test]
    fn dtypes_are_checked() {
        let device = Device { kind: DeviceKind::Cuda, index: 0 };
        // SAFETY: there are no elements.
        let tensor =
            unsafe { TensorView::from_raw_parts(std::ptr::null(), DType::Int32, device, &[0], &[1]) };
        assert_eq!(DeviceView::<i32>::new(tensor).unwrap().num_elements(), 0);
        let error = DeviceView::<f32>::new(tensor).unwrap_err();
        assert_eq!(error.message(), "expected dtype float32, got int32");
    }
}
