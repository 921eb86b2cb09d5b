//! Derivatives of eager calls: a tape notes the calls as nodes of a graph, with their values, and so has the graph's rules.

use std::collections::HashMap;

use opsmith_core::{AttrValue, Result, Shape};

use crate::autodiff::gradients;
use crate::call::Arg;
use crate::graph::{Endpoint, Graph, GraphArg, Output};
use crate::library::Op;
use crate::session::Session;
use crate::tensor::Tensor;

/// Notes calls of ops while they are made, for derivatives afterwards; derivatives are noted too, and so have derivatives.
///
/// ```
/// use opsmith_runtime::{Library, Tape, Tensor};
///
/// # fn main() -> opsmith_core::Result<()> {
/// let ops = Library::standard()?;
/// let mut tape = Tape::new();
/// let x = tape.watch(Tensor::from_slice(&[1.0, 2.0], &[2])?)?;
/// let cube = tape.call(&ops.op("mul")?, &[(&x).into(), (&x).into()], &[])?.remove(0);
/// let cube = tape.call(&ops.op("mul")?, &[(&cube).into(), (&x).into()], &[])?.remove(0);
/// assert_eq!(cube.value().to_vec::<f64>()?, [1.0, 8.0]);
/// let slope = tape.gradient(&cube, &[&x])?.remove(0).expect("it depends on x");
/// assert_eq!(slope.value().to_vec::<f64>()?, [3.0, 12.0]);
/// let bend = tape.gradient(&slope, &[&x])?.remove(0).expect("it depends on x");
/// assert_eq!(bend.value().to_vec::<f64>()?, [6.0, 12.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Tape {
    graph: Graph,
    values: HashMap<Endpoint, Tensor>,
}

/// A tensor that a tape knows.
#[derive(Debug, Clone)]
pub struct Traced {
    output: Output,
    value: Tensor,
}

impl Traced {
    /// Its value.
    pub fn value(&self) -> &Tensor {
        &self.value
    }
}

/// One input of a call that is noted.
#[derive(Debug, Clone)]
pub enum TapeArg {
    /// One tensor.
    One(Traced),
    /// A list of tensors.
    List(Vec<Traced>),
    /// An optional input that is not given.
    Absent,
}

impl From<&Traced> for TapeArg {
    fn from(traced: &Traced) -> TapeArg {
        TapeArg::One(traced.clone())
    }
}

impl From<&[Traced]> for TapeArg {
    fn from(traced: &[Traced]) -> TapeArg {
        TapeArg::List(traced.to_vec())
    }
}

impl TapeArg {
    fn of_graph(&self) -> GraphArg {
        match self {
            TapeArg::One(traced) => GraphArg::One(traced.output.clone()),
            TapeArg::List(list) => GraphArg::List(list.iter().map(|traced| traced.output.clone()).collect()),
            TapeArg::Absent => GraphArg::Absent,
        }
    }
}

impl Tape {
    /// A tape with nothing on it.
    pub fn new() -> Tape {
        Tape::default()
    }

    /// A tensor to compute with, with respect to which derivatives can be taken.
    ///
    /// # Errors
    /// None for a tensor of any dtype.
    pub fn watch(&mut self, value: Tensor) -> Result<Traced> {
        let output = self.graph.placeholder("watched", value.dtype(), &Shape::known(value.shape()))?;
        Ok(self.note(output, value))
    }

    /// Calls an op, and notes the call. Gives the tensors of all outputs, one after the other.
    ///
    /// # Errors
    /// As [`Op::call`]; `InvalidArgument` for a tensor of another tape.
    pub fn call(&mut self, op: &Op, args: &[TapeArg], attrs: &[(&str, AttrValue)]) -> Result<Vec<Traced>> {
        let mut call = self.graph.call(op);
        for arg in args {
            call = call.arg(arg.of_graph());
        }
        for (name, value) in attrs {
            call = call.attr(name, value.clone());
        }
        let operation = call.build()?;
        let lists: Vec<Vec<Tensor>> = args
            .iter()
            .map(|arg| match arg {
                TapeArg::List(list) => list.iter().map(|traced| traced.value.clone()).collect(),
                _ => vec![],
            })
            .collect();
        let values: Vec<Arg<'_>> = args
            .iter()
            .zip(&lists)
            .map(|(arg, list)| match arg {
                TapeArg::One(traced) => Arg::Tensor(&traced.value),
                TapeArg::List(_) => Arg::List(list),
                TapeArg::Absent => Arg::Absent,
            })
            .collect();
        let outputs = op.call(&values, attrs)?;
        Ok(operation
            .outputs()
            .into_iter()
            .zip(outputs)
            .map(|(output, value)| self.note(output, value))
            .collect())
    }

    /// The gradients of the sum of `y` with respect to each of `xs`: none where `y` does not depend on it in a differentiable
    /// way.
    ///
    /// # Errors
    /// As [`gradients`].
    pub fn gradient(&mut self, y: &Traced, xs: &[&Traced]) -> Result<Vec<Option<Traced>>> {
        for traced in xs.iter().chain([&y]) {
            self.graph.endpoint(&traced.output, "the tensor")?;
        }
        let outputs: Vec<&Output> = xs.iter().map(|x| &x.output).collect();
        let before = self.graph.num_nodes();
        let found = gradients(&[&y.output], &outputs, None)?;
        // Every new node is run, and noted: the next derivative may need it.
        let operations = self.graph.operations();
        let new: Vec<Output> =
            operations[before..].iter().flat_map(|operation| operation.outputs()).collect();
        let known: Vec<(Output, Tensor)> = self
            .values
            .iter()
            .map(|(endpoint, value)| (Output::new(&self.graph, *endpoint), value.clone()))
            .collect();
        let feeds: Vec<(&Output, &Tensor)> = known.iter().map(|(output, value)| (output, value)).collect();
        let values = Session::new(&self.graph).run(&new.iter().collect::<Vec<_>>(), &feeds)?;
        for (output, value) in new.into_iter().zip(values) {
            self.values.insert(output.endpoint(), value);
        }
        let traced = |output: Output| {
            let value = self.values[&output.endpoint()].clone();
            Traced { output, value }
        };
        Ok(found.into_iter().map(|output| output.map(traced)).collect())
    }

    fn note(&mut self, output: Output, value: Tensor) -> Traced {
        self.values.insert(output.endpoint(), value.clone());
        Traced { output, value }
    }
}
