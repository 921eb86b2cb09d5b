//! What kind of thing a type is, told from its name once and remembered.

use std::sync::{Mutex, PoisonError};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyType, PyTypeMethods};

/// The packages whose tensors are not ours to read: the fallback of an op takes them.
/// The outputs of our own graphs are among them.
const FRAMEWORKS: [&str; 5] = ["torch", "tensorflow", "jax", "jaxlib", "opsmith"];

/// How many types are remembered; programs have few that are passed to ops.
const MOST: usize = 64;

/// Types that belong to a framework, kept alive so that their addresses stay theirs.
static FOREIGN: Mutex<Vec<Py<PyType>>> = Mutex::new(Vec::new());

/// Whether `object` is a framework's tensor, or of a class derived from one.
pub(crate) fn is_foreign(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: every object has a type.
    let address = unsafe { ffi::Py_TYPE(object.as_ptr()) };
    let known = |kind: &Py<PyType>| kind.as_ptr().cast() == address;
    if FOREIGN.lock().unwrap_or_else(PoisonError::into_inner).iter().any(known) {
        return true;
    }
    let kind = object.get_type();
    let is_foreign = kind.mro().iter().any(|class| belongs_to_framework(&class));
    if is_foreign {
        let mut foreign = FOREIGN.lock().unwrap_or_else(PoisonError::into_inner);
        if foreign.len() < MOST {
            foreign.push(kind.unbind());
        }
    }
    is_foreign
}

fn belongs_to_framework(class: &Bound<'_, PyAny>) -> bool {
    let Ok(module) = class.getattr("__module__").and_then(|module| module.extract::<String>()) else {
        return false;
    };
    let root = module.split('.').next().unwrap_or_default();
    FRAMEWORKS.contains(&root)
}
