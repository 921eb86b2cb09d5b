//! Reductions: computations over the rows of tensors, with folds, and their gradients.
//!
//! A row is the last `axes` dims. What there is one of for each position broadcasts to all dims, what there is one of for
//! each row to the other dims. Folds are in `folds`, with the bound on the error of sums; a gradient that is summed over
//! rows that share an input is computed in double precision, as in [`pointwise`](crate::pointwise).

mod folds;
mod lanes;
mod program;
mod run;

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use half::{bf16, f16};
use opsmith_body::{Graph, Kind};
use opsmith_core::family::{Family, Like};
use opsmith_core::tensor::Extents;
use opsmith_core::{
    AttrValue, DType, Explanation, InferenceContext, KernelDef, OpDef, OpKernel, OpKernelConstruction,
    OpKernelContext, Result, Shape, TensorViewMut, bail,
};
use smallvec::SmallVec;

use self::lanes::are_lanes;
use self::program::Program;
use self::run::{Task, is_long};
use crate::axes::{Layout, Space, broadcast_shape};
use crate::explain::{cuda_type, vectors};
use crate::facts::{OneBody, OutputShapes, shape_error};
use crate::operand::{Sink, Source};
use crate::pointwise::{Target, Totals};
use crate::stored::Stored;

/// A reduction that `#[reduce]` made.
pub trait Reduction: OneBody {
    /// How often each input of the op is there.
    const INPUT_KINDS: &'static [Kind];
    /// How often each output of the op is there.
    const OUTPUT_KINDS: &'static [Kind];
    /// What it computes.
    fn trace(&self) -> Graph;
}

/// The attribute that says how many of the last dims are a row.
const AXES: &str = "axes: int >= 1 = 1";
/// Up to how many positions of a row numbers are kept from pass to pass.
const KEEP: usize = 1 << 18;

/// The statement of the op, or of its gradient op of this order.
pub fn def<B: Reduction, const ORDER: usize>() -> OpDef {
    let kernel = KernelDef::cpu::<ReductionKernel<B, ORDER>>().strided();
    let def = B::FACTS.def(ORDER, output_shapes::<B>, &kernel).attr(AXES);
    def.explain(|construction| {
        explain(construction, graph::<B>(&B::new(construction)?, ORDER), &B::FACTS.family(ORDER))
    })
}

/// The graph of a reduction's gradient of an order.
fn graph<B: Reduction>(body: &B, order: usize) -> Graph {
    (0..order).fold(body.trace(), |graph, _| graph.gradient())
}

fn explain(construction: &OpKernelConstruction<'_>, graph: Graph, family: &Family) -> Result<Explanation> {
    let dtype: DType = construction.attr("T")?;
    let signature = construction.signature();
    let Some(cuda) = cuda_type(dtype) else {
        bail!(Internal, "{}: no body computes with {dtype}", signature.name);
    };
    let inputs: Vec<&str> = family.inputs.iter().map(|input| input.name.as_str()).collect();
    let outputs: Vec<&str> = family.outputs.iter().map(|output| output.name.as_str()).collect();
    let graph = graph.with_names(&inputs, &outputs);
    Ok(Explanation {
        formula: graph.formula(),
        cuda_source: graph.rows_cuda_source(&signature.snake_name(), cuda),
        vectors: vectors(dtype),
    })
}

/// The shapes of the forward op's outputs.
fn output_shapes<B: Reduction>(context: &mut InferenceContext<'_>) -> Result<Vec<Shape>> {
    let axes = context.get_int("axes")?;
    let inputs =
        |kind| B::INPUT_KINDS.iter().enumerate().filter(move |(_, k)| **k == kind).map(|(index, _)| index);
    let mut each: Option<Shape> = None;
    for index in inputs(Kind::Each) {
        let input = context.input(index)?;
        each = Some(match each {
            Some(each) => context.broadcast(&each, &input)?,
            None => input,
        });
    }
    let each = each.unwrap_or_else(Shape::unknown);
    if let Some(rank) = each.rank()
        && (rank as i64) < axes
    {
        let (name, dims) = (&context.signature().name, if rank == 1 { "dim" } else { "dims" });
        bail!(InvalidArgument, "{name}: `axes` is {axes}, but the inputs have only {rank} {dims}: {each}");
    }
    let mut rows = context.subshape(&each, 0, -axes)?;
    for index in inputs(Kind::One) {
        let input = context.input(index)?;
        rows = context.broadcast(&rows, &input)?;
    }
    let positions = context.subshape(&each, -axes, None)?;
    let all = context.concatenate(&rows, &positions);
    let shape = |kind: &Kind| if *kind == Kind::Each { all.clone() } else { rows.clone() };
    Ok(B::OUTPUT_KINDS.iter().map(shape).collect())
}

/// The kernel of a reduction's gradient of an order; of the reduction itself for order 0.
struct ReductionKernel<B, const ORDER: usize> {
    computation: Computation,
    body: PhantomData<fn() -> B>,
}

/// What an instance computes with, whatever the reduction.
struct Computation {
    graph: Graph,
    /// Of the wanted outputs, as bits, with and without numbers that are kept.
    programs: Mutex<Vec<(u64, bool, Arc<Program>)>>,
    dtype: DType,
    axes: usize,
    order: usize,
    family: Family,
    /// How often the forward op's inputs and outputs are there.
    kinds: (&'static [Kind], &'static [Kind]),
    /// All attributes, for messages.
    attrs: Vec<AttrValue>,
}

impl<B: Reduction, const ORDER: usize> OpKernel for ReductionKernel<B, ORDER> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let attrs = construction.signature().attrs.iter().map(|attr| construction.attr(&attr.name));
        let computation = Computation {
            graph: graph(&B::new(construction)?, ORDER),
            programs: Mutex::default(),
            dtype: construction.attr("T")?,
            axes: construction.attr("axes")?,
            order: ORDER,
            family: B::FACTS.family(ORDER),
            kinds: (B::INPUT_KINDS, B::OUTPUT_KINDS),
            attrs: attrs.collect::<Result<_>>()?,
        };
        Ok(ReductionKernel { computation, body: PhantomData })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        self.computation.compute(context, output_shapes::<B>)
    }
}

/// The shapes of a call.
struct Shapes<'a> {
    /// Of the inputs that are there.
    inputs: SmallVec<[Option<&'a [usize]>; 8]>,
    /// Of the rows, and of all positions.
    rows: Extents,
    all: Extents,
}

/// An operand of one of the two spaces, where it begins, and how often it is there.
struct Place<T> {
    data: *mut T,
    operand: usize,
    kind: Kind,
}

impl Computation {
    /// Computes a call. It is not generic, so that it is compiled once, here, for all reductions.
    fn compute(&self, context: &OpKernelContext<'_>, output_shapes: OutputShapes) -> Result<()> {
        let Some(shapes) = self.shapes(context) else {
            return Err(shape_error(context, &self.attrs, &self.family, self.order, output_shapes));
        };
        match self.dtype {
            DType::Float32 => self.run::<f32>(context, &shapes),
            DType::Float64 => self.run::<f64>(context, &shapes),
            DType::Float16 => self.run::<f16>(context, &shapes),
            DType::BFloat16 => self.run::<bf16>(context, &shapes),
            other => bail!(Internal, "{}: no body computes with {other}", context.signature().name),
        }
    }

    fn kind(&self, like: Like) -> Kind {
        match like {
            Like::Input(index) => self.kinds.0[index],
            Like::Output(index) => self.kinds.1[index],
        }
    }

    /// The shapes, if they fit.
    fn shapes<'a>(&self, context: &OpKernelContext<'a>) -> Option<Shapes<'a>> {
        let inputs: SmallVec<[Option<&[usize]>; 8]> =
            (0..self.family.inputs.len()).map(|input| context.input_shape(input).ok()).collect();
        let of_kind = |wanted: Kind| {
            let forward = inputs.iter().zip(self.kinds.0).filter(move |(_, kind)| **kind == wanted);
            forward.map(|(shape, _)| *shape).collect::<Option<SmallVec<[_; 8]>>>()
        };
        let each = broadcast_shape(of_kind(Kind::Each)?)?;
        let cut = each.len().checked_sub(self.axes)?;
        let rows = broadcast_shape(of_kind(Kind::One)?.into_iter().chain([&each[..cut]]))?;
        let all = rows.iter().chain(&each[cut..]).copied().collect();
        let shapes = Shapes { inputs, rows, all };
        let fits = |(input, shape): (usize, &Option<&[usize]>)| {
            let like = self.family.inputs[input].like;
            shape.is_none_or(|shape| Some(shape) == shapes.like(like, self.kind(like)))
        };
        shapes.inputs.iter().enumerate().skip(self.kinds.0.len()).all(fits).then_some(shapes)
    }

    /// The program of the wanted outputs.
    fn program(&self, wanted: &[usize], keep: bool) -> Arc<Program> {
        let bits = wanted.iter().fold(0, |bits, output| bits | 1 << output);
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, _, program)) = programs.iter().find(|known| (known.0, known.1) == (bits, keep)) {
            return program.clone();
        }
        let program = Arc::new(Program::new(&self.graph.with_outputs(wanted), keep));
        programs.push((bits, keep, program.clone()));
        program
    }

    fn run<T: Stored>(&self, context: &OpKernelContext<'_>, shapes: &Shapes<'_>) -> Result<()> {
        let mut wanted: SmallVec<[usize; 8]> = SmallVec::new();
        let mut views: SmallVec<[TensorViewMut<'_>; 8]> = SmallVec::new();
        for (output, argument) in self.family.outputs.iter().enumerate() {
            if context.output_wanted(output)? {
                let shape = shapes.like(argument.like, self.kind(argument.like)).unwrap_or_default();
                wanted.push(output);
                views.push(context.allocate_output(output, shape)?);
            }
        }
        let mut layouts: [SmallVec<[Layout<'_>; 8]>; 2] = Default::default();
        let mut place = |like: Like, data: *mut u8, layout| {
            let kind = self.kind(like);
            let own = &mut layouts[kind as usize];
            own.push(layout);
            Place::<T> { data: data.cast(), operand: own.len() - 1, kind }
        };
        let mut inputs: SmallVec<[Option<Place<T>>; 8]> = SmallVec::new();
        for (input, argument) in self.family.inputs.iter().enumerate() {
            let view = context.optional_input(input)?;
            inputs.push(view.map(|view| {
                let layout = Layout { shape: view.shape(), strides: view.strides() };
                place(argument.like, view.data_ptr().cast_mut(), layout)
            }));
        }
        let outputs: SmallVec<[Place<T>; 8]> = wanted
            .iter()
            .zip(&mut views)
            .map(|(&output, view)| {
                let data = view.data_ptr();
                let layout = Layout { shape: view.shape(), strides: view.strides() };
                place(self.family.outputs[output].like, data, layout)
            })
            .collect();
        let (cut, rows) = (shapes.rows.len(), Space::new(&shapes.rows, &layouts[0]));
        let length: usize = shapes.all[cut..].iter().product();
        let lanes = are_lanes(rows.len(), length);
        let positions = match lanes {
            true => Space::turned(&shapes.all, &layouts[1], cut),
            false => Space::new(&shapes.all, &layouts[1]),
        };
        let spaces = [rows, positions];
        let program = self.program(&wanted, length <= KEEP && !is_long(spaces[0].len(), length));
        // SAFETY: a tensor of this shape, and so of these strides, is lent for the call.
        let source = |place: &Option<Place<T>>| unsafe {
            place.as_ref().map(|place| Source::new(&spaces[place.kind as usize], place.operand, place.data))
        };
        let inputs: SmallVec<[Option<Source<T>>; 8]> = inputs.iter().map(source).collect();
        let target = |place: &Place<T>| {
            let (space, len) =
                (&spaces[place.kind as usize], layouts[place.kind as usize][place.operand].shape);
            let len = len.iter().product();
            // SAFETY: the output was made of this shape, dense, for this call alone.
            let target = unsafe {
                match len == space.len() {
                    true => Target::Elements(Sink::new(space, place.operand, place.data)),
                    false => Target::Sums(place.operand, Totals::new(place.data, len)),
                }
            };
            (target, place.kind == Kind::One)
        };
        let outputs: SmallVec<[(Target<T>, bool); 8]> = outputs.iter().map(target).collect();
        let [rows, positions] = &spaces;
        let task =
            Task { program: &program, positions, rows, length, lanes, inputs: &inputs, outputs: &outputs };
        task.run(&context.compute())
    }
}

impl Shapes<'_> {
    /// The shape that an argument must have, if it is known.
    fn like(&self, like: Like, kind: Kind) -> Option<&[usize]> {
        match (like, kind) {
            (Like::Input(input), _) => self.inputs[input],
            (Like::Output(_), Kind::Each) => Some(&self.all),
            (Like::Output(_), Kind::One) => Some(&self.rows),
        }
    }
}
