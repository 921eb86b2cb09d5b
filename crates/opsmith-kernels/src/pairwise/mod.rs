//! Pairwise ops: a body of two numbers, folded over the elements of every pair of rows, and its gradients.
//!
//! `z[n, m]` is the sum (or mean, largest, smallest) over `p` of `f(x[n, p], y[m, p])`, perhaps through a function of one number. On the
//! processor it is a [body over named axes](crate::body). On a card there are kernels with tiles in shared memory, for stages that are
//! derived from the body (`program`).

mod cuda;
mod program;
mod source;

use opsmith_body::{Body, Fold, trace};
use opsmith_core::family::Read;
use opsmith_core::{KernelDef, OpDef};

use self::program::Program;
use crate::body::AxesBody;
use crate::explain::cuda_type;

/// A body that `#[pairwise]` made.
pub trait Pairwise: AxesBody + Body<2, 1> {
    /// How the numbers of a pair of rows are folded.
    const FOLD: Fold;
    /// Whether sums are divided by the number of elements of a row.
    const MEAN: bool;
    /// What is made of a fold: a body of one number, [`Same`] if nothing is.
    type Finish: Body<1, 1> + 'static;

    /// It, with the attributes of this instance.
    fn finish(&self) -> Self::Finish;
}

/// The body that changes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Same;

impl Body<1, 1> for Same {
    #[inline(always)]
    fn eval<S: opsmith_body::Scalar>(&self, inputs: [S; 1]) -> [S; 1] {
        inputs
    }
}

/// The statement of the op, or of its gradient op of this order.
pub fn def<B: Pairwise, const ORDER: usize>() -> OpDef {
    let def = crate::body::def_with::<B, ORDER>(KernelDef::cuda::<cuda::CudaKernel<B, ORDER>>());
    def.explain(|construction| {
        let body = B::new(construction)?;
        let mut explanation = crate::body::explain::<B>(construction, ORDER)?;
        let signature = construction.signature();
        let read = B::FACTS.read_by(signature);
        let program = program(&body, ORDER, &read);
        if let Some(element) = cuda_type(construction.attr("T")?) {
            let names = source::names(&program, &B::FACTS.family(ORDER, &read));
            explanation.cuda_source = source::cuda_source(&program, &names, &signature.snake_name(), element);
        }
        Ok(explanation)
    })
}

/// What the op of an order computes, for a card.
fn program<B: Pairwise>(body: &B, order: usize, read: &Read) -> Program {
    let finishes = std::any::TypeId::of::<B::Finish>() != std::any::TypeId::of::<Same>();
    let finish = finishes.then(|| trace(&body.finish()));
    let forward = Program::forward(trace(body), B::FOLD, B::MEAN, finish.as_ref());
    (0..order).fold(forward, |program, order| program.gradient(order == 0 && !read.outputs.is_empty()))
}
