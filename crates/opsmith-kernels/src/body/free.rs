//! Which axes of a body are free: those that every output has, and that the body neither folds nor asks for positions or sizes of.

use opsmith_body::{Axes, Graph, Node};
use opsmith_core::family::{Like, Read};

use super::{Arguments, AxesBody, AxisSize};

/// The rule of the free axes of an op of the family. What a body computes may depend on its attributes, so an axis is free if it is for
/// each of several values of them.
pub(super) fn rule<B: AxesBody>(order: usize, read: &Read) -> String {
    let arguments = Arguments::of::<B>();
    let free = free(arguments, B::FACTS.samples(B::trace));
    B::FACTS.parallel(order, read, |like| argument(arguments, like, free))
}

/// Every argument has any number of dims before those of its axes.
fn argument(arguments: Arguments, like: Like, free: Axes) -> String {
    let own = arguments.like(like).iter();
    let dims = own.map(|&axis| match Axes::at(&[axis]).is_within(free) {
        true => format!(", {}", arguments.axes[axis]),
        false => ", _".to_owned(),
    });
    format!("(...{})", dims.collect::<String>())
}

fn free(arguments: Arguments, samples: Option<Vec<Graph>>) -> Axes {
    // A part of an axis that has a size of its own has another size.
    let is_given = |axis: usize| matches!(arguments.sizes[axis], AxisSize::Given);
    let everywhere =
        |axis: &usize| is_given(*axis) && arguments.outputs.iter().all(|axes| axes.contains(axis));
    let shared: Vec<usize> = (0..arguments.axes.len()).filter(everywhere).collect();
    let Some(samples) = samples else { return Axes::NONE };
    samples.iter().fold(Axes::at(&shared), |free, graph| free.minus(used(graph)))
}

/// The axes of which a part would give something else.
fn used(graph: &Graph) -> Axes {
    graph.nodes().iter().fold(Axes::NONE, |used, node| match *node {
        Node::Fold(_, axis, _) | Node::Count(axis) | Node::Index(axis) => used.with(axis),
        _ => used,
    })
}
