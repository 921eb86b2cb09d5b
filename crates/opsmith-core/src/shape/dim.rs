//! One dim of a shape: its size known, unknown, or an expression over named symbols.

use std::fmt;

use serde_json::{Value, json};

use super::Expr;
use super::parse::{Cursor, SignatureError};
use crate::{Error, Result};

/// The size of one dim.
///
/// `==` compares what is written: `Unknown == Unknown` holds, and says nothing about the sizes at run time.
///
/// ```
/// use opsmith_core::shape::Dim;
///
/// let (n, m) = (Dim::symbol("n"), Dim::symbol("m"));
/// let sum = n.plus(&m)?;
/// assert_eq!(sum, m.plus(&n)?);
/// assert_eq!(sum.minus(&m)?, n);
/// assert_eq!(n.plus(&1.into())?.to_string(), "n + 1");
/// # Ok::<(), opsmith_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A size that is known.
    Known(u64),
    /// A size of which nothing is known.
    Unknown,
    /// A size that depends on symbols; never a constant, see [`Dim::from_expr`].
    Expr(Expr),
}

impl Dim {
    /// The dim whose size is the symbol of this name.
    pub fn symbol(name: &str) -> Dim {
        Dim::Expr(Expr::symbol(name))
    }

    /// The dim whose size this expression gives. Errors when that is a negative constant.
    pub fn from_expr(expr: Expr) -> Result<Dim> {
        match expr.as_constant() {
            Some(value) => u64::try_from(value).map(Dim::Known).map_err(|_| {
                Error::invalid_argument(format!("the size of a dim cannot be negative, got {value}"))
            }),
            None => Ok(Dim::Expr(expr)),
        }
    }

    /// The size as an expression; `None` for an unknown one. Errors when a known size exceeds `i64::MAX`.
    pub fn to_expr(&self) -> Result<Option<Expr>> {
        match self {
            Dim::Known(size) => i64::try_from(*size).map(|size| Some(Expr::constant(size))).map_err(|_| {
                Error::invalid_argument(format!("the size of a dim, {size}, overflows 64 bits"))
            }),
            Dim::Unknown => Ok(None),
            Dim::Expr(expr) => Ok(Some(expr.clone())),
        }
    }

    /// The size, where it is known.
    pub fn value(&self) -> Option<u64> {
        match self {
            Dim::Known(size) => Some(*size),
            _ => None,
        }
    }

    /// Whether this is the known size `size`.
    pub fn is(&self, size: u64) -> bool {
        self.value() == Some(size)
    }

    fn combine(&self, other: &Dim, f: impl FnOnce(&Expr, &Expr) -> Result<Expr>) -> Result<Dim> {
        match (self.to_expr()?, other.to_expr()?) {
            (Some(a), Some(b)) => Dim::from_expr(f(&a, &b)?),
            _ => Ok(Dim::Unknown),
        }
    }

    /// `self + other`. Errors on overflow.
    pub fn plus(&self, other: &Dim) -> Result<Dim> {
        match (self, other) {
            (dim, zero) | (zero, dim) if zero.is(0) => Ok(dim.clone()),
            _ => self.combine(other, Expr::plus),
        }
    }

    /// `self - other`. Errors when that is known to be negative.
    pub fn minus(&self, other: &Dim) -> Result<Dim> {
        if other.is(0) { Ok(self.clone()) } else { self.combine(other, Expr::minus) }
    }

    /// `self * other`; 0 where one is 0, whatever the other. Errors on overflow.
    pub fn times(&self, other: &Dim) -> Result<Dim> {
        match (self, other) {
            (_, zero) | (zero, _) if zero.is(0) => Ok(Dim::Known(0)),
            (dim, one) | (one, dim) if one.is(1) => Ok(dim.clone()),
            _ => self.combine(other, Expr::times),
        }
    }

    /// `self // divisor`, rounded down. Errors when the divisor is known to be 0.
    pub fn floor_div(&self, divisor: &Dim) -> Result<Dim> {
        if divisor.is(1) { Ok(self.clone()) } else { self.combine(divisor, Expr::floor_div) }
    }

    /// The smaller of the two; 0 where one is 0, whatever the other.
    pub fn minimum(&self, other: &Dim) -> Result<Dim> {
        if self.is(0) || other.is(0) {
            return Ok(Dim::Known(0));
        }
        self.combine(other, |a, b| Ok(a.minimum(b)))
    }

    /// The larger of the two.
    pub fn maximum(&self, other: &Dim) -> Result<Dim> {
        match (self, other) {
            (dim, zero) | (zero, dim) if zero.is(0) => Ok(dim.clone()),
            _ => self.combine(other, |a, b| Ok(a.maximum(b))),
        }
    }

    /// The dim with each symbol replaced by what `lookup` gives for its name; symbols without one stay.
    ///
    /// Errors on overflow, on division by zero and when the size becomes negative.
    pub fn substitute(&self, lookup: &dyn Fn(&str) -> Option<u64>) -> Result<Dim> {
        let Dim::Expr(expr) = self else { return Ok(self.clone()) };
        let value = |name: &str| lookup(name).and_then(|size| i64::try_from(size).ok()).map(Expr::constant);
        Dim::from_expr(expr.substitute(&value)?)
    }

    /// The dim as JSON, for programs in other languages to evaluate on their own symbolic integers.
    ///
    /// | dim | JSON |
    /// |---|---|
    /// | known | a number: `3` |
    /// | unknown | `null` |
    /// | symbol | its name: `"s0"` |
    /// | sum, product | `["+", a, b, …]`, `["*", a, b, …]`, two operands or more |
    /// | difference, quotient rounded down | `["-", a, b]`, `["//", a, b]` |
    /// | minimum, maximum | `["min", a, b, …]`, `["max", a, b, …]`, two operands or more |
    pub fn to_json(&self) -> Value {
        match self {
            Dim::Known(size) => json!(size),
            Dim::Unknown => Value::Null,
            Dim::Expr(expr) => expr.to_json(),
        }
    }

    /// Reads what [`to_json`](Self::to_json) writes. Errors name the part that is not of that form.
    pub fn from_json(value: &Value) -> Result<Dim> {
        if value.is_null() { Ok(Dim::Unknown) } else { Dim::from_expr(Expr::from_json(value)?) }
    }

    /// Reads `3`, `?`, `n`, `n + 1`, `(n - 1) // 2`, `max(n, m)`. Errors point at the place.
    pub fn parse(text: &str) -> Result<Dim> {
        Dim::parse_with(text, &|name| Dim::symbol(name))
    }

    /// As [`parse`](Self::parse), where a name stands for what `lookup` gives.
    pub(crate) fn parse_with(text: &str, lookup: &dyn Fn(&str) -> Dim) -> Result<Dim> {
        let mut cursor = Cursor::new(text);
        let dim = Dim::parse_at(&mut cursor, lookup).and_then(|dim| match cursor.is_at_end() {
            true => Ok(dim),
            false => Err(cursor.unexpected("the end")),
        });
        dim.map_err(|error| error.into_error(text))
    }

    pub(super) fn parse_at(
        cursor: &mut Cursor<'_>,
        lookup: &dyn Fn(&str) -> Dim,
    ) -> std::result::Result<Dim, SignatureError> {
        let start = cursor.offset();
        if cursor.eat("?") {
            return Ok(Dim::Unknown);
        }
        let ast = cursor.expr()?;
        let len = cursor.offset() - start;
        let dim = ast
            .to_expr(&|name| lookup(&name.text).to_expr().ok().flatten())
            .and_then(|expr| expr.map_or(Ok(Dim::Unknown), Dim::from_expr));
        dim.map_err(|error| SignatureError::new(start, len, error.message()))
    }
}

impl From<u64> for Dim {
    fn from(size: u64) -> Dim {
        Dim::Known(size)
    }
}

impl From<&Dim> for Dim {
    fn from(dim: &Dim) -> Dim {
        dim.clone()
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Known(size) => write!(f, "{size}"),
            Dim::Unknown => f.write_str("?"),
            Dim::Expr(expr) => write!(f, "{expr}"),
        }
    }
}
