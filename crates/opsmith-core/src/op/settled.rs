//! Calls of the same shapes as before, whose kernels have said what is left to do of them.

use std::sync::OnceLock;

use crate::fork;
use crate::kernel::{CallShapes, Instance, MOST_INPUTS, MOST_OUTPUTS, OpKernelContext, Rest, Settled};
use crate::tensor::{TensorView, check_shape};
use crate::{DType, Result};

/// How many shapes a plan keeps settled calls for, the first ones. They are found without a lock.
const MOST: usize = 4;

/// The calls of a plan that are settled.
pub(super) struct SettledCalls {
    known: [OnceLock<(CallShapes, Settled)>; MOST],
    /// Whether there may be any.
    may_be: bool,
}

impl SettledCalls {
    /// None yet. Truths are not settled, as their bytes have to be looked at in each call, nor is text.
    pub(super) fn new(may_be: bool, dtypes: &[Option<DType>], outputs: &[DType]) -> SettledCalls {
        let is_plain = |dtype: &DType| !matches!(dtype, DType::Bool | DType::String);
        let may_be = may_be
            && dtypes.len() <= MOST_INPUTS
            && dtypes.iter().flatten().all(is_plain)
            && !outputs.contains(&DType::String);
        SettledCalls { known: Default::default(), may_be }
    }

    /// That of a call, if it is settled, and the addresses of its tensors, of each of which `tensor` tells its own and the shape.
    #[inline(always)]
    pub(super) fn find<'a>(
        &self,
        wanted: u64,
        tensor: impl Fn(usize) -> Option<(*const u8, &'a [usize])>,
    ) -> Option<(&(CallShapes, Settled), [*const u8; MOST_INPUTS])> {
        for known in &self.known {
            let known = known.get()?;
            if let Some(data) = known.0.addresses(wanted, &tensor) {
                return Some((known, data));
            }
        }
        None
    }

    /// Keeps what the kernel says of a call on these tensors, which went well.
    ///
    /// # Errors
    /// `Internal` where the kernel says of other outputs than it made, and in builds with debug assertions where what is left to do gives
    /// something else than the call.
    pub(super) fn learn(
        &self,
        inputs: &[Option<TensorView<'_>>],
        wanted: u64,
        (instance, context): (&dyn Instance, &OpKernelContext<'_>),
    ) -> Result<()> {
        let Some(free) = self.known.iter().find(|known| known.get().is_none()) else { return Ok(()) };
        if !self.may_be
            || context.made() > MOST_OUTPUTS
            || !inputs.iter().flatten().all(TensorView::is_contiguous)
        {
            return Ok(());
        }
        let Some(settled) = instance.settle(context) else { return Ok(()) };
        context.check_outputs(&settled)?;
        // Views are made without a look at the shapes.
        let outputs = settled.outputs.iter().map(|(_, shape)| &shape[..]);
        let mut shapes = inputs.iter().flatten().map(TensorView::shape).chain(outputs);
        if matches!(settled.rest, Rest::Kernel) && !shapes.all(|shape| check_shape(shape, None).is_ok()) {
            return Ok(());
        }
        if cfg!(debug_assertions) {
            context.check_settled(&settled)?;
        }
        // Another call may have taken the place, even with equal shapes, which is harmless.
        fork::set_or_get(free, (CallShapes::of(inputs, wanted), settled));
        Ok(())
    }
}
