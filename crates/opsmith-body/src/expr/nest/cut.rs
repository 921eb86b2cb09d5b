//! Where a graph is cut: which folds are in memory, and what is computed together.

use std::collections::{BTreeMap, BTreeSet};

use super::emit::{Action, Emitter, Item};
use super::known::{Known, without_dear};
use super::online;
use super::order::{Order, beside};
use super::whole;
use super::{Nest, Nests, Place, Room, again, lanes};
use crate::axes::{Axes, Axis};
use crate::expr::graph::Graph;
use crate::expr::node::{Id, Node};

/// What is computed in one nest: numbers, and where they go.
struct Group {
    /// The axis along which they are folded, if that is all that they are.
    fold: Option<Axis>,
    /// The axes of the outermost loops, if that is decided.
    free: Option<Axes>,
    /// The folds that are computed here and may be read from memory elsewhere.
    own: BTreeSet<Id>,
    items: Vec<Item>,
}

pub(super) fn cut(graph: &Graph, room: &Room<'_>) -> Nests {
    let mut known = Known::new(graph, room);
    known.keep(numbered(kept(&known)));
    let mut wholes = whole::find(&known);
    wholes.iter_mut().for_each(|whole| whole.keep_rows(&mut known));
    let order = Order::new(&known, &wholes).expect("wholes were found so that none needs itself");
    let last = order.levels().max().unwrap_or(0);
    let again = again::Again::of(&known);
    // Nobody else reads what only one nest computes and uses, or writes as an output.
    let read: BTreeSet<Id> = order.read_elsewhere(&known);
    let groups: Vec<Group> = {
        let stored = numbered(known.kept().keys().copied().filter(|id| read.contains(id)));
        let mut groups = Vec::new();
        for level in 0..=last {
            groups.extend(order.groups_of_wholes(&known, &stored, level));
            groups.extend(groups_at(&known, &stored, &order, level));
        }
        known.keep(stored);
        groups
    };
    let compared = again::compared(&known);
    if matches!(room, Room::Card { .. }) {
        known.online = online::find(&known, &compared);
    }
    let computed = |group: &Group| {
        let below = known.below(group.items.iter().map(|item| item.id), &group.own);
        below.into_iter().filter(|id| !known.is_kept(*id) || group.own.contains(id)).collect()
    };
    let avoided = match room {
        Room::Blocks { .. } => again::avoided(&compared, &groups.iter().map(computed).collect::<Vec<_>>()),
        Room::Card { .. } => Axes::NONE,
    };
    let mut nests: Vec<Nest> = groups.iter().map(|group| nest(&known, group, avoided)).collect();
    again::mark(&mut nests, &compared);
    let mut temporaries = vec![Axes::NONE; known.kept().len()];
    for (id, array) in known.kept() {
        temporaries[*array] = known.axes[id.index()];
    }
    Nests { temporaries, nests, again, tiles: Vec::new() }
}

/// Folds with the arrays that they are in.
fn numbered(folds: impl IntoIterator<Item = Id>) -> BTreeMap<Id, usize> {
    folds.into_iter().enumerate().map(|(array, id)| (id, array)).collect()
}

/// The folds that are in memory: those that are no larger than the largest argument, and those along an axis along which what
/// is made of them is folded again.
fn kept(known: &Known<'_>) -> Vec<Id> {
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
        .collect()
}

impl Order<'_> {
    /// What is computed for rows after so many nests.
    fn groups_of_wholes(&self, known: &Known<'_>, stored: &BTreeMap<Id, usize>, level: usize) -> Vec<Group> {
        let here = self.wholes.iter().zip(&self.of_wholes).filter(|(_, own)| **own == level);
        here.map(|(whole, _)| {
            let item = |id: Id, axes: Axes, to: Place| Item { id, axes, action: Action::Store(to) };
            let axes = |id: Id| known.axes[id.index()];
            let folds = whole.folds.iter().filter_map(|id| Some((*id, *stored.get(id)?)));
            let own: Vec<Axes> = known.graph.output_axes().collect();
            let outputs = whole
                .outputs
                .iter()
                .map(|output| item(known.graph.outputs()[*output], own[*output], Place::Output(*output)));
            let items = folds.map(|(id, array)| item(id, axes(id), Place::Temporary(array))).chain(outputs);
            Group { fold: None, free: Some(whole.free), own: whole.folds.clone(), items: items.collect() }
        })
        .collect()
    }
}

/// What is computed after so many nests, in groups, but for what is computed for rows.
fn groups_at(known: &Known<'_>, stored: &BTreeMap<Id, usize>, order: &Order<'_>, level: usize) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let outputs = || known.graph.outputs().iter().zip(known.graph.output_axes()).enumerate();
    let is_rest = |output: &usize| order.of_outputs.contains_key(output);
    for &id in known.kept().keys().filter(|id| order.whole_of(**id).is_none()) {
        let Node::Fold(_, axis, _) = known.node(id) else { continue };
        if order.of_folds[&id] != level {
            continue;
        }
        let axes = known.axes[id.index()];
        let item = |to: Place| Item { id, axes, action: Action::Store(to) };
        let temporary = stored.get(&id).map(|array| item(Place::Temporary(*array)));
        let mut items: Vec<Item> = temporary.into_iter().collect();
        // An output that lies on more axes is written later.
        items.extend(
            outputs()
                .filter(|(output, (other, own))| **other == id && *own == axes && is_rest(output))
                .map(|(o, _)| item(Place::Output(o))),
        );
        if items.is_empty() {
            continue;
        }
        let fits = |group: &&mut Group| {
            group.fold == Some(axis) && group.items.iter().all(|item| beside(known, item.id, id))
        };
        match groups.iter_mut().find(fits) {
            Some(group) => {
                group.items.extend(items);
                group.own.insert(id);
            }
            None => groups.push(Group { fold: Some(axis), free: None, own: BTreeSet::from([id]), items }),
        }
    }
    for (output, (&id, axes)) in outputs().filter(|(output, _)| is_rest(output)) {
        let is_folded_here = known.is_kept(id) && order.whole_of(id).is_none();
        let is_written = is_folded_here && known.axes[id.index()] == axes;
        if is_written || order.of_outputs[&output] != level {
            continue;
        }
        let item = Item { id, axes, action: Action::Store(Place::Output(output)) };
        let fits = |group: &&mut Group| group.fold.is_none() && group.items[0].axes == axes;
        match groups.iter_mut().find(fits) {
            Some(group) => group.items.push(item),
            None => groups.push(Group { fold: None, free: None, own: BTreeSet::new(), items: vec![item] }),
        }
    }
    groups
}

/// The nest of a group, with lanes along none of the axes that are to be avoided if there are others.
fn nest(known: &Known<'_>, group: &Group, avoided: Axes) -> Nest {
    let all = group.items.iter().map(|item| item.axes).reduce(Axes::both).unwrap_or_default();
    let items = || group.items.iter().map(|item| (item.id, item.axes)).collect::<Vec<_>>();
    let free =
        group.free.unwrap_or_else(|| group.fold.map_or(all, |axis| without_dear(known, &items(), axis, all)));
    let lanes = match known.room {
        Room::Card { .. } => None,
        Room::Blocks { .. } => {
            let numbers = known.below(group.items.iter().map(|item| item.id), &group.own);
            let outputs = group.items.iter().map(|item| item.axes).fold(Axes::NONE, Axes::union);
            let written = |item: &Item| match item.action {
                Action::Store(Place::Output(output)) => Some((output, item.axes)),
                _ => None,
            };
            let written: Vec<_> = group.items.iter().filter_map(written).collect();
            lanes::best(known, (&numbers, &written), free, avoided)
                .or_else(|| outputs.iter().max_by_key(|axis| known.room.count(Axes::of(*axis))))
        }
    };
    let free = match (group.fold, lanes) {
        // What is dear would be computed again in loops around that along the lanes.
        (Some(fold), Some(lanes)) if free == all && is_swept(known, group, free, (fold, lanes)) => {
            free.without(lanes)
        }
        (None, Some(lanes)) if group.free.is_none() && has_rows(known, group, free, lanes) => {
            free.without(lanes)
        }
        _ => free,
    };
    Emitter::new(known, lanes, &group.own).nest(free, &group.items)
}

/// Whether the loop along the lanes goes within that along which is folded, so that memory is read as it lies.
fn is_swept(known: &Known<'_>, group: &Group, free: Axes, (fold, lanes): (Axis, Axis)) -> bool {
    /// So many numbers stay in the first cache.
    const MOST: usize = 1 << 12;
    /// Parts of so many positions are enough for threads.
    const LEAST: usize = 64;
    /// For so many positions.
    const SHARED: usize = 4;
    let count = known.room.count(Axes::of(lanes));
    let others = known.room.count(free.without(lanes).with(fold));
    let rows = free.without(lanes);
    let numbers = known.below(group.items.iter().map(|item| item.id), &group.own);
    let is_read = |id: &Id| matches!(known.node(*id), Node::Input(_)) || known.is_kept(*id);
    let read = numbers.into_iter().filter(is_read).map(|id| known.axes[id.index()]);
    let mut swept = read.filter(|own| own.has(lanes) && own.has(fold)).peekable();
    // What is the same along a free axis is read for several positions of that at once instead.
    let is_own = swept.peek().is_some() && swept.all(|own| known.room.count(rows.minus(own)) < SHARED);
    lanes != fold && free.has(lanes) && (16..=MOST).contains(&count) && others >= LEAST && is_own
}

/// Whether something is the same along the lanes, so that it is computed once for each row of them.
fn has_rows(known: &Known<'_>, group: &Group, free: Axes, lanes: Axis) -> bool {
    /// So many numbers are a row.
    const ROW: std::ops::RangeInclusive<usize> = 16..=1 << 12;
    /// Rows of which there are so many are enough for threads.
    const LEAST: usize = 64;
    let rows = known.room.count(free.without(lanes));
    let mut numbers = known.below(group.items.iter().map(|item| item.id), &group.own).into_iter();
    let is_of_row = |id: Id| {
        let own = known.axes[id.index()];
        !own.is_empty() && !own.has(lanes)
    };
    let is_row = free.has(lanes) && ROW.contains(&known.room.count(Axes::of(lanes))) && rows >= LEAST;
    is_row && numbers.any(is_of_row)
}
