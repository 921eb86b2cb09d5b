//! Handles of a graph's nodes and of their outputs.

use std::fmt;
use std::sync::Arc;

use opsmith_core::{AttrValue, DType, Device, DeviceKind, Result, Shape, ensure};

use super::{Endpoint, Graph, Kind, Node, NodeId, SourceLine};
use crate::kernel::resolve;
use crate::library::Op;

/// A node of a graph: an op that is called when the graph runs.
#[derive(Clone)]
pub struct Operation {
    graph: Graph,
    id: NodeId,
    node: Arc<Node>,
}

/// A tensor of a graph, known by dtype and as much of its shape as there is to know: one output of a node.
#[derive(Clone)]
pub struct Output {
    operation: Operation,
    index: usize,
}

impl Operation {
    pub(crate) fn new(graph: Graph, id: NodeId) -> Operation {
        let node = graph.node(id);
        // What is made of its outputs goes to no scope, and where it is itself, unless it is said otherwise.
        Operation { graph: graph.unscoped().with_device(node.device), id, node }
    }

    /// The graph that it is of.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Its name, with those of its scopes in front.
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// What it does: the op's name, or `Placeholder`, `Constant`, `Variable`, `Assign`, `Group`, `Initialize`.
    pub fn kind(&self) -> &str {
        self.node.kind.name()
    }

    /// The op that it calls, where it calls one.
    pub fn op(&self) -> Option<&Op> {
        match &self.node.kind {
            Kind::Call { op, .. } => Some(op),
            _ => None,
        }
    }

    /// The attributes that were given where it was made.
    pub fn attrs(&self) -> &[(String, AttrValue)] {
        match &self.node.kind {
            Kind::Call { attrs, .. } => attrs,
            _ => &[],
        }
    }

    /// Every attribute that callers give and inputs do not decide, with its value: its default where none was given.
    ///
    /// # Errors
    /// None for a node that was made: what the definition says of inputs that do not fit it.
    pub fn all_attrs(&self) -> Result<Vec<(String, AttrValue)>> {
        let Some(op) = self.op() else { return Ok(vec![]) };
        let dtypes: Vec<Option<DType>> =
            self.inputs().iter().map(|input| input.as_ref().map(Output::dtype)).collect();
        let resolved = self.node.resolve(&dtypes)?;
        let kept = op.signature().attrs.iter().zip(resolved).filter(|(attr, _)| !attr.inferred);
        Ok(kept.map(|(attr, value)| (attr.name.clone(), value)).collect())
    }

    /// Where it is placed. Constants and what is fed are in host memory, and copied to where they are read.
    pub fn device(&self) -> Device {
        self.node.device
    }

    /// Where in the program it was made.
    pub fn place(&self) -> &SourceLine {
        &self.node.place
    }

    /// The tensors that it takes, argument after argument; none for an optional one that is absent.
    pub fn inputs(&self) -> Vec<Option<Output>> {
        let output = |input: &Option<Endpoint>| input.map(|input| Output::new(&self.graph, input));
        self.node.inputs.iter().map(output).collect()
    }

    /// What runs before it beside its inputs.
    pub fn controls(&self) -> Vec<Operation> {
        self.node.controls.iter().map(|&id| Operation::new(self.graph.clone(), id)).collect()
    }

    /// How many outputs it has, those of lists counted one by one.
    pub fn num_outputs(&self) -> usize {
        self.node.outputs.len()
    }

    /// How many tensors each input of the definition holds: one for an optional one that is absent.
    pub fn input_counts(&self) -> &[usize] {
        &self.node.counts
    }

    /// How many tensors each output of the definition holds.
    pub fn output_counts(&self) -> &[usize] {
        &self.node.output_counts
    }

    /// One of its outputs.
    ///
    /// # Errors
    /// `NotFound` when it has not as many.
    pub fn output(&self, index: usize) -> Result<Output> {
        let count = self.num_outputs();
        ensure!(index < count, NotFound, "node `{}` has {count} outputs, there is no {index}", self.name());
        Ok(Output { operation: self.clone(), index })
    }

    /// All its outputs.
    pub fn outputs(&self) -> Vec<Output> {
        (0..self.num_outputs()).map(|index| Output { operation: self.clone(), index }).collect()
    }

    pub(crate) fn id(&self) -> NodeId {
        self.id
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }
}

impl Node {
    /// Every attribute of the op that it calls, in the definition's order, from the dtypes of its inputs; none of a node that
    /// calls none.
    ///
    /// # Errors
    /// None for a node that was made: what the definition says of inputs that do not fit it.
    pub(crate) fn resolve(&self, dtypes: &[Option<DType>]) -> Result<Vec<AttrValue>> {
        let Kind::Call { op, attrs: given } = &self.kind else { return Ok(vec![]) };
        resolve(op.signature(), (&self.counts, dtypes), given)
    }
}

impl Output {
    pub(crate) fn new(graph: &Graph, endpoint: Endpoint) -> Output {
        Output { operation: Operation::new(graph.clone(), endpoint.node), index: endpoint.index }
    }

    /// The graph that it is of.
    pub fn graph(&self) -> &Graph {
        &self.operation.graph
    }

    /// The same output, of which new nodes are made in the scope of `graph` and on its device: its methods and operators add
    /// them there.
    ///
    /// # Errors
    /// `InvalidArgument` where it is not an output of `graph`.
    pub fn within(&self, graph: &Graph) -> Result<Output> {
        graph.endpoint(self, "the output")?;
        let operation = Operation { graph: graph.clone(), ..self.operation.clone() };
        Ok(Output { operation, index: self.index })
    }

    /// The node whose output it is.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Which of the node's outputs it is.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its name: the node's, and its position unless it is the first output.
    pub fn name(&self) -> String {
        match self.index {
            0 => self.operation.name().to_owned(),
            index => format!("{}:{index}", self.operation.name()),
        }
    }

    /// Where its node is placed.
    pub fn device(&self) -> Device {
        self.operation.device()
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        self.operation.node.outputs[self.index].dtype
    }

    /// What is known of its shape.
    pub fn shape(&self) -> &Shape {
        &self.operation.node.outputs[self.index].shape
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint { node: self.operation.id, index: self.index }
    }
}

impl PartialEq for Operation {
    fn eq(&self, other: &Operation) -> bool {
        self.graph.is_same(&other.graph) && self.id == other.id
    }
}

impl Eq for Operation {}

impl PartialEq for Output {
    fn eq(&self, other: &Output) -> bool {
        self.operation == other.operation && self.index == other.index
    }
}

impl Eq for Output {}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operation({} {}", self.name(), self.kind())?;
        write_device(f, self.device())?;
        f.write_str(")")
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Output({} {}{}", self.name(), self.dtype(), self.shape())?;
        write_device(f, self.device())?;
        f.write_str(")")
    }
}

/// Says where a node is, unless it is where most are.
fn write_device(f: &mut fmt::Formatter<'_>, device: Device) -> fmt::Result {
    match device.kind {
        DeviceKind::Cpu => Ok(()),
        DeviceKind::Cuda => write!(f, " on {}", device.name()),
    }
}
