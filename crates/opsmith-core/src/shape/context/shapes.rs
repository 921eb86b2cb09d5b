//! Checks, parts and combinations of shapes within a call.

use super::{InferenceContext, Must};
use crate::Result;
use crate::shape::{Dim, Shape};

impl InferenceContext<'_> {
    /// `shape`, of which it is certain afterwards that it has this rank. Errors when it has another.
    pub fn with_rank(&self, shape: Shape, rank: usize) -> Result<Shape> {
        match shape.rank() {
            None => Ok(Shape::unknown_of_rank(rank).of_input(shape.input())),
            Some(got) if got == rank => Ok(shape),
            Some(_) => Err(self.rank_error(&shape, &format!("rank {rank}"))),
        }
    }

    /// `shape`; errors when its rank is known and below `rank`.
    pub fn with_rank_at_least(&self, shape: Shape, rank: usize) -> Result<Shape> {
        match shape.rank() {
            Some(got) if got < rank => Err(self.rank_error(&shape, &format!("rank at least {rank}"))),
            _ => Ok(shape),
        }
    }

    /// `shape`; errors when its rank is known and above `rank`.
    pub fn with_rank_at_most(&self, shape: Shape, rank: usize) -> Result<Shape> {
        match shape.rank() {
            Some(got) if got > rank => Err(self.rank_error(&shape, &format!("rank at most {rank}"))),
            _ => Ok(shape),
        }
    }

    /// ``input `x` must have rank 1, got rank 2 (shape [2,3])``
    pub(in crate::shape) fn rank_error(&self, shape: &Shape, expected: &str) -> crate::Error {
        let got = shape.rank().map_or_else(|| "unknown rank".to_owned(), |rank| format!("rank {rank}"));
        let label = match shape.input() {
            Some(_) => self.label(shape),
            None => "a shape".to_owned(),
        };
        self.error_of_input(
            shape.input(),
            format_args!("{label} must have {expected}, got {got} (shape {shape})"),
        )
    }

    /// The dim at this position, counted from the end where negative; unknown where the rank is.
    ///
    /// Errors when the rank is known and there is no such position.
    pub fn dim(&self, shape: &Shape, position: i64) -> Result<Dim> {
        match shape.dims() {
            None => Ok(Dim::Unknown),
            Some(dims) => Ok(dims[self.position(shape, position, dims.len())?].clone()),
        }
    }

    fn position(&self, shape: &Shape, position: i64, rank: usize) -> Result<usize> {
        let from_start = if position < 0 { position.saturating_add_unsigned(rank as u64) } else { position };
        usize::try_from(from_start).ok().filter(|&index| index < rank).ok_or_else(|| {
            let label = self.label(shape);
            let text = format!("{label} of rank {rank} has no dim {position} (shape {shape})");
            self.error_of_input(shape.input(), text)
        })
    }

    /// What two shapes that must be equal both are: the rank and each dim of which more is known.
    ///
    /// Errors when they differ; records the equality of dims that depend on symbols.
    pub fn merge_shapes(&mut self, left: &Shape, right: &Shape) -> Result<Shape> {
        match (left.rank(), right.rank()) {
            (None, _) => return Ok(right.clone()),
            (_, None) => return Ok(left.clone()),
            (Some(a), Some(b)) if a != b => {
                let (l, r) = (self.label(left), self.label(right));
                let text = format!("{r} must have the rank of {l}: {b} ≠ {a} (shapes {right} and {left})");
                return Err(self.error_of_input(right.input(), text));
            }
            _ => {}
        }
        let merged = self.merge_prefix(left, right)?.0;
        Ok(merged.of_input(left.input()))
    }

    /// Two shapes of which the second must be how the first begins: the first with what the second adds to it, and
    /// the second with what the first adds to it.
    ///
    /// Errors when the first is shorter or begins otherwise; records the equality of dims that depend on symbols.
    pub fn merge_prefix(&mut self, shape: &Shape, prefix: &Shape) -> Result<(Shape, Shape)> {
        let (Some(dims), Some(first)) = (shape.dims(), prefix.dims()) else {
            return Ok((shape.clone(), prefix.clone()));
        };
        if dims.len() < first.len() {
            return Err(self.rank_error(shape, &format!("rank at least {}", first.len())));
        }
        let mut merged = dims.to_vec();
        for (i, (own, other)) in dims.iter().zip(first).enumerate() {
            merged[i] = self.merge_as(own, other, |c| {
                let text = format!("dim {i} of {} must equal dim {i} of {}", c.label(prefix), c.label(shape));
                Must::of_input(prefix.input(), text)
            })?;
        }
        let prefix = Shape::from(merged[..first.len()].to_vec());
        Ok((Shape::from(merged), prefix))
    }

    /// The dims from `start` up to and without `end`, as a slice in Python takes them: counted from the end where
    /// negative, cut off at the rank. Without an end, `c.subshape(&x, 1, None)`, up to the last. Unknown where the
    /// rank is.
    ///
    /// Errors when a position lies before the first dim or the range ends before it starts.
    pub fn subshape(&self, shape: &Shape, start: i64, end: impl Into<Option<i64>>) -> Result<Shape> {
        let Some(dims) = shape.dims() else { return Ok(Shape::unknown()) };
        let index = |position: i64| {
            let rank = dims.len() as u64;
            let from_start = if position < 0 { position.saturating_add_unsigned(rank) } else { position };
            usize::try_from(from_start).map(|index| index.min(dims.len())).map_err(|_| {
                let label = self.label(shape);
                let text = format!("{label} of rank {rank} has no dim {position} (shape {shape})");
                self.error_of_input(shape.input(), text)
            })
        };
        let (from, to) = (index(start)?, index(end.into().unwrap_or(i64::MAX))?);
        match dims.get(from..to) {
            Some(part) => Ok(part.iter().collect()),
            None => Err(self.error(format!(
                "the part of {} from dim {start} ends before it starts, at dim {to} (shape {shape})",
                self.label(shape)
            ))),
        }
    }

    /// The dims of the first, then those of the second; unknown where one of them is of unknown rank.
    pub fn concatenate(&self, first: &Shape, second: &Shape) -> Shape {
        match (first.dims(), second.dims()) {
            (Some(first), Some(second)) => first.iter().chain(second).collect(),
            _ => Shape::unknown(),
        }
    }

    /// The shape with another dim at this position, counted from the end where negative; unknown where the rank is.
    ///
    /// Errors when the rank is known and there is no such position.
    pub fn replace_dim(&self, shape: &Shape, position: i64, dim: impl Into<Dim>) -> Result<Shape> {
        let Some(dims) = shape.dims() else { return Ok(Shape::unknown()) };
        let mut dims = dims.to_vec();
        let index = self.position(shape, position, dims.len())?;
        dims[index] = dim.into();
        Ok(Shape::from(dims))
    }

    /// The shape with one more dim, which is at this position of the result, counted from its end where negative: -1 puts
    /// it behind all others. Unknown where the rank is.
    ///
    /// Errors when the rank is known and the result has no such position.
    pub fn insert_dim(&self, shape: &Shape, position: i64, dim: impl Into<Dim>) -> Result<Shape> {
        let Some(dims) = shape.dims() else { return Ok(Shape::unknown()) };
        let mut dims = dims.to_vec();
        let index = self.position(shape, position, dims.len() + 1)?;
        dims.insert(index, dim.into());
        Ok(Shape::from(dims))
    }

    /// The shape without the dim at this position, counted from the end where negative; unknown where the rank is.
    ///
    /// Errors when the rank is known and there is no such position.
    pub fn remove_dim(&self, shape: &Shape, position: i64) -> Result<Shape> {
        let Some(dims) = shape.dims() else { return Ok(Shape::unknown()) };
        let mut dims = dims.to_vec();
        dims.remove(self.position(shape, position, dims.len())?);
        Ok(Shape::from(dims))
    }

    /// The shape without the dims from `start` up to and without `end`, which are those of [`subshape`](Self::subshape), and
    /// have its errors.
    pub fn remove_dims(&self, shape: &Shape, start: i64, end: impl Into<Option<i64>>) -> Result<Shape> {
        let (Some(dims), Some(removed)) = (shape.dims(), self.subshape(shape, start, end)?.rank()) else {
            return Ok(Shape::unknown());
        };
        let before = self.subshape(shape, 0, start)?;
        let behind = dims[before.rank().unwrap_or(0) + removed..].iter().collect();
        Ok(self.concatenate(&before, &behind))
    }

    /// The shape that two shapes broadcast to by NumPy's rules: aligned at the end, dims equal or one of them 1.
    ///
    /// A symbolic dim is taken not to be 1, as frameworks pass a dim that is 1 as known: two different ones are recorded as
    /// equal. A dim is unknown where it depends on whether an unknown dim is 1. Errors when the shapes do not
    /// broadcast.
    pub fn broadcast(&mut self, left: &Shape, right: &Shape) -> Result<Shape> {
        let (Some(a), Some(b)) = (left.dims(), right.dims()) else { return Ok(Shape::unknown()) };
        let rank = a.len().max(b.len());
        let mut dims = Vec::with_capacity(rank);
        for i in 0..rank {
            let (in_a, in_b) = ((i + a.len()).checked_sub(rank), (i + b.len()).checked_sub(rank));
            dims.push(match (in_a, in_b) {
                (Some(i), Some(j)) => {
                    let dims = (&a[i], &b[j]);
                    self.broadcast_dim(dims, |c| {
                        let (l, r) = (c.label(left), c.label(right));
                        // What is no input has its shape for a name.
                        let shown = |shape: &Shape| match shape.input() {
                            Some(_) => format!("{} of shape {shape}", c.label(shape)),
                            None => c.label(shape).to_string(),
                        };
                        let text = format!(
                            "{} and {} do not broadcast: dim {j} of {r} must equal dim {i} of {l}, or one of them be 1",
                            shown(left),
                            shown(right)
                        );
                        Must::of_input(right.input(), text)
                    })?
                }
                (Some(i), None) => a[i].clone(),
                (None, in_b) => b[in_b.unwrap_or_default()].clone(),
            });
        }
        Ok(Shape::from(dims))
    }

    fn broadcast_dim(&mut self, dims: (&Dim, &Dim), must: impl FnOnce(&Self) -> Must) -> Result<Dim> {
        match dims {
            (one, dim) | (dim, one) if one.is(1) => Ok(dim.clone()),
            (Dim::Unknown, Dim::Unknown) => Ok(Dim::Unknown),
            (a, b) => self.merge_as(a, b, must),
        }
    }

    /// The shape of rank 0.
    pub fn scalar(&self) -> Shape {
        Shape::scalar()
    }

    /// The shape of rank 1 with this dim.
    pub fn vector(&self, dim: impl Into<Dim>) -> Shape {
        Shape::from(vec![dim.into()])
    }

    /// The shape of rank 2 with these dims.
    pub fn matrix(&self, rows: impl Into<Dim>, columns: impl Into<Dim>) -> Shape {
        Shape::from(vec![rows.into(), columns.into()])
    }

    /// The shape with these dims.
    pub fn make_shape<D: Into<Dim>>(&self, dims: impl IntoIterator<Item = D>) -> Shape {
        dims.into_iter().collect()
    }

    /// The shape of which nothing is known.
    pub fn unknown_shape(&self) -> Shape {
        Shape::unknown()
    }

    /// The shape of which only the rank is known.
    pub fn unknown_shape_of_rank(&self, rank: usize) -> Shape {
        Shape::unknown_of_rank(rank)
    }
}
