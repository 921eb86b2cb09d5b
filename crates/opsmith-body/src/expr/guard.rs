//! Conditions of contributions to a gradient.

use std::collections::{BTreeMap, BTreeSet};

use crate::axes::Axis;
use crate::expr::node::{Binary, Compare, Fold, Id, Node};
use crate::expr::trace::{Expr, MaskExpr, axes_of, node_at};
use crate::scalar::Scalar;

/// Where a contribution counts: masks of the new graph, and whether each is true or false there.
///
/// A contribution through `select` is not multiplied by zero where it is not taken: that would make NaN of an infinite
/// derivative further down. It is carried on as it is, with the condition, and selected at the very input.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Guard(pub(super) BTreeMap<Id, bool>);

/// A mask, and whether it is true or false.
type Condition = (Id, bool);

impl Guard {
    /// With a further condition; nothing if they contradict each other.
    pub(super) fn and(&self, mask: MaskExpr, holds: bool) -> Option<Self> {
        let (id, negated) = mask.without_not();
        let mut guard = self.clone();
        let holds = holds != negated;
        match guard.0.insert(id, holds) {
            Some(before) if before != holds => None,
            _ => Some(guard),
        }
    }

    /// What holds where one of several does: nothing if one holds everywhere.
    pub(super) fn any<'a>(guards: impl Iterator<Item = &'a Guard>) -> Self {
        let masks: Option<Vec<MaskExpr>> = guards.map(Guard::mask).collect();
        let any = masks.and_then(|masks| masks.into_iter().reduce(|a, b| a | b));
        any.and_then(|any| Guard::default().and(any, true)).unwrap_or_default()
    }

    /// The mask that is true in one guard and false in the other, if they are the same otherwise.
    pub(super) fn only_difference(&self, other: &Self) -> Option<Id> {
        let mut differences = self.0.iter().filter(|(id, holds)| other.0.get(id) != Some(holds));
        match (self.0.keys().eq(other.0.keys()), differences.next(), differences.next()) {
            (true, Some((id, _)), None) => Some(*id),
            _ => None,
        }
    }

    /// The conditions without which this number is not 0 anyway.
    pub(super) fn without_those_of(&self, number: Expr) -> Self {
        let is_needed = |id: Id, holds: bool| {
            let mut left = MOST_NODES;
            !vanishes(number.0, &alternatives((id, holds)), &mut left)
        };
        Self(
            self.0
                .iter()
                .map(|(id, holds)| (*id, *holds))
                .filter(|(id, holds)| is_needed(*id, *holds))
                .collect(),
        )
    }

    /// A number where the conditions hold, 0 elsewhere.
    pub(super) fn select(&self, number: Expr) -> Expr {
        self.mask().map_or(number, |mask| Expr::select(mask, number, Expr::of(0.0)))
    }

    /// All conditions as one mask, if there are any.
    pub(super) fn mask(&self) -> Option<MaskExpr> {
        let masks = self.0.iter().map(|(id, holds)| if *holds { MaskExpr(*id) } else { !MaskExpr(*id) });
        masks.reduce(|a, b| a & b)
    }
}

/// So many nodes are looked at to find whether a condition is needed; it is kept if that is not known then.
const MOST_NODES: usize = 1 << 10;

/// Whether a number is known to be 0 wherever none of these conditions holds, `left` being how many nodes may be looked at.
fn vanishes(number: Id, conditions: &[Condition], left: &mut usize) -> bool {
    let Some(rest) = left.checked_sub(1) else { return false };
    *left = rest;
    let is_zero = |id: Id| node_at(id) == Node::Constant(0);
    match node_at(number) {
        Node::Select(mask, yes, no) => {
            let mut is_implied = |truth: bool| conditions.iter().any(|own| implies(mask, truth, *own, left));
            (is_zero(no) && is_implied(true)) || (is_zero(yes) && is_implied(false))
        }
        Node::Binary(Binary::Add, a, b) => vanishes(a, conditions, left) && vanishes(b, conditions, left),
        Node::Binary(Binary::Mul, a, b) => {
            let is_factor =
                |id: Id| node_at(id).constant().is_some_and(|factor| factor > 0.0 && factor.is_finite());
            (is_factor(a) && vanishes(b, conditions, left)) || (is_factor(b) && vanishes(a, conditions, left))
        }
        Node::Fold(Fold::Sum, axis, a) => {
            let inner = conditions.iter().filter_map(|own| match anywhere(*own) {
                Some((along, inner)) if along == axis => Some(inner),
                _ => (!axes_of(own.0).has(axis)).then_some(*own),
            });
            vanishes(a, &inner.collect::<Vec<_>>(), left)
        }
        _ => false,
    }
}

/// The conditions of which one at least has to hold for this one to hold.
fn alternatives(condition: Condition) -> Vec<Condition> {
    let (mut found, mut seen, mut pending) = (Vec::new(), BTreeSet::new(), vec![condition]);
    while let Some((mask, holds)) = pending.pop() {
        if !seen.insert((mask, holds)) {
            continue;
        }
        match node_at(mask) {
            Node::Or(a, b) if holds => pending.extend([(a, true), (b, true)]),
            Node::Not(a) => pending.push((a, !holds)),
            _ => found.push((mask, holds)),
        }
    }
    found
}

/// Whether a condition is known to hold wherever a mask is true, or false.
fn implies(mask: Id, truth: bool, condition: Condition, left: &mut usize) -> bool {
    let Some(rest) = left.checked_sub(1) else { return false };
    *left = rest;
    match node_at(mask) {
        _ if (mask, truth) == condition => true,
        Node::Not(a) => implies(a, !truth, condition, left),
        Node::And(a, b) if truth => implies(a, true, condition, left) || implies(b, true, condition, left),
        _ => false,
    }
}

/// What has to hold anywhere along an axis for a condition to hold, if it is that: the axis and the other condition.
fn anywhere((mask, holds): Condition) -> Option<(Axis, Condition)> {
    let Node::Compare(Compare::Lt, zero, largest) = node_at(mask) else { return None };
    let Node::Fold(Fold::Max, axis, chosen) = node_at(largest) else { return None };
    let Node::Select(inner, yes, no) = node_at(chosen) else { return None };
    let truth = match [zero, yes, no].map(|id| node_at(id).constant()) {
        [Some(0.0), Some(1.0), Some(0.0)] => true,
        [Some(0.0), Some(0.0), Some(1.0)] => false,
        _ => return None,
    };
    holds.then_some((axis, (inner, truth)))
}
