//! Pointwise ops: a body applied to every element of inputs that broadcast, and its gradients.
//!
//! The gradient of an input that is smaller than the shape that all inputs broadcast to is summed over the dims along
//! which it was repeated. Numbers are added up in double precision: those of fixed parts of the space first, then the
//! parts in their order. So results are the same for any number of threads, and a sum of n float32 numbers is within
//! 2⁻²⁴ of its value plus n · 2⁻⁵³ of the sum of their magnitudes; of float64 numbers within n · 2⁻⁵³ of the latter.

mod cuda;
mod few;
mod program;
mod run;
mod whole;

use std::marker::PhantomData;
use std::sync::Arc;

use half::{bf16, f16};
use opsmith_body::{Axes, BLOCK, Graph};
use opsmith_core::family::{Family, FamilyArgument, Like};
use opsmith_core::kernel::Settled;
use opsmith_core::space::{Extents, IndexSpace, Layout, broadcast_shape};
use opsmith_core::tensor::checked_num_elements;
use opsmith_core::{
    Compute, DType, Explanation, InferenceContext, KernelDef, OpDef, OpKernel, OpKernelConstruction,
    OpKernelContext, Result, Shape, TensorViewMut, bail,
};
use smallvec::SmallVec;

use crate::arithmetic::{Arithmetic, MOST_FEW};
use crate::explain::{cuda_type, vectors};
use crate::facts::{Facts, OneBody, OutputShapes, Trace, shape_error};
use crate::kept::{Kept, Presence};
use crate::operand::{Sink, Source};
use crate::stored::Stored;
pub use program::ProgramKernel;
use run::Task;
pub(crate) use run::{Target, Totals, each_element};

/// A body that `#[pointwise]` made.
pub trait Pointwise: OneBody {
    /// What it computes.
    fn trace(&self) -> Graph;
}

/// The statement of the op, or of its gradient op of this order.
pub fn def<B: Pointwise, const ORDER: usize>() -> OpDef {
    let on_cpu = KernelDef::cpu::<PointwiseKernel<B, ORDER>>().strided();
    let on_cuda = KernelDef::cuda::<cuda::CudaKernel<B, ORDER>>();
    // A gradient may sum in temporary memory; the op itself needs none.
    let kernels = [on_cpu, if ORDER == 0 { on_cuda.capturable() } else { on_cuda }];
    stated(&B::FACTS, trace::<B>, ORDER, output_shapes::<B>, &kernels)
}

/// It is not generic, so that it is compiled once, here, for all bodies.
fn stated(
    facts: &'static Facts,
    trace: Trace,
    order: usize,
    output_shapes: OutputShapes,
    kernels: &[KernelDef],
) -> OpDef {
    let reading = facts.reading(trace, &|_| true);
    let def = facts.def(order, &reading, output_shapes, kernels);
    let def = def.parallel(&facts.parallel(order, &reading, |_| "(...)".to_owned()));
    let def = def.explain(move |construction| {
        let (graph, reading) = facts.derived(trace, construction, order)?;
        explain(construction, graph, &facts.family(order, &reading))
    });
    def.program(move |construction| facts.program(trace, construction, order, None))
}

fn trace<B: Pointwise>(construction: &OpKernelConstruction<'_>) -> Result<Graph> {
    Ok(B::new(construction)?.trace())
}

/// Explains an op of a family.
fn explain(construction: &OpKernelConstruction<'_>, graph: Graph, family: &Family) -> Result<Explanation> {
    let dtype: DType = construction.attr("T")?;
    let signature = construction.signature();
    let Some(cuda) = cuda_type(dtype) else {
        bail!(Internal, "no body computes with {dtype}");
    };
    let names = |arguments: &[FamilyArgument]| -> Vec<String> {
        arguments.iter().map(|argument| argument.name.clone()).collect()
    };
    let (inputs, outputs) = (names(&family.inputs), names(&family.outputs));
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
    let graph = graph.with_names(&inputs, &outputs);
    Ok(Explanation {
        formula: graph.formula(),
        cuda_source: graph.cuda_source(&signature.snake_name(), cuda, 0),
        vectors: vectors(dtype),
    })
}

/// Every output has the shape that the inputs broadcast to.
fn output_shapes<B: OneBody>(context: &mut InferenceContext<'_>, _: &[Axes]) -> Result<Vec<Shape>> {
    broadcast(&B::FACTS, context)
}

fn broadcast(facts: &Facts, context: &mut InferenceContext<'_>) -> Result<Vec<Shape>> {
    let mut shape = context.input(0)?;
    for index in 1..facts.inputs.len() {
        let input = context.input(index)?;
        shape = context.broadcast(&shape, &input)?;
    }
    Ok(vec![shape; facts.outputs.len()])
}

/// The kernel of a body's gradient of an order; of the body itself for order 0.
struct PointwiseKernel<B, const ORDER: usize> {
    computation: Computation,
    body: PhantomData<fn() -> B>,
}

/// What an instance computes with, whatever the body.
struct Computation {
    arithmetic: Arc<Arithmetic>,
    /// What calls are computed with that do not have or want all.
    parts: Kept<Presence, Arithmetic>,
    dtype: DType,
    /// How many inputs the forward op has.
    forward_inputs: usize,
    order: usize,
    family: Family,
}

impl<B: Pointwise, const ORDER: usize> OpKernel for PointwiseKernel<B, ORDER> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let computation = Computation::new(&B::FACTS, trace::<B>, construction, ORDER)?;
        Ok(PointwiseKernel { computation, body: PhantomData })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        self.computation.compute(context, output_shapes::<B>)
    }

    fn settle(&self, context: &OpKernelContext<'_>) -> Option<Settled> {
        self.computation.settle(context)
    }
}

/// The shapes of a call.
struct Shapes<'a> {
    /// Of the inputs that are there.
    inputs: SmallVec<[Option<&'a [usize]>; 8]>,
    /// What the inputs of the forward op broadcast to.
    all: Extents,
}

impl Computation {
    fn new(
        facts: &Facts,
        trace: Trace,
        construction: &OpKernelConstruction<'_>,
        order: usize,
    ) -> Result<Computation> {
        let (graph, reading) = facts.derived(trace, construction, order)?;
        Ok(Computation {
            arithmetic: Arc::new(Arithmetic::new(&graph)),
            parts: Kept::default(),
            dtype: construction.attr("T")?,
            forward_inputs: facts.inputs.len(),
            order,
            family: facts.family(order, &reading),
        })
    }

    /// Computes a call. It is not generic, so that it is compiled once, here, for all bodies.
    fn compute(&self, context: &OpKernelContext<'_>, output_shapes: OutputShapes) -> Result<()> {
        let Some(shapes) = Shapes::of(context, &self.family, self.forward_inputs) else {
            let shapes = |context: &mut InferenceContext<'_>| output_shapes(context, &[]);
            return Err(shape_error(context, &[], &self.family, self.order, &shapes));
        };
        match self.dtype {
            DType::Float32 => self.run::<f32>(context, &shapes),
            DType::Float64 => self.run::<f64>(context, &shapes),
            DType::Float16 => self.run::<f16>(context, &shapes),
            DType::BFloat16 => self.run::<bf16>(context, &shapes),
            other => bail!(Internal, "no body computes with {other}"),
        }
    }

    fn run<T: Stored>(&self, context: &OpKernelContext<'_>, shapes: &Shapes<'_>) -> Result<()> {
        let given = Presence::of(context, &shapes.inputs)?;
        let part;
        let arithmetic = match self.part(given) {
            None => &self.arithmetic,
            Some(own) => {
                part = own;
                &part
            }
        };
        if given.wanted == 0 || self.few::<T>(context, shapes, (given, arithmetic))? {
            return Ok(());
        }
        let made = self.outputs(context, shapes, given)?;
        let mut layouts: SmallVec<[Layout<'_>; 16]> = SmallVec::new();
        let mut inputs: SmallVec<[Option<OperandStart<T>>; 8]> = SmallVec::new();
        for input in 0..shapes.inputs.len() {
            let is_it = |output: &&Output<'_>| output.made_of == Some(input);
            let (data, layout) = match made.iter().find(is_it) {
                // It can no longer be read as an input, but it is where the output is.
                Some(Output { view, .. }) => (view.data_ptr().cast_const(), view.layout()),
                None => match context.optional_input(input)? {
                    Some(view) => (view.data_ptr(), view.layout()),
                    None => {
                        inputs.push(None);
                        continue;
                    }
                },
            };
            inputs.push(Some(OperandStart { data: data.cast_mut().cast(), operand: layouts.len() }));
            layouts.push(layout);
        }
        let mut outputs: SmallVec<[OperandStart<T>; 8]> = SmallVec::new();
        for output in &made {
            outputs.push(OperandStart { data: output.view.data_ptr().cast(), operand: layouts.len() });
            layouts.push(output.view.layout());
        }
        let mut space = IndexSpace::with_room(shapes.all.len(), layouts.len());
        space.add(&shapes.all, &layouts)?;
        let operands = Operands { space: &space, layouts: &layouts, inputs: &inputs, outputs: &outputs };
        let run = |part: &IndexSpace, begin: usize| operands.run(arithmetic, &context.compute(), part, begin);
        match (!operands.has_sums()).then(|| space.columns(BLOCK)).flatten() {
            None => run(&space, 0),
            Some(parts) => parts.iter().try_for_each(|(part, begin)| run(part, *begin)),
        }
    }

    /// What a call is computed with that does not have or want all.
    fn part(&self, given: Presence) -> Option<Arc<Arithmetic>> {
        let is_all = given == Presence::all(self.family.outputs.len());
        (!is_all).then(|| self.parts.get(given, |given| self.arithmetic.part(*given)))
    }

    /// What is left to do of calls of the same shapes as this one, which went well.
    fn settle(&self, context: &OpKernelContext<'_>) -> Option<Settled> {
        // It is asked after each call that is not settled, so what is not for it is told soon.
        let len = |input| context.input_shape(input).map_or(Some(0), checked_num_elements);
        let is_large = |input| len(input).is_none_or(|len| len > BLOCK);
        let counts = self.arithmetic.counts();
        if counts.0 > MOST_FEW.0 || counts.1 > MOST_FEW.1 || (0..counts.0).any(is_large) {
            return None;
        }
        let shapes = Shapes::of(context, &self.family, self.forward_inputs)?;
        let given = Presence::of(context, &shapes.inputs).ok()?;
        let arithmetic = self.part(given).unwrap_or_else(|| self.arithmetic.clone());
        match self.dtype {
            DType::Float32 => self.settled::<f32>(&shapes, (given, &arithmetic)),
            DType::Float64 => self.settled::<f64>(&shapes, (given, &arithmetic)),
            DType::Float16 => self.settled::<f16>(&shapes, (given, &arithmetic)),
            DType::BFloat16 => self.settled::<bf16>(&shapes, (given, &arithmetic)),
            _ => None,
        }
    }

    /// The outputs that are wanted, in the memory of inputs where that is given away.
    fn outputs<'a>(
        &self,
        context: &'a OpKernelContext<'_>,
        shapes: &Shapes<'_>,
        given: Presence,
    ) -> Result<SmallVec<[Output<'a>; 4]>> {
        let candidates: SmallVec<[usize; 16]> = (0..shapes.inputs.len()).collect();
        let mut outputs = SmallVec::new();
        for (index, argument) in self.family.outputs.iter().enumerate() {
            if !given.is_wanted(index) {
                continue;
            }
            let shape = shapes.like(argument.like).unwrap_or_default();
            // What is summed up is written while inputs are still read.
            let whole = shape.iter().product::<usize>() == shapes.all.iter().product::<usize>();
            let candidates = if whole { candidates.as_slice() } else { &[] };
            let (view, made_of) = context.forward_input_or_allocate_output(candidates, index, shape)?;
            outputs.push(Output { view, made_of });
        }
        Ok(outputs)
    }
}

/// An output that has been made, and the input whose memory it has.
struct Output<'a> {
    view: TensorViewMut<'a>,
    made_of: Option<usize>,
}

/// Where an operand of a space begins.
struct OperandStart<T> {
    data: *mut T,
    operand: usize,
}

/// The operands of a call in the space of its elements.
struct Operands<'a, T> {
    space: &'a IndexSpace,
    layouts: &'a [Layout<'a>],
    inputs: &'a [Option<OperandStart<T>>],
    outputs: &'a [OperandStart<T>],
}

impl<T: Stored> Operands<'_, T> {
    fn len_of(&self, output: &OperandStart<T>) -> usize {
        self.layouts[output.operand].shape.iter().product()
    }

    /// Whether an output is summed up.
    fn has_sums(&self) -> bool {
        self.outputs.iter().any(|output| self.len_of(output) != self.space.len())
    }

    /// Computes a part of the space, which begins at a position along the last dim.
    fn run(
        &self,
        arithmetic: &Arithmetic,
        compute: &Compute<'_>,
        part: &IndexSpace,
        begin: usize,
    ) -> Result<()> {
        let start = |of: &OperandStart<T>| {
            let behind = self.space.steps([of.operand])[0] * begin as isize;
            (of.operand, of.data.wrapping_offset(behind))
        };
        let source = |place: &Option<OperandStart<T>>| {
            let (operand, data) = start(place.as_ref()?);
            // SAFETY: a tensor of this shape, and so of these strides, is lent for the call; one that has become an
            // output is of the space's shape, so its block is written after it has been read.
            Some(unsafe { Source::new(part, operand, data) })
        };
        let inputs: SmallVec<[Option<Source<T>>; 8]> = self.inputs.iter().map(source).collect();
        let target = |output: &OperandStart<T>| {
            let ((operand, data), len) = (start(output), self.len_of(output));
            // SAFETY: the output was made of this shape, dense, for this call alone.
            unsafe {
                match len == self.space.len() {
                    true => Target::Elements(Sink::new(part, operand, data)),
                    false => Target::Sums(operand, Totals::new(data, len)),
                }
            }
        };
        let outputs: SmallVec<[Target<T>; 8]> = self.outputs.iter().map(target).collect();
        Task { arithmetic, space: part, inputs: &inputs, outputs: &outputs }.run(compute)
    }
}

impl<'a> Shapes<'a> {
    /// The shapes, if they fit. It does not count as reading the inputs, whose memory may become outputs'.
    fn of(context: &OpKernelContext<'a>, family: &Family, forward_inputs: usize) -> Option<Shapes<'a>> {
        // Filled where it lies: a collected one would be copied.
        let mut inputs: SmallVec<[Option<&[usize]>; 8]> = SmallVec::new();
        inputs.extend((0..family.inputs.len()).map(|input| context.input_shape(input).ok()));
        let forward = &inputs[..forward_inputs];
        if forward.iter().any(Option::is_none) {
            return None;
        }
        let shapes = Shapes { all: broadcast_shape(forward.iter().flatten().copied())?, inputs };
        let fits = |(input, shape): (usize, &Option<&[usize]>)| {
            shape.is_none_or(|shape| Some(shape) == shapes.like(family.inputs[input].like))
        };
        shapes.inputs.iter().enumerate().skip(forward_inputs).all(fits).then_some(shapes)
    }

    /// The shape that an argument must have, if it is known.
    fn like(&self, like: Like) -> Option<&[usize]> {
        match like {
            Like::Input(input) => self.inputs[input],
            Like::Output(_) => Some(&self.all),
        }
    }
}
