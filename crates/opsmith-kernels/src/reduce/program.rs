//! Ops whose arithmetic, by rows, is an attribute: the text of a graph.

use opsmith_body::{Axes, Axis, Graph, Kind};
use opsmith_core::space::{Layout, RowSpace, Strides};
use opsmith_core::{
    OpKernel, OpKernelConstruction, OpKernelContext, Result, TensorView, bail, ensure, memory,
};
use smallvec::SmallVec;

use crate::nests::{Dim, Placed, Runner, Space};

/// The most arguments.
const MOST: usize = 64;

/// The kernel of an op that applies a function to rows, where the function is an attribute.
///
/// The op has a string attribute `program`, the text that [`Graph::to_text`] gives; `rank`, an int, and `row`, a list of ints,
/// which dims of a space of that rank are a row, the graph's first axis; `lacking`, a list of ints, which arguments, inputs and then
/// outputs, lack these dims. It has one list of inputs of dtype `T`, which broadcast, one for each input of the graph; and one
/// list of outputs of dtype `T`, one for each output.
pub struct RowsKernel {
    runner: Runner,
    space: RowSpace,
    /// The axes of all arguments, and which of them lack the dims of a row.
    axes: Vec<Axes>,
    lacking: Vec<bool>,
    num_inputs: usize,
}

// Who forgets to implement the trait is not helped by hearing of this one.
#[diagnostic::do_not_recommend]
impl OpKernel for RowsKernel {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let op = construction.signature().name.clone();
        let text: String = construction.attr("program")?;
        let graph = match Graph::parse(&text) {
            Ok(graph) => graph,
            Err(error) => bail!(InvalidArgument, "{op}: attribute `program` is no program: {error}"),
        };
        let axes: Vec<Axes> = graph.input_axes().chain(graph.output_axes()).collect();
        let num_inputs = graph.input_count();
        let used = axes.iter().copied().fold(graph.used_axes(), Axes::union);
        ensure!(
            used.is_within(Axes::FIRST) && axes.len() <= MOST,
            InvalidArgument,
            "{op}: attribute `program` must have one axis, and at most {MOST} inputs and outputs"
        );
        let rank: usize = construction.attr("rank")?;
        ensure!(rank <= MOST, InvalidArgument, "{op}: attribute `rank` must be at most {MOST}, got {rank}");
        let marked = |name: &str, count: usize| {
            let mut marks = memory::filled(false, count, "marks")?;
            for position in construction.attr::<Vec<i64>>(name)? {
                let mark = usize::try_from(position).ok().and_then(|position| marks.get_mut(position));
                let Some(mark) = mark else {
                    bail!(
                        InvalidArgument,
                        "{op}: attribute `{name}` must have numbers from 0 to below {count}, got {position}"
                    );
                };
                *mark = true;
            }
            Ok(marks)
        };
        let (space, lacking) = (RowSpace { is_row: marked("row", rank)? }, marked("lacking", axes.len())?);
        let runner = Runner::new(construction, graph, true)?;
        Ok(RowsKernel { runner, space, axes, lacking, num_inputs })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let op = &context.signature().name;
        let inputs = context.input_list(0)?;
        let wanted: SmallVec<[usize; 8]> = (0..context.output_count(0)?).collect();
        let (given, expected) =
            ((inputs.len(), wanted.len()), (self.num_inputs, self.axes.len() - self.num_inputs));
        ensure!(
            given == expected,
            InvalidArgument,
            "{op}: the program has {} inputs and {} outputs, got {} and {}",
            expected.0,
            expected.1,
            given.0,
            given.1
        );
        let all =
            self.space.broadcast(self.lacking.iter().copied().zip(inputs.iter().map(TensorView::shape)));
        let lies = |(argument, input): (usize, &TensorView<'_>)| self.lies(argument, input.shape());
        let Some(all) = all.filter(|_| inputs.iter().enumerate().all(lies)) else {
            let shapes: Vec<String> = inputs.iter().map(|input| format!("{:?}", input.shape())).collect();
            let (rank, shapes) = (self.space.is_row.len(), shapes.join(", "));
            bail!(
                InvalidArgument,
                "{op}: expected inputs that broadcast to one shape of rank {rank}, got {shapes}"
            );
        };
        let mut placed: SmallVec<[Placed; 8]> = SmallVec::new();
        for (argument, input) in inputs.iter().enumerate() {
            placed.push(self.placed(argument, input.data_ptr().cast_mut(), input.layout()));
        }
        for &output in &wanted {
            let argument = self.num_inputs + output;
            let (each, lacks) = (self.axes[argument] == Axes::FIRST, self.lacking[argument]);
            let dims = self.space.is_row.iter().zip(&all).filter(|(is_row, _)| !(lacks && **is_row));
            let shape: SmallVec<[usize; 6]> =
                dims.map(|(is_row, size)| if *is_row && !each { 1 } else { *size }).collect();
            let view = context.allocate_output_at(0, output, &shape)?;
            placed.push(self.placed(argument, view.data_ptr(), view.layout()));
        }
        let dim = |(&size, is_row): (&usize, &bool)| Dim { size, axis: is_row.then_some(0) };
        let dims: SmallVec<[Dim; 8]> = all.iter().zip(&self.space.is_row).map(dim).collect();
        // SAFETY: tensors of these shapes and strides are lent for the call, and the outputs were made for it alone.
        unsafe { self.runner.run(context, &Space { dims: &dims, axes: 1 }, &wanted, &placed) }
    }
}

impl RowsKernel {
    /// Whether an input lies on the axes that the program says: what there is one of for each row has no more.
    fn lies(&self, argument: usize, shape: &[usize]) -> bool {
        let mut dims = self.space.dims(self.lacking[argument], shape.len()).into_iter().flatten().zip(shape);
        self.axes[argument].has(Axis::new(0)) || dims.all(|(dim, &size)| size == 1 || !self.space.is_row[dim])
    }

    /// An argument with its strides along all dims, 0 where it is repeated.
    fn placed(&self, argument: usize, data: *mut u8, layout: Layout<'_>) -> Placed {
        let mut strides = Strides::from_elem(0, self.space.is_row.len());
        // What is empty has its dims too, whatever its strides are.
        let is_empty = layout.shape.contains(&0);
        let own = self.space.dims(self.lacking[argument], layout.shape.len()).into_iter().flatten();
        for (dim, (&size, &stride)) in own.zip(layout.shape.iter().zip(layout.strides)) {
            if size != 1 {
                strides[dim] = if is_empty { 1 } else { stride };
            }
        }
        Placed::new(data, layout.shape, Kind::Number, strides)
    }
}
