//! Errors of the engine as the exceptions of `opsmith._errors`.

use opsmith_core::{Code, Error};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// The module that defines the exception classes, one for each code that has its own.
static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

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

/// The Python exception for an error: its message whole, its code as the attribute `code`.
pub(crate) fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    let raise = || -> PyResult<PyErr> {
        let module =
            ERRORS.get_or_try_init(py, || PyModule::import(py, "opsmith._errors").map(Bound::unbind))?;
        let class = module.bind(py).getattr(class_name(error.code()))?;
        let exception = class.call1((error.message(),))?;
        if class_name(error.code()) == "Error" {
            exception.setattr("code", error.code().name())?;
        }
        Ok(PyErr::from_value(exception))
    };
    raise().unwrap_or_else(|failure| failure)
}

/// An `InvalidArgument` with the message of a Python exception that `context` led to.
pub(crate) fn invalid(py: Python<'_>, context: impl std::fmt::Display, cause: PyErr) -> PyErr {
    let error = Error::invalid_argument(format!("{context}: {}", cause.value(py)));
    let exception = to_python(py, &error);
    exception.set_cause(py, Some(cause));
    exception
}
