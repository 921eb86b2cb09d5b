//! Functions of elements on a card: how `elementwise.cu` is launched.

use opsmith::cuda::{CudaCall, CudaElement, Index, Source, Structure};
use opsmith::prelude::*;
use opsmith::space::{self, IndexSpace};

static SOURCE: Source = Source::new("elementwise.cu", include_str!("../elementwise.cu")).beside(file!());

/// The most dims that the kernel goes through, and the most inputs that it reads.
const MAX_RANK: usize = 8;
const INPUTS: usize = 3;

/// The dtype in CUDA C++.
fn name(dtype: DType) -> Result<&'static str> {
    dispatch!(dtype, [bool, f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64], |T| Ok(T::NAME))
}

/// Makes output 0 of what `name` gives of all inputs, which broadcast.
pub(super) fn compute<const N: usize>(op: &str, context: &OpKernelContext<'_>) -> Result<()> {
    let inputs: Vec<TensorView<'_>> = (0..N).map(|input| context.input(input)).collect::<Result<_>>()?;
    let shape = space::broadcast_shape(inputs.iter().map(TensorView::shape));
    let shape = shape.ok_or_else(|| super::shape_error(context, N))?;
    let output = context.allocate_output(0, &shape)?;
    // What is not there is the first input again, which nobody looks at.
    let all: [TensorView<'_>; INPUTS] =
        std::array::from_fn(|input| inputs[if input < N { input } else { 0 }]);
    let layouts = all.each_ref().map(TensorView::layout);
    let space = IndexSpace::new(&shape, &layouts)?;
    let index = if fits_32_bits(&space) { Index::Bits32 } else { Index::Bits64 };
    let mut kernel = format!("each<{op}");
    for dtype in all.iter().map(TensorView::dtype).chain([output.dtype()]) {
        kernel = format!("{kernel}, {}", name(dtype)?);
    }
    let call = CudaCall::new(context, &SOURCE);
    let launch = call.kernel(format!("{kernel}, {}>", index.name())).for_each(space.len());
    let launch = all.iter().fold(launch, |launch, input| launch.address(input.data_ptr().cast()));
    let launch = launch.address(output.data_ptr().cast_const().cast()).raw(&packed(&space, index)?);
    // SAFETY: these are the kernel's parameters, and the space stays in the tensors, which are on the call's card.
    unsafe { launch.launch() }
}

/// Whether all indices and places have 31 bits at most.
fn fits_32_bits(space: &IndexSpace) -> bool {
    let most = i32::MAX as usize - (1 << 16);
    space.len() <= most && (0..INPUTS).all(|input| space.span(input) <= most)
}

/// The structure `Space`. An index space has the last dim first too.
fn packed(space: &IndexSpace, index: Index) -> Result<Vec<u8>> {
    let rank = space.dims().len();
    ensure!(rank <= MAX_RANK, Unimplemented, "tensors of {rank} dims are not gone through on a card");
    let mut structure = Structure::new(index);
    structure.index(space.len() as i128)?.int(rank as i32);
    let padded = |numbers: &mut dyn Iterator<Item = i128>, rest: i128| {
        numbers.chain(std::iter::repeat(rest)).take(MAX_RANK).collect::<Vec<_>>()
    };
    let mut all = padded(&mut space.dims().iter().map(|&dim| dim as i128), 1);
    for input in 0..INPUTS {
        all.extend(padded(&mut space.strides(input).iter().map(|&stride| stride as i128), 0));
    }
    for number in all {
        structure.index(number)?;
    }
    Ok(structure.finish_without_address())
}
