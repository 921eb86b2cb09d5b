//! Calls of the same shapes as before, whose kernels have said what is left to do of them.

use std::ptr::null_mut;
use std::sync::OnceLock;

use smallvec::SmallVec;

use super::Op;
use super::plan::Plan;
use crate::fork;
use crate::kernel::{
    CallInputs, CallShapes, Compute, Dense, Instance, MOST_INPUTS, MOST_OUTPUTS, OpKernelContext, Poison,
    Services, Settled,
};
use crate::tensor::{Strides, TensorView, row_major_strides};
use crate::{DType, Device, Error, Result};

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
    pub(super) fn new(may_be: bool, dtypes: &[Option<DType>]) -> SettledCalls {
        let is_plain = |dtype: &DType| !matches!(dtype, DType::Bool | DType::String);
        let may_be = may_be && dtypes.len() <= MOST_INPUTS && dtypes.iter().flatten().all(is_plain);
        SettledCalls { known: Default::default(), may_be }
    }

    /// That of a call, if it is settled, and the addresses of its tensors, of each of which `tensor` tells its own and the shape.
    #[inline(always)]
    fn find<'a>(
        &self,
        wanted: u64,
        tensor: impl Fn(usize) -> Option<(*const u8, &'a [usize])>,
    ) -> Option<(&Settled, [*const u8; MOST_INPUTS])> {
        for known in &self.known {
            let (shapes, settled) = known.get()?;
            if let Some(data) = shapes.addresses(wanted, &tensor) {
                return Some((settled, data));
            }
        }
        None
    }

    /// Keeps what the kernel says of a call on these tensors, which went well.
    ///
    /// # Errors
    /// `Internal` in builds with debug assertions, where what is left to do gives something else than the call.
    pub(super) fn learn(
        &self,
        inputs: &[Option<TensorView<'_>>],
        wanted: u64,
        (instance, context): (&dyn Instance, &OpKernelContext<'_>),
    ) -> Result<()> {
        let Some(free) = self.known.iter().find(|known| known.get().is_none()) else { return Ok(()) };
        if !self.may_be || !inputs.iter().flatten().all(TensorView::is_contiguous) {
            return Ok(());
        }
        let settled = instance.settle(context).filter(|settled| settled.outputs.len() <= MOST_OUTPUTS);
        let Some(settled) = settled else { return Ok(()) };
        if cfg!(debug_assertions) {
            context.check_settled(&settled)?;
        }
        // Another call may have taken the place, even with equal shapes, which is harmless.
        fork::set_or_get(free, (CallShapes::of(inputs, wanted), settled));
        Ok(())
    }
}

impl Plan {
    /// As [`run`](Self::run), on tensors of the plan's dtypes and counts that are all dense and in host memory: `input` tells each by its
    /// number in the flat order, nothing for an absent one.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Safety
    /// Until it returns, the elements must be readable and not written by anybody. They need not be aligned.
    pub unsafe fn run_dense<'a>(
        &self,
        op: &Op,
        input: impl Fn(usize) -> Option<Dense<'a>>,
        wanted: u64,
        services: &dyn Services,
    ) -> Result<()> {
        let tensor = |at: usize| input(at).map(|tensor| (tensor.data, tensor.shape));
        if let Some((settled, data)) = self.settled.find(wanted, tensor) {
            // SAFETY: promised by the caller; the shapes are those that the call was settled for.
            return unsafe { self.run_settled(op, settled, &data[..self.dtypes().len()], services) };
        }
        let inputs: SmallVec<[Option<Dense<'a>>; 8]> = (0..self.dtypes().len()).map(input).collect();
        // SAFETY: promised by the caller.
        unsafe { self.run_unsettled(op, &inputs, wanted, services) }
    }

    /// # Safety
    /// As [`run_dense`](Self::run_dense).
    unsafe fn run_unsettled(
        &self,
        op: &Op,
        inputs: &[Option<Dense<'_>>],
        wanted: u64,
        services: &dyn Services,
    ) -> Result<()> {
        let shape = |tensor: &Option<Dense<'_>>| row_major_strides(tensor.map_or(&[], |tensor| tensor.shape));
        let strides: SmallVec<[Strides; 4]> = inputs.iter().map(shape).collect();
        let mut views: SmallVec<[Option<TensorView<'_>>; 8]> = SmallVec::new();
        views.extend(inputs.iter().zip(self.dtypes()).zip(&strides).map(|((tensor, dtype), strides)| {
            let Dense { data, shape } = (*tensor)?;
            // SAFETY: promised by the caller.
            Some(unsafe { TensorView::from_raw_parts(data, (*dtype)?, Device::CPU, shape, strides) })
        }));
        self.run_views(op, CallInputs { flat: &views, counts: self.counts() }, wanted, services)
    }

    /// Runs a call that is settled; gives nothing if it is not.
    pub(super) fn run_if_settled(
        &self,
        op: &Op,
        inputs: &[Option<TensorView<'_>>],
        wanted: u64,
        services: &dyn Services,
    ) -> Option<Result<()>> {
        let tensor = |input: usize| {
            let (tensor, dtype) = (inputs.get(input)?.as_ref()?, self.dtypes()[input]);
            // Where it is not, the shape fits none.
            let fits =
                tensor.device() == Device::CPU && Some(tensor.dtype()) == dtype && tensor.is_contiguous();
            Some((tensor.data_ptr(), if fits { tensor.shape() } else { &[usize::MAX] }))
        };
        let (settled, data) = self.settled.find(wanted, tensor)?;
        // SAFETY: the tensors have been found to be such as the call was settled for.
        Some(unsafe { self.run_settled(op, settled, &data[..inputs.len()], services) })
    }

    /// A panic is for who has called the library to catch: it is under a [`catch`](crate::panic::catch) there.
    ///
    /// # Safety
    /// The inputs must be such as the call was settled for.
    unsafe fn run_settled(
        &self,
        op: &Op,
        settled: &Settled,
        inputs: &[*const u8],
        services: &dyn Services,
    ) -> Result<()> {
        let mut outputs = [null_mut(); MOST_OUTPUTS];
        // By numbers: what iterators make of it is a part of a small call where code is made small.
        for at in 0..settled.outputs.len() {
            let (flat, shape) = &settled.outputs[at];
            let dtype = self.output_dtypes()[*flat];
            outputs[at] = match services.allocate_output(*flat, dtype, shape) {
                Ok(made) => made,
                Err(error) => return Err(self.about_output(op, *flat, error)),
            };
            if cfg!(debug_assertions) || dtype == DType::Bool {
                // SAFETY: the caller gave memory for as many elements, on the CPU.
                unsafe { Poison::of_call().fill(outputs[at], dtype, shape.iter().product()) };
            }
        }
        let compute = Compute::of_kernel(services, false);
        // SAFETY: promised by the caller, and these are the outputs.
        let done = unsafe { settled.call.run(&compute, inputs, &outputs[..settled.outputs.len()]) };
        done.map_err(|error| error.with_op(&op.signature().name))
    }

    #[cold]
    fn about_output(&self, op: &Op, flat: usize, error: Error) -> Error {
        let outputs = &op.signature().outputs;
        let own = (0..outputs.len()).find(|&arg| flat < self.output_offset(arg + 1)).unwrap_or(0);
        error.with_argument("output", &outputs[own].name).with_op(&op.signature().name)
    }
}
