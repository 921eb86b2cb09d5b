//! The shapes of a call, as what the op says of them has it.

use smallvec::SmallVec;

use super::OpKernelContext;
use crate::shape::{Bound, InferenceContext, Shape};
use crate::tensor::TensorView;
use crate::{Result, bail};

impl OpKernelContext<'_> {
    /// Binds the dims of the inputs to the names in the op's shape signature.
    ///
    /// # Errors
    /// `InvalidArgument` when a rank or dim does not fit it; `FailedPrecondition` when the op has none.
    pub fn bind_shapes(&self) -> Result<Bound<'_>> {
        let signature = self.signature();
        let Some(shapes) = &self.op.shape_signature else {
            bail!(FailedPrecondition, "has no shape signature");
        };
        let inputs: SmallVec<[Option<&[usize]>; 8]> =
            self.inputs.iter().map(|tensor| tensor.as_ref().map(TensorView::shape)).collect();
        shapes.bind(signature, &inputs, &self.resolved.attrs)
    }

    /// Asks the op's shape function, whatever it is, what it says of this call: the checks that it makes, and the shapes of
    /// the outputs, flat; of a dim that only values tell, that it is unknown. It takes about a microsecond, so a kernel that
    /// checks all by itself does without.
    ///
    /// # Errors
    /// What the shape function says of inputs that do not fit.
    pub fn infer_shapes(&self) -> Result<Vec<Shape>> {
        let signature = self.signature();
        let lists = (0..signature.inputs.len()).map(|arg| {
            let own = &self.inputs[self.resolved.input_offset(arg)..self.resolved.input_offset(arg + 1)];
            own.iter().map(|tensor| tensor.as_ref().map(|tensor| Shape::known(tensor.shape()))).collect()
        });
        let mut inference = InferenceContext::new(signature, &self.resolved.attrs, lists.collect())?;
        self.op.infer_shapes(&mut inference)?;
        Ok(inference.into_parts().0)
    }
}
