//! Graphs in files: nodes as JSON and the tensors of constants beside them, in a file of the safetensors format.
//!
//! A node's attributes are all written, those with their default value too: so a graph goes on meaning what it meant
//! when a library's new release has another default.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use opsmith_core::{AttrValue, Code, DType, Device, Error, Result, Shape, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::build::effect;
use super::{Endpoint, Graph, GraphArg, Kind, Node, NodeId, Operation, Output, SourceLine};
use crate::library::Library;
use crate::library::Op;
use crate::storage::{self, Contents};
use crate::tensor::Tensor;

/// The name of the text that holds the nodes, and what files are known by.
const NODES: &str = "opsmith.graph";

/// The version of the format that this writes, and the newest that it reads.
const VERSION: u32 = 1;

/// A graph as its file has it.
#[derive(Serialize, Deserialize)]
struct Saved {
    version: u32,
    libraries: Vec<SavedLibrary>,
    nodes: Vec<SavedNode>,
}

/// A library that the ops of a saved graph are of, as it was when the graph was saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedLibrary {
    /// Its name, by which the graph's nodes know it.
    pub name: String,
    /// The version that the graph was made with.
    pub version: String,
    /// The file that it was loaded from, on the machine that the graph was made on; without its folder from
    /// [`save_for`](Graph::save_for).
    pub path: String,
}

#[derive(Default, Serialize, Deserialize)]
struct SavedNode {
    name: String,
    /// The op's name, or `Placeholder`, `Constant`, `Variable`, `Assign`, `Group`, `Initialize`.
    kind: String,
    /// The library of an op.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    library: Option<String>,
    /// The tensors of each argument; null for one that is absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    inputs: Vec<Option<Vec<String>>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    controls: Vec<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    attrs: Map<String, Value>,
    /// What a placeholder is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dtype: Option<String>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    shape: Value,
    /// The value of a constant that files cannot hold as a tensor: of strings.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    value: Value,
    /// What an assignment writes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    variable: Option<String>,
    /// Where it is placed, if not on the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    file: String,
    #[serde(default)]
    line: u32,
}

impl Graph {
    /// Writes the graph to a file. The values of variables are not in it, they are the sessions'.
    ///
    /// # Errors
    /// `Unimplemented` for a constant of a dtype that files cannot hold; what the system says of the file. After an error a
    /// file that was there before is as it was.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.write(path.as_ref(), self.operations(), true)
    }

    /// Writes what these outputs need, for whoever computes them and nothing else: no gradients and no optimiser, and neither where
    /// in a program nodes were made nor in which folder a library was.
    ///
    /// # Errors
    /// As [`save`](Self::save) has them; `InvalidArgument` for an output of another graph.
    pub fn save_for(&self, path: impl AsRef<Path>, outputs: &[&Output]) -> Result<()> {
        let needed = self.needed_by(outputs)?;
        let kept = self.operations().into_iter().filter(|operation| needed.contains(&operation.id()));
        self.write(path.as_ref(), kept.collect(), false)
    }

    /// The nodes without which these outputs cannot be made again: what they read, and what variables among these begin with.
    pub(crate) fn needed_by(&self, outputs: &[&Output]) -> Result<HashSet<NodeId>> {
        ensure!(!outputs.is_empty(), InvalidArgument, "name at least one output that is to be computed");
        self.check_own("the output", &[outputs])?;
        let mut left: Vec<NodeId> = outputs.iter().map(|output| output.endpoint().node).collect();
        let mut needed = HashSet::new();
        while let Some(id) = left.pop() {
            if needed.insert(id) {
                let node = self.node(id);
                left.extend(node.inputs.iter().flatten().map(|input| input.node));
                left.extend(&node.controls);
                match node.kind {
                    Kind::Variable { initial } => left.push(initial.node),
                    Kind::Assign { variable } => left.push(variable),
                    _ => {}
                }
            }
        }
        Ok(needed)
    }

    /// Writes nodes, with or without where they and their libraries came from.
    fn write(&self, path: &Path, operations: Vec<Operation>, with_places: bool) -> Result<()> {
        let mut saved = Saved { version: VERSION, libraries: vec![], nodes: vec![] };
        let mut contents = Contents::default();
        for operation in operations {
            let node = self.save_node(&operation, &mut contents);
            let mut node = node.map_err(|error| error.within(operation.node().described()))?;
            if !with_places {
                (node.file, node.line) = (String::new(), 0);
            }
            saved.nodes.push(node);
            if let Some(library) = operation.op().map(Op::library)
                && saved.libraries.iter().all(|known| known.name != library.name())
            {
                let whole = library.path();
                let shown = if with_places { Some(whole.as_os_str()) } else { whole.file_name() };
                saved.libraries.push(SavedLibrary {
                    name: library.name().to_owned(),
                    version: library.version().to_owned(),
                    path: shown.unwrap_or_default().display().to_string(),
                });
            }
        }
        let json = serde_json::to_string(&saved)
            .map_err(|error| Error::internal(format!("{}: {error}", path.display())))?;
        contents.texts.insert(NODES.to_owned(), json);
        storage::write(path, contents)
    }

    fn save_node(&self, operation: &Operation, contents: &mut Contents) -> Result<SavedNode> {
        let node = operation.node();
        let name = |endpoint: Endpoint| Output::new(self, endpoint).name();
        let mut saved = SavedNode {
            name: node.name.clone(),
            kind: node.kind.name().to_owned(),
            device: (node.device != Device::CPU).then(|| node.device.name()),
            file: node.place.file.to_string(),
            line: node.place.line,
            controls: operation.controls().iter().map(|control| control.name().to_owned()).collect(),
            ..SavedNode::default()
        };
        let mut first = 0;
        for &count in &node.counts {
            let tensors = &node.inputs[first..first + count];
            first += count;
            saved.inputs.push(tensors.iter().map(|input| input.map(name)).collect());
        }
        match &node.kind {
            Kind::Placeholder => {
                saved.dtype = Some(node.outputs[0].dtype.name().to_owned());
                saved.shape = node.outputs[0].shape.to_json();
            }
            Kind::Constant(tensor) if storage::holds(tensor.dtype()) => {
                contents.tensors.push((node.name.clone(), tensor.clone()));
            }
            Kind::Constant(tensor) => saved.value = json_value(tensor)?,
            Kind::Variable { initial } => saved.inputs = vec![Some(vec![name(*initial)])],
            Kind::Assign { variable } => {
                saved.variable = Some(name(Endpoint { node: *variable, index: 0 }));
            }
            Kind::Group | Kind::Initialize => {}
            Kind::Call { op, .. } => {
                saved.library = Some(op.library().name().to_owned());
                let attrs = operation.all_attrs()?.into_iter();
                saved.attrs = attrs.map(|(name, value)| (name, value.to_json())).collect();
            }
        }
        Ok(saved)
    }

    /// Reads a graph from a file. Its ops are those of the standard operators and of `libraries`, which may be of other
    /// releases than those that it was made with; dtypes and shapes are inferred anew.
    ///
    /// # Errors
    /// `NotFound` where there is no such file or a library is missing; `DataLoss` for a file that is truncated, damaged or
    /// no graph; `InvalidArgument` for a graph that does not fit the libraries, or has a cycle.
    pub fn load(path: impl AsRef<Path>, libraries: &[Library]) -> Result<Graph> {
        let path = path.as_ref();
        let contents = storage::read(path)?;
        let load = || {
            let saved = Saved::read(&contents)?;
            let tensors = contents.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
            Loader { graph: Graph::new(), saved: &saved, libraries, tensors }.load()
        };
        load().map_err(|error: Error| error.within(path.display()))
    }

    /// The libraries that [`load`](Self::load) needs for the graph in a file, beside the standard operators. None is
    /// opened: a library is code, and the file may be a stranger's.
    ///
    /// # Errors
    /// `NotFound` where there is no such file; `DataLoss` for one that is truncated, damaged or no graph.
    pub fn libraries_of(path: impl AsRef<Path>) -> Result<Vec<SavedLibrary>> {
        let path = path.as_ref();
        let saved = Saved::read(&storage::read(path)?).map_err(|error| error.within(path.display()))?;
        let standard = Library::standard()?;
        let is_called = |library: &SavedLibrary| {
            saved.nodes.iter().any(|node| node.library.as_deref() == Some(&library.name))
        };
        let needed = |library: &&SavedLibrary| library.name != standard.name() && is_called(library);
        Ok(saved.libraries.iter().filter(needed).cloned().collect())
    }
}

impl Saved {
    /// The graph among what a file holds.
    fn read(contents: &Contents) -> Result<Saved> {
        let text = contents.texts.get(NODES).ok_or_else(|| damaged("holds tensors but no graph"))?;
        let saved: Saved =
            serde_json::from_str(text).map_err(|error| damaged(format!("its graph is damaged: {error}")))?;
        ensure!(
            saved.version <= VERSION,
            Unimplemented,
            "is of version {} of the format; this release reads up to {VERSION}",
            saved.version
        );
        Ok(saved)
    }
}

/// A tensor of strings as JSON.
fn json_value(tensor: &Tensor) -> Result<Value> {
    let value = tensor.to_value()?;
    ensure!(
        value.strings.iter().all(|bytes| std::str::from_utf8(bytes).is_ok()),
        Unimplemented,
        "its value, of dtype {}, cannot be saved: strings that are not UTF-8, quantised and wide complex numbers cannot",
        value.dtype
    );
    Ok(AttrValue::Tensor(value.into()).to_json())
}

fn damaged(message: impl Into<String>) -> Error {
    Error::new(Code::DataLoss, message.into())
}

/// A graph that is being read.
struct Loader<'a> {
    graph: Graph,
    saved: &'a Saved,
    libraries: &'a [Library],
    tensors: HashMap<&'a str, &'a Tensor>,
}

impl Loader<'_> {
    fn load(self) -> Result<Graph> {
        for node in &self.saved.nodes {
            // As much of the name as is worth showing: it may be anything.
            let name: String = node.name.chars().take(80).collect();
            let loaded = self
                .graph_of(node)
                .and_then(|graph| self.node(&graph, node))
                .map_err(|error| error.within(format_args!("node `{name}`")))?;
            ensure!(
                loaded.name() == node.name,
                DataLoss,
                "its graph is damaged: two nodes have the name `{}`",
                node.name
            );
        }
        Ok(self.graph)
    }

    /// The graph, in which new nodes are placed where this one is.
    fn graph_of(&self, node: &SavedNode) -> Result<Graph> {
        node.device.as_deref().map_or_else(|| Ok(self.graph.clone()), |name| self.graph.device(name))
    }

    fn node(&self, graph: &Graph, node: &SavedNode) -> Result<Operation> {
        let place = SourceLine { file: node.file.as_str().into(), line: node.line };
        if node.library.is_some() {
            return self.call(graph, node, place);
        }
        Ok(match node.kind.as_str() {
            "Placeholder" => {
                let dtype = node.dtype.as_deref().and_then(DType::parse);
                let dtype = dtype.ok_or_else(|| damaged("its dtype is missing or unknown"))?;
                let shape = Shape::from_json(&node.shape)?;
                graph.placeholder_at(&node.name, dtype, &shape, place)?.operation().clone()
            }
            "Constant" => {
                let value = self.constant(node)?;
                graph.constant_at(&node.name, value, place)?.operation().clone()
            }
            "Variable" => {
                let initial = self.one_input(node)?;
                graph.variable_at(&node.name, &initial, place)?.output().operation().clone()
            }
            "Assign" => self.assign(graph, node, place)?,
            "Group" | "Initialize" => {
                let kind = if node.kind == "Group" { Kind::Group } else { Kind::Initialize };
                let controls = self.controls(node)?.iter().map(Operation::id).collect();
                graph.push(&node.name, Node { kind, ..effect(controls, place) })?
            }
            other => bail!(DataLoss, "its kind `{other}` is not known"),
        })
    }

    fn constant(&self, node: &SavedNode) -> Result<Tensor> {
        if !node.value.is_null() {
            return Tensor::from_value(&opsmith_core::attr::TensorValue::from_json(&node.value)?);
        }
        let tensor = self.tensors.get(node.name.as_str());
        tensor.map(|tensor| (*tensor).clone()).ok_or_else(|| damaged("its value is missing"))
    }

    fn assign(&self, graph: &Graph, node: &SavedNode, place: SourceLine) -> Result<Operation> {
        let variable = self.output(node.variable.as_deref().unwrap_or_default())?;
        let variable = super::Variable::from_output(&variable)?;
        let value = self.one_input(node)?;
        variable.check(&value)?;
        graph.push(&node.name, variable.assignment(&value, place))
    }

    fn call(&self, graph: &Graph, node: &SavedNode, place: SourceLine) -> Result<Operation> {
        let op = self.op(node)?;
        let signature = op.signature();
        let mut call = graph.call(&op).name(&node.name).place(place);
        for (index, def) in signature.inputs.iter().enumerate() {
            let outputs = match node.inputs.get(index).and_then(Option::as_ref) {
                Some(names) => Some(names.iter().map(|name| self.output(name)).collect::<Result<Vec<_>>>()?),
                None => None,
            };
            // One tensor may have become a list since, and there may be new inputs: lists that may be empty, or optional.
            call = call.arg(match outputs {
                Some(outputs) if def.count.is_list() => GraphArg::List(outputs),
                None if def.count.is_list() => GraphArg::List(vec![]),
                Some(outputs) if outputs.len() == 1 => GraphArg::One(outputs[0].clone()),
                Some(outputs) => {
                    let (name, got) = (&def.name, outputs.len());
                    return Err(op.refusal(format!("input `{name}` is one tensor, got {got}")).naming(name));
                }
                None => GraphArg::Absent,
            });
        }
        let (most, got) = (signature.inputs.len(), node.inputs.len());
        if got > most {
            return Err(op.refusal(format!("takes {most} inputs, got {got}")));
        }
        for (name, json) in &node.attrs {
            let index = signature.attr_index(name).ok_or_else(|| signature.unknown_attr(name))?;
            let def = &signature.attrs[index];
            let listed =
                if def.ty.list && !json.is_array() { Value::from(vec![json.clone()]) } else { json.clone() };
            call = call.attr(name, def.value_from_json(&listed)?);
        }
        for control in self.controls(node)? {
            call = call.after(&control);
        }
        call.build()
    }

    fn op(&self, node: &SavedNode) -> Result<Op> {
        let name = node.library.as_deref().unwrap_or_default();
        let standard = Library::standard()?;
        let library = self.libraries.iter().chain([&standard]).find(|library| library.name() == name);
        let Some(library) = library else {
            let from = self.saved.libraries.iter().find(|library| library.name == name);
            let hint = from.map_or(String::new(), |library| {
                format!(" (it was made with version {} from {})", library.version, library.path)
            });
            bail!(NotFound, "needs the library `{name}`{hint}: pass it to `Graph.load`, beside the path");
        };
        library.op(&node.kind)
    }

    fn controls(&self, node: &SavedNode) -> Result<Vec<Operation>> {
        node.controls.iter().map(|name| self.known(name, || self.graph.operation(name))).collect()
    }

    fn one_input(&self, node: &SavedNode) -> Result<Output> {
        match node.inputs.as_slice() {
            [Some(names)] if names.len() == 1 => self.output(&names[0]),
            _ => Err(damaged("it takes one tensor")),
        }
    }

    fn output(&self, name: &str) -> Result<Output> {
        self.known(name, || self.graph.output(name))
    }

    /// What is found of this name among the nodes before; what comes later is the way to a cycle.
    fn known<T>(&self, name: &str, find: impl FnOnce() -> Result<T>) -> Result<T> {
        let node = name.split(':').next().unwrap_or_default();
        find().map_err(|error| {
            if self.saved.nodes.iter().any(|saved| saved.name == node) && self.graph.operation(node).is_err()
            {
                let message = format!("takes `{name}`, which comes after it: a graph cannot have cycles");
                return Error::invalid_argument(message);
            }
            error
        })
    }
}
