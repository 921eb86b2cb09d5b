//! Sums that several loops compute.

use std::collections::BTreeMap;

use super::{Nest, Step, Sum};
use crate::expr::graph::Id;

/// How often a sum is computed, and whether there are loops within one of the loops that do.
#[derive(Clone, Copy, Default)]
struct Seen {
    times: usize,
    has_loops: bool,
}

/// Marks the sums that are computed more than once.
pub(super) fn mark(nests: &mut [Nest]) {
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
            sum.is_again = own.times > 1;
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
