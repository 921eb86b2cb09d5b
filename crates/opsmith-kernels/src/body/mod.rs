//! Bodies over named axes, and their gradients: [`Nests`](opsmith_body::Nests) of loops run over tensors.
//!
//! Every argument may have dims before those of its axes, which broadcast. In a call they are axes too, as few as the strides allow;
//! the gradient of an input that is the same along some of them is summed over those.

mod check;
mod free;
mod program;
mod shapes;

use std::borrow::Cow;
use std::marker::PhantomData;

use opsmith_body::{Axes, Axis, Graph, Kind, MOST_SMALLEST};
use opsmith_core::family::{Family, FamilyArgument, Like};
use opsmith_core::kernel::Settled;
use opsmith_core::tensor::Extents;
use opsmith_core::{
    AttrValue, DType, Explanation, InferenceContext, KernelDef, OpDef, OpKernel, OpKernelConstruction,
    OpKernelContext, Program, Result, TensorView, TensorViewMut, bail, ensure,
};
use smallvec::SmallVec;

use self::check::{check, check_taken, own_sizes};
pub use self::program::AxesKernel;
use self::shapes::{Call, Piece, output_shapes};
use crate::explain::{cuda_type, vectors};
use crate::facts::{Facts, OneBody, OutputShapes, Trace, shape_error};
use crate::nests::{self, Lying, Placed, Runner, Space, StandIns};

/// A body that `#[body]` made.
pub trait AxesBody: OneBody {
    /// The names of the axes.
    const AXES: &'static [&'static str];
    /// The axes of each input's last dims, by position: of each dim one, or one for each of the parts that it consists of.
    const INPUTS: &'static [&'static [&'static [usize]]];
    /// The axes of each output's last dims.
    const OUTPUTS: &'static [&'static [usize]];
    /// The size of each axis.
    const SIZES: &'static [AxisSize];
    /// Whether a result may lie on fewer axes than its output, which then has it at all positions of the others.
    const SPREADS: bool = false;
    /// What it computes.
    fn trace(&self) -> Graph;
}

/// Where the size of an axis comes from.
#[derive(Debug, Clone, Copy)]
pub enum AxisSize {
    /// The inputs that lie on it.
    Given,
    /// The signature.
    Fixed(usize),
    /// The int attribute of this name.
    Attr(&'static str),
    /// Another axis, which has a size.
    Axis(usize),
}

/// The statement of the op, or of its gradient op of this order.
pub fn def<B: AxesBody, const ORDER: usize>() -> OpDef {
    let kernels =
        [KernelDef::cpu::<BodyKernel<B, ORDER>>().strided(), KernelDef::cuda::<BodyKernel<B, ORDER>>()];
    let reading = B::FACTS.reading(trace::<B>, &|output| {
        let own = B::OUTPUTS[output].iter().map(std::slice::from_ref);
        own.eq(B::INPUTS[0].iter().copied())
    });
    let def =
        free::declared::<B>(B::FACTS.def(ORDER, &reading, output_shapes::<B>, &kernels), ORDER, &reading);
    let def = def.explain(|construction| explained::<B>(construction, ORDER));
    match ORDER {
        0 => def.program(program::<B>),
        _ => def,
    }
}

fn trace<B: AxesBody>(construction: &OpKernelConstruction<'_>) -> Result<Graph> {
    Ok(B::new(construction)?.trace())
}

/// What it computes over its axes; none where some have a size of their own, an input has parts, or something else has to be checked in a
/// call.
fn program<B: AxesBody>(construction: &OpKernelConstruction<'_>) -> Result<Option<Program>> {
    let graph = trace::<B>(construction)?;
    let is_checked = !(graph.limits().is_empty() && graph.exact().is_empty() && graph.taken().is_empty());
    let has_parts = B::INPUTS.iter().copied().flatten().any(|parts| parts.len() != 1);
    if is_checked || has_parts || B::SIZES.iter().any(|size| !matches!(size, AxisSize::Given)) {
        return Ok(None);
    }
    let Some(program) = B::FACTS.program(trace::<B>, construction, 0, None)? else { return Ok(None) };
    let saved = program.results.iter().skip(B::OUTPUTS.len()).map(|axes| Axes::from_bits(*axes));
    let arguments = Arguments::of::<B>(&saved.collect::<Vec<_>>());
    let inputs = arguments.inputs.iter().map(|dims| dims.concat());
    let axes = inputs.chain(arguments.outputs.iter().map(|axes| axes.to_vec()));
    Ok(Some(Program { axes: Some(axes.collect()), ..program }))
}

fn explained<B: AxesBody>(construction: &OpKernelConstruction<'_>, order: usize) -> Result<Explanation> {
    let (facts, arguments) = (&B::FACTS, Arguments::of::<B>(&[]));
    check(&trace::<B>(construction)?, &own_sizes(construction, &arguments)?, &arguments, facts)?;
    let (graph, reading) = facts.derived(trace::<B>, construction, order)?;
    let arguments = Arguments::of::<B>(&reading.saved);
    let Family { inputs, outputs } = facts.family(order, &reading);
    let (of_inputs, of_outputs) = facts.kinds(order, &reading);
    let inputs = (arguments.names(&inputs), facts.of_parts(&inputs, &of_inputs));
    let outputs = (arguments.names(&outputs), facts.of_parts(&outputs, &of_outputs));
    explain(construction, graph, [inputs, outputs], arguments.axes)
}

/// The most steps of a formula that is shown. A gradient of third order may have a hundred thousand, of which nobody reads the source.
const MOST_SHOWN: usize = 1 << 14;

/// It is not generic, so that it is compiled once, here, for all bodies.
fn explain(
    construction: &OpKernelConstruction<'_>,
    graph: Graph,
    [inputs, outputs]: [(Vec<String>, Vec<Kind>); 2],
    axes: &[&str],
) -> Result<Explanation> {
    let steps = graph.nodes().len();
    ensure!(
        steps <= MOST_SHOWN,
        ResourceExhausted,
        "its formula has {steps} steps, and at most {MOST_SHOWN} are shown"
    );
    let signature = construction.signature();
    let dtype: DType = construction.attr("T")?;
    let Some(cuda) = cuda_type(dtype) else {
        bail!(Internal, "no body computes with {dtype}");
    };
    let names = [&inputs.0, &outputs.0].map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
    let graph = graph.with_names(&names[0], &names[1]).with_axis_names(axes);
    Ok(Explanation {
        formula: graph.formula(),
        cuda_source: graph.nests_cuda_source(&signature.snake_name(), cuda, (&inputs.1, &outputs.1), 0, true),
        vectors: vectors(dtype),
    })
}

/// What the body says of its arguments' axes.
struct Arguments {
    axes: &'static [&'static str],
    sizes: &'static [AxisSize],
    /// Those of the parts of each dim of the inputs.
    inputs: &'static [&'static [&'static [usize]]],
    /// Those of the outputs, and of the outputs that are saved.
    outputs: Vec<Cow<'static, [usize]>>,
    spreads: bool,
}

impl Arguments {
    fn of<B: AxesBody>(saved: &[Axes]) -> Self {
        let saved = saved.iter().map(|axes| Cow::from(axes.iter().map(Axis::index).collect::<Vec<_>>()));
        Arguments {
            axes: B::AXES,
            sizes: B::SIZES,
            inputs: B::INPUTS,
            outputs: B::OUTPUTS.iter().map(|axes| Cow::from(*axes)).chain(saved).collect(),
            spreads: B::SPREADS,
        }
    }

    /// The axes of the parts of each dim of an argument that is like one of the forward op's.
    fn like(&self, like: Like) -> SmallVec<[&[usize]; 8]> {
        match like {
            Like::Input(index) => self.inputs[index].iter().copied().collect(),
            Like::Output(index) => self.outputs[index].iter().map(std::slice::from_ref).collect(),
        }
    }

    /// The axes of dims that consist of parts.
    fn of_sums(&self) -> Axes {
        let sums = self.inputs.iter().copied().flatten().filter(|parts| parts.len() != 1);
        sums.map(|parts| Axes::at(parts)).fold(Axes::NONE, Axes::union)
    }

    /// The names of the parts of arguments.
    fn names(&self, arguments: &[FamilyArgument]) -> Vec<String> {
        let of = |argument: &FamilyArgument| {
            let dims = self.like(argument.like);
            let counts = dims.iter().map(|parts| parts.len()).filter(|count| *count != 1);
            counts.fold(vec![argument.name.clone()], |names, count| {
                let of = |name: &String| (0..count).map(|part| format!("{name}[{part}]")).collect::<Vec<_>>();
                names.iter().flat_map(of).collect()
            })
        };
        arguments.iter().flat_map(of).collect()
    }
}

/// The kernel of a body's gradient of an order; of the body itself for order 0.
struct BodyKernel<B, const ORDER: usize> {
    computation: Computation,
    body: PhantomData<fn() -> B>,
}

/// What an instance computes with, whatever the body.
struct Computation {
    runner: Runner,
    order: usize,
    family: Family,
    arguments: Arguments,
    saved: Vec<Axes>,
    /// What the inputs and outputs are.
    kinds: (Vec<Kind>, Vec<Kind>),
    /// For each output of the graph, the axes along which a position is looked for.
    position_axes: Vec<Axes>,
    /// The sizes that axes have of their own, and which axes may be no longer than which others.
    sizes: Vec<Option<usize>>,
    limits: Vec<(Axis, Axis)>,
    /// The axes whose positions are told apart, and how many positions numbers tell apart.
    exact: (Axes, usize),
    /// The positions that numbers are taken from.
    taken: Vec<(Axis, usize)>,
    /// All attributes, for messages.
    attrs: Vec<AttrValue>,
}

impl<B: AxesBody, const ORDER: usize> OpKernel for BodyKernel<B, ORDER> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let body = (trace::<B> as Trace, Arguments::of::<B> as fn(&[Axes]) -> Arguments);
        let computation = Computation::new(construction, body, &B::FACTS, ORDER)?;
        Ok(BodyKernel { computation, body: PhantomData })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        self.computation.compute(context, output_shapes::<B>)
    }

    fn settle(&self, context: &OpKernelContext<'_>) -> Option<Settled> {
        self.computation.settle(context)
    }
}

impl Computation {
    fn new(
        construction: &OpKernelConstruction<'_>,
        (trace, arguments): (Trace, fn(&[Axes]) -> Arguments),
        facts: &Facts,
        order: usize,
    ) -> Result<Computation> {
        let (body, own) = (trace(construction)?, arguments(&[]));
        let sizes = own_sizes(construction, &own)?;
        check(&body, &sizes, &own, facts)?;
        let (graph, reading) = facts.derived(trace, construction, order)?;
        let (limits, taken) = (body.limits().to_vec(), body.taken().to_vec());
        let dtype: DType = construction.attr("T")?;
        let exact = (body.exact(), if dtype == DType::Float64 { 1 << 53 } else { 1 << 24 });
        let attrs = construction.signature().attrs.iter().map(|attr| construction.attr(&attr.name));
        Ok(Computation {
            position_axes: (0..graph.outputs().len()).map(|output| graph.position_axes(output)).collect(),
            runner: Runner::new(construction, graph, false)?,
            order,
            family: facts.family(order, &reading),
            arguments: arguments(&reading.saved),
            sizes,
            limits,
            exact,
            taken,
            kinds: facts.kinds(order, &reading),
            attrs: attrs.collect::<Result<_>>()?,
            saved: reading.saved,
        })
    }

    /// Computes a call. It is not generic, so that it is compiled once, here, for all bodies.
    fn compute(&self, context: &OpKernelContext<'_>, shapes: OutputShapes) -> Result<()> {
        let Some(call) = Call::new(context, &self.arguments, &self.sizes, &self.family) else {
            let shapes = |context: &mut InferenceContext<'_>| shapes(context, &self.saved);
            return Err(shape_error(context, &self.attrs, &self.family, self.order, &shapes));
        };
        self.run(context, &call)
    }

    fn run(&self, context: &OpKernelContext<'_>, call: &Call<'_>) -> Result<()> {
        self.check_limits(call)?;
        self.check_positions(context, call)?;
        let mut inputs: SmallVec<[Option<TensorView<'_>>; 8]> = SmallVec::new();
        for input in 0..self.family.inputs.len() {
            inputs.push(context.optional_input(input)?);
        }
        let mut outputs: SmallVec<[Option<TensorViewMut<'_>>; 4]> = SmallVec::new();
        for (output, argument) in self.family.outputs.iter().enumerate() {
            let is_wanted = context.output_wanted(output)?;
            let made = is_wanted.then(|| context.allocate_output(output, &call.shape(argument.like)));
            outputs.push(made.transpose()?);
        }
        let made = |output: usize| Some(outputs[output].as_ref()?.as_view().into());
        let all = self.placed(call, |input| inputs[input].map(Lying::from), made);
        if all.wanted.is_empty() {
            return Ok(());
        }
        let space = Space { dims: &call.dims(), axes: call.sizes.len() };
        // SAFETY: tensors of these shapes and strides are lent for the call, and the outputs were made for it alone.
        unsafe { self.runner.run(context, &space, &all.wanted, &all.placed) }
    }

    /// What is left to do of calls of the same shapes as this one, which went well.
    fn settle(&self, context: &OpKernelContext<'_>) -> Option<Settled> {
        let call = Call::new(context, &self.arguments, &self.sizes, &self.family)?;
        let inputs = self.family.inputs.len();
        let given = (0..inputs).map(|input| {
            let view = context.optional_input(input).ok()??;
            Some((view.dtype(), Extents::from_slice(view.shape())))
        });
        let outputs: SmallVec<[Option<Extents>; 4]> = { self.family.outputs.iter().enumerate() }
            .map(|(output, argument)| {
                let is_wanted = context.output_wanted(output).unwrap_or(false);
                is_wanted.then(|| call.shape(argument.like))
            })
            .collect();
        let dtype = context.input(0).ok()?.dtype();
        let made = outputs.iter().map(|shape| Some((dtype, shape.clone()?)));
        let stand_ins = StandIns::new(given.chain(made));
        let all = self.placed(&call, |at| stand_ins.at(at), |at| stand_ins.at(inputs + at));
        let outputs = outputs.into_iter().enumerate().filter_map(|(output, shape)| Some((output, shape?)));
        let space = Space { dims: &call.dims(), axes: call.sizes.len() };
        self.runner.settle(&space, &all, inputs, outputs)
    }

    /// Where the parts of a call's arguments are, the inputs first, of each of which a function tells the tensor.
    fn placed<'t>(
        &self,
        call: &Call<'_>,
        input: impl Fn(usize) -> Option<Lying<'t>>,
        output: impl Fn(usize) -> Option<Lying<'t>>,
    ) -> nests::Arguments {
        let mut all = nests::Arguments::default();
        let dims = call.batch.len() + call.sizes.len();
        let place = |Lying { data, size, layout }: Lying<'_>, like: Like, kind: Kind| {
            let place = move |part: Piece| part.placed(data, size, kind);
            call.pieces(like, layout.shape, layout.strides).map(place).collect::<SmallVec<[Placed; 4]>>()
        };
        for (at, argument) in self.family.inputs.iter().enumerate() {
            let (kind, parts) = (self.kinds.0[at], call.parts_of(argument.like));
            all.tensors.extend((0..parts).map(|_| at));
            match input(at) {
                Some(tensor) => all.placed.extend(place(tensor, argument.like, kind)),
                None => all.placed.extend((0..parts).map(|_| Placed::absent(kind, dims))),
            }
        }
        let (mut outputs, mut made) = (0, self.family.inputs.len());
        for (at, argument) in self.family.outputs.iter().enumerate() {
            let parts = outputs..outputs + call.parts_of(argument.like);
            outputs = parts.end;
            if let Some(tensor) = output(at) {
                all.tensors.extend(parts.clone().map(|_| made));
                all.wanted.extend(parts);
                all.placed.extend(place(tensor, argument.like, self.kinds.1[at]));
                made += 1;
            }
        }
        all
    }

    /// What gives so many numbers of an axis has to find them there.
    fn check_limits(&self, call: &Call<'_>) -> Result<()> {
        let (exact, most) = self.exact;
        if let Some(axis) = exact.iter().find(|axis| call.sizes[axis.index()] > most) {
            bail!(
                InvalidArgument,
                "the axis `{}` has {} positions, but this dtype can distinguish at most {most}; use float64",
                self.arguments.axes[axis.index()],
                call.sizes[axis.index()]
            );
        }
        for &(axis, most) in &self.limits {
            let (size, there) = (call.sizes[axis.index()], call.sizes[most.index()]);
            let names = self.arguments.axes;
            let asked = match self.arguments.sizes[axis.index()] {
                AxisSize::Attr(attr) => {
                    format!("attribute `{attr}` asks for the {size} smallest or largest")
                }
                _ => {
                    format!("the axis `{}` asks for the {size} smallest or largest", names[axis.index()])
                }
            };
            ensure!(
                size <= MOST_SMALLEST,
                InvalidArgument,
                "{asked}, but at most {MOST_SMALLEST} are possible"
            );
            let along = names[most.index()];
            ensure!(
                size <= there,
                InvalidArgument,
                "{asked} along the axis `{along}`, which has size {there}"
            );
        }
        let size = |axis: Axis| Some(call.sizes[axis.index()]);
        check_taken(&self.taken, size, self.arguments.axes)
    }

    /// A position has to be somewhere.
    fn check_positions(&self, context: &OpKernelContext<'_>, call: &Call<'_>) -> Result<()> {
        let mut first = 0;
        for (output, argument) in self.family.outputs.iter().enumerate() {
            let parts = first..first + call.parts_of(argument.like);
            first = parts.end;
            let axes = self.position_axes[parts].iter().copied().fold(Axes::NONE, Axes::union);
            if axes.is_empty() || !context.output_wanted(output)? || call.shape(argument.like).contains(&0) {
                continue;
            }
            if let Some(axis) = axes.iter().find(|axis| call.sizes[axis.index()] == 0) {
                bail!(
                    InvalidArgument,
                    "the axis `{}` is empty, so there is no position of a largest or smallest number",
                    self.arguments.axes[axis.index()]
                );
            }
        }
        Ok(())
    }
}
