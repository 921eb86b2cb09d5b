//! The lazy graph: ops that are stated now and run later, by a [`Session`](crate::Session).
//!
//! A graph only grows. Every node has its dtypes and shapes when it is made, so that a mistake is an error of the line that
//! made it; and its inputs are there before it, so that there are no cycles and the order of the nodes is one in which
//! they can run.

mod build;
mod draw;
mod file;
mod names;
mod operators;
mod output;

mod variables;

use std::collections::{HashMap, HashSet};
use std::panic::Location;
use std::sync::Arc;

use opsmith_core::fork::RwLock;
use opsmith_core::{AttrValue, DType, Device, Error, Result, Shape, ensure};

pub use build::{CallBuilder, GraphArg};
pub use file::SavedLibrary;
pub use output::{Operation, Output};
pub use variables::Variable;
pub(crate) use variables::may_be;

use crate::library::Op;
use crate::tensor::Tensor;

/// A graph of ops, to which nodes are only ever added. Cloning gives the same graph; so does
/// [`scope`](Self::scope), with a prefix for the names of the nodes that are added through it, and
/// [`device`](Self::device), with the device that they are placed on.
///
/// ```
/// use opsmith_core::{DType, Shape};
/// use opsmith_runtime::{Graph, Session, Tensor};
///
/// # fn main() -> opsmith_core::Result<()> {
/// let graph = Graph::new();
/// let x = graph.placeholder("x", DType::Float64, &Shape::parse("[?,2]")?)?;
/// let w = graph.constant("w", Tensor::from_slice(&[1.0, 10.0], &[2, 1])?)?;
/// let y = x.matmul(&w)?;
/// assert_eq!(y.shape().to_string(), "[?,1]");
///
/// let session = Session::new(&graph);
/// let fed = Tensor::from_slice(&[1.0, 2.0, 3.0, 4.0], &[2, 2])?;
/// let outputs = session.run(&[&y], &[(&x, &fed)])?;
/// assert_eq!(outputs[0].to_vec::<f64>()?, [21.0, 43.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Graph {
    nodes: Arc<RwLock<Nodes>>,
    /// The prefix of new names: empty, or ended by a slash.
    scope: Arc<str>,
    /// Where new nodes are placed.
    device: Device,
}

/// The place of a node in its graph.
pub(crate) type NodeId = usize;

/// One output of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Endpoint {
    pub(crate) node: NodeId,
    pub(crate) index: usize,
}

/// What the handles of a graph share.
#[derive(Default)]
pub(crate) struct Nodes {
    pub(crate) list: Vec<Arc<Node>>,
    by_name: HashMap<String, NodeId>,
    /// How often a name without a number was asked for.
    asked: HashMap<String, usize>,
    /// The scopes that handles or nodes have.
    scopes: HashSet<String>,
    pub(crate) variables: Vec<NodeId>,
}

/// What is known of one output before it is computed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Known {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
}

/// A node: one op, or what stands in a graph's place of one.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The tensors that it takes, argument after argument; none for an optional one that is absent.
    pub(crate) inputs: Vec<Option<Endpoint>>,
    /// How many tensors each argument holds.
    pub(crate) counts: Vec<usize>,
    /// What has to run before it, beside its inputs.
    pub(crate) controls: Vec<NodeId>,
    pub(crate) outputs: Vec<Known>,
    /// How many of the outputs each output of the definition holds.
    pub(crate) output_counts: Vec<usize>,
    pub(crate) place: SourceLine,
    /// Where it is to run.
    pub(crate) device: Device,
}

/// What a node does.
#[derive(Clone)]
pub(crate) enum Kind {
    /// Nothing: its value is fed.
    Placeholder,
    /// Gives always the same.
    Constant(Tensor),
    /// Gives the value that the variable has in the session; it begins as that of another node.
    Variable { initial: Endpoint },
    /// Makes its input the value of the variable, and gives it.
    Assign { variable: NodeId },
    /// Only waits for its control inputs.
    Group,
    /// Gives every variable of the graph its initial value.
    Initialize,
    /// Calls an op of a library.
    Call { op: Op, attrs: Arc<[(String, AttrValue)]> },
}

impl Kind {
    /// A word for it: the op's name, or what stands in place of one.
    pub(crate) fn name(&self) -> &str {
        match self {
            Kind::Placeholder => "Placeholder",
            Kind::Constant(_) => "Constant",
            Kind::Variable { .. } => "Variable",
            Kind::Assign { .. } => "Assign",
            Kind::Group => "Group",
            Kind::Initialize => "Initialize",
            Kind::Call { op, .. } => &op.signature().name,
        }
    }
}

/// Where a node was made, in the program that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    /// The source file; empty where it is not known.
    pub file: Arc<str>,
    /// The line in it, from 1.
    pub line: u32,
}

impl SourceLine {
    /// A place that is not known.
    pub fn unknown() -> SourceLine {
        SourceLine { file: "".into(), line: 0 }
    }
}

impl From<&Location<'_>> for SourceLine {
    fn from(location: &Location<'_>) -> SourceLine {
        SourceLine { file: location.file().into(), line: location.line() }
    }
}

impl Node {
    /// The node as an error names it: `` node `layer/MatMul`, made at src/main.rs:12 ``.
    pub(crate) fn described(&self) -> String {
        match &*self.place.file {
            "" => format!("node `{}`", self.name),
            file => format!("node `{}`, made at {file}:{}", self.name, self.place.line),
        }
    }

    /// Whether two such nodes with the same inputs give the same, and running it has no effect.
    pub(crate) fn is_pure(&self) -> bool {
        match &self.kind {
            Kind::Call { op, .. } => {
                !op.signature().stateful && op.signature().inputs.iter().all(|input| !input.is_ref)
            }
            Kind::Constant(_) => true,
            _ => false,
        }
    }
}

impl Default for Graph {
    fn default() -> Graph {
        Graph::new()
    }
}

impl Graph {
    /// A graph with no nodes.
    pub fn new() -> Graph {
        Graph { nodes: Arc::default(), scope: "".into(), device: Device::CPU }
    }

    /// The same graph, in which the names of new nodes begin with `name` and a slash, after the scope that this handle has.
    /// Where the graph has such a scope already, the new one gets a number: `layer_1`.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is none: letters, digits and `_ . -`, a letter, digit or `_` first.
    pub fn scope(&self, name: &str) -> Result<Graph> {
        let full = format!("{}{name}", self.scope);
        names::check(&full)?;
        let unique = self.nodes.write().new_scope(&full);
        Ok(Graph { scope: format!("{unique}/").into(), ..self.clone() })
    }

    /// The same graph, in which the names of new nodes have no scope in front.
    pub fn unscoped(&self) -> Graph {
        Graph { scope: "".into(), ..self.clone() }
    }

    /// The scope of this handle: empty, or names ended by slashes.
    pub fn scope_name(&self) -> &str {
        &self.scope
    }

    /// The same graph, in which new nodes are placed on the device of this name: `cuda:0`, or `cpu`, where nodes are that
    /// nothing is said of. The scope is as it was.
    ///
    /// Nothing is looked for here: whether there is such a device, and a CUDA kernel, is found out by a session.
    ///
    /// # Errors
    /// `InvalidArgument` for what is not the name of a device.
    pub fn device(&self, name: &str) -> Result<Graph> {
        Ok(self.with_device(name.parse()?))
    }

    /// As [`device`](Self::device), of a device that is known.
    pub fn with_device(&self, device: Device) -> Graph {
        Graph { device, ..self.clone() }
    }

    /// Where nodes are placed that are added through this handle.
    pub fn device_of_new(&self) -> Device {
        self.device
    }

    /// How many nodes it has.
    pub fn num_nodes(&self) -> usize {
        self.nodes.read().list.len()
    }

    /// Every node, in the order in which they were made.
    pub fn operations(&self) -> Vec<Operation> {
        (0..self.num_nodes()).map(|node| Operation::new(self.clone(), node)).collect()
    }

    /// The node of this name.
    ///
    /// # Errors
    /// `NotFound` where there is none; it names one that is spelt similarly.
    pub fn operation(&self, name: &str) -> Result<Operation> {
        let found = {
            let nodes = self.nodes.read();
            nodes.by_name.get(name).copied().ok_or_else(|| {
                let hint = opsmith_core::def::did_you_mean(name, nodes.by_name.keys().map(String::as_str));
                Error::not_found(format!("the graph has no node `{name}`{hint}"))
            })
        };
        Ok(Operation::new(self.clone(), found?))
    }

    /// The output of this name: a node's, `MatMul`, which is its first, or with the position of another one, `Split:1`.
    ///
    /// # Errors
    /// `NotFound` where there is no such node or it has not as many outputs; `InvalidArgument` for a name that is none.
    pub fn output(&self, name: &str) -> Result<Output> {
        let (node, index) = match name.rsplit_once(':') {
            None => (name, 0),
            Some((node, index)) => {
                let index = index.parse().map_err(|_| {
                    Error::invalid_argument(format!("`{name}` names no output; one is named `node:1`"))
                })?;
                (node, index)
            }
        };
        self.operation(node)?.output(index)
    }

    /// Whether the two are handles of one graph.
    pub fn is_same(&self, other: &Graph) -> bool {
        Arc::ptr_eq(&self.nodes, &other.nodes)
    }

    pub(crate) fn shared(&self) -> &Arc<RwLock<Nodes>> {
        &self.nodes
    }

    pub(crate) fn node(&self, id: NodeId) -> Arc<Node> {
        self.nodes.read().list[id].clone()
    }

    /// The node of an output that is to be one of this graph's.
    pub(crate) fn endpoint(&self, output: &Output, what: &str) -> Result<Endpoint> {
        ensure!(
            self.is_same(output.graph()),
            InvalidArgument,
            "{what} `{}` is of another graph",
            output.name()
        );
        Ok(output.endpoint())
    }

    /// Checks that all outputs of these lists are this graph's.
    pub(crate) fn check_own(&self, what: &str, lists: &[&[&Output]]) -> Result<()> {
        lists.iter().copied().flatten().try_for_each(|output| self.endpoint(output, what).map(drop))
    }

    /// Adds a node, whose name is made unique; its inputs are there already.
    pub(crate) fn push(&self, name: &str, node: Node) -> Result<Operation> {
        names::check(&format!("{}{name}", self.scope))?;
        let id = {
            let mut nodes = self.nodes.write();
            let name = nodes.unique(&format!("{}{name}", self.scope));
            nodes.push(Node { name, device: self.device, ..node })
        };
        Ok(Operation::new(self.clone(), id))
    }
}

impl Nodes {
    /// Adds a node whose name no other has.
    fn push(&mut self, node: Node) -> NodeId {
        let id = self.list.len();
        if matches!(node.kind, Kind::Variable { .. }) {
            self.variables.push(id);
        }
        // A scope that a node is in is taken, also where the node came from a file.
        for (end, _) in node.name.match_indices('/') {
            if !self.scopes.contains(&node.name[..end]) {
                self.scopes.insert(node.name[..end].to_owned());
            }
        }
        self.by_name.insert(node.name.clone(), id);
        self.list.push(Arc::new(node));
        id
    }
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Graph({} nodes)", self.num_nodes())
    }
}
