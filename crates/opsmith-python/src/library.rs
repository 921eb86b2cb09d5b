//! `Library`: a loaded library as a Python object.

use pyo3::prelude::*;

use crate::errors::to_python;
use crate::op::Op;
use crate::python_values::{FilePath, text_from_bytes};

/// Loads the library of operators in the file `path`.
///
/// The same file gives the same library. Raises NotFoundError when there is no such file, InvalidArgumentError when it is
/// not a library of operators, FailedPreconditionError when it is of another version of the ABI, and AlreadyExistsError
/// when another file defines a library of this name differently.
#[pyfunction]
pub(crate) fn open(py: Python<'_>, path: FilePath) -> PyResult<Library> {
    let opened = py.detach(|| opsmith_runtime::Library::open(path.0));
    opened.map(|library| Library { library }).map_err(|error| to_python(py, &error))
}

/// Looks at the file `path` without opening it.
///
/// Raises what `open` raises, as far as that can be told from the file alone.
#[pyfunction]
pub(crate) fn check(py: Python<'_>, path: FilePath) -> PyResult<()> {
    opsmith_runtime::Library::check(path.0).map_err(|error| to_python(py, &error))
}

/// The library of the standard operators, which is part of the engine.
#[pyfunction]
pub(crate) fn standard(py: Python<'_>) -> PyResult<Library> {
    let library = opsmith_runtime::Library::standard();
    library.map(|library| Library { library }).map_err(|error| to_python(py, &error))
}

/// A library of operators that was loaded from a file.
#[pyclass(frozen, module = "opsmith._native")]
pub(crate) struct Library {
    pub(crate) library: opsmith_runtime::Library,
}

#[pymethods]
impl Library {
    /// The file, with symbolic links resolved.
    #[getter]
    fn path(&self) -> String {
        self.library.path().to_string_lossy().into_owned()
    }

    /// What tells this build of the library from others: size and time of its file when it was opened.
    #[getter]
    fn build(&self) -> &str {
        self.library.build()
    }

    /// The library's name, the namespace of its ops.
    #[getter]
    fn name(&self) -> &str {
        self.library.name()
    }

    /// The library's version, as its author gives it.
    #[getter]
    fn version(&self) -> &str {
        self.library.version()
    }

    /// The library as JSON: its ops, their arguments, attributes, shapes, gradients and kernels.
    fn describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        text_from_bytes(py, self.library.description().as_bytes())
    }

    /// How many ops it has.
    fn __len__(&self) -> usize {
        self.library.num_ops()
    }

    /// The op at a position, or of a name.
    fn op(&self, py: Python<'_>, op: OpKey) -> PyResult<Op> {
        let found = match op {
            OpKey::Index(index) => self.library.op_at(index),
            OpKey::Name(name) => self.library.op(&name),
        };
        found.map(Op::new).map_err(|error| to_python(py, &error))
    }

    /// Registers the ops with a framework of this process, "torch" or "tensorflow". Doing it twice is fine.
    fn register_framework(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        py.detach(|| self.library.register_framework(name)).map_err(|error| to_python(py, &error))
    }

    /// Infers the shapes of an op's outputs; request and response are JSON.
    fn infer_shapes<'py>(
        &self,
        py: Python<'py>,
        op: usize,
        request_json: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let response = self.library.op_at(op).and_then(|op| op.infer_shapes_json(request_json));
        text_from_bytes(py, response.map_err(|error| to_python(py, &error))?.as_bytes())
    }

    /// Tells what an op's kernel is made of; request and response are JSON.
    fn explain<'py>(&self, py: Python<'py>, op: usize, request_json: &str) -> PyResult<Bound<'py, PyAny>> {
        let response = self.library.op_at(op).and_then(|op| op.explain_json(request_json));
        text_from_bytes(py, response.map_err(|error| to_python(py, &error))?.as_bytes())
    }

    fn __repr__(&self) -> String {
        format!("<opsmith library {} {} from {}>", self.library.name(), self.library.version(), self.path())
    }
}

/// How an op is named.
#[derive(FromPyObject)]
enum OpKey {
    Index(usize),
    Name(String),
}
