//! The registration of a library's ops with PyTorch: once, whenever PyTorch turns up.

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicPtr, Ordering};

use opsmith_core::fork::{OnceLock, Turn};
use opsmith_core::{DeviceKind, Error, Library, Op, Result, bail};

use super::schema::Binding;
use super::shim::{Kernel, LibraryHandle, Shim};
use crate::StaticLibrary;
use crate::refused::Refused;

/// The functions that PyTorch calls for a library's ops, and how far their registration has come.
pub struct Registration {
    kernels: &'static [Kernel],
    outcome: OnceLock<Result<Registered>>,
    turn: Turn,
    /// Where the kernels that make backward an error are registered; null when there are none (any more).
    autograd: AtomicPtr<std::ffi::c_void>,
}

/// A library's ops as PyTorch knows them.
pub(super) struct Registered {
    pub(super) shim: &'static Shim,
    pub(super) bindings: Vec<Binding>,
    refused: Refused,
}

impl Default for Registration {
    fn default() -> Self {
        Self::new()
    }
}

impl Registration {
    /// A library without functions for PyTorch.
    pub const fn new() -> Registration {
        Registration {
            kernels: &[],
            outcome: OnceLock::new(),
            turn: Turn::new(),
            autograd: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Gives the library these functions, one for each op.
    pub(crate) const fn set_kernels(&mut self, kernels: &'static [Kernel]) {
        self.kernels = kernels;
    }

    pub(super) fn registered(&self) -> Option<&Registered> {
        self.outcome.get()?.as_ref().ok()
    }

    /// As [`registered`](Self::registered), once a registration that is under way on another thread is done: PyTorch has
    /// an op's function before the last op is registered.
    #[cold]
    pub(super) fn wait(&self) -> Option<&Registered> {
        drop(self.turn.take());
        self.registered()
    }

    /// Registers the ops unless that has been done, and gives what came of it.
    pub(super) fn ensure(&self, library: &'static StaticLibrary, shim: &'static Shim) -> Result<()> {
        let _turn = self.turn.take();
        let outcome = self.outcome.get_or_init(|| {
            let library = library.get()?;
            // A library that does not serve PyTorch has no functions for it.
            if self.kernels.len() != library.ops().len() {
                bail!(Unimplemented, "library `{}` was built without PyTorch support", library.name());
            }
            super::services::watch_forks();
            opsmith_threads::stay_loaded();
            self.register_all(library, shim)
        });
        outcome.as_ref().map_err(Clone::clone)?.refused.outcome()
    }

    fn register_all(&self, library: &Library, shim: &'static Shim) -> Result<Registered> {
        let namespace = Namespace::new(shim, library.name())?;
        let mut registered = Registered { shim, bindings: Vec::new(), refused: Refused::default() };
        for (op, kernel) in library.ops().iter().zip(self.kernels) {
            let mut binding = Binding::new(op.signature(), op.parallel());
            if binding.uses_lists_or_strings && !shim.has_lists_and_strings() {
                binding.unsupported.get_or_insert_with(|| {
                    "takes lists or strings, which PyTorch passes from release 2.10 on".to_owned()
                });
            }
            let outcome = namespace.define(op, &binding, *kernel);
            registered.refused.note(&op.signature().name, outcome);
            registered.bindings.push(binding);
        }
        self.autograd.store(namespace.autograd.unwrap_or(std::ptr::null_mut()), Ordering::Release);
        Ok(registered)
    }

    /// Takes back what makes backward an error, so that somebody who has the gradients can register them.
    pub(super) fn release_autograd(&self) {
        let handle = self.autograd.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if let (false, Some(registered)) = (handle.is_null(), self.registered()) {
            // SAFETY: the handle is live, and nobody else has it any more.
            unsafe { (registered.shim.functions.aoti_torch_delete_library_object)(handle) };
        }
    }
}

/// The handles through which a library's ops are defined.
struct Namespace {
    name: CString,
    shim: &'static Shim,
    definitions: LibraryHandle,
    cpu: LibraryHandle,
    cuda: LibraryHandle,
    any_device: LibraryHandle,
    autograd: Option<LibraryHandle>,
}

impl Namespace {
    fn new(shim: &'static Shim, name: &str) -> Result<Namespace> {
        let name = c_string(name)?;
        let mut definitions = std::ptr::null_mut();
        let init = shim.functions.aoti_torch_library_init_fragment;
        // SAFETY: both texts are C strings and the pointer is to a local of the right type.
        if unsafe { init(name.as_ptr(), FILE.as_ptr(), line!(), &mut definitions) } != 0 {
            bail!(Internal, "PyTorch refuses the namespace {name:?}: {}", shim.last_error());
        }
        Ok(Namespace {
            shim,
            definitions,
            cpu: implementations(shim, &name, c"CPU")?,
            cuda: implementations(shim, &name, c"CUDA")?,
            any_device: implementations(shim, &name, c"CompositeExplicitAutograd")?,
            autograd: match shim.autograd {
                Some(_) => Some(implementations(shim, &name, c"Autograd")?),
                None => None,
            },
            name,
        })
    }

    /// Defines an op and registers its kernel; the error says why PyTorch does not have it.
    fn define(&self, op: &Op, binding: &Binding, kernel: Kernel) -> Result<()> {
        let (name, schema) = (c_string(&binding.name)?, c_string(&binding.schema)?);
        if self.define_schema(&schema, op.signature().stateful) != 0 {
            // The one reason that does not depend on the schema text, which is made to be well formed.
            let namespace = self.name.to_string_lossy();
            bail!(
                AlreadyExists,
                "PyTorch has an op of this name already, from a library loaded before in namespace `{namespace}`"
            );
        }
        let refused = || Error::internal(format!("PyTorch refuses its kernel: {}", self.shim.last_error()));
        if binding.may_have_tensors && self.implement(self.cpu, &name, kernel) != 0 {
            return Err(refused());
        }
        let on_cuda = op.kernels().iter().any(|kernel| kernel.device() == DeviceKind::Cuda);
        if on_cuda && binding.may_have_tensors && self.implement(self.cuda, &name, kernel) != 0 {
            return Err(refused());
        }
        if binding.may_lack_tensors && self.implement(self.any_device, &name, kernel) != 0 {
            return Err(refused());
        }
        if let (Some(fallback), Some(library)) = (&self.shim.autograd, self.autograd)
            && binding.may_have_tensors
            && !binding.changes_inputs
        {
            // SAFETY: the handle is for the key `Autograd` and the op has just been defined.
            unsafe { fallback.register(library, &name) };
        }
        Ok(())
    }

    fn define_schema(&self, schema: &CStr, stateful: bool) -> i32 {
        let functions = &self.shim.functions;
        // SAFETY: the handle is live, the text a C string, and the tag's number PyTorch's own.
        unsafe {
            match (functions.torch_library_def_with_tags, functions.torch_tag_nondeterministic_seeded) {
                // So tagged, an op is not merged with an equal one or dropped when its outputs are not used.
                (Some(define), Some(tag)) if stateful => define(self.definitions, schema.as_ptr(), &tag(), 1),
                _ => (functions.aoti_torch_library_def)(self.definitions, schema.as_ptr()),
            }
        }
    }

    fn implement(&self, library: LibraryHandle, name: &CStr, kernel: Kernel) -> i32 {
        /// The release whose encodings the kernels use.
        const VERSION: u64 = 2 << 56 | 10 << 48;
        let functions = &self.shim.functions;
        // SAFETY: the handle is live, the name a C string, and the kernel there for the life of the process.
        unsafe {
            match functions.torch_library_impl {
                Some(implement) => implement(library, name.as_ptr(), kernel, VERSION),
                None => (functions.aoti_torch_library_impl)(library, name.as_ptr(), kernel),
            }
        }
    }
}

const FILE: &CStr = c"opsmith";

fn implementations(shim: &Shim, namespace: &CStr, key: &CStr) -> Result<LibraryHandle> {
    let mut handle = std::ptr::null_mut();
    let init = shim.functions.aoti_torch_library_init_impl;
    // SAFETY: all texts are C strings and the pointer is to a local of the right type.
    if unsafe { init(namespace.as_ptr(), key.as_ptr(), FILE.as_ptr(), line!(), &mut handle) } != 0 {
        bail!(Internal, "PyTorch refuses kernels for {key:?}: {}", shim.last_error());
    }
    Ok(handle)
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::internal(format!("{text:?} has a NUL")))
}
