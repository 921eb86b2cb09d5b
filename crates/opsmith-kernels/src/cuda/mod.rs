//! What one-body kernels on a card have in common: their sources, made once, operands as they lie, sums over dims.

use opsmith_core::space::{IndexSpace, Layout, row_major_strides};
use opsmith_core::{DType, OpKernelContext, Result, bail};
use opsmith_cuda::{Folding, Index, Source, Structure};

static SUMS: Source = Source::new("sums.cu", include_str!("sums.cu")).beside(file!());

/// The name of a dtype's elements in `opsmith.cuh`.
fn element(dtype: DType) -> Result<&'static str> {
    Ok(match dtype {
        DType::Float32 => "float",
        DType::Float64 => "double",
        DType::Float16 => "opsmith::half",
        DType::BFloat16 => "opsmith::bfloat16",
        other => bail!(Internal, "no body computes with {other}"),
    })
}

/// How many bytes a term of a sum has: it is of the type that is computed with, and not rounded before it is added.
pub(crate) fn size_of_terms(dtype: DType) -> usize {
    if dtype == DType::Float64 { size_of::<f64>() } else { size_of::<f32>() }
}

/// 1 if terms of sums are of another type than the elements, else 0.
pub(crate) fn are_wider(dtype: DType) -> u64 {
    u64::from(size_of_terms(dtype) != dtype.size())
}

/// Addresses, a structure of them.
pub(crate) fn operands(data: &[*mut u8]) -> Vec<u8> {
    let mut structure = Structure::new(Index::Bits64);
    for &data in data {
        structure.address(data.cast());
    }
    structure.finish()
}

/// The values of a body's attributes, at least one.
pub(crate) fn attributes(values: &[(&'static str, f64)]) -> Vec<u8> {
    let mut structure = Structure::new(Index::Bits64);
    for &(_, value) in values {
        structure.double(value);
    }
    if values.is_empty() {
        structure.double(0.0);
    }
    structure.finish()
}

/// Adds up terms that lie dense in `from`, of shape `all`, to an output of a shape that broadcasts to it.
pub(crate) fn sum_to(
    context: &OpKernelContext<'_>,
    dtype: DType,
    from: *mut u8,
    all: &[usize],
    to: *mut u8,
    shape: &[usize],
) -> Result<()> {
    let strides = row_major_strides(all);
    let own = |dim: usize| (dim + shape.len()).checked_sub(all.len()).map_or(1, |own| shape[own]);
    let dense = Layout { shape: all, strides: &strides };
    let spaces = IndexSpace::split(all, &[dense, dense], |dim| usize::from(own(dim) != all[dim]))?;
    let [results, terms] = &spaces;
    let (element, term) = (element(dtype)?, if dtype == DType::Float64 { "double" } else { "float" });
    let sums = Folding { source: &SUMS, name: "opsmith::Total<-1>" };
    // SAFETY: places are within the terms, and there is an output for each that is kept.
    unsafe { sums.launch(context, [(from, term); 2], (to, element), [results, terms]) }
}
