//! JAX: every op of a library is a handler of XLA's foreign function interface, on the CPU and, by another function, on cards.
//!
//! `library!` exports a function for each op, `<op_name>_jax`, and `opsmith_jax_handler`, which gives any by its
//! position. Their user registers them as `<library>.<op_name>`: JAX has that in Python alone. `<op_name>_jax_cuda` and
//! `opsmith_jax_cuda_handler` are the same for JAX's platform `CUDA`.
//!
//! XLA calls [`handle`], which reads the attributes (`attrs`), looks at the tensors where they lie (`arguments`), and
//! runs the plan with XLA's services (`services`).

mod arguments;
mod attrs;
mod ffi;
mod services;

use opsmith_core::kernel::CallInputs;
use opsmith_core::{DeviceKind, Error, KernelDef, Op, Request, Result, bail, ensure, panic};

use self::arguments::FrameArguments;
use self::attrs::Attributes;
use self::ffi::ApiVersion;
use self::services::{DeviceStream, DeviceTemps, JaxServices};
use crate::memory::Scratch;
use crate::{Root, StaticLibrary};

pub use self::ffi::{CallFrame, ErrorHandle};

/// What XLA calls for an op.
pub type Handler = unsafe extern "C" fn(*mut CallFrame) -> *mut ErrorHandle;

/// What XLA calls for the op at `INDEX` of the library.
///
/// # Safety
/// `frame` must be XLA's.
pub unsafe extern "C" fn handler<R: Root, const INDEX: usize>(frame: *mut CallFrame) -> *mut ErrorHandle {
    // SAFETY: promised by the caller.
    unsafe { handle(R::library(), INDEX, DeviceKind::Cpu, frame) }
}

/// What XLA calls on a card for the op at `INDEX` of the library.
///
/// # Safety
/// `frame` must be XLA's, of a program for CUDA.
pub unsafe extern "C" fn cuda_handler<R: Root, const INDEX: usize>(
    frame: *mut CallFrame,
) -> *mut ErrorHandle {
    // SAFETY: promised by the caller.
    unsafe { handle(R::library(), INDEX, DeviceKind::Cuda, frame) }
}

/// Runs the op at `index` of the library on the call that `frame` describes, on this kind of device; null is success.
///
/// # Safety
/// `frame` must be XLA's, of a program for this kind of device.
pub unsafe fn handle(
    library: &'static StaticLibrary,
    index: usize,
    kind: DeviceKind,
    frame: *mut CallFrame,
) -> *mut ErrorHandle {
    // SAFETY: promised by the caller; the first fields have been there from the first release.
    let frame = unsafe { &*frame };
    // SAFETY: as above.
    if unsafe { tell_metadata(library, index, kind, frame) } {
        return std::ptr::null_mut();
    }
    let outcome = panic::catch(|| match frame.stage {
        ffi::INSTANTIATE => check_kernel(&library.get()?.ops()[index], kind),
        ffi::EXECUTE => {
            ensure!(
                frame.is_complete(),
                FailedPrecondition,
                "this release of XLA is too old: its calls lack fields"
            );
            // SAFETY: as above.
            unsafe { run(library, index, kind, frame) }
        }
        _ => Ok(()),
    });
    match outcome {
        Ok(()) => std::ptr::null_mut(),
        // SAFETY: as above; XLA gives its functions with every call that computes.
        Err(error) => unsafe { (*frame.api).error(&named(library, index, error)) },
    }
}

/// The error of the op at this position, unless it is that the library has none.
#[cold]
fn named(library: &'static StaticLibrary, index: usize, error: Error) -> Error {
    match library.get() {
        Ok(library) => error.with_op(&library.ops()[index].signature().name),
        Err(_) => error,
    }
}

/// Says what the handler is, if that is what XLA asks.
///
/// # Safety
/// `frame` must be XLA's.
unsafe fn tell_metadata(library: &StaticLibrary, index: usize, kind: DeviceKind, frame: &CallFrame) -> bool {
    // SAFETY: an extension is of the structure that its kind says.
    unsafe {
        let Some(extension) = frame.extension.as_ref().filter(|extension| extension.kind == ffi::METADATA)
        else {
            return false;
        };
        let metadata = (*std::ptr::from_ref(extension).cast::<ffi::MetadataExtension>()).metadata;
        // What is here has been the same in all versions, so it is the version that is asked for. Releases of the
        // first one give no functions here.
        (*metadata).api_version = frame.api.as_ref().map_or(ApiVersion::FIRST, |api| api.version);
        (*metadata).traits = traits(library, index, kind);
    }
    true
}

/// What XLA may do with the handler's calls. Those on a card may be recorded and replayed where all kernels say so, and nothing
/// that lasts decides what a call does.
fn traits(library: &StaticLibrary, index: usize, kind: DeviceKind) -> u32 {
    let Ok(library) = library.get() else { return 0 };
    let op = &library.ops()[index];
    let mut kernels = op.kernels().iter().filter(|kernel| kernel.device() == kind).peekable();
    let is_capturable = kind == DeviceKind::Cuda
        && kernels.peek().is_some()
        && kernels.all(KernelDef::is_capturable)
        && !op.signature().stateful;
    if is_capturable { ffi::COMMAND_BUFFER_COMPATIBLE } else { 0 }
}

/// Refuses an op without a kernel for a kind of device: when a program is compiled, where XLA asks then.
fn check_kernel(op: &Op, kind: DeviceKind) -> Result<()> {
    let is_there = op.kernels().iter().any(|kernel| kernel.device() == kind);
    ensure!(is_there, Unimplemented, "has no {kind} kernel");
    Ok(())
}

/// What a card cannot be given as an array: XLA has all arrays there.
fn refuse_host_inputs(op: &Op, attrs: &Attributes) -> Result<()> {
    let kernels = op.kernels().iter().filter(|kernel| kernel.device() == DeviceKind::Cuda);
    let mut names = kernels.flat_map(KernelDef::host_memory_arguments);
    let is_on_card = |name: &str| {
        let input = op.signature().input_index(name);
        input.is_some_and(|input| attrs.has_buffer(input))
    };
    let Some(name) = names.find(|name| is_on_card(name)) else { return Ok(()) };
    bail!(
        InvalidArgument for name,
        "input `{name}` is read in host memory, and JAX has its arrays on the card: give it as a list or a number, \
         which becomes part of the program")
}

/// # Safety
/// `frame` must be XLA's, of a program for this kind of device.
unsafe fn run(
    library: &'static StaticLibrary,
    index: usize,
    kind: DeviceKind,
    frame: &CallFrame,
) -> Result<()> {
    let op = &library.get()?.ops()[index];
    let signature = op.signature();
    // SAFETY: promised by the caller.
    let (api, buffers, results, attrs) = unsafe {
        let attrs = Attributes::read(signature, &frame.attrs)?;
        (&*frame.api, frame.inputs.get(), frame.outputs.get(), attrs)
    };
    if kind == DeviceKind::Cuda {
        check_kernel(op, kind)?;
        refuse_host_inputs(op, &attrs)?;
    }
    let counts = arguments::counts(signature, &attrs, buffers.len())?;
    let changed = arguments::changed(signature, &attrs, &counts);
    let (results, changed) = results.split_at(results.len().saturating_sub(changed));
    // SAFETY: promised by the caller.
    let strides = unsafe { arguments::strides(buffers) };
    // SAFETY: as above.
    let place = unsafe { DeviceStream::of(kind, api, frame.context) }?;
    let scratch = Scratch::default();
    let constants = arguments::constants(&attrs, &scratch)?;
    let (device, strides, constants) = (place.device, &strides, &constants);
    let given = FrameArguments { device, buffers, strides, changed, constants };
    // SAFETY: as above.
    let views = unsafe { arguments::views(signature, &attrs, &counts, &given) }?;
    let inputs = CallInputs { flat: &views, counts: &counts };
    let plan = op.plan(&Request { inputs, attrs: &attrs.values, device: kind })?;
    let outputs = arguments::outputs(signature, &plan, attrs.wanted, results)?;
    // SAFETY: both are XLA's, of the call that runs.
    let temps = unsafe { DeviceTemps::new(api, frame.context) };
    let (context, capturable) = (frame.context, plan.is_capturable());
    let services = JaxServices { api, context, outputs, scratch: &scratch, place, capturable, temps };
    plan.run(op, inputs, attrs.wanted, &services)
}
