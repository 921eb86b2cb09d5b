//! Runs of plans on dense tensors, settled ones and others.

use std::ptr::null_mut;

use smallvec::SmallVec;

use super::Op;
use super::plan::Plan;
use crate::kernel::{
    CallInputs, CallShapes, Compute, Dense, MOST_OUTPUTS, Poison, Rest, Services, Settled, SettledTensors,
    unwritten,
};
use crate::tensor::{Strides, TensorView, checked_num_elements, row_major_strides};
use crate::{DType, Device, Error, Result};

impl Plan {
    /// As [`run`](Self::run), on tensors of the plan's dtypes and counts that are all dense, on the device of `services` or, where the kernel
    /// takes them there, in host memory: `input` tells each by its number in the flat order, nothing for an absent one.
    ///
    /// # Errors
    /// As [`run`](Self::run), but a panic in a settled call unwinds: the caller runs under a [`catch`](crate::panic::catch), and names the op.
    ///
    /// # Safety
    /// Until it returns, or on a card until the work on the stream is done, the elements must be readable and not written by anybody. They
    /// need not be aligned.
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
        let (mut views, device) = (SmallVec::<[Option<TensorView<'_>>; 8]>::new(), services.device());
        let tensors = inputs.iter().zip(self.dtypes()).zip(&strides).enumerate();
        views.extend(tensors.map(|(at, ((tensor, dtype), strides))| {
            let (Dense { data, shape }, place) = ((*tensor)?, self.place(at, device));
            // SAFETY: promised by the caller.
            Some(unsafe { TensorView::from_raw_parts(data, (*dtype)?, place, shape, strides) })
        }));
        self.run_views(op, CallInputs { flat: &views, counts: self.counts() }, wanted, services)
    }

    /// Runs a call that is settled; gives nothing if it is not. A panic is for the caller to catch.
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
        let (settled, data) =
            self.settled.find(wanted, tensor).filter(|_| inputs.len() == self.dtypes().len())?;
        // SAFETY: the tensors have been found to be such as the call was settled for.
        Some(unsafe { self.run_settled(op, settled, &data[..inputs.len()], services) })
    }

    /// # Safety
    /// The inputs must be such as the call was settled for.
    unsafe fn run_settled(
        &self,
        op: &Op,
        (shapes, settled): &(CallShapes, Settled),
        inputs: &[*const u8],
        services: &dyn Services,
    ) -> Result<()> {
        let (mut outputs, poison) = ([null_mut(); MOST_OUTPUTS], Poison::of_call());
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
                unsafe { poison.fill(outputs[at], dtype, checked_num_elements(shape).unwrap_or(0)) };
            }
        }
        let compute = Compute::of_kernel(services, false);
        let made = &outputs[..settled.outputs.len()];
        let done = match &settled.rest {
            // SAFETY: promised by the caller, and these are the outputs.
            Rest::Call(call) => unsafe { call.run(&compute, inputs, made) },
            Rest::Kernel => {
                let outputs = (made, &*settled.outputs, self.output_dtypes());
                // SAFETY: as above.
                let tensors = unsafe { SettledTensors::new(shapes, (inputs, self.dtypes()), outputs) };
                let done = self.instance.compute_settled(&compute, &tensors);
                if cfg!(debug_assertions)
                    && done.is_ok()
                    && let Some(flat) = tensors.unwritten(poison)
                {
                    return Err(self.about_output(op, flat, unwritten()));
                }
                done
            }
        };
        done.map_err(|error| error.with_op(&op.signature().name))
    }

    #[cold]
    fn about_output(&self, op: &Op, flat: usize, error: Error) -> Error {
        let outputs = &op.signature().outputs;
        let own = (0..outputs.len()).find(|&arg| flat < self.output_offset(arg + 1)).unwrap_or(0);
        error.with_argument("output", &outputs[own].name).with_op(&op.signature().name)
    }
}
