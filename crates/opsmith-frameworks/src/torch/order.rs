//! Results of pointwise ops whose dims lie in memory in the order of an input's, as PyTorch's own have: channels stay last.
//!
//! The kernel sees all tensors with their dims in that order, where they are row-major. `opsmith.torch._fake` says the same of results
//! that have no elements.

use opsmith_core::TensorView;
use opsmith_core::tensor::{DimOrder, Extents, Strides};
use smallvec::SmallVec;

type Views<'a> = SmallVec<[Option<TensorView<'a>>; 8]>;

/// The order of the first input that has the shape of the results and lies without gaps and overlaps, where that is another than
/// row-major and all inputs can be seen in it. Where results may be sums over dims that an input lacks, they have that input's shape:
/// then all inputs must have the same.
pub(super) fn of_results(views: &Views<'_>, may_be_sums: bool) -> Option<DimOrder> {
    if views.iter().flatten().all(TensorView::is_contiguous) {
        return None;
    }
    let tensors = || views.iter().flatten().filter(|view| view.rank() > 0);
    let fits = |part: &TensorView<'_>, whole: &TensorView<'_>| {
        let missing = whole.rank().checked_sub(part.rank());
        let own = missing.map(|missing| part.shape().iter().zip(&whole.shape()[missing..]));
        own.is_some_and(|mut dims| dims.all(|(part, whole)| part == whole || *part == 1))
    };
    let is_whole = |whole: &&TensorView<'_>| match may_be_sums {
        true => tensors().all(|tensor| tensor.shape() == whole.shape()),
        false => tensors().all(|tensor| fits(tensor, whole)),
    };
    let dense = |whole: &TensorView<'_>| match whole.is_contiguous() {
        true => Some(None),
        false => DimOrder::of(whole).map(Some),
    };
    tensors().filter(is_whole).find_map(dense).flatten()
}

/// The dims of each tensor in an order; a number has none.
pub(super) fn dims(order: &DimOrder, views: &Views<'_>) -> Vec<(Extents, Strides)> {
    let dims = |view: &Option<TensorView<'_>>| match view {
        Some(view) if view.rank() > 0 => order.dims(view),
        _ => Default::default(),
    };
    views.iter().map(dims).collect()
}

/// The same tensors with their dims in an order.
pub(super) fn permuted<'a>(
    order: &DimOrder,
    views: &Views<'a>,
    dims: &'a [(Extents, Strides)],
) -> Views<'a> {
    let permuted = |(view, dims): (&Option<TensorView<'a>>, &'a _)| match view {
        Some(view) if view.rank() > 0 => Some(order.view(view, dims)),
        view => *view,
    };
    views.iter().zip(dims).map(permuted).collect()
}
