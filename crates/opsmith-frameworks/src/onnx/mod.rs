//! ONNX Runtime: every op of a library is a custom op of the domain that has the library's name.
//!
//! `library!` exports `RegisterCustomOps`, which ONNX Runtime calls when a session is to have the library. An op is registered once
//! for each dtype, under one name, and for cards (`card`) once more where they have kernels; what ONNX cannot say of it is in `spec`. The
//! structures that ONNX Runtime is given have our own data behind them, so no function is made for a particular op.
//!
//! ONNX Runtime calls `create` for each node of a model, which reads it (`node`, `attrs`), `compute` to run it with its services
//! (`services`), and `infer_shapes` when the model is loaded (`shapes`).

mod api;
mod attrs;
mod card;
mod node;
mod services;
mod shapes;
mod spec;
mod tensor;
#[cfg(test)]
mod tests;

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use opsmith_core::fork::Turn;
use opsmith_core::{DeviceKind, Error, Op, Result, ensure, panic};

use self::api::{
    ABSENT_IN_SHAPES, ABSENT_OUTPUTS, Api, Callbacks, Domain, Facts, HOST_MEMORY, KernelContext, KernelInfo,
    OLDEST, OWN_MEMORY, OrtCustomOp, Outcome, ShapeContext, UNDEFINED,
};
pub use self::api::{ApiBase, SessionOptions, Status};
use self::node::Node;
use self::spec::{OPTIONAL, REQUIRED, Spec, Variant};
use crate::StaticLibrary;

/// A library's ops as copies of ONNX Runtime have them.
pub struct Registration {
    domains: opsmith_core::fork::Mutex<Vec<Registered>>,
    turn: Turn,
}

/// The domain that one copy of ONNX Runtime has.
struct Registered {
    api: Api,
    domain: *mut Domain,
}

// SAFETY: a domain is not changed once it is made, and sessions only read it.
unsafe impl Send for Registered {}

impl Default for Registration {
    fn default() -> Self {
        Self::new()
    }
}

impl Registration {
    /// A library that no copy of ONNX Runtime has.
    pub const fn new() -> Registration {
        Registration { domains: opsmith_core::fork::Mutex::new(Vec::new()), turn: Turn::new() }
    }

    /// The library's domain, made when a copy of ONNX Runtime first asks for it: sessions use it for as long as they live.
    fn domain(&self, library: &'static StaticLibrary, api: Api) -> Result<*mut Domain> {
        let _turn = self.turn.take();
        let known = self.domains.lock().iter().find(|known| known.api.is(api)).map(|known| known.domain);
        if let Some(domain) = known {
            return Ok(domain);
        }
        let (ops, on_card) = (library.get()?.ops(), card::is_served(api)?);
        let mut domain = null_mut();
        let name = c_string(library.name())?;
        // SAFETY: the name is a C string, which is copied; the ops are never freed.
        unsafe {
            api.check((api.create_domain())(name.as_ptr(), &mut domain))?;
            for custom in
                ops.iter().filter_map(|op| CustomOp::all_of(api, library.name(), op, on_card).transpose())
            {
                for custom in custom? {
                    api.check((api.domain_add())(
                        domain,
                        &raw const (*Box::into_raw(Box::new(custom))).structure,
                    ))?;
                }
            }
        }
        opsmith_threads::stay_loaded();
        self.domains.lock().push(Registered { api, domain });
        Ok(domain)
    }
}

/// Gives a session the library's ops: what `RegisterCustomOps` does.
///
/// # Safety
/// Both must be ONNX Runtime's.
pub unsafe fn register(
    library: &'static StaticLibrary,
    options: *mut SessionOptions,
    base: *const ApiBase,
) -> *mut Status {
    // SAFETY: promised by the caller.
    let (Some(api), minor) = (unsafe { (*base).api() }) else { return null_mut() };
    api.outcome(panic::catch(|| {
        ensure!(
            minor >= OLDEST,
            FailedPrecondition,
            "library `{}` needs a release of ONNX Runtime from 1.{OLDEST} on; the minor version of this one is {minor}",
            library.name()
        );
        let domain = library.onnx.domain(library, api)?;
        // SAFETY: promised by the caller; the domain is not freed.
        unsafe { api.check((api.add_domain())(options, domain)) }
    }))
}

/// Why ONNX Runtime cannot have an op, if it cannot.
pub(crate) fn unsupported(op: &Op) -> Option<String> {
    Spec::new(op).err()
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::internal(format!("{text:?} has a NUL")))
}

/// An op for one dtype on one kind of device: ONNX Runtime's structure, and what it stands for.
#[repr(C)]
struct CustomOp {
    structure: OrtCustomOp,
    api: Api,
    name: Arc<CString>,
    library: &'static str,
    op: &'static Op,
    spec: Arc<Spec>,
    device: DeviceKind,
    variant: usize,
}

impl CustomOp {
    /// The op for each of its dtypes, those for cards last, if they are asked for: the first is asked about shapes. Nothing where ONNX Runtime
    /// cannot have it.
    fn all_of(
        api: Api,
        library: &'static str,
        op: &'static Op,
        on_card: bool,
    ) -> Result<Option<Vec<CustomOp>>> {
        let Ok(spec) = Spec::new(op) else { return Ok(None) };
        let (spec, name) = (Arc::new(spec), Arc::new(c_string(&op.signature().name)?));
        let custom = |(device, variant)| CustomOp {
            structure: OrtCustomOp::new(api.minor, facts(), callbacks(api, &spec)),
            api,
            name: name.clone(),
            library,
            op,
            spec: spec.clone(),
            device,
            variant,
        };
        let all = 0..spec.variants.len();
        let cards = all.clone().filter(|variant| on_card && spec.variants[*variant].on_card);
        let cards = cards.map(|variant| (DeviceKind::Cuda, variant));
        Ok(Some(all.map(|variant| (DeviceKind::Cpu, variant)).chain(cards).map(custom).collect()))
    }

    fn variant(&self) -> &Variant {
        &self.spec.variants[self.variant]
    }

    /// What an output is. Older releases want one input of any dtype for each op with a required output of any.
    fn output_kind(&self, index: usize) -> c_int {
        match self.spec.outputs.get(index) {
            Some(&REQUIRED)
                if self.api.minor < ABSENT_IN_SHAPES && self.variant().outputs[index] == UNDEFINED =>
            {
                OPTIONAL
            }
            kind => kind.copied().unwrap_or_default(),
        }
    }

    /// Whether a shape function may tell of an output: where a node may lack it, only newer releases take that.
    fn may_tell(&self, index: usize) -> bool {
        let kind = self.spec.outputs.get(index).or(self.spec.outputs.last());
        kind == Some(&REQUIRED) || self.api.minor >= ABSENT_OUTPUTS
    }
}

fn callbacks(api: Api, spec: &Spec) -> Callbacks {
    let is_safe = api.minor >= ABSENT_IN_SHAPES || !spec.inputs.contains(&OPTIONAL);
    Callbacks { create, compute, destroy, infer_shapes: is_safe.then_some(infer_shapes) }
}

/// The op that ONNX Runtime asks about.
///
/// # Safety
/// It must be one that was registered here.
unsafe fn own<'a>(op: *const OrtCustomOp) -> &'a CustomOp {
    // SAFETY: the structure is the first field of one that is never freed.
    unsafe { &*op.cast() }
}

/// Functions that tell a fact of an op.
macro_rules! facts {
    ($($fact:ident($op:ident $(, $index:ident)?) -> $ret:ty = $value:expr;)*) => {
        fn facts() -> Facts {
            $(unsafe extern "C" fn $fact(op: *const OrtCustomOp $(, $index: usize)?) -> $ret {
                // SAFETY: passed on from ONNX Runtime.
                let $op = unsafe { own(op) };
                $value
            })*
            Facts { $($fact),* }
        }
    };
}

facts! {
    name(op) -> *const c_char = op.name.as_ptr();
    provider(op) -> *const c_char = match op.device {
        DeviceKind::Cpu => null(),
        DeviceKind::Cuda => card::PROVIDER.as_ptr(),
    };
    input_type(op, index) -> c_int = op.variant().inputs.get(index).copied().unwrap_or_default();
    input_count(op) -> usize = op.spec.inputs.len();
    input_kind(op, index) -> c_int = op.spec.inputs.get(index).copied().unwrap_or_default();
    input_memory(op, index) -> c_int = match op.device {
        DeviceKind::Cuda if op.spec.in_host_memory.get(index) == Some(&true) => HOST_MEMORY,
        _ => OWN_MEMORY,
    };
    input_same(op) -> c_int = op.spec.same[0].into();
    output_type(op, index) -> c_int = op.variant().outputs.get(index).copied().unwrap_or_default();
    output_count(op) -> usize = op.spec.outputs.len();
    output_kind(op, index) -> c_int = op.output_kind(index);
    output_same(op) -> c_int = op.spec.same[1].into();
}

/// Makes the state of a kernel.
unsafe extern "C" fn create(
    op: *const OrtCustomOp,
    _: *const *const c_void,
    info: *const KernelInfo,
    kernel: *mut *mut c_void,
) -> Outcome {
    // SAFETY: passed on from ONNX Runtime, as is the node.
    let (custom, info) = unsafe { (own(op), info) };
    // SAFETY: as above.
    custom.api.outcome(panic::catch(|| unsafe {
        let node = Node::new(custom.api, (custom.op, custom.device), custom.variant(), info)?;
        *kernel = Box::into_raw(Box::new(node)).cast();
        Ok(())
    }))
}

/// Runs a kernel.
unsafe extern "C" fn compute(kernel: *mut c_void, context: *mut KernelContext) -> Outcome {
    // SAFETY: ONNX Runtime gives what `create` has made, which it does not when that failed.
    let node = unsafe { &*kernel.cast::<Node>() };
    // SAFETY: passed on from ONNX Runtime.
    let done = panic::catch(|| unsafe { node.run(context) });
    node.api().outcome(done.map_err(|error| error.with_op(node.name())))
}

/// Lets go of what `create` has made.
unsafe extern "C" fn destroy(kernel: *mut c_void) {
    // SAFETY: ONNX Runtime gives back what `create` has made, once.
    unsafe { crate::node::delete::<Node>(kernel) };
}

unsafe extern "C" fn infer_shapes(op: *const OrtCustomOp, context: *mut ShapeContext) -> Outcome {
    // SAFETY: passed on from ONNX Runtime.
    let custom = unsafe { own(op) };
    // SAFETY: as above.
    custom.api.outcome(panic::catch(|| unsafe {
        shapes::infer(custom.api, (custom.library, custom.op), context, &|output| custom.may_tell(output))
    }))
}
