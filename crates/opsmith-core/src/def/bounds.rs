//! The bounds of numbers: whether a value lies within, what lies within, and which bounds are wider.

use std::cmp::Ordering;
use std::ops::Bound::{self, Excluded, Included, Unbounded};

use super::check::{Violation, refuse};
use super::model::AttrDef;
use crate::attr::AttrValue;

/// Numbers of one type in their order; `None` for NaN, and for what is not a number.
fn order(left: &AttrValue, right: &AttrValue) -> Option<Ordering> {
    match (left, right) {
        (AttrValue::Int(left), AttrValue::Int(right)) => Some(left.cmp(right)),
        (AttrValue::Float(left), AttrValue::Float(right)) => left.partial_cmp(right),
        _ => None,
    }
}

/// Whether the value is on the side of the bound that is `inwards`: `Greater` than a lower one.
fn is_within(bound: &Bound<AttrValue>, inwards: Ordering, value: &AttrValue) -> bool {
    match bound {
        Unbounded => true,
        Included(end) => order(value, end).is_some_and(|found| found == inwards || found.is_eq()),
        Excluded(end) => order(value, end) == Some(inwards),
    }
}

/// Whether the bound leaves out nothing that `other` lets in.
fn is_as_wide(bound: &Bound<AttrValue>, inwards: Ordering, other: &Bound<AttrValue>) -> bool {
    match (bound, other) {
        (Unbounded, _) => true,
        (Excluded(end), Excluded(other)) => is_within(&Included(end.clone()), inwards, other),
        (_, Included(other) | Excluded(other)) => is_within(bound, inwards, other),
        (_, Unbounded) => false,
    }
}

impl AttrDef {
    /// NaN is within no bounds.
    pub(super) fn check_bounds(&self, value: &AttrValue) -> Result<(), Violation> {
        let sides = [
            (&self.min, Ordering::Greater, "at least", "above"),
            (&self.max, Ordering::Less, "at most", "below"),
        ];
        for (bound, inwards, included, excluded) in sides {
            let (word, end) = match bound {
                Included(end) => (included, end),
                Excluded(end) => (excluded, end),
                Unbounded => continue,
            };
            let outside = !is_within(bound, inwards, value);
            refuse(outside.then_some(value), || format!("must be {word} {end}"))?;
        }
        Ok(())
    }

    /// Whether every number within the bounds of `other`, of the same type, is within these.
    pub fn bounds_include(&self, other: &AttrDef) -> bool {
        is_as_wide(&self.min, Ordering::Greater, &other.min)
            && is_as_wide(&self.max, Ordering::Less, &other.max)
    }

    /// Whether no number is within the bounds.
    pub(super) fn bounds_are_empty(&self) -> bool {
        match (&self.min, &self.max) {
            (Included(min) | Excluded(min), Included(max) | Excluded(max)) => match order(min, max) {
                Some(Ordering::Less) => false,
                Some(Ordering::Equal) => !matches!((&self.min, &self.max), (Included(_), Included(_))),
                _ => true,
            },
            _ => false,
        }
    }

    /// Floats within the bounds: a few at equal distances, with the ends that belong to them; for bounds that no two numbers
    /// lie between, the numbers next to the ends. None only where there are none.
    pub fn floats_within(&self) -> Vec<f64> {
        let end = |bound: &Bound<AttrValue>| match bound {
            Included(AttrValue::Float(end)) | Excluded(AttrValue::Float(end)) => Some(*end),
            _ => None,
        };
        let (min, max) = (end(&self.min), end(&self.max));
        let finite = |end: Option<f64>| end.filter(|end| end.is_finite());
        let from = finite(min).unwrap_or_else(|| match finite(max) {
            Some(max) if max <= 0.25 => max - 2.0,
            _ => 0.25,
        });
        let to = finite(max).unwrap_or(f64::INFINITY).min(from + 2.0);
        let spread = (0..=8u8).map(|step| from + (to - from) * f64::from(step) / 8.0);
        let ends = [min, max].into_iter().flatten();
        let beside = ends.flat_map(|end| [end, end.next_up(), end.next_down()]);
        let is_within = |x: &f64| self.check_bounds(&AttrValue::Float(*x)).is_ok();
        let within: Vec<f64> = spread.filter(is_within).collect();
        if within.is_empty() { beside.filter(is_within).collect() } else { within }
    }
}
