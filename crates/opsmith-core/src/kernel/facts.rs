//! What a kernel may ask of its op and of the call that it is in.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::attr::AttrValue;
use crate::resource::Resources;
use crate::shape::{InferenceContext, ShapeFn, ShapeSignature};
use crate::{DType, Result, Signature};

/// What an op says of itself, whatever its kernels.
pub(crate) struct OpFacts {
    pub(crate) signature: Signature,
    pub(crate) shape_fn: ShapeFn,
    pub(crate) shape_signature: Option<ShapeSignature>,
    pub(crate) resources: Arc<Resources>,
}

impl OpFacts {
    pub(crate) fn infer_shapes(&self, context: &mut InferenceContext<'_>) -> Result<()> {
        crate::panic::catch(|| (self.shape_fn)(context)).map_err(|error| error.with_op(&self.signature.name))
    }
}

/// What a call's dtypes, counts and attributes decide.
pub(crate) struct Resolved {
    /// Every attribute, in the definition's order.
    pub(crate) attrs: Vec<AttrValue>,
    pub(crate) capturable: bool,
    /// Where the tensors of each argument begin in the flat order, and where the last ends.
    pub(crate) input_offsets: SmallVec<[usize; 8]>,
    pub(crate) output_offsets: SmallVec<[usize; 8]>,
    /// The dtype of every output tensor, flat.
    pub(crate) output_dtypes: SmallVec<[DType; 8]>,
}

impl Resolved {
    /// Where the tensors of an input begin in the flat order; of the position past the last, where they end.
    pub(crate) fn input_offset(&self, arg: usize) -> usize {
        self.input_offsets[arg]
    }

    /// The same of an output.
    pub(crate) fn output_offset(&self, arg: usize) -> usize {
        self.output_offsets[arg]
    }
}
