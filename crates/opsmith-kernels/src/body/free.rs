//! Which axes of a body are free: those that every output has, and that the body neither folds nor asks for positions or sizes of.

use opsmith_body::{Axes, Graph, Node};
use opsmith_core::family::Like;
use opsmith_core::{AttrValue, DeviceKind, Error, OpDef, OpKernelConstruction, Result};

use super::check::{check, own_sizes};
use super::{Arguments, AxesBody, AxisSize};
use crate::facts::{Facts, Reading};

/// The op, with the rule of its free axes, and what is wrong with its body. What that computes may depend on its attributes, so an axis is
/// free if it is for each of several values of them.
pub(super) fn declared<B: AxesBody>(def: OpDef, order: usize, reading: &Reading) -> OpDef {
    let arguments = &Arguments::of::<B>(&reading.saved);
    let bodies = bodies(&def, &|construction| {
        Ok((B::new(construction)?.trace(), own_sizes(construction, arguments)?))
    });
    let free = free(arguments, &bodies);
    let def = def.parallel(&B::FACTS.parallel(order, reading, |like| argument(arguments, like, free)));
    match fault(&def, arguments, &B::FACTS, &bodies) {
        Some(fault) => def.fault(fault),
        None => def,
    }
}

/// Every argument has any number of dims before those of its axes.
fn argument(arguments: &Arguments, like: Like, free: Axes) -> String {
    let own = arguments.like(like).into_iter();
    let dims = own.map(|parts| match *parts {
        [axis] if Axes::at(parts).is_within(free) => format!(", {}", arguments.axes[axis]),
        _ => ", _".to_owned(),
    });
    format!("(...{})", dims.collect::<String>())
}

/// What an instance computes, and the sizes that axes have of their own.
type Body = (Graph, Vec<Option<usize>>);

/// The bodies of several instances, that of the attributes' defaults first; nothing where there is no instance.
fn bodies(def: &OpDef, body: &dyn Fn(&OpKernelConstruction<'_>) -> Result<Body>) -> Vec<Option<Body>> {
    // An op that is not well formed is told when it is built.
    let Ok(signature) = def.signature() else { return Vec::new() };
    let body = |attrs: &Vec<AttrValue>| {
        let construction = OpKernelConstruction::new(&signature, attrs, DeviceKind::Cpu);
        opsmith_core::panic::catch(|| body(&construction)).ok()
    };
    signature.attr_samples().iter().map(body).collect()
}

/// What is wrong with the body: for the defaults, or for all values that were tried where some attributes have none.
fn fault(def: &OpDef, arguments: &Arguments, facts: &Facts, bodies: &[Option<Body>]) -> Option<Error> {
    let signature = def.signature().ok()?;
    let has_defaults = signature.attrs.iter().all(|attr| attr.name == "T" || attr.default.is_some());
    let tried = if has_defaults { bodies.get(..1)? } else { bodies };
    let check = |body: &Option<Body>| {
        let (graph, sizes) = body.as_ref()?;
        check(graph, sizes, arguments, facts).err()
    };
    let faults: Option<Vec<Error>> = tried.iter().map(check).collect();
    // The gradients' ops have the body of this one.
    faults?.into_iter().next().map(|error| error.with_op(facts.name))
}

fn free(arguments: &Arguments, bodies: &[Option<Body>]) -> Axes {
    if bodies.is_empty() {
        return Axes::NONE;
    }
    // A part of an axis that has a size of its own has another size.
    let is_given = |axis: usize| matches!(arguments.sizes[axis], AxisSize::Given);
    let everywhere =
        |axis: &usize| is_given(*axis) && arguments.outputs.iter().all(|axes| axes.contains(axis));
    let shared: Vec<usize> = (0..arguments.axes.len()).filter(everywhere).collect();
    // A part of an axis leaves what is as long, and what consists of the whole axis, as it is.
    let as_long = arguments.sizes.iter().filter_map(|size| match size {
        AxisSize::Axis(axis) => Some(Axes::at(&[*axis])),
        _ => None,
    });
    let bound = as_long.fold(arguments.of_sums(), Axes::union);
    // Where there is no instance there is no call.
    bodies.iter().flatten().fold(Axes::at(&shared).minus(bound), |free, (graph, _)| free.minus(used(graph)))
}

/// The axes of which a part would give something else.
fn used(graph: &Graph) -> Axes {
    graph.nodes().iter().fold(Axes::NONE, |used, node| match *node {
        Node::Fold(_, axis, _) | Node::Count(axis) | Node::Index(axis) => used.with(axis),
        _ => used,
    })
}
