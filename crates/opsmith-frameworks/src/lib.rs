//! What makes one Opsmith library native in each framework: a module per framework, each of which turns the caller's
//! call into [`Op::plan`](opsmith_core::Op::plan) and [`Plan::run`](opsmith_core::Plan::run).
//!
//! [`StaticLibrary`] is what `opsmith::library!` puts into a shared object; [`start`] runs when it is opened.
//! No module here knows a particular operator, and no framework's module knows another's.

pub mod capi;
pub mod family;
pub mod jax;
mod memory;
mod names;
mod node;
pub mod onnx;
mod process;
mod refused;
mod single;
pub mod tensorflow;
pub mod torch;

use std::io::{self, Write};

use opsmith_core::fork::OnceLock;
use opsmith_core::{Library, Op, OpDef, Result};

/// A library as it lies in a shared object, before its definitions are checked.
pub struct StaticLibrary {
    name: &'static str,
    version: &'static str,
    ops: &'static [fn() -> OpDef],
    has_namespace: bool,
    torch: torch::Registration,
    tensorflow: tensorflow::Registration,
    onnx: onnx::Registration,
    /// Those that have functions to call, in the order in which they hear of the library.
    frameworks: [Option<&'static Framework>; 2],
    loaded: OnceLock<Result<Library>>,
    json: OnceLock<String>,
}

/// A framework that a library registers its ops with, known to libraries that have functions for it: what others do not know
/// is not linked into them.
struct Framework {
    /// As its users call it.
    name: &'static str,
    /// As callers of the C ABI do, and Python's imports.
    key: &'static str,
    /// Registers the ops if the framework is in the process, and says whether it is. It may be called any number of times.
    register_if_present: fn(&'static StaticLibrary) -> Result<bool>,
    /// For who is about to register the ops' gradients there.
    release_gradients: fn(&'static StaticLibrary),
}

/// Why a framework cannot have an op, if it cannot.
type Unsupported = fn(&Op) -> Option<String>;

/// That of each framework, by its key. A library's description tells it.
const UNSUPPORTED: [(&str, Unsupported); 3] =
    [("torch", torch::unsupported), ("tensorflow", tensorflow::unsupported), ("onnx", onnx::unsupported)];

/// A type that stands for the one library of a shared object, so that functions can be made for it.
///
/// # Safety
/// `library` must always give the same one.
pub unsafe trait Root: 'static {
    /// The library.
    fn library() -> &'static StaticLibrary;
}

impl StaticLibrary {
    /// The library `name` with these ops.
    pub const fn new(
        name: &'static str,
        version: &'static str,
        ops: &'static [fn() -> OpDef],
    ) -> StaticLibrary {
        StaticLibrary {
            name,
            version,
            ops,
            has_namespace: true,
            torch: torch::Registration::new(),
            tensorflow: tensorflow::Registration::new(),
            onnx: onnx::Registration::new(),
            frameworks: [None, None],
            loaded: OnceLock::new(),
            json: OnceLock::new(),
        }
    }

    /// The same library with the functions that PyTorch calls, one for each op.
    pub const fn with_torch_kernels(mut self, kernels: &'static [torch::Kernel]) -> StaticLibrary {
        self.torch.set_kernels(kernels);
        self.frameworks[0] = Some(&torch::FRAMEWORK);
        self
    }

    /// The same library with the functions that TensorFlow calls, one pair for each op.
    pub const fn with_tensorflow_functions(
        mut self,
        functions: &'static [tensorflow::Functions],
    ) -> StaticLibrary {
        self.tensorflow.set_functions(functions);
        self.frameworks[1] = Some(&tensorflow::FRAMEWORK);
        self
    }

    /// The same library, its ops outside of any namespace where a framework lets them be so: in TensorFlow.
    pub const fn without_namespace(mut self) -> StaticLibrary {
        self.has_namespace = false;
        self
    }

    /// Whether the library's name is its ops' namespace in TensorFlow.
    pub const fn has_namespace(&self) -> bool {
        self.has_namespace
    }

    /// The library's name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The library's version.
    pub const fn version(&self) -> &'static str {
        self.version
    }

    /// The checked library; the check runs once.
    ///
    /// # Errors
    /// What is wrong with its definitions.
    pub fn get(&self) -> Result<&Library> {
        let load = || {
            opsmith_core::panic::catch(|| {
                Library::new(self.name, self.version, self.ops.iter().map(|def| def()).collect())
            })
        };
        self.loaded.get_or_init(load).as_ref().map_err(Clone::clone)
    }

    /// The library as JSON, see [`Library::to_json`], with `namespace`, the library's name, or nothing where its ops are
    /// outside of any, and in ops that some framework cannot have `unsupported`, the reason by the framework's key.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn json(&self) -> Result<&str> {
        let library = self.get()?;
        Ok(self.json.get_or_init(|| {
            let mut json = library.to_json();
            json["namespace"] = if self.has_namespace { self.name } else { "" }.into();
            for (index, op) in library.ops().iter().enumerate() {
                for (framework, unsupported) in UNSUPPORTED {
                    if let Some(why) = unsupported(op) {
                        json["ops"][index]["unsupported"][framework] = why.into();
                    }
                }
            }
            json.to_string()
        }))
    }
}

/// Runs when the shared object is opened: registers the ops with the frameworks that are in the process.
///
/// There is nobody to give an error to, so what is wrong goes to standard error; loading the library through the
/// C ABI gives the same error to its caller.
pub fn start(library: &'static StaticLibrary) {
    for framework in library.frameworks.into_iter().flatten() {
        if let Err(error) = opsmith_core::panic::catch(|| (framework.register_if_present)(library)) {
            // Not `eprintln!`, which panics where standard error is a closed pipe.
            let (name, framework) = (library.name, framework.name);
            let _ = writeln!(
                io::stderr(),
                "opsmith: library `{name}` is not registered with {framework}: {error}"
            );
        }
    }
}
