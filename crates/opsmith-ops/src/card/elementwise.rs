//! Functions of elements on a card.

use opsmith::cuda::{CudaCall, index_of, lanes_along, lanes_of};
use opsmith::prelude::*;
use opsmith::space::IndexSpace;

use super::{SOURCE, name};

/// The most inputs that the kernel reads.
const INPUTS: usize = 3;

/// Makes output 0 of what `op` gives of inputs, of the shape that they broadcast to.
pub(crate) fn compute(
    op: &str,
    context: &OpKernelContext<'_>,
    inputs: &[TensorView<'_>],
    shape: &[usize],
) -> Result<()> {
    let output = context.allocate_output(0, shape)?;
    // What is not there is the first input again, which nobody looks at.
    let all: [TensorView<'_>; INPUTS] =
        std::array::from_fn(|input| inputs[if input < inputs.len() { input } else { 0 }]);
    let layouts = all.each_ref().map(TensorView::layout);
    let space = IndexSpace::new(shape, &layouts)?;
    let index = index_of(&[&space], INPUTS, 0);
    let inputs = all.iter().map(|input| (input.data_ptr(), input.dtype().size()));
    let operands: Vec<_> = inputs.chain([(output.data_ptr().cast_const(), output.dtype().size())]).collect();
    let lanes = lanes_of(operands.iter().map(|(_, size)| *size));
    let lanes = lanes_along(&space, lanes, &operands, INPUTS);
    let mut kernel = format!("each<{op}");
    for dtype in all.iter().map(TensorView::dtype).chain([output.dtype()]) {
        kernel = format!("{kernel}, {}", name(dtype)?);
    }
    let call = CudaCall::new(context, &SOURCE);
    let launch = call.kernel(format!("{kernel}, {}>", index.name())).for_packs(space.len(), lanes);
    let launch = all.iter().fold(launch, |launch, input| launch.address(input.data_ptr().cast()));
    let launch = launch.address(output.data_ptr().cast_const().cast());
    let launch = launch.space_in_packs(&space, INPUTS, index, lanes);
    // SAFETY: these are the kernel's parameters, and the space stays in the tensors, which are on the call's card.
    unsafe { launch.launch() }
}
