//! Pointwise kernels on a card: the source that a body's graph gives, launched over a space.

use std::marker::PhantomData;

use opsmith_body::{CudaType, Graph};
use opsmith_core::family::Family;
use opsmith_core::space::{IndexSpace, Layout};
use opsmith_core::{DType, InferenceContext, OpKernel, OpKernelConstruction, OpKernelContext, Result, bail};
use opsmith_cuda::{CudaCall, Index, Source, index_of, lanes_along};
use smallvec::SmallVec;

use super::{Pointwise, Shapes, output_shapes, trace};
use crate::cuda::{are_wider, attributes, operands, size_of_terms, sum_to};
use crate::explain::cuda_type;
use crate::facts::{Facts, OutputShapes, Trace, shape_error};
use crate::kept::{Kept, Presence};

/// The kernel of a body's gradient of an order on a card; of the body itself for order 0.
pub(super) struct CudaKernel<B, const ORDER: usize> {
    computation: Computation,
    body: PhantomData<fn() -> B>,
}

impl<B: Pointwise, const ORDER: usize> OpKernel for CudaKernel<B, ORDER> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let computation = Computation::new(&B::FACTS, trace::<B>, construction, ORDER)?;
        Ok(CudaKernel { computation, body: PhantomData })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        self.computation.compute(context, output_shapes::<B>)
    }
}

/// What an instance computes with, whatever the body.
struct Computation {
    graph: Graph,
    name: String,
    dtype: DType,
    element: CudaType,
    forward_inputs: usize,
    order: usize,
    family: Family,
    /// The kernels, for what is given, the outputs that are terms of sums, and whether indices are wide.
    kernels: Kept<(Presence, u64, bool), Kernel>,
}

/// A source, and how many elements it reads at a time.
struct Kernel {
    source: Source,
    lanes: usize,
}

/// The memory of an output's numbers where they are not the output: it is their sums over some dims.
struct Sum<'a> {
    from: *mut u8,
    to: *mut u8,
    shape: &'a [usize],
}

impl Computation {
    fn new(
        facts: &Facts,
        trace: Trace,
        construction: &OpKernelConstruction<'_>,
        order: usize,
    ) -> Result<Computation> {
        let (graph, reading) = facts.derived(trace, construction, order)?;
        let family = facts.family(order, &reading);
        let (signature, dtype) = (construction.signature(), construction.attr("T")?);
        let Some(element) = cuda_type(dtype) else {
            bail!(Internal, "no body computes with {dtype}");
        };
        let (name, kernels) = (signature.snake_name(), Kept::default());
        let forward_inputs = facts.inputs.len();
        Ok(Computation { graph, name, dtype, element, forward_inputs, order, family, kernels })
    }

    fn compute(&self, context: &OpKernelContext<'_>, output_shapes: OutputShapes) -> Result<()> {
        let Some(shapes) = Shapes::of(context, &self.family, self.forward_inputs) else {
            let shapes = |context: &mut InferenceContext<'_>| output_shapes(context, &[]);
            return Err(shape_error(context, &[], &self.family, self.order, &shapes));
        };
        let given = Presence::of(context, &shapes.inputs)?;
        if given.wanted == 0 {
            return Ok(());
        }
        let whole: usize = shapes.all.iter().product();
        let (mut data, mut layouts): (SmallVec<[*mut u8; 8]>, SmallVec<[Layout<'_>; 8]>) = Default::default();
        let mut terms = 0;
        for input in given.inputs(shapes.inputs.len()) {
            let view = context.input(input)?;
            data.push(view.data_ptr().cast_mut());
            layouts.push(view.layout());
        }
        let mut sums: SmallVec<[Sum<'_>; 4]> = SmallVec::new();
        for (output, argument) in self.family.outputs.iter().enumerate() {
            if !given.is_wanted(output) {
                continue;
            }
            let shape = shapes.like(argument.like).unwrap_or_default();
            let to = context.allocate_output(output, shape)?.data_ptr();
            let is_whole = shape.iter().product::<usize>() == whole;
            if is_whole {
                data.push(to);
                continue;
            }
            let from = context.device_temp(whole.max(1) * size_of_terms(self.dtype))?.as_ptr();
            sums.push(Sum { from, to, shape });
            terms |= are_wider(self.dtype) << (data.len() - layouts.len());
            data.push(from);
        }
        if whole > 0 {
            self.launch(context, (given, terms), &data, &IndexSpace::new(&shapes.all, &layouts)?)?;
        }
        sums.iter().try_for_each(|sum| sum_to(context, self.dtype, sum.from, &shapes.all, sum.to, sum.shape))
    }

    /// The inputs have strides along the space, and the outputs lie dense.
    fn launch(
        &self,
        context: &OpKernelContext<'_>,
        (given, terms): (Presence, u64),
        data: &[*mut u8],
        space: &IndexSpace,
    ) -> Result<()> {
        let inputs = given.inputs(self.graph.input_count());
        let index = index_of(&[space], inputs.len(), 0);
        let is_wide = index == Index::Bits64;
        let kernel = self.kernels.get((given, terms, is_wide), |_| {
            let part = given.part(&self.graph).with_inputs(&inputs);
            let text = part.cuda_source(&self.name, self.element, terms);
            let text = format!("#define ONLY {}\n{text}", usize::from(is_wide));
            let lanes = part.cuda_lanes(self.element, terms);
            Kernel { source: Source::generated(format!("{}.cu", self.name), text), lanes }
        });
        let size = |operand: usize| match operand.checked_sub(inputs.len()) {
            Some(output) if terms >> output & 1 != 0 => size_of_terms(self.dtype),
            _ => self.dtype.size(),
        };
        let all: SmallVec<[(*const u8, usize); 8]> =
            data.iter().enumerate().map(|(operand, data)| (data.cast_const(), size(operand))).collect();
        let lanes = lanes_along(space, kernel.lanes, &all, inputs.len());
        let call = CudaCall::new(context, &kernel.source);
        let launch = call.kernel(format!("{}_{}", self.name, if is_wide { 64 } else { 32 }));
        let launch = launch.for_packs(space.len(), lanes);
        let launch = launch.raw(&operands(data)).raw(&attributes(self.graph.attributes()));
        let launch = launch.space_in_packs(space, inputs.len(), index, lanes);
        // SAFETY: these are the parameters of the kernels that `Graph::cuda_source` has; inputs are as large as the space and their
        // strides reach, and outputs have an element for each of its indices.
        unsafe { launch.launch() }
    }
}
