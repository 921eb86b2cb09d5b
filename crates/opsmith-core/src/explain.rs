//! What a kernel that is written once turns into, for a person to read.

use std::sync::Arc;

use crate::Result;
use crate::kernel::OpKernelConstruction;

/// What an op's kernel is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explanation {
    /// What it computes, a line for each output and for each common subexpression.
    pub formula: String,
    /// The CUDA C++ source of its kernel, which NVRTC compiles without any header.
    pub cuda_source: String,
    /// The instructions that it runs with on this processor, and how many elements they take: `AVX-512, 16 × float32`.
    pub vectors: String,
}

/// What makes the [`Explanation`] of an op for some attributes.
pub type ExplainFn = Arc<dyn Fn(&OpKernelConstruction<'_>) -> Result<Explanation> + Send + Sync>;
