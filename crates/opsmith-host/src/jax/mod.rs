//! JAX: every op of a library is a handler of XLA's foreign function interface, on the CPU.
//!
//! `library!` exports a function for each op, `<op_name>_jax`, and `opsmith_jax_handler`, which gives any by its
//! position. Their user registers them as `<library>.<op_name>`: JAX has that in Python alone.
//!
//! XLA calls [`handle`], which reads the attributes (`attrs`), looks at the tensors where they lie (`arguments`), and
//! runs the plan with XLA's services (`host`).

mod arguments;
mod attrs;
mod ffi;
mod host;

use opsmith_core::kernel::CallInputs;
use opsmith_core::{DeviceKind, Error, Request, Result, ensure, panic};

use self::attrs::Attributes;
use self::ffi::ApiVersion;
use self::host::JaxHost;
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
    unsafe { handle(R::library(), INDEX, frame) }
}

/// Runs the op at `index` of the library on the call that `frame` describes; null is success.
///
/// # Safety
/// `frame` must be XLA's.
pub unsafe fn handle(
    library: &'static StaticLibrary,
    index: usize,
    frame: *mut CallFrame,
) -> *mut ErrorHandle {
    // SAFETY: promised by the caller; the first fields have been there from the first release.
    let frame = unsafe { &*frame };
    // SAFETY: as above.
    if unsafe { tell_metadata(frame) } || frame.stage != ffi::EXECUTE {
        return std::ptr::null_mut();
    }
    let outcome = panic::catch(|| {
        ensure!(
            frame.is_complete(),
            FailedPrecondition,
            "this release of XLA is too old: its calls lack fields"
        );
        // SAFETY: as above.
        unsafe { run(library, index, frame) }
    });
    match outcome {
        Ok(()) => std::ptr::null_mut(),
        // SAFETY: as above; XLA gives its functions with every call that computes.
        Err(error) => unsafe { (*frame.api).error(&error) },
    }
}

/// Says what the handler is, if that is what XLA asks.
///
/// # Safety
/// `frame` must be XLA's.
unsafe fn tell_metadata(frame: &CallFrame) -> bool {
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
        (*metadata).traits = 0;
    }
    true
}

/// # Safety
/// `frame` must be XLA's.
unsafe fn run(library: &'static StaticLibrary, index: usize, frame: &CallFrame) -> Result<()> {
    let op = &library.get()?.ops()[index];
    let signature = op.signature();
    let named = |error: Error| op.name_in(error);
    // SAFETY: promised by the caller.
    let (api, buffers, results, attrs) = unsafe {
        let attrs = Attributes::read(signature, &frame.attrs).map_err(named)?;
        (&*frame.api, frame.inputs.get(), frame.outputs.get(), attrs)
    };
    let counts = arguments::counts(signature, &attrs, buffers.len()).map_err(named)?;
    let changed = arguments::changed(signature, &attrs, &counts);
    let (results, changed) = results.split_at(results.len().saturating_sub(changed));
    // SAFETY: promised by the caller.
    let strides = unsafe { arguments::strides(buffers) };
    // SAFETY: as above.
    let views = unsafe { arguments::views(signature, &attrs, &counts, buffers, &strides, changed) };
    let views = views.map_err(named)?;
    let inputs = CallInputs { flat: &views, counts: &counts };
    let plan = op.plan(&Request { inputs, attrs: &attrs.values, device: DeviceKind::Cpu, label: "" })?;
    let outputs = arguments::outputs(signature, &plan, attrs.wanted, results).map_err(named)?;
    let host = JaxHost { api, context: frame.context, outputs, scratch: Scratch::default() };
    plan.run(op, inputs, attrs.wanted, &host)
}
