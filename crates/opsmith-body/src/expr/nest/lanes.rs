//! Which axis lies along the numbers of a block.

use std::collections::BTreeSet;

use super::cut::Known;
use crate::axes::{Axes, Axis};
use crate::body::BLOCK;
use crate::expr::graph::{Id, Node};

/// What a block costs besides its numbers, a number costing 1.
const PER_BLOCK: usize = 64;
/// The least numbers that are computed of a block.
const LEAST: usize = 32;
/// What it costs to gather a number that does not lie beside the last one.
const GATHER: usize = 12;
/// What it costs to fold the numbers of a block.
const ACROSS: usize = 100;

/// The axis along which it takes the least time to compute some numbers, where loops along `free` are around all others; none
/// if they lie on no axis.
pub(super) fn best(known: &Known<'_>, numbers: &BTreeSet<Id>, free: Axes, avoided: Axes) -> Option<Axis> {
    let all = numbers.iter().map(|id| space(known, *id)).fold(Axes::NONE, Axes::union);
    // The last one of equals: there numbers are most often beside each other.
    let axes = all.iter().filter(|axis| known.room.count(Axes::of(*axis)) > 1);
    axes.rev().min_by_key(|axis| (avoided.has(*axis), time(known, numbers, free, *axis)))
}

/// The axes at whose positions a number is computed.
fn space(known: &Known<'_>, id: Id) -> Axes {
    match known.node(id) {
        Node::Fold(_, axis, a) => known.axes[a.index()].with(axis),
        _ => known.axes[id.index()],
    }
}

fn time(known: &Known<'_>, numbers: &BTreeSet<Id>, free: Axes, lanes: Axis) -> usize {
    let size = known.room.count(Axes::of(lanes));
    let blocks = size.div_ceil(BLOCK);
    let block = PER_BLOCK + size.min(BLOCK).next_multiple_of(LEAST);
    let of_number = |id: &Id| {
        let node = known.node(*id);
        if matches!(node, Node::Constant(_) | Node::Attribute(_) | Node::Count(_)) {
            return 0;
        }
        let own = space(known, *id);
        let others = known.room.count(own.without(lanes));
        if !own.has(lanes) {
            return others.saturating_mul(PER_BLOCK + LEAST);
        }
        let mut time = others.saturating_mul(blocks).saturating_mul(block);
        match node {
            Node::Input(position) if !known.room.is_dense(position as usize, lanes) => {
                time = time.saturating_add(others.saturating_mul(size).saturating_mul(GATHER));
            }
            Node::Fold(_, axis, _) if axis == lanes && !free.has(lanes) => {
                time = time.saturating_add(others.saturating_mul(ACROSS));
            }
            _ => {}
        }
        time
    };
    numbers.iter().map(of_number).fold(0, usize::saturating_add)
}
