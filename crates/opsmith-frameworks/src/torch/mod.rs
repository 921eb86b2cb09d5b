//! PyTorch: every op of a library becomes `torch.ops.<library>.<op_name>`, native, with PyTorch's own memory and
//! threads.
//!
//! `libtorch_cpu` is found in the process at run time (`shim`); ops are defined from their signatures (`schema`,
//! `registration`); PyTorch calls [`kernel`], which reads the arguments (`stack`, `value`), runs the plan with
//! PyTorch's services (`services`) and leaves an error as a C++ exception (`error`).

mod error;
mod order;
mod registration;
mod schema;
mod services;
mod shim;
mod stack;
mod value;

use opsmith_core::kernel::CallInputs;
use opsmith_core::{Device, Op, Request, Result, Signature, TensorView, bail};
use smallvec::SmallVec;

use self::registration::Registered;
use self::schema::Binding;
use self::services::TorchServices;
use self::shim::Shim;
use self::stack::Arguments;
use crate::{Framework, Root, StaticLibrary};

pub use self::registration::Registration;
pub use self::shim::Kernel;

/// PyTorch, for libraries with [kernels](StaticLibrary::with_torch_kernels).
pub(crate) static FRAMEWORK: Framework = Framework {
    name: "PyTorch",
    key: "torch",
    register_if_present,
    // Without it, backward through an op is an error.
    release_gradients: |library| library.torch.release_autograd(),
};

/// Why PyTorch cannot have an op, if it cannot.
pub(crate) fn unsupported(op: &Op) -> Option<String> {
    schema::unsupported(op.signature())
}

/// Registers the library's ops if PyTorch is in the process.
///
/// # Errors
/// `AlreadyExists` when another library has defined one of the ops, `Unimplemented` for a PyTorch that is too old,
/// or what is wrong with the library's definitions. Ops that are not at fault are registered all the same.
fn register_if_present(library: &'static StaticLibrary) -> Result<bool> {
    let Some(shim) = Shim::find()? else { return Ok(false) };
    library.torch.ensure(library, shim).map(|()| true)
}

/// What PyTorch calls for the op at `INDEX` of the library.
///
/// # Safety
/// To be called by PyTorch alone, for an op that was registered with it: `stack` holds its arguments
/// as PyTorch's stable interface encodes them, and has room for its outputs.
pub unsafe extern "C-unwind" fn kernel<R: Root, const INDEX: usize>(
    stack: *mut u64,
    n_inputs: u64,
    n_outputs: u64,
) {
    let library = R::library();
    let Some(registered) = library.torch.registered().or_else(|| library.torch.wait()) else {
        // PyTorch gave us the function, so it is there to be told.
        if let Ok(Some(shim)) = Shim::find() {
            error::remember_text(&format!("{}: its registration with PyTorch failed", library.name()));
            // SAFETY: this frame has nothing to drop.
            unsafe { error::throw(shim) }
        }
        return;
    };
    // SAFETY: passed on from PyTorch.
    if unsafe { call(library, registered, INDEX, stack, n_inputs, n_outputs) } {
        return;
    }
    // SAFETY: `call` has dropped all it had, and this frame has nothing to drop.
    unsafe { error::throw(registered.shim) }
}

/// Runs the op; gives false, with the error remembered, when that fails.
#[cfg_attr(not(feature = "prebuilt"), inline)]
unsafe fn call(
    library: &'static StaticLibrary,
    registered: &Registered,
    index: usize,
    stack: *mut u64,
    n_inputs: u64,
    n_outputs: u64,
) -> bool {
    let Ok(checked) = library.get() else { return false };
    let (op, binding) = (&checked.ops()[index], &registered.bindings[index]);
    debug_assert_eq!(
        (n_inputs, n_outputs),
        (binding.slots.len() as u64, op.signature().outputs.len() as u64)
    );
    // SAFETY: passed on from PyTorch; the schema, hence the stack's layout, is the binding's.
    let outcome = opsmith_core::panic::catch(|| unsafe { run(registered, op, binding, stack) });
    match outcome {
        Ok(()) => true,
        Err(error) => {
            error::remember(library.name(), op.signature(), &error);
            false
        }
    }
}

#[inline]
unsafe fn run(registered: &Registered, op: &Op, binding: &Binding, stack: *mut u64) -> Result<()> {
    let (shim, signature) = (registered.shim, op.signature());
    let mut arguments = Arguments::new(shim, signature.attrs.len());
    // SAFETY: the caller says so.
    unsafe { arguments.take(binding, signature, stack) }?;
    if let Some(why) = &binding.unsupported {
        bail!(Unimplemented, "is not available in PyTorch: {why}");
    }
    let mut views: SmallVec<[Option<TensorView<'_>>; 8]> = SmallVec::new();
    let mut handles = arguments.tensors.iter();
    for (def, &count) in signature.inputs.iter().zip(&arguments.counts) {
        for &handle in handles.by_ref().take(count) {
            if handle.is_null() {
                views.push(None);
                continue;
            }
            // SAFETY: the arguments keep their tensors until the end of this function.
            match unsafe { value::view(shim, handle, def.is_ref) } {
                Ok(view) => views.push(Some(view)),
                Err(error) => return Err(error.with_argument("input", &def.name)),
            }
        }
    }
    if binding.changes_inputs {
        refuse_gradients(shim, signature, &arguments)?;
    }
    let inputs = CallInputs { flat: &views, counts: &arguments.counts };
    // A call with a tensor on a card runs there; the plan sees to where the others are.
    let on_card = views.iter().flatten().map(TensorView::device).find(|device| *device != Device::CPU);
    let device = on_card.unwrap_or(Device::CPU);
    let request = Request { inputs, attrs: &arguments.attrs, device: device.kind };
    let plan = op.plan(&request)?;
    let order = if binding.keeps_order { order::of_results(op, &plan, inputs) } else { None };
    let mut room = Vec::new();
    let permuted = order.as_ref().map(|order| order::permuted(order, &views, &mut room));
    let inputs = CallInputs { flat: permuted.as_deref().unwrap_or(&views), counts: &arguments.counts };
    let services = TorchServices::new(shim, plan.output_dtypes().len(), device, order.as_ref())?;
    if binding.changes_inputs {
        // Before the kernel runs: it must not write to what PyTorch refuses, and may have written when it fails.
        announce_changes(shim, signature, &arguments)?;
    }
    plan.run(op, inputs, arguments.wanted, &services)?;
    // SAFETY: the stack has room for the outputs, and its arguments have been taken.
    unsafe { services.give(signature, &plan, stack) }
}

/// Autograd cannot follow a change in place, and left alone would give the gradients of what was there before.
fn refuse_gradients(shim: &Shim, signature: &Signature, arguments: &Arguments<'_>) -> Result<()> {
    let tensors = arguments.tensors.iter().filter(|handle| !handle.is_null());
    // SAFETY: the arguments keep their tensors.
    let recorded = tensors.into_iter().any(|&handle| unsafe { value::is_recorded(shim, handle) });
    let Some(changed) = signature.inputs.iter().find(|def| def.is_ref && recorded) else { return Ok(()) };
    bail!(
        FailedPrecondition,
        "changes `{}` in place and has no gradient; call it under torch.no_grad() or on detached tensors",
        changed.name
    )
}

/// Tells autograd which tensors change; it refuses those that were made in inference mode and outlive it.
fn announce_changes(shim: &Shim, signature: &Signature, arguments: &Arguments<'_>) -> Result<()> {
    let mut handles = arguments.tensors.iter();
    for (def, &count) in signature.inputs.iter().zip(&arguments.counts) {
        for &handle in handles.by_ref().take(count).filter(|handle| def.is_ref && !handle.is_null()) {
            // SAFETY: the arguments keep their tensors.
            if !unsafe { value::bump_version(shim, handle) } {
                let why = shim.last_error();
                let made_there = why.to_lowercase().contains("inference");
                let advice =
                    if made_there { "; pass a clone of what was made in inference mode" } else { "" };
                let name = &def.name;
                bail!(FailedPrecondition for name, "input `{name}` cannot be changed in place{advice}: {why}");
            }
        }
    }
    Ok(())
}
