//! Graphs and folds as operations on vectors.

use super::line::{Line, Op, Value, is_sign};
use super::record::{self, Number, push};
use super::vectors::Vectors;
use crate::expr::{Fold, Graph, Id, Node};
use crate::scalar::Scalar;

/// What a node is: a mask has all bits of a number set where it is true.
#[derive(Clone, Copy)]
enum Known {
    Number(Value),
    Mask(Value),
}

/// Computes the outputs of a graph without folds. Masks among inputs and outputs are numbers, 1 or 0.
pub(crate) fn compute<const DOUBLE: bool>(line: &mut Line, graph: &Graph, inputs: &[Value]) -> Vec<Value> {
    record::record::<DOUBLE, _>(line, || {
        let mut known: Vec<Known> = Vec::with_capacity(graph.nodes().len());
        for node in graph.nodes() {
            let own = of_node::<DOUBLE>(graph, *node, inputs, &known);
            known.push(own);
        }
        graph.outputs().iter().map(|id| vector(known[id.index()])).collect()
    })
}

fn vector(known: Known) -> Value {
    match known {
        Known::Number(value) => value,
        Known::Mask(mask) => push(Op::And(mask, push(Op::Constant(1.0_f64.to_bits())))),
    }
}

fn mask(known: Known) -> Value {
    let number = match known {
        Known::Mask(value) => return value,
        Known::Number(value) => value,
    };
    if let Op::And(mask, one) = record::op(number)
        && record::op(one) == Op::Constant(1.0_f64.to_bits())
    {
        return mask;
    }
    push(Op::IsNotZero(number))
}

fn of_node<const DOUBLE: bool>(graph: &Graph, node: Node, inputs: &[Value], known: &[Known]) -> Known {
    let number = |id: Id| record::number::<DOUBLE>(vector(known[id.index()]));
    let mask = |id: Id| mask(known[id.index()]);
    let value = match node {
        Node::Input(position) => inputs[position as usize],
        Node::Attribute(position) => push(Op::Constant(graph.attributes()[position as usize].1.to_bits())),
        Node::Constant(bits) => push(Op::Constant(bits)),
        Node::Unary(op, a) => record::value(op.apply(number(a))),
        Node::Binary(op, a, b) => record::value(op.apply(number(a), number(b))),
        Node::Select(m, a, b) => {
            let m = mask(m);
            record::value(Number::<DOUBLE>::select(m.into(), number(a), number(b)))
        }
        Node::Compare(op, a, b) => return Known::Mask(op.apply(number(a), number(b)).value()),
        Node::And(a, b) => return Known::Mask(push(Op::And(mask(a), mask(b)))),
        Node::Or(a, b) => return Known::Mask(push(Op::Or(mask(a), mask(b)))),
        Node::Not(a) => return Known::Mask(push(Op::Xor(mask(a), push(Op::Bits(u64::MAX))))),
        Node::Detached(a) => return known[a.index()],
        Node::Fold(..) | Node::Count(_) | Node::Index(_) => unreachable!("what is computed has no axes"),
    };
    Known::Number(value)
}

/// How a product that is a term is rounded: with the sum, or by itself where another loop computes the same sum.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounded {
    /// By itself.
    Alone,
    /// With the sum if it is always added, by itself if only where a mask is true.
    Fused,
    /// With the sum.
    AlwaysFused,
}

/// Folds a vector into another, number by number.
pub(crate) fn fold(line: &mut Line, (op, rounded): (Fold, Rounded), into: Value, from: Value) -> Value {
    let is_fused = rounded != Rounded::Alone;
    match op {
        Fold::Sum => match line.op(from) {
            Op::Mul(a, b) if is_fused => line.push(Op::Fma(a, b, into)),
            // Of a product that is taken away, one factor is.
            Op::Xor(product, sign) if is_fused && is_sign(line.op(sign)) => match line.op(product) {
                Op::Mul(a, b) => {
                    let (a, b) = if matches!(line.op(b), Op::Input(_)) { (b, a) } else { (a, b) };
                    let a = line.push(Op::Xor(a, sign));
                    line.push(Op::Fma(a, b, into))
                }
                _ => line.push(Op::Add(into, from)),
            },
            Op::And(mask, term) if rounded == Rounded::AlwaysFused && line.is_mask(mask) => {
                match line.op(term) {
                    Op::Mul(a, b) => line.push(Op::FmaWhere(mask, a, b, into)),
                    _ => line.push(Op::Add(into, from)),
                }
            }
            _ => line.push(Op::Add(into, from)),
        },
        Fold::Product => line.push(Op::Mul(into, from)),
        Fold::Max | Fold::Min => {
            // The second is given where one is NaN, so what was NaN stays it; all bits set are NaN too.
            let taken = line.push(if op == Fold::Max { Op::Max(from, into) } else { Op::Min(from, into) });
            let is_nan = line.push(Op::IsNan(from));
            line.push(Op::Or(taken, is_nan))
        }
    }
}

/// Folds the numbers of each vector, which all then are its fold: in pairs, so that a sum's error is small. Halves of two vectors are folded
/// as one, and so are quarters of four; a vector has the same numbers folded in the same order in any company.
pub(crate) fn across(line: &mut Line, op: Fold, of: &[Value], vectors: Vectors) -> Vec<Value> {
    let most = if vectors.wide { 4 } else { 2 };
    let mut found = Vec::with_capacity(of.len());
    while found.len() < of.len() {
        let rest = &of[found.len()..];
        let count = 1 << rest.len().min(most).ilog2();
        found.extend(across_together(line, op, &rest[..count], vectors));
    }
    found
}

/// The same of one vector, or as many as have a half or a quarter each.
fn across_together(line: &mut Line, op: Fold, of: &[Value], vectors: Vectors) -> Vec<Value> {
    // What is taken of two vectors as the one operand and the other; of a vector alone, the other.
    let orders: &[_] =
        if vectors.wide { &[(0x44, 0xee, 0x4e), (0x88, 0xdd, 0xb1)] } else { &[(0x20, 0x31, 0x01)] };
    let mut level = of.to_vec();
    for (first, second, swapped) in orders {
        let mut folded = |pair: &[Value]| {
            let (one, other) = match *pair {
                [a, b] => (line.push(Op::Quarters(a, b, *first)), line.push(Op::Quarters(a, b, *second))),
                _ => (pair[0], line.push(Op::Quarters(pair[0], pair[0], *swapped))),
            };
            fold(line, (op, Rounded::Alone), one, other)
        };
        level = level.chunks(2).map(&mut folded).collect();
    }
    let mut folded = level[0];
    let numbers: &[u8] = if vectors.double { &[0b0101_0101] } else { &[0b0100_1110, 0b1011_0001] };
    for order in numbers {
        let other = line.push(Op::Permuted(folded, *order));
        folded = fold(line, (op, Rounded::Alone), folded, other);
    }
    // Of 0 and −0 the largest is the first, which is another one in each place: that of the first place is taken everywhere.
    let has_order = matches!(op, Fold::Max | Fold::Min);
    if has_order {
        folded = line.push(Op::Permuted(folded, 0));
    }
    if of.len() == 1 && !has_order {
        return vec![folded];
    }
    let (all, every) = if vectors.wide { (4, 0x55) } else { (2, 0x11) };
    let own = (0..of.len()).map(|own| (own * all / of.len()) as u8 * every);
    own.map(|order| line.push(Op::Quarters(folded, folded, order))).collect()
}

/// Adds the sum of a few terms to that of those before: the new sum, and what all additions have lost.
pub(crate) fn add_part(line: &mut Line, part: Value, total: Value, lost: Value) -> (Value, Value) {
    let sum = line.push(Op::Add(total, part));
    let of_part = line.push(Op::Sub(sum, total));
    let of_total = line.push(Op::Sub(sum, of_part));
    let rest_of_total = line.push(Op::Sub(total, of_total));
    let rest_of_part = line.push(Op::Sub(part, of_part));
    let rest = line.push(Op::Add(rest_of_total, rest_of_part));
    (sum, line.push(Op::Add(lost, rest)))
}

/// The whole sum. Of an infinite one nothing is lost, and what was computed for it is no number.
pub(crate) fn sum_up(line: &mut Line, total: Value, lost: Value) -> Value {
    let is_number = line.push(Op::Eq(lost, lost));
    let sum = line.push(Op::Add(total, lost));
    line.push(Op::Select(is_number, sum, total))
}
