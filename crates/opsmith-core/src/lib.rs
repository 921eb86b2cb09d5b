//! What an operator is: its definition, shapes, kernels, gradient and errors.
//!
//! This crate knows no framework, opens no file and starts no thread. Frameworks (PyTorch, TensorFlow, JAX, the
//! embedded engine) turn their calls into calls on this crate and lend it memory and threads.
//!
//! An author states an op with [`OpDef`]; a [`Library`] checks the statements and keeps [`Op`]s; a framework asks an op
//! for the [`Plan`] of a call and runs it with its [`Services`](kernel::Services).

mod platform;

pub mod abi;
pub mod attr;
mod autocast;
pub mod def;
mod device;
pub mod dtype;
mod error;
mod explain;
pub mod family;
mod foreign;
pub mod fork;
mod gradient;
pub mod kernel;
mod library;
pub mod memory;
mod op;
pub mod panic;
mod parallel;
mod program;
mod resource;
pub mod shape;
pub mod space;
pub mod strided;
pub mod tensor;
pub mod testing;

pub use attr::AttrValue;
pub use autocast::Autocast;
pub use def::{ArgDTypes, Signature, SignatureBuilder};
pub use device::{Device, DeviceKind};
pub use dtype::{DType, Element};
pub use error::{Code, Error, Result};
pub use explain::{ExplainFn, Explanation};
#[doc(hidden)]
pub use gradient::{Arguments, check_gradient};
pub use gradient::{Gradient, GradientInput, GradientWiring};
pub use kernel::{Compute, KernelDef, KernelRow, OpKernel, OpKernelConstruction, OpKernelContext};
pub use library::Library;
pub use op::{MAX_COMPANIONS, Op, OpDef, OpDefinition, Plan, PlanRef, Request};
pub use parallel::{Batch, Calls, FreeAxis, OutputAxis, Parallel};
pub use program::{Program, ProgramFn, ProgramRows};
pub use resource::{Resource, ResourceGuard};
pub use shape::{Dim, InferenceContext, Shape, ShapeFn, ShapeSignature, functions as shape_fns};
pub use tensor::{TensorView, TensorViewMut};
