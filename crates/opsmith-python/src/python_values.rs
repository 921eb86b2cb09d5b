//! Small conversions between Python's values and ours.

use std::ops::Deref;
use std::path::PathBuf;

use opsmith_core::Error;
use pyo3::exceptions::PyUnicodeEncodeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use opsmith_core::memory;

use crate::errors::{caused, to_python, unless_refused};

/// How text that is not UTF-8 goes through Python's `str` and back without loss.
const ERRORS: &std::ffi::CStr = c"surrogateescape";

/// The bytes as `str`; what is not UTF-8 becomes lone surrogates, as in Python's file names. A `String` that is returned would be
/// a panic where there is no memory for the object.
pub(crate) fn text_from_bytes<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the bytes are readable; the result is a new reference or an error.
    unsafe {
        let text = ffi::PyUnicode_DecodeUTF8(bytes.as_ptr().cast(), bytes.len() as isize, ERRORS.as_ptr());
        Bound::from_owned_ptr_or_err(py, text)
    }
}

/// The bytes of a `str` (the inverse of [`text_from_bytes`]) or `bytes`; `None` for any other object, and for text with
/// half of a surrogate pair, which is the text of no bytes.
pub(crate) fn text_to_bytes(object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    let copy = |bytes: &[u8]| {
        let copy = memory::copied(bytes, "text");
        copy.map(Some).map_err(|error| to_python(object.py(), &error))
    };
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return copy(bytes.as_bytes());
    }
    let Ok(text) = object.cast::<PyString>() else { return Ok(None) };
    match text.to_str() {
        Ok(text) => copy(text.as_bytes()),
        Err(error) if error.is_instance_of::<PyUnicodeEncodeError>(object.py()) => {
            match text.call_method1("encode", ("utf-8", "surrogateescape")) {
                Ok(bytes) => copy(bytes.cast_into::<PyBytes>()?.as_bytes()),
                Err(error) if error.is_instance_of::<PyUnicodeEncodeError>(object.py()) => Ok(None),
                Err(error) => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// A name: a `str` that is UTF-8. Anything else is an `InvalidArgumentError`.
pub(crate) struct Text(String);

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'py> FromPyObject<'_, 'py> for Text {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Text> {
        match unless_refused(object.py(), object.extract())? {
            Some(text) => Ok(Text(text)),
            None => {
                let message = format!("a name or dtype must be UTF-8 text, got {}", describe(&object)?);
                Err(to_python(object.py(), &Error::invalid_argument(message)))
            }
        }
    }
}

/// The path of a file: a `str` or `os.PathLike`. Anything else is an `InvalidArgumentError`.
pub(crate) struct FilePath(pub(crate) PathBuf);

impl<'py> FromPyObject<'_, 'py> for FilePath {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<FilePath> {
        let path = object.extract();
        match path {
            Ok(path) => Ok(FilePath(path)),
            Err(error) => {
                let context = format!("{} cannot be the path of a file", describe(&object)?);
                Err(caused(object.py(), Error::invalid_argument(context), error))
            }
        }
    }
}

/// What an object is, for a message: `'abc' (str)`; shortened where its text is long.
///
/// # Errors
/// What its `__repr__` raises that is no answer.
pub(crate) fn describe(object: &Bound<'_, PyAny>) -> PyResult<String> {
    const LONGEST: usize = 60;
    let kind = type_name(object);
    let Some(text) = unless_refused(object.py(), object.repr())? else { return Ok(kind) };
    let text = text.to_string_lossy();
    let mut short: String = text.chars().take(LONGEST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    Ok(format!("{short} ({kind})"))
}

/// The name of an object's type.
pub(crate) fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string_lossy().into_owned())
}
