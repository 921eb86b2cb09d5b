//! Ops whose arithmetic, over axes, is an attribute: the text of a graph.

use opsmith_body::{Axes, Axis, Graph, Kind};
use opsmith_core::space::{Extents, Layout, Strides};
use opsmith_core::{OpKernel, OpKernelConstruction, OpKernelContext, Result, TensorView, bail, ensure};
use smallvec::SmallVec;

use crate::nests::{Dim, Placed, Runner, Space};

/// The most arguments, and the most dims.
const MOST: usize = 64;

/// The kernel of an op that computes over axes, where the function is an attribute.
///
/// The op has a string attribute `program`, the text that [`Graph::to_text`] gives; `space`, a list of ints, for each dim of a space
/// the axis of the graph that it is of, alone or with other dims, -1 of a batch; `dims`, a list of ints, for each argument, inputs and
/// then outputs, how many dims it has and which of the space these are, -1 for one of size 1. It has one list of inputs of dtype `T`,
/// one for each input of the graph, which broadcast and may have fewer dims, the last ones; and a list of outputs of dtype `T` and one of
/// positions, of int64, which are the outputs of the graph.
pub struct AxesKernel {
    runner: Runner,
    /// The axis of each dim of the space.
    space: Vec<Option<usize>>,
    /// Which dims each argument has.
    dims: Vec<Vec<Option<usize>>>,
    num_inputs: usize,
}

// Who forgets to implement the trait is not helped by hearing of this one.
#[diagnostic::do_not_recommend]
impl OpKernel for AxesKernel {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let text: String = construction.attr("program")?;
        let graph = match Graph::parse(&text) {
            Ok(graph) => graph,
            Err(error) => {
                bail!(InvalidArgument for "program", "attribute `program` is not a program: {error}")
            }
        };
        let space = space(&construction.attr::<Vec<i64>>("space")?)?;
        let of_dims = |dims: &mut dyn Iterator<Item = usize>| {
            let axes = dims.filter_map(|dim| space[dim]).map(|axis| Axes::of(Axis::new(axis)));
            axes.fold(Axes::NONE, Axes::union)
        };
        let axes: Vec<Axes> = graph.input_axes().chain(graph.output_axes()).collect();
        let used = axes.iter().copied().fold(graph.used_axes(), Axes::union);
        ensure!(
            used.is_within(of_dims(&mut (0..space.len()))) && axes.len() <= MOST,
            InvalidArgument for "program",
            "attribute `program` must be over axes that `space` has, and with at most {MOST} inputs and outputs"
        );
        let dims = lies(&construction.attr::<Vec<i64>>("dims")?, axes.len(), space.len())?;
        let num_inputs = graph.input_count();
        for (argument, (dims, axes)) in dims.iter().zip(&axes).enumerate() {
            let own = of_dims(&mut dims.iter().flatten().copied());
            ensure!(
                if argument < num_inputs { own.is_within(*axes) } else { own == *axes },
                InvalidArgument,
                "argument {argument}, inputs and then outputs, has dims of the axes {own:?} by attribute `dims`, and is on {axes:?} by \
                 `program`"
            );
        }
        let runner = Runner::new(construction, graph, true)?;
        Ok(AxesKernel { runner, space, dims, num_inputs })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let inputs = context.input_list(0)?;
        let numbers = context.output_count(0)?;
        let wanted: SmallVec<[usize; 8]> = (0..numbers + context.output_count(1)?).collect();
        let (given, expected) =
            ((inputs.len(), wanted.len()), (self.num_inputs, self.dims.len() - self.num_inputs));
        ensure!(
            given == expected,
            InvalidArgument,
            "the program has {} inputs and {} outputs, got {} and {}",
            expected.0,
            expected.1,
            given.0,
            given.1
        );
        let Some(all) = self.sizes(inputs.iter().map(TensorView::shape)) else {
            let shapes: Vec<String> = inputs.iter().map(|input| format!("{:?}", input.shape())).collect();
            let (rank, shapes) = (self.space.len(), shapes.join(", "));
            bail!(
                InvalidArgument,
                "expected inputs that broadcast to one shape of rank {rank}, got {shapes}"
            );
        };
        let mut placed: SmallVec<[Placed; 8]> = SmallVec::new();
        for (argument, input) in inputs.iter().enumerate() {
            let data = input.data_ptr().cast_mut();
            placed.push(self.placed(argument, data, input.layout(), Kind::Number));
        }
        for &output in &wanted {
            let argument = self.num_inputs + output;
            let shape: Extents =
                self.dims[argument].iter().map(|dim| dim.map_or(1, |dim| all[dim])).collect();
            let (view, kind) = match output.checked_sub(numbers) {
                None => (context.allocate_output_at(0, output, &shape)?, Kind::Number),
                Some(position) => (context.allocate_output_at(1, position, &shape)?, Kind::Index),
            };
            placed.push(self.placed(argument, view.data_ptr(), view.layout(), kind));
        }
        let dim = |(&size, &axis): (&usize, &Option<usize>)| Dim { size, axis };
        let dims: SmallVec<[Dim; 8]> = all.iter().zip(&self.space).map(dim).collect();
        let axes = self.space.iter().flatten().max().map_or(0, |axis| axis + 1);
        // SAFETY: tensors of these shapes and strides are lent for the call, and the outputs were made for it alone.
        unsafe { self.runner.run(context, &Space { dims: &dims, axes }, &wanted, &placed) }
    }
}

/// The axis of each dim of a space.
fn space(axes: &[i64]) -> Result<Vec<Option<usize>>> {
    ensure!(
        axes.len() <= MOST,
        InvalidArgument for "space",
        "attribute `space` must have at most {MOST} numbers, got {}",
        axes.len()
    );
    let axis = |&axis: &i64| position(axis, Axis::MOST);
    let axes: Option<Vec<Option<usize>>> = axes.iter().map(axis).collect();
    let Some(axes) = axes else {
        bail!(InvalidArgument for "space", "attribute `space` must have numbers from -1 to below {}", Axis::MOST);
    };
    Ok(axes)
}

/// Which dims of a space of this rank so many arguments have.
fn lies(numbers: &[i64], count: usize, rank: usize) -> Result<Vec<Vec<Option<usize>>>> {
    let mut rest = numbers;
    let mut lie = || {
        let (&own, more) = rest.split_first()?;
        let (dims, more) = more.split_at_checked(usize::try_from(own).ok()?)?;
        rest = more;
        let dims: Vec<Option<usize>> = dims.iter().map(|&dim| position(dim, rank)).collect::<Option<_>>()?;
        // Each number of an argument has one place in the space.
        let is_twice = |(at, dim): (usize, &Option<usize>)| dim.is_some() && dims[..at].contains(dim);
        (dims.len() <= MOST && !dims.iter().enumerate().any(is_twice)).then_some(dims)
    };
    let lies: Option<Vec<_>> = (0..count).map(|_| lie()).collect();
    match lies.filter(|_| rest.is_empty()) {
        Some(lies) => Ok(lies),
        None => bail!(
            InvalidArgument for "dims",
            "attribute `dims` must have for each of {count} arguments how many dims it has, and then these, each once and from -1 to \
             below {rank}, got {numbers:?}"
        ),
    }
}

/// What a number that may be -1 stands for, if it is below so many.
fn position(number: i64, below: usize) -> Option<Option<usize>> {
    match usize::try_from(number) {
        Ok(position) => (position < below).then_some(Some(position)),
        Err(_) => (number == -1).then_some(None),
    }
}

impl AxesKernel {
    /// The dims of an argument with so many.
    fn own(&self, argument: usize, rank: usize) -> Option<&[Option<usize>]> {
        let dims = &self.dims[argument];
        dims.get(dims.len().checked_sub(rank)?..)
    }

    /// The sizes of all dims, if the shapes of the inputs fit.
    fn sizes<'a>(&self, inputs: impl Iterator<Item = &'a [usize]>) -> Option<Extents> {
        let mut all = Extents::from_elem(1, self.space.len());
        for (argument, shape) in inputs.enumerate() {
            for (dim, &size) in self.own(argument, shape.len())?.iter().zip(shape) {
                let mut one = 1;
                let own = dim.map_or(&mut one, |dim| &mut all[dim]);
                let is_new = *own != size && size != 1;
                if is_new && (dim.is_none() || std::mem::replace(own, size) != 1) {
                    return None;
                }
            }
        }
        Some(all)
    }

    /// An argument with its strides along all dims, 0 where it is repeated.
    fn placed(&self, argument: usize, data: *mut u8, layout: Layout<'_>, kind: Kind) -> Placed {
        let mut strides = Strides::from_elem(0, self.space.len());
        // What is empty has its dims too, whatever its strides are.
        let is_empty = layout.shape.contains(&0);
        let own = self.own(argument, layout.shape.len()).unwrap_or_default();
        for (dim, (&size, &stride)) in own.iter().zip(layout.shape.iter().zip(layout.strides)) {
            if let Some(dim) = dim.filter(|_| size != 1) {
                strides[dim] = if is_empty { 1 } else { stride };
            }
        }
        Placed::new(data, layout.shape, kind, strides)
    }
}
