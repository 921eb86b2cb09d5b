//! Parameters of ops: axes, and shapes and positions in small tensors of integers.

use opsmith::Dim;
use opsmith::prelude::*;

use crate::walk::Dims;

/// The dim at a position that counts from the end where negative, among `rank` dims.
pub(crate) fn axis_of(op: &str, axis: i64, rank: usize) -> Result<usize> {
    let from_start = if axis < 0 { axis.saturating_add_unsigned(rank as u64) } else { axis };
    match usize::try_from(from_start) {
        Ok(axis) if axis < rank => Ok(axis),
        _ => Err(Error::invalid_argument(format!(
            "{op}: `axis` must be a dim of a tensor of rank {rank}, got {axis}"
        ))),
    }
}

/// The numbers of an input, a vector of int32 or int64.
pub(crate) fn integers(context: &OpKernelContext<'_>, name: &'static str) -> Result<Vec<i64>> {
    let tensor = context.input(name)?;
    ensure!(
        tensor.rank() == 1,
        InvalidArgument,
        "{}: input `{name}` must be a vector, got shape {:?}",
        context.signature().name,
        tensor.shape()
    );
    match tensor.dtype() {
        DType::Int32 => Ok(tensor.view::<i32, IxDyn>()?.iter().map(|&n| n.into()).collect()),
        _ => Ok(tensor.view::<i64, IxDyn>()?.iter().copied().collect()),
    }
}

/// The numbers of an input whose value is known while shapes are inferred.
pub(crate) fn known_integers(c: &InferenceContext<'_>, input: usize) -> Option<Vec<i64>> {
    let value = c.input_value(input)?;
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
pub(crate) fn dims(context: &OpKernelContext<'_>, name: &'static str) -> Result<Dims> {
    let op = &context.signature().name;
    let sizes = integers(context, name)?;
    let dims = sizes.iter().map(|&size| {
        usize::try_from(size).map_err(|_| {
            Error::invalid_argument(format!(
                "{op}: `{name}` holds a shape, and no dim can be {size}: {sizes:?}"
            ))
        })
    });
    let dims = dims.collect::<Result<Dims>>()?;
    ensure!(
        elements(&dims).is_some(),
        ResourceExhausted,
        "{op}: a tensor of the shape {sizes:?} that `{name}` holds is too large"
    );
    Ok(dims)
}

/// The number of elements of a shape, if it is one that memory can have.
pub(crate) fn elements(shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    let count = shape.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim));
    count.filter(|&count| count <= isize::MAX as usize / 16)
}

/// Empty text for every element of a shape.
pub(crate) fn empty_text<'a>(context: &OpKernelContext<'_>, shape: &[usize]) -> Result<Vec<&'a [u8]>> {
    let too_much = || {
        let op = &context.signature().name;
        Error::new(Code::ResourceExhausted, format!("{op}: there is no memory for text of shape {shape:?}"))
    };
    let count = elements(shape).ok_or_else(too_much)?;
    let mut text: Vec<&[u8]> = Vec::new();
    text.try_reserve_exact(count).map_err(|_| too_much())?;
    text.resize(count, &[]);
    Ok(text)
}

/// The length of a vector that holds a shape: the rank of that.
pub(crate) fn length(c: &InferenceContext<'_>, input: usize) -> Result<Option<usize>> {
    let vector = c.with_rank(c.input(input)?, 1)?;
    Ok(match vector.dims() {
        Some([Dim::Known(length)]) => usize::try_from(*length).ok(),
        _ => None,
    })
}
