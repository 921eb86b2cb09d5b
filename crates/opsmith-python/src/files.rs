//! Files whose paths callers give, and folders that code is taken from.

use opsmith_core::Error;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::to_python;
use crate::python_values::FilePath;

/// The environment variable that says where just-in-time builds are kept.
const CACHE: &str = "OPSMITH_CACHE_DIR";

/// Reads a whole regular file, of at most `most` bytes.
///
/// Raises NotFoundError when there is no such file, InvalidArgumentError when it is a pipe, a device or a folder or has more
/// bytes, and ResourceExhaustedError when there is no memory for them.
#[pyfunction]
#[pyo3(signature = (path, most = u64::MAX))]
pub(crate) fn read_file(py: Python<'_>, path: FilePath, most: u64) -> PyResult<Bound<'_, PyBytes>> {
    let bytes = told(py, py.detach(|| opsmith_files::read(&path.0, most)))?;
    PyBytes::new_with(py, bytes.len(), |room| {
        room.copy_from_slice(&bytes);
        Ok(())
    })
}

/// Checks that nobody but this process's user and root can change what is at a path of the cache, or, with `tree`, in a folder
/// of it. Raises Error, whose code is PermissionDenied, with the path, its owner and mode.
#[pyfunction]
#[pyo3(signature = (path, tree = false))]
pub(crate) fn check_own(py: Python<'_>, path: FilePath, tree: bool) -> PyResult<()> {
    let check = if tree { opsmith_files::check_own_tree } else { opsmith_files::check_own };
    told(py, py.detach(|| check(&path.0, CACHE)))
}

fn told<T>(py: Python<'_>, result: Result<T, Error>) -> PyResult<T> {
    result.map_err(|error| to_python(py, &error))
}
