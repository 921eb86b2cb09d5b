//! Derivatives and optimisers.

use opsmith_core::Error;
use opsmith_runtime::{
    Adam, Compose, GradientDescent, Momentum, Operation, Optimizer, Output, Variable, gradients_with,
    jvp_with,
};
use pyo3::prelude::*;

use super::{GraphOperation, GraphOutput};
use crate::errors::to_python;

/// Runs `work` with what asks `compose`, a function of Python, for the gradients of ops that declare none: of a node and
/// a list of the gradients that have arrived, some of them None, which gives such a list for the inputs, or None.
fn composing<T>(
    py: Python<'_>,
    compose: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&mut Compose<'_>) -> opsmith_core::Result<T>,
) -> PyResult<T> {
    let mut raised = None;
    let done = work(&mut |operation, gradients| {
        let Some(compose) = compose else { return Ok(None) };
        ask(compose, operation, gradients).map_err(|error| {
            let message = error.to_string();
            raised = Some(error);
            Error::internal(message)
        })
    });
    match raised {
        // The exception itself, not what is made of it.
        Some(error) => Err(error),
        None => done.map_err(|error| to_python(py, &error)),
    }
}

fn ask(
    compose: &Bound<'_, PyAny>,
    operation: &Operation,
    gradients: &[Option<Output>],
) -> PyResult<Option<Vec<Option<Output>>>> {
    let handle = |output: &Option<Output>| output.clone().map(|output| GraphOutput { output });
    let gradients: Vec<Option<GraphOutput>> = gradients.iter().map(handle).collect();
    let answer = compose.call1((GraphOperation { operation: operation.clone() }, gradients))?;
    let found: Option<Vec<Option<PyRef<'_, GraphOutput>>>> = answer.extract()?;
    let output = |handle: Option<PyRef<'_, GraphOutput>>| handle.map(|handle| handle.output.clone());
    Ok(found.map(|found| found.into_iter().map(output).collect()))
}

/// The gradients of the sum of the ys with respect to each x; None where there is none.
#[pyfunction]
#[pyo3(signature = (ys, xs, grad_ys, compose=None))]
pub(crate) fn gradients(
    py: Python<'_>,
    ys: Vec<PyRef<'_, GraphOutput>>,
    xs: Vec<PyRef<'_, GraphOutput>>,
    grad_ys: Option<Vec<PyRef<'_, GraphOutput>>>,
    compose: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<Option<GraphOutput>>> {
    let (ys, xs, grad_ys) = (handled(&ys), handled(&xs), grad_ys.as_deref().map(handled));
    let found = composing(py, compose, |compose| gradients_with(&ys, &xs, grad_ys.as_deref(), compose))?;
    Ok(found.into_iter().map(|gradient| gradient.map(|output| GraphOutput { output })).collect())
}

/// The derivatives of outputs along tangents, one for each input.
#[pyfunction]
#[pyo3(signature = (outputs, inputs, tangents, compose=None))]
pub(crate) fn jvp(
    py: Python<'_>,
    outputs: Vec<PyRef<'_, GraphOutput>>,
    inputs: Vec<PyRef<'_, GraphOutput>>,
    tangents: Vec<PyRef<'_, GraphOutput>>,
    compose: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<GraphOutput>> {
    let (ys, xs, tangents) = (handled(&outputs), handled(&inputs), handled(&tangents));
    let found = composing(py, compose, |compose| jvp_with(&ys, &xs, &tangents, compose))?;
    Ok(found.into_iter().map(|output| GraphOutput { output }).collect())
}

fn handled<'a>(handles: &'a [PyRef<'_, GraphOutput>]) -> Vec<&'a Output> {
    handles.iter().map(|handle| &handle.output).collect()
}

/// The node that takes a step towards a smaller loss: by the optimiser of this name, with these numbers.
#[pyfunction]
#[pyo3(signature = (optimizer, numbers, loss, variables, compose=None))]
pub(crate) fn minimize(
    py: Python<'_>,
    optimizer: &str,
    numbers: Vec<f64>,
    loss: &GraphOutput,
    variables: Option<Vec<PyRef<'_, GraphOutput>>>,
    compose: Option<&Bound<'_, PyAny>>,
) -> PyResult<GraphOperation> {
    let optimizer: Box<dyn Optimizer> = match (optimizer, numbers.as_slice()) {
        ("GradientDescent", &[learning_rate]) => Box::new(GradientDescent { learning_rate }),
        ("Momentum", &[learning_rate, momentum]) => Box::new(Momentum { learning_rate, momentum }),
        ("Adam", &[learning_rate, beta1, beta2, epsilon]) => {
            Box::new(Adam { learning_rate, beta1, beta2, epsilon })
        }
        _ => {
            let message = format!("there is no optimiser `{optimizer}` of {} numbers", numbers.len());
            return Err(to_python(py, &Error::invalid_argument(message)));
        }
    };
    let variables = match variables {
        None => loss.output.graph().variables(),
        Some(variables) => variables
            .iter()
            .map(|variable| Variable::from_output(&variable.output))
            .collect::<opsmith_core::Result<_>>()
            .map_err(|error| to_python(py, &error))?,
    };
    let operation =
        composing(py, compose, |compose| optimizer.minimize_composed(&loss.output, &variables, compose))?;
    Ok(GraphOperation { operation })
}
