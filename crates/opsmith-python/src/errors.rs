//! Errors of the engine as the exceptions of `opsmith._errors`.

use std::sync::OnceLock;

use opsmith_core::fork::set_or_get;
use opsmith_core::{Code, Error};
use pyo3::exceptions::{PyException, PyMemoryError, PyRecursionError};
use pyo3::prelude::*;

/// The module that defines the exception classes, one for each code that has its own. No thread waits for another one that
/// imports it: in a forked child it would for ever.
static ERRORS: OnceLock<Py<PyModule>> = OnceLock::new();

/// The name of the exception class for a code; the base class serves for the rest.
fn class_name(code: Code) -> &'static str {
    match code {
        Code::InvalidArgument => "InvalidArgumentError",
        Code::NotFound => "NotFoundError",
        Code::OutOfRange => "OutOfRangeError",
        Code::Unimplemented => "UnimplementedError",
        Code::ResourceExhausted => "ResourceExhaustedError",
        Code::FailedPrecondition => "FailedPreconditionError",
        Code::AlreadyExists => "AlreadyExistsError",
        Code::Internal => "InternalError",
        _ => "Error",
    }
}

/// The Python exception for an error: its message whole, and its fields as attributes.
pub(crate) fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    let raise = || -> PyResult<PyErr> {
        let module = match ERRORS.get() {
            Some(module) => module,
            None => set_or_get(&ERRORS, PyModule::import(py, "opsmith._errors")?.unbind()),
        };
        let class = module.bind(py).getattr(class_name(error.code()))?;
        let exception = class.call1((error.message(),))?;
        if class_name(error.code()) == "Error" {
            exception.setattr("code", error.code().name())?;
        }
        if let Some(op) = error.op() {
            exception.setattr("op", op)?;
            exception.setattr("_text", error.text())?;
        }
        if let Some(argument) = error.argument() {
            exception.setattr("argument", argument)?;
        }
        Ok(PyErr::from_value(exception))
    };
    raise().unwrap_or_else(|failure| failure)
}

/// Whether an exception says of a value that it will not do. Others are no answer, and reach the caller as they are: an
/// interrupt, an exit, too little memory.
fn is_about_value(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyException>(py)
        && !error.is_instance_of::<PyMemoryError>(py)
        && !error.is_instance_of::<PyRecursionError>(py)
}

/// What code of the user's gave, or nothing where it raised that a value will not do.
///
/// # Errors
/// Any other exception of it.
pub(crate) fn unless_refused<T>(py: Python<'_>, result: PyResult<T>) -> PyResult<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_about_value(py, &error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// An error with the message of the Python exception that led to it behind its own; an exception that is about no value as it
/// is.
pub(crate) fn caused(py: Python<'_>, error: Error, cause: PyErr) -> PyErr {
    if !is_about_value(py, &cause) {
        return cause;
    }
    let error = error.with_text(|text| format!("{text}: {}", cause.value(py)));
    let exception = to_python(py, &error);
    exception.set_cause(py, Some(cause));
    exception
}
