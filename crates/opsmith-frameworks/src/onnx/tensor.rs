//! A tensor of ONNX Runtime: its dtype, dims and elements, always dense and row-major.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use opsmith_core::attr::TensorValue;
use opsmith_core::tensor::{Extents, StrRef, checked_num_elements};
use opsmith_core::{DType, Error, Result, memory};

use super::api::{ABSENT_IN_SHAPES, Api, TensorInfo, Value, dtype_of};

/// A tensor that is alive.
#[derive(Clone, Copy)]
pub(super) struct Tensor {
    pub(super) api: Api,
    pub(super) value: *mut Value,
}

/// The texts of a tensor, one behind the other, and where each begins.
pub(super) struct Texts {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Texts {
    /// Where each text is, as long as this lives.
    pub(super) fn refs(&self) -> impl ExactSizeIterator<Item = StrRef> {
        (0..self.starts.len()).map(|index| {
            let text = self.text(index);
            StrRef { data: text.as_ptr(), len: text.len() }
        })
    }

    fn text(&self, index: usize) -> &[u8] {
        let end = self.starts.get(index + 1).copied().unwrap_or(self.bytes.len());
        &self.bytes[self.starts[index]..end]
    }
}

// In what follows the tensor is alive, what is asked for is a local, and outcomes are used once.
impl Tensor {
    pub(super) fn data(self) -> Result<*mut u8> {
        let mut data = null_mut();
        // SAFETY: as above.
        unsafe { self.api.check((self.api.tensor_data())(self.value, &mut data)) }?;
        Ok(data.cast())
    }

    /// Its dtype and dims.
    pub(super) fn facts(self) -> Result<(DType, Extents)> {
        self.with_facts(|code, dims| Ok((dtype_of(code)?, dims.into())))
    }

    /// Lends ONNX's number of its dtype, and its dims.
    #[inline]
    pub(super) fn with_facts<R>(self, then: impl FnOnce(c_int, &[usize]) -> Result<R>) -> Result<R> {
        let api = self.api;
        if api.minor < ABSENT_IN_SHAPES {
            return self.with_described(then);
        }
        let (mut code, mut dims, mut rank) = (0, null(), 0);
        // SAFETY: as above; the dims are lent as long as the tensor lives, and null where there are none. Those of a tensor are not
        // negative, so they are the same as `usize`.
        let dims = unsafe {
            api.check((api.tensor_type_and_shape())(self.value, &mut code, &mut dims, &mut rank))?;
            if rank == 0 { &[][..] } else { std::slice::from_raw_parts(dims.cast::<usize>(), rank) }
        };
        then(code, dims)
    }

    /// As [`with_facts`](Self::with_facts), of releases that make a description of them.
    #[cold]
    fn with_described<R>(self, then: impl FnOnce(c_int, &[usize]) -> Result<R>) -> Result<R> {
        let (api, mut info) = (self.api, null_mut());
        let (mut code, mut rank, mut dims) = (0, 0, Extents::new());
        // SAFETY: as above; what comes back is ours to release, and there is memory for as many dims, which are not negative.
        unsafe {
            api.check((api.tensor_info())(self.value, &mut info))?;
            let read = || {
                api.check((api.element_type())(info, &mut code))?;
                api.check((api.rank())(info, &mut rank))?;
                dims.resize(rank, 0);
                api.check((api.dimensions())(info, dims.as_mut_ptr().cast(), rank))
            };
            let read = { read }();
            (api.release_tensor_info())(info);
            read?;
        }
        then(code, &dims)
    }

    /// The texts of a tensor of so many.
    pub(super) fn texts(self, count: usize) -> Result<Texts> {
        let api = self.api;
        let mut length = 0;
        // SAFETY: as above.
        unsafe { api.check((api.strings_length())(self.value, &mut length)) }?;
        let mut bytes = memory::filled(0, length, "the texts of a tensor")?;
        let mut starts = memory::filled(0, count, "the texts of a tensor")?;
        if count > 0 {
            // SAFETY: as above, and there is memory for as many bytes and texts.
            unsafe {
                let content = api.strings_content();
                let data = bytes.as_mut_ptr().cast::<c_void>();
                api.check(content(self.value, data, length, starts.as_mut_ptr(), count))?;
            }
        }
        Ok(Texts { bytes, starts })
    }

    /// A copy, as the value of an attribute.
    pub(super) fn to_value(self) -> Result<TensorValue> {
        let (dtype, shape) = self.facts()?;
        let shape = shape.to_vec();
        let count = checked_num_elements(&shape).ok_or_else(|| Error::invalid_argument("is too large"))?;
        let mut value = TensorValue { dtype, shape, bytes: Vec::new(), strings: Vec::new() };
        if dtype == DType::String {
            let texts = self.texts(count)?;
            value.strings = (0..count).map(|index| texts.text(index).to_vec()).collect();
        } else if count > 0 {
            // SAFETY: a tensor has as many elements as its dims say.
            let bytes = unsafe { std::slice::from_raw_parts(self.data()?, count * dtype.size()) };
            value.bytes = memory::copied(bytes, "the value of a tensor attribute")?;
            value.keep_truths();
        }
        Ok(value)
    }
}

/// The dtype and dims that a description has, −1 for one that is not known.
///
/// # Safety
/// The description must be alive.
pub(super) unsafe fn facts(api: Api, info: *const TensorInfo) -> Result<(DType, Vec<i64>)> {
    let (mut code, mut rank) = (0, 0);
    // SAFETY: promised by the caller; there is memory for as many dims.
    unsafe {
        api.check((api.element_type())(info, &mut code))?;
        api.check((api.rank())(info, &mut rank))?;
        let mut dims = vec![0; rank];
        api.check((api.dimensions())(info, dims.as_mut_ptr(), rank))?;
        Ok((dtype_of(code)?, dims))
    }
}
