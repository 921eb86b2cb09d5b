//! Which changes of a library's definitions are safe for those who use it, and which break them.
//!
//! Pure functions over [`Definitions`]: [`compare`] gives each change with the [`Rule`] that judges it. Five kinds of
//! things depend on a definition, and a change is safe when all of them go on, with the same meaning:
//!
//! - **saved graphs**. TensorFlow's and JAX's hold flat lists of tensors in order, attributes by name (those that inputs
//!   decide too), and take the default of an attribute that they lack; TensorFlow's functions know outputs by name.
//!   Exported PyTorch programs hold all arguments by name, each a tensor or a list;
//! - **calls by position**: inputs first, then required attributes, then those with a default;
//! - **calls by keyword**, in Python and in installed packages: the names of inputs and attributes;
//! - **gradients**: whether one flows, and to which inputs;
//! - **parts of calls**: along which axes a call may be cut.
//!
//! **Architecture Invariant:** nothing here knows a file, a terminal or a library that is loaded. What definitions do not
//! say (what a kernel or a shape function computes) is not judged here.

mod args;
mod attrs;
mod change;
mod gradient;
mod kernels;
mod ops;
mod parallel;
mod rules;
mod shapes;

use crate::definitions::Definitions;

pub use change::{Change, Part};
pub use rules::{Rule, Verdict};

/// Every change from `old` to `new`, op by op, those of one op in the order of its definition.
pub fn compare(old: &Definitions, new: &Definitions) -> Vec<Change> {
    ops::compare(old, new)
}
