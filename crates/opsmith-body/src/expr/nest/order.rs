//! After how many nests each one can be computed.

use std::collections::{BTreeMap, BTreeSet};

use super::known::{Known, is_dear};
use crate::axes::Axes;
use crate::expr::node::{Id, Node};

/// What one nest computes of the same rows.
pub(super) struct Whole {
    /// The axes that the rows are along.
    pub(super) free: Axes,
    /// The folds.
    pub(super) folds: BTreeSet<Id>,
    /// The positions of the outputs.
    pub(super) outputs: BTreeSet<usize>,
}

/// Which folds and outputs are computed in one nest for rows, and after how many nests each can be computed.
pub(super) struct Order<'a> {
    pub(super) wholes: &'a [Whole],
    pub(super) of_wholes: Vec<usize>,
    pub(super) of_folds: BTreeMap<Id, usize>,
    pub(super) of_outputs: BTreeMap<usize, usize>,
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
        let mut rounds = known.kept().len() + wholes.len() + 2;
        loop {
            let before = (order.of_wholes.clone(), order.of_folds.clone());
            for (index, whole) in wholes.iter().enumerate() {
                order.of_wholes[index] = order.after(whole.needs(known).into_iter());
            }
            for &id in known.kept().keys() {
                let level = match order.whole_of(id) {
                    Some(whole) => order.of_wholes[whole],
                    None => order.after(known.each_fold_below(id)),
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
                order.of_outputs.insert(output, order.after(own.into_iter()));
            }
        }
        Some(order)
    }

    /// Has folds that nothing needs sooner be computed with later ones, in the same loops, so that what both read is read once.
    fn wait(&mut self, known: &Known<'_>) {
        let alone = known.kept().keys().copied().filter(|id| self.whole_of(*id).is_none());
        let alone: Vec<Id> = alone.collect();
        let axis = |id: Id| match known.node(id) {
            Node::Fold(_, axis, _) => Some(axis),
            _ => None,
        };
        let needs: Vec<BTreeSet<Id>> = self.wholes.iter().map(|whole| whole.needs(known)).collect();
        for &id in &alone {
            let of_folds = known.above(id, &alone).map(|other| self.of_folds[&other]);
            let of_wholes = self.of_wholes.iter().zip(&needs).filter(|(_, needs)| needs.contains(&id));
            let of_wholes = of_wholes.map(|(level, _)| *level);
            let (own, needed) = (self.of_folds[&id], of_folds.chain(of_wholes).min().unwrap_or(usize::MAX));
            let is_later =
                |other: &&Id| axis(**other) == axis(id) && (own + 1..needed).contains(&self.of_folds[*other]);
            let found = alone.iter().filter(is_later).find(|other| beside(known, id, **other));
            if let Some(level) = found.map(|other| self.of_folds[other]) {
                self.of_folds.insert(id, level);
            }
        }
    }

    pub(super) fn whole_of(&self, id: Id) -> Option<usize> {
        self.wholes.iter().position(|whole| whole.folds.contains(&id))
    }

    /// The level of what needs these folds.
    fn after(&self, folds: impl Iterator<Item = Id>) -> usize {
        folds.map(|id| self.of_folds.get(&id).copied().unwrap_or(0) + 1).max().unwrap_or(0)
    }

    pub(super) fn levels(&self) -> impl Iterator<Item = usize> {
        self.of_wholes.iter().chain(self.of_folds.values()).chain(self.of_outputs.values()).copied()
    }

    /// The folds of wholes that other nests read.
    pub(super) fn read_elsewhere(&self, known: &Known<'_>) -> BTreeSet<Id> {
        let folds = known.kept().keys().filter(|id| self.whole_of(**id).is_none());
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
}

impl Whole {
    /// The folds of other nests that it needs.
    fn needs(&self, known: &Known<'_>) -> BTreeSet<Id> {
        let outputs = self.outputs.iter().map(|output| known.graph.outputs()[*output]);
        let below = known.below(self.folds.iter().copied().chain(outputs), &self.folds);
        below.into_iter().filter(|id| known.is_kept(*id) && !self.folds.contains(id)).collect()
    }
}

/// Whether folds along one axis can be computed in the same loops: the axes of one are among those of the other, or both are made of the
/// same dear number, which is computed once then.
pub(super) fn beside(known: &Known<'_>, a: Id, b: Id) -> bool {
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
