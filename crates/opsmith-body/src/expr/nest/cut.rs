//! Where a graph is cut: which folds are in memory, and what is computed together.

use std::collections::{BTreeMap, BTreeSet};

use super::emit::{Action, Emitter, Item};
use super::{Nest, Nests, Place, Room};
use crate::axes::{Axes, Axis};
use crate::expr::graph::{Binary, Graph, Id, Node, Unary};

/// From how many positions on an axis is worth lying along the lanes.
const FEW_LANES: usize = 16;

/// A graph, and what is known of its nodes.
pub(super) struct Known<'a> {
    pub(super) graph: &'a Graph,
    pub(super) room: &'a Room<'a>,
    pub(super) axes: Vec<Axes>,
    /// The folds that are in memory, and in which array.
    pub(super) kept: BTreeMap<Id, usize>,
}

impl Known<'_> {
    pub(super) fn node(&self, id: Id) -> Node {
        self.graph.nodes()[id.index()]
    }

    /// Whether it is read from memory, by whoever does not compute it.
    pub(super) fn is_kept(&self, id: Id) -> bool {
        self.kept.contains_key(&id)
    }

    /// All that a number is computed from, down to what is read from memory, itself among it.
    pub(super) fn below(&self, roots: impl IntoIterator<Item = Id>) -> BTreeSet<Id> {
        let mut found = BTreeSet::new();
        let mut pending: Vec<Id> = roots.into_iter().collect();
        while let Some(id) = pending.pop() {
            if found.insert(id) && !self.is_kept(id) {
                pending.extend(self.node(id).operands());
            }
        }
        found
    }
}

/// What is computed in one nest: numbers, and where they go.
struct Group {
    /// The axis along which they are folded, if they are.
    fold: Option<Axis>,
    items: Vec<Item>,
}

pub(super) fn cut(graph: &Graph, room: &Room<'_>) -> Nests {
    let mut known = Known { graph, room, axes: graph.axes(), kept: BTreeMap::new() };
    known.kept = kept(&known);
    let levels = levels(&known);
    let last = levels.iter().copied().max().unwrap_or(0);
    let mut nests = Vec::new();
    for level in 0..=last {
        for group in groups(&known, &levels, level) {
            nests.push(nest(&known, &group));
        }
    }
    let mut temporaries = vec![Axes::NONE; known.kept.len()];
    for (id, array) in &known.kept {
        temporaries[*array] = known.axes[id.index()];
    }
    Nests { temporaries, nests }
}

/// The folds that are in memory: those that are no larger than the largest argument, and those along an axis along which what
/// is made of them is folded again.
fn kept(known: &Known<'_>) -> BTreeMap<Id, usize> {
    let arguments: Vec<Axes> = known.graph.input_axes().chain(known.graph.output_axes()).collect();
    let mut again: BTreeSet<Id> = BTreeSet::new();
    // Along which axes what a node is used for is folded.
    let mut folded = vec![Axes::NONE; known.axes.len()];
    for (index, node) in known.graph.nodes().iter().enumerate().rev() {
        let mut own = folded[index];
        if let Node::Fold(_, axis, _) = node {
            let is_again = own.has(*axis);
            if is_again {
                again.insert(Id(index as u32));
            }
            // What is made of a fold in memory is computed apart from it.
            let is_kept = is_again || known.room.keeps(known.axes[index], &arguments);
            own = if is_kept { Axes::of(*axis) } else { own.with(*axis) };
        }
        for id in node.operands() {
            folded[id.index()] = folded[id.index()].union(own);
        }
    }
    let folds = known.graph.nodes().iter().enumerate().filter(|(_, node)| matches!(node, Node::Fold(..)));
    folds
        .map(|(index, _)| Id(index as u32))
        .filter(|id| known.room.keeps(known.axes[id.index()], &arguments) || again.contains(id))
        .enumerate()
        .map(|(array, id)| (id, array))
        .collect()
}

/// After how many folds into memory each node is known.
fn levels(known: &Known<'_>) -> Vec<usize> {
    let mut levels: Vec<usize> = Vec::with_capacity(known.axes.len());
    for (index, node) in known.graph.nodes().iter().enumerate() {
        let last = node.operands().map(|id| levels[id.index()]).max().unwrap_or(0);
        levels.push(last + usize::from(known.is_kept(Id(index as u32))));
    }
    levels
}

/// What is computed after so many folds, in groups.
fn groups(known: &Known<'_>, levels: &[usize], level: usize) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let outputs = || known.graph.outputs().iter().zip(known.graph.output_axes()).enumerate();
    for (&id, &array) in &known.kept {
        let Node::Fold(_, axis, a) = known.node(id) else { continue };
        if levels[a.index()] != level {
            continue;
        }
        let axes = known.axes[id.index()];
        let item = |to: Place| Item { id, axes, action: Action::Store(to) };
        let mut items = vec![item(Place::Temporary(array))];
        // An output that lies on more axes is written later.
        items.extend(
            outputs()
                .filter(|(_, (other, own))| **other == id && *own == axes)
                .map(|(o, _)| item(Place::Output(o))),
        );
        let fits = |group: &&mut Group| group.fold == Some(axis) && goes_with(known, &group.items, axes);
        match groups.iter_mut().find(fits) {
            Some(group) => group.items.extend(items),
            None => groups.push(Group { fold: Some(axis), items }),
        }
    }
    for (output, (&id, axes)) in outputs() {
        let is_written = known.is_kept(id) && known.axes[id.index()] == axes;
        if is_written || levels[id.index()] != level {
            continue;
        }
        let item = Item { id, axes, action: Action::Store(Place::Output(output)) };
        let fits = |group: &&mut Group| group.fold.is_none() && group.items[0].axes == axes;
        match groups.iter_mut().find(fits) {
            Some(group) => group.items.push(item),
            None => groups.push(Group { fold: None, items: vec![item] }),
        }
    }
    groups
}

/// Whether a fold can be computed in the loops of others: its axes are among theirs, or theirs among its.
fn goes_with(known: &Known<'_>, items: &[Item], axes: Axes) -> bool {
    items.iter().all(|item| {
        let both = item.axes.both(axes);
        let rest = item.axes.union(axes).minus(both);
        let is_chain = both == axes || both == item.axes;
        rest.is_empty() || (is_chain && !both.is_empty() && known.room.has(rest))
    })
}

/// The nest of a group.
fn nest(known: &Known<'_>, group: &Group) -> Nest {
    let all = group.items.iter().map(|item| item.axes).reduce(Axes::both).unwrap_or_default();
    let free = group.fold.map_or(all, |axis| without_dear(known, group, axis, all));
    let size = |axis: Axis| known.room.size(axis);
    if matches!(known.room, Room::Card) {
        return Emitter::new(known, None).nest(free, &group.items);
    }
    let mut lanes = free.iter().max_by_key(|axis| (size(*axis).min(2 * crate::body::BLOCK), axis.index()));
    if let Some(fold) = group.fold
        && lanes.is_none_or(|axis| size(axis) < FEW_LANES && size(axis) < size(fold))
    {
        lanes = Some(fold);
    }
    if lanes.is_none() {
        // Something may still lie on an axis: what is folded away on the way to a single number.
        let below = known.below(group.items.iter().map(|item| item.id));
        let axes = below.iter().map(|id| known.axes[id.index()]).fold(Axes::NONE, Axes::union);
        lanes = axes.iter().max_by_key(|axis| size(*axis));
    }
    Emitter::new(known, lanes).nest(free, &group.items)
}

/// The free axes less those over which something dear would be computed again and again, being the same along them.
fn without_dear(known: &Known<'_>, group: &Group, fold: Axis, free: Axes) -> Axes {
    let operands = group.items.iter().flat_map(|item| known.node(item.id).operands());
    let mut free = free;
    for id in known.below(operands) {
        let own = known.axes[id.index()];
        let fewer = free.both(own);
        if known.is_kept(id) || !own.has(fold) || !is_dear(known.node(id)) || fewer.is_empty() {
            continue;
        }
        let rest = group.items.iter().map(|item| item.axes.minus(fewer)).fold(Axes::NONE, Axes::union);
        if known.room.has(rest) {
            free = fewer;
        }
    }
    free
}

/// Whether it costs more than to be read.
fn is_dear(node: Node) -> bool {
    match node {
        Node::Fold(..) | Node::Binary(Binary::Pow | Binary::Div, ..) => true,
        Node::Unary(op, _) => !matches!(op, Unary::Neg | Unary::Abs | Unary::Sign | Unary::Floor),
        _ => false,
    }
}
