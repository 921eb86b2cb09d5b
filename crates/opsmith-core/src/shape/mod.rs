//! Shapes, and the inference of the outputs' shapes from those of the inputs.
//!
//! A [`Dim`] is known, unknown, or an expression over named symbols, and one [`ShapeFn`] serves all three: partial
//! shapes in TensorFlow, symbolic integers in PyTorch and JAX, concrete sizes in a call.

mod constraint;
pub(crate) mod context;
mod dim;
mod expr;
pub mod functions;
pub(crate) mod parse;
#[expect(clippy::module_inception, reason = "the type `Shape` has its own file")]
mod shape;
mod signature;
mod table;
#[cfg(test)]
mod tests;

pub use constraint::{Constraint, Relation};
pub use context::{InferenceContext, ShapeFn};
pub use dim::Dim;
pub use expr::Expr;
pub use parse::SignatureError;
pub use shape::Shape;
pub use signature::{ArgShape, Bound, ShapeSignature, Sizes, UNKNOWN_DIM};
pub use table::{DimTable, Dims};
