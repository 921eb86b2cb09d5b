//! Nodes of a graph and their outputs.

use opsmith_core::Dim;
use pyo3::prelude::*;

use super::Graph;
use crate::errors::to_python;
use crate::python_values::text_from_bytes;

/// A node of a graph.
#[pyclass(frozen, module = "opsmith._native")]
pub(crate) struct GraphOperation {
    pub(crate) operation: opsmith_runtime::Operation,
}

/// One output of a node.
#[pyclass(frozen, module = "opsmith._native")]
pub(crate) struct GraphOutput {
    pub(crate) output: opsmith_runtime::Output,
}

#[pymethods]
impl GraphOperation {
    #[getter]
    fn name(&self) -> &str {
        self.operation.name()
    }

    /// The op's name, or what stands in place of one.
    #[getter]
    fn kind(&self) -> &str {
        self.operation.kind()
    }

    /// The library of the op that it calls; None where it calls none.
    #[getter]
    fn library(&self) -> Option<String> {
        self.operation.op().map(|op| op.library().name().to_owned())
    }

    /// Every attribute that callers may give, as JSON.
    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let attrs = self.operation.all_attrs().map_err(|error| to_python(py, &error))?;
        let pairs = attrs.into_iter().map(|(name, value)| (name, value.to_json()));
        text_from_bytes(py, serde_json::Value::Object(pairs.collect()).to_string().as_bytes())
    }

    /// How many of the inputs each input of the definition holds.
    #[getter]
    fn input_counts(&self) -> Vec<usize> {
        self.operation.input_counts().to_vec()
    }

    #[getter]
    fn graph(&self) -> Graph {
        Graph { graph: self.operation.graph().clone() }
    }

    /// The name of the device that it is placed on.
    #[getter]
    fn device(&self) -> String {
        self.operation.device().name()
    }

    /// The file and the line where it was made.
    #[getter]
    fn place(&self) -> (String, u32) {
        (self.operation.place().file.to_string(), self.operation.place().line)
    }

    /// The tensors that it takes; None for an optional one that is absent.
    #[getter]
    fn inputs(&self) -> Vec<Option<GraphOutput>> {
        let output = |input: Option<opsmith_runtime::Output>| input.map(|output| GraphOutput { output });
        self.operation.inputs().into_iter().map(output).collect()
    }

    #[getter]
    fn controls(&self) -> Vec<GraphOperation> {
        self.operation.controls().into_iter().map(|operation| GraphOperation { operation }).collect()
    }

    #[getter]
    fn outputs(&self) -> Vec<GraphOutput> {
        self.operation.outputs().into_iter().map(|output| GraphOutput { output }).collect()
    }

    /// How many of the outputs each output of the definition holds.
    #[getter]
    fn output_counts(&self) -> Vec<usize> {
        self.operation.output_counts().to_vec()
    }

    fn __eq__(&self, other: &GraphOperation) -> bool {
        self.operation == other.operation
    }

    fn __hash__(&self) -> u64 {
        hash(self.operation.name())
    }
}

#[pymethods]
impl GraphOutput {
    #[getter]
    fn name(&self) -> String {
        self.output.name()
    }

    #[getter]
    fn graph(&self) -> Graph {
        Graph { graph: self.output.graph().clone() }
    }

    #[getter]
    fn operation(&self) -> GraphOperation {
        GraphOperation { operation: self.output.operation().clone() }
    }

    /// The name of the device that its node is placed on.
    #[getter]
    fn device(&self) -> String {
        self.output.device().name()
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.output.dtype().name()
    }

    /// The dims, None where one is unknown; None where not even the rank is known.
    #[getter]
    fn shape(&self) -> Option<Vec<Option<u64>>> {
        self.output.shape().dims().map(|dims| dims.iter().map(Dim::value).collect())
    }

    #[getter]
    fn is_variable(&self) -> bool {
        opsmith_runtime::Variable::from_output(&self.output).is_ok()
    }

    /// The initial value of a variable.
    #[getter]
    fn initial(&self, py: Python<'_>) -> PyResult<GraphOutput> {
        opsmith_runtime::Variable::from_output(&self.output)
            .map(|variable| GraphOutput { output: variable.initial() })
            .map_err(|error| to_python(py, &error))
    }

    fn __eq__(&self, other: &GraphOutput) -> bool {
        self.output == other.output
    }

    fn __hash__(&self) -> u64 {
        hash(&self.output.name())
    }
}

fn hash(name: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}
