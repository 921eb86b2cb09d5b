//! Folds over some dims of a tensor on a card.

use opsmith::cuda::Folding;
use opsmith::prelude::*;
use opsmith::space::{Extents, IndexSpace};

use super::{SOURCE, name};

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
    let folding = Folding { source: &SOURCE, name: fold };
    let elements = |tensor: TensorView<'_>| Ok((tensor.data_ptr().cast_mut(), name(tensor.dtype())?));
    let to = (to.data_ptr(), name(to.dtype())?);
    // SAFETY: the spaces stay in the tensors, and the output has an element for each result, on the call's card.
    unsafe { folding.launch(context, [elements(x)?, elements(condition)?], to, [&results, &terms]) }
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
