//! From a call's dtypes and attributes to the kernel that runs it: resolved once, then found again by comparison.
//!
//! A caller turns each of its calls into [`Op::plan`] and [`Plan::run`]. There is no other way to a kernel: where all tensors are dense,
//! [`Plan::run_dense`] is the same.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::Op;
use super::settled::SettledCalls;
use crate::attr::AttrValue;
use crate::fork::{self, Mutex, RwLock, Turn};
use crate::kernel::{
    CallInputs, Compute, Instance, KernelDef, KernelRule, OpKernelConstruction, OpKernelContext, Resolved,
    Services, choose_kernel,
};
use crate::tensor::{TensorView, TensorViewMut, row_major_strides};
use crate::{DType, Device, DeviceKind, Error, Result, bail, ensure};

/// How many plans an op keeps for good, where they are found without a lock.
const PINNED_PLANS: usize = 8;

/// How many more plans an op keeps. A caller that varies a float attribute at every call must not fill the memory.
const MAX_PLANS: usize = 256;

/// The type of each tensor of a call, `None` where an optional input is absent.
type DTypes = SmallVec<[Option<DType>; 8]>;

/// What a caller asks a plan for.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The tensors, of which only dtypes and counts matter here.
    pub inputs: CallInputs<'a>,
    /// The attributes in the definition's order, `None` where the caller gives none.
    pub attrs: &'a [Option<AttrValue>],
    /// Where the call runs.
    pub device: DeviceKind,
}

/// Where a plan's instance comes from: the kernel's position, the attributes and the device decide it.
type MakeInstance = fn(&Op, usize, &[AttrValue], DeviceKind) -> Result<Arc<dyn Instance>>;

/// What decides which kernel runs.
struct Key {
    dtypes: DTypes,
    counts: SmallVec<[usize; 8]>,
    attrs: Vec<Option<AttrValue>>,
    device: DeviceKind,
}

impl Key {
    fn matches(&self, request: &Request<'_>) -> bool {
        self.fits(request.inputs, request.device) && self.attrs.iter().eq(request.attrs)
    }

    fn fits(&self, inputs: CallInputs<'_>, device: DeviceKind) -> bool {
        self.device == device
            && self.dtypes.len() == inputs.flat.len()
            && self.dtypes.iter().zip(inputs.flat).all(|(a, b)| *a == b.as_ref().map(TensorView::dtype))
            // Element by element: a call of `memcmp` costs more than these few words.
            && self.counts.iter().eq(inputs.counts)
    }
}

/// A kernel built for some attribute values, shared by all plans that resolve to them.
struct SharedInstance {
    kernel: usize,
    attrs: Vec<AttrValue>,
    instance: Arc<dyn Instance>,
}

/// The instances that an op has made, one at a time.
#[derive(Default)]
pub(crate) struct Instances {
    made: Mutex<Vec<SharedInstance>>,
    turn: Turn,
}

/// The older half of a cache that is full.
fn make_room<T>(cache: &mut Vec<T>) -> Vec<T> {
    if cache.len() < MAX_PLANS { Vec::new() } else { cache.drain(..MAX_PLANS / 2).collect() }
}

/// A call's dtypes and attributes, resolved: which kernel runs, and what it gives.
pub struct Plan {
    key: Key,
    resolved: Resolved,
    pub(super) instance: Arc<dyn Instance>,
    strided: bool,
    has_ref: bool,
    /// Bit `i` is set when a kernel on another device than the CPU keeps input `i` in host memory.
    host_memory: u64,
    pub(super) settled: SettledCalls,
}

/// The plans that an op has made.
#[derive(Default)]
pub(crate) struct Plans {
    pinned: [OnceLock<Arc<Plan>>; PINNED_PLANS],
    others: RwLock<Vec<Arc<Plan>>>,
}

/// A plan, for as long as its op or its own count of references.
pub enum PlanRef<'a> {
    /// One that the op keeps for good.
    Pinned(&'a Plan),
    /// One that the op may let go of.
    Shared(Arc<Plan>),
}

impl Deref for PlanRef<'_> {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        match self {
            PlanRef::Pinned(plan) => plan,
            PlanRef::Shared(plan) => plan,
        }
    }
}

impl Op {
    /// The plan for a call, from the op's cache where it has been made before.
    ///
    /// # Errors
    /// `InvalidArgument` when dtypes, counts or attributes do not fit the definition, `Unimplemented` when there
    /// is no kernel for them, or what the kernel's constructor said.
    pub fn plan(&self, request: &Request<'_>) -> Result<PlanRef<'_>> {
        for pinned in &self.plans.pinned {
            match pinned.get() {
                Some(plan) if plan.key.matches(request) => return Ok(PlanRef::Pinned(plan)),
                Some(_) => {}
                None => break,
            }
        }
        self.shared_plan(request).map(PlanRef::Shared)
    }

    /// A plan with an instance of its own, which no other call shares: for a caller that has nodes and keeps a plan with
    /// each.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub fn node_plan(&self, request: &Request<'_>) -> Result<Plan> {
        self.new_plan(request, Op::new_instance).map_err(|error| error.with_op(&self.signature().name))
    }

    #[cold]
    fn shared_plan(&self, request: &Request<'_>) -> Result<Arc<Plan>> {
        let plans = self.plans.others.read();
        if let Some(plan) = plans.iter().find(|plan| plan.key.matches(request)) {
            return Ok(plan.clone());
        }
        drop(plans);
        let plan = Arc::new(
            self.new_plan(request, Op::instance).map_err(|error| error.with_op(&self.signature().name))?,
        );
        for pinned in &self.plans.pinned {
            // Another call may have taken the place, even with an equal plan: then there are two, which is harmless.
            if Arc::ptr_eq(fork::set_or_get(pinned, plan.clone()), &plan) {
                return Ok(plan);
            }
        }
        let mut plans = self.plans.others.write();
        // Dropped when the lock is not held any more: kernels have authors.
        let old = make_room(&mut plans);
        plans.push(plan.clone());
        drop(plans);
        drop(old);
        Ok(plan)
    }

    fn new_plan(&self, request: &Request<'_>, instance: MakeInstance) -> Result<Plan> {
        let Request { inputs, attrs, device } = *request;
        let signature = self.signature();
        let dtypes: DTypes =
            inputs.flat.iter().map(|tensor| tensor.as_ref().map(TensorView::dtype)).collect();
        if inputs.counts.len() != signature.inputs.len() {
            return Err(signature.wrong_number_of_inputs(inputs.counts.len()));
        }
        signature.check_counts(inputs.counts, dtypes.len())?;
        let input_offsets = offsets(inputs.counts.iter().copied());
        for (arg, &count) in signature.inputs.iter().zip(inputs.counts) {
            let (name, is_one) = (&arg.name, arg.count.is_list() || count == 1);
            ensure!(is_one, InvalidArgument for name, "input `{name}` must be one tensor, got {count}");
        }
        let resolved = signature.resolve_flat((inputs.counts, &dtypes), attrs)?;
        let kernel = self.select_kernel(&resolved.attrs, device)?;
        let instance = instance(self, kernel, &resolved.attrs, device)?;
        let has_ref = signature.inputs.iter().any(|arg| arg.is_ref);
        let output_dtypes: SmallVec<[DType; 8]> = resolved.output_dtypes.iter().flatten().copied().collect();
        Ok(Plan {
            settled: SettledCalls::new(device == DeviceKind::Cpu && !has_ref, &dtypes, &output_dtypes),
            key: Key { dtypes, counts: inputs.counts.into(), attrs: attrs.to_vec(), device },
            instance,
            strided: self.kernels[kernel].strided,
            host_memory: self.kernels[kernel]
                .host_memory
                .iter()
                .filter_map(|name| signature.input_index(name))
                .fold(0, |bits, input| bits | 1 << input),
            has_ref,
            resolved: Resolved {
                capturable: self.kernels[kernel].capturable,
                input_offsets,
                output_offsets: offsets(resolved.output_dtypes.iter().map(Vec::len)),
                output_dtypes,
                attrs: resolved.attrs,
            },
        })
    }

    /// The registered kernel for these attributes.
    fn select_kernel(&self, attrs: &[AttrValue], device: DeviceKind) -> Result<usize> {
        let signature = self.signature();
        let rule = |kernel: &KernelDef| KernelRule {
            device: kernel.device,
            priority: kernel.priority.into(),
            // Of attributes that there are: an op with another constraint is refused when it is built.
            types: kernel
                .constraints
                .iter()
                .filter_map(|(attr, dtype)| Some((signature.attr_index(attr)?, *dtype)))
                .collect(),
        };
        let rules: Vec<KernelRule> = self.kernels.iter().map(rule).collect();
        choose_kernel(signature, &rules, attrs, device)
    }

    fn instance(&self, kernel: usize, attrs: &[AttrValue], device: DeviceKind) -> Result<Arc<dyn Instance>> {
        let known = |shared: &&SharedInstance| shared.kernel == kernel && shared.attrs == attrs;
        let _turn = self.instances.turn.take();
        if let Some(shared) = self.instances.made.lock().iter().find(known) {
            return Ok(shared.instance.clone());
        }
        let instance = self.new_instance(kernel, attrs, device)?;
        let new = SharedInstance { kernel, attrs: attrs.to_vec(), instance: instance.clone() };
        let mut made = self.instances.made.lock();
        let old = if self.signature().stateful { Vec::new() } else { make_room(&mut made) };
        made.push(new);
        drop(made);
        drop(old);
        Ok(instance)
    }

    fn new_instance(
        &self,
        kernel: usize,
        attrs: &[AttrValue],
        device: DeviceKind,
    ) -> Result<Arc<dyn Instance>> {
        let mut construction = OpKernelConstruction::new(self.signature(), attrs, device);
        crate::panic::catch(|| (self.kernels[kernel].factory)(&mut construction))
    }
}

/// Running sums: where each argument's tensors begin, and where the last ends.
fn offsets(counts: impl Iterator<Item = usize>) -> SmallVec<[usize; 8]> {
    let mut offsets: SmallVec<[usize; 8]> = SmallVec::new();
    offsets.push(0);
    let mut total = 0;
    for count in counts {
        total += count;
        offsets.push(total);
    }
    offsets
}

impl Plan {
    /// Every attribute, in the definition's order.
    pub fn attrs(&self) -> &[AttrValue] {
        &self.resolved.attrs
    }

    /// The dtype of every output tensor, flat.
    pub fn output_dtypes(&self) -> &[DType] {
        &self.resolved.output_dtypes
    }

    /// Whether the kernel says of itself that it is [`capturable`](crate::KernelDef::capturable).
    pub fn is_capturable(&self) -> bool {
        self.resolved.capturable
    }

    /// Where the tensors of output `arg` begin in the flat order; of the position past the last, where they end.
    pub fn output_offset(&self, arg: usize) -> usize {
        self.resolved.output_offset(arg)
    }

    /// The dtype of every input tensor, flat, nothing for one that is absent.
    pub fn dtypes(&self) -> &[Option<DType>] {
        &self.key.dtypes
    }

    /// How many tensors each input holds.
    pub fn counts(&self) -> &[usize] {
        &self.key.counts
    }

    /// Whether it is for tensors of these dtypes and counts, on this kind of device.
    pub fn is_for(&self, inputs: CallInputs<'_>, device: DeviceKind) -> bool {
        self.key.fits(inputs, device)
    }

    /// Runs the kernel. `wanted` has bit `i` set when output `i` of the definition is wanted; it matters for
    /// optional outputs only. Outputs are made through `services`; after an error those made are to be thrown away.
    ///
    /// # Errors
    /// What the kernel said, a panic in it being `Internal`; every error names the op.
    pub fn run(&self, op: &Op, inputs: CallInputs<'_>, wanted: u64, services: &dyn Services) -> Result<()> {
        let run = || self.run_if_settled(op, inputs.flat, wanted, services).transpose();
        match crate::panic::catch(run) {
            Ok(Some(())) => Ok(()),
            Ok(None) => self.run_views(op, inputs, wanted, services),
            Err(error) => Err(error.with_op(&op.signature().name)),
        }
    }

    /// The same, of a call that is not settled.
    pub(super) fn run_views(
        &self,
        op: &Op,
        inputs: CallInputs<'_>,
        wanted: u64,
        services: &dyn Services,
    ) -> Result<()> {
        let run = || {
            if self.has_ref {
                refuse_overlap(op, self, inputs.flat)?;
            }
            if self.key.device != DeviceKind::Cpu {
                // Nothing is copied on a device.
                self.check_places(op, inputs.flat, services.device())?;
                return self.compute(op, inputs.flat, 0, wanted, services);
            }
            if inputs.flat.iter().flatten().all(|tensor| self.takes(tensor)) {
                return self.compute(op, inputs.flat, 0, wanted, services);
            }
            self.compute_dense(op, inputs, wanted, services)
        };
        crate::panic::catch(run).map_err(|error| error.with_op(&op.signature().name))
    }

    /// Where the kernel of a call on `device` takes the input tensor at a flat position.
    pub(super) fn place(&self, flat: usize, device: Device) -> Device {
        let own = |arg: &usize| flat < self.resolved.input_offset(arg + 1);
        let is_kept = |arg: usize| self.host_memory >> arg & 1 == 1;
        match self.host_memory != 0 && (0..self.key.counts.len()).find(own).is_some_and(is_kept) {
            true => Device::CPU,
            false => device,
        }
    }

    /// That each input of a call on another device than the CPU is where the kernel takes it.
    fn check_places(&self, op: &Op, inputs: &[Option<TensorView<'_>>], device: Device) -> Result<()> {
        for (arg, def) in op.signature().inputs.iter().enumerate() {
            let in_host_memory = self.host_memory >> arg & 1 == 1;
            for tensor in
                inputs[self.resolved.input_offset(arg)..self.resolved.input_offset(arg + 1)].iter().flatten()
            {
                let (name, place) = (&def.name, tensor.device());
                if in_host_memory {
                    ensure!(
                        place.kind == DeviceKind::Cpu,
                        InvalidArgument for name,
                        "input `{name}` is on {place}; the {} kernel reads it in host memory",
                        device.kind
                    );
                } else {
                    ensure!(
                        place == device,
                        InvalidArgument for name,
                        "input `{name}` is on {place}, but others are on {device}; move it there"
                    );
                }
                // What a card holds is not looked into; what is in host memory has to be values.
                ensure!(
                    tensor.is_aligned() && tensor.is_well_formed(),
                    InvalidArgument for name,
                    "input `{name}` is not aligned for its dtype, or is bool with bytes other than 0 and 1"
                );
            }
        }
        Ok(())
    }

    fn compute(
        &self,
        op: &Op,
        inputs: &[Option<TensorView<'_>>],
        copied: u64,
        wanted: u64,
        services: &dyn Services,
    ) -> Result<()> {
        let mut context = OpKernelContext::new(&op.facts, &self.resolved, inputs, copied, wanted, services);
        self.instance.compute(&mut context)?;
        context.finish()?;
        // Of copies nothing is learnt: the next call on the same tensors has to make them too.
        if copied == 0 { self.settled.learn(inputs, wanted, (&*self.instance, &context)) } else { Ok(()) }
    }

    /// Whether the kernel can read a tensor where it lies.
    #[inline]
    fn takes(&self, tensor: &TensorView<'_>) -> bool {
        tensor.is_well_formed() && (self.strided || tensor.is_contiguous())
    }

    /// Copies first what the kernel cannot read where it lies.
    fn compute_dense(
        &self,
        op: &Op,
        inputs: CallInputs<'_>,
        wanted: u64,
        services: &dyn Services,
    ) -> Result<()> {
        let strides: Vec<_> = inputs
            .flat
            .iter()
            .map(|tensor| row_major_strides(tensor.as_ref().map_or(&[], TensorView::shape)))
            .collect();
        let mut dense: SmallVec<[Option<TensorView<'_>>; 8]> = SmallVec::with_capacity(inputs.flat.len());
        let mut copied = 0;
        for (arg, def) in op.signature().inputs.iter().enumerate() {
            let range = self.resolved.input_offset(arg)..self.resolved.input_offset(arg + 1);
            for (tensor, strides) in inputs.flat[range.clone()].iter().zip(&strides[range]) {
                dense.push(match tensor {
                    // A tensor changed in place must stay the caller's own.
                    Some(tensor) if !self.takes(tensor) && !def.is_ref => {
                        copied |= 1 << arg;
                        let copy = copy_dense(*tensor, strides, services);
                        let about = |error: Error| error.with_argument("a dense copy of input", &def.name);
                        Some(copy.map_err(about)?)
                    }
                    as_it_is => *as_it_is,
                });
            }
        }
        self.compute(op, &dense, copied, wanted, services)
    }
}

fn copy_dense<'a>(
    tensor: TensorView<'a>,
    strides: &'a [isize],
    services: &dyn Services,
) -> Result<TensorView<'a>> {
    let bytes = crate::tensor::checked_num_elements(tensor.shape())
        .and_then(|n| n.checked_mul(tensor.dtype().size()))
        .ok_or_else(|| {
            Error::resource_exhausted(format!("a copy of shape {:?} is too large", tensor.shape()))
        })?;
    let data = services.allocate_temp(bytes.max(1))?.as_ptr();
    // SAFETY: the temporary has room for every element of the dense layout and is ours until the call ends; its
    // bytes are all written before the view is read.
    let dense = unsafe {
        let mut copy =
            TensorViewMut::from_raw_parts(data, tensor.dtype(), tensor.device(), tensor.shape(), strides);
        crate::strided::copy_elements(tensor, &mut copy, Some(&Compute::new(services)))?;
        if tensor.dtype() == DType::Bool {
            // Any byte but 0 is true, as frameworks have it.
            std::slice::from_raw_parts_mut(data, bytes)
                .iter_mut()
                .for_each(|byte| *byte = (*byte != 0).into());
        }
        TensorView::from_raw_parts(data, tensor.dtype(), tensor.device(), tensor.shape(), strides)
    };
    Ok(dense)
}

/// A tensor that is changed in place must not share memory with any other input, nor elements with itself.
fn refuse_overlap(op: &Op, plan: &Plan, inputs: &[Option<TensorView<'_>>]) -> Result<()> {
    let signature = op.signature();
    for (arg, def) in signature.inputs.iter().enumerate().filter(|(_, def)| def.is_ref) {
        for at in plan.resolved.input_offset(arg)..plan.resolved.input_offset(arg + 1) {
            let Some(changed) = inputs[at] else { continue };
            let own = changed.byte_range();
            let shared = inputs.iter().enumerate().any(|(other, tensor)| {
                let range = tensor.as_ref().map_or(0..0, TensorView::byte_range);
                other != at && !range.is_empty() && range.start < own.end && own.start < range.end
            });
            let why = if shared {
                "shares memory with another input"
            } else if changed.may_overlap_itself() {
                "has elements that share memory, as an expanded tensor does"
            } else if !changed.is_well_formed() {
                "is not aligned for its dtype, or is bool with bytes other than 0 and 1"
            } else {
                continue;
            };
            let name = &def.name;
            bail!(InvalidArgument for name, "input `{name}` is changed in place and {why}; pass a copy");
        }
    }
    Ok(())
}
