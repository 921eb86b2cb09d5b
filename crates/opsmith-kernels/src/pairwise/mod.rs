//! Pairwise ops: a body of two numbers, folded over the elements of every pair of rows, and its gradients.
//!
//! `z[i, j]` is the sum (or mean, largest, smallest) over `k` of `f(x[i, k], y[j, k])`, perhaps through a function of
//! one number. The fold and the first gradient of a sum are compiled for the body, in tiles ([`opsmith_body::Tiles`]);
//! the rest is derived (`program`) and computed from graphs. How sums are cut depends on the sizes only, never on the
//! number of threads, and no sum of a few hundred terms is longer than that: `panels`, `strips` and `triples` say how
//! far they are off at most.

mod convert;
mod cuda;
mod differences;
mod elements;
mod explain;
mod panels;
mod program;
mod run;
mod shared;
mod strips;
mod tiled;
mod triples;

use std::any::TypeId;
use std::marker::PhantomData;

use half::{bf16, f16};
use opsmith_body::{Blocks, Body, Compiled, Fold, Graph, Pair, Tiled, Tiles, trace};
use opsmith_core::family::{Family, Like};
use opsmith_core::{
    DType, InferenceContext, KernelDef, OpDef, OpKernel, OpKernelConstruction, OpKernelContext, Result,
    Shape, TensorViewMut, bail, ensure,
};
use smallvec::SmallVec;

use self::convert::{Room, widened};
use self::panels::Folds;
use self::program::Program;
use self::run::Runner;
use self::shared::Sizes;
use self::tiled::TileNumber;
use crate::facts::{OneBody, shape_error};
use crate::stored::{Stored, Wide};

/// A body that `#[pairwise]` made.
pub trait Pairwise: OneBody + Pair {
    /// Whether sums are divided by the number of elements of a row.
    const MEAN: bool;
    /// What is made of a fold: a body of one number, [`Same`] if nothing is.
    type Finish: Body<1, 1> + Default + Copy + Send + Sync + 'static;
}

/// The body that changes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Same;

impl Body<1, 1> for Same {
    #[inline(always)]
    fn eval<S: opsmith_body::Scalar>(&self, inputs: [S; 1]) -> [S; 1] {
        inputs
    }
}

/// The statement of the op, or of its gradient op of this order.
pub fn def<B: Pairwise, const ORDER: usize>() -> OpDef {
    let on_cpu = KernelDef::cpu::<PairwiseKernel<B, ORDER>>();
    let kernels = [on_cpu, KernelDef::cuda::<cuda::CudaKernel<B, ORDER>>()];
    let dims = |like| match like {
        Like::Input(0) => "(n, _)",
        Like::Input(_) => "(m, _)",
        Like::Output(_) => "(n, m)",
    };
    let def = B::FACTS.def(ORDER, output_shapes, &kernels);
    def.parallel(&B::FACTS.parallel(ORDER, |like| dims(like).to_owned())).explain(|construction| {
        let program = parts(B::new(construction)?).program(ORDER);
        explain::explain(construction, &program, &B::FACTS.family(ORDER))
    })
}

/// A body with its type forgotten.
struct Parts {
    tiles: Box<dyn Tiles>,
    finish: Option<Box<dyn Blocks>>,
    finish_graph: Option<Graph>,
    mean: bool,
}

fn parts<B: Pairwise>(body: B) -> Parts {
    let finishes = TypeId::of::<B::Finish>() != TypeId::of::<Same>();
    Parts {
        tiles: Box::new(Tiled(body)),
        finish: finishes.then(|| Box::new(Compiled::<_, 1, 1>(B::Finish::default())) as Box<dyn Blocks>),
        finish_graph: finishes.then(|| trace(&B::Finish::default())),
        mean: B::MEAN,
    }
}

impl Parts {
    /// What the op of an order computes.
    fn program(&self, order: usize) -> Program {
        let finish = self.finish_graph.as_ref();
        let forward = Program::forward(self.tiles.graph(), self.tiles.fold(), self.mean, finish);
        (0..order).fold(forward, |program, _| program.gradient())
    }
}

/// `(n, p), (m, p) -> (n, m)`.
fn output_shapes(context: &mut InferenceContext<'_>) -> Result<Vec<Shape>> {
    let x = context.with_rank(context.input(0)?, 2)?;
    let y = context.with_rank(context.input(1)?, 2)?;
    let (of_x, of_y) = (context.dim(&x, 1)?, context.dim(&y, 1)?);
    context.merge(&of_x, &of_y)?;
    let (n, m) = (context.dim(&x, 0)?, context.dim(&y, 0)?);
    Ok(vec![context.matrix(n, m)])
}

impl Sizes {
    /// The dims of an argument that is like one of the forward op's.
    fn of(self, like: Like) -> [usize; 2] {
        match like {
            Like::Input(0) => [self.n, self.p],
            Like::Input(_) => [self.m, self.p],
            Like::Output(_) => [self.n, self.m],
        }
    }
}

/// What an instance computes with, whatever the body.
struct Computation {
    dtype: DType,
    fold: Fold,
    mean: bool,
    family: Family,
    order: usize,
    finish: Option<Box<dyn Blocks>>,
    work: Work,
}

enum Work {
    Forward { tiles: Box<dyn Tiles>, differences: bool },
    Gradient(Runner),
}

/// The kernel of a body's gradient of an order; of the body itself for order 0.
struct PairwiseKernel<B, const ORDER: usize> {
    computation: Computation,
    body: PhantomData<fn() -> B>,
}

impl<B: Pairwise, const ORDER: usize> OpKernel for PairwiseKernel<B, ORDER> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let parts = parts(B::new(construction)?);
        let computation = Computation::new(construction, B::FACTS.family(ORDER), ORDER, parts)?;
        Ok(PairwiseKernel { computation, body: PhantomData })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        self.computation.compute(context)
    }
}

/// The sizes of a call, whose inputs all fit them.
fn sizes(context: &OpKernelContext<'_>, family: &Family, order: usize, fold: Fold) -> Result<Sizes> {
    let wrong = || shape_error(context, &[], family, order, output_shapes);
    let (&[n, p], &[m, other]) = (context.input_shape(0)?, context.input_shape(1)?) else {
        return Err(wrong());
    };
    let sizes = Sizes { n, m, p };
    for (index, argument) in family.inputs.iter().enumerate().skip(2) {
        let input = context.optional_input(index)?;
        if input.is_some_and(|tensor| tensor.shape() != sizes.of(argument.like)) {
            return Err(wrong());
        }
    }
    if p != other {
        return Err(wrong());
    }
    let nothing = p == 0 && fold != Fold::Sum && n > 0 && m > 0;
    ensure!(!nothing, InvalidArgument, "rows have no elements, of which none is the largest or smallest");
    Ok(sizes)
}

impl Computation {
    fn new(
        construction: &OpKernelConstruction<'_>,
        family: Family,
        order: usize,
        parts: Parts,
    ) -> Result<Computation> {
        let (fold, mean) = (parts.tiles.fold(), parts.mean);
        let work = if order == 0 {
            let differences = differences::are_summed(&parts.tiles.graph(), fold);
            Work::Forward { tiles: parts.tiles, differences }
        } else {
            Work::Gradient(Runner::new(parts.program(order), parts.tiles))
        };
        let dtype = construction.attr("T")?;
        Ok(Computation { dtype, fold, mean, family, order, finish: parts.finish, work })
    }

    fn compute(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let sizes = sizes(context, &self.family, self.order, self.fold)?;
        match self.dtype {
            DType::Float32 => self.compute_for::<f32>(context, sizes),
            DType::Float64 => self.compute_for::<f64>(context, sizes),
            DType::Float16 => self.compute_for::<f16>(context, sizes),
            DType::BFloat16 => self.compute_for::<bf16>(context, sizes),
            other => bail!(Internal, "{}: no body computes with {other}", context.signature().name),
        }
    }

    fn compute_for<S>(&self, context: &OpKernelContext<'_>, sizes: Sizes) -> Result<()>
    where
        S: Stored,
        S::Wide: TileNumber,
    {
        let cx = context.compute();
        let mut values: Vec<Option<&[S::Wide]>> = Vec::with_capacity(self.family.inputs.len());
        for (index, argument) in self.family.inputs.iter().enumerate() {
            values.push(Some(match context.optional_input(index)? {
                Some(tensor) => widened(&cx, tensor.as_slice::<S>()?)?,
                // The gradient of an output that nothing depends on.
                None => cx.temp(sizes.of(argument.like).iter().product())?,
            }));
        }
        let mut tensors: SmallVec<[Option<TensorViewMut<'_>>; 4]> = SmallVec::new();
        for (index, argument) in self.family.outputs.iter().enumerate() {
            let wanted = context.output_wanted(index)?;
            let shape = sizes.of(argument.like);
            tensors.push(if wanted { Some(context.allocate_output(index, &shape)?) } else { None });
        }
        let wanted: SmallVec<[bool; 4]> = tensors.iter().map(Option::is_some).collect();
        let mut rooms: SmallVec<[Option<Room<'_, S>>; 4]> = SmallVec::new();
        for tensor in &mut tensors {
            rooms.push(match tensor {
                Some(tensor) => Some(Room::new(tensor.as_slice_mut::<S>()?)),
                None => None,
            });
        }
        let results = match &self.work {
            Work::Forward { tiles, differences } => {
                let (x, y) = (values[0].unwrap_or_default(), values[1].unwrap_or_default());
                let z = match rooms[0].take() {
                    Some(Room::Wide(room)) => room,
                    other => {
                        rooms[0] = other;
                        cx.temp(sizes.n * sizes.m)?
                    }
                };
                let divisor = self.mean.then(|| S::Wide::of_double(sizes.p as f64));
                let (differences, finish) = (*differences, self.finish.as_deref());
                let folds = Folds { tiles: &**tiles, sizes, x, y, differences, divisor, finish };
                folds.run(&cx, z)?;
                values.push(Some(z));
                &[Some(2)]
            }
            Work::Gradient(runner) => {
                runner.run(&cx, sizes, &mut values, &mut rooms, &wanted)?;
                runner.program.outputs.as_slice()
            }
        };
        for (room, result) in rooms.into_iter().zip(results) {
            if let Some(room) = room {
                room.store(&cx, result.and_then(|value| values[value]));
            }
        }
        Ok(())
    }
}
