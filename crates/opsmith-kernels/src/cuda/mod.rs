//! What one-body kernels on a card have in common: their sources, made once, operands as they lie, sums over dims.

use opsmith_core::space::{IndexSpace, Layout, row_major_strides};
use opsmith_core::{DType, OpKernelContext, Result, bail, ensure};
use opsmith_cuda::{CudaCall, Index, Source, Structure};

use crate::kept::{Kept, Presence};

/// The most dims that a kernel goes through.
pub(crate) const MAX_RANK: usize = 8;

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

/// Sources that an instance has made: for what is given of its graph, and what else tells them apart.
pub(crate) type Sources = Kept<(Presence, usize), Source>;

/// The indices that all operands of a space fit.
pub(crate) fn index_of(space: &IndexSpace, operands: usize) -> Index {
    let most = i32::MAX as usize;
    let fits = space.len() <= most && (0..operands).all(|operand| space.span(operand) <= most);
    if fits { Index::Bits32 } else { Index::Bits64 }
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

/// Adds up what lies dense in `from`, of shape `all`, to an output of a shape that broadcasts to it.
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
    let [kept, summed] = IndexSpace::split(all, &[dense], |dim| usize::from(own(dim) != all[dim]))?;
    let whole: usize = all.iter().product();
    let index = if whole.max(kept.len()) <= i32::MAX as usize { Index::Bits32 } else { Index::Bits64 };
    let (element, name) = (element(dtype)?, index.name());
    // Threads side by side read side by side, where they can.
    let many = kept.len() >= 4096 && kept.steps([0]) == [1];
    let call = CudaCall::new(context, &SUMS);
    let launch = match many || summed.len() < 32 {
        true => call.kernel(format!("sums_by_thread<{element}, {name}>")).for_each(kept.len()),
        false => {
            let blocks = kept.len().min(1 << 16);
            call.kernel(format!("sums_by_block<{element}, {name}>")).grid([blocks, 1, 1])
        }
    };
    let launch = launch.address(from.cast()).address(to.cast());
    let launch = launch.raw(&packed(&kept, index)?).raw(&packed(&summed, index)?);
    // SAFETY: these are the kernel's parameters; places are within the array, and there is an output for each that is kept.
    unsafe { launch.launch() }
}

/// The structure `Dims`.
fn packed(part: &IndexSpace, index: Index) -> Result<Vec<u8>> {
    ensure!(part.dims().len() <= MAX_RANK, Unimplemented, "no CUDA kernel sums over so many dims");
    packed_space(part, 1, index)
}

/// The structure `Layout` of pointwise kernels: how many elements, how many dims, these, and strides for each operand.
pub(crate) fn layout(space: &IndexSpace, operands: usize, index: Index) -> Result<Vec<u8>> {
    let rank = space.dims().len();
    ensure!(
        rank <= MAX_RANK,
        Unimplemented,
        "tensors that lie in {rank} dims have no CUDA kernel; make them contiguous"
    );
    packed_space(space, operands, index)
}

/// A space as kernels have it: the number of indices and of dims, these, and the strides of each operand.
fn packed_space(space: &IndexSpace, operands: usize, index: Index) -> Result<Vec<u8>> {
    let mut structure = Structure::new(index);
    structure.index(space.len() as i128)?.int(space.dims().len() as i32);
    for &dim in space.dims().iter().chain(std::iter::repeat(&1)).take(MAX_RANK) {
        structure.index(dim as i128)?;
    }
    for operand in 0..operands {
        for &stride in space.strides(operand).iter().chain(std::iter::repeat(&0)).take(MAX_RANK) {
            structure.index(stride as i128)?;
        }
    }
    Ok(structure.finish_without_address())
}
