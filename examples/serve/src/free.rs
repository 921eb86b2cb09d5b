//! Whether rows of several requests may be computed as one: the ops' free axes say so, from the inputs through the graph.

use std::collections::HashMap;

use opsmith_core::Result;
use opsmith_runtime::{Operation, Output};

/// What a tensor has of the requests' rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// Nothing: it is the same for all requests.
    None,
    /// They are along this dim, counted from the end from 1 on, and independent of each other.
    Along(usize),
    /// Something else.
    Mixed,
}

/// Why rows of several requests cannot be computed as one; none if the first dim of all inputs and outputs is one free axis of what the
/// nodes compute, in the graph's order.
///
/// # Errors
/// None for nodes that were made.
pub(crate) fn why_alone(
    needed: &[Operation],
    inputs: &[Output],
    outputs: &[Output],
) -> Result<Option<String>> {
    let first = |output: &Output| {
        let dims = output.shape().dims()?;
        dims.first().map(|dim| (dims.len(), dim.value().is_none()))
    };
    let mut known: HashMap<String, Rows> = HashMap::new();
    // Why the rows are mixed in a tensor, if they are.
    let mut whys: HashMap<String, String> = HashMap::new();
    for operation in needed {
        let (node, kind) = (operation.name(), operation.kind());
        let (rows, why) = match kind {
            // An effect is one for each run, and not for each row.
            _ if !operation.controls().is_empty() => (
                vec![Rows::Mixed; operation.num_outputs()],
                format!("node `{node}` ({kind}) waits for another"),
            ),
            "Placeholder" => {
                let rows = match first(&operation.output(0)?) {
                    Some((rank, true)) => Rows::Along(rank),
                    _ => Rows::Mixed,
                };
                (vec![rows], format!("input `{node}` has no first dim of unknown size"))
            }
            "Constant" | "Variable" => (vec![Rows::None], String::new()),
            _ => (call(operation, &known)?, format!("the rows are no free axis of node `{node}` ({kind})")),
        };
        let inputs = operation.inputs();
        let why = inputs.iter().flatten().find_map(|input| whys.get(&input.name())).cloned().unwrap_or(why);
        for (output, rows) in operation.outputs().iter().zip(rows) {
            if rows == Rows::Mixed {
                whys.insert(output.name(), why.clone());
            }
            known.insert(output.name(), rows);
        }
    }
    let is_first = |output: &&Output| {
        let rank = output.shape().rank();
        rank.is_some_and(|rank| known.get(&output.name()) == Some(&Rows::Along(rank)))
    };
    let other = inputs.iter().chain(outputs).find(|output| !is_first(output)).map(Output::name);
    Ok(other.map(|name| match whys.remove(&name) {
        Some(why) => why,
        None => format!("the first dim of `{name}` is not that of the rows"),
    }))
}

/// What the outputs of a node have, by what its inputs have.
fn call(operation: &Operation, known: &HashMap<String, Rows>) -> Result<Vec<Rows>> {
    let count = operation.num_outputs();
    let mixed = vec![Rows::Mixed; count];
    let Some(op) = operation.op() else { return Ok(mixed) };
    let signature = op.signature();
    if signature.stateful || signature.inputs.iter().any(|input| input.is_ref) {
        return Ok(mixed);
    }
    let tensors = operation.inputs();
    let rows = |input: &Option<Output>| match input {
        Some(input) => known.get(&input.name()).copied().unwrap_or(Rows::Mixed),
        None => Rows::None,
    };
    if tensors.iter().all(|input| rows(input) == Rows::None) {
        return Ok(vec![Rows::None; count]);
    }
    let mut arguments: Vec<&[Option<Output>]> = Vec::new();
    let mut rest = &tensors[..];
    for &count in operation.input_counts() {
        let (own, others) = rest.split_at(count);
        arguments.push(own);
        rest = others;
    }
    if tensors.iter().flatten().any(|input| input.shape().rank().is_none()) {
        return Ok(mixed);
    }
    let rank = |own: &&[Option<Output>]| own.iter().flatten().filter_map(|input| input.shape().rank()).max();
    let ranks: Vec<Option<usize>> = arguments.iter().map(rank).collect();
    let attrs = operation.all_attrs()?;
    let attrs: Vec<_> = attrs.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let axes = op.free_axes(&attrs, &ranks);
    let fits = |input: &Output, dim: Option<usize>| match (rows(&Some(input.clone())), dim) {
        (Rows::Along(at), dim) => dim == Some(at),
        (Rows::None, None) => true,
        (Rows::None, Some(dim)) => has_one(input, dim),
        (Rows::Mixed, _) => false,
    };
    let axis = axes.iter().find(|axis| {
        let mut given = arguments.iter().zip(&axis.inputs);
        given.all(|(own, &dim)| own.iter().flatten().all(|input| fits(input, dim)))
    });
    let Some(axis) = axis else { return Ok(mixed) };
    let of_output = axis.outputs.iter().zip(operation.output_counts()).flat_map(|(output, &count)| {
        // A sum over the parts is one over the rows of all requests.
        let along = output.dim.filter(|_| !output.is_sum);
        std::iter::repeat_n(along.map_or(Rows::Mixed, Rows::Along), count)
    });
    Ok(of_output.collect())
}

/// Whether a tensor is repeated along a dim, counted from the end: it lacks the dim, or has 1 there.
fn has_one(input: &Output, dim: usize) -> bool {
    let Some(dims) = input.shape().dims() else { return false };
    dims.len().checked_sub(dim).is_none_or(|at| dims[at].is(1))
}
