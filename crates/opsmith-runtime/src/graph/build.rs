//! Adding nodes: placeholders, constants, groups, and calls of ops, whose dtypes and shapes are inferred at once.

use std::panic::Location;

use opsmith_core::{AttrValue, DType, Device, Error, Result, Shape, ensure};

use super::{Endpoint, Graph, Kind, Known, Node, NodeId, Operation, Output, SourceLine};
use crate::library::Op;
use crate::shapes::Argument;
use crate::tensor::Tensor;
use crate::told::Inferred;

/// What a call gives for one input of an op's definition.
#[derive(Debug, Clone)]
pub enum GraphArg {
    /// One tensor.
    One(Output),
    /// A list of tensors.
    List(Vec<Output>),
    /// An optional input that is not given.
    Absent,
}

impl From<&Output> for GraphArg {
    fn from(output: &Output) -> GraphArg {
        GraphArg::One(output.clone())
    }
}

impl From<&[Output]> for GraphArg {
    fn from(outputs: &[Output]) -> GraphArg {
        GraphArg::List(outputs.to_vec())
    }
}

impl GraphArg {
    fn outputs(&self) -> &[Output] {
        match self {
            GraphArg::One(output) => std::slice::from_ref(output),
            GraphArg::List(outputs) => outputs,
            GraphArg::Absent => &[],
        }
    }
}

/// A call of an op that is being written down: its inputs in the order of the definition, attributes, a name.
#[must_use = "a call is added to the graph by `build`"]
pub struct CallBuilder {
    graph: Graph,
    op: Op,
    args: Vec<GraphArg>,
    attrs: Vec<(String, AttrValue)>,
    controls: Vec<Operation>,
    name: Option<String>,
    place: SourceLine,
}

impl CallBuilder {
    /// The next input of the definition.
    pub fn arg(mut self, arg: impl Into<GraphArg>) -> CallBuilder {
        self.args.push(arg.into());
        self
    }

    /// An attribute that has not its default value.
    pub fn attr(mut self, name: &str, value: impl Into<AttrValue>) -> CallBuilder {
        self.attrs.push((name.to_owned(), value.into()));
        self
    }

    /// A node that has to run first, though this one takes nothing from it.
    pub fn after(mut self, operation: &Operation) -> CallBuilder {
        self.controls.push(operation.clone());
        self
    }

    /// The node's name, where it is not to be the op's.
    pub fn name(mut self, name: &str) -> CallBuilder {
        self.name = Some(name.to_owned());
        self
    }

    /// Where the node is said to be made, for callers in another language.
    pub fn place(mut self, place: SourceLine) -> CallBuilder {
        self.place = place;
        self
    }

    /// Adds the call to the graph. Optional inputs at the end may be left out.
    ///
    /// # Errors
    /// `InvalidArgument` when inputs or attributes do not fit the op's definition or its shapes, or one is of another
    /// graph.
    pub fn build(mut self) -> Result<Operation> {
        let signature = self.op.signature().clone();
        for missing in signature.inputs.iter().skip(self.args.len()) {
            let name = &missing.name;
            if !missing.optional {
                return Err(self.op.refusal(format!("input `{name}` is missing")).naming(name));
            }
            self.args.push(GraphArg::Absent);
        }
        self.op.check_count(self.args.len())?;
        let mut inputs: Vec<Option<Endpoint>> = Vec::new();
        let mut counts = Vec::new();
        for (arg, def) in self.args.iter().zip(&signature.inputs) {
            let what = format!("input `{}`", def.name);
            let named = |error: Error| error.naming(&def.name).with_op(&signature.name);
            let before = inputs.len();
            for output in arg.outputs() {
                inputs.push(Some(self.graph.endpoint(output, &what).map_err(named)?));
                let is_variable = matches!(output.operation().node().kind, Kind::Variable { .. });
                if def.is_ref && !is_variable {
                    let got = output.name();
                    return Err(named(self.op.refusal(format!(
                        "{what} is changed in place, so it has to be a variable, got `{got}`"
                    ))));
                }
            }
            if matches!(arg, GraphArg::Absent) {
                inputs.push(None);
            }
            counts.push(inputs.len() - before);
        }
        let controls = control_inputs(&self.graph, &self.controls)?;
        let Inferred { outputs, .. } = self.infer()?;
        let output_counts = outputs.iter().map(Vec::len).collect();
        let node = Node {
            name: String::new(),
            kind: Kind::Call { op: self.op, attrs: self.attrs.into() },
            inputs,
            counts,
            controls,
            outputs: outputs.into_iter().flatten().map(|(dtype, shape)| Known { dtype, shape }).collect(),
            output_counts,
            place: self.place,
            device: self.graph.device,
        };
        self.graph.push(self.name.as_deref().unwrap_or(&signature.name), node)
    }

    fn infer(&self) -> Result<Inferred> {
        let argument = |arg: &GraphArg| match arg {
            GraphArg::Absent => None,
            given => {
                let of = |output: &Output| Argument {
                    dtype: output.dtype(),
                    shape: output.shape().clone(),
                    value: output.constant_value(),
                };
                Some(given.outputs().iter().map(of).collect())
            }
        };
        let attrs: Vec<(&str, &AttrValue)> =
            self.attrs.iter().map(|(name, value)| (name.as_str(), value)).collect();
        self.op.infer(&self.args.iter().map(argument).collect::<Vec<_>>(), &attrs)
    }
}

/// Control inputs as the node holds them.
fn control_inputs(graph: &Graph, controls: &[Operation]) -> Result<Vec<usize>> {
    let id = |operation: &Operation| {
        ensure!(
            graph.is_same(operation.graph()),
            InvalidArgument,
            "control input `{}` is of another graph",
            operation.name()
        );
        Ok(operation.id())
    };
    controls.iter().map(id).collect()
}

impl Output {
    /// The value, where it is that of a constant.
    pub(crate) fn constant_value(&self) -> Option<Tensor> {
        match &self.operation().node().kind {
            Kind::Constant(tensor) => Some(tensor.clone()),
            _ => None,
        }
    }
}

/// A node without arguments.
pub(super) fn leaf(kind: Kind, dtype: DType, shape: Shape, place: SourceLine) -> Node {
    Node {
        name: String::new(),
        kind,
        inputs: vec![],
        counts: vec![],
        controls: vec![],
        outputs: vec![Known { dtype, shape }],
        output_counts: vec![1],
        place,
        device: Device::CPU,
    }
}

/// A node that gives nothing.
pub(super) fn effect(controls: Vec<NodeId>, place: SourceLine) -> Node {
    Node {
        name: String::new(),
        kind: Kind::Group,
        inputs: vec![],
        counts: vec![],
        controls,
        outputs: vec![],
        output_counts: vec![],
        place,
        device: Device::CPU,
    }
}

impl Graph {
    /// A tensor that is fed when the graph runs. Dims that are not known yet are `?`.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is none.
    #[track_caller]
    pub fn placeholder(&self, name: &str, dtype: DType, shape: &Shape) -> Result<Output> {
        self.placeholder_at(name, dtype, shape, Location::caller().into())
    }

    /// As [`placeholder`](Self::placeholder), said to be made elsewhere.
    ///
    /// # Errors
    /// As [`placeholder`](Self::placeholder).
    pub fn placeholder_at(
        &self,
        name: &str,
        dtype: DType,
        shape: &Shape,
        place: SourceLine,
    ) -> Result<Output> {
        self.push(name, leaf(Kind::Placeholder, dtype, shape.clone(), place))?.output(0)
    }

    /// A tensor that is always the same.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is none.
    #[track_caller]
    pub fn constant(&self, name: &str, value: Tensor) -> Result<Output> {
        self.constant_at(name, value, Location::caller().into())
    }

    /// As [`constant`](Self::constant), said to be made elsewhere.
    ///
    /// # Errors
    /// As [`constant`](Self::constant).
    pub fn constant_at(&self, name: &str, value: Tensor, place: SourceLine) -> Result<Output> {
        let (dtype, shape) = (value.dtype(), Shape::known(value.shape()));
        self.push(name, leaf(Kind::Constant(value), dtype, shape, place))?.output(0)
    }

    /// A node that runs when all these have: the way to fetch several at once.
    ///
    /// # Errors
    /// `InvalidArgument` for one of another graph, or a name that is none.
    #[track_caller]
    pub fn group(&self, name: &str, operations: &[Operation]) -> Result<Operation> {
        self.group_at(name, operations, Location::caller().into())
    }

    /// As [`group`](Self::group), said to be made elsewhere.
    ///
    /// # Errors
    /// As [`group`](Self::group).
    pub fn group_at(&self, name: &str, operations: &[Operation], place: SourceLine) -> Result<Operation> {
        let controls = control_inputs(self, operations)?;
        self.push(name, effect(controls, place))
    }

    /// A call of an op, to be given its inputs.
    #[track_caller]
    pub fn call(&self, op: &Op) -> CallBuilder {
        CallBuilder {
            graph: self.clone(),
            op: op.clone(),
            args: vec![],
            attrs: vec![],
            controls: vec![],
            name: None,
            place: Location::caller().into(),
        }
    }
}
