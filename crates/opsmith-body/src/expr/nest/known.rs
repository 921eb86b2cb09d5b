//! A graph, and what is known of its nodes while it is cut.

use std::collections::{BTreeMap, BTreeSet};

use super::Room;
use crate::axes::{Axes, Axis};
use crate::expr::graph::Graph;
use crate::expr::node::{Binary, Id, Node, Unary};

/// What a sum of exponentials is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exponentials {
    /// The numbers.
    pub(super) number: Id,
    /// The largest of them.
    pub(super) largest: Id,
    /// What is subtracted from each, which is made of the largest one alone.
    pub(super) shift: Id,
}

/// A graph, and what is known of its nodes.
pub(super) struct Known<'a> {
    pub(super) graph: &'a Graph,
    pub(super) room: &'a Room<'a>,
    pub(super) axes: Vec<Axes>,
    /// The folds that are in memory, and in which array.
    pub(super) kept: BTreeMap<Id, usize>,
    /// For a card, the sums that can be computed in the loop of the largest number.
    pub(super) online: BTreeMap<Id, Exponentials>,
}

impl Known<'_> {
    pub(super) fn node(&self, id: Id) -> Node {
        self.graph.nodes()[id.index()]
    }

    /// Whether it is read from memory, by whoever does not compute it.
    pub(super) fn is_kept(&self, id: Id) -> bool {
        self.kept.contains_key(&id)
    }

    /// All that numbers are computed from, down to what is read from memory, themselves among it; folds of `own` are computed.
    pub(super) fn below(&self, roots: impl IntoIterator<Item = Id>, own: &BTreeSet<Id>) -> BTreeSet<Id> {
        let mut found = BTreeSet::new();
        let mut pending: Vec<Id> = roots.into_iter().collect();
        while let Some(id) = pending.pop() {
            if found.insert(id) && (!self.is_kept(id) || own.contains(&id)) {
                pending.extend(self.node(id).operands());
            }
        }
        found
    }

    /// The folds in memory that a number is computed from, not by way of others; of another number, the number itself if it is one.
    pub(super) fn folds_below(&self, id: Id) -> BTreeSet<Id> {
        let below = match self.is_kept(id) {
            true => self.below(self.node(id).operands(), &BTreeSet::new()),
            false => self.below([id], &BTreeSet::new()),
        };
        below.into_iter().filter(|id| self.is_kept(*id)).collect()
    }

    /// Some folds, and all that they need.
    pub(super) fn all(folds: &BTreeSet<Id>, needs: &BTreeMap<Id, BTreeSet<Id>>) -> BTreeSet<Id> {
        folds.iter().flat_map(|id| needs[id].iter().chain([id])).copied().collect()
    }
}

/// The free axes less those over which something dear would be computed again and again, being the same along them: for folds along an
/// axis, each on its axes.
pub(super) fn without_dear(known: &Known<'_>, folds: &[(Id, Axes)], fold: Axis, free: Axes) -> Axes {
    let operands = folds.iter().flat_map(|(id, _)| known.node(*id).operands());
    let mut free = free;
    for id in known.below(operands, &BTreeSet::new()) {
        let own = known.axes[id.index()];
        let fewer = free.both(own);
        if known.is_kept(id) || !own.has(fold) || !is_dear(known.node(id)) || fewer.is_empty() {
            continue;
        }
        let rest = folds.iter().map(|(_, axes)| axes.minus(fewer)).fold(Axes::NONE, Axes::union);
        if known.room.has(rest) {
            free = fewer;
        }
    }
    free
}

/// Whether it costs more than to be read.
pub(crate) fn is_dear(node: Node) -> bool {
    match node {
        Node::Fold(..) | Node::Binary(Binary::Pow | Binary::Div, ..) => true,
        Node::Unary(op, _) => !matches!(op, Unary::Neg | Unary::Abs | Unary::Sign | Unary::Floor),
        _ => false,
    }
}
