//! The gradient of taking elements by their positions, on a card: positions are sorted by their places, and then each place sums its own.

use opsmith::cuda::{CudaCall, Index, KernelCall, index_of};
use opsmith::prelude::*;
use opsmith::space::{Extents, IndexSpace, Layout};

use super::card::SOURCE;
use crate::card::name;

// As in the kernels.
const THREADS: usize = 256;
const CHUNK: usize = 4096;
const BITS: u32 = 4;
const FEW: usize = 32;

/// How many elements of a place along the dim a block sums at a time.
const COLUMNS: usize = 32;
/// The most blocks that share the elements of a place.
const SLABS: usize = 16;
/// The most blocks along the dim, which go on by so many.
const MOST_BLOCKS: usize = 1 << 16;

/// Makes output 0, of the shape of input 0, of sums of what was taken from each place: of `gradient`, which has the result's shape.
pub(super) fn put_back(context: &OpKernelContext<'_>, axis: usize, gradient: TensorView<'_>) -> Result<()> {
    let (shape, indices) = (context.input_shape(0)?, context.input("indices")?);
    let output = context.allocate_output(0, shape)?;
    if shape.contains(&0) {
        return Ok(());
    }
    let behind = axis + indices.rank();
    let without = |dims: &[usize]| -> Extents { [&dims[..axis], &dims[behind..]].concat().into() };
    let kept_strides = [&gradient.strides()[..axis], &gradient.strides()[behind..]].concat();
    let kept_shape = without(gradient.shape());
    let kept = IndexSpace::new(&kept_shape, &[Layout { shape: &kept_shape, strides: &kept_strides }])?;
    let of_terms = &gradient.strides()[axis..behind];
    let terms = IndexSpace::new(
        indices.shape(),
        &[Layout { shape: indices.shape(), strides: of_terms }, indices.layout()],
    )?;
    let index = index_of(&[&kept, &terms], 1, output.num_elements());
    let index = if index_of(&[&terms], 2, 0) == index { index } else { Index::Bits64 };
    let (call, dim) = (CudaCall::new(context, &SOURCE), shape[axis]);
    let [order, begins] = sorted(context, &indices, &terms, dim, index)?;
    let from = |launch: KernelCall<'_>| {
        let launch = launch.address(gradient.data_ptr().cast()).address(order).address(begins);
        let launch = launch.address(output.data_ptr().cast_const().cast()).index(dim, index);
        let launch = launch.index(shape[axis + 1..].iter().product(), index);
        // SAFETY: these are the parameters of both kernels; the spaces stay in the tensors, which are on the call's card, and each place
        // has its positions in the order, from where it begins on.
        unsafe { launch.space(&kept, 1, index).space(&terms, 2, index).launch() }
    };
    let kernel = |name_of: &str| -> Result<_> {
        Ok(call.kernel(format!("{name_of}<{}, {}>", name(gradient.dtype())?, index.name())))
    };
    from(kernel("put_back")?.for_each(output.num_elements()))?;
    if terms.len() <= FEW {
        return Ok(());
    }
    let columns = kept.len().next_power_of_two().min(COLUMNS);
    let blocks = [dim.div_ceil(THREADS).min(MOST_BLOCKS), kept.len().div_ceil(columns).min(SLABS), 1];
    from(kernel("put_many_back")?.grid(blocks).block([columns as u32, (THREADS / columns) as u32, 1]))
}

/// The numbers of the positions in the order of their places, and of those of equal places in their own; and where in it each place of
/// the dim begins, with the end of the last. Those that are not there are last.
fn sorted(
    context: &OpKernelContext<'_>,
    indices: &TensorView<'_>,
    terms: &IndexSpace,
    dim: usize,
    index: Index,
) -> Result<[*const std::ffi::c_void; 2]> {
    let (count, blocks) = (terms.len(), terms.len().div_ceil(CHUNK));
    let room = |count: usize| -> Result<*const std::ffi::c_void> {
        let bytes = count.max(1).saturating_mul(if index == Index::Bits64 { 8 } else { 4 });
        Ok(context.device_temp(bytes)?.as_ptr().cast_const().cast())
    };
    let (mut order, mut other) = (std::ptr::null(), room(count)?);
    let (mut spare, counts, begins) = (room(count)?, room(blocks << BITS)?, room(dim + 1)?);
    let types = format!("{}, {}", name(indices.dtype())?, index.name());
    let call = CudaCall::new(context, &SOURCE);
    let positions = || indices.data_ptr().cast();
    for shift in (0..usize::BITS - dim.leading_zeros()).step_by(BITS as usize) {
        let by_digit = |kernel: &str, to: &[*const std::ffi::c_void]| {
            let launch = call.kernel(format!("{kernel}<{types}>")).grid([blocks, 1, 1]).address(positions());
            let launch = to.iter().fold(launch.address(order), |launch, &to| launch.address(to));
            let launch = launch.index(dim, index).value(shift as i32).space(terms, 2, index);
            // SAFETY: these are the parameters of both kernels, whose blocks have a chunk of the positions each; the space stays in the
            // positions, and there is room for a number for each position, and for each digit of each block.
            unsafe { launch.launch() }
        };
        by_digit("counted", &[counts])?;
        let added = call.kernel(format!("added<{}>", index.name())).address(counts);
        // SAFETY: as above.
        unsafe { added.index(blocks << BITS, index).launch() }?;
        by_digit("ordered", &[other, counts])?;
        (order, other, spare) = (other, spare, other);
    }
    let bounds = call.kernel(format!("bounds<{types}>")).for_each(dim + 1).address(positions());
    let bounds = bounds.address(order).address(begins).index(dim, index).space(terms, 2, index);
    // SAFETY: as above, and there is room for a number for each place and one more.
    unsafe { bounds.launch() }?;
    Ok([order, begins])
}
