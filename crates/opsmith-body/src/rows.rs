//! The interface that reductions are written against, and their graphs.

use std::ops::{Add, Div, Mul, Sub};

use crate::axes::{Axes, Axis};
use crate::expr::{Argument, Expr, Fold, Graph, Node, node, record};
use crate::scalar::Scalar;

/// The numbers of a computation by rows.
///
/// A reduction is a function that is generic over `R: Rows`. What varies along the row is [`R::Each`](Self::Each), what
/// there is one of for each row [`R::One`](Self::One); both are [`Scalar`]s, folds such as [`sum`](Each::sum) lead from
/// the first to the second, and arithmetic between them gives the first:
///
/// ```
/// use opsmith_body::{Each, Rows, Scalar};
///
/// fn softmax<R: Rows>(x: R::Each) -> R::Each {
///     let e = (x - x.amax().detached()).exp();
///     e / e.sum()
/// }
/// ```
pub trait Rows: Copy + 'static {
    /// A number for each position of each row.
    type Each: Each<One = Self::One>;
    /// A number for each row.
    type One: Scalar<Mask = <Self::Each as Scalar>::Mask>
        + Add<Self::Each, Output = Self::Each>
        + Sub<Self::Each, Output = Self::Each>
        + Mul<Self::Each, Output = Self::Each>
        + Div<Self::Each, Output = Self::Each>;
}

/// A number for each position of each row.
pub trait Each:
    Scalar
    + Add<Self::One, Output = Self>
    + Sub<Self::One, Output = Self>
    + Mul<Self::One, Output = Self>
    + Div<Self::One, Output = Self>
{
    /// What folds give.
    type One: Scalar;

    /// The number of the row, at each of its positions.
    fn of_row(row: Self::One) -> Self;
    /// The sum of the row; 0 of an empty one.
    fn sum(self) -> Self::One;
    /// The product of the row; 1 of an empty one. The gradient is right where numbers are 0, too; that of the third order and on where
    /// there is at most one 0 in the row.
    fn prod(self) -> Self::One;
    /// The largest of the row, NaN if one is NaN; −∞ of an empty row. The gradient is shared equally by those that are
    /// it.
    fn amax(self) -> Self::One;
    /// The smallest of the row, NaN if one is NaN; ∞ of an empty row. The gradient is shared equally by those that are
    /// it.
    fn amin(self) -> Self::One;
    /// How many numbers the row has.
    fn count(self) -> Self::One;

    /// The mean of the row; NaN of an empty one.
    fn mean(self) -> Self::One {
        self.sum() / self.count()
    }
}

/// [`Rows`] whose numbers write down what is done with them: what [`trace_rows`] computes with.
#[derive(Clone, Copy, Debug)]
pub struct Traced;

impl Rows for Traced {
    type Each = Expr;
    type One = Expr;
}

/// The axis along which rows lie.
const ROW: Axis = Axis::new(0);

impl Each for Expr {
    type One = Self;

    fn of_row(row: Self) -> Self {
        row
    }
    fn sum(self) -> Self {
        node(Node::Fold(Fold::Sum, ROW, self.0))
    }
    fn prod(self) -> Self {
        node(Node::Fold(Fold::Product, ROW, self.0))
    }
    fn amax(self) -> Self {
        node(Node::Fold(Fold::Max, ROW, self.0))
    }
    fn amin(self) -> Self {
        node(Node::Fold(Fold::Min, ROW, self.0))
    }
    fn count(self) -> Self {
        node(Node::Count(ROW))
    }
}

/// Traces a reduction, whose inputs and outputs have names, and lie on [`Axes::FIRST`], which is the row, or on none.
///
/// ```
/// use opsmith_body::{Axes, Each, Rows, Scalar, Traced, trace_rows};
///
/// fn norm<R: Rows>(x: R::Each) -> R::One {
///     (x * x).sum().sqrt()
/// }
///
/// let graph = trace_rows(&[("x", Axes::FIRST)], &[("y", Axes::NONE)], |x| vec![norm::<Traced>(x[0])]);
/// assert_eq!(graph.formula(), "y = sqrt(sum(x * x))");
/// ```
pub fn trace_rows(
    inputs: &[(&str, Axes)],
    outputs: &[(&str, Axes)],
    reduction: impl FnOnce(&[Expr]) -> Vec<Expr>,
) -> Graph {
    let arguments = |named: &[(&str, Axes)]| {
        named.iter().map(|&(name, axes)| Argument { name: name.to_owned(), axes }).collect()
    };
    record(arguments(inputs), arguments(outputs), &[], reduction)
}
