//! What shape inference took for granted about symbolic dims.

use std::fmt::Display;

use super::Dim;

/// How the two sides of a [`Constraint`] relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Relation {
    /// `left == right`
    Equal,
    /// `left >= right`
    AtLeast,
}

/// A relation between dims that inference assumed and could not prove, for the caller to check or to guard on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraint {
    /// How the sides relate.
    pub relation: Relation,
    /// The dim that came.
    pub left: Dim,
    /// What it has to equal or reach.
    pub right: Dim,
    /// What must hold, without the op: ``dim 0 of input `y` must equal dim 0 of input `x` ``.
    pub message: String,
}

impl Constraint {
    /// The error text for sides that do not relate as they should: the message, then `: 4 ≠ 3` or `: 2 < 3`.
    pub fn failure(&self, left: impl Display, right: impl Display) -> String {
        let sign = match self.relation {
            Relation::Equal => '≠',
            Relation::AtLeast => '<',
        };
        format!("{}: {left} {sign} {right}", self.message)
    }
}
