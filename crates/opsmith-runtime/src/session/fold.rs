//! What a plan can leave out: nodes that compute the same as another, and nodes whose inputs are constants.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use opsmith_core::Device;

use super::needed::Needed;
use super::op_call::OpCall;
use crate::graph::{Endpoint, Kind, Node, NodeId};
use crate::pool::MemoryPool;
use crate::tensor::Tensor;
use crate::told::Attrs;

/// The most bytes of constants that are computed when a plan is made, of each and about so many of all: they are kept as
/// long as the plan.
const MOST_FOLDED: usize = 10 << 20;

/// The most bytes of constants that are compared.
const MOST_COMPARED: usize = 256;

/// The threads that constants are computed on, at most, and the memory for them.
pub(super) type Resources<'a> = (Option<NonZeroUsize>, &'a Arc<MemoryPool>);

/// What was found out.
#[derive(Default)]
pub(super) struct Simplified {
    /// Outputs that are the same as an earlier one.
    pub(super) same: HashMap<Endpoint, Endpoint>,
    /// The values of outputs that are always the same.
    pub(super) constants: HashMap<Endpoint, Tensor>,
}

impl Simplified {
    /// Nothing but the constants that the graph has.
    pub(super) fn nothing(graph: &Needed<'_>, order: &[NodeId]) -> Simplified {
        let mut simplified = Simplified::default();
        for &id in order {
            if let Kind::Constant(tensor) = &graph.nodes[id].kind {
                simplified.constants.insert(Endpoint { node: id, index: 0 }, tensor.clone());
            }
        }
        simplified
    }
}

/// What two nodes have in common that compute the same.
#[derive(PartialEq, Eq, Hash)]
enum Computes {
    Call {
        library: *const opsmith_core::abi::OpsmithLibrary,
        op: usize,
        attrs: Attrs,
        inputs: Vec<Option<Endpoint>>,
        counts: Vec<usize>,
        device: Device,
    },
    Constant {
        dtype: u8,
        shape: Vec<usize>,
        bytes: Vec<u8>,
    },
}

/// Finds nodes of `order` that compute the same as an earlier one, or always the same.
pub(super) fn simplify(graph: &Needed<'_>, order: &[NodeId], (threads, pool): Resources<'_>) -> Simplified {
    let mut found = Simplified::default();
    let mut known: HashMap<Computes, NodeId> = HashMap::new();
    let mut folded = 0;
    for &id in order {
        let node = &*graph.nodes[id];
        let is_fed = |index| graph.feeds.contains(&Endpoint { node: id, index });
        if !node.is_pure() || !node.controls.is_empty() || (0..node.outputs.len()).any(is_fed) {
            continue;
        }
        let inputs: Vec<Option<Endpoint>> = node
            .inputs
            .iter()
            .map(|input| input.map(|input| *found.same.get(&input).unwrap_or(&input)))
            .collect();
        if let Some(earlier) = computes(node, &inputs).and_then(|computes| match known.entry(computes) {
            std::collections::hash_map::Entry::Occupied(entry) => Some(*entry.get()),
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(id);
                None
            }
        }) {
            let outputs = 0..node.outputs.len();
            let pair = |index| (Endpoint { node: id, index }, Endpoint { node: earlier, index });
            found.same.extend(outputs.map(pair));
            continue;
        }
        let is_given = matches!(node.kind, Kind::Constant(_));
        if !is_given && folded > MOST_FOLDED {
            continue;
        }
        for (index, tensor) in fold(graph, node, &inputs, &found, (threads, pool)).into_iter().enumerate() {
            if !is_given {
                folded += tensor.num_elements() * tensor.dtype().size();
            }
            found.constants.insert(Endpoint { node: id, index }, tensor);
        }
    }
    found
}

/// What a node computes, where that can be compared.
fn computes(node: &Node, inputs: &[Option<Endpoint>]) -> Option<Computes> {
    match &node.kind {
        Kind::Call { op, attrs } => Some(Computes::Call {
            library: op.library().table(),
            op: op.index(),
            attrs: attrs.clone(),
            inputs: inputs.to_vec(),
            counts: node.counts.clone(),
            device: node.device,
        }),
        Kind::Constant(tensor) if tensor.num_elements() * tensor.dtype().size() <= MOST_COMPARED => {
            let value = tensor.to_value().ok().filter(|value| value.strings.is_empty())?;
            Some(Computes::Constant { dtype: value.dtype as u8, shape: value.shape, bytes: value.bytes })
        }
        _ => None,
    }
}

/// The values of a node's outputs, where they are always the same; none else. What fails is left to the run, which says
/// where.
fn fold(
    graph: &Needed<'_>,
    node: &Node,
    inputs: &[Option<Endpoint>],
    found: &Simplified,
    (threads, pool): Resources<'_>,
) -> Vec<Tensor> {
    let (op, attrs) = match &node.kind {
        Kind::Constant(tensor) => return vec![tensor.clone()],
        Kind::Call { op, attrs } if !inputs.is_empty() => (op, attrs),
        _ => return vec![],
    };
    let small = node.outputs.iter().all(|known| {
        let count =
            known.shape.to_known().and_then(|shape| opsmith_core::tensor::checked_num_elements(&shape));
        count.and_then(|count| count.checked_mul(known.dtype.size())).is_some_and(|size| size <= MOST_FOLDED)
    });
    let value = |input: &Option<Endpoint>| match input {
        Some(input) if graph.feeds.contains(input) => None,
        Some(input) => found.constants.get(input).map(Some),
        None => Some(None),
    };
    let Some(values) = inputs.iter().map(value).collect::<Option<Vec<_>>>().filter(|_| small) else {
        return vec![];
    };
    let call = OpCall { op, attrs, counts: &node.counts, wanted: u64::MAX, threads };
    let outputs = call.run(&values, None, (None, pool));
    outputs.ok().and_then(|outputs| outputs.into_iter().collect()).unwrap_or_default()
}
