//! The command line `opsmith`: what authors of op libraries do beside writing them.
//!
//! [`run`] is the program, which is a file of its own, and a part of the Python package. [`compat`] says which changes of definitions
//! are safe, [`definitions`] reads them; both are of use without the program.

mod arguments;
mod bench;
mod build;
mod cargo;
mod check;
mod compare;
pub mod compat;
pub mod definitions;
mod graph;
mod inspect;
mod itself;
mod kernels;
mod new;
mod source;
mod text;
mod wheel;

pub use arguments::run;
pub use itself::Itself;

/// How a command ended, where it did what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Nothing is wrong.
    Good,
    /// What was looked at is at fault: exit status 1. What could not be done at all is an error, exit status 2.
    Fault,
}
