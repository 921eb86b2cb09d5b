//! Sums of exponentials of numbers less the largest of them, in the loop that looks for that one: a card reads a row once for both.
//!
//! Σ exp(x − c) y is exp(s − c) Σ exp(x − s) y for any s. In the loop, s follows the largest number so far, and what was summed up before is
//! scaled where s grows. What is not finite then is computed again by the formula, so that infinite numbers and NaN give what they do there.

use std::collections::{BTreeMap, BTreeSet};

use super::Sum;
use super::known::{Exponentials, Known};
use crate::axes::Axis;
use crate::expr::node::{Binary, Fold, Id, Node, Unary};

/// What loops of sums of exponentials have beside other steps.
#[derive(Clone, Debug)]
pub enum Online {
    /// In the loop: brings what is subtracted up to a number that is larger by more than `FOLLOWS`, and scales the sums.
    Follow {
        /// The register of the number.
        number: usize,
        /// The register of what is subtracted, which begins with `BEGIN`.
        shift: usize,
        /// The sums.
        sums: Vec<Sum>,
    },
    /// After it: scales sums to what is to be subtracted.
    Settle {
        /// The register of what was subtracted.
        shift: usize,
        /// The register of what is to be.
        to: usize,
        /// The registers of the sums.
        sums: Vec<usize>,
    },
    /// Does something where not all of some registers are finite.
    Unless {
        /// The registers.
        finite: Vec<usize>,
        /// What is done.
        steps: Vec<super::Step>,
    },
}

impl Online {
    /// What is subtracted at first: exp(−∞ − it) is 0, and not NaN. Sums of numbers that are smaller are computed again.
    pub(super) const BEGIN: f64 = f32::MIN as f64;
    /// A shift of so much scales what is lost by rounding down with the sums, however often numbers grow by little.
    pub(super) const FOLLOWS: f64 = 4.0;
}

/// The sums of exponentials in a graph, but for those that are to have the same bits as others.
pub(super) fn find(known: &Known<'_>, compared: &BTreeMap<Id, Axis>) -> BTreeMap<Id, Exponentials> {
    let nodes = known.graph.nodes().iter().enumerate().map(|(index, node)| (Id(index as u32), *node));
    let sums = nodes.filter(|(id, _)| !compared.contains_key(id)).filter_map(|(id, node)| match node {
        Node::Fold(Fold::Sum, axis, term) => Some((id, exponentials(known, axis, term)?)),
        _ => None,
    });
    sums.collect()
}

fn exponentials(known: &Known<'_>, axis: Axis, term: Id) -> Option<Exponentials> {
    let below = known.below([term], &known.kept().keys().copied().collect());
    below.iter().find_map(|id| {
        let Node::Unary(Unary::Exp, argument) = known.node(*id) else { return None };
        let Node::Binary(Binary::Sub, number, shift) = known.node(argument) else { return None };
        let largest = largest(known, shift).filter(|largest| {
            known.node(*largest) == Node::Fold(Fold::Max, axis, number)
                && known.axes[number.index()].has(axis)
        })?;
        let linear = Linear { known, argument, made: made_of(known, largest) };
        linear.is(term).then_some(Exponentials { number, largest, shift })
    })
}

/// The one fold that a number is made of, if it is made of nothing else but constants.
fn largest(known: &Known<'_>, shift: Id) -> Option<Id> {
    let (mut found, mut pending) = (BTreeSet::new(), vec![shift]);
    while let Some(id) = pending.pop() {
        match known.node(id) {
            Node::Fold(..) => _ = found.insert(id),
            Node::Input(_) | Node::Index(_) | Node::Count(_) => return None,
            node => pending.extend(node.operands()),
        }
    }
    found.pop_first().filter(|_| found.is_empty())
}

/// All that is made of a number.
fn made_of(known: &Known<'_>, id: Id) -> BTreeSet<Id> {
    let mut made = BTreeSet::from([id]);
    for (index, node) in known.graph.nodes().iter().enumerate().skip(id.index()) {
        if node.operands().any(|operand| made.contains(&operand)) {
            made.insert(Id(index as u32));
        }
    }
    made
}

/// Whether a term is as many times as large where the exponentials of an argument are.
struct Linear<'a> {
    known: &'a Known<'a>,
    argument: Id,
    /// What is made of the largest number.
    made: BTreeSet<Id>,
}

impl Linear<'_> {
    fn is(&self, id: Id) -> bool {
        let is_free = |id: Id| !self.made.contains(&id);
        let is_zero = |id: Id| self.known.node(id) == Node::Constant(0.0f64.to_bits());
        match self.known.node(id) {
            Node::Unary(Unary::Exp, argument) => argument == self.argument,
            Node::Unary(Unary::Neg, a) => self.is(a),
            Node::Binary(Binary::Mul, a, b) => is_free(a) && self.is(b) || is_free(b) && self.is(a),
            Node::Binary(Binary::Div, a, b) => is_free(b) && self.is(a),
            Node::Binary(Binary::Add | Binary::Sub, a, b) => self.is(a) && self.is(b),
            Node::Select(mask, a, b) => is_free(mask) && [a, b].iter().all(|id| is_zero(*id) || self.is(*id)),
            _ => false,
        }
    }
}
