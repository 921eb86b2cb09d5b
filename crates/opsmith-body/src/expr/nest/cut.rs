//! Where a graph is cut: which folds are in memory, and what is computed together.

use std::collections::{BTreeMap, BTreeSet};

use super::emit::{Action, Emitter, Item};
use super::known::{Known, is_dear, without_dear};
use super::online;
use super::whole::{self, Whole};
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
    let mut known = Known { graph, room, axes: graph.axes(), kept: BTreeMap::new(), online: BTreeMap::new() };
    known.kept = numbered(kept(&known));
    let mut wholes = whole::find(&known);
    wholes.iter_mut().for_each(|whole| whole.keep_rows(&mut known));
    let order = Order::new(&known, &wholes).expect("wholes were found so that none needs itself");
    let last = order.levels().max().unwrap_or(0);
    let again = again::Again::of(&known);
    // Nobody else reads what only one nest computes and uses, or writes as an output.
    let read: BTreeSet<Id> = order.read_elsewhere(&known);
    let groups: Vec<Group> = {
        let stored = numbered(known.kept.keys().copied().filter(|id| read.contains(id)));
        let mut groups = Vec::new();
        for level in 0..=last {
            groups.extend(order.groups_of_wholes(&known, &stored, level));
            groups.extend(groups_at(&known, &stored, &order, level));
        }
        known.kept = stored;
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
    let mut temporaries = vec![Axes::NONE; known.kept.len()];
    for (id, array) in &known.kept {
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

/// Which folds and outputs are computed in one nest for rows, and after how many nests each can be computed.
pub(super) struct Order<'a> {
    wholes: &'a [Whole],
    of_wholes: Vec<usize>,
    of_folds: BTreeMap<Id, usize>,
    of_outputs: BTreeMap<usize, usize>,
}

impl<'a> Order<'a> {
    /// Nothing if two wholes need each other.
    pub(super) fn new(known: &Known<'_>, wholes: &'a [Whole]) -> Option<Self> {
        let mut order = Order {
            wholes,
            of_wholes: vec![0; wholes.len()],
            of_folds: BTreeMap::new(),
            of_outputs: BTreeMap::new(),
        };
        // What a whole needs may be known only when another one is: until nothing changes, in as many rounds as there are steps of
        // one after another at most.
        let mut rounds = known.kept.len() + wholes.len() + 2;
        loop {
            let before = (order.of_wholes.clone(), order.of_folds.clone());
            for (index, whole) in wholes.iter().enumerate() {
                order.of_wholes[index] = order.after(whole.needs(known).iter());
            }
            for &id in known.kept.keys() {
                let level = match order.whole_of(id) {
                    Some(whole) => order.of_wholes[whole],
                    None => order.after(known.folds_below(id).iter()),
                };
                order.of_folds.insert(id, level);
            }
            if before == (order.of_wholes.clone(), order.of_folds.clone()) {
                break;
            }
            rounds = rounds.checked_sub(1)?;
        }
        order.wait(known);
        for (output, &id) in known.graph.outputs().iter().enumerate() {
            if wholes.iter().all(|whole| !whole.outputs.contains(&output)) {
                let own = if known.is_kept(id) { BTreeSet::from([id]) } else { known.folds_below(id) };
                order.of_outputs.insert(output, order.after(own.iter()));
            }
        }
        Some(order)
    }

    /// Has folds that nothing needs sooner be computed with later ones, in the same loops, so that what both read is read once.
    fn wait(&mut self, known: &Known<'_>) {
        let alone = known.kept.keys().copied().filter(|id| self.whole_of(*id).is_none());
        let alone: Vec<Id> = alone.collect();
        let axis = |id: Id| match known.node(id) {
            Node::Fold(_, axis, _) => Some(axis),
            _ => None,
        };
        for &id in &alone {
            let of_folds = alone.iter().filter(|other| known.folds_below(**other).contains(&id));
            let of_folds = of_folds.map(|other| self.of_folds[other]);
            let of_wholes = self.wholes.iter().zip(&self.of_wholes);
            let of_wholes =
                of_wholes.filter(|(whole, _)| whole.needs(known).contains(&id)).map(|(_, level)| *level);
            let (own, needed) = (self.of_folds[&id], of_folds.chain(of_wholes).min().unwrap_or(usize::MAX));
            let is_later =
                |other: &&Id| axis(**other) == axis(id) && (own + 1..needed).contains(&self.of_folds[*other]);
            let found = alone.iter().filter(is_later).find(|other| beside(known, id, **other));
            if let Some(level) = found.map(|other| self.of_folds[other]) {
                self.of_folds.insert(id, level);
            }
        }
    }

    fn whole_of(&self, id: Id) -> Option<usize> {
        self.wholes.iter().position(|whole| whole.folds.contains(&id))
    }

    /// The level of what needs these folds.
    fn after<'i>(&self, folds: impl Iterator<Item = &'i Id>) -> usize {
        folds.map(|id| self.of_folds.get(id).copied().unwrap_or(0) + 1).max().unwrap_or(0)
    }

    fn levels(&self) -> impl Iterator<Item = usize> {
        self.of_wholes.iter().chain(self.of_folds.values()).chain(self.of_outputs.values()).copied()
    }

    /// The folds of wholes that other nests read.
    fn read_elsewhere(&self, known: &Known<'_>) -> BTreeSet<Id> {
        let folds = known.kept.keys().filter(|id| self.whole_of(**id).is_none());
        let outputs = self.of_outputs.keys().map(|output| known.graph.outputs()[*output]);
        let is_written = |output: &usize| {
            let id = known.graph.outputs()[*output];
            self.whole_of(id).is_none()
                && known.graph.output_axes().nth(*output) == Some(known.axes[id.index()])
        };
        let kept = self.of_outputs.keys().filter(|output| !is_written(output));
        let kept = kept.map(|output| known.graph.outputs()[*output]).filter(|id| known.is_kept(*id));
        let of_others = folds.copied().chain(outputs).flat_map(|id| known.folds_below(id)).chain(kept);
        of_others.chain(self.wholes.iter().flat_map(|whole| whole.needs(known))).collect()
    }

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

impl Whole {
    /// The folds of other nests that it needs.
    fn needs(&self, known: &Known<'_>) -> BTreeSet<Id> {
        let outputs = self.outputs.iter().map(|output| known.graph.outputs()[*output]);
        let below = known.below(self.folds.iter().copied().chain(outputs), &self.folds);
        below.into_iter().filter(|id| known.is_kept(*id) && !self.folds.contains(id)).collect()
    }
}

/// What is computed after so many nests, in groups, but for what is computed for rows.
fn groups_at(known: &Known<'_>, stored: &BTreeMap<Id, usize>, order: &Order<'_>, level: usize) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let outputs = || known.graph.outputs().iter().zip(known.graph.output_axes()).enumerate();
    let is_rest = |output: &usize| order.of_outputs.contains_key(output);
    for &id in known.kept.keys().filter(|id| order.whole_of(**id).is_none()) {
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

/// Whether folds along one axis can be computed in the same loops: the axes of one are among those of the other, or both are made of the
/// same dear number, which is computed once then.
fn beside(known: &Known<'_>, a: Id, b: Id) -> bool {
    let [of_a, of_b] = [a, b].map(|id| known.axes[id.index()]);
    let both = of_a.both(of_b);
    let rest = of_a.union(of_b).minus(both);
    let is_chain = both == of_a || both == of_b;
    rest.is_empty()
        || (!both.is_empty() && is_chain && known.room.has(rest))
        || (!both.is_empty() && !is_chain && shares_dear(known, (a, of_a.minus(both)), (b, of_b.minus(both))))
}

/// Whether two folds are made of the same dear number, which lies on none of the axes that only one of them has.
fn shares_dear(known: &Known<'_>, (a, of_a): (Id, Axes), (b, of_b): (Id, Axes)) -> bool {
    let Node::Fold(_, axis, _) = known.node(a) else { return false };
    let below = |id: Id| known.below(known.node(id).operands(), &BTreeSet::new());
    let of_b_alone = below(b);
    let is_shared = |id: &Id| {
        let own = known.axes[id.index()];
        let is_between = own.has(axis) && own.both(of_a.union(of_b)).is_empty();
        is_between && of_b_alone.contains(id) && is_dear(known.node(*id)) && !known.is_kept(*id)
    };
    known.room.is_narrow() && known.room.has(of_a) && known.room.has(of_b) && below(a).iter().any(is_shared)
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
