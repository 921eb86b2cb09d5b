//! Reverse mode on a graph: a graph of its gradient.

use std::collections::BTreeMap;

use crate::axes::{Axes, Axis};
use crate::dual::Dual;
use crate::expr::graph::{Argument, Binary, Compare, Fold, Graph, Id, Node, Value};
use crate::expr::trace::{Expr, MaskExpr, axes_of, node, node_of, record};
use crate::scalar::Scalar;

/// Where a contribution counts: masks of the new graph, and whether each is true or false there.
///
/// A contribution through `select` is not multiplied by zero where it is not taken: that would make NaN of an infinite
/// derivative further down. It is carried on as it is, with the condition, and selected at the very input.
#[derive(Clone, Default, PartialEq)]
struct Guard(BTreeMap<Id, bool>);

impl Guard {
    /// With a further condition; nothing if they contradict each other.
    fn and(&self, mask: MaskExpr, holds: bool) -> Option<Self> {
        let (id, negated) = mask.without_not();
        let mut guard = self.clone();
        let holds = holds != negated;
        match guard.0.insert(id, holds) {
            Some(before) if before != holds => None,
            _ => Some(guard),
        }
    }

    /// The mask that is true in one guard and false in the other, if they are the same otherwise.
    fn only_difference(&self, other: &Self) -> Option<Id> {
        let mut differences = self.0.iter().filter(|(id, holds)| other.0.get(id) != Some(holds));
        match (self.0.keys().eq(other.0.keys()), differences.next(), differences.next()) {
            (true, Some((id, _)), None) => Some(*id),
            _ => None,
        }
    }

    /// All conditions as one mask, if there are any.
    fn mask(&self) -> Option<MaskExpr> {
        let masks = self.0.iter().map(|(id, holds)| if *holds { MaskExpr(*id) } else { !MaskExpr(*id) });
        masks.reduce(|a, b| a & b)
    }
}

/// The contributions to the gradient of a node.
#[derive(Clone, Default)]
struct Adjoint(Vec<(Guard, Expr)>);

impl Adjoint {
    /// Adds a contribution. With one under the opposite condition it becomes a `select`.
    fn add(&mut self, mut guard: Guard, gradient: Expr) {
        for index in 0..self.0.len() {
            let (other, own) = &self.0[index];
            if *other == guard {
                self.0[index].1 = *own + gradient;
                return;
            }
            let Some(id) = guard.only_difference(other) else { continue };
            let (yes, no) = if guard.0[&id] { (gradient, *own) } else { (*own, gradient) };
            self.0.remove(index);
            guard.0.remove(&id);
            return self.add(guard, Expr::select(MaskExpr(id), yes, no));
        }
        self.0.push((guard, gradient));
    }

    /// The whole gradient.
    fn sum(&self) -> Expr {
        let terms = self.0.iter().map(|(guard, gradient)| match guard.mask() {
            Some(mask) => Expr::select(mask, *gradient, Expr::of(0.0)),
            None => *gradient,
        });
        terms.reduce(|a, b| a + b).unwrap_or_else(|| Expr::of(0.0))
    }
}

impl Graph {
    /// The gradient: from the inputs and the gradient of each output, the gradient of each input. An input that no
    /// output depends on has the constant 0.
    ///
    /// It is a graph again, and its gradient the second order. The gradient of a largest or smallest number of a row is
    /// shared equally by those that are it; by the whole row if it is NaN.
    #[must_use]
    pub fn gradient(&self) -> Self {
        let gradients = |arguments: &[Argument]| arguments.iter().map(Argument::gradient).collect::<Vec<_>>();
        let inputs = [self.inputs.clone(), gradients(&self.results)].concat();
        record(inputs, gradients(&self.inputs), &[], |numbers| {
            let (inputs, output_gradients) = numbers.split_at(self.input_count());
            let of_axis = |of: Node, operand: Option<Expr>| match (of, operand) {
                (Node::Fold(op, axis, _), Some(a)) => node(Node::Fold(op, axis, a.0)),
                _ => node(of),
            };
            self.backward(&self.values(inputs, of_axis), output_gradients)
        })
    }

    /// The gradients of the inputs, from the values of all nodes.
    fn backward(&self, values: &[Value<Expr>], output_gradients: &[Expr]) -> Vec<Expr> {
        let axes = self.axes();
        let mut adjoints = vec![Adjoint::default(); self.nodes.len()];
        for ((output, gradient), own) in self.outputs.iter().zip(output_gradients).zip(self.output_axes()) {
            let (guard, term) = over_axes(own.minus(axes[output.index()]), Guard::default(), *gradient);
            adjoints[output.index()].add(guard, term);
        }
        let mut gradients = vec![Expr::of(0.0); self.input_count()];
        for index in (0..self.nodes.len()).rev() {
            let adjoint = std::mem::take(&mut adjoints[index]);
            if let Node::Input(position) = self.nodes[index] {
                gradients[position as usize] = adjoint.sum();
            }
            for (guard, gradient) in adjoint.0 {
                for (operand, guard, term) in contributions(self.nodes[index], values, &guard, gradient) {
                    let (guard, term) = over_axes(axes[index].minus(axes[operand.index()]), guard, term);
                    adjoints[operand.index()].add(guard, term);
                }
            }
        }
        gradients
    }
}

/// A contribution to an operand that lacks axes which its user lies on: the sum over each of them.
fn over_axes(lacking: Axes, guard: Guard, term: Expr) -> (Guard, Expr) {
    lacking.iter().fold((guard, term), |(guard, term), axis| over_axis(axis, guard, term))
}

/// The sum over an axis, in which the conditions on its positions are selected. Where it is taken at no position it
/// is nothing: a sum of zeros, multiplied by an infinite slope further down, would be NaN.
fn over_axis(axis: Axis, guard: Guard, term: Expr) -> (Guard, Expr) {
    let fold = |op: Fold, number: Expr| node(Node::Fold(op, axis, number.0));
    let (inner, outer): (BTreeMap<_, _>, BTreeMap<_, _>) =
        guard.0.into_iter().partition(|(id, _)| axes_of(*id).has(axis));
    let mut outer = Guard(outer);
    let Some(mask) = Guard(inner).mask() else { return (outer, fold(Fold::Sum, term)) };
    let (zero, one) = (Expr::of(0.0), Expr::of(1.0));
    let anywhere = fold(Fold::Max, Expr::select(mask, one, zero)).gt(zero);
    outer.0.insert(anywhere.0, true);
    (outer, fold(Fold::Sum, Expr::select(mask, term, zero)))
}

/// What the gradient of the largest or smallest number along an axis contributes to all along it: an equal share to those
/// that are it.
fn shares(
    (op, axis): (Fold, Axis),
    a: Id,
    values: &[Value<Expr>],
    guard: &Guard,
    gradient: Expr,
) -> Vec<(Id, Guard, Expr)> {
    let x = values[a.index()].number();
    let extreme = node(Node::Fold(op, axis, x.0));
    // The others; none if there is NaN, so that nothing is divided by a count of zero.
    let others = if op == Fold::Max { x.lt(extreme) } else { extreme.lt(x) };
    let one = Expr::select(others, Expr::of(0.0), Expr::of(1.0));
    let ties = node(Node::Fold(Fold::Sum, axis, one.0));
    guard.and(others, false).map(|guard| (a, guard, gradient / ties)).into_iter().collect()
}

/// The product of all numbers along an axis but one, at the place of that one.
///
/// It is that of the numbers which are not 0, divided by the one, times that of the zeros beside it. Their product is 0, and so is its
/// derivative if there are several; the one zero beside it is the sum of the zeros less the number itself, by which it has a derivative.
fn of_others(axis: Axis, x: Expr) -> Expr {
    let fold = |op: Fold, number: Expr| node(Node::Fold(op, axis, number.0));
    if is_never_zero(x) {
        return fold(Fold::Product, x) / x;
    }
    let (zero, one) = (Expr::of(0.0), Expr::of(1.0));
    let is_zero = x.eq(zero);
    let (own, as_zero) = (Expr::select(is_zero, one, x), Expr::select(is_zero, x, zero));
    let others = fold(Fold::Product, own) / own;
    let counted = Expr::select(is_zero, one, zero);
    let zeros = fold(Fold::Sum, counted) - counted;
    let of_zeros = others * (fold(Fold::Sum, as_zero) - as_zero);
    Expr::select(zeros.lt(one), others, Expr::select(zeros.le(one), of_zeros, zero))
}

/// Whether a number is one that has another number in the place of 0.
fn is_never_zero(x: Expr) -> bool {
    let Node::Select(mask, yes, no) = node_of(x.0) else { return false };
    let Node::Compare(Compare::Eq, a, b) = node_of(mask) else { return false };
    let is_zero = |id: Id| node_of(id).constant() == Some(0.0);
    let is_compared = (a == no && is_zero(b)) || (b == no && is_zero(a));
    is_compared && node_of(yes).constant().is_some_and(|other| other != 0.0)
}

/// What the gradient of a node contributes to those of its operands. The derivatives are those of [`Dual`].
fn contributions(
    node: Node,
    values: &[Value<Expr>],
    guard: &Guard,
    gradient: Expr,
) -> Vec<(Id, Guard, Expr)> {
    let number = |id: Id| values[id.index()].number();
    let either = |mask: MaskExpr, yes: Id, no: Id| {
        let sides = [(yes, true), (no, false)].into_iter();
        sides.filter_map(|(id, holds)| Some((id, guard.and(mask, holds)?, gradient))).collect()
    };
    match node {
        Node::Unary(op, a) => {
            let result = op.apply(Dual::<Expr, 1>::variable(number(a), 0));
            result.partial(0).map(|slope| (a, guard.clone(), gradient * slope)).into_iter().collect()
        }
        Node::Binary(Binary::Min, a, b) => either(number(a).le(number(b)) | number(a).ne(number(a)), a, b),
        Node::Binary(Binary::Max, a, b) => either(number(a).ge(number(b)) | number(a).ne(number(a)), a, b),
        Node::Binary(op, a, b) => {
            let result = op.apply(Dual::<Expr, 2>::variable(number(a), 0), Dual::variable(number(b), 1));
            let slopes = [(a, result.partial(0)), (b, result.partial(1))].into_iter();
            slopes.filter_map(|(id, slope)| Some((id, guard.clone(), gradient * slope?))).collect()
        }
        Node::Select(mask, yes, no) => either(values[mask.index()].mask(), yes, no),
        Node::Fold(Fold::Sum, _, a) => vec![(a, guard.clone(), gradient)],
        Node::Fold(Fold::Product, axis, a) => vec![(a, guard.clone(), gradient * of_others(axis, number(a)))],
        Node::Fold(op, axis, a) => shares((op, axis), a, values, guard, gradient),
        _ => Vec::new(),
    }
}
