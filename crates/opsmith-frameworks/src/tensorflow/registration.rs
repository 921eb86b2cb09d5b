//! The registration of a library's ops with TensorFlow: once, whenever TensorFlow turns up.

use std::ffi::{CStr, CString};

use opsmith_core::fork::{OnceLock, Turn};
use opsmith_core::{DType, DeviceKind, Error, KernelDef, Op, Result, bail, ensure};

use super::api::{Api, Create, InferShapes, Status};
use super::spec::{Binding, camel_case};
use super::{compute, delete};
use crate::StaticLibrary;
use crate::refused::Refused;

/// What TensorFlow calls for an op. Its functions are handed no data, so each op has its own.
#[derive(Clone, Copy)]
pub struct Functions {
    /// Makes the state of a kernel for a node.
    pub create: Create,
    /// Infers the shapes of the outputs.
    pub infer_shapes: InferShapes,
}

/// The functions that TensorFlow calls for a library's ops, and how far their registration has come.
pub struct Registration {
    functions: &'static [Functions],
    outcome: OnceLock<Result<Registered>>,
    turn: Turn,
}

/// A library's ops as TensorFlow knows them.
pub(super) struct Registered {
    pub(super) api: &'static Api,
    pub(super) bindings: Vec<Binding>,
    refused: Refused,
}

impl Default for Registration {
    fn default() -> Self {
        Self::new()
    }
}

impl Registration {
    /// A library without functions for TensorFlow.
    pub const fn new() -> Registration {
        Registration { functions: &[], outcome: OnceLock::new(), turn: Turn::new() }
    }

    /// Gives the library these functions, one for each op.
    pub(crate) const fn set_functions(&mut self, functions: &'static [Functions]) {
        self.functions = functions;
    }

    /// What is registered, once a registration that is under way on another thread is done: TensorFlow has an op's
    /// functions before the last op is registered.
    pub(super) fn registered(&self) -> Result<&Registered> {
        if self.outcome.get().is_none() {
            drop(self.turn.take());
        }
        match self.outcome.get() {
            Some(outcome) => outcome.as_ref().map_err(Clone::clone),
            None => Err(Error::internal("the library is not registered with TensorFlow")),
        }
    }

    /// Registers the ops unless that has been done, and gives what came of it.
    pub(super) fn ensure(&self, library: &'static StaticLibrary, api: &'static Api) -> Result<()> {
        let _turn = self.turn.take();
        let outcome = self.outcome.get_or_init(|| {
            let checked = library.get()?;
            if self.functions.len() != checked.ops().len() {
                bail!(Unimplemented, "library `{}` was built without TensorFlow support", checked.name());
            }
            let namespace = if library.has_namespace() { camel_case(checked.name()) } else { String::new() };
            let bindings: Vec<Binding> =
                checked.ops().iter().map(|op| Binding::new(op, &namespace)).collect();
            let mut refused = Refused::default();
            for ((op, functions), binding) in checked.ops().iter().zip(self.functions).zip(&bindings) {
                if binding.unsupported.is_none() {
                    refused.note(&binding.name, register(api, op, *functions, binding));
                }
            }
            Ok(Registered { api, bindings, refused })
        });
        outcome.as_ref().map_err(Clone::clone)?.refused.outcome()
    }
}

fn register(api: &Api, op: &Op, functions: Functions, binding: &Binding) -> Result<()> {
    let c = &api.functions;
    let name = c_string(&binding.name)?;
    // TensorFlow ends the process when an op is defined twice, and refuses every call when a kernel is.
    ensure!(!api.has_kernels(&name), AlreadyExists, "TensorFlow has an op of this name already");
    opsmith_threads::stay_loaded();
    let status = Status::new(api);
    // SAFETY: the texts are C strings, which TensorFlow copies; the builder is live until it is registered, which uses
    // it up; the function stays for the life of the process.
    unsafe {
        let builder = (c.TF_NewOpDefinitionBuilder)(name.as_ptr());
        let add = [
            (c.TF_OpDefinitionBuilderAddAttr, &binding.attr_specs),
            (c.TF_OpDefinitionBuilderAddInput, &binding.input_specs),
            (c.TF_OpDefinitionBuilderAddOutput, &binding.output_specs),
        ];
        for (add, specs) in add {
            for spec in specs {
                add(builder, c_string(spec)?.as_ptr());
            }
        }
        // Whatever it is given, the function makes the op stateful.
        if op.signature().stateful {
            (c.TF_OpDefinitionBuilderSetIsStateful)(builder, true);
        }
        (c.TF_OpDefinitionBuilderSetShapeInferenceFunction)(builder, functions.infer_shapes);
        (c.TF_RegisterOpDefinition)(builder, status.raw());
    }
    status.check()?;
    let kernels = op.kernels().iter().filter(|kernel| kernel.device() == DeviceKind::Cpu);
    kernels.into_iter().try_for_each(|kernel| {
        let constraints = kernel.constraints().iter().map(|(attr, dtype)| {
            let index = op.signature().attr_index(attr).unwrap_or_default();
            (&*binding.attrs[index], *dtype)
        });
        register_kernel(&status, &name, kernel, &constraints.collect::<Vec<_>>(), functions.create)
    })
}

fn register_kernel(
    status: &Status<'_>,
    op: &CStr,
    kernel: &KernelDef,
    constraints: &[(&str, DType)],
    create: Create,
) -> Result<()> {
    let c = &status.api().functions;
    // SAFETY: as above.
    unsafe {
        let builder = (c.TF_NewKernelBuilder)(op.as_ptr(), c"CPU".as_ptr(), create, compute, delete);
        for &(attr, dtype) in constraints {
            let attr = c_string(attr)?;
            (c.TF_KernelBuilder_TypeConstraint)(builder, attr.as_ptr(), dtype as i32, status.raw());
            status.check()?;
        }
        (c.TF_KernelBuilder_Priority)(builder, kernel.rank());
        (c.TF_RegisterKernelBuilder)(op.as_ptr(), builder, status.raw());
    }
    status.check()
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::internal(format!("{text:?} has a NUL")))
}
