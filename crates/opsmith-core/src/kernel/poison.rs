//! What outputs begin as. In builds with debug assertions, it is what no kernel means to write, so that a test sees what is left out
//! and not what lay in the memory before.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::space::IndexSpace;
use crate::tensor::TensorView;
use crate::{DType, DeviceKind, Error};

/// The patterns of a call's outputs. Two calls in a row have different ones, so that comparing them shows what is not written.
#[derive(Clone, Copy)]
pub(crate) struct Poison {
    is_second: bool,
}

impl Poison {
    pub(crate) fn of_call() -> Poison {
        static LAST: AtomicBool = AtomicBool::new(false);
        Poison { is_second: cfg!(debug_assertions) && LAST.fetch_xor(true, Ordering::Relaxed) }
    }

    /// The bytes of an element: in floats a NaN that no arithmetic makes. None for dtypes of which not every bit pattern is a
    /// value.
    fn pattern(self, dtype: DType) -> Option<&'static [u8]> {
        let [first, second]: [&[u8]; 2] = match dtype {
            DType::Bool | DType::String => return None,
            DType::Float16 => [&[0xA5, 0x7E], &[0x5A, 0x7E]],
            DType::BFloat16 => [&[0xE5, 0x7F], &[0xDA, 0x7F]],
            DType::Float32 | DType::Complex64 => [&[0xA5, 0xA5, 0xE5, 0x7F], &[0x5A, 0x5A, 0xDA, 0x7F]],
            DType::Float64 | DType::Complex128 => [
                &[0xA5, 0xA5, 0xA5, 0xA5, 0xA5, 0xA5, 0xFD, 0x7F],
                &[0x5A, 0x5A, 0x5A, 0x5A, 0x5A, 0x5A, 0xFA, 0x7F],
            ],
            _ => [&[0xA5], &[0x5A]],
        };
        Some(if self.is_second { second } else { first })
    }

    /// Fills the memory of an output, which is left as it is in other builds; but `bool` elements are `false` in all of them.
    ///
    /// # Safety
    /// `data` is host memory that may be written, of so many elements of this dtype.
    pub(crate) unsafe fn fill(self, data: *mut u8, dtype: DType, elements: usize) {
        let bytes = elements * dtype.size();
        if dtype == DType::Bool {
            // SAFETY: the caller's promise.
            unsafe { data.write_bytes(0, bytes) };
        }
        let pattern = if cfg!(debug_assertions) { self.pattern(dtype) } else { None };
        let Some(pattern) = pattern else { return };
        let mut filled = pattern.len().min(bytes);
        // SAFETY: the caller's promise; what is copied lies before what is written.
        unsafe {
            data.copy_from_nonoverlapping(pattern.as_ptr(), filled);
            while filled < bytes {
                let more = filled.min(bytes - filled);
                data.add(filled).copy_from_nonoverlapping(data, more);
                filled += more;
            }
        }
    }

    /// Whether all of an output is as [`fill`](Self::fill) left it, and the kernel cannot have written that itself: small
    /// integers may well have the value, and what an input holds may have been copied.
    pub(crate) fn is_untouched(self, output: &TensorView<'_>, inputs: &[Option<TensorView<'_>>]) -> bool {
        let dtype = output.dtype();
        let may_be_value = dtype.size() < 4 && !matches!(dtype, DType::Float16 | DType::BFloat16);
        let Some(pattern) = self.pattern(dtype) else { return false };
        if may_be_value || output.device().kind != DeviceKind::Cpu {
            return false;
        }
        let is_pattern = |element: &[u8]| element.chunks(pattern.len()).all(|chunk| chunk == pattern);
        let mut elements = elements(output).peekable();
        elements.peek().is_some()
            && elements.all(is_pattern)
            && !inputs.iter().flatten().any(|input| {
                let may_hold = input.dtype() == dtype && input.device().kind == DeviceKind::Cpu;
                may_hold && self::elements(input).any(is_pattern)
            })
    }
}

/// The error of an output to which nothing was written.
pub(crate) fn unwritten() -> Error {
    Error::internal("the kernel wrote none of its elements")
}

/// The bytes of each element of a tensor in host memory whose elements are no text.
fn elements<'a>(tensor: &'a TensorView<'_>) -> impl Iterator<Item = &'a [u8]> {
    let size = tensor.dtype().size();
    let spaces = IndexSpace::new(tensor.shape(), &[tensor.layout()]).into_iter();
    let places = spaces.flat_map(|space| (0..space.len()).map(move |index| space.place(0, index)));
    places.map(move |at| {
        // SAFETY: this is the place of an element of the tensor, whose strides count elements; it is initialised, as inputs
        // are and outputs that have been filled.
        unsafe { std::slice::from_raw_parts(tensor.data_ptr().offset(at * size as isize), size) }
    })
}
