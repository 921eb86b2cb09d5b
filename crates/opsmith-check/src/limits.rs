//! How much memory a generated call takes: known before there are values, as far as shapes say it.

use opsmith_core::{AttrValue, DType, Result, Shape};
use opsmith_runtime::{Argument, Op};

use crate::generate::Tensors;

/// The most memory that the inputs of a call may take, and the outputs.
pub(crate) const MOST_BYTES: u64 = 1 << 30;

/// The inputs of a call without their values, and its attributes.
pub(crate) type Planned = (Tensors, Vec<(String, AttrValue)>);

/// Says, in words, that the inputs or the outputs of a call take more than [`MOST_BYTES`].
///
/// # Errors
/// What the op's shape function says.
pub(crate) fn check(op: &Op, planned: &Planned) -> Result<Result<(), String>> {
    let over = |what: &str| Ok(Err(format!("its {what} would take more than 1 GiB")));
    if bytes_of_inputs(planned) > MOST_BYTES {
        return over("inputs");
    }
    if bytes_of_outputs(op, planned)? > MOST_BYTES { over("outputs") } else { Ok(Ok(())) }
}

/// How many bytes the inputs take.
pub(crate) fn bytes_of_inputs((tensors, _): &Planned) -> u64 {
    let bytes = |(dtype, shape): &(DType, Vec<usize>)| product(shape.iter().map(|dim| *dim as u64), *dtype);
    tensors.iter().flatten().flatten().map(bytes).fold(0, u64::saturating_add)
}

/// How many bytes the outputs take. The dims of an output that only the call says count as many elements as the
/// largest input has.
///
/// # Errors
/// What the op's shape function says.
pub(crate) fn bytes_of_outputs(op: &Op, (tensors, attrs): &Planned) -> Result<u64> {
    let known = |(dtype, shape): &(DType, Vec<usize>)| Argument {
        dtype: *dtype,
        shape: Shape::known(shape),
        value: None,
    };
    let inputs = op.signature().inputs.iter().zip(tensors).map(|(def, list)| {
        let list: Vec<Argument> = list.iter().flatten().map(known).collect();
        // An empty list is a list where the definition says so, else an absent input.
        (!list.is_empty() || def.count.is_list()).then_some(list)
    });
    let attrs: Vec<(&str, &AttrValue)> = attrs.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let outputs = op.infer(&inputs.collect::<Vec<_>>(), &attrs)?.outputs;
    let elements =
        |(_, shape): &(DType, Vec<usize>)| product(shape.iter().map(|dim| *dim as u64), DType::Bool);
    let open = tensors.iter().flatten().flatten().map(elements).fold(1, u64::max);
    let bytes = |(dtype, shape): &(DType, Shape)| {
        let dims = shape.dims().unwrap_or_default();
        let is_open = shape.dims().is_none() || dims.iter().any(|dim| dim.value().is_none());
        let known = dims.iter().filter_map(|dim| dim.value());
        product(known.chain(is_open.then_some(open)), *dtype)
    };
    Ok(outputs.iter().flatten().map(bytes).fold(0, u64::saturating_add))
}

/// The bytes of elements of a dtype. A string is a pointer, a length and, of those that are generated, up to 34 bytes.
fn product(mut dims: impl Iterator<Item = u64> + Clone, dtype: DType) -> u64 {
    let element = if dtype == DType::String { 64 } else { dtype.size() as u64 };
    // Where a dim is 0, the product of the others may be larger than any number.
    if dims.clone().any(|dim| dim == 0) {
        0
    } else {
        dims.try_fold(element, u64::checked_mul).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_and_not_elements() {
        let bytes = |dtype, shape: &[usize]| {
            bytes_of_inputs(&(vec![vec![Some((dtype, shape.to_vec())), None]], vec![]))
        };
        assert_eq!(bytes(DType::Complex128, &[3, 5]), 240);
        assert_eq!(bytes(DType::Bool, &[]), 1);
        assert_eq!(bytes(DType::String, &[10]), 640);
        assert_eq!(bytes(DType::Int8, &[usize::MAX, 2]), u64::MAX);
        assert_eq!(bytes(DType::Int8, &[usize::MAX, 2, 0]), 0);
    }
}
