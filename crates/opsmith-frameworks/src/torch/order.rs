//! The order in memory of the dims of results. As in PyTorch's own ops, it is that of an input: channels stay last.
//!
//! The kernel sees all tensors with their dims in that order, in which the results are row-major. `opsmith.torch._fake` gives results
//! without elements the same strides.

use opsmith_core::kernel::CallInputs;
use opsmith_core::shape::{InferenceContext, Shape};
use opsmith_core::tensor::{DimOrder, Extents, Strides};
use opsmith_core::{Op, Parallel, Plan, TensorView};
use smallvec::SmallVec;

/// The order of the first input that has the shape of the results and lies without gaps; none where that is row-major, where there is no
/// such input, and for shapes that do not fit. Results that may be sums over dims which an input lacks, have the shape of that input: then
/// all inputs must have one shape.
pub(super) fn of_results(op: &Op, plan: &Plan, inputs: CallInputs<'_>) -> Option<DimOrder> {
    if inputs.flat.iter().flatten().all(TensorView::is_contiguous) {
        return None;
    }
    let tensors = || inputs.flat.iter().flatten().filter(|view| view.rank() > 0);
    let first = tensors().next()?;
    // What is added up has its order of dims, and so its rounding, whatever the memory format.
    let may_be_sums = op.parallel().is_some_and(Parallel::has_sums);
    if may_be_sums && inputs.flat.iter().flatten().any(|tensor| tensor.shape() != first.shape()) {
        return None;
    }
    if tensors().any(|tensor| tensor.shape() != first.shape()) && !fit(op, plan, inputs) {
        return None;
    }
    let is_whole = |whole: &&TensorView<'_>| tensors().all(|part| broadcasts_to(part, whole));
    let order = |whole: &TensorView<'_>| match whole.is_contiguous() {
        true => Some(None),
        false => DimOrder::of(whole).map(Some),
    };
    tensors().filter(is_whole).find_map(order).flatten()
}

/// Whether the op takes inputs of these shapes. It is asked before dims change places, so that errors name them as they are.
fn fit(op: &Op, plan: &Plan, inputs: CallInputs<'_>) -> bool {
    let mut flat = inputs.flat.iter();
    let shapes = inputs.counts.iter().map(|&count| {
        let shape = |view: &Option<TensorView<'_>>| view.map(|view| Shape::known(view.shape()));
        flat.by_ref().take(count).map(shape).collect()
    });
    InferenceContext::new(op.signature(), plan.attrs(), shapes.collect())
        .is_ok_and(|mut context| op.infer_shapes(&mut context).is_ok())
}

fn broadcasts_to(part: &TensorView<'_>, whole: &TensorView<'_>) -> bool {
    whole.rank().checked_sub(part.rank()).is_some_and(|missing| {
        let mut dims = part.shape().iter().zip(&whole.shape()[missing..]);
        dims.all(|(part, whole)| part == whole || *part == 1)
    })
}

/// Tensors with their dims in an order, put into `room`. A tensor without dims stays as it is.
pub(super) fn permuted<'a>(
    order: &DimOrder,
    views: &[Option<TensorView<'a>>],
    room: &'a mut Vec<(Extents, Strides)>,
) -> SmallVec<[Option<TensorView<'a>>; 8]> {
    room.resize(views.len(), Default::default());
    let permuted = |(view, room): (&Option<TensorView<'a>>, &'a mut _)| match view {
        Some(view) if view.rank() > 0 => Some(order.view(view, room)),
        view => *view,
    };
    views.iter().zip(room).map(permuted).collect()
}
