//! Reductions: computations over the rows of tensors, with folds, and their gradients.
//!
//! A row is the last `axes` dims, or, of an op that says so, any dims. What there is one of for each position broadcasts to all dims, what there is one of for
//! each row to the other dims. Folds are in `folds`, with the bound on the error of sums; a gradient that is summed over
//! rows that share an input is computed in double precision, as in [`pointwise`](crate::pointwise).

mod across;
mod batch;
mod cuda;
mod folds;
mod lanes;
mod program;
mod row_dims;
mod run;

use std::marker::PhantomData;
use std::sync::Arc;

use half::{bf16, f16};
use opsmith_body::{Axes, Graph};
use opsmith_core::family::{Family, Like};
use opsmith_core::fork::Mutex;
use opsmith_core::tensor::{Extents, Strides};
use opsmith_core::{
    AttrValue, DType, Explanation, InferenceContext, KernelDef, OpDef, OpKernel, OpKernelConstruction,
    OpKernelContext, Result, Shape, TensorViewMut, bail,
};
use smallvec::SmallVec;

use self::across::{are_across, may_be_across};
use self::lanes::are_lanes;
use self::program::Program;
use self::row_dims::RowDims;
use self::run::{Task, is_long};
use crate::axes::{Layout, Space, broadcast_shape};
use crate::explain::{cuda_type, vectors};
use crate::facts::{OneBody, OutputShapes, shape_error};
use crate::operand::{Sink, Source};
use crate::pointwise::{Target, Totals};
use crate::stored::Stored;

/// A reduction that `#[reduce]` made.
pub trait Reduction: OneBody {
    /// Whether any dims can be a row, and not only the last ones. Such a reduction has one input.
    const ANY_AXES: bool;
    /// How often each input of the op is there.
    const INPUT_AXES: &'static [Axes];
    /// How often each output of the op is there.
    const OUTPUT_AXES: &'static [Axes];
    /// What it computes.
    fn trace(&self) -> Graph;
}

/// Up to how many positions of a row numbers are kept from pass to pass.
const KEEP: usize = 1 << 18;

/// The statement of the op, or of its gradient op of this order.
pub fn def<B: Reduction, const ORDER: usize>() -> OpDef {
    let on_cpu = KernelDef::cpu::<ReductionKernel<B, ORDER>>().strided();
    let on_cuda = KernelDef::cuda::<cuda::CudaKernel<B, ORDER>>();
    // A gradient may sum in temporary memory; the op itself needs none.
    let kernels = [on_cpu, if ORDER == 0 { on_cuda.capturable() } else { on_cuda }];
    let def = B::FACTS.def(ORDER, output_shapes::<B>, &kernels);
    let def = def.parallel(&B::FACTS.parallel(ORDER, |like| RowDims::parallel::<B>(like).to_owned()));
    RowDims::attrs(B::ANY_AXES).iter().fold(def, |def, attr| def.attr(attr)).explain(|construction| {
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
        program: None,
    })
}

/// The shapes of the forward op's outputs.
fn output_shapes<B: Reduction>(context: &mut InferenceContext<'_>) -> Result<Vec<Shape>> {
    let inputs =
        |kind| B::INPUT_AXES.iter().enumerate().filter(move |(_, k)| **k == kind).map(|(index, _)| index);
    let mut each: Option<Shape> = None;
    for index in inputs(Axes::FIRST) {
        let input = context.input(index)?;
        each = Some(match each {
            Some(each) => context.broadcast(&each, &input)?,
            None => input,
        });
    }
    let each = each.unwrap_or_else(Shape::unknown);
    let (mut rows, positions) = row_dims::split(context, &each, B::ANY_AXES)?;
    for index in inputs(Axes::NONE) {
        let input = context.input(index)?;
        rows = context.broadcast(&rows, &input)?;
    }
    let all = match positions {
        Some(positions) => context.concatenate(&rows, &positions),
        None => each,
    };
    let shape = |kind: &Axes| if *kind == Axes::FIRST { all.clone() } else { rows.clone() };
    Ok(B::OUTPUT_AXES.iter().map(shape).collect())
}

/// The kernel of a reduction's gradient of an order; of the reduction itself for order 0.
struct ReductionKernel<B, const ORDER: usize> {
    computation: Computation,
    body: PhantomData<fn() -> B>,
}

/// Which program: the wanted outputs, as bits, whether numbers are kept, and whether rows are lanes.
type Variant = (u64, bool, bool);

/// What an instance computes with, whatever the reduction.
struct Computation {
    graph: Graph,
    programs: Mutex<Vec<(Variant, Arc<Program>)>>,
    dtype: DType,
    row_dims: RowDims,
    order: usize,
    family: Family,
    /// How often the forward op's inputs and outputs are there.
    kinds: (&'static [Axes], &'static [Axes]),
    /// All attributes, for messages.
    attrs: Vec<AttrValue>,
}

impl<B: Reduction, const ORDER: usize> OpKernel for ReductionKernel<B, ORDER> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(ReductionKernel { computation: Computation::new::<B, ORDER>(construction)?, body: PhantomData })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        self.computation.compute(context, output_shapes::<B>)
    }
}

/// The shapes of a call.
struct Shapes<'a> {
    /// Of the inputs that are there.
    inputs: SmallVec<[Option<&'a [usize]>; 8]>,
    /// Of the rows, and of all positions: the rows' dims, then those of a row.
    rows: Extents,
    all: Extents,
    /// The same as arguments have them, if that is otherwise.
    given: Option<Given>,
}

/// The shapes of arguments where any dims are a row.
struct Given {
    rows: Extents,
    all: Extents,
    /// The position in `all` of each dim of what is computed.
    order: Extents,
}

/// An operand of one of the two spaces, where it begins, and how often it is there.
struct Place<T> {
    data: *mut T,
    operand: usize,
    kind: Axes,
}

impl Computation {
    fn new<B: Reduction, const ORDER: usize>(construction: &OpKernelConstruction<'_>) -> Result<Computation> {
        let attrs = construction.signature().attrs.iter().map(|attr| construction.attr(&attr.name));
        Ok(Computation {
            graph: graph(&B::new(construction)?, ORDER),
            programs: Mutex::default(),
            dtype: construction.attr("T")?,
            row_dims: RowDims::new(construction, B::ANY_AXES)?,
            order: ORDER,
            family: B::FACTS.family(ORDER),
            kinds: (B::INPUT_AXES, B::OUTPUT_AXES),
            attrs: attrs.collect::<Result<_>>()?,
        })
    }

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

    fn kind(&self, like: Like) -> Axes {
        match like {
            Like::Input(index) => self.kinds.0[index],
            Like::Output(index) => self.kinds.1[index],
        }
    }

    /// The shapes, if they fit.
    fn shapes<'a>(&self, context: &OpKernelContext<'a>) -> Option<Shapes<'a>> {
        let inputs: SmallVec<[Option<&[usize]>; 8]> =
            (0..self.family.inputs.len()).map(|input| context.input_shape(input).ok()).collect();
        let of_kind = |wanted: Axes| {
            let forward = inputs.iter().zip(self.kinds.0).filter(move |(_, kind)| **kind == wanted);
            forward.map(|(shape, _)| *shape).collect::<Option<SmallVec<[_; 8]>>>()
        };
        let each = broadcast_shape(of_kind(Axes::FIRST)?)?;
        let shapes = match &self.row_dims {
            RowDims::Last(axes) => {
                let cut = each.len().checked_sub(*axes)?;
                let rows = broadcast_shape(of_kind(Axes::NONE)?.into_iter().chain([&each[..cut]]))?;
                let all = rows.iter().chain(&each[cut..]).copied().collect();
                Shapes { inputs, rows, all, given: None }
            }
            RowDims::Any { axes, keep } => {
                let is_row = row_dims::marks(axes, each.len())?;
                let order: Extents = row_dims::turned(&is_row).collect();
                let all: Extents = order.iter().map(|&dim| each[dim]).collect();
                let cut = is_row.iter().filter(|is_row| !**is_row).count();
                let rows = Extents::from_slice(&all[..cut]);
                let given_rows = match keep {
                    true => {
                        each.iter().zip(&is_row).map(|(&dim, is_row)| if *is_row { 1 } else { dim }).collect()
                    }
                    false => rows.clone(),
                };
                Shapes { inputs, rows, all, given: Some(Given { rows: given_rows, all: each, order }) }
            }
        };
        let fits = |(input, shape): (usize, &Option<&[usize]>)| {
            let like = self.family.inputs[input].like;
            shape.is_none_or(|shape| Some(shape) == shapes.like(like, self.kind(like)))
        };
        shapes.inputs.iter().enumerate().skip(self.kinds.0.len()).all(fits).then_some(shapes)
    }

    /// The program of the wanted outputs.
    fn program(&self, wanted: &[usize], keep: bool, lanes: bool) -> Arc<Program> {
        let bits = wanted.iter().fold(0, |bits, output| bits | 1 << output);
        let key = (bits, keep, lanes);
        let find = |programs: &[(Variant, Arc<Program>)]| {
            programs.iter().find(|(known, _)| *known == key).map(|(_, program)| program.clone())
        };
        if let Some(program) = find(&self.programs.lock()) {
            return program;
        }
        let program = Arc::new(Program::new(&self.graph.with_outputs(wanted), keep, lanes));
        let mut programs = self.programs.lock();
        // Another thread may have made an equal one meanwhile.
        if find(&programs).is_none() {
            programs.push((key, program.clone()));
        }
        program
    }

    /// The outputs that are wanted, made.
    fn outputs<'a>(&self, context: &'a OpKernelContext<'_>, shapes: &Shapes<'_>) -> Result<Made<'a>> {
        let mut made = Made::default();
        for (output, argument) in self.family.outputs.iter().enumerate() {
            if context.output_wanted(output)? {
                let shape = shapes.like(argument.like, self.kind(argument.like)).unwrap_or_default();
                made.0.push(output);
                made.1.push(context.allocate_output(output, shape)?);
            }
        }
        Ok(made)
    }

    /// The inputs, of which some may be absent, then the outputs.
    fn operands<'a>(
        &self,
        context: &OpKernelContext<'a>,
        wanted: &[usize],
        views: &'a [TensorViewMut<'_>],
    ) -> Result<SmallVec<[Option<Operand<'a>>; 8]>> {
        let mut operands: SmallVec<[Option<Operand<'_>>; 8]> = SmallVec::new();
        for (input, argument) in self.family.inputs.iter().enumerate() {
            let kind = self.kind(argument.like);
            operands.push(context.optional_input(input)?.map(|view| {
                let layout = Layout { shape: view.shape(), strides: view.strides() };
                Operand { kind, data: view.data_ptr().cast_mut(), layout }
            }));
        }
        for (&output, view) in wanted.iter().zip(views) {
            let layout = Layout { shape: view.shape(), strides: view.strides() };
            let kind = self.kind(self.family.outputs[output].like);
            operands.push(Some(Operand { kind, data: view.data_ptr(), layout }));
        }
        Ok(operands)
    }

    fn run<T: Stored>(&self, context: &OpKernelContext<'_>, shapes: &Shapes<'_>) -> Result<()> {
        let (wanted, views) = self.outputs(context, shapes)?;
        let operands = self.operands(context, &wanted, &views)?;
        let turned: SmallVec<[Option<(Extents, Strides)>; 8]> =
            operands.iter().map(|operand| shapes.turned(operand.as_ref()?)).collect();
        let mut layouts: [SmallVec<[Layout<'_>; 8]>; 2] = Default::default();
        let mut places: SmallVec<[Option<Place<T>>; 16]> = SmallVec::new();
        for (operand, turned) in operands.iter().zip(&turned) {
            places.push(operand.as_ref().map(|&Operand { kind, data, layout }| {
                let own = &mut layouts[kind.len()];
                own.push(turned.as_ref().map_or(layout, |(shape, strides)| Layout { shape, strides }));
                Place { data: data.cast(), operand: own.len() - 1, kind }
            }));
        }
        let (inputs, outputs) = places.split_at(self.family.inputs.len());
        let (cut, rows) = (shapes.rows.len(), Space::new(&shapes.rows, &layouts[0]));
        let length: usize = shapes.all[cut..].iter().product();
        let lanes = are_lanes(rows.len(), length);
        let mut positions = match lanes {
            true => Space::turned(&shapes.all, &layouts[1], cut),
            false => Space::new(&shapes.all, &layouts[1]),
        };
        let mut across = false;
        if !lanes && may_be_across(rows.len()) && !is_summed(outputs, &layouts, shapes) {
            let turned = Space::turned(&shapes.all, &layouts[1], cut);
            across = are_across(&positions, &turned, layouts[1].len());
            positions = if across { turned } else { positions };
        }
        let spaces = [rows, positions];
        let keep = length <= KEEP && !is_long(spaces[0].len(), length) && !across;
        let program = self.program(&wanted, keep, lanes);
        // SAFETY: a tensor of this shape, and so of these strides, is lent for the call.
        let source = |place: &Option<Place<T>>| unsafe {
            place.as_ref().map(|place| Source::new(&spaces[place.kind.len()], place.operand, place.data))
        };
        let inputs: SmallVec<[Option<Source<T>>; 8]> = inputs.iter().map(source).collect();
        let target = |place: &Place<T>| {
            let (space, len) = (&spaces[place.kind.len()], layouts[place.kind.len()][place.operand].shape);
            let len = len.iter().product();
            // SAFETY: the output was made of this shape, dense, for this call alone.
            let target = unsafe {
                match len == space.len() {
                    true => Target::Elements(Sink::new(space, place.operand, place.data)),
                    false => Target::Sums(place.operand, Totals::new(place.data, len)),
                }
            };
            (target, place.kind == Axes::NONE)
        };
        let outputs: SmallVec<[(Target<T>, bool); 8]> = outputs.iter().flatten().map(target).collect();
        let [rows, positions] = &spaces;
        let task = Task {
            program: &program,
            positions,
            rows,
            length,
            lanes,
            across,
            inputs: &inputs,
            outputs: &outputs,
        };
        task.run(&context.compute())
    }
}

/// The positions of the outputs that are made, and their tensors.
type Made<'a> = (SmallVec<[usize; 8]>, SmallVec<[TensorViewMut<'a>; 8]>);

/// Whether an output has fewer elements than are computed for it, and their sums.
fn is_summed<T>(
    outputs: &[Option<Place<T>>],
    layouts: &[SmallVec<[Layout<'_>; 8]>; 2],
    shapes: &Shapes<'_>,
) -> bool {
    let count = |shape: &[usize]| shape.iter().product::<usize>();
    let all = [count(&shapes.rows), count(&shapes.all)];
    let own = |place: &Place<T>| count(layouts[place.kind.len()][place.operand].shape);
    outputs.iter().flatten().any(|place| own(place) != all[place.kind.len()])
}

/// An argument that is there.
struct Operand<'a> {
    kind: Axes,
    data: *mut u8,
    layout: Layout<'a>,
}

impl Shapes<'_> {
    /// The shape that an argument must have, if it is known.
    fn like(&self, like: Like, kind: Axes) -> Option<&[usize]> {
        let (rows, all) = match &self.given {
            Some(given) => (&given.rows, &given.all),
            None => (&self.rows, &self.all),
        };
        match (like, kind) {
            (Like::Input(input), _) => self.inputs[input],
            (Like::Output(_), kind) => Some(if kind.is_empty() { rows } else { all }),
        }
    }

    /// Dims and strides of an operand in the order in which they are gone through, where that is not its own.
    fn turned(&self, operand: &Operand<'_>) -> Option<(Extents, Strides)> {
        let Given { all, order, .. } = self.given.as_ref()?;
        let Layout { shape, strides } = operand.layout;
        let is_each = operand.kind == Axes::FIRST;
        if !is_each && shape.len() != all.len() {
            return None;
        }
        let dims = if is_each { order.as_slice() } else { &order[..self.rows.len()] };
        Some((dims.iter().map(|&dim| shape[dim]).collect(), dims.iter().map(|&dim| strides[dim]).collect()))
    }
}
