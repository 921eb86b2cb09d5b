//! One call through the C ABI, and the services that its caller lends.

use std::ffi::c_void;
use std::ptr::NonNull;

use opsmith_core::abi::{OpsmithAttr, OpsmithCall, OpsmithPlan, OpsmithServices, OpsmithStr, OpsmithTensor};
use opsmith_core::kernel::{CallInputs, Services};
use opsmith_core::tensor::row_major_strides;
use opsmith_core::{
    AttrValue, DType, Device, Error, Op, Plan, PlanRef, Request, Result, Signature, TensorView, ensure,
};
use opsmith_threads::{Body, body_context, call_body};
use smallvec::SmallVec;

use super::launch::with_launches_of;
use super::read;
use crate::StaticLibrary;
use crate::memory::Scratch;

/// The most arguments of an op whose caller need not say how many tensors each holds.
const ONES: [usize; 64] = [1; 64];

/// The attributes of a call that gives none.
static NO_ATTRS: [Option<AttrValue>; 16] = [const { None }; 16];

/// Runs a call.
///
/// # Safety
/// `call` and all that it points to must be valid as `opsmith_core::abi` says.
#[inline]
pub(super) unsafe fn run(library: &'static StaticLibrary, call: *const OpsmithCall) -> Result<()> {
    // SAFETY: promised by the caller.
    unsafe { with_inputs(library, call, |called, inputs, device| called.run(inputs, device)) }
}

/// A plan for calls like this one.
///
/// # Safety
/// As for [`run`].
pub(super) unsafe fn plan(
    library: &'static StaticLibrary,
    call: *const OpsmithCall,
) -> Result<*mut OpsmithPlan> {
    let make = |called: Called<'_>, inputs: CallInputs<'_>, device: Device| {
        // SAFETY: promised by the caller.
        let attrs = unsafe { attributes(called.op.signature(), called.call.attrs, called.call.num_attrs) }?;
        let plan = called.op.plan(&Request { inputs, attrs: &attrs, device: device.kind })?;
        Ok(Box::into_raw(Box::new(Planned { op: called.op, plan })).cast())
    };
    // SAFETY: promised by the caller.
    unsafe { with_inputs(library, call, make) }
}

/// Frees a plan.
///
/// # Safety
/// `plan` must be null or one that [`plan`] gave and nobody freed or uses.
pub(super) unsafe extern "C" fn free_plan(plan: *mut OpsmithPlan) {
    if !plan.is_null() {
        // SAFETY: promised by the caller.
        drop(unsafe { Box::from_raw(plan.cast::<Planned>()) });
    }
}

/// What is behind an [`OpsmithPlan`].
struct Planned {
    op: &'static Op,
    plan: PlanRef<'static>,
}

/// A call whose op is known.
struct Called<'a> {
    op: &'static Op,
    call: &'a OpsmithCall,
    services: &'a OpsmithServices,
}

impl Called<'_> {
    #[inline]
    fn run(&self, inputs: CallInputs<'_>, device: Device) -> Result<()> {
        if device != Device::CPU && !read::has_stream(self.services) {
            return Err(self.without_stream(device));
        }
        // SAFETY: the caller of the C ABI gives none, or a plan of this library that is not freed meanwhile.
        let Some(planned) = (unsafe { self.call.plan.cast::<Planned>().as_ref() }) else {
            let given;
            let num_attrs = self.op.signature().attrs.len();
            let attrs = match NO_ATTRS.get(..num_attrs) {
                // Most calls give none, and a list of them would be copied about.
                Some(none) if self.call.num_attrs == 0 => none,
                _ => {
                    // SAFETY: the call's attributes are valid, as its caller promised.
                    given = unsafe { attributes(self.op.signature(), self.call.attrs, self.call.num_attrs) }?;
                    &given
                }
            };
            let plan = self.op.plan(&Request { inputs, attrs, device: device.kind })?;
            return self.run_plan(&plan, inputs, device);
        };
        ensure!(
            std::ptr::eq(planned.op, self.op) && planned.plan.is_for(inputs, device.kind),
            InvalidArgument,
            "the plan of the call is for another op, or for tensors of other dtypes"
        );
        self.run_plan(&planned.plan, inputs, device)
    }

    /// Work on a card goes on its caller's stream: any other would not be waited for.
    #[cold]
    fn without_stream(&self, device: Device) -> Error {
        Error::failed_precondition(format!(
            "the call is on {device}, and its services, of {} bytes, have no `stream`: they are of a version of the ABI before calls on \
             a card; build the caller with a newer opsmith.h",
            self.services.size
        ))
    }

    #[inline]
    fn run_plan(&self, plan: &Plan, inputs: CallInputs<'_>, device: Device) -> Result<()> {
        let call = self.call;
        if !call.output_counts.is_null() {
            for arg in 0..call.num_outputs.min(self.op.signature().outputs.len()) {
                let count = plan.output_offset(arg + 1) - plan.output_offset(arg);
                // SAFETY: the caller gives room for `num_outputs` counts.
                unsafe { call.output_counts.add(arg).write(count) };
            }
        }
        let services = CallServices { services: self.services, device, scratch: Scratch::default() };
        let run = || plan.run(self.op, inputs, call.wanted, &services);
        if device == Device::CPU { run() } else { with_launches_of(self.services, run) }
    }
}

/// Reads the tensors of a call.
///
/// # Safety
/// As for [`run`].
#[inline]
unsafe fn with_inputs<R>(
    library: &'static StaticLibrary,
    call: *const OpsmithCall,
    body: impl FnOnce(Called<'_>, CallInputs<'_>, Device) -> Result<R>,
) -> Result<R> {
    // SAFETY: promised by the caller.
    let (call, services) = unsafe {
        let call = read::structure(call, "the call")?;
        (call, read::services(call.services)?)
    };
    let ops = library.get()?.ops();
    let op = ops.get(call.op).ok_or_else(|| {
        Error::not_found(format!("library `{}` has {} ops, no op {}", library.name(), ops.len(), call.op))
    })?;
    let read = || {
        // SAFETY: promised by the caller.
        let (pointers, counts) = unsafe {
            let pointers = read::slice(call.tensors, call.num_tensors, "the list of tensors")?;
            let counts = match call.counts.is_null() {
                true => ONES.get(..call.num_tensors).unwrap_or(&[]),
                false => read::slice(call.counts, call.num_arguments, "the list of counts")?,
            };
            (pointers, counts)
        };
        // The strides that the caller left out, tensor after tensor. A scalar has none.
        let lacks = |(tensor, shape): &TensorAndShape<'_>| tensor.strides.is_null() && !shape.is_empty();
        let mut dense: SmallVec<[isize; 24]> = SmallVec::new();
        let mut inputs: SmallVec<[Option<TensorView<'_>>; 8]> = SmallVec::new();
        // SAFETY: promised by the caller.
        let given = |pointer| unsafe { given(pointer) };
        for &pointer in pointers {
            inputs.push(match given(pointer)? {
                None => None,
                Some(given) if lacks(&given) => {
                    dense.extend_from_slice(&row_major_strides(given.1));
                    None
                }
                // SAFETY: as above.
                Some((tensor, shape)) => Some(unsafe { read::view(tensor, shape, &[]) }?),
            });
        }
        let mut dense = dense.as_slice();
        if !dense.is_empty() {
            for (&pointer, input) in pointers.iter().zip(&mut inputs) {
                if let Some((tensor, shape)) = given(pointer)?.filter(lacks) {
                    let strides = dense.split_off(..shape.len()).unwrap_or_default();
                    // SAFETY: as above.
                    *input = Some(unsafe { read::view(tensor, shape, strides) }?);
                }
            }
        }
        let inputs = CallInputs { flat: &inputs, counts };
        let device = one_device(op, inputs.flat)?;
        body(Called { op, call, services: &services }, inputs, device)
    };
    read().map_err(|error| error.with_op(&op.signature().name))
}

/// A tensor that was passed, and its dims.
type TensorAndShape<'a> = (&'a OpsmithTensor, &'a [usize]);

/// What a pointer to a tensor passes; null is an absent one.
///
/// # Safety
/// `pointer` must be null or point to a valid tensor, for `'a`.
#[inline]
unsafe fn given<'a>(pointer: *const OpsmithTensor) -> Result<Option<TensorAndShape<'a>>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: promised by the caller.
    unsafe {
        let tensor = read::structure(pointer, "a tensor")?;
        Ok(Some((tensor, read::dims(tensor)?)))
    }
}

/// The attributes by the definition's indices.
///
/// # Safety
/// The `num_attrs` attributes must be valid.
pub(super) unsafe fn attributes(
    signature: &Signature,
    given: *const *const OpsmithAttr,
    num_attrs: usize,
) -> Result<SmallVec<[Option<AttrValue>; 4]>> {
    let mut attrs: SmallVec<[Option<AttrValue>; 4]> = SmallVec::new();
    attrs.resize_with(signature.attrs.len(), || None);
    // SAFETY: promised by the caller.
    let pointers = unsafe { read::slice(given, num_attrs, "the list of attributes") }?;
    for &pointer in pointers {
        // SAFETY: promised by the caller.
        let (attr, name) = unsafe {
            let attr = read::structure(pointer, "an attribute")?;
            let name = read::text(attr.name);
            (attr, name.map_err(|error| error.within("the name of an attribute"))?)
        };
        let index = signature.attr_index(name).ok_or_else(|| signature.unknown_attr(name))?;
        // SAFETY: promised by the caller.
        let value = unsafe { read::attr(attr) };
        let value = value.map_err(|error| error.with_argument("attribute", name))?;
        ensure!(
            attrs[index].replace(value).is_none(),
            InvalidArgument for name,
            "attribute `{name}` is given twice");
    }
    Ok(attrs)
}

/// The device of all tensors; host memory when there are none. Where a kernel reads inputs in host memory, that of the
/// others: the plan sees to which are where.
#[inline]
fn one_device(op: &Op, tensors: &[Option<TensorView<'_>>]) -> Result<Device> {
    let mut devices = tensors.iter().flatten().map(TensorView::device);
    let Some(first) = devices.next() else { return Ok(Device::CPU) };
    match devices.find(|device| *device != first) {
        Some(other) => main_device(op, tensors, first, other),
        None => Ok(first),
    }
}

#[cold]
fn main_device(op: &Op, tensors: &[Option<TensorView<'_>>], first: Device, other: Device) -> Result<Device> {
    let reads_host_memory = op
        .kernels()
        .iter()
        .any(|kernel| kernel.device() != Device::CPU.kind && !kernel.host_memory_arguments().is_empty());
    let mut cards = tensors.iter().flatten().map(TensorView::device).filter(|device| *device != Device::CPU);
    let card = cards.next();
    match card.filter(|card| reads_host_memory && cards.all(|device| device == *card)) {
        Some(card) => Ok(card),
        None => Err(Error::invalid_argument(format!(
            "inputs are on {first} and {other}; all must be on one device"
        ))),
    }
}

/// The services of a call through the C ABI: the caller's where it lends them, else ours.
struct CallServices<'a> {
    services: &'a OpsmithServices,
    device: Device,
    scratch: Scratch,
}

// SAFETY: the caller of the C ABI promises it for what it lends; `Scratch` and our pool keep the rest.
unsafe impl Services for CallServices<'_> {
    fn device(&self) -> Device {
        self.device
    }

    fn allocate_output(&self, index: usize, dtype: DType, shape: &[usize]) -> Result<*mut u8> {
        let Some(allocate) = self.services.allocate_output else {
            return Err(Error::failed_precondition("the caller lends no `allocate_output`"));
        };
        let dims = shape.as_ptr().cast::<i64>();
        // SAFETY: the caller's function gets its own context and a shape of `rank` dims, none above `i64::MAX`.
        let data = unsafe { allocate(self.services.context, index, dtype as i32, shape.len() as i32, dims) };
        if data.is_null() {
            let message = format!("cannot allocate a {dtype} tensor of shape {shape:?}");
            return Err(Error::resource_exhausted(message));
        }
        Ok(data.cast())
    }

    fn allocate_temp(&self, bytes: usize) -> Result<NonNull<u8>> {
        self.scratch.allocate(bytes)
    }

    fn allocate_device_temp(&self, bytes: usize) -> Result<NonNull<u8>> {
        let Some(allocate) = self.services.allocate_temp else {
            return Err(Error::unimplemented("the caller lends no `allocate_temp`, memory on the device"));
        };
        // SAFETY: the caller's function gets its own context.
        let data = unsafe { allocate(self.services.context, bytes) };
        NonNull::new(data.cast()).ok_or_else(|| {
            Error::resource_exhausted(format!(
                "cannot allocate a temporary of {bytes} bytes on {}",
                self.device
            ))
        })
    }

    fn stream(&self) -> *mut c_void {
        self.services.stream
    }

    fn keep_string(&self, bytes: &[u8]) -> Result<NonNull<u8>> {
        let Some(keep) = self.services.keep_string else {
            return Err(Error::unimplemented("the caller has no string tensors"));
        };
        if bytes.is_empty() {
            return Ok(NonNull::dangling());
        }
        let text = OpsmithStr { data: bytes.as_ptr().cast(), len: bytes.len() };
        // SAFETY: the caller's function gets its own context and readable bytes.
        let kept = unsafe { keep(self.services.context, text) };
        NonNull::new(kept.cast_mut().cast()).ok_or_else(|| {
            Error::resource_exhausted(format!("cannot keep a string of {} bytes", bytes.len()))
        })
    }

    fn num_threads(&self) -> usize {
        match (self.services.num_threads, self.services.parallel_for) {
            // SAFETY: the caller's function gets its own context.
            (Some(num_threads), Some(_)) => unsafe { num_threads(self.services.context) }.max(1),
            _ => opsmith_threads::num_threads(),
        }
    }

    fn parallel_for(&self, total: usize, grain: usize, body: Body<'_>) {
        match (self.services.num_threads, self.services.parallel_for) {
            // SAFETY: the caller's function gets its own context, and returns when all calls of the body are done.
            (Some(_), Some(parallel_for)) => unsafe {
                parallel_for(self.services.context, total, grain, call_body, body_context(&body));
            },
            _ => opsmith_threads::parallel_for(total, grain, body),
        }
    }
}
