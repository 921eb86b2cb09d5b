//! Shapes whose rank and dims may be unknown or symbolic.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde_json::Value;

use super::Dim;
use super::parse::{Cursor, SignatureError};
use crate::attr::PartialShape;
use crate::{Error, Result};

/// The shape of a tensor: of unknown rank, or a list of [`Dim`]s.
///
/// ```
/// use opsmith_core::shape::{Dim, Shape};
///
/// let shape = Shape::parse("[n,3]")?;
/// assert_eq!(shape.rank(), Some(2));
/// assert_eq!(shape.dims().unwrap()[1], Dim::Known(3));
/// assert_eq!(shape.to_string(), "[n,3]");
/// # Ok::<(), opsmith_core::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Shape {
    dims: Option<Vec<Dim>>,
    /// The input of which this is the shape, for messages; no part of what `==` compares.
    input: Option<usize>,
}

impl PartialEq for Shape {
    fn eq(&self, other: &Shape) -> bool {
        self.dims == other.dims
    }
}

impl Eq for Shape {}

impl Hash for Shape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.dims.hash(state);
    }
}

impl Shape {
    /// The shape of which nothing is known.
    pub fn unknown() -> Shape {
        Shape::default()
    }

    /// The shape of which only the rank is known.
    pub fn unknown_of_rank(rank: usize) -> Shape {
        Shape::from(vec![Dim::Unknown; rank])
    }

    /// The shape of a scalar: rank 0.
    pub fn scalar() -> Shape {
        Shape::from(vec![])
    }

    /// The shape of these sizes.
    pub fn known(sizes: &[usize]) -> Shape {
        sizes.iter().map(|&size| Dim::Known(size as u64)).collect()
    }

    /// The same shape, said to be that of input `input`.
    pub(super) fn of_input(self, input: Option<usize>) -> Shape {
        Shape { input, ..self }
    }

    /// The input of which this is the shape, where it is one's.
    pub(super) fn input(&self) -> Option<usize> {
        self.input
    }

    /// The number of dims, where it is known.
    pub fn rank(&self) -> Option<usize> {
        self.dims.as_ref().map(Vec::len)
    }

    /// The dims, where the rank is known.
    pub fn dims(&self) -> Option<&[Dim]> {
        self.dims.as_deref()
    }

    /// The sizes, where every one is known and fits.
    pub fn to_known(&self) -> Option<Vec<usize>> {
        self.dims()?.iter().map(|dim| usize::try_from(dim.value()?).ok()).collect()
    }

    /// The number of elements. Errors on overflow.
    pub fn num_elements(&self) -> Result<Dim> {
        match self.dims() {
            Some(dims) => dims.iter().try_fold(Dim::Known(1), |product, dim| product.times(dim)),
            None => Ok(Dim::Unknown),
        }
    }

    /// The shape with each symbol replaced, as [`Dim::substitute`] does.
    pub fn substitute(&self, lookup: &dyn Fn(&str) -> Option<u64>) -> Result<Shape> {
        match self.dims() {
            Some(dims) => dims.iter().map(|dim| dim.substitute(lookup)).collect(),
            None => Ok(Shape::unknown()),
        }
    }

    /// The shape as an attribute holds it; symbolic dims become unknown ones.
    pub fn to_partial(&self) -> PartialShape {
        self.dims().map(|dims| dims.iter().map(Dim::value).collect())
    }

    /// The shape as JSON: `null` for an unknown rank, else an array of [`Dim::to_json`].
    pub fn to_json(&self) -> Value {
        self.dims().map_or(Value::Null, |dims| dims.iter().map(Dim::to_json).collect())
    }

    /// Reads what [`to_json`](Self::to_json) writes. Errors name the part that is not of that form.
    pub fn from_json(value: &Value) -> Result<Shape> {
        match value {
            Value::Null => Ok(Shape::unknown()),
            Value::Array(dims) => dims.iter().map(Dim::from_json).collect(),
            _ => Err(Error::invalid_argument(format!("`{value}` is not a shape"))),
        }
    }

    /// Reads `?` (rank unknown), `[]`, `[?,3]`, `[n,n + 1]`. Errors point at the place.
    pub fn parse(text: &str) -> Result<Shape> {
        Shape::parse_all(text).map_err(|error| error.into_error(text))
    }

    fn parse_all(text: &str) -> std::result::Result<Shape, SignatureError> {
        let mut cursor = Cursor::new(text);
        if cursor.eat("?") {
            return if cursor.is_at_end() { Ok(Shape::unknown()) } else { Err(cursor.unexpected("the end")) };
        }
        if !cursor.eat("[") {
            return Err(cursor.unexpected("`?` or `[`"));
        }
        let mut dims = vec![];
        while !cursor.peek("]") {
            if !dims.is_empty() {
                cursor.expect(",")?;
            }
            dims.push(Dim::parse_at(&mut cursor, &|name| Dim::symbol(name))?);
        }
        cursor.expect("]")?;
        if cursor.is_at_end() { Ok(Shape::from(dims)) } else { Err(cursor.unexpected("the end")) }
    }
}

impl From<Vec<Dim>> for Shape {
    fn from(dims: Vec<Dim>) -> Shape {
        Shape { dims: Some(dims), input: None }
    }
}

impl<D: Into<Dim>> FromIterator<D> for Shape {
    fn from_iter<I: IntoIterator<Item = D>>(dims: I) -> Shape {
        Shape::from(dims.into_iter().map(Into::into).collect::<Vec<_>>())
    }
}

impl From<&PartialShape> for Shape {
    fn from(shape: &PartialShape) -> Shape {
        match shape {
            Some(dims) => dims.iter().map(|dim| dim.map_or(Dim::Unknown, Dim::Known)).collect(),
            None => Shape::unknown(),
        }
    }
}

impl std::str::FromStr for Shape {
    type Err = Error;

    fn from_str(text: &str) -> Result<Shape> {
        Shape::parse(text)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(dims) = self.dims() else { return f.write_str("?") };
        let dims: Vec<String> = dims.iter().map(Dim::to_string).collect();
        write!(f, "[{}]", dims.join(","))
    }
}
