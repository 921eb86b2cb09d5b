//! Ops whose arithmetic is an attribute: the text of a graph.

use half::{bf16, f16};
use opsmith_body::Graph;
use opsmith_core::space::broadcast_shape;
use opsmith_core::{
    DType, OpKernel, OpKernelConstruction, OpKernelContext, Result, TensorView, TensorViewMut, bail, ensure,
};

use super::each_element;
use crate::arithmetic::Arithmetic;
use crate::stored::Stored;

/// The kernel of an op that applies a function to every element of its inputs, where the function is an attribute.
///
/// The op has a string attribute `program`, the text that [`Graph::to_text`] gives; one list of inputs of dtype `T`, which
/// broadcast, one for each input of the graph; and one list of outputs of dtype `T`, one for each output.
pub struct ProgramKernel {
    arithmetic: Arithmetic,
    dtype: DType,
}

// Who forgets to implement the trait is not helped by hearing of this one.
#[diagnostic::do_not_recommend]
impl OpKernel for ProgramKernel {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let text: String = construction.attr("program")?;
        let graph = match Graph::parse(&text) {
            Ok(graph) => graph,
            Err(error) => {
                bail!(InvalidArgument for "program", "attribute `program` is not a program: {error}");
            }
        };
        ensure!(
            !graph.has_axes(),
            InvalidArgument for "program",
            "attribute `program` must be a function of each element: without folds, and with 1 for each input and output");
        Ok(ProgramKernel { arithmetic: Arithmetic::new(&graph), dtype: construction.attr("T")? })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        match self.dtype {
            DType::Float32 => self.run::<f32>(context),
            DType::Float64 => self.run::<f64>(context),
            DType::Float16 => self.run::<f16>(context),
            DType::BFloat16 => self.run::<bf16>(context),
            other => bail!(Internal, "no program computes with {other}"),
        }
    }
}

impl ProgramKernel {
    fn run<T: Stored>(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let inputs = context.input_list(0)?;
        let (wanted_inputs, wanted_outputs) = self.arithmetic.counts();
        let given = (inputs.len(), context.output_count(0)?);
        ensure!(
            given == (wanted_inputs, wanted_outputs),
            InvalidArgument,
            "the program has {} inputs and {} outputs, got {} and {}",
            wanted_inputs,
            wanted_outputs,
            given.0,
            given.1
        );
        let Some(shape) = broadcast_shape(inputs.iter().map(TensorView::shape)) else {
            let shapes: Vec<String> = inputs.iter().map(|input| format!("{:?}", input.shape())).collect();
            let shapes = shapes.join(", ");
            bail!(InvalidArgument, "expected inputs that broadcast to one shape, got {shapes}");
        };
        let made = (0..wanted_outputs).map(|output| context.allocate_output_at(0, output, &shape));
        let made = made.collect::<Result<Vec<TensorViewMut<'_>>>>()?;
        let sources = inputs.iter().map(|input| (input.data_ptr().cast::<T>(), input.layout()));
        let targets = made.iter().map(|output| (output.data_ptr().cast::<T>(), output.layout()));
        // SAFETY: the inputs are lent for the call, and have this dtype as the op says; the outputs were made for it alone.
        unsafe { each_element(&context.compute(), &self.arithmetic, &shape, sources, targets) }
    }
}
