//! Reverse mode on a graph: a graph of its gradient.

use std::collections::BTreeMap;

use crate::axes::{Axes, Axis};
use crate::dual::Dual;
use crate::expr::graph::{Argument, Graph, Value};
use crate::expr::guard::Guard;
use crate::expr::node::{Binary, Compare, Fold, Id, Node, Unary};
use crate::expr::read::Read;
use crate::expr::trace::{Expr, MaskExpr, axes_of, is_constant, node, node_at, of_axis, record};
use crate::scalar::Scalar;

/// A gradient, perhaps still to be divided: what is found over a divisor may be an output that is read.
#[derive(Clone, Copy)]
struct Slope {
    number: Expr,
    divisor: Option<Expr>,
}

impl Slope {
    fn new(number: Expr) -> Self {
        Self { number, divisor: None }
    }

    fn over(self, divisor: Expr) -> Self {
        Self { number: self.whole(), divisor: Some(divisor) }
    }

    /// The number, divided.
    fn whole(self) -> Expr {
        self.divisor.map_or(self.number, |divisor| self.number * (Expr::of(1.0) / divisor))
    }

    fn times(self, factor: Expr, read: &Read) -> Self {
        let Some(divisor) = self.divisor else { return Self::new(self.number * factor) };
        if is_constant(factor) {
            return Self { number: self.number * factor, ..self };
        }
        match read.quotient(factor, divisor) {
            Some(quotient) => Self::new(self.number * quotient),
            None => Self::new(self.whole() * factor),
        }
    }

    /// Two of them by a function that a common divisor may be taken out of.
    fn with(self, other: Self, of_two: impl Fn(Expr, Expr) -> Expr) -> Self {
        match (self.divisor, other.divisor) {
            (Some(a), Some(b)) if a.0 == b.0 => {
                Self { number: of_two(self.number, other.number), divisor: Some(a) }
            }
            _ => Self::new(of_two(self.whole(), other.whole())),
        }
    }
}

/// The contributions to the gradient of a node.
#[derive(Clone, Default)]
struct Adjoint(Vec<(Guard, Slope)>);

impl Adjoint {
    /// Adds a contribution. With one under the opposite condition it becomes a `select`.
    fn add(&mut self, mut guard: Guard, gradient: Slope) {
        for index in 0..self.0.len() {
            let (other, own) = &self.0[index];
            if *other == guard {
                self.0[index].1 = own.with(gradient, together);
                return;
            }
            let Some(id) = guard.only_difference(other) else { continue };
            let (yes, no) = if guard.0[&id] { (gradient, *own) } else { (*own, gradient) };
            self.0.remove(index);
            guard.0.remove(&id);
            return self.add(guard, yes.with(no, |yes, no| Expr::select(MaskExpr(id), yes, no)));
        }
        self.0.push((guard, gradient));
    }

    /// The whole gradient: nothing is multiplied any more, so a contribution that is 0 by itself where it does not count needs no condition.
    fn sum(&self) -> Expr {
        let mut needed = Self::default();
        for (guard, gradient) in &self.0 {
            let number = gradient.whole();
            needed.add(guard.without_those_of(number), Slope::new(number));
        }
        let terms = needed.0.iter().map(|(guard, gradient)| guard.select(gradient.whole()));
        terms.reduce(|a, b| a + b).unwrap_or_else(|| Expr::of(0.0))
    }

    /// The same in few contributions, so that a formula does not grow with each order by as many times as there are conditions: their sum,
    /// which counts where one of them does.
    fn few(self) -> Self {
        /// So many are carried on by themselves.
        const MOST: usize = 2;
        if self.0.len() <= MOST {
            return self;
        }
        let any = Guard::any(self.0.iter().map(|(guard, _)| guard));
        Self(vec![(any, Slope::new(self.sum()))])
    }
}

/// The sum of contributions and another one. Sums along an axis of numbers on the same axes are one sum, if it is soon found.
fn together(all: Expr, other: Expr) -> Expr {
    /// So many nodes are looked at.
    const MOST_NODES: usize = 1 << 8;
    let mut left = MOST_NODES;
    joined(all, other, &mut left).unwrap_or_else(|| all + other)
}

/// The same where the other one joins a sum that is there, `left` being how many nodes may be looked at.
fn joined(all: Expr, other: Expr, left: &mut usize) -> Option<Expr> {
    let Node::Fold(Fold::Sum, axis, of_other) = node_at(other.0) else { return None };
    *left = left.checked_sub(1)?;
    match node_at(all.0) {
        Node::Fold(Fold::Sum, own, a) if own == axis && axes_of(a) == axes_of(of_other) => {
            Some(node(Node::Fold(Fold::Sum, axis, together(Expr(a), Expr(of_other)).0)))
        }
        Node::Binary(Binary::Add, a, b) => {
            let first = joined(Expr(a), other, left).map(|a| a + Expr(b));
            first.or_else(|| Some(Expr(a) + joined(Expr(b), other, left)?))
        }
        Node::Binary(Binary::Sub, a, b) => Some(joined(Expr(a), other, left)? - Expr(b)),
        _ => None,
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
        self.gradient_reading(&[])
    }

    /// The gradient with some outputs as inputs, which reads some of these.
    pub(super) fn gradient_with(&self, outputs: &[usize], read: &[usize]) -> Self {
        let gradients = |arguments: &[Argument]| arguments.iter().map(Argument::gradient).collect::<Vec<_>>();
        let given = outputs.iter().map(|output| self.results[*output].clone()).collect();
        let inputs = [self.inputs.clone(), given, gradients(&self.results)].concat();
        let gradient = record(inputs, gradients(&self.inputs), &[], |numbers| {
            let (inputs, others) = numbers.split_at(self.input_count());
            let (given, output_gradients) = others.split_at(outputs.len());
            let values = || self.values(inputs, of_axis);
            let known = outputs.iter().zip(given).filter(|(output, _)| read.contains(output));
            let mut known: Vec<_> =
                known.flat_map(|(output, given)| self.said_by(*output).map(move |id| (id, given))).collect();
            known.sort_by_key(|(id, _)| *id);
            let read = Read::new(&known, values);
            self.backward(&values(), output_gradients, &read)
        });
        let of_results = gradient.result_axes().into_iter();
        assert!(
            of_results.zip(gradient.output_axes()).all(|(result, own)| result.is_within(own)),
            "a gradient lies on axes that its input does not have: {}",
            gradient.formula()
        );
        gradient
    }

    /// The gradients of the inputs, from the values of all nodes.
    fn backward(&self, values: &[Value<Expr>], output_gradients: &[Expr], read: &Read) -> Vec<Expr> {
        let axes = self.axes();
        let mut adjoints = vec![Adjoint::default(); self.nodes.len()];
        for ((output, gradient), own) in self.outputs.iter().zip(output_gradients).zip(self.output_axes()) {
            let lacking = own.minus(axes[output.index()]);
            let (guard, term) = over_axes(lacking, Guard::default(), Slope::new(*gradient));
            adjoints[output.index()].add(guard, term);
        }
        let mut gradients = vec![Expr::of(0.0); self.input_count()];
        for index in (0..self.nodes.len()).rev() {
            let adjoint = std::mem::take(&mut adjoints[index]);
            if let Node::Input(position) = self.nodes[index] {
                gradients[position as usize] = adjoint.sum();
                continue;
            }
            for (guard, gradient) in adjoint.few().0 {
                let value = (self.nodes[index], values[index]);
                for (operand, guard, term) in contributions(value, values, &guard, gradient, read) {
                    let (guard, term) = over_axes(axes[index].minus(axes[operand.index()]), guard, term);
                    adjoints[operand.index()].add(guard, term);
                }
            }
        }
        gradients
    }
}

/// A contribution to an operand that lacks axes which its user lies on: the sum over each of them.
fn over_axes(lacking: Axes, guard: Guard, term: Slope) -> (Guard, Slope) {
    lacking.iter().fold((guard, term), |(guard, term), axis| over_axis(axis, guard, term))
}

/// The sum over an axis, in which the conditions on its positions are selected. Where it is taken at no position it
/// is nothing: a sum of zeros, multiplied by an infinite slope further down, would be NaN.
fn over_axis(axis: Axis, guard: Guard, term: Slope) -> (Guard, Slope) {
    // A divisor that is the same all along the axis is that of the sum.
    let Slope { number: term, divisor } = match term.divisor {
        Some(divisor) if axes_of(divisor.0).has(axis) => Slope::new(term.whole()),
        _ => term,
    };
    let sum = |number: Expr| Slope { number, divisor };
    let fold = |op: Fold, number: Expr| node(Node::Fold(op, axis, number.0));
    let (inner, outer): (BTreeMap<_, _>, BTreeMap<_, _>) =
        guard.0.into_iter().partition(|(id, _)| axes_of(*id).has(axis));
    let mut outer = Guard(outer);
    let inner = Guard(inner);
    let Some(mask) = inner.mask() else {
        return (outer, sum(summed(axis, term)));
    };
    let (zero, one) = (Expr::of(0.0), Expr::of(1.0));
    let anywhere = fold(Fold::Max, Expr::select(mask, one, zero)).gt(zero);
    outer.0.insert(anywhere.0, true);
    (outer, sum(fold(Fold::Sum, inner.without_those_of(term).select(term))))
}

/// The sum of contributions along an axis. A sign is taken once for all of it; and where that needs fewer folds one after another, the
/// contributions are summed each by itself, and what is the same all along the axis is taken out of their sums.
fn summed(axis: Axis, term: Expr) -> Expr {
    let (parts, mut known) = (parts_of(axis, term), BTreeMap::new());
    let whole = depth(axis, term.0, &mut known);
    let is_sooner = parts.iter().all(|part| depth(axis, part.summed.0, &mut known) < whole);
    let fold = |number: Expr| node(Node::Fold(Fold::Sum, axis, number.0));
    let sums = parts.iter().map(|Part { factors, summed, is_negative }| {
        let product = factors.iter().fold(fold(*summed), |product, factor| product * *factor);
        if *is_negative { -product } else { product }
    });
    match node_at(term.0) {
        _ if is_sooner => sums.reduce(|a, b| a + b).unwrap_or_else(|| Expr::of(0.0)),
        Node::Unary(Unary::Neg, inner) => -fold(Expr(inner)),
        _ => fold(term),
    }
}

/// A contribution: a product of what is summed and of factors that are the same all along the axis.
struct Part {
    factors: Vec<Expr>,
    summed: Expr,
    is_negative: bool,
}

/// The contributions that a gradient is the sum of. What an author has added up is within products, which are not taken apart.
fn parts_of(axis: Axis, number: Expr) -> Vec<Part> {
    let parts = |id: Id| parts_of(axis, Expr(id)).into_iter();
    let turned = |part: Part| Part { is_negative: !part.is_negative, ..part };
    match node_at(number.0) {
        Node::Binary(Binary::Add, a, b) => parts(a).chain(parts(b)).collect(),
        Node::Binary(Binary::Sub, a, b) => parts(a).chain(parts(b).map(turned)).collect(),
        Node::Unary(Unary::Neg, a) => parts(a).map(turned).collect(),
        _ => {
            let (mut factors, mut summed) = (Vec::new(), number);
            while let Node::Binary(Binary::Mul, a, b) = node_at(summed.0) {
                let (factor, rest) = if axes_of(a).has(axis) { (b, a) } else { (a, b) };
                if axes_of(factor).has(axis) {
                    break;
                }
                factors.push(Expr(factor));
                summed = Expr(rest);
            }
            vec![Part { factors, summed, is_negative: false }]
        }
    }
}

/// How many folds along an axis a number needs one after another.
fn depth(axis: Axis, id: Id, known: &mut BTreeMap<Id, usize>) -> usize {
    if let Some(depth) = known.get(&id) {
        return *depth;
    }
    let node = node_at(id);
    let below = node.operands().map(|operand| depth(axis, operand, known)).max().unwrap_or(0);
    let own = below + usize::from(matches!(node, Node::Fold(_, along, _) if along == axis));
    known.insert(id, own);
    own
}

/// What the gradient of the largest or smallest number along an axis contributes to all along it: an equal share to those
/// that are it.
fn shares(
    (op, axis): (Fold, Axis),
    a: Id,
    values: &[Value<Expr>],
    guard: &Guard,
    gradient: Slope,
) -> Vec<(Id, Guard, Slope)> {
    let x = values[a.index()].number();
    let extreme = node(Node::Fold(op, axis, x.0));
    // The others; none if there is NaN, so that nothing is divided by a count of zero.
    let others = if op == Fold::Max { x.lt(extreme) } else { extreme.lt(x) };
    let one = Expr::select(others, Expr::of(0.0), Expr::of(1.0));
    let ties = node(Node::Fold(Fold::Sum, axis, one.0));
    let share = Slope::new(gradient.whole() / ties);
    guard.and(others, false).map(|guard| (a, guard, share)).into_iter().collect()
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
    let Node::Select(mask, yes, no) = node_at(x.0) else { return false };
    let Node::Compare(Compare::Eq, a, b) = node_at(mask) else { return false };
    let is_zero = |id: Id| node_at(id).constant() == Some(0.0);
    let is_compared = (a == no && is_zero(b)) || (b == no && is_zero(a));
    is_compared && node_at(yes).constant().is_some_and(|other| other != 0.0)
}

/// What the gradient of a node contributes to those of its operands. The derivatives are those of [`Dual`], but for a quotient that is
/// read.
fn contributions(
    (node, value): (Node, Value<Expr>),
    values: &[Value<Expr>],
    guard: &Guard,
    gradient: Slope,
    read: &Read,
) -> Vec<(Id, Guard, Slope)> {
    let number = |id: Id| values[id.index()].number();
    let either = |mask: MaskExpr, yes: Id, no: Id| {
        let sides = [(yes, true), (no, false)].into_iter();
        sides.filter_map(|(id, holds)| Some((id, guard.and(mask, holds)?, gradient))).collect()
    };
    match node {
        Node::Unary(Unary::Log, a) if read.has_log(number(a)) => {
            vec![(a, guard.clone(), gradient.over(number(a)))]
        }
        Node::Unary(op, a) => {
            let result = op.apply(Dual::<Expr, 1>::variable(number(a), 0));
            let slope = result.partial(0).map(|slope| (a, guard.clone(), gradient.times(slope, read)));
            slope.into_iter().collect()
        }
        Node::Binary(Binary::Min, a, b) => either(number(a).le(number(b)) | number(a).ne(number(a)), a, b),
        Node::Binary(Binary::Max, a, b) => either(number(a).ge(number(b)) | number(a).ne(number(a)), a, b),
        Node::Binary(Binary::Div, a, b) if read.has(value.number()) => {
            let whole = gradient.whole();
            let by_divisor = Slope::new(-(whole * value.number())).over(number(b));
            vec![(a, guard.clone(), Slope::new(whole).over(number(b))), (b, guard.clone(), by_divisor)]
        }
        // Of a square, so that what the two have in common is computed once.
        Node::Binary(Binary::Mul, a, b) if a == b => {
            vec![(a, guard.clone(), Slope::new(gradient.whole() * 2.0 * number(a)))]
        }
        Node::Binary(op, a, b) => {
            let result = op.apply(Dual::<Expr, 2>::variable(number(a), 0), Dual::variable(number(b), 1));
            let slopes = [(a, result.partial(0)), (b, result.partial(1))].into_iter();
            slopes.filter_map(|(id, slope)| Some((id, guard.clone(), gradient.times(slope?, read)))).collect()
        }
        Node::Select(mask, yes, no) => either(values[mask.index()].mask(), yes, no),
        Node::Fold(Fold::Sum, _, a) => vec![(a, guard.clone(), gradient)],
        Node::Fold(Fold::Product, axis, a) => {
            vec![(a, guard.clone(), Slope::new(gradient.whole() * of_others(axis, number(a))))]
        }
        Node::Fold(op, axis, a) => shares((op, axis), a, values, guard, gradient),
        _ => Vec::new(),
    }
}
