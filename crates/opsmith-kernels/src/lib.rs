//! Kernels for bodies that are written once: loops over tensors with broadcasting and strides, reductions, pairwise
//! folds and products of matrices, on the threads and memory of the call's services, and the ops that they make.
//!
//! `opsmith-body` knows the arithmetic, `opsmith-core` the tensors and ops; here they meet.

mod arithmetic;
pub mod body;
mod cuda;
mod explain;
mod facts;
mod float;
mod kept;
mod map;
mod nests;
mod operand;
pub mod pointwise;
mod product;
pub mod reduce;
mod stored;

pub use facts::{Facts, OneBody, OutputShapes, choice};
pub use float::{AnyFloat, Float};
pub use map::{ComputeExt, gemm};
