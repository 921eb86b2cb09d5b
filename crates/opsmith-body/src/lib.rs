//! Arithmetic written once: from one generic function the vectorised CPU kernel for every float type and instruction
//! set, its gradient, formulas for the documentation, and CUDA C++.
//!
//! A body is a function that is generic over [`Scalar`], as the method of a type that implements [`Body`] and whose
//! fields are the attributes:
//!
//! ```
//! use opsmith_body::{Body, Scalar, map};
//!
//! struct LltmCell;
//!
//! impl Body<4, 2> for LltmCell {
//!     #[inline(always)]
//!     fn eval<S: Scalar>(&self, [g0, g1, g2, old_cell]: [S; 4]) -> [S; 2] {
//!         let new_cell = old_cell + g2.elu() * g0.sigmoid();
//!         [new_cell.tanh() * g1.sigmoid(), new_cell]
//!     }
//! }
//!
//! let x = [0.0f32; 4];
//! let (mut hidden, mut cell) = ([1.0; 4], [1.0; 4]);
//! map(&LltmCell, [&x, &x, &x, &x], [&mut hidden, &mut cell]);
//! assert_eq!((hidden, cell), ([0.0; 4], [0.0; 4]));
//! ```
//!
//! | instantiated with | by | gives |
//! |---|---|---|
//! | [`F32<I>`](F32), [`F64<I>`](F64) | [`map`] over slices of `f32`, `f64`, `f16`, `bf16` ([`Element`]); [`block`] in other loops | the numbers, for tests and benches |
//! | [`Dual<S, N>`](Dual), nested for higher orders | itself | derivatives |
//! | [`Expr`] | [`trace`], which gives a [`Graph`] | [`Graph::formula`], [`Graph::gradient`] (a graph, of any order), [`Graph::cuda_source`], [`Graph::eval`], [`Interpreted`] (by blocks) |
//!
//! `I` is an instruction set ([`Isa`]). Everything is `#[inline(always)]` and without branches, so when [`dispatch`]
//! runs a loop in a function that enables the instruction set, the whole body is vectorised. Each instruction set is an
//! instantiation of its own, because a fused multiplication and addition is worth a factor of two and more where the
//! processor has it, and is a slow library call where it has not.
//!
//! The elementary functions are within 2 units in the last place, or 5 for those of the gamma function and those made of others; `cargo bench --bench accuracy` prints how far.

mod axes;
mod body;
#[doc(hidden)]
pub mod code;
mod dual;
mod element;
mod expr;
mod float;
mod indexed;
mod isa;
mod math;
mod rows;
mod scalar;

pub use axes::{Axes, Axis};
pub use body::{BLOCK, Block, Body, block, map, map_at};
pub use dual::Dual;
pub use element::{Element, Kind};
pub use expr::{
    Binary, Compare, CudaType, Expr, Fold, Graph, Id, Interpreted, Listing, MaskExpr, Nest, Nests, Node,
    Online, PART, Part, Piece, Place, Product, Products, Slices, Step, Sum, Temporary, Tile, Unary, across,
    add_part, compose, compose_over, fold_blocks, opcodes, sum_up, trace,
};
pub use float::{F32, F64, Float};
pub use indexed::{
    Index, IndexExpr, Indexed, IndexedMask, MOST_SMALLEST, trace_over, trace_pairs, trace_sized,
};
pub use isa::{Avx2, Avx512, Isa, Kernel, Level, Plain, dispatch, dispatch_at};
pub use rows::{Each, Rows, Traced, trace_rows};
pub use scalar::{Lane, Mask, Scalar};
