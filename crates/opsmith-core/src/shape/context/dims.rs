//! Arithmetic and comparison of dims within a call.

use super::{InferenceContext, Must};
use crate::Result;
use crate::shape::{Dim, Relation};

impl InferenceContext<'_> {
    fn named(&self, result: Result<Dim>) -> Result<Dim> {
        result.map_err(|error| {
            error.with_text(|text| format!("{text}, {}", self.with_inputs())).with_op(&self.signature.name)
        })
    }

    /// What two dims that must be equal both are: the one of which more is known, else the first.
    ///
    /// Errors when they differ; records the equality when it depends on symbols.
    pub fn merge(&mut self, left: &Dim, right: &Dim) -> Result<Dim> {
        self.merge_as(left, right, |c| format!("dims must be equal, {}", c.with_inputs()).into())
    }

    /// As [`merge`](Self::merge), where `right` is the one at fault when they differ, and `must` says what must hold.
    pub(in crate::shape) fn merge_as(
        &mut self,
        left: &Dim,
        right: &Dim,
        must: impl FnOnce(&Self) -> Must,
    ) -> Result<Dim> {
        self.assume(Relation::Equal, right, left, must)?;
        Ok(match (left, right) {
            (Dim::Unknown, other) | (_, other @ Dim::Known(_)) => other.clone(),
            (one, _) => one.clone(),
        })
    }

    /// `dim`, of which it is certain afterwards that it is `value`.
    ///
    /// Errors when it is another; records the equality when it depends on symbols.
    pub fn with_value(&mut self, dim: &Dim, value: u64) -> Result<Dim> {
        self.merge_as(&Dim::Known(value), dim, |c| {
            format!("a dim must be {value}, {}", c.with_inputs()).into()
        })
    }

    /// `left + right`, which may be constants. Errors on overflow.
    pub fn add(&self, left: &Dim, right: impl Into<Dim>) -> Result<Dim> {
        self.named(left.plus(&right.into()))
    }

    /// `left - right`, which may be constants.
    ///
    /// Errors when the difference is negative; records that it is not when that depends on symbols.
    pub fn subtract(&mut self, left: &Dim, right: impl Into<Dim>) -> Result<Dim> {
        let right = right.into();
        self.assume(Relation::AtLeast, left, &right, |c| {
            format!("a dim cannot be made negative, {}", c.with_inputs()).into()
        })?;
        self.named(left.minus(&right))
    }

    /// `left * right`, which may be constants; 0 where one is 0. Errors on overflow.
    pub fn multiply(&self, left: &Dim, right: impl Into<Dim>) -> Result<Dim> {
        self.named(left.times(&right.into()))
    }

    /// `left // right`, rounded down, or with `evenly` without remainder.
    ///
    /// Errors when the divisor is 0, and with `evenly` when there is a remainder; records that there is none when
    /// that depends on symbols.
    pub fn divide(&mut self, left: &Dim, right: impl Into<Dim>, evenly: bool) -> Result<Dim> {
        let right = right.into();
        self.assume(Relation::AtLeast, &right, &Dim::Known(1), |c| {
            format!("the divisor of a dim must be positive, {}", c.with_inputs()).into()
        })?;
        let quotient = self.named(left.floor_div(&right))?;
        if evenly {
            let whole = self.multiply(&quotient, &right)?;
            self.assume(Relation::Equal, left, &whole, |c| {
                format!("a dim must be a multiple of {right}, {}", c.with_inputs()).into()
            })?;
        }
        Ok(quotient)
    }

    /// The smaller of the two, which may be constants; 0 where one is 0.
    pub fn min(&self, left: &Dim, right: impl Into<Dim>) -> Result<Dim> {
        self.named(left.minimum(&right.into()))
    }

    /// The larger of the two, which may be constants.
    pub fn max(&self, left: &Dim, right: impl Into<Dim>) -> Result<Dim> {
        self.named(left.maximum(&right.into()))
    }
}
