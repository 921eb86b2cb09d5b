//! Kernels: what computes an op, how one is registered, built and called.

mod argument;
mod choice;
mod compute;
mod construction;
mod context;
mod facts;
mod poison;
mod services;
mod settled;
#[cfg(test)]
mod settled_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use argument::{ArgKey, CallInputs, Dense};
pub use choice::{KernelRule, choose_kernel};
pub use compute::Compute;
pub use construction::{FromAttr, OpKernelConstruction};
pub use context::OpKernelContext;
pub(crate) use facts::{OpFacts, Resolved};
pub(crate) use poison::{Poison, unwritten};
pub use services::Services;
pub(crate) use settled::{CallShapes, MOST_INPUTS, MOST_OUTPUTS};
pub use settled::{Rest, Settled, SettledCall, SettledTensors};

use crate::{DType, DeviceKind, Element, Error, Result};

/// The computation of an op for one combination of dtypes on one kind of device.
///
/// An instance is built once per distinct attribute values and shared: `compute` is called concurrently, so state
/// that changes needs a lock.
pub trait OpKernel: Send + Sync + Sized + 'static {
    /// Builds an instance, reading and checking attributes.
    ///
    /// # Errors
    /// `InvalidArgument` for attribute values that the definition allows and the kernel does not.
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self>;

    /// Computes the outputs from the inputs.
    ///
    /// # Errors
    /// Whatever is wrong with the inputs, or what the caller said when asked for memory.
    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()>;

    /// What is left to do of the next call of the same shapes, after one on dense tensors that went well. A plan keeps it for the first four
    /// shapes of calls with at most 8 inputs, none of them `bool`, text or a `Ref`, and 4 outputs; these are not computed by
    /// [`compute`](Self::compute) any more.
    ///
    /// A kernel whose small calls should cost little gives it; most have no need to. Nothing else than the numbers may change from call to call:
    /// no state, and no shape that depends on values.
    /// [`OpKernelContext::settled`] is enough where views of dense tensors are all that the kernel takes.
    fn settle(&self, _context: &OpKernelContext<'_>) -> Option<Settled> {
        None
    }

    /// Computes a call of which [`settle`](Self::settle) has said that [`Rest::Kernel`] is left to do.
    ///
    /// # Errors
    /// Whatever is wrong besides shapes, which have been checked.
    fn compute_settled(&self, _compute: &Compute<'_>, _tensors: &SettledTensors<'_>) -> Result<()> {
        Err(Error::internal("the kernel has settled a call that it does not compute"))
    }
}

/// An instance of a kernel, its type forgotten.
pub(crate) trait Instance: Send + Sync {
    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()>;
    fn settle(&self, context: &OpKernelContext<'_>) -> Option<Settled>;
    fn compute_settled(&self, compute: &Compute<'_>, tensors: &SettledTensors<'_>) -> Result<()>;
}

impl<K: OpKernel> Instance for K {
    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        OpKernel::compute(self, context)
    }

    fn settle(&self, context: &OpKernelContext<'_>) -> Option<Settled> {
        OpKernel::settle(self, context)
    }

    fn compute_settled(&self, compute: &Compute<'_>, tensors: &SettledTensors<'_>) -> Result<()> {
        OpKernel::compute_settled(self, compute, tensors)
    }
}

/// Builds an instance and forgets its type.
fn build<K: OpKernel>(construction: &mut OpKernelConstruction<'_>) -> Result<Arc<dyn Instance>> {
    Ok(Arc::new(K::new(construction)?))
}

pub(crate) type Factory = fn(&mut OpKernelConstruction<'_>) -> Result<Arc<dyn Instance>>;

/// The registration of a kernel: for which device and dtypes, and what it asks of its inputs.
#[derive(Clone)]
pub struct KernelDef {
    pub(crate) device: DeviceKind,
    pub(crate) factory: Factory,
    pub(crate) constraints: Vec<(&'static str, DType)>,
    pub(crate) priority: i32,
    pub(crate) host_memory: Vec<&'static str>,
    pub(crate) strided: bool,
    pub(crate) capturable: bool,
}

/// A CPU kernel with the dtypes that it is for, as a constant: what `kernels!` lists. There may be many, and code that
/// registers each would be larger than some kernels.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct KernelRow {
    factory: Factory,
    constraints: &'static [(&'static str, DType)],
}

impl KernelRow {
    /// The registrations.
    pub fn register(rows: &[KernelRow]) -> Vec<KernelDef> {
        let register = |row: &KernelRow| KernelDef {
            constraints: row.constraints.to_vec(),
            ..KernelDef::made_by(row.factory, DeviceKind::Cpu)
        };
        rows.iter().map(register).collect()
    }
}

impl KernelDef {
    /// A CPU kernel: `KernelDef::cpu::<ZeroOut<f32>>().type_constraint::<f32>("T")`.
    pub fn cpu<K: OpKernel>() -> KernelDef {
        KernelDef::on::<K>(DeviceKind::Cpu)
    }

    /// What `kernels!` lists: a CPU kernel for calls in which each of these attributes is that dtype.
    #[doc(hidden)]
    pub const fn row<K: OpKernel>(constraints: &'static [(&'static str, DType)]) -> KernelRow {
        KernelRow { factory: build::<K>, constraints }
    }

    /// A CUDA kernel. Its inputs and outputs are on one card, but for inputs of [`host_memory`](Self::host_memory), and come
    /// with any strides: nothing is copied first.
    pub fn cuda<K: OpKernel>() -> KernelDef {
        KernelDef::on::<K>(DeviceKind::Cuda).strided()
    }

    fn on<K: OpKernel>(device: DeviceKind) -> KernelDef {
        KernelDef::made_by(build::<K>, device)
    }

    fn made_by(factory: Factory, device: DeviceKind) -> KernelDef {
        KernelDef {
            device,
            factory,
            constraints: Vec::new(),
            priority: 0,
            host_memory: Vec::new(),
            strided: false,
            capturable: false,
        }
    }

    /// The kind of device that it runs on.
    pub fn device(&self) -> DeviceKind {
        self.device
    }

    /// The `type` attributes that it is restricted by, each with its dtype.
    pub fn constraints(&self) -> &[(&'static str, DType)] {
        &self.constraints
    }

    /// The arguments that it keeps in host memory.
    pub fn host_memory_arguments(&self) -> &[&'static str] {
        &self.host_memory
    }

    /// Its rank among kernels that fit a call.
    pub fn rank(&self) -> i32 {
        self.priority
    }

    /// Restricts the kernel to calls in which the `type` attribute `attr` is the dtype of `T`.
    #[must_use]
    pub fn type_constraint<T: Element>(self, attr: &'static str) -> KernelDef {
        self.dtype_constraint(attr, T::DTYPE)
    }

    /// Restricts the kernel to calls in which the `type` attribute `attr` is `dtype`.
    #[must_use]
    pub fn dtype_constraint(mut self, attr: &'static str, dtype: DType) -> KernelDef {
        self.constraints.push((attr, dtype));
        self
    }

    /// Among kernels that fit a call, the one with the highest priority is taken; 0 unless set.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> KernelDef {
        self.priority = priority;
        self
    }

    /// Keeps the input `arg` in host memory on a device that has memory of its own.
    #[must_use]
    pub fn host_memory(mut self, arg: &'static str) -> KernelDef {
        self.host_memory.push(arg);
        self
    }

    /// Whether calls may be recorded once and replayed: see [`capturable`](Self::capturable).
    pub fn is_capturable(&self) -> bool {
        self.capturable
    }

    /// Says that the work that a call puts on its stream follows from shapes, attributes, what inputs in host memory hold, and
    /// addresses alone, and needs no temporary memory. So it may be recorded once and replayed, as JAX's command buffers are: temporary memory is gone by
    /// then. A call that asks for some all the same is an error, in every framework.
    #[must_use]
    pub fn capturable(mut self) -> KernelDef {
        self.capturable = true;
        self
    }

    /// Lets inputs arrive with any strides. Without it, an input that is not row-major is copied first.
    #[must_use]
    pub fn strided(mut self) -> KernelDef {
        self.strided = true;
        self
    }
}
