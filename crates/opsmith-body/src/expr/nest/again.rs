//! Sums that several loops compute, and that are compared with each other: a body looks where a number is the largest, whose terms are
//! added up again for that. So they are to be the same, bit for bit.

use std::collections::{BTreeMap, BTreeSet};

use super::cut::Known;
use super::{Nest, Nests, Step, Sum};
use crate::axes::{Axes, Axis};
use crate::expr::node::{Fold, Id, Node};

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

impl Nests {
    /// Whether loops compute the same sums, which are compared with each other: all nests are to be run in one way then, for another way
    /// may give other bits.
    pub fn sums_again(&self) -> bool {
        self.nests.iter().any(|nest| has_again(&nest.steps))
    }
}

fn has_again(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step {
        Step::Loop { steps, sums, .. } => sums.iter().any(|sum| sum.is_again) || has_again(steps),
        _ => false,
    })
}
