//! What is served: a function of named tensors.

use std::collections::HashSet;

use opsmith_core::def::did_you_mean;
use opsmith_core::{Code, DType, Error, Result, Shape, bail};
use opsmith_runtime::{Graph, Library, Operation, Output, Session, SourceLine, Tensor};

use crate::free;
use crate::options::Options;

/// A tensor that a model takes or gives.
#[derive(Debug, Clone)]
pub(crate) struct Argument {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
}

/// A function of named tensors, which any number of threads may call.
pub(crate) trait Model: Send + Sync {
    /// What it takes.
    fn inputs(&self) -> &[Argument];
    /// What it gives.
    fn outputs(&self) -> &[Argument];
    /// Why each request is computed by itself; none if the first dim of all inputs and outputs is one free axis: then a call on rows of
    /// several requests gives the rows of their answers.
    fn why_alone(&self) -> Option<&str>;
    /// Calls it with as many tensors as it has inputs.
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>>;
}

/// A graph of the engine.
pub(crate) struct GraphModel {
    session: Session,
    fed: Vec<Output>,
    fetched: Vec<Output>,
    inputs: Vec<Argument>,
    outputs: Vec<Argument>,
    why_alone: Option<String>,
    /// Where its nodes were made, as errors say it; a longer text is before one that it begins with.
    places: Vec<String>,
}

impl GraphModel {
    /// Loads the graph and what it needs.
    ///
    /// # Errors
    /// What is wrong with a file, or that the graph has no such output.
    pub(crate) fn open(options: &Options) -> Result<GraphModel> {
        let libraries: Vec<Library> = options.library.iter().map(Library::open).collect::<Result<_>>()?;
        let graph = load(options, &libraries)?;
        if options.output.is_empty() {
            bail!(InvalidArgument, "name an output of the graph by --output{}", likely(&graph));
        }
        let find = |name: &String| {
            graph.output(name).map_err(|error| {
                Error::new(error.code(), format!("--output: {}{}", error.message(), likely(&graph)))
            })
        };
        let fetched: Vec<Output> = options.output.iter().map(find).collect::<Result<_>>()?;
        let needed = needed(&graph, &fetched);
        let fed = placeholders(&needed)?;
        let session = Session::new(&graph);
        let mut variables = needed.iter().filter(|operation| operation.kind() == "Variable");
        match (&options.checkpoint, variables.next()) {
            (Some(path), _) => session.restore(path).map_err(|error| error.within("--checkpoint"))?,
            (None, Some(_)) if options.initial_values => session.initialize()?,
            (None, Some(variable)) => bail!(
                FailedPrecondition,
                "the outputs need variable `{}`, whose current value is not in the graph's file: give the values by --checkpoint, or \
                 --initial-values to serve those that variables begin with",
                variable.name()
            ),
            (None, None) => {}
        }
        let why_alone = free::why_alone(&needed, &fed, &fetched)?;
        let argument = |output: &Output| Argument {
            name: output.name(),
            dtype: output.dtype(),
            shape: output.shape().clone(),
        };
        let (inputs, outputs) = (fed.iter().map(argument).collect(), fetched.iter().map(argument).collect());
        let place = |operation: &Operation| {
            let SourceLine { file, line } = operation.place();
            format!(", made at {file}:{line}")
        };
        let mut places: Vec<String> = needed.iter().map(place).collect();
        places.sort_unstable();
        places.dedup();
        places.reverse();
        Ok(GraphModel { session, fed, fetched, inputs, outputs, why_alone, places })
    }

    /// The error without where nodes were made: whoever asks need not know the files of the machine that made the graph.
    fn without_places(&self, error: &Error) -> Error {
        let without = |text: &str| {
            self.places.iter().fold(text.to_owned(), |text, place| text.replace(place.as_str(), ""))
        };
        let mut cleaned = Error::new(error.code(), without(error.text()));
        if let Some(op) = error.op() {
            cleaned = cleaned.with_op(op);
        }
        if let Some(argument) = error.argument() {
            cleaned = cleaned.naming(argument);
        }
        let (whole, inner) = (without(&error.message()), cleaned.message());
        match whole.strip_suffix(&inner).and_then(|context| context.strip_suffix(": ")) {
            Some(context) => cleaned.within(context),
            None => cleaned,
        }
    }
}

impl Model for GraphModel {
    fn inputs(&self) -> &[Argument] {
        &self.inputs
    }

    fn outputs(&self) -> &[Argument] {
        &self.outputs
    }

    fn why_alone(&self) -> Option<&str> {
        self.why_alone.as_deref()
    }

    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let fetches: Vec<&Output> = self.fetched.iter().collect();
        let feeds: Vec<(&Output, &Tensor)> = self.fed.iter().zip(inputs).collect();
        self.session.run(&fetches, &feeds).map_err(|error| self.without_places(&error))
    }
}

/// The nodes that these outputs need, in the graph's order.
fn needed(graph: &Graph, outputs: &[Output]) -> Vec<Operation> {
    let mut seen: HashSet<String> = HashSet::new();
    let mut left: Vec<Operation> = outputs.iter().map(|output| output.operation().clone()).collect();
    while let Some(operation) = left.pop() {
        if seen.insert(operation.name().to_owned()) {
            left.extend(operation.inputs().iter().flatten().map(|input| input.operation().clone()));
            left.extend(operation.controls());
        }
    }
    graph.operations().into_iter().filter(|operation| seen.contains(operation.name())).collect()
}

/// Loads the graph.
///
/// # Errors
/// What is wrong with its file, and which option would help.
fn load(options: &Options, libraries: &[Library]) -> Result<Graph> {
    Graph::load(&options.model, libraries).map_err(|error| {
        let hint = match error.code() {
            Code::DataLoss => "; if it is a model of ONNX, give --runtime",
            Code::NotFound if error.message().contains("needs the library") => ", by --library",
            _ => return error,
        };
        Error::new(error.code(), format!("{}{hint}", error.message()))
    })
}

/// What is likely to be asked for, as the end of a message: nodes that somebody has named, and that need what is fed.
fn likely(graph: &Graph) -> String {
    const MOST: usize = 8;
    let operations = graph.operations();
    let mut fed: HashSet<String> = HashSet::new();
    for operation in &operations {
        let reads = operation.inputs().iter().flatten().any(|input| fed.contains(input.operation().name()));
        if reads || operation.kind() == "Placeholder" {
            fed.insert(operation.name().to_owned());
        }
    }
    let is_named = |operation: &&Operation| {
        let (name, kind) = (operation.name(), operation.kind());
        // Gradients are named after what they are of.
        let mut scopes = name.split('/');
        let is_derived = scopes.any(|scope| scope.starts_with("gradients") || scope.starts_with("jvp"));
        let own = name.rsplit('/').next().unwrap_or_default();
        let rest = own.strip_prefix(kind);
        let is_counted = rest
            .is_some_and(|rest| rest.trim_start_matches(|c: char| c == '_' || c.is_ascii_digit()).is_empty());
        let is_there = fed.contains(name) && kind != "Placeholder" && operation.num_outputs() > 0;
        is_there && !is_derived && !is_counted
    };
    let named = operations.iter().rev().filter(is_named).take(MOST);
    let named: Vec<String> = named.map(|operation| format!("`{}`", operation.name())).collect();
    match named.is_empty() {
        true => "; none of its nodes that need an input has a name of its own: give the graph's answer one, by `identity`".to_owned(),
        false => format!("; nodes with names of their own are {}", named.join(", ")),
    }
}

fn placeholders(needed: &[Operation]) -> Result<Vec<Output>> {
    let found: Vec<Output> = needed
        .iter()
        .filter(|operation| operation.kind() == "Placeholder")
        .map(|operation| operation.output(0))
        .collect::<Result<_>>()?;
    match found.is_empty() {
        true => Err(Error::invalid_argument("the outputs need no placeholder: there is nothing to ask for")),
        false => Ok(found),
    }
}

/// Where an input is in the model's list.
///
/// # Errors
/// `InvalidArgument` for a name that no input has.
pub(crate) fn position(inputs: &[Argument], name: &str) -> Result<usize> {
    inputs.iter().position(|input| input.name == name).ok_or_else(|| {
        const MOST: usize = 8;
        let hint = did_you_mean(name, inputs.iter().map(|input| input.name.as_str()));
        let known: Vec<String> = inputs.iter().take(MOST).map(|input| format!("`{}`", input.name)).collect();
        let more = if inputs.len() > MOST { ", …" } else { "" };
        let text =
            format!("the model has no input `{}`{hint}; it has {}{more}", short(name), known.join(", "));
        Error::invalid_argument(text)
    })
}

/// The inputs, all of which have to be there, of their dtypes and shapes.
///
/// # Errors
/// `InvalidArgument` that names the first that is not.
pub(crate) fn all_of(found: Vec<Option<Tensor>>, inputs: &[Argument]) -> Result<Vec<Tensor>> {
    let one = |(found, input): (Option<Tensor>, &Argument)| {
        let Argument { name, dtype, shape } = input;
        let refuse = |got: String| {
            let text = format!("input `{name}` {got}: expected {dtype} of shape {shape}");
            Err(Error::invalid_argument(text).naming(name.as_str()))
        };
        match found {
            Some(tensor) if tensor.dtype() != *dtype => refuse(format!("is {}", tensor.dtype())),
            Some(tensor) if !is_of(shape, tensor.shape()) => {
                refuse(format!("is of shape {:?}", tensor.shape()))
            }
            Some(tensor) => Ok(tensor),
            None => refuse("is missing".to_owned()),
        }
    };
    found.into_iter().zip(inputs).map(one).collect()
}

/// Whether a tensor has the rank and the dims that are known.
fn is_of(known: &Shape, shape: &[usize]) -> bool {
    known.dims().is_none_or(|dims| {
        let mut both = dims.iter().zip(shape);
        dims.len() == shape.len()
            && both.all(|(known, dim)| known.value().is_none_or(|size| size == *dim as u64))
    })
}

/// As much of a text as is worth showing.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(80).collect()
}
