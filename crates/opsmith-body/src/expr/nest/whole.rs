//! Folds that are computed where they are used: all that is made of the rows of some axes in one nest, and not in memory.

use std::collections::{BTreeMap, BTreeSet};

use super::known::{Known, is_dear, without_dear};
use super::order::{Order, Whole};
use crate::axes::Axes;
use crate::expr::node::{Id, Node};

/// From how many rows on it is worth it: so many can be computed side by side, and by several threads.
const LEAST_ROWS: usize = 16;
/// Numbers of which there are so few are computed in one nest whatever the rows.
const FEW_NUMBERS: usize = 1 << 14;

/// With more folds than that, as in gradients of high orders, the search takes longer than it can save.
const MOST_FOLDS: usize = 1 << 10;

/// A softmax is one: its two folds have a number for each row, and its output needs nothing but those and the row.
pub(super) fn find(known: &Known<'_>) -> Vec<Whole> {
    if known.kept().len() > MOST_FOLDS {
        return Vec::new();
    }
    let needs = needs(known);
    let mut found: Vec<Whole> = Vec::new();
    let candidates: BTreeSet<(usize, Axes)> =
        known.kept().keys().map(|id| known.axes[id.index()]).map(|axes| (axes.len(), axes)).collect();
    let all = known.axes.iter().copied().fold(Axes::NONE, Axes::union);
    for (_, free) in candidates {
        if !known.room.is_many(free, LEAST_ROWS) && known.room.count(all) > FEW_NUMBERS {
            continue;
        }
        let is_new_fold = |id: &Id| found.iter().all(|other| !other.folds.contains(id));
        let axes = |id: &Id| known.axes[id.index()];
        let folds = known.kept().keys().copied().filter(is_new_fold).filter(|id| free.is_within(axes(id)));
        let mut folds: BTreeSet<Id> = folds.collect();
        let apart = apart(known, &needs, &folds, free);
        folds.retain(|id| !apart.contains(id) && known.room.has(axes(id).minus(free)));
        let outputs = known.graph.output_axes().enumerate();
        let is_new = |output: usize| {
            let id = known.graph.outputs()[output];
            let is_apart = apart.contains(&id) || !known.folds_below(id).is_disjoint(&apart);
            !is_apart && found.iter().all(|other| !other.outputs.contains(&output))
        };
        let outputs = outputs.filter(|(output, own)| free.is_within(*own) && is_new(*output));
        let outputs = outputs.map(|(output, _)| output).collect();
        let mut whole = Whole { free, folds, outputs };
        whole.shrink(known, &needs);
        if whole.is_worth_it(known) && !whole.is_dear(known) {
            found.push(whole);
            if Order::new(known, &found).is_none() {
                found.pop();
            }
        }
    }
    found
}

/// The folds in memory that each of them is computed from, by way of others too.
fn needs(known: &Known<'_>) -> BTreeMap<Id, BTreeSet<Id>> {
    let mut needs: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
    for &id in known.kept().keys() {
        let own = known.folds_below(id);
        let all = own.iter().flat_map(|other| needs.get(other).into_iter().flatten()).copied();
        let all: BTreeSet<Id> = all.chain(own.iter().copied()).collect();
        needs.insert(id, all);
    }
    needs
}

/// The folds that have several numbers for each row and that no row is made of: with all that is made of them they are computed for more
/// positions side by side, unless something dear is the same for those.
fn apart(
    known: &Known<'_>,
    needs: &BTreeMap<Id, BTreeSet<Id>>,
    folds: &BTreeSet<Id>,
    free: Axes,
) -> BTreeSet<Id> {
    let axes = |id: Id| known.axes[id.index()];
    let is_of_rows = |id: Id| folds.iter().any(|row| axes(*row) == free && needs[row].contains(&id));
    let apart = folds.iter().copied().filter(|id| axes(*id) != free && !is_of_rows(*id));
    apart.filter(|id| !is_dear_alone(known, *id, axes(*id))).collect()
}

/// Whether a fold computes something dear again and again, for positions of these axes along which it is the same.
fn is_dear_alone(known: &Known<'_>, id: Id, free: Axes) -> bool {
    let Node::Fold(_, axis, _) = known.node(id) else { return false };
    without_dear(known, &[(id, known.axes[id.index()])], axis, free) != free
}

impl Whole {
    /// Leaves out what cannot be computed together: a fold that has several numbers for each row, of which another one is made;
    /// and whatever needs a fold of another nest that needs one of this.
    fn shrink(&mut self, known: &Known<'_>, needs: &BTreeMap<Id, BTreeSet<Id>>) {
        loop {
            let before = (self.folds.len(), self.outputs.len());
            let used: BTreeSet<Id> = self.folds.iter().flat_map(|id| &needs[id]).copied().collect();
            let folds = self.folds.clone();
            let later: BTreeSet<Id> = needs
                .iter()
                .filter(|(id, own)| !folds.contains(id) && own.iter().any(|id| folds.contains(id)))
                .map(|(id, _)| *id)
                .collect();
            let is_early = |own: &BTreeSet<Id>| own.is_disjoint(&later);
            self.folds.retain(|id| {
                let is_row = known.axes[id.index()] == self.free;
                (is_row || !used.contains(id)) && is_early(&needs[id])
            });
            self.outputs.retain(|output| {
                let id = known.graph.outputs()[*output];
                let own = if known.is_kept(id) {
                    needs[&id].clone()
                } else {
                    Known::all(&known.folds_below(id), needs)
                };
                let is_elsewhere = known.is_kept(id) && !folds.contains(&id);
                let is_made = folds.contains(&id) || !own.is_disjoint(&folds);
                // What has several numbers for each row and is in memory is best read as it lies.
                let is_of_many = |fold: &Id| {
                    let axes = known.axes[fold.index()];
                    !folds.contains(fold) && axes != self.free && self.free.is_within(axes)
                };
                let is_read = known.folds_below(id).iter().any(is_of_many);
                is_early(&own) && !later.contains(&id) && !is_elsewhere && !is_read && is_made
            });
            if before == (self.folds.len(), self.outputs.len()) {
                return;
            }
        }
    }

    /// Whether something dear would be computed again and again, for rows along which it is the same.
    fn is_dear(&self, known: &Known<'_>) -> bool {
        self.folds.iter().any(|id| is_dear_alone(known, *id, self.free))
    }

    /// Whether something is read less often so: where one fold, or an output, is made of another fold. Folds along one axis are
    /// computed together anyway.
    fn is_worth_it(&self, known: &Known<'_>) -> bool {
        let is_made = |output: &usize| {
            let id = known.graph.outputs()[*output];
            let is_written = known.graph.output_axes().nth(*output) == Some(known.axes[id.index()]);
            let is_fold = is_written && matches!(known.node(id), Node::Fold(..)) && self.folds.contains(&id);
            let folds = if known.is_kept(id) { BTreeSet::from([id]) } else { known.folds_below(id) };
            !is_fold && !folds.is_disjoint(&self.folds)
        };
        let is_made_of_another = |id: &Id| !known.folds_below(*id).is_disjoint(&self.folds);
        let axis = |id: &Id| match known.node(*id) {
            Node::Fold(_, axis, _) => Some(axis),
            _ => None,
        };
        let axes: BTreeSet<_> = self.folds.iter().filter_map(axis).collect();
        axes.len() > 1 || self.folds.iter().any(is_made_of_another) || self.outputs.iter().any(is_made)
    }

    /// Adds what is made of its folds, has a number for each row, and is dear: if what other nests compute needs it, they read it.
    pub(super) fn keep_rows(&mut self, known: &mut Known<'_>) {
        let nodes = (0..known.graph.nodes().len()).map(|index| Id(index as u32));
        let is_row = |id: Id| known.axes[id.index()] == self.free && !known.is_kept(id);
        let is_computed =
            |id: Id| !matches!(known.node(id), Node::Input(_) | Node::Index(_) | Node::Detached(_));
        let is_dear_here = |id: Id| {
            let below = known.below([id], &BTreeSet::new());
            let mut kept = below.iter().filter(|id| known.is_kept(**id)).peekable();
            // What needs another nest's folds too might be needed by that.
            let is_of_rows = kept.peek().is_some() && kept.all(|id| self.folds.contains(id));
            is_of_rows && below.iter().any(|id| is_dear(known.node(*id)) && !known.is_kept(*id))
        };
        let is_used_apart = |id: Id| {
            let users = known.graph.nodes().iter().enumerate();
            let mut users = users.filter(|(_, node)| node.operands().any(|operand| operand == id));
            users.any(|(user, node)| !known.axes[user].is_within(self.free) || matches!(node, Node::Fold(..)))
        };
        let found: Vec<Id> = nodes
            .filter(|id| is_row(*id) && is_computed(*id) && !known.node(*id).is_mask())
            .filter(|id| is_used_apart(*id) && is_dear_here(*id))
            .collect();
        if found.is_empty() {
            return;
        }
        let first = known.kept().len();
        let more = found.iter().enumerate().map(|(array, id)| (*id, first + array));
        let all = known.kept().iter().map(|(id, array)| (*id, *array)).chain(more).collect();
        known.keep(all);
        self.folds.extend(found);
    }
}
