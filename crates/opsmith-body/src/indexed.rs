//! The interface that bodies over named axes are written against, and their graphs.

use crate::axes::{Axes, Axis};
use crate::body::Body;
use crate::expr::{
    Argument, Expr, Fold, Graph, MaskExpr, Node, axes_of, exact, node, record, repeated, save, size_within,
    taken,
};
use crate::scalar::{Mask, Scalar};

/// A number that lies on axes: there is one for each of their positions.
///
/// What an operation gives lies on the axes of all its operands, what a fold gives on those of its operand but one. So the
/// formula says which loops there are:
///
/// ```
/// use opsmith_body::{Axis, Indexed};
///
/// // With b on (j, e): the sum over j, on (i, e).
/// fn gaussian_convolution<S: Indexed>(x: S, y: S, b: S, gamma: S, [j, k]: [Axis; 2]) -> S {
///     let d = ((x - y) * (x - y)).sum(k);
///     ((d * -gamma).exp() * b).sum(j)
/// }
/// ```
pub trait Indexed: Scalar<Mask: IndexedMask<Number = Self>> {
    /// A position along an axis.
    type Index: Index<Number = Self, Mask = Self::Mask>;

    /// The position along an axis, from 0 on.
    fn index(axis: Axis) -> Self::Index;
    /// How many positions an axis has.
    fn count(axis: Axis) -> Self;
    /// The sum along an axis; 0 of no numbers.
    fn sum(self, axis: Axis) -> Self;
    /// The product along an axis; 1 of no numbers. The gradient is right where numbers are 0, too; that of the third order and on where
    /// there is at most one 0 along the axis.
    fn prod(self, axis: Axis) -> Self;
    /// The largest along an axis, NaN if one is NaN; −∞ of no numbers. The gradient is shared equally by those that are it.
    fn amax(self, axis: Axis) -> Self;
    /// The smallest along an axis, NaN if one is NaN; ∞ of no numbers. The gradient is shared equally by those that are it.
    fn amin(self, axis: Axis) -> Self;
    /// The position of the largest along an axis, the first of equals; of the first NaN if there is one.
    fn argmax(self, axis: Axis) -> Self::Index;
    /// The position of the smallest along an axis, the first of equals; of the first NaN if there is one.
    fn argmin(self, axis: Axis) -> Self::Index;

    /// The smallest along an axis, as many as the axis `into` has positions, and their positions: in order, the first of equals first, and
    /// NaN as ∞. The size of `into` is its own, from the signature: `(i, r = 3)`, or `(i, r = neighbours)` of an attribute. Each takes two
    /// passes over the numbers.
    fn smallest(self, axis: Axis, into: Axis) -> (Self, Self::Index);

    /// The largest along an axis, as [`smallest`](Self::smallest): the largest first, NaN as −∞.
    fn largest(self, axis: Axis, into: Axis) -> (Self, Self::Index) {
        let (negative, positions) = (-self).smallest(axis, into);
        (-negative, positions)
    }

    /// The number at a position along an axis, which has to have it: else it is an error.
    fn at(self, axis: Axis, position: usize) -> Self;

    /// The same number, which the op saves for its gradient: that reads it instead of computing it again. It takes as much memory as
    /// it has numbers, and an axis that it does not lie on is not free.
    #[must_use]
    fn saved(self) -> Self;

    /// The mean along an axis; NaN of no numbers.
    fn mean(self, axis: Axis) -> Self {
        self.sum(axis) / Self::count(axis)
    }

    /// The logarithm of the sum of the exponentials along an axis, without overflow; −∞ of no numbers.
    fn log_sum_exp(self, axis: Axis) -> Self {
        let largest = self.amax(axis).detached();
        let zero = Self::of(0.0);
        // Where it is infinite nothing may be subtracted: ∞ − ∞ is no number.
        let shift = Self::select(largest.abs().lt(Self::of(f64::INFINITY)), largest, zero);
        (self - shift).exp().sum(axis).log() + shift
    }
}

/// A position along an axis.
pub trait Index: Copy + 'static {
    /// The numbers of the body.
    type Number: Scalar<Mask = Self::Mask>;
    /// What comparisons give.
    type Mask: Mask;

    /// The position as a number.
    fn number(self) -> Self::Number;
    /// `self < other`.
    #[inline(always)]
    fn lt(self, other: Self) -> Self::Mask {
        self.number().lt(other.number())
    }
    /// `self <= other`.
    #[inline(always)]
    fn le(self, other: Self) -> Self::Mask {
        self.number().le(other.number())
    }
    /// `self == other`.
    #[inline(always)]
    fn eq(self, other: Self) -> Self::Mask {
        self.number().eq(other.number())
    }
    /// `self > other`.
    #[inline(always)]
    fn gt(self, other: Self) -> Self::Mask {
        other.lt(self)
    }
    /// `self >= other`.
    #[inline(always)]
    fn ge(self, other: Self) -> Self::Mask {
        other.le(self)
    }
    /// `self != other`.
    #[inline(always)]
    fn ne(self, other: Self) -> Self::Mask {
        !self.eq(other)
    }
}

/// A mask that lies on axes.
pub trait IndexedMask: Mask {
    /// The numbers of the body.
    type Number: Scalar<Mask = Self>;

    /// How many are true along an axis.
    fn count(self, axis: Axis) -> Self::Number;
    /// Whether one is true along an axis; not of none.
    fn any(self, axis: Axis) -> Self;
    /// Whether all are true along an axis; so of none.
    fn all(self, axis: Axis) -> Self {
        !(!self).any(axis)
    }
}

/// A position that is a node of a graph.
#[derive(Clone, Copy, Debug)]
pub struct IndexExpr(Expr);

impl IndexExpr {
    /// The position that is this number.
    pub fn new(number: Expr) -> Self {
        Self(number)
    }
}

impl MaskExpr {
    /// The mask that is true where the number is not 0.
    pub fn new(number: Expr) -> Self {
        Scalar::ne(number, Expr::of(0.0))
    }

    /// 1 where it is true, else 0.
    pub fn number(self) -> Expr {
        Expr::select(self, Expr::of(1.0), Expr::of(0.0))
    }
}

impl Index for IndexExpr {
    type Number = Expr;
    type Mask = MaskExpr;

    fn number(self) -> Expr {
        self.0
    }
}

impl IndexedMask for MaskExpr {
    type Number = Expr;

    fn count(self, axis: Axis) -> Expr {
        self.number().sum(axis)
    }
    fn any(self, axis: Axis) -> Self {
        // The largest of none is −∞: none is true.
        self.number().amax(axis).gt(Expr::of(0.0))
    }
}

/// A fold; of a number that does not lie on the axis, too, which may have no positions.
fn fold(op: Fold, axis: Axis, x: Expr) -> Expr {
    let folded = node(Node::Fold(op, axis, x.0));
    if axes_of(x.0).has(axis) {
        return folded;
    }
    if matches!(op, Fold::Sum | Fold::Product) {
        repeated(x.0, axis);
    }
    let is_some = Scalar::lt(Expr::of(0.0), node(Node::Count(axis)));
    Expr::select(is_some, folded, op.identity())
}

/// The position of the first number along an axis that is `extreme`, or NaN.
fn position(x: Expr, extreme: Expr, axis: Axis) -> IndexExpr {
    let is_it = Scalar::eq(x, extreme) | Scalar::ne(x, x);
    let place = Expr::select(is_it, node(Node::Index(axis)), Expr::of(f64::INFINITY));
    IndexExpr(place.amin(axis).detached())
}

impl Indexed for Expr {
    type Index = IndexExpr;

    fn index(axis: Axis) -> IndexExpr {
        IndexExpr(node(Node::Index(axis)))
    }
    fn count(axis: Axis) -> Self {
        node(Node::Count(axis))
    }
    fn sum(self, axis: Axis) -> Self {
        fold(Fold::Sum, axis, self)
    }
    fn prod(self, axis: Axis) -> Self {
        fold(Fold::Product, axis, self)
    }
    fn amax(self, axis: Axis) -> Self {
        fold(Fold::Max, axis, self)
    }
    fn amin(self, axis: Axis) -> Self {
        fold(Fold::Min, axis, self)
    }
    fn argmax(self, axis: Axis) -> IndexExpr {
        position(self, self.amax(axis), axis)
    }
    fn argmin(self, axis: Axis) -> IndexExpr {
        position(self, self.amin(axis), axis)
    }
    fn at(self, axis: Axis, position: usize) -> Self {
        exact(axis);
        taken(axis, position);
        let here = Scalar::eq(node(Node::Index(axis)), Self::of(position as f64));
        Self::select(here, self, Self::of(0.0)).sum(axis)
    }
    fn saved(self) -> Self {
        save(self);
        self
    }
    fn smallest(self, axis: Axis, into: Axis) -> (Self, IndexExpr) {
        exact(axis);
        let count = size_within(into, axis).unwrap_or(0).min(MOST_SMALLEST);
        let infinity = Self::of(f64::INFINITY);
        let place = node(Node::Index(axis));
        let key = Self::select(Scalar::ne(self, self), infinity, self).detached();
        // The position of each along `into`: that of the least key, and of equals the first, after the one before.
        let mut before: Option<(Self, Self)> = None;
        // Of none, what lies on the same axes.
        let mut positions = match count {
            0 => node(Node::Index(into)) + self.amin(axis),
            _ => Self::of(f64::NAN),
        };
        for rank in 0..count {
            let is_left = |key: Self| {
                let (last, at) = before?;
                Some(Scalar::lt(last, key) | (Scalar::eq(last, key) & Scalar::lt(at, place)))
            };
            let of_left = |x: Self| is_left(key).map_or(x, |left| Self::select(left, x, infinity));
            let least = of_left(key).amin(axis);
            let position = Self::select(Scalar::eq(key, least), of_left(place), infinity).amin(axis);
            let is_here = Scalar::eq(node(Node::Index(into)), Self::of(rank as f64));
            positions = Self::select(is_here, position, positions);
            before = Some((least, position));
        }
        let positions = positions.detached();
        let values = Self::select(Scalar::eq(place, positions), self, Self::of(0.0)).sum(axis);
        (values, IndexExpr(positions))
    }
}

/// The most numbers that [`Indexed::smallest`] gives.
pub const MOST_SMALLEST: usize = 64;

/// Traces a body over axes of these names, whose inputs and outputs have names and lie on axes.
pub fn trace_over(
    axes: &[&str],
    inputs: &[(&str, Axes)],
    outputs: &[(&str, Axes)],
    body: impl FnOnce(&[Expr]) -> Vec<Expr>,
) -> Graph {
    trace_sized(axes, &[], inputs, outputs, body)
}

/// The same where axes have sizes of their own.
pub fn trace_sized(
    axes: &[&str],
    sizes: &[Option<usize>],
    inputs: &[(&str, Axes)],
    outputs: &[(&str, Axes)],
    body: impl FnOnce(&[Expr]) -> Vec<Expr>,
) -> Graph {
    let arguments = |named: &[(&str, Axes)]| {
        named.iter().map(|&(name, axes)| Argument { name: name.to_owned(), axes }).collect()
    };
    record(arguments(inputs), arguments(outputs), sizes, body).with_axis_names(axes)
}

/// Traces a body of two numbers, folded along the axis that its arguments share: `x` lies on the first and the second axis, `y` on the third
/// and the second, the result on the first and the third, or on fewer where the body ignores one.
/// A sum may be divided by how many terms it has; what becomes of a fold, `finish` says.
pub fn trace_pairs(
    axes: [&str; 3],
    [x, y, z]: [&str; 3],
    (fold, mean): (Fold, bool),
    body: &impl Body<2, 1>,
    finish: impl FnOnce(Expr) -> Expr,
) -> Graph {
    let shared = Axis::new(1);
    let arguments = [(x, Axes::at(&[0, 1])), (y, Axes::at(&[2, 1]))];
    trace_over(&axes, &arguments, &[(z, Axes::at(&[0, 2]))], |numbers| {
        let [term] = body.eval([numbers[0], numbers[1]]);
        let folded = self::fold(fold, shared, term);
        let folded = if mean { folded / node(Node::Count(shared)) } else { folded };
        vec![finish(folded)]
    })
}
