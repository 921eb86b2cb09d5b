//! Parameters of ops: axes, and shapes and positions in small tensors of integers.

use opsmith::prelude::*;
use opsmith::space::{Extents, checked_num_elements};
use opsmith::{Dim, MAX_RANK, memory};

/// The length of the longest vector that has a number for each dim.
const LONGEST: u64 = MAX_RANK as u64;

/// The dim at a position that counts from the end where negative, among `rank` dims.
pub(crate) fn axis_of(axis: i64, rank: usize) -> Result<usize> {
    let from_start = if axis < 0 { axis.saturating_add_unsigned(rank as u64) } else { axis };
    match usize::try_from(from_start) {
        Ok(axis) if axis < rank => Ok(axis),
        _ => Err(Error::invalid_argument(format!(
            "`axis` must be a dim of a tensor of rank {rank}, got {axis}"
        ))
        .naming("axis")),
    }
}

/// The numbers of an input, a vector of int32 or int64 with at most one for each dim of a tensor.
pub(crate) fn integers(context: &OpKernelContext<'_>, name: &'static str) -> Result<Vec<i64>> {
    let tensor = context.input(name)?;
    ensure!(
        matches!(tensor.shape(), [..=MAX_RANK]),
        InvalidArgument for name,
        "input `{name}` must be a vector of at most {MAX_RANK} numbers, one for each dim, got shape {:?}",
        tensor.shape()
    );
    numbers(tensor, name)
}

/// All numbers of a tensor of int32 or int64, in row-major order.
pub(crate) fn numbers(tensor: TensorView<'_>, what: &str) -> Result<Vec<i64>> {
    match tensor.dtype() {
        DType::Int32 => memory::collected(tensor.view::<i32, IxDyn>()?.iter().map(|&n| n.into()), what),
        _ => memory::collected(tensor.view::<i64, IxDyn>()?.iter().copied(), what),
    }
}

/// The numbers of an input whose value is known while shapes are inferred, at most two for each dim of a tensor.
pub(crate) fn known_integers(c: &InferenceContext<'_>, input: usize) -> Option<Vec<i64>> {
    let value =
        c.input_value(input).filter(|value| value.bytes.len() <= 2 * MAX_RANK * value.dtype.size())?;
    match value.dtype {
        DType::Int32 => {
            Some(value.bytes.as_chunks().0.iter().map(|&bytes| i32::from_ne_bytes(bytes).into()).collect())
        }
        DType::Int64 => {
            Some(value.bytes.as_chunks().0.iter().map(|&bytes| i64::from_ne_bytes(bytes)).collect())
        }
        _ => None,
    }
}

/// The dims that an input holds.
pub(crate) fn dims(context: &OpKernelContext<'_>, name: &'static str) -> Result<Extents> {
    let sizes = integers(context, name)?;
    let dims = sizes.iter().map(|&size| {
        usize::try_from(size).map_err(|_| {
            Error::invalid_argument(format!(
                "`{name}` is a shape, but {size} is not the size of a dim: {sizes:?}"
            ))
            .naming(name)
        })
    });
    let dims = dims.collect::<Result<Extents>>()?;
    ensure!(
        elements(&dims).is_some(),
        ResourceExhausted,
        "a tensor of the shape {sizes:?} that `{name}` holds is too large"
    );
    Ok(dims)
}

/// The number of elements of a shape, if it is one that memory can have.
pub(crate) fn elements(shape: &[usize]) -> Option<usize> {
    checked_num_elements(shape).filter(|&count| count <= isize::MAX as usize / 16)
}

/// Empty text for every element of a shape.
pub(crate) fn empty_text<'a>(shape: &[usize]) -> Result<Vec<&'a [u8]>> {
    let count = elements(shape)
        .ok_or_else(|| Error::resource_exhausted(format!("text of shape {shape:?} is too large")))?;
    memory::filled(&[], count, "text")
}

/// The length of a vector that holds a shape: the rank of that.
pub(crate) fn length(c: &InferenceContext<'_>, input: usize) -> Result<Option<usize>> {
    let vector = c.with_rank(c.input(input)?, 1)?;
    match vector.dims() {
        Some([Dim::Known(length @ 0..=LONGEST)]) => Ok(Some(*length as usize)),
        Some([Dim::Known(length)]) => Err(c.error(format!(
            "input {input} has a number for each dim, of which a tensor has at most {MAX_RANK}, got {length}"
        ))),
        _ => Ok(None),
    }
}
