//! The embedded engine: tensors, libraries of operators and their ops, graphs and sessions, derivatives, optimisers.
//!
//! ```no_run
//! use ndarray::array;
//! use opsmith_runtime::{Library, Tensor};
//!
//! # fn main() -> opsmith_core::Result<()> {
//! let library = Library::open("libdistances.so")?;
//! let x = Tensor::from(array![[0.0, 1.0], [2.0, 3.0]]);
//! let z = library.op("pairwise_manhattan_distance")?.call(&[(&x).into(), (&x).into()], &[])?;
//! assert_eq!(z[0].view::<f64, ndarray::Ix2>()?, array![[0.0, 4.0], [4.0, 0.0]]);
//! # Ok(())
//! # }
//! ```
//!
//! A library is reached through the C ABI alone ([`opsmith_core::abi`]): what is loaded may have been built by another version of
//! Opsmith. The standard operators are linked, and are reached in the same way.
//!
//! [`Graph`] and [`Session`] state ops now and run them later; `docs/engine.md` is the guide.

mod ask;
mod attrs;
mod autodiff;
mod buffer;
mod call;
mod device;
mod elf;
mod gradient;
mod graph;
mod info;
mod json;
mod kernel;
mod launch;
mod library;
mod loader;
mod memory;
mod op;
mod optimizer;
mod outputs;
mod pointed;
mod poison;
mod pool;
mod program;
mod query;
mod session;
mod shapes;
mod sparse;
mod standard;
mod storage;
mod tape;
mod tensor;
mod told;

pub use autodiff::{Compose, gradients, gradients_with, jvp, jvp_with};
/// A tensor in the form of DLPack, as [`Tensor::into_dlpack`] gives it.
pub use dlpark::versioned::Dlpack;
pub use memory::Owner;

pub use call::{Arg, CallInputs, OutputMemory};
pub use device::Card;
pub use graph::{CallBuilder, Graph, GraphArg, Operation, Output, SavedLibrary, SourceLine, Variable};
pub use kernel::KernelInfo;
#[doc(hidden)]
pub use library::check_description;
pub use library::{Library, Op};
pub use optimizer::{Adam, GradientDescent, Momentum, Optimizer};
pub use pool::MemoryUse;
pub use session::{Outcome, Runner, Session, SessionOptions, Trace, TraceEvent};
pub use shapes::Argument;
pub use sparse::{SparseTensor, check_places};
pub use storage::{load_tensors, save_tensors, tensors_from_bytes, tensors_to_bytes};
pub use tape::{Tape, TapeArg, Traced};
pub use tensor::Tensor;
pub use told::Inferred;

/// The Rust code of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/engine.md")]
struct Guide;
