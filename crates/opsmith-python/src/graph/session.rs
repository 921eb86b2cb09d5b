//! Sessions.

use std::num::NonZeroUsize;

use opsmith_runtime::{SessionOptions, Tensor};
use pyo3::prelude::*;

use super::tensors::{lent, to_array};
use super::{Graph, GraphOperation, GraphOutput, all, save};
use crate::errors::to_python;
use crate::python_values::{FilePath, text_from_bytes};

/// Runs a graph and keeps its variables.
#[pyclass(frozen, module = "opsmith._native")]
pub(crate) struct GraphSession {
    session: opsmith_runtime::Session,
}

/// What a traced run says beside its values: Chrome's JSON, and a table.
type Traced<'py> = Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>;

#[pymethods]
impl GraphSession {
    #[new]
    fn new(
        graph: &Graph,
        parallel: bool,
        simplify: bool,
        fuse: bool,
        threads: Option<NonZeroUsize>,
        allow_soft_placement: bool,
    ) -> GraphSession {
        let options = SessionOptions { parallel, simplify, fuse, threads, allow_soft_placement };
        GraphSession { session: opsmith_runtime::Session::with_options(&graph.graph, options) }
    }

    /// The values of the fetches, as arrays.
    fn run<'py>(
        &self,
        py: Python<'py>,
        fetches: Vec<PyRef<'py, GraphOutput>>,
        targets: Vec<PyRef<'py, GraphOperation>>,
        feeds: Vec<(PyRef<'py, GraphOutput>, Bound<'py, PyAny>)>,
        traced: bool,
    ) -> PyResult<(Vec<Bound<'py, PyAny>>, Traced<'py>)> {
        let values = feeds.iter().map(|(_, value)| lent(value)).collect::<PyResult<Vec<Tensor>>>()?;
        let fetches = all(&fetches);
        let targets: Vec<_> = targets.iter().map(|target| target.operation.clone()).collect();
        let fed: Vec<_> = feeds.iter().map(|(output, _)| output.output.clone()).collect();
        let outcome = py.detach(|| {
            let mut runner = self.session.runner();
            runner = fetches.iter().fold(runner, |runner, fetch| runner.fetch(fetch));
            runner = targets.iter().fold(runner, |runner, target| runner.target(target));
            runner = fed.iter().zip(&values).fold(runner, |runner, (fed, value)| runner.feed(fed, value));
            if traced { runner.traced().run() } else { runner.run() }
        });
        let outcome = outcome.map_err(|error| to_python(py, &error))?;
        let arrays = outcome.outputs.into_iter().map(|tensor| to_array(py, tensor));
        let text = |text: String| text_from_bytes(py, text.as_bytes());
        let trace = match outcome.trace {
            Some(trace) => Some((text(trace.to_chrome_json())?, text(trace.to_string())?)),
            None => None,
        };
        Ok((arrays.collect::<PyResult<_>>()?, trace))
    }

    fn initialize(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.session.initialize()).map_err(|error| to_python(py, &error))
    }

    /// With outputs only the variables that these need.
    fn save(
        &self,
        py: Python<'_>,
        path: FilePath,
        outputs: Option<Vec<PyRef<'_, GraphOutput>>>,
    ) -> PyResult<()> {
        save(py, outputs, |outputs| match outputs {
            None => self.session.save(path.0),
            Some(outputs) => self.session.save_for(path.0, outputs),
        })
    }

    fn restore(&self, py: Python<'_>, path: FilePath) -> PyResult<()> {
        py.detach(|| self.session.restore(path.0)).map_err(|error| to_python(py, &error))
    }

    /// How many bytes tensors take now, and the most that they took.
    fn memory_use(&self) -> (usize, usize) {
        let memory = self.session.memory_use();
        (memory.live, memory.peak)
    }

    fn reset_peak_memory(&self) {
        self.session.reset_peak_memory();
    }
}
