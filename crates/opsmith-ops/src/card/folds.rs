//! Folds over some dims of a tensor on a card.

use opsmith::cuda::{CudaCall, index_of};
use opsmith::prelude::*;
use opsmith::space::{Extents, IndexSpace};

use super::{SOURCE, name};

/// How many threads a block has, and how many of them make a result where its terms lie across memory.
const THREADS: usize = 256;
const ACROSS: usize = 8;

/// Makes output `output` of a shape by folding the dims of a tensor that are marked, as `fold` of the source does. Where it asks for
/// a condition, that broadcasts to the tensor.
pub(crate) fn fold(
    context: &OpKernelContext<'_>,
    fold: &str,
    (x, condition): (TensorView<'_>, Option<TensorView<'_>>),
    marks: impl Fn(usize) -> bool,
    (output, shape): (usize, &[usize]),
) -> Result<()> {
    let condition = condition.unwrap_or(x);
    let layouts = [x.layout(), condition.layout()];
    let [results, terms] = IndexSpace::split(x.shape(), &layouts, |dim| usize::from(marks(dim)))?;
    let to = context.allocate_output(output, shape)?;
    let index = index_of(&[&results, &terms], 2, 0);
    let [[of_results], [of_terms]] = [results.steps([0]), terms.steps([0])];
    let across = of_results == 1 && of_terms != 1 && results.len() >= THREADS / ACROSS;
    let most = if across { ACROSS } else { THREADS };
    let lanes = terms.len().clamp(1, most).next_power_of_two();
    let blocks = results.len().div_ceil(THREADS / lanes).min(1 << 16);
    let types = [x.dtype(), condition.dtype(), to.dtype()].map(name);
    let [x_type, condition_type, to_type] = types;
    let kernel = format!("folded<{fold}, {}, {}, {}, {}>", x_type?, condition_type?, to_type?, index.name());
    let launch = CudaCall::new(context, &SOURCE);
    let launch = launch.kernel(kernel).grid([blocks, 1, 1]);
    let launch = launch.address(x.data_ptr().cast()).address(condition.data_ptr().cast());
    let launch = launch.address(to.data_ptr().cast_const().cast());
    let launch = launch.space(&results, 2, index).space(&terms, 2, index);
    // SAFETY: these are the kernel's parameters, and the spaces stay in the tensors, which are on the call's card.
    unsafe { launch.value(lanes as i32).value(across).launch() }
}

/// As [`fold`], over what is repeated when `smaller` broadcasts to the tensor, of a shape of as many elements.
pub(crate) fn fold_to(
    context: &OpKernelContext<'_>,
    kind: &str,
    (x, condition): (TensorView<'_>, Option<TensorView<'_>>),
    (output, shape, smaller): (usize, &[usize], &[usize]),
) -> Result<()> {
    let mut own = Extents::from_elem(1, x.rank() - smaller.len());
    own.extend_from_slice(smaller);
    let marks = |dim: usize| own[dim] == 1 && x.shape()[dim] != 1;
    fold(context, kind, (x, condition), marks, (output, shape))
}
