//! Sparse tensors: places and values of NumPy's arrays.

use pyo3::prelude::*;

use super::tensors::{copied, lent, to_array};
use crate::errors::to_python;

/// The elements that are not zero, and where they are.
#[pyclass(frozen, module = "opsmith._native")]
pub(crate) struct SparseTensor {
    tensor: opsmith_runtime::SparseTensor,
}

#[pymethods]
impl SparseTensor {
    #[new]
    fn new(
        py: Python<'_>,
        indices: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        shape: Vec<usize>,
    ) -> PyResult<SparseTensor> {
        let (indices, values) = (copied(indices)?, copied(values)?);
        let made = py.detach(|| opsmith_runtime::SparseTensor::new(indices, values, &shape));
        made.map(|tensor| SparseTensor { tensor }).map_err(|error| to_python(py, &error))
    }

    /// The elements of an array that are not zero.
    #[staticmethod]
    fn from_dense(py: Python<'_>, dense: &Bound<'_, PyAny>) -> PyResult<SparseTensor> {
        let dense = lent(dense)?;
        let made = py.detach(|| opsmith_runtime::SparseTensor::from_dense(&dense));
        made.map(|tensor| SparseTensor { tensor }).map_err(|error| to_python(py, &error))
    }

    /// Where the values are, as an array of its own.
    #[getter]
    fn indices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_array(py, self.tensor.indices().clone())
    }

    /// The values, as an array of their own.
    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_array(py, self.tensor.values().clone())
    }

    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.tensor.shape().to_vec()
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.tensor.dtype().name()
    }

    /// How many values there are.
    fn __len__(&self) -> usize {
        self.tensor.values().num_elements()
    }

    /// The array with its zeros.
    fn to_dense<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let dense = py.detach(|| self.tensor.to_dense()).map_err(|error| to_python(py, &error))?;
        to_array(py, dense)
    }

    /// The product with a matrix.
    fn matmul<'py>(&self, py: Python<'py>, dense: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let dense = lent(dense)?;
        let product = py.detach(|| self.tensor.matmul(&dense)).map_err(|error| to_python(py, &error))?;
        to_array(py, product)
    }
}

/// Makes sure that a sparse tensor of this shape may have so many values at these indices.
#[pyfunction]
pub(crate) fn check_places(
    py: Python<'_>,
    indices: &Bound<'_, PyAny>,
    count: usize,
    shape: Vec<usize>,
) -> PyResult<()> {
    let indices = lent(indices)?;
    py.detach(|| opsmith_runtime::check_places(&indices, &[count], &shape))
        .map_err(|error| to_python(py, &error))
}
