//! The arithmetic of Manhattan distances: on slices and sizes, knowing nothing of operators.
//!
//! Every kernel is one generic body over a register type, instantiated for each instruction set and chosen at run
//! time (`simd`). Threads come through the trait `Parallel`, which an op's `Compute` implements.

mod backward;
mod forward;
mod parallel;
mod rows;
mod second_order;
mod simd;
#[cfg(target_arch = "x86_64")]
mod x86;

pub(crate) use backward::backward;
pub(crate) use forward::forward;
pub(crate) use second_order::second_order;
pub(crate) use simd::Kernel;
