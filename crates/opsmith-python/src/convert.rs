//! Makes arrays of what is none, and readable arrays of those that an op cannot read as they lie.

use opsmith_core::def::ArgDef;
use opsmith_core::{DType, Error, Signature, memory};
use opsmith_runtime::Tensor;
use pyo3::exceptions::PyUnicodeError;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyList, PyMemoryView, PyString, PyTuple,
};

use crate::array::{Look, from_any, is_array, is_scalar, look};
use crate::dtypes;
use crate::errors::{caused, to_python, unless_refused};
use crate::kinds::is_plain;
use crate::python_values::{describe, text_to_bytes, type_name};

/// DLPack's device types whose memory a CPU can read: CPU, and memory that CUDA or ROCm pinned or manages.
const READABLE_DEVICES: [i32; 4] = [1, 3, 11, 13];

/// Which tensor a message is about.
pub(crate) struct TensorArgument<'a> {
    pub(crate) signature: &'a Signature,
    pub(crate) arg: &'a ArgDef,
    pub(crate) position: Option<usize>,
}

impl TensorArgument<'_> {
    /// The error that this tensor `is wrong`.
    pub(crate) fn wrong(&self, is_wrong: impl std::fmt::Display) -> Error {
        let TensorArgument { signature, arg, position } = self;
        let element = position.map_or_else(String::new, |position| format!("[{position}]"));
        let text = format!("input `{}{element}` {is_wrong}", arg.name);
        Error::invalid_argument(text).naming(&arg.name).with_op(&signature.name)
    }

    /// An `InvalidArgumentError` about this tensor.
    pub(crate) fn invalid(&self, py: Python<'_>, is_wrong: impl std::fmt::Display) -> PyErr {
        to_python(py, &self.wrong(is_wrong))
    }

    /// Whether the tensor is changed in place.
    pub(crate) fn is_ref(&self) -> bool {
        self.arg.is_ref
    }
}

fn masked_arrays(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("numpy.ma")?.getattr("MaskedArray")
}

/// The array that `object` is or gives: an array of whatever subclass, a NumPy scalar, a DLPack tensor, anything with the
/// array or the buffer protocol. `None` for Python's own numbers, text and lists.
///
/// # Errors
/// `InvalidArgumentError` for an object that is none of these, or that is not in host memory.
pub(crate) fn to_array<'py>(
    place: &TensorArgument<'_>,
    object: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    if is_literal(object) {
        return Ok(None);
    }
    let unreadable = |error| caused(py, place.wrong("cannot be read as an array"), error);
    if is_scalar(object) && !place.is_ref() {
        return from_any(object, None).map(Some).map_err(unreadable);
    }
    let numpy = py.import("numpy")?;
    if is_array(object) {
        // Of subclasses too, such as the one of `numpy.ma.masked`.
        if type_name(object) != "ndarray" && object.is_instance(&masked_arrays(py)?)? {
            let message = "is a masked array, whose mask would be lost; pass `.filled(value)` or `.data`";
            return Err(place.invalid(py, message));
        }
        let array = numpy.call_method1("asarray", (object,));
        return array.map(Some).map_err(unreadable);
    }
    if object.hasattr("__dlpack__")? {
        return from_dlpack(place, object).map(Some);
    }
    let memory = unless_refused(py, PyMemoryView::from(object))?;
    let mut has_protocol = memory.is_some();
    for name in ["__array__", "__array_interface__", "__array_struct__"] {
        has_protocol = has_protocol || unless_refused(py, object.hasattr(name))?.unwrap_or(false);
    }
    if !has_protocol {
        let got = describe(object)?;
        return Err(place.invalid(py, format!("must be an array, a number or a list, got {got}")));
    }
    // Of anything else NumPy may give a copy, and the change would be lost.
    if place.is_ref() && !memory.is_some_and(|memory| is_writable(&memory)) {
        let kind = type_name(object);
        return Err(
            place.invalid(py, format!("is changed in place, so it must be a writable array, got {kind}"))
        );
    }
    let array = numpy.call_method1("asarray", (object,));
    array.map(Some).map_err(unreadable)
}

fn is_writable(memory: &Bound<'_, PyMemoryView>) -> bool {
    memory.getattr("readonly").and_then(|readonly| readonly.extract()).is_ok_and(|readonly: bool| !readonly)
}

/// Whether it is a number, text or a list of Python's own. Some of NumPy's scalars derive from these, and have a dtype of their own.
fn is_literal(object: &Bound<'_, PyAny>) -> bool {
    is_plain(object)
        || !is_scalar(object)
            && (object.is_instance_of::<PyFloat>()
                || object.is_instance_of::<PyInt>()
                || object.is_instance_of::<PyBool>()
                || object.is_instance_of::<PyComplex>()
                || object.is_instance_of::<PyList>()
                || object.is_instance_of::<PyTuple>()
                || object.is_instance_of::<PyString>()
                || object.is_instance_of::<PyBytes>())
}

/// An array that shares the memory of an object with the DLPack protocol and keeps the object's capsule.
fn from_dlpack<'py>(place: &TensorArgument<'_>, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let unreadable = |error| caused(py, place.wrong("cannot be read through DLPack"), error);
    if object.hasattr("__dlpack_device__")? {
        let device = object.call_method0("__dlpack_device__").and_then(|device| device.extract());
        let (kind, index): (i32, i32) = device.map_err(unreadable)?;
        if !READABLE_DEVICES.contains(&kind) {
            let device = match kind {
                2 => "a card".to_owned(),
                8 => "a Metal device".to_owned(),
                10 => "a ROCm device".to_owned(),
                other => format!("a device of DLPack kind {other}"),
            };
            return Err(place.invalid(
                py,
                format!("is on {device} (index {index}); ops on NumPy arrays take host memory"),
            ));
        }
    }
    let array = py.import("numpy")?.call_method1("from_dlpack", (object,));
    array.map_err(unreadable)
}

/// What an array was turned into.
pub(crate) enum Readable<'py> {
    /// An array that an op can read where it lies.
    Array(Bound<'py, PyAny>),
    /// A tensor of strings.
    Text(Tensor),
}

/// Copies an array that an op cannot read as it lies: of the other byte order, unaligned, or of text.
///
/// # Errors
/// `InvalidArgumentError` for a dtype that is not ours, and for an array that has to be changed in place.
pub(crate) fn to_readable<'py>(
    place: &TensorArgument<'_>,
    array: &Bound<'py, PyAny>,
) -> PyResult<Readable<'py>> {
    if place.is_ref() && is_number(array)? {
        let message = "is changed in place, so it must be aligned and in native byte order; pass a copy";
        return Err(place.invalid(array.py(), message));
    }
    readable(array, |message| place.invalid(array.py(), message))
}

/// As [`to_readable`], of an array that is no op's input.
///
/// # Errors
/// `InvalidArgumentError` for a dtype that is not ours.
pub(crate) fn array_to_readable<'py>(array: &Bound<'py, PyAny>) -> PyResult<Readable<'py>> {
    let invalid = |message| to_python(array.py(), &Error::invalid_argument(format!("an array {message}")));
    readable(array, invalid)
}

/// Whether an array holds what is a number of ours, and no text.
fn is_number(array: &Bound<'_, PyAny>) -> PyResult<bool> {
    let number: i32 = array.getattr("dtype")?.getattr("num")?.extract()?;
    Ok(dtypes::from_number(array.py(), number)?.is_some())
}

fn readable<'py>(array: &Bound<'py, PyAny>, invalid: impl Fn(String) -> PyErr) -> PyResult<Readable<'py>> {
    let py = array.py();
    let dtype = array.getattr("dtype")?;
    let kind: char = dtype.getattr("kind")?.extract()?;
    if matches!(kind, 'U' | 'S' | 'O' | 'T') {
        return to_text(array, invalid).map(Readable::Text);
    }
    if !is_number(array)? {
        return Err(invalid(format!("has dtype {dtype}, which no op takes")));
    }
    let numpy = py.import("numpy")?;
    let options = PyDict::new(py);
    options.set_item("dtype", dtype.call_method1("newbyteorder", ("=",))?)?;
    options.set_item("order", "C")?;
    numpy.call_method("array", (array,), Some(&options)).map(Readable::Array)
}

fn to_text(array: &Bound<'_, PyAny>, invalid: impl Fn(String) -> PyErr) -> PyResult<Tensor> {
    let py = array.py();
    let shape: Vec<usize> = array.getattr("shape")?.extract()?;
    let elements = array.call_method0("ravel")?.call_method0("tolist")?;
    let mut texts = Vec::new();
    for (at, element) in elements.try_iter()?.enumerate() {
        let element = element?;
        let Some(text) = text_to_bytes(&element)? else {
            let got = describe(&element)?;
            let message = format!(
                "holds Python objects; element {at} must be text (str) or bytes, got {got}; numbers need a dtype of \
                 theirs, such as `.astype(float)` gives"
            );
            return Err(invalid(message));
        };
        memory::reserve(&mut texts, 1, "a tensor of text").map_err(|error| to_python(py, &error))?;
        texts.push(text);
    }
    Tensor::from_strings(&texts, &shape).map_err(|error| to_python(py, &error))
}

/// A literal and the array that NumPy makes of it when nothing else is said.
pub(crate) struct Natural<'py> {
    literal: Bound<'py, PyAny>,
    array: Bound<'py, PyAny>,
    /// The dtype that NumPy gives it; `None` for one that no op takes.
    pub(crate) dtype: Option<DType>,
    /// Whether it is a list without elements, which says nothing of their dtype.
    pub(crate) is_empty: bool,
}

impl<'py> Natural<'py> {
    /// # Errors
    /// `InvalidArgumentError` for nested lists of different lengths.
    pub(crate) fn new(place: &TensorArgument<'_>, literal: Bound<'py, PyAny>) -> PyResult<Natural<'py>> {
        let py = literal.py();
        let array = from_any(&literal, None).or_else(|error| {
            // A list of `bytes` and `str` would have to be ASCII.
            let is_text = error.is_instance_of::<PyUnicodeError>(py);
            if is_text { py.import("numpy")?.call_method1("asarray", (&literal, "O")) } else { Err(error) }
        });
        let array = array.map_err(|error| caused(py, place.wrong("cannot be read as an array"), error))?;
        let (dtype, is_empty) = match look(py, &array.as_borrowed()) {
            Look::Ready(elements) => (Some(elements.dtype()), elements.is_empty()),
            _ => {
                let size: usize = array.getattr("size")?.extract()?;
                (our_dtype(&array.getattr("dtype")?)?, size == 0)
            }
        };
        Ok(Natural { literal, array, dtype, is_empty })
    }

    /// The dtype that NumPy gives all of them together.
    pub(crate) fn common<'a>(naturals: impl Iterator<Item = &'a Natural<'py>>) -> PyResult<Option<DType>>
    where
        'py: 'a,
    {
        let all: Vec<&Natural<'py>> = naturals.collect();
        let Some(first) = all.first() else { return Ok(None) };
        if first.dtype != Some(DType::String) && all.iter().all(|natural| natural.dtype == first.dtype) {
            return Ok(first.dtype);
        }
        let py = first.array.py();
        let dtypes =
            all.iter().map(|natural| natural.array.getattr("dtype")).collect::<PyResult<Vec<_>>>()?;
        let common = py.import("numpy")?.call_method1("result_type", PyTuple::new(py, dtypes)?)?;
        our_dtype(&common)
    }

    /// The literal as an array of `dtype`; as NumPy makes it where none is given.
    ///
    /// # Errors
    /// `InvalidArgumentError` for values that `dtype` cannot hold: floats for integers, numbers out of range.
    pub(crate) fn into_array(
        self,
        place: &TensorArgument<'_>,
        dtype: Option<DType>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = self.array.py();
        let (Some(natural), Some(dtype)) = (self.dtype, dtype) else {
            let dtype = self.array.getattr("dtype")?;
            return Err(place.invalid(py, format!("has values of dtype {dtype}, which no op takes")));
        };
        if natural == dtype && dtype != DType::String {
            return Ok(self.array);
        }
        if !fits(natural, dtype) && !self.is_empty {
            return Err(place.invalid(py, format!("must be {dtype}, got {}", describe(&self.literal)?)));
        }
        let array = match dtype {
            // Arrays of fixed-width text drop NULs at the end.
            DType::String => py.import("numpy")?.call_method1("asarray", (&self.literal, "O")),
            _ => from_any(&self.literal, Some(dtype)),
        };
        let array = array.map_err(|error| caused(py, place.wrong(format!("cannot be {dtype}")), error))?;
        if is_integer(dtype) && !self.is_empty && !equal(&array, &self.array)? {
            let got = describe(&self.literal)?;
            return Err(place.invalid(py, format!("must be {dtype}, which cannot hold {got}")));
        }
        Ok(array)
    }
}

fn equal(left: &Bound<'_, PyAny>, right: &Bound<'_, PyAny>) -> PyResult<bool> {
    left.py().import("numpy")?.call_method1("array_equal", (left, right))?.extract()
}

/// Our dtype for a NumPy dtype object; text is `string`, and so are objects, which may be text.
fn our_dtype(dtype: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    let kind: char = dtype.getattr("kind")?.extract()?;
    if matches!(kind, 'U' | 'S' | 'O') {
        return Ok(Some(DType::String));
    }
    dtypes::from_number(dtype.py(), dtype.getattr("num")?.extract()?)
}

/// Whether literals that NumPy makes `natural` may become `dtype`: no fraction, no imaginary part and no text is lost.
pub(crate) fn fits(natural: DType, dtype: DType) -> bool {
    match (rank(natural), rank(dtype)) {
        (Some(natural), Some(dtype)) => natural <= dtype,
        _ => natural == dtype,
    }
}

/// Truth values, integers, floats, complex numbers: each can hold those before.
fn rank(dtype: DType) -> Option<u8> {
    match dtype {
        DType::Bool => Some(0),
        dtype if is_integer(dtype) => Some(1),
        DType::Float16 | DType::BFloat16 | DType::Float32 | DType::Float64 => Some(2),
        DType::Complex64 | DType::Complex128 => Some(3),
        _ => None,
    }
}

fn is_integer(dtype: DType) -> bool {
    opsmith_core::dtype::sets::INTEGER.contains(&dtype)
}
