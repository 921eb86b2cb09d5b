//! Derivatives and optimisers.

use opsmith_core::Error;
use opsmith_runtime::{Adam, GradientDescent, Momentum, Optimizer, Output, Variable};
use pyo3::prelude::*;

use super::{GraphOperation, GraphOutput};
use crate::errors::to_python;

/// The gradients of the sum of the ys with respect to each x; None where there is none.
#[pyfunction]
pub(crate) fn gradients(
    py: Python<'_>,
    ys: Vec<PyRef<'_, GraphOutput>>,
    xs: Vec<PyRef<'_, GraphOutput>>,
    grad_ys: Option<Vec<PyRef<'_, GraphOutput>>>,
) -> PyResult<Vec<Option<GraphOutput>>> {
    let ys: Vec<&Output> = ys.iter().map(|y| &y.output).collect();
    let xs: Vec<&Output> = xs.iter().map(|x| &x.output).collect();
    let grad_ys: Option<Vec<&Output>> =
        grad_ys.as_ref().map(|grad_ys| grad_ys.iter().map(|grad_y| &grad_y.output).collect());
    let found = opsmith_runtime::gradients(&ys, &xs, grad_ys.as_deref());
    let found = found.map_err(|error| to_python(py, &error))?;
    Ok(found.into_iter().map(|gradient| gradient.map(|output| GraphOutput { output })).collect())
}

/// The node that takes a step towards a smaller loss: by the optimiser of this name, with these numbers.
#[pyfunction]
pub(crate) fn minimize(
    py: Python<'_>,
    optimizer: &str,
    numbers: Vec<f64>,
    loss: &GraphOutput,
    variables: Option<Vec<PyRef<'_, GraphOutput>>>,
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
    let made = match variables {
        None => optimizer.minimize(&loss.output),
        Some(variables) => variables
            .iter()
            .map(|variable| Variable::from_output(&variable.output))
            .collect::<opsmith_core::Result<Vec<_>>>()
            .and_then(|variables| optimizer.minimize_with(&loss.output, &variables)),
    };
    made.map(|operation| GraphOperation { operation }).map_err(|error| to_python(py, &error))
}
