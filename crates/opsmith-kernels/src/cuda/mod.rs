//! What one-body kernels on a card have in common: their sources, made once, operands as they lie, sums over dims.

use opsmith_core::space::{IndexSpace, Layout, row_major_strides};
use opsmith_core::{DType, OpKernelContext, Result, bail, ensure};
use opsmith_cuda::{BLOCK, CudaCall, Index, Source, Structure};

/// The most dims that a kernel goes through.
pub(crate) const MAX_RANK: usize = 8;

/// The most blocks along a grid, which go on by its size.
const MOST_BLOCKS: usize = 1 << 12;

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
    let [kept, summed] = IndexSpace::split(all, &[dense], |dim| usize::from(own(dim) != all[dim]))?;
    let (element, term) = (element(dtype)?, if dtype == DType::Float64 { "double" } else { "float" });
    let spread = Spread::new(&kept, &summed);
    let parts = spread.blocks[1];
    if parts == 1 {
        return spread.launch(context, (from, term), (to, element), (&kept, &summed));
    }
    // Smaller than the array by far.
    let partial = [parts, kept.len()];
    let sums = context.device_temp(parts * kept.len() * size_of::<f64>())?.as_ptr();
    spread.launch(context, (from, term), (sums, "double"), (&kept, &summed))?;
    let strides = row_major_strides(&partial);
    let dense = Layout { shape: &partial, strides: &strides };
    let [kept, summed] = IndexSpace::split(&partial, &[dense], |dim| usize::from(dim == 0))?;
    let last = Spread::new(&kept, &summed);
    debug_assert_eq!(last.blocks[1], 1, "parts are too few to have parts");
    last.launch(context, (sums, "double"), (to, element), (&kept, &summed))
}

/// How sums are spread over a card, as the sizes alone decide.
struct Spread {
    kernel: &'static str,
    /// Of a block, in columns and rows.
    threads: [usize; 2],
    /// Along the sums, and the parts of their terms.
    blocks: [usize; 2],
}

impl Spread {
    /// So many blocks, and threads, keep every card busy.
    const BLOCKS: usize = 512;
    const THREADS: usize = 1 << 18;
    /// The most threads that share the terms of a sum, and the least terms that are worth a thread of another block.
    const ROWS: usize = 32;
    const LEAST: usize = 32;

    fn new(kept: &IndexSpace, summed: &IndexSpace) -> Self {
        let (sums, terms) = (kept.len(), summed.len());
        let is_across = terms < BLOCK || (kept.steps([0]) == [1] && sums >= 8);
        let kernel = if is_across { "sums_across" } else { "sums_by_block" };
        let rows = (Self::THREADS / sums.max(1)).min(terms).clamp(1, Self::ROWS).next_power_of_two();
        let threads = match (is_across, rows) {
            (false, _) | (true, 1) => [BLOCK, 1],
            (true, rows) => [32, rows],
        };
        let blocks = if is_across { sums.div_ceil(threads[0]) } else { sums };
        let sharing = if is_across { rows } else { BLOCK };
        let parts = (Self::BLOCKS / blocks.max(1)).min(terms / (sharing * Self::LEAST)).max(1);
        Spread { kernel, threads, blocks: [blocks.min(MOST_BLOCKS), parts] }
    }

    fn launch(
        &self,
        context: &OpKernelContext<'_>,
        (from, from_type): (*mut u8, &str),
        (to, to_type): (*mut u8, &str),
        (kept, summed): (&IndexSpace, &IndexSpace),
    ) -> Result<()> {
        // Indices go beyond their ends by what the grid has.
        let most = i32::MAX as usize - MOST_BLOCKS * BLOCK;
        let is_near =
            kept.len().max(summed.len()) <= most && kept.span(0).saturating_add(summed.span(0)) <= most;
        let index = if is_near { Index::Bits32 } else { Index::Bits64 };
        let kernel = format!("{}<{from_type}, {to_type}, {}>", self.kernel, index.name());
        let call = CudaCall::new(context, &SUMS);
        let launch = call.kernel(kernel).grid([self.blocks[0], self.blocks[1], 1]);
        let launch = launch.block([self.threads[0] as u32, self.threads[1] as u32, 1]);
        let launch = launch.address(from.cast()).address(to.cast());
        let launch = launch.raw(&packed(kept, index)?).raw(&packed(summed, index)?);
        let part = summed.len().div_ceil(self.blocks[1]);
        // SAFETY: these are the kernel's parameters; places are within the array, and there is an output for each that is kept
        // and each part.
        unsafe { launch.index(part, index).launch() }
    }
}

/// The structure `Dims`: how many indices there are, how many dims, these, and strides.
fn packed(space: &IndexSpace, index: Index) -> Result<Vec<u8>> {
    let rank = space.dims().len();
    ensure!(rank <= MAX_RANK, Unimplemented, "no CUDA kernel sums over so many dims");
    let mut structure = Structure::new(index);
    structure.index(space.len() as i128)?.int(rank as i32);
    for &dim in space.dims().iter().chain(std::iter::repeat(&1)).take(MAX_RANK) {
        structure.index(dim as i128)?;
    }
    for &stride in space.strides(0).iter().chain(std::iter::repeat(&0)).take(MAX_RANK) {
        structure.index(stride as i128)?;
    }
    Ok(structure.finish_without_address())
}
