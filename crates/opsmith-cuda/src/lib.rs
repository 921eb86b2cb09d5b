//! CUDA for kernels of Opsmith's: sources compiled at their first use by NVRTC, kept on disk, and launched on the caller's
//! stream.
//!
//! Nothing of NVIDIA's is linked. The driver and NVRTC are opened when the first kernel is launched, so a library with CUDA
//! kernels loads on a machine that has neither, and says what is missing only when a tensor on a card arrives.
//!
//! - [`Source`], a text and where its author wrote it; [`Nvrtc`] compiles it;
//! - [`CudaCall`], a call on a card: [`kernel`](CudaCall::kernel) begins a launch;
//! - [`DeviceView`], [`DeviceViewMut`], tensors on a card, and [`DeviceArray`], parts and transposes of them, which
//!   [`gemm`](CudaCall::gemm) multiplies; [`Arguments`], what kernels get of them, [`Structure`], any other;
//! - [`CardMemory`], memory and a stream for a caller that has no framework to ask;
//! - [`with_launches_to`], for tests without a card.

pub mod ahead;
mod arguments;
mod array;
mod cache;
mod call;
mod digest;
mod driver;
mod find;
mod fold;
mod gemm;
mod launch;
mod memory;
mod nvrtc;
mod shared_object;
mod source;
mod space;
pub mod testing;
mod view;

pub use arguments::{Arguments, Structure};
pub use array::DeviceArray;
pub use cache::{VARIABLE as CACHE_VARIABLE, folder as cache_folder};
pub use call::{BLOCK, CudaCall, KernelCall, Temp};
pub use driver::Driver;
pub use find::VARIABLE as NVRTC_VARIABLE;
pub use fold::{Elements, Folding};
pub use gemm::CudaFloat;
pub use launch::{FLAGS_VARIABLE, Launch, MAX_GRID, compiled, with_launches_to};
pub use memory::CardMemory;
pub use nvrtc::Nvrtc;
pub use source::{Architecture, Compiled, HEADERS, Header, Source, Target};
pub use space::{index_of, lanes_along, lanes_of};
pub use view::{CudaElement, DeviceLayout, DeviceTensor, DeviceView, DeviceViewMut, Index};
