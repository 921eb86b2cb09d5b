//! Property tests of operators from their definitions alone.
//!
//! [`check`] generates calls of each op of a library from its shape signature, its dtypes and its attributes' constraints,
//! and looks whether what holds of every op holds of this one ([`Property`]). A case that fails is shrunk.
//!
//! [`Sampler`] generates calls at any size, for those who measure them, and [`cuda_kernels`] finds which CUDA kernels calls launch.
//!
//! Calls are made in a process of their own ([`work`]), with tensors that lie before memory which nobody may touch: a
//! kernel that crashes, hangs, or reads outside its tensors is a failure like any other.

mod attrs;
mod case;
mod check;
mod generate;
mod kernels;
mod lab;
mod launched;
mod layout;
mod limits;
mod memory;
mod on_device;
mod process;
mod properties;
mod python;
mod ranks;
mod report;
mod sample;
mod source;
mod subject;
mod values;
mod wire;
mod worker;

pub use attrs::simplest;
pub use case::Inputs;
pub use check::{Options, check};
pub use generate::{Author, MakeInputs, Reference};
pub use kernels::{Kernel, Kernels, Unreached, cuda_kernels};
pub use process::Start;
pub use properties::Property;
pub use report::{Emphasis, Failure, Look, Plain, Report, Row, Verdict};
pub use sample::{Calls, Sample, Sampler};
pub use source::LibrarySource;
pub use worker::work;
