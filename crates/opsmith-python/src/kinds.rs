//! What kind of thing a type is, told from its name once and remembered.

use opsmith_core::fork::Mutex;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyList, PyType, PyTypeMethods};

use crate::array::is_scalar;
use crate::errors::unless_refused;

/// The packages whose tensors are not ours to read: the fallback of an op takes them.
/// The outputs of our own graphs are among them, and arrays that are lazy or have names.
const FRAMEWORKS: [&str; 7] = ["torch", "tensorflow", "jax", "jaxlib", "dask", "xarray", "opsmith"];

/// How many types are remembered; programs have few that are passed to ops.
const MOST: usize = 64;

/// Types that belong to a framework, kept alive so that their addresses stay theirs.
static FOREIGN: Mutex<Vec<Py<PyType>>> = Mutex::new(Vec::new());

/// Whether `object` is a `float`, an `int` or a `list`, of no class derived from them: the usual cases, told soonest.
pub(crate) fn is_plain(object: &Bound<'_, PyAny>) -> bool {
    object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyList>()
}

/// Whether `object` is a framework's tensor, or of a class derived from one.
///
/// # Errors
/// What the class raises that is no answer.
pub(crate) fn is_foreign(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if is_plain(object) || is_scalar(object) {
        return Ok(false);
    }
    // SAFETY: every object has a type.
    let address = unsafe { ffi::Py_TYPE(object.as_ptr()) };
    let known = |kind: &Py<PyType>| kind.as_ptr().cast() == address;
    if FOREIGN.lock().iter().any(known) {
        return Ok(true);
    }
    let kind = object.get_type();
    for class in kind.mro() {
        let module = class.getattr("__module__").and_then(|module| module.extract::<String>());
        let module = unless_refused(object.py(), module)?.unwrap_or_default();
        if module.split('.').next().is_some_and(|root| FRAMEWORKS.contains(&root)) {
            let kind = kind.unbind();
            let mut foreign = FOREIGN.lock();
            // One that is not kept is dropped when the lock is not held any more.
            let _more = if foreign.len() < MOST {
                foreign.push(kind);
                None
            } else {
                Some(kind)
            };
            drop(foreign);
            return Ok(true);
        }
    }
    Ok(false)
}
