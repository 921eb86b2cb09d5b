//! Whether a value is one that an attribute may have.

use std::fmt::{self, Display};
use std::sync::Arc;

use super::model::{Allowed, AttrDef};
use super::text::{Quoted, counted, joined};
use crate::Error;
use crate::attr::{AttrBase, AttrType, AttrValue, MAX_LIST, MAX_TEXT};

/// A constraint that a value breaks: what the value must be, and what it is.
pub(super) struct Violation {
    pub(super) must: String,
    pub(super) got: String,
}

impl Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, got {}", self.must, self.got)
    }
}

/// Fails with a [`Violation`] if there is a value that is bad.
pub(super) fn refuse(bad: Option<impl Display>, must: impl FnOnce() -> String) -> Result<(), Violation> {
    bad.map_or(Ok(()), |bad| Err(Violation { must: must(), got: bad.to_string() }))
}

impl AttrDef {
    /// The value with the attribute's own type: an int serves for a float, and an empty list for any list.
    ///
    /// # Errors
    /// What is wrong, to follow the attribute's name: "is an int, got a string".
    pub(super) fn coerce(&self, value: AttrValue) -> Result<AttrValue, String> {
        let found = value.attr_type();
        if found == self.ty {
            return Ok(value);
        }
        match (self.ty, value) {
            (AttrType { base: AttrBase::Float, list: false }, AttrValue::Int(n)) => {
                Ok(AttrValue::Float(n as f64))
            }
            (AttrType { base: AttrBase::Float, list: true }, AttrValue::Ints(ints)) => {
                Ok(AttrValue::Floats(ints.into_iter().map(|n| n as f64).collect()))
            }
            (AttrType { base, list: true }, value) if value.length() == Some(0) => Ok(base.list([])),
            _ => Err(format!("is {}, got {}", a(self.ty), a(found))),
        }
    }

    /// Checks a value of the attribute's type against its constraints.
    ///
    /// # Errors
    /// `InvalidArgument` that names the attribute, says what it must be and what came.
    pub fn check_value(&self, value: &AttrValue) -> Result<(), Error> {
        let wrong = |wrong: Violation| Error::invalid_argument(format!("attribute `{}` {wrong}", self.name));
        self.check(value).map_err(wrong)
    }

    /// As [`check_value`](Self::check_value), for callers that name the attribute.
    ///
    /// # Errors
    /// What is wrong, to follow the attribute's name: "must be at least 1, got 0".
    pub(super) fn check(&self, value: &AttrValue) -> Result<(), Violation> {
        let length_of_list = value.length().filter(|length| *length > MAX_LIST);
        refuse(length_of_list, || format!("must have at most {}", counted(MAX_LIST, "element")))?;
        let texts = match value {
            AttrValue::String(text) => std::slice::from_ref(text),
            AttrValue::Strings(texts) => texts,
            _ => &[],
        };
        let length_of_text = texts.iter().map(|text| text.len()).find(|length| *length > MAX_TEXT);
        refuse(length_of_text, || format!("must have at most {}", counted(MAX_TEXT, "byte")))?;
        if let (Some(min), Some(length)) = (self.min_len, value.length()) {
            let must = || format!("must have at least {}", counted(min, "element"));
            refuse((length < min).then_some(length), must)?;
        }
        self.check_bounds(value)?;
        self.check_allowed(value)
    }

    fn check_allowed(&self, value: &AttrValue) -> Result<(), Violation> {
        let Some(allowed) = &self.allowed else { return Ok(()) };
        let must = || self.must_be_among(allowed);
        match (allowed, value) {
            (Allowed::Types(allowed), AttrValue::Type(one)) => refuse(stranger(allowed, [one]), must),
            (Allowed::Types(allowed), AttrValue::Types(list)) => refuse(stranger(allowed, list), must),
            (Allowed::Ints(allowed), AttrValue::Int(one)) => refuse(stranger(allowed, [one]), must),
            (Allowed::Ints(allowed), AttrValue::Ints(list)) => refuse(stranger(allowed, list), must),
            (Allowed::Strings(allowed), AttrValue::String(one)) => {
                refuse(strange_text(allowed, std::slice::from_ref(one)), must)
            }
            (Allowed::Strings(allowed), AttrValue::Strings(list)) => {
                refuse(strange_text(allowed, list), must)
            }
            _ => Ok(()),
        }
    }

    /// `must be one of float32, float64`; for a list, what its elements must be.
    fn must_be_among(&self, allowed: &Allowed) -> String {
        let members = match allowed {
            Allowed::Types(types) => joined(types),
            Allowed::Ints(ints) => joined(ints),
            Allowed::Strings(texts) => joined(texts.iter().map(|text| Quoted(text.as_bytes()))),
        };
        if self.ty.list {
            format!("must have elements among {members}")
        } else {
            format!("must be one of {members}")
        }
    }
}

/// The first value that is not allowed.
fn stranger<'a, T: PartialEq>(allowed: &[T], values: impl IntoIterator<Item = &'a T>) -> Option<&'a T> {
    values.into_iter().find(|value| !allowed.contains(value))
}

/// The first text that is not allowed, in quotes.
fn strange_text<'a>(allowed: &[String], texts: &'a [Arc<str>]) -> Option<Quoted<'a>> {
    let bad = texts.iter().find(|text| !allowed.iter().any(|one| **one == ***text));
    bad.map(|text| Quoted(text.as_bytes()))
}

/// The type with its article: "an int", "a list(int)".
pub(super) fn a(ty: AttrType) -> String {
    let article = if ty.base == AttrBase::Int && !ty.list { "an" } else { "a" };
    format!("{article} {ty}")
}
