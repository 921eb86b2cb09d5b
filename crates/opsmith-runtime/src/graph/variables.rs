//! Variables: what a graph remembers from run to run, in a session.

use std::panic::Location;

use opsmith_core::{Result, Shape, ensure};

use super::build::{effect, leaf};
use super::{Graph, Kind, Node, Operation, Output, SourceLine};
use crate::tensor::Tensor;

/// A tensor that a session keeps from run to run.
///
/// Within one run every reader sees the value from before the run; what is assigned becomes the value, all variables at
/// once, when the run has succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    output: Output,
}

impl Variable {
    /// The variable whose value an output is.
    ///
    /// # Errors
    /// `InvalidArgument` for an output that is not a variable's.
    pub fn from_output(output: &Output) -> Result<Variable> {
        ensure!(
            matches!(output.operation().node().kind, Kind::Variable { .. }),
            InvalidArgument,
            "`{}` is not a variable but the output of {}",
            output.name(),
            output.operation().kind()
        );
        Ok(Variable { output: output.clone() })
    }

    /// Its value, for other nodes to take.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.output.operation().name()
    }

    /// What it has when it is initialised.
    pub fn initial(&self) -> Output {
        match self.output.operation().node().kind {
            Kind::Variable { initial } => Output::new(self.output.graph(), initial),
            _ => unreachable!("a variable is made of a variable's node"),
        }
    }

    pub(crate) fn id(&self) -> super::NodeId {
        self.output.operation().id()
    }

    /// A node that makes `value` the variable's value, and gives it.
    ///
    /// # Errors
    /// `InvalidArgument` for a value of another dtype, graph or of a shape that cannot be the variable's.
    #[track_caller]
    pub fn assign(&self, value: &Output) -> Result<Operation> {
        self.output.graph().assign_at(self, value, Location::caller().into())
    }
}

impl Variable {
    pub(super) fn assignment(&self, value: &Output, place: SourceLine) -> Node {
        let kind = Kind::Assign { variable: self.id() };
        let inputs = vec![Some(value.endpoint())];
        Node { inputs, counts: vec![1], ..leaf(kind, value.dtype(), value.shape().clone(), place) }
    }

    /// Checks that `value` may become its own.
    pub(super) fn check(&self, value: &Output) -> Result<()> {
        check_value(self.name(), &self.output, value)
    }
}

/// Checks that `value` may become that of a variable.
fn check_value(name: &str, variable: &Output, value: &Output) -> Result<()> {
    ensure!(
        value.dtype() == variable.dtype(),
        InvalidArgument,
        "variable `{name}` is {}, cannot be assigned `{}`, which is {}",
        variable.dtype(),
        value.name(),
        value.dtype()
    );
    ensure!(
        may_be(value.shape(), variable.shape()),
        InvalidArgument,
        "variable `{name}` has shape {}, cannot be assigned `{}`, which has shape {}",
        variable.shape(),
        value.name(),
        value.shape()
    );
    Ok(())
}

/// Whether a tensor of which `shape` is known can have the shape `expected`.
pub(crate) fn may_be(shape: &Shape, expected: &Shape) -> bool {
    let (Some(dims), Some(expected)) = (shape.dims(), expected.dims()) else { return true };
    dims.len() == expected.len()
        && dims.iter().zip(expected).all(|(dim, expected)| match (dim.value(), expected.value()) {
            (Some(dim), Some(expected)) => dim == expected,
            _ => true,
        })
}

impl Node {
    /// A node that gives all variables their initial values.
    pub(crate) fn initializer(place: SourceLine) -> Node {
        Node { kind: Kind::Initialize, ..effect(vec![], place) }
    }
}

impl Graph {
    /// A variable that has `initial` when it is initialised. Its shape is that of `initial`, and stays.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is none.
    #[track_caller]
    pub fn variable(&self, name: &str, initial: Tensor) -> Result<Variable> {
        let place = SourceLine::from(Location::caller());
        let initial = self.constant_at(&format!("{name}/initial"), initial, place.clone())?;
        self.variable_at(name, &initial, place)
    }

    /// A variable that has the value of `initial` when it is initialised: an output of this graph, random numbers say.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is none, or an output of another graph.
    #[track_caller]
    pub fn variable_from(&self, name: &str, initial: &Output) -> Result<Variable> {
        self.variable_at(name, initial, Location::caller().into())
    }

    /// As [`variable_from`](Self::variable_from), said to be made elsewhere.
    ///
    /// # Errors
    /// As [`variable_from`](Self::variable_from).
    pub fn variable_at(&self, name: &str, initial: &Output, place: SourceLine) -> Result<Variable> {
        let endpoint = self.endpoint(initial, "the initial value")?;
        let kind = Kind::Variable { initial: endpoint };
        let output =
            self.push(name, leaf(kind, initial.dtype(), initial.shape().clone(), place))?.output(0)?;
        Ok(Variable { output })
    }

    /// As [`Variable::assign`], in the scope of this handle and said to be made elsewhere.
    ///
    /// # Errors
    /// As [`Variable::assign`].
    pub fn assign_at(&self, variable: &Variable, value: &Output, place: SourceLine) -> Result<Operation> {
        self.endpoint(variable.output(), "the variable")?;
        self.endpoint(value, "the value")?;
        variable.check(value)?;
        self.push("Assign", variable.assignment(value, place))
    }

    /// The variables, in the order in which they were made.
    pub fn variables(&self) -> Vec<Variable> {
        let nodes = self.shared().read().variables.clone();
        let output = |node| Output::new(self, super::Endpoint { node, index: 0 });
        nodes.into_iter().map(|node| Variable { output: output(node) }).collect()
    }

    /// The node that gives all variables of the graph their initial values, those among them that are made later.
    ///
    /// # Errors
    /// None but in a handle whose scope is full.
    #[track_caller]
    pub fn initializer(&self) -> Result<Operation> {
        self.initializer_at(Location::caller().into())
    }

    /// As [`initializer`](Self::initializer), said to be made elsewhere.
    ///
    /// # Errors
    /// As [`initializer`](Self::initializer).
    pub fn initializer_at(&self, place: SourceLine) -> Result<Operation> {
        self.push("Initialize", Node::initializer(place))
    }
}
