//! NumPy arrays as the engine's tensors and back.

use std::sync::Arc;

use opsmith_core::{DType, Error};
use opsmith_runtime::Tensor;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};

use crate::array::{self, Look, look, need_numpy};
use crate::convert::{Readable, array_to_readable};
use crate::errors::to_python;
use crate::python_values::text_from_bytes;

/// Keeps an array while a tensor looks at its memory.
struct Array(#[expect(dead_code, reason = "held for its drop")] Py<PyAny>);

/// A tensor that looks at the memory of an array, or of a copy where it cannot be read as it lies. Python may change the
/// array, so the tensor is for the time of one call.
pub(super) fn lent(array: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let py = array.py();
    need_numpy(py)?;
    let mut array = array.clone();
    for _ in 0..2 {
        if let Look::Ready(elements) = look(py, &array.as_borrowed()) {
            // SAFETY: the view is used here only, and `array` keeps the memory.
            let view = unsafe { elements.view() };
            let owner = Arc::new(Array(array.clone().unbind()));
            // SAFETY: the owner keeps the array, whose elements lie where the view says; that nobody writes to them during
            // the run is the caller's to see to, as for NumPy's own functions.
            return Ok(unsafe {
                Tensor::from_foreign(owner, view.data_ptr(), view.dtype(), view.shape(), view.strides())
            });
        }
        array = match array_to_readable(&array)? {
            Readable::Array(readable) => readable,
            Readable::Text(tensor) => return Ok(tensor),
        };
    }
    Err(to_python(py, &Error::internal("NumPy gave an array that cannot be read as it lies")))
}

/// A tensor with a copy of an array.
pub(super) fn copied(array: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    lent(array)?.into_own().map_err(|error| to_python(array.py(), &error))
}

/// The tensor as an array: with no copy where nobody else has its memory.
pub(super) fn to_array(py: Python<'_>, tensor: Tensor) -> PyResult<Bound<'_, PyAny>> {
    need_numpy(py)?;
    if tensor.dtype() == DType::String {
        return strings(py, &tensor);
    }
    let failed = |error| to_python(py, &error);
    // A second tensor, even of the same memory, would have it copied below.
    let mut tensor = if tensor.is_contiguous() { tensor } else { tensor.to_contiguous().map_err(failed)? };
    // What others share, a variable's value say, is copied here: who gets the array may write to it.
    let data = tensor.as_view_mut().map_err(failed)?.data_ptr();
    let (dtype, shape) = (tensor.dtype(), tensor.shape().into());
    let capsule = PyCapsule::new_with_value(py, tensor, c"opsmith.tensor")?;
    // SAFETY: the tensor is dense, its memory stays where it is, and the capsule owns it alone.
    unsafe { array::over(py, data, dtype, shape, capsule.into_any()) }
}

fn strings<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    let texts = PyList::empty(py);
    for text in tensor.strings().map_err(|error| to_python(py, &error))? {
        texts.append(text_from_bytes(py, text)?)?;
    }
    let flat = py.import("numpy")?.call_method1("asarray", (texts, "O"))?;
    flat.call_method1("reshape", (tensor.shape().to_vec(),))
}
