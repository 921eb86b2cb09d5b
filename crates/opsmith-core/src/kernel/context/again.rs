//! That a settled call does what the call did which it was settled by.

use std::cell::OnceCell;
use std::ptr::null;

use super::{OpKernelContext, Slot};
use crate::kernel::{Poison, Rest, Settled};
use crate::tensor::{Extents, TensorView, checked_num_elements};
use crate::{Error, Result, memory};

impl OpKernelContext<'_> {
    /// What is left to do of calls like this one, which has been computed, where that is what the kernel does with views of the tensors:
    /// its [`compute_settled`](crate::OpKernel::compute_settled).
    pub fn settled(&self) -> Settled {
        let made = |(flat, slot): (usize, &OnceCell<Slot>)| Some((flat, slot.get()?.shape.clone()));
        Settled { outputs: self.slots.iter().enumerate().filter_map(made).collect(), rest: Rest::Kernel }
    }

    /// How many outputs have been made.
    pub(crate) fn made(&self) -> usize {
        self.slots.iter().filter(|slot| slot.get().is_some()).count()
    }

    /// That a settled call makes the outputs that this one has made, each once and of the same shape.
    ///
    /// # Errors
    /// `Internal` where it does not.
    pub(crate) fn check_outputs(&self, settled: &Settled) -> Result<()> {
        let is_made = |(at, (flat, shape)): (usize, &(usize, Extents))| {
            let slot = self.slots.get(*flat).and_then(|slot| slot.get());
            let is_again = settled.outputs[..at].iter().any(|(other, _)| other == flat);
            !is_again && slot.is_some_and(|slot| slot.shape == *shape)
        };
        if self.made() != settled.outputs.len() || !settled.outputs.iter().enumerate().all(is_made) {
            return Err(Error::internal("the settled call makes other outputs than the kernel"));
        }
        Ok(())
    }

    /// Runs a settled call on the inputs of this one, and compares all bytes.
    ///
    /// # Errors
    /// `Internal` where outputs differ, and what the settled call says.
    pub(crate) fn check_settled(&self, settled: &Settled) -> Result<()> {
        let Rest::Call(call) = &settled.rest else {
            // The kernel's own code, which may have effects that nobody expects twice.
            return Ok(());
        };
        if self.written.get() != 0 {
            // The inputs are no longer what they were.
            return Ok(());
        }
        let inputs: Vec<*const u8> =
            self.inputs.iter().map(|tensor| tensor.as_ref().map_or(null(), TensorView::data_ptr)).collect();
        let count = |shape: &Extents| checked_num_elements(shape).unwrap_or(0);
        let size =
            |(flat, shape): &(usize, Extents)| count(shape) * self.resolved.output_dtypes[*flat].size();
        let room = |output| memory::filled(0_u128, size(output).div_ceil(16), "an output to compare");
        let mut again = settled.outputs.iter().map(room).collect::<Result<Vec<Vec<u128>>>>()?;
        let outputs: Vec<*mut u8> = again.iter_mut().map(|room| room.as_mut_ptr().cast()).collect();
        // What neither writes differs then.
        let poison = Poison::of_call();
        for ((flat, shape), output) in settled.outputs.iter().zip(&outputs) {
            let dtype = self.resolved.output_dtypes[*flat];
            // SAFETY: there is room for as many elements.
            unsafe { poison.fill(*output, dtype, count(shape)) };
        }
        // SAFETY: the inputs are those of a call of these shapes, dense and aligned, and the outputs are ours.
        unsafe { call.run(&self.compute, &inputs, &outputs)? };
        for (output, again) in settled.outputs.iter().zip(outputs) {
            let Some(slot) = self.slots[output.0].get().filter(|_| size(output) > 0) else { continue };
            // SAFETY: both have been written, or filled, and have so many bytes.
            let is_same = unsafe {
                std::slice::from_raw_parts(again, size(output))
                    == std::slice::from_raw_parts(slot.data, size(output))
            };
            if !is_same {
                return Err(Error::internal("the settled call gives something else than the kernel"));
            }
        }
        Ok(())
    }
}
