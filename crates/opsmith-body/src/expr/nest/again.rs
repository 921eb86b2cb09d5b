//! Sums that several loops compute, and that are compared with each other: a body looks where a number is the largest, whose terms are
//! added up again for that. So they are to be the same, bit for bit.

use std::collections::{BTreeMap, BTreeSet};

use super::known::Known;
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

#[cfg(test)]
mod tests {
    use crate::axes::{Axes, Axis};
    use crate::element::Kind;
    use crate::expr::cuda::CudaType;
    use crate::expr::graph::Graph;
    use crate::expr::{Expr, Nests};
    use crate::indexed::{Index, Indexed, trace_over};
    use crate::scalar::Scalar;

    #[test]
    fn products_in_sums_that_are_compared_are_rounded_alone_on_a_card() {
        let [i, j] = [Axes::at(&[0, 2]), Axes::at(&[1, 2])];
        let source = |dtype: CudaType, is_nearest: bool| {
            let result = if is_nearest { Axes::at(&[0]) } else { Axes::at(&[0, 1]) };
            let graph = trace_over(&["i", "j", "k"], &[("x", i), ("y", j)], &[("z", result)], |x| {
                let squares = Indexed::sum((x[0] - x[1]) * (x[0] - x[1]), Axis::new(2));
                vec![if is_nearest { squares.argmin(Axis::new(1)).number() } else { squares }]
            });
            let kind = if is_nearest { Kind::Index } else { Kind::Number };
            graph.nests_cuda_source("op", dtype, (&[Kind::Number; 2], &[kind]), 0, false)
        };
        assert!(source(CudaType::Float, true).contains("= product("));
        assert!(source(CudaType::Half, true).contains("__fmul_rn"));
        assert!(source(CudaType::Double, true).contains("__dmul_rn"));
        assert!(!source(CudaType::Float, true).contains("_tiled_"));
        let distances = source(CudaType::Float, false);
        assert!(!distances.contains("product(") && distances.contains("_tiled_"));
    }

    #[test]
    fn products_that_are_compared_are_rounded_alone_on_a_card() {
        // Where x w + b is the largest: it is computed for that, and to find where it is.
        let (row, c) = (Axes::at(&[0, 1]), Axes::at(&[1]));
        let made = |graph: &Graph| {
            let nests = Nests::for_card(graph, CudaType::Float, true);
            (nests.again.products, nests.again.folds)
        };
        let inputs = [("x", row), ("w", c), ("b", c)];
        let scores = |x: &[Expr]| x[0] * x[1] + x[2];
        let largest = |fold: fn(Expr, Axis) -> Expr| {
            trace_over(&["i", "c"], &inputs, &[("z", Axes::at(&[0]))], |x| {
                vec![fold(scores(x), Axis::new(1))]
            })
        };
        assert_eq!(made(&largest(|x, c| x.argmax(c).number())), (true, false));
        assert_eq!(made(&largest(Indexed::amax)), (false, false));
        // Products along an axis are put together in another order.
        let [i, j, k] = [Axes::at(&[0, 2]), Axes::at(&[1, 2]), Axes::at(&[0])];
        let graph = trace_over(&["i", "j", "k"], &[("x", i), ("y", j)], &[("z", k)], |x| {
            vec![(x[0] - x[1]).prod(Axis::new(2)).argmax(Axis::new(1)).number()]
        });
        assert_eq!(made(&graph), (false, true));
        // What is in memory is computed once.
        let graph = trace_over(&["i", "c"], &inputs, &[("z", k)], |x| {
            let total = Indexed::sum(scores(x), Axis::new(1));
            vec![Expr::select(total.gt(total.amax(Axis::new(0)) * 0.5), total, Expr::of(0.0))]
        });
        assert_eq!(made(&graph), (false, false));
    }
}
