//! Which axis lies along the numbers of a block.

use std::collections::BTreeSet;

use super::known::Known;
use crate::axes::{Axes, Axis};
use crate::expr::node::{Id, Node};

/// What it costs to compute a vector of numbers, a number costing 1.
const VECTOR: usize = 8;
/// What it costs to gather a number that does not lie beside the last one.
const GATHER: usize = 12;
/// What it costs to write one there.
const SCATTER: usize = 20;
/// What it costs to fold into a number that is not in a register: one of many that a position of the lanes contributes to.
const MOVED: usize = 2;
/// What it costs to fold the numbers of a vector.
const ACROSS: usize = 100;

/// The axis along which it takes the least time to compute some numbers, where loops along `free` are around all others; none
/// if they lie on no axis. Of outputs there is which they are, and their axes.
pub(super) fn best(
    known: &Known<'_>,
    (numbers, outputs): (&BTreeSet<Id>, &[(usize, Axes)]),
    free: Axes,
    avoided: Axes,
) -> Option<Axis> {
    let all = numbers.iter().map(|id| space(known, *id)).fold(Axes::NONE, Axes::union);
    // The last one of equals: there numbers are most often beside each other.
    let axes = all.iter().filter(|axis| known.room.count(Axes::of(*axis)) > 1);
    axes.rev().min_by_key(|axis| {
        let time = time(known, numbers, free, *axis).saturating_add(written(known, outputs, *axis));
        (avoided.has(*axis), time)
    })
}

/// The axes at whose positions a number is computed.
fn space(known: &Known<'_>, id: Id) -> Axes {
    match known.node(id) {
        Node::Fold(_, axis, a) => known.axes[a.index()].with(axis),
        _ => known.axes[id.index()],
    }
}

fn written(known: &Known<'_>, outputs: &[(usize, Axes)], lanes: Axis) -> usize {
    let inputs = known.graph.input_axes().count();
    let is_apart =
        |(output, axes): &&(usize, Axes)| axes.has(lanes) && !known.room.is_dense(inputs + output, lanes);
    let apart = outputs.iter().filter(is_apart);
    apart.map(|(_, axes)| known.room.count(*axes).saturating_mul(SCATTER)).fold(0, usize::saturating_add)
}

fn time(known: &Known<'_>, numbers: &BTreeSet<Id>, free: Axes, lanes: Axis) -> usize {
    let size = known.room.count(Axes::of(lanes));
    let of_number = |id: &Id| {
        let node = known.node(*id);
        if matches!(node, Node::Constant(_) | Node::Attribute(_) | Node::Count(_)) {
            return 0;
        }
        let own = space(known, *id);
        let others = known.room.count(own.without(lanes));
        if !own.has(lanes) {
            // What is read everywhere is read beside what it is used for.
            return if matches!(node, Node::Input(_)) { 0 } else { others.saturating_mul(VECTOR) };
        }
        let mut time = others.saturating_mul(size.next_multiple_of(VECTOR));
        match node {
            Node::Input(position) if !known.room.is_dense(position as usize, lanes) => {
                time = time.saturating_add(others.saturating_mul(size).saturating_mul(GATHER));
            }
            Node::Fold(_, axis, _) if axis == lanes && !free.has(lanes) => {
                time = time.saturating_add(others.saturating_mul(ACROSS));
                if !own.minus(free).without(lanes).is_empty() {
                    time = time.saturating_add(others.saturating_mul(size).saturating_mul(MOVED));
                }
            }
            _ => {}
        }
        time
    };
    numbers.iter().map(of_number).fold(0, usize::saturating_add)
}
