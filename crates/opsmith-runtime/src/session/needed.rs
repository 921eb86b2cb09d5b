//! The nodes that a run needs, of a graph to which others go on adding.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use opsmith_core::{Result, bail};

use super::Key;
use crate::graph::{Endpoint, Kind, Node, NodeId};
use crate::library::Op;

/// The graph as a plan sees it.
pub(super) struct Needed<'a> {
    pub(super) nodes: &'a [Arc<Node>],
    pub(super) variables: &'a [NodeId],
    pub(super) feeds: HashSet<Endpoint>,
}

impl Needed<'_> {
    /// The nodes that have to run, in order; where an endpoint is the same as another, that one is used.
    pub(super) fn order(&self, key: &Key, same: &HashMap<Endpoint, Endpoint>) -> Result<Vec<NodeId>> {
        let mut needed = vec![false; self.nodes.len()];
        let mut open: Vec<NodeId> = Vec::new();
        let mut need = |endpoint: &Endpoint, open: &mut Vec<NodeId>| {
            let endpoint = same.get(endpoint).unwrap_or(endpoint);
            if !self.feeds.contains(endpoint) && !std::mem::replace(&mut needed[endpoint.node], true) {
                open.push(endpoint.node);
            }
        };
        for fetch in &key.fetches {
            need(fetch, &mut open);
        }
        let whole = |node: NodeId| Endpoint { node, index: usize::MAX };
        for &target in &key.targets {
            need(&whole(target), &mut open);
        }
        while let Some(id) = open.pop() {
            let node = &self.nodes[id];
            if matches!(node.kind, Kind::Placeholder) {
                if self.feeds.contains(&Endpoint { node: id, index: 0 }) {
                    continue;
                }
                bail!(FailedPrecondition for &node.name, "placeholder {} has to be fed", quoted(node));
            }
            for input in self.inputs(id) {
                need(&input, &mut open);
            }
            for &control in &node.controls {
                need(&whole(control), &mut open);
            }
        }
        Ok((0..self.nodes.len()).filter(|&id| needed[id]).collect())
    }

    /// What a node reads.
    pub(super) fn inputs(&self, id: NodeId) -> Vec<Endpoint> {
        match &self.nodes[id].kind {
            Kind::Initialize => self.variables.iter().map(|&variable| self.initial(variable)).collect(),
            _ => self.nodes[id].inputs.iter().flatten().copied().collect(),
        }
    }

    fn initial(&self, variable: NodeId) -> Endpoint {
        match self.nodes[variable].kind {
            Kind::Variable { initial } => initial,
            _ => unreachable!("the graph lists its variables"),
        }
    }
}

/// The name of a node and where it was made, for an error that says of what kind it is.
pub(super) fn quoted(node: &Node) -> String {
    node.described().trim_start_matches("node ").to_owned()
}

/// The inputs of a node that its op changes in place.
pub(super) fn changed_inputs<'a>(op: &'a Op, node: &'a Node) -> impl Iterator<Item = Endpoint> + 'a {
    let mut first = 0;
    let defs = op.signature().inputs.iter().zip(&node.counts);
    defs.filter_map(move |(def, count)| {
        let input = node.inputs.get(first).copied().flatten();
        first += count;
        input.filter(|_| def.is_ref)
    })
}
