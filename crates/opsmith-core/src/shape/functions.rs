//! Ready-made shape functions, known to authors as `shape_fns`.
//!
//! Those without a parameter are shape functions themselves; those with one return a shape function. Each sets every
//! output that the op has, unless it says otherwise.

use super::context::Must;
use super::{Dim, InferenceContext, Shape};
use crate::{Result, ensure};

fn set_all(c: &mut InferenceContext<'_>, shape: &Shape) -> Result<()> {
    (0..c.num_outputs()).try_for_each(|i| c.set_output(i, shape.clone()))
}

/// Nothing to set: for ops without outputs. Errors when the op has one.
pub fn no_outputs(c: &mut InferenceContext<'_>) -> Result<()> {
    let outputs = c.num_outputs();
    ensure!(outputs == 0, Internal, "has {outputs} outputs, but its shape function gives none");
    Ok(())
}

/// Nothing is known of the outputs: their shapes depend on data.
pub fn unknown(c: &mut InferenceContext<'_>) -> Result<()> {
    set_all(c, &Shape::unknown())
}

/// The outputs are scalars.
pub fn scalar(c: &mut InferenceContext<'_>) -> Result<()> {
    set_all(c, &Shape::scalar())
}

/// The outputs have the shape of input 0.
pub fn unchanged(c: &mut InferenceContext<'_>) -> Result<()> {
    let shape = c.input(0)?;
    set_all(c, &shape)
}

/// The outputs have the shape of input 0, whose rank must be `rank`.
pub fn unchanged_with_rank(
    rank: usize,
) -> impl Fn(&mut InferenceContext<'_>) -> Result<()> + Clone + Send + Sync + 'static {
    move |c| {
        let shape = c.with_rank(c.input(0)?, rank)?;
        set_all(c, &shape)
    }
}

/// The outputs have the shape of input 0, whose rank must be at least `rank`.
pub fn unchanged_with_rank_at_least(
    rank: usize,
) -> impl Fn(&mut InferenceContext<'_>) -> Result<()> + Clone + Send + Sync + 'static {
    move |c| {
        let shape = c.with_rank_at_least(c.input(0)?, rank)?;
        set_all(c, &shape)
    }
}

/// The outputs have the shape of input 0, whose rank must be at most `rank`.
pub fn unchanged_with_rank_at_most(
    rank: usize,
) -> impl Fn(&mut InferenceContext<'_>) -> Result<()> + Clone + Send + Sync + 'static {
    move |c| {
        let shape = c.with_rank_at_most(c.input(0)?, rank)?;
        set_all(c, &shape)
    }
}

/// The inputs that are there must have one shape, which the outputs have too.
pub fn merged(c: &mut InferenceContext<'_>) -> Result<()> {
    let mut shape = Shape::unknown();
    for i in 0..c.num_inputs() {
        if c.has_input(i) {
            let input = c.input(i)?;
            shape = c.merge_shapes(&shape, &input)?;
        }
    }
    set_all(c, &shape)
}

/// Output `i` has the shape of input `inputs[i]`: for a gradient, which has the shape of what it is the gradient of.
pub fn like_inputs(
    inputs: &'static [usize],
) -> impl Fn(&mut InferenceContext<'_>) -> Result<()> + Clone + Send + Sync + 'static {
    move |c| {
        for (output, &input) in inputs.iter().enumerate() {
            let shape = c.input(input)?;
            c.set_output(output, shape)?;
        }
        Ok(())
    }
}

/// The outputs have the shape in the `shape` attribute called `shape`.
pub fn explicit(c: &mut InferenceContext<'_>) -> Result<()> {
    let shape = c.get_shape("shape")?;
    set_all(c, &shape)
}

/// The outputs have the shape that inputs 0 and 1 broadcast to by NumPy's rules.
pub fn broadcast_binary(c: &mut InferenceContext<'_>) -> Result<()> {
    let (left, right) = (c.input(0)?, c.input(1)?);
    let shape = c.broadcast(&left, &right)?;
    set_all(c, &shape)
}

/// Output 0 is the matrix product of inputs 0 and 1, each transposed first where the `bool` attribute `transpose_a` or
/// `transpose_b`, if the op has them, says so.
pub fn matmul(c: &mut InferenceContext<'_>) -> Result<()> {
    let (rows, inner_a) = matrix_dims(c, 0, "transpose_a")?;
    let (inner_b, columns) = matrix_dims(c, 1, "transpose_b")?;
    c.merge_as(&inner_a.0, &inner_b.0, |c| {
        let (a, b) = (c.input_label(0), c.input_label(1));
        let (i, j) = (inner_b.1, inner_a.1);
        let text = format!("dim {i} of {b} must equal dim {j} of {a}, as the inner dims of a matrix product");
        Must::of_input(1, text)
    })?;
    let product = c.matrix(rows.0, columns.0);
    c.set_output(0, product)
}

/// Rows and columns of a matrix after transposition, each with its position before.
fn matrix_dims(c: &InferenceContext<'_>, input: usize, transpose: &str) -> Result<((Dim, i64), (Dim, i64))> {
    let shape = c.with_rank(c.input(input)?, 2)?;
    let transposed = c.signature().attr_index(transpose).is_some() && c.get_bool(transpose)?;
    let (rows, columns) = if transposed { (1, 0) } else { (0, 1) };
    Ok(((c.dim(&shape, rows)?, rows), (c.dim(&shape, columns)?, columns)))
}
