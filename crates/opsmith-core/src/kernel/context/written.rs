//! That a kernel has written what it made.

use super::OpKernelContext;
use crate::Result;
use crate::kernel::poison::unwritten;
use crate::tensor::TensorView;

impl OpKernelContext<'_> {
    /// That something was written to the tensors of an output.
    pub(super) fn check_written(&self, arg: usize) -> Result<()> {
        for flat in self.resolved.output_offset(arg)..self.resolved.output_offset(arg + 1) {
            let Some(slot) = self.slots[flat].get() else { continue };
            // One that is made of an input began as that.
            if self.inputs.iter().flatten().any(|input| std::ptr::eq(input.data_ptr(), slot.data)) {
                continue;
            }
            let (dtype, device) = (self.resolved.output_dtypes[flat], self.services.device());
            // SAFETY: the caller gave dense memory for this dtype and shape, and the kernel is done with it.
            let output =
                unsafe { TensorView::from_raw_parts(slot.data, dtype, device, &slot.shape, &slot.strides) };
            if self.poison.is_untouched(&output, self.inputs) {
                return Err(self.about_output(arg, unwritten()));
            }
        }
        Ok(())
    }
}
