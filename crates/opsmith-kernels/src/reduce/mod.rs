//! Reductions: computations over the rows of tensors, with folds, and their gradients.
//!
//! A row is the last `axes` dims, or, of an op that says so, any dims. What there is one of for each position broadcasts to all dims, what there is one of for
//! each row to the other dims. On the processor they are bodies over one axis, which stands for all dims of a row.

mod row_dims;

use std::marker::PhantomData;

use opsmith_body::{Axes, Graph, Kind};
use opsmith_core::family::{Family, Like};
use opsmith_core::kernel::Settled;
use opsmith_core::space::{Extents, Layout, Strides, broadcast_shape};
use opsmith_core::{
    AttrValue, DType, Explanation, InferenceContext, KernelDef, OpDef, OpKernel, OpKernelConstruction,
    OpKernelContext, Result, Shape, TensorView, TensorViewMut, bail,
};
use smallvec::SmallVec;

use self::row_dims::RowDims;
use crate::explain::{cuda_type, vectors};
use crate::facts::{OneBody, OutputShapes, shape_error};
use crate::nests::{Arguments, Dim, Lying, Placed, Runner, Space, StandIns};

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

/// The statement of the op, or of its gradient op of this order.
pub fn def<B: Reduction, const ORDER: usize>() -> OpDef {
    // Blocks of a card that share a long row leave what they find in temporary memory, so calls are not captured.
    let on_cuda = KernelDef::cuda::<ReductionKernel<B, ORDER>>();
    let kernels = [KernelDef::cpu::<ReductionKernel<B, ORDER>>().strided(), on_cuda];
    let reading = B::FACTS.reading(trace::<B>, &|output| B::OUTPUT_AXES[output] == B::INPUT_AXES[0]);
    let def = B::FACTS.def(ORDER, &reading, output_shapes::<B>, &kernels);
    let dims = |like| RowDims::parallel::<B>(like, &reading.saved).to_owned();
    let def = def.parallel(&B::FACTS.parallel(ORDER, &reading, dims));
    let def = RowDims::attrs(B::ANY_AXES).iter().fold(def, |def, attr| def.attr(attr));
    let def = def.explain(|construction| {
        let (graph, reading) = B::FACTS.derived(trace::<B>, construction, ORDER)?;
        explain(construction, graph, &B::FACTS.family(ORDER, &reading))
    });
    def.program(|construction| {
        let rows = RowDims::new(construction, B::ANY_AXES)?.told();
        B::FACTS.program(trace::<B>, construction, ORDER, Some(rows))
    })
}

fn trace<B: Reduction>(construction: &OpKernelConstruction<'_>) -> Result<Graph> {
    Ok(B::new(construction)?.trace())
}

fn explain(construction: &OpKernelConstruction<'_>, graph: Graph, family: &Family) -> Result<Explanation> {
    let dtype: DType = construction.attr("T")?;
    let signature = construction.signature();
    let Some(cuda) = cuda_type(dtype) else {
        bail!(Internal, "no body computes with {dtype}");
    };
    let inputs: Vec<&str> = family.inputs.iter().map(|input| input.name.as_str()).collect();
    let outputs: Vec<&str> = family.outputs.iter().map(|output| output.name.as_str()).collect();
    let graph = graph.with_names(&inputs, &outputs);
    let numbers = |names: &[&str]| vec![Kind::Number; names.len()];
    Ok(Explanation {
        formula: graph.formula(),
        cuda_source: graph.nests_cuda_source(
            &signature.snake_name(),
            cuda,
            (&numbers(&inputs), &numbers(&outputs)),
            0,
            true,
        ),
        vectors: vectors(dtype),
    })
}

/// The shapes of the forward op's outputs.
fn output_shapes<B: Reduction>(context: &mut InferenceContext<'_>, saved: &[Axes]) -> Result<Vec<Shape>> {
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
    Ok(B::OUTPUT_AXES.iter().chain(saved).map(shape).collect())
}

/// The kernel of a reduction's gradient of an order; of the reduction itself for order 0.
struct ReductionKernel<B, const ORDER: usize> {
    computation: Computation,
    body: PhantomData<fn() -> B>,
}

/// What an instance computes with, whatever the reduction.
struct Computation {
    runner: Runner,
    row_dims: RowDims,
    order: usize,
    family: Family,
    /// How often the forward op's inputs and outputs are there.
    kinds: (&'static [Axes], &'static [Axes]),
    /// The same for the outputs that are saved.
    saved: Vec<Axes>,
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

    fn settle(&self, context: &OpKernelContext<'_>) -> Option<Settled> {
        self.computation.settle(context)
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
    given: Option<GivenShapes>,
}

/// The shapes of arguments where any dims are a row.
struct GivenShapes {
    rows: Extents,
    all: Extents,
    /// The position in `all` of each dim of what is computed.
    order: Extents,
}

impl Computation {
    fn new<B: Reduction, const ORDER: usize>(construction: &OpKernelConstruction<'_>) -> Result<Computation> {
        let attrs = construction.signature().attrs.iter().map(|attr| construction.attr(&attr.name));
        let (graph, reading) = B::FACTS.derived(trace::<B>, construction, ORDER)?;
        Ok(Computation {
            runner: Runner::new(construction, graph, true)?,
            row_dims: RowDims::new(construction, B::ANY_AXES)?,
            order: ORDER,
            family: B::FACTS.family(ORDER, &reading),
            kinds: (B::INPUT_AXES, B::OUTPUT_AXES),
            saved: reading.saved,
            attrs: attrs.collect::<Result<_>>()?,
        })
    }

    /// Computes a call. It is not generic, so that it is compiled once, here, for all reductions.
    fn compute(&self, context: &OpKernelContext<'_>, output_shapes: OutputShapes) -> Result<()> {
        let Some(shapes) = self.shapes(context) else {
            let shapes = |context: &mut InferenceContext<'_>| output_shapes(context, &self.saved);
            return Err(shape_error(context, &self.attrs, &self.family, self.order, &shapes));
        };
        self.run(context, &shapes)
    }

    fn kind(&self, like: Like) -> Axes {
        match like {
            Like::Input(index) => self.kinds.0[index],
            Like::Output(index) => {
                let saved = || self.saved[index - self.kinds.1.len()];
                self.kinds.1.get(index).copied().unwrap_or_else(saved)
            }
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
                Shapes { inputs, rows, all, given: Some(GivenShapes { rows: given_rows, all: each, order }) }
            }
        };
        let fits = |(input, shape): (usize, &Option<&[usize]>)| {
            let like = self.family.inputs[input].like;
            shape.is_none_or(|shape| Some(shape) == shapes.like(like, self.kind(like)))
        };
        shapes.inputs.iter().enumerate().skip(self.kinds.0.len()).all(fits).then_some(shapes)
    }

    fn run(&self, context: &OpKernelContext<'_>, shapes: &Shapes<'_>) -> Result<()> {
        let mut inputs: SmallVec<[Option<TensorView<'_>>; 8]> = SmallVec::new();
        for input in 0..self.family.inputs.len() {
            inputs.push(context.optional_input(input)?);
        }
        let mut outputs: SmallVec<[Option<TensorViewMut<'_>>; 4]> = SmallVec::new();
        for output in 0..self.family.outputs.len() {
            let is_wanted = context.output_wanted(output)?;
            let made = is_wanted.then(|| context.allocate_output(output, self.output_shape(shapes, output)));
            outputs.push(made.transpose()?);
        }
        let made = |output: usize| Some(outputs[output].as_ref()?.as_view().into());
        let all = self.placed(shapes, |input| inputs[input].map(Lying::from), made);
        if all.wanted.is_empty() {
            return Ok(());
        }
        // SAFETY: tensors of these shapes and strides are lent for the call, and the outputs were made for it alone.
        unsafe {
            self.runner.run(context, &Space { dims: &shapes.dims(), axes: 1 }, &all.wanted, &all.placed)
        }
    }

    /// What is left to do of calls of the same shapes as this one, which went well.
    fn settle(&self, context: &OpKernelContext<'_>) -> Option<Settled> {
        let shapes = self.shapes(context)?;
        let inputs = self.family.inputs.len();
        let dtype = context.input(0).ok()?.dtype();
        let wanted = |output: usize| context.output_wanted(output).unwrap_or(false);
        let made = |output| wanted(output).then(|| self.output_shape(&shapes, output));
        let outputs = (0..self.family.outputs.len()).map(made);
        let stand_ins = StandIns::new(
            shapes.inputs.iter().copied().chain(outputs.clone()).map(|shape| Some((dtype, shape?.into()))),
        );
        let (input, output) = (|at| stand_ins.at(at), |at| stand_ins.at(inputs + at));
        let all = self.placed(&shapes, input, output);
        let outputs = outputs.enumerate().filter_map(|(output, shape)| Some((output, shape?.into())));
        self.runner.settle(&Space { dims: &shapes.dims(), axes: 1 }, &all, inputs, outputs)
    }

    fn output_shape<'a>(&self, shapes: &'a Shapes<'_>, output: usize) -> &'a [usize] {
        let like = self.family.outputs[output].like;
        shapes.like(like, self.kind(like)).unwrap_or_default()
    }

    /// Where the arguments of a call are, the inputs first, of each of which a function tells the tensor.
    fn placed<'t>(
        &self,
        shapes: &Shapes<'_>,
        input: impl Fn(usize) -> Option<Lying<'t>>,
        output: impl Fn(usize) -> Option<Lying<'t>>,
    ) -> Arguments {
        let mut all = Arguments::default();
        let place = |Lying { data, layout, .. }: Lying<'_>, like: Like| {
            shapes.placed(Operand { kind: self.kind(like), data, layout })
        };
        for (at, argument) in self.family.inputs.iter().enumerate() {
            all.tensors.push(at);
            all.placed.push(match input(at) {
                Some(tensor) => place(tensor, argument.like),
                None => Placed::absent(Kind::Number, shapes.all.len()),
            });
        }
        for (at, argument) in self.family.outputs.iter().enumerate() {
            if let Some(tensor) = output(at) {
                all.tensors.push(self.family.inputs.len() + all.wanted.len());
                all.wanted.push(at);
                all.placed.push(place(tensor, argument.like));
            }
        }
        all
    }
}

/// An argument that is there.
struct Operand<'a> {
    kind: Axes,
    data: *mut u8,
    layout: Layout<'a>,
}

impl Shapes<'_> {
    /// All dims, those of the rows first.
    fn dims(&self) -> SmallVec<[Dim; 8]> {
        let cut = self.rows.len();
        let dim = |(dim, &size): (usize, &usize)| Dim { size, axis: (dim >= cut).then_some(0) };
        self.all.iter().enumerate().map(dim).collect()
    }

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
        let GivenShapes { all, order, .. } = self.given.as_ref()?;
        let Layout { shape, strides } = operand.layout;
        let is_each = operand.kind == Axes::FIRST;
        if !is_each && shape.len() != all.len() {
            return None;
        }
        let dims = if is_each { order.as_slice() } else { &order[..self.rows.len()] };
        Some((dims.iter().map(|&dim| shape[dim]).collect(), dims.iter().map(|&dim| strides[dim]).collect()))
    }

    /// All that there is one of this kind for, in the order in which it is gone through.
    fn space(&self, kind: Axes) -> &[usize] {
        if kind == Axes::FIRST { &self.all } else { &self.rows }
    }

    /// An operand with its strides along all dims, 0 where it is repeated.
    fn placed(&self, operand: Operand<'_>) -> Placed {
        let turned = self.turned(&operand);
        let mut layout = turned.as_ref().map_or(operand.layout, |(shape, strides)| Layout { shape, strides });
        // What is empty has its dims too, whatever its strides are.
        let ones = Strides::from_elem(1, layout.shape.len());
        if layout.shape.contains(&0) {
            layout.strides = &ones;
        }
        // Shapes have been checked.
        let mut strides = layout.broadcast(self.space(operand.kind)).unwrap_or_default();
        strides.resize(self.all.len(), 0);
        Placed::new(operand.data, layout.shape, Kind::Number, strides)
    }
}
