//! The engine's graphs and sessions as Python objects: the bare minimum, which the package `opsmith.graph` dresses.

mod card;
mod handles;
mod session;
mod sparse;
mod tensors;
mod training;

use opsmith_core::{DType, Error, Result, Shape};
use opsmith_runtime::{GraphArg, Output, SourceLine};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

pub(crate) use card::{card_memory, release_card_memory};
pub(crate) use handles::{GraphOperation, GraphOutput};
pub(crate) use session::GraphSession;
pub(crate) use sparse::{SparseTensor, check_places};
pub(crate) use training::{gradients, jvp, minimize};

use crate::attrs;
use crate::errors::to_python;
use crate::library::Library;
use crate::op::Op;
use crate::python_values::{FilePath, Text, text_from_bytes};

/// Where a node was made: the file and the line.
type PlaceArg = (String, u32);

fn place((file, line): PlaceArg) -> SourceLine {
    SourceLine { file: file.as_str().into(), line }
}

/// A graph, with the scope that new nodes are added to, and the device.
#[pyclass(frozen, module = "opsmith._native")]
pub(crate) struct Graph {
    pub(crate) graph: opsmith_runtime::Graph,
}

impl Graph {
    fn output(py: Python<'_>, made: Result<opsmith_runtime::Output>) -> PyResult<GraphOutput> {
        made.map(|output| GraphOutput { output }).map_err(|error| to_python(py, &error))
    }

    fn operation(py: Python<'_>, made: Result<opsmith_runtime::Operation>) -> PyResult<GraphOperation> {
        made.map(|operation| GraphOperation { operation }).map_err(|error| to_python(py, &error))
    }
}

/// A shape given as a list of sizes, None where one is unknown; None where nothing is known.
fn shape(dims: Option<Vec<Option<u64>>>) -> Shape {
    Shape::from(&dims)
}

#[pymethods]
impl Graph {
    #[new]
    pub(crate) fn new() -> Graph {
        Graph { graph: opsmith_runtime::Graph::new() }
    }

    /// The graph in a file; its ops are those of the standard operators and of these libraries.
    #[staticmethod]
    fn load(py: Python<'_>, path: FilePath, libraries: Vec<PyRef<'_, Library>>) -> PyResult<Graph> {
        let libraries: Vec<_> = libraries.iter().map(|library| library.library.clone()).collect();
        let loaded = py.detach(|| opsmith_runtime::Graph::load(path.0, &libraries));
        loaded.map(|graph| Graph { graph }).map_err(|error| to_python(py, &error))
    }

    /// The same graph, in which names begin with a scope's.
    fn scope(&self, py: Python<'_>, name: Text) -> PyResult<Graph> {
        self.graph.scope(&name).map(|graph| Graph { graph }).map_err(|error| to_python(py, &error))
    }

    #[getter]
    fn scope_name(&self) -> &str {
        self.graph.scope_name()
    }

    /// The same graph, in which new nodes are placed on the device of this name.
    fn device(&self, py: Python<'_>, name: Text) -> PyResult<Graph> {
        self.graph.device(&name).map(|graph| Graph { graph }).map_err(|error| to_python(py, &error))
    }

    fn is_same(&self, other: &Graph) -> bool {
        self.graph.is_same(&other.graph)
    }

    fn __len__(&self) -> usize {
        self.graph.num_nodes()
    }

    /// Every node, in the order in which they were made.
    fn operations(&self) -> Vec<GraphOperation> {
        self.graph.operations().into_iter().map(|operation| GraphOperation { operation }).collect()
    }

    /// The node of a name.
    fn find_operation(&self, py: Python<'_>, name: Text) -> PyResult<GraphOperation> {
        Graph::operation(py, self.graph.operation(&name))
    }

    /// The output of a name.
    fn find_output(&self, py: Python<'_>, name: Text) -> PyResult<GraphOutput> {
        Graph::output(py, self.graph.output(&name))
    }

    fn placeholder(
        &self,
        py: Python<'_>,
        name: Text,
        dtype: Text,
        dims: Option<Vec<Option<u64>>>,
        made_at: PlaceArg,
    ) -> PyResult<GraphOutput> {
        let known = DType::parse(&dtype).ok_or_else(|| {
            to_python(
                py,
                &Error::invalid_argument(format!("placeholder `{}`: `{}` is not a dtype", &*name, &*dtype)),
            )
        })?;
        Graph::output(py, self.graph.placeholder_at(&name, known, &shape(dims), place(made_at)))
    }

    /// A constant with a copy of an array.
    fn constant(
        &self,
        py: Python<'_>,
        name: Text,
        value: &Bound<'_, PyAny>,
        made_at: PlaceArg,
    ) -> PyResult<GraphOutput> {
        let value = tensors::copied(value)?;
        Graph::output(py, self.graph.constant_at(&name, value, place(made_at)))
    }

    fn variable(
        &self,
        py: Python<'_>,
        name: Text,
        initial: &GraphOutput,
        made_at: PlaceArg,
    ) -> PyResult<GraphOutput> {
        let variable = self.graph.variable_at(&name, &initial.output, place(made_at));
        Graph::output(py, variable.map(|variable| variable.output().clone()))
    }

    /// The variables, in the order in which they were made.
    fn variables(&self) -> Vec<GraphOutput> {
        let output = |variable: opsmith_runtime::Variable| GraphOutput { output: variable.output().clone() };
        self.graph.variables().into_iter().map(output).collect()
    }

    /// A node that makes a value that of a variable.
    fn assign(
        &self,
        py: Python<'_>,
        variable: &GraphOutput,
        value: &GraphOutput,
        made_at: PlaceArg,
    ) -> PyResult<GraphOperation> {
        let variable = opsmith_runtime::Variable::from_output(&variable.output);
        let assign = |variable| self.graph.assign_at(&variable, &value.output, place(made_at));
        Graph::operation(py, variable.and_then(assign))
    }

    fn group(
        &self,
        py: Python<'_>,
        name: Text,
        operations: Vec<PyRef<'_, GraphOperation>>,
        made_at: PlaceArg,
    ) -> PyResult<GraphOperation> {
        let operations: Vec<_> = operations.iter().map(|operation| operation.operation.clone()).collect();
        Graph::operation(py, self.graph.group_at(&name, &operations, place(made_at)))
    }

    fn initializer(&self, py: Python<'_>, made_at: PlaceArg) -> PyResult<GraphOperation> {
        Graph::operation(py, self.graph.initializer_at(place(made_at)))
    }

    /// Adds a call of an op: for each input an output, a list of outputs, or None; attributes by name.
    fn call(
        &self,
        op: &Op,
        inputs: &Bound<'_, PyTuple>,
        given: &Bound<'_, PyAny>,
        name: Option<Text>,
        after: Vec<PyRef<'_, GraphOperation>>,
        made_at: PlaceArg,
    ) -> PyResult<GraphOperation> {
        let py = inputs.py();
        let mut call = self.graph.call(op.inner()).place(place(made_at));
        for input in inputs {
            call = call.arg(argument(&input)?);
        }
        for (name, value) in attrs::read(op.inner().signature(), op.visible(), given)? {
            call = call.attr(name, value);
        }
        if let Some(name) = &name {
            call = call.name(name);
        }
        for operation in after {
            call = call.after(&operation.operation);
        }
        Graph::operation(py, call.build())
    }

    /// With outputs only what these need.
    fn save(
        &self,
        py: Python<'_>,
        path: FilePath,
        outputs: Option<Vec<PyRef<'_, GraphOutput>>>,
    ) -> PyResult<()> {
        save(py, outputs, |outputs| match outputs {
            None => self.graph.save(path.0),
            Some(outputs) => self.graph.save_for(path.0, outputs),
        })
    }

    fn to_dot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        text_from_bytes(py, self.graph.to_dot().map_err(|error| to_python(py, &error))?.as_bytes())
    }

    fn to_svg<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        text_from_bytes(py, self.graph.to_svg().map_err(|error| to_python(py, &error))?.as_bytes())
    }
}

/// The outputs that Python holds.
fn all(outputs: &[PyRef<'_, GraphOutput>]) -> Vec<Output> {
    outputs.iter().map(|output| output.output.clone()).collect()
}

/// Saves everything, or what the outputs need that Python holds.
fn save(
    py: Python<'_>,
    outputs: Option<Vec<PyRef<'_, GraphOutput>>>,
    save: impl FnOnce(Option<&[&Output]>) -> Result<()> + Send,
) -> PyResult<()> {
    let outputs = outputs.map(|outputs| all(&outputs));
    let saved = py.detach(|| {
        let outputs: Option<Vec<&Output>> = outputs.as_ref().map(|outputs| outputs.iter().collect());
        save(outputs.as_deref())
    });
    saved.map_err(|error| to_python(py, &error))
}

fn argument(input: &Bound<'_, PyAny>) -> PyResult<GraphArg> {
    if input.is_none() {
        return Ok(GraphArg::Absent);
    }
    if let Ok(list) = input.cast::<PyList>() {
        let outputs = list.iter().map(|item| Ok(item.cast::<GraphOutput>()?.get().output.clone()));
        return Ok(GraphArg::List(outputs.collect::<PyResult<_>>()?));
    }
    Ok(GraphArg::One(input.cast::<GraphOutput>()?.get().output.clone()))
}
