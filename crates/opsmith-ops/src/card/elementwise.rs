//! Functions of elements on a card.

use opsmith::cuda::CudaCall;
use opsmith::prelude::*;
use opsmith::space::{self, IndexSpace};

use super::{SOURCE, index_of, name, packed};
use crate::elementwise::shape_error;

/// The most inputs that the kernel reads.
const INPUTS: usize = 3;

/// Makes output 0 of what `op` gives of all inputs, which broadcast.
pub(crate) fn compute<const N: usize>(op: &str, context: &OpKernelContext<'_>) -> Result<()> {
    let inputs: Vec<TensorView<'_>> = (0..N).map(|input| context.input(input)).collect::<Result<_>>()?;
    let shape = space::broadcast_shape(inputs.iter().map(TensorView::shape));
    let shape = shape.ok_or_else(|| shape_error(context, N))?;
    let output = context.allocate_output(0, &shape)?;
    // What is not there is the first input again, which nobody looks at.
    let all: [TensorView<'_>; INPUTS] =
        std::array::from_fn(|input| inputs[if input < N { input } else { 0 }]);
    let layouts = all.each_ref().map(TensorView::layout);
    let space = IndexSpace::new(&shape, &layouts)?;
    let index = index_of::<INPUTS>(&[&space], 0);
    let mut kernel = format!("each<{op}");
    for dtype in all.iter().map(TensorView::dtype).chain([output.dtype()]) {
        kernel = format!("{kernel}, {}", name(dtype)?);
    }
    let call = CudaCall::new(context, &SOURCE);
    let launch = call.kernel(format!("{kernel}, {}>", index.name())).for_each(space.len());
    let launch = all.iter().fold(launch, |launch, input| launch.address(input.data_ptr().cast()));
    let launch = launch.address(output.data_ptr().cast_const().cast()).raw(&packed::<INPUTS>(&space, index)?);
    // SAFETY: these are the kernel's parameters, and the space stays in the tensors, which are on the call's card.
    unsafe { launch.launch() }
}
