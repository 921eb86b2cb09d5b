//! That a settled call does what the call did which it was settled by.

use std::ptr::null;

use super::OpKernelContext;
use crate::kernel::Settled;
use crate::tensor::TensorView;
use crate::{Error, Result, memory};

impl OpKernelContext<'_> {
    /// Runs a settled call on the inputs of this one, and compares all bytes.
    ///
    /// # Errors
    /// `Internal` where outputs differ, and what the settled call says.
    pub(crate) fn check_settled(&self, settled: &Settled) -> Result<()> {
        if self.written.get() != 0 {
            // The inputs are no longer what they were.
            return Ok(());
        }
        let inputs: Vec<*const u8> =
            self.inputs.iter().map(|tensor| tensor.as_ref().map_or(null(), TensorView::data_ptr)).collect();
        let size = |(flat, shape): &(usize, crate::tensor::Extents)| {
            shape.iter().product::<usize>() * self.resolved.output_dtypes[*flat].size()
        };
        let room = |output| memory::filled(0_u128, size(output).div_ceil(16), "an output to compare");
        let mut again = settled.outputs.iter().map(room).collect::<Result<Vec<Vec<u128>>>>()?;
        let outputs: Vec<*mut u8> = again.iter_mut().map(|room| room.as_mut_ptr().cast()).collect();
        for ((flat, shape), output) in settled.outputs.iter().zip(&outputs) {
            let dtype = self.resolved.output_dtypes[*flat];
            // SAFETY: there is room for as many elements.
            unsafe { self.poison.fill(*output, dtype, shape.iter().product()) };
        }
        // SAFETY: the inputs are those of a call of these shapes, dense and aligned, and the outputs are ours.
        unsafe { settled.call.run(&self.compute, &inputs, &outputs)? };
        for (output, again) in settled.outputs.iter().zip(outputs) {
            let made = self.slots[output.0].get().filter(|slot| slot.shape == output.1);
            // SAFETY: both have been written, or filled, and have so many bytes.
            let is_same = made.is_some_and(|slot| unsafe {
                std::slice::from_raw_parts(again, size(output))
                    == std::slice::from_raw_parts(slot.data, size(output))
            });
            if !is_same {
                return Err(Error::internal("the settled call gives something else than the kernel"));
            }
        }
        Ok(())
    }
}
