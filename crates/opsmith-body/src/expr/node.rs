//! The nodes of graphs: functions of numbers, folds along axes, and where they are given.

use crate::axes::{Axes, Axis};
use crate::expr::functions::with_functions;
use crate::scalar::Scalar;

/// The number of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub(crate) u32);

impl Id {
    /// The position among the nodes.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

macro_rules! unary {
    ({} $($op:ident $method:ident),*) => {
        /// A function of one number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "they are the methods of `Scalar`")]
        pub enum Unary {
            Neg,
            $($op,)*
        }

        impl Unary {
            /// All of them.
            pub(crate) const ALL: &'static [Self] = &[Self::Neg, $(Self::$op),*];

            /// The function.
            pub fn apply<S: Scalar>(self, x: S) -> S {
                match self {
                    Self::Neg => -x,
                    $(Self::$op => x.$method(),)*
                }
            }

            /// Its name in formulas.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    Self::Neg => "neg",
                    $(Self::$op => stringify!($method),)*
                }
            }
        }
    };
}

with_functions! { unary {} }

/// A function of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "they are the operators and methods of `Scalar`")]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    Min,
    Max,
}

/// A comparison of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "they are the methods of `Scalar`")]
pub enum Compare {
    Lt,
    Le,
    Eq,
}

/// How numbers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fold {
    /// Their sum; 0 of none.
    Sum,
    /// The largest, NaN if one is NaN; −∞ of none.
    Max,
    /// The smallest, NaN if one is NaN; ∞ of none.
    Min,
    /// Their product; 1 of none.
    Product,
}

impl Fold {
    /// What a fold of nothing gives, and changes nothing when it is folded with others.
    #[inline(always)]
    pub fn identity<S: Scalar>(self) -> S {
        S::of(self.identity_value())
    }

    /// The same as a number.
    #[inline(always)]
    pub(crate) fn identity_value(self) -> f64 {
        match self {
            Self::Sum => 0.0,
            Self::Max => f64::NEG_INFINITY,
            Self::Min => f64::INFINITY,
            Self::Product => 1.0,
        }
    }

    /// The fold of two numbers.
    #[inline(always)]
    pub fn of_two<S: Scalar>(self, a: S, b: S) -> S {
        match self {
            Self::Sum => a + b,
            Self::Max => a.max(b),
            Self::Min => a.min(b),
            Self::Product => a * b,
        }
    }
}

/// A node: a number, or a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// The input of that position.
    Input(u32),
    /// The attribute of that position in [`Graph::attributes`](super::graph::Graph::attributes).
    Attribute(u32),
    /// A constant, by the bits of the `f64`.
    Constant(u64),
    /// A function of one number.
    Unary(Unary, Id),
    /// A function of two numbers.
    Binary(Binary, Id, Id),
    /// The first number where the mask is true, else the second.
    Select(Id, Id, Id),
    /// A comparison of two numbers: a mask.
    Compare(Compare, Id, Id),
    /// Both masks.
    And(Id, Id),
    /// Either mask.
    Or(Id, Id),
    /// Not the mask.
    Not(Id),
    /// The numbers along an axis made one.
    Fold(Fold, Axis, Id),
    /// How many positions an axis has.
    Count(Axis),
    /// The position along an axis.
    Index(Axis),
    /// The number, as a constant where derivatives are taken.
    Detached(Id),
}

impl Node {
    /// The constant, if it is one.
    pub fn constant(self) -> Option<f64> {
        match self {
            Self::Constant(bits) => Some(f64::from_bits(bits)),
            _ => None,
        }
    }

    /// The nodes that this one is computed from.
    pub fn operands(self) -> impl Iterator<Item = Id> {
        let operands = match self {
            Self::Input(_) | Self::Attribute(_) | Self::Constant(_) | Self::Count(_) | Self::Index(_) => {
                [None; 3]
            }
            Self::Unary(_, a) | Self::Not(a) | Self::Fold(_, _, a) | Self::Detached(a) => {
                [Some(a), None, None]
            }
            Self::Binary(_, a, b) | Self::Compare(_, a, b) | Self::And(a, b) | Self::Or(a, b) => {
                [Some(a), Some(b), None]
            }
            Self::Select(a, b, c) => [Some(a), Some(b), Some(c)],
        };
        operands.into_iter().flatten()
    }

    /// The axes that it lies on, given those of the inputs and of its operands.
    pub(crate) fn axes(self, of_input: impl Fn(u32) -> Axes, of_operand: impl Fn(Id) -> Axes) -> Axes {
        match self {
            Self::Input(position) => of_input(position),
            Self::Fold(_, axis, a) => of_operand(a).without(axis),
            Self::Index(axis) => Axes::of(axis),
            _ => self.operands().map(of_operand).fold(Axes::NONE, Axes::union),
        }
    }

    /// Whether it is a mask.
    pub fn is_mask(self) -> bool {
        matches!(self, Self::Compare(..) | Self::And(..) | Self::Or(..) | Self::Not(_))
    }

    /// The node with other operands.
    pub(crate) fn with_operands(self, new: impl Fn(Id) -> Id) -> Self {
        match self {
            Self::Input(_) | Self::Attribute(_) | Self::Constant(_) | Self::Count(_) | Self::Index(_) => self,
            Self::Unary(op, a) => Self::Unary(op, new(a)),
            Self::Binary(op, a, b) => Self::Binary(op, new(a), new(b)),
            Self::Select(a, b, c) => Self::Select(new(a), new(b), new(c)),
            Self::Compare(op, a, b) => Self::Compare(op, new(a), new(b)),
            Self::And(a, b) => Self::And(new(a), new(b)),
            Self::Or(a, b) => Self::Or(new(a), new(b)),
            Self::Not(a) => Self::Not(new(a)),
            Self::Fold(op, axis, a) => Self::Fold(op, axis, new(a)),
            Self::Detached(a) => Self::Detached(new(a)),
        }
    }
}

impl Binary {
    /// The function.
    pub fn apply<S: Scalar>(self, x: S, y: S) -> S {
        match self {
            Self::Add => x + y,
            Self::Sub => x - y,
            Self::Mul => x * y,
            Self::Div => x / y,
            Self::Pow => x.pow(y),
            Self::Min => x.min(y),
            Self::Max => x.max(y),
        }
    }
}

impl Compare {
    /// The comparison.
    pub fn apply<S: Scalar>(self, x: S, y: S) -> S::Mask {
        match self {
            Self::Lt => x.lt(y),
            Self::Le => x.le(y),
            Self::Eq => x.eq(y),
        }
    }
}
