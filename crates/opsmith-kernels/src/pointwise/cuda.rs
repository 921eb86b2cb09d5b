//! Pointwise kernels on a card: the source that a body's graph gives, launched over a space.

use std::marker::PhantomData;

use opsmith_body::{CudaType, Graph};
use opsmith_core::family::Family;
use opsmith_core::space::{IndexSpace, Layout, Order, row_major_strides};
use opsmith_core::{DType, InferenceContext, OpKernel, OpKernelConstruction, OpKernelContext, Result, bail};
use opsmith_cuda::{CudaCall, Index, Source};
use smallvec::SmallVec;

use super::{Pointwise, Shapes, output_shapes, trace};
use crate::cuda::{Sources, attributes, index_of, layout, operands, sum_to};
use crate::explain::cuda_type;
use crate::facts::{Facts, OutputShapes, Trace, shape_error};
use crate::kept::Presence;

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
    sources: Sources,
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
        let (name, sources) = (signature.snake_name(), Sources::default());
        let forward_inputs = facts.inputs.len();
        Ok(Computation { graph, name, dtype, element, forward_inputs, order, family, sources })
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
        let dense = row_major_strides(&shapes.all);
        let whole: usize = shapes.all.iter().product();
        let (mut data, mut layouts): (SmallVec<[*mut u8; 8]>, SmallVec<[Layout<'_>; 8]>) = Default::default();
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
            let own =
                if is_whole { to } else { context.device_temp(whole.max(1) * self.dtype.size())?.as_ptr() };
            if !is_whole {
                sums.push(Sum { from: own, to, shape });
            }
            data.push(own);
            layouts.push(Layout { shape: &shapes.all, strides: &dense });
        }
        if whole > 0 {
            self.launch(context, given, &data, &IndexSpace::new(&shapes.all, &layouts)?)?;
        }
        sums.iter().try_for_each(|sum| sum_to(context, self.dtype, sum.from, &shapes.all, sum.to, sum.shape))
    }

    fn launch(
        &self,
        context: &OpKernelContext<'_>,
        given: Presence,
        data: &[*mut u8],
        space: &IndexSpace,
    ) -> Result<()> {
        let index = index_of(space, data.len());
        let contiguous = (0..data.len()).all(|operand| space.order(operand) == Order::Dense);
        let variant = usize::from(!contiguous) * 2 + usize::from(index == Index::Bits64);
        let source = self.sources.get((given, variant), |_| {
            let part = given.part(&self.graph).with_inputs(&given.inputs(self.graph.input_count()));
            let text = part.cuda_source(&self.name, self.element);
            Source::generated(format!("{}.cu", self.name), format!("#define ONLY {variant}\n{text}"))
        });
        let suffix = ["contiguous_32", "contiguous_64", "strided_32", "strided_64"][variant];
        let call = CudaCall::new(context, &source);
        let launch = call.kernel(format!("{}_{suffix}", self.name)).for_each(space.len());
        let launch = launch.raw(&operands(data)).raw(&attributes(self.graph.attributes()));
        let launch = match contiguous {
            true => launch.index(space.len(), index),
            false => launch.raw(&layout(space, data.len(), index)?),
        };
        // SAFETY: these are the parameters of the kernels that `Graph::cuda_source` has; every operand is as large as the space
        // and its strides reach.
        unsafe { launch.launch() }
    }
}
