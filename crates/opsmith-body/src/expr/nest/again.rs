//! Sums that several loops compute, and that are compared with each other: a body looks where a number is the largest, whose terms are
//! added up again for that. So they are to be the same, bit for bit.

use std::collections::{BTreeMap, BTreeSet};

use super::cut::Known;
use super::{Nest, Step, Sum};
use crate::axes::{Axes, Axis};
use crate::expr::node::{Binary, Fold, Id, Node};

/// The sums that both sides of a comparison are computed from, and the axis of each.
pub(super) fn compared(known: &Known<'_>) -> BTreeMap<Id, Axis> {
    let mut found = BTreeMap::new();
    for node in known.graph.nodes() {
        if let Node::Compare(_, a, b) = node {
            let below = [*a, *b].map(|side| all_below(known, side));
            for id in below[0].intersection(&below[1]) {
                if let Node::Fold(Fold::Sum, axis, _) = known.node(*id) {
                    found.insert(*id, axis);
                }
            }
        }
    }
    found
}

fn all_below(known: &Known<'_>, id: Id) -> BTreeSet<Id> {
    let (mut found, mut pending) = (BTreeSet::new(), vec![id]);
    while let Some(id) = pending.pop() {
        if found.insert(id) {
            pending.extend(known.node(id).operands());
        }
    }
    found
}

/// The axes of those that several nests compute, each of which computes some numbers: along them no lanes should be, for then terms are
/// added in another order.
pub(super) fn avoided(compared: &BTreeMap<Id, Axis>, nests: &[BTreeSet<Id>]) -> Axes {
    let is_again = |id: &Id| nests.iter().filter(|own| own.contains(id)).count() > 1;
    compared
        .iter()
        .filter(|(id, _)| is_again(id))
        .map(|(_, axis)| Axes::of(*axis))
        .fold(Axes::NONE, Axes::union)
}

/// How often a sum is computed, and whether there are loops within one of the loops that do.
#[derive(Clone, Copy, Default)]
struct Seen {
    times: usize,
    has_loops: bool,
}

/// Marks the sums that are computed more than once.
pub(super) fn mark(nests: &mut [Nest], compared: &BTreeMap<Id, Axis>) {
    let mut seen: BTreeMap<Id, Seen> = BTreeMap::new();
    for nest in &mut *nests {
        each(&mut nest.steps, &mut |sum, has_loops| {
            let own = seen.entry(sum.of).or_default();
            own.times += 1;
            own.has_loops |= has_loops;
        });
    }
    for nest in nests {
        each(&mut nest.steps, &mut |sum, _| {
            let own = seen[&sum.of];
            sum.is_again = own.times > 1 && compared.contains_key(&sum.of);
            sum.is_fused = !(sum.is_again && own.has_loops);
        });
    }
}

/// Calls a function with each sum, and whether there are loops in its loop.
fn each(steps: &mut [Step], act: &mut impl FnMut(&mut Sum, bool)) {
    for step in steps {
        if let Step::Loop { steps, sums, .. } = step {
            let has_loops = steps.iter().any(|step| matches!(step, Step::Loop { .. }));
            sums.iter_mut().for_each(|sum| act(sum, has_loops));
            each(steps, act);
        }
    }
}

/// What is computed in two places and compared, and would be equal by its formula.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Again {
    /// There are products: a compiler may round them with a sum in one place, and alone in the other.
    pub(super) products: bool,
    /// There are sums or products along an axis, which threads put together in another order.
    pub(super) folds: bool,
}

impl Again {
    /// What is in memory is computed once.
    pub(super) fn of(known: &Known<'_>) -> Self {
        let mut again = Self::default();
        for node in known.graph.nodes() {
            let Node::Compare(_, a, b) = *node else { continue };
            for (here, other) in [(a, b), (b, a)] {
                let there = all_below(known, other);
                let below = known.below([here], &BTreeSet::new());
                for id in below.intersection(&there).filter(|id| !known.is_kept(**id)) {
                    again.products |= matches!(known.node(*id), Node::Binary(Binary::Mul, ..));
                    again.folds |= matches!(known.node(*id), Node::Fold(Fold::Sum | Fold::Product, ..));
                }
            }
        }
        again
    }
}
