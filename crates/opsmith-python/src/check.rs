//! Property tests of ops, for `opsmith.testing`: the author's functions are Python's, everything else is `opsmith-check`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opsmith_check::{Author, Inputs, LibrarySource, Plain, Property, Row};
use opsmith_core::attr::TensorValue;
use opsmith_core::{AttrValue, DType, Error, Result};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use serde_json::{Map, Value};

use crate::attrs;
use crate::errors::to_python;

/// A tensor as it goes to Python and comes back: dtype, dims, and the elements' bytes, or for strings those of each.
type Plainly = (String, Vec<usize>, Vec<u8>, Vec<Vec<u8>>);

/// What is to be checked, and how.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct CheckOptions {
    ops: Vec<String>,
    properties: Option<Vec<String>>,
    seed: u64,
    cases: Option<u32>,
    sizes: Option<(usize, usize)>,
    rtol: Option<f64>,
    atol: Option<f64>,
    time_limit: f64,
    /// The program that calls `check_worker`, and its arguments.
    worker: (String, Vec<String>),
}

/// Answers the requests of a process that runs `check`, until there are none.
#[pyfunction]
pub(crate) fn check_worker(py: Python<'_>) -> PyResult<()> {
    py.detach(|| Ok(opsmith_check::work()?))
}

/// Checks ops of the library in the file `path`, or where that is None the standard operators. `inputs(seed, size)` gives a list for each input of tensors or None,
/// `reference(inputs, attrs)` a list of tensors or None, where a tensor is a tuple of its dtype, dims, bytes and strings, and
/// `attrs` the attributes as JSON. `attrs` has values to choose from for some attributes.
///
/// Gives the report as JSON and as a table. What the functions raise is raised.
#[pyfunction]
#[pyo3(signature = (path, options, inputs=None, reference=None, attrs=None))]
pub(crate) fn run_checks(
    py: Python<'_>,
    path: Option<PathBuf>,
    options: CheckOptions,
    inputs: Option<Py<PyAny>>,
    reference: Option<Py<PyAny>>,
    attrs: Option<Bound<'_, PyDict>>,
) -> PyResult<(String, String)> {
    let source = path.map_or(LibrarySource::Standard, LibrarySource::File);
    let choices = attrs.map(|attrs| choices(&source, &options, &attrs)).transpose()?.unwrap_or_default();
    let wanted = wanted(py, &options)?;
    let raised = Mutex::new(None);
    // What Python raises stops everything, and is raised again at the end.
    let stopped = |error: PyErr| {
        *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        Error::internal("a function of Python's raised an exception")
    };
    let (program, arguments) = (&options.worker.0, &options.worker.1);
    let report = py.detach(|| {
        let start = || {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        };
        let mut make = |seed: u64, size: u64| {
            let function =
                inputs.as_ref().map(|function| Python::attach(|py| make(py, function, seed, size)));
            function.unwrap_or_else(|| Ok(vec![])).map_err(stopped)
        };
        let mut compute = |inputs: &Inputs, attrs: &[(String, AttrValue)]| {
            let outputs =
                reference.as_ref().map(|function| Python::attach(|py| compute(py, function, inputs, attrs)));
            outputs.unwrap_or(Ok(None)).map_err(stopped)
        };
        let author = Author {
            inputs: if inputs.is_some() { Some(&mut make) } else { None },
            reference: if reference.is_some() { Some(&mut compute) } else { None },
            attrs: choices,
        };
        let mut done = |_: &Row| Python::attach(|py| py.check_signals()).map_err(stopped);
        opsmith_check::check(&source, &wanted, &start, author, &mut done)
    });
    match (raised.into_inner().unwrap_or_else(PoisonError::into_inner), report) {
        (Some(error), _) => Err(error),
        (None, Ok(report)) => Ok((report.to_json().to_string(), report.table(&Plain))),
        (None, Err(error)) => Err(to_python(py, &error)),
    }
}

fn wanted(py: Python<'_>, options: &CheckOptions) -> PyResult<opsmith_check::Options> {
    let defaults = opsmith_check::Options::default();
    let property = |name: &String| {
        Property::ALL.into_iter().find(|property| property.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Property::ALL.iter().map(|property| property.name()).collect();
            let message = format!("there is no property `{name}`; there are {}", names.join(", "));
            to_python(py, &Error::invalid_argument(message))
        })
    };
    let properties = match &options.properties {
        Some(names) => names.iter().map(property).collect::<PyResult<_>>()?,
        None => defaults.properties.clone(),
    };
    let limit = Duration::try_from_secs_f64(options.time_limit).map_err(|error| {
        to_python(py, &Error::invalid_argument(format!("`time_limit` is {}: {error}", options.time_limit)))
    })?;
    Ok(opsmith_check::Options {
        ops: options.ops.clone(),
        properties,
        seed: options.seed,
        cases: options.cases,
        sizes: options.sizes,
        relative: options.rtol,
        absolute: options.atol,
        limit,
        ..defaults
    })
}

/// The attributes' values to choose from, of the type that the definition says.
fn choices(
    source: &LibrarySource,
    options: &CheckOptions,
    given: &Bound<'_, PyDict>,
) -> PyResult<Vec<(String, Vec<AttrValue>)>> {
    let py = given.py();
    let op = options.ops.first().map_or("", String::as_str);
    let op = source.open().and_then(|library| library.op(op));
    let op = op.map_err(|error| to_python(py, &error))?;
    let one = |(name, values): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let mut choices = Vec::new();
        for value in values.try_iter()? {
            let named = PyDict::new(py);
            named.set_item(&name, value?)?;
            choices.extend(
                attrs::read(op.signature(), &[], named.as_any())?.into_iter().map(|(_, value)| value),
            );
        }
        if choices.is_empty() {
            let message = format!("`attrs`: there is no value to choose from for {name}");
            return Err(to_python(py, &Error::invalid_argument(message)));
        }
        Ok((name.extract()?, choices))
    };
    given.iter().map(one).collect()
}

/// What the author's `inputs` gives.
fn make(py: Python<'_>, function: &Py<PyAny>, seed: u64, size: u64) -> PyResult<Inputs> {
    let given: Vec<Vec<Option<Plainly>>> = function.bind(py).call1((seed, size))?.extract()?;
    let tensor = |plain: Option<Plainly>| plain.map(|plain| from_plain(py, plain).map(Arc::new)).transpose();
    given.into_iter().map(|list| list.into_iter().map(tensor).collect()).collect()
}

/// What the author's `reference` gives.
fn compute(
    py: Python<'_>,
    function: &Py<PyAny>,
    inputs: &Inputs,
    attrs: &[(String, AttrValue)],
) -> PyResult<Option<Vec<TensorValue>>> {
    let list = |list: &Vec<Option<Arc<TensorValue>>>| {
        let tensors = list.iter().map(|tensor| tensor.as_ref().map(|value| to_plain(py, value)));
        PyList::new(py, tensors.collect::<Vec<_>>())
    };
    let inputs = inputs.iter().map(list).collect::<PyResult<Vec<_>>>()?;
    let attrs: Map<String, Value> =
        attrs.iter().map(|(name, value)| (name.clone(), value.to_json())).collect();
    let given = function.bind(py).call1((inputs, Value::from(attrs).to_string()))?;
    let given: Option<Vec<Plainly>> = given.extract()?;
    given.map(|given| given.into_iter().map(|plain| from_plain(py, plain)).collect()).transpose()
}

fn from_plain(py: Python<'_>, (dtype, shape, bytes, strings): Plainly) -> PyResult<TensorValue> {
    let known = DType::parse(&dtype);
    let unknown = || Error::invalid_argument(format!("an array is {dtype}, which no op takes"));
    let dtype: Result<DType> = known.ok_or_else(unknown);
    Ok(TensorValue { dtype: dtype.map_err(|error| to_python(py, &error))?, shape, bytes, strings })
}

fn to_plain<'py>(
    py: Python<'py>,
    value: &TensorValue,
) -> (&'static str, Vec<usize>, Bound<'py, PyBytes>, Vec<Bound<'py, PyBytes>>) {
    let strings = value.strings.iter().map(|text| PyBytes::new(py, text)).collect();
    (value.dtype.name(), value.shape.clone(), PyBytes::new(py, &value.bytes), strings)
}
