//! TensorFlow: every op of a library becomes `<Library>><OpName>`, native, with TensorFlow's own memory.
//!
//! `libtensorflow_framework` is found in the process at run time (`api`); ops are defined from their signatures (`spec`,
//! `registration`), best while `tf.load_op_library` opens the file, which then has wrappers for them; a node's attributes
//! come as a protocol buffer (`proto`) and make a plan that stays with the node (`node`), which runs with TensorFlow's
//! services (`services`); shapes are inferred while a graph is built (`shapes`).

mod api;
mod node;
#[doc(hidden)]
pub mod proto;
mod registration;
mod services;
mod shapes;
mod spec;
mod strings;

use std::ffi::c_void;
use std::ptr::null_mut;

use opsmith_core::{Op, Result, panic};

use self::api::{Api, Construction, Context, ShapeContext, Status};
use self::node::Node;
use crate::{Framework, Root, StaticLibrary};

pub use self::registration::{Functions, Registration};

/// TensorFlow, for libraries with [functions](StaticLibrary::with_tensorflow_functions).
pub(crate) static FRAMEWORK: Framework = Framework {
    name: "TensorFlow",
    key: "tensorflow",
    register_if_present,
    // Nothing is in their way.
    release_gradients: |_| (),
};

/// Registers the library's ops if TensorFlow is in the process.
///
/// # Errors
/// `AlreadyExists` when TensorFlow has ops of these names, `Unimplemented` for a TensorFlow that is too old, or what is
/// wrong with the library's definitions.
fn register_if_present(library: &'static StaticLibrary) -> Result<bool> {
    let Some(api) = Api::find()? else { return Ok(false) };
    library.tensorflow.ensure(library, api).map(|()| true)
}

/// Why TensorFlow cannot have an op, if it cannot.
pub(crate) fn unsupported(op: &Op) -> Option<String> {
    spec::unsupported(op.signature())
}

/// What TensorFlow calls for the op at `INDEX` of the library.
pub const fn functions<R: Root, const INDEX: usize>() -> Functions {
    Functions { create: create_for::<R, INDEX>, infer_shapes: infer_for::<R, INDEX> }
}

unsafe extern "C" fn create_for<R: Root, const INDEX: usize>(construction: Construction) -> *mut c_void {
    // SAFETY: passed on from TensorFlow.
    unsafe { create(R::library(), INDEX, construction) }
}

unsafe extern "C" fn infer_for<R: Root, const INDEX: usize>(context: ShapeContext, status: *mut c_void) {
    // SAFETY: passed on from TensorFlow.
    unsafe { infer(R::library(), INDEX, context, status) }
}

/// Makes the state of a kernel; null, with the error handed over, when that fails.
unsafe fn create(library: &'static StaticLibrary, index: usize, construction: Construction) -> *mut c_void {
    let made = panic::catch(|| {
        let registered = library.tensorflow.registered()?;
        let op = &library.get()?.ops()[index];
        // SAFETY: passed on from TensorFlow.
        unsafe { Node::new(registered.api, op, &registered.bindings[index], construction) }
    });
    match made {
        Ok(node) => Box::into_raw(Box::new(node)).cast(),
        Err(error) => {
            if let Ok(Some(api)) = Api::find() {
                let status = Status::new(api);
                status.set(&error);
                // SAFETY: the construction and the status are live.
                unsafe { (api.functions.TF_OpKernelConstruction_Failure)(construction, status.raw()) };
            }
            null_mut()
        }
    }
}

/// Runs a kernel.
unsafe extern "C" fn compute(kernel: *mut c_void, context: Context) {
    // SAFETY: TensorFlow gives what `create` has made, which is not null: a node whose creation failed is not run.
    let Some(node) = (unsafe { kernel.cast::<Node>().as_ref() }) else { return };
    // SAFETY: passed on from TensorFlow.
    unsafe { node.run(context) };
}

/// Lets go of what `create` has made.
unsafe extern "C" fn delete(kernel: *mut c_void) {
    // SAFETY: TensorFlow gives back what `create` has made, once.
    unsafe { crate::node::delete::<Node>(kernel) };
}

unsafe fn infer(library: &'static StaticLibrary, index: usize, context: ShapeContext, status: *mut c_void) {
    let inferred = panic::catch(|| {
        let registered = library.tensorflow.registered()?;
        let op = &library.get()?.ops()[index];
        // SAFETY: passed on from TensorFlow.
        let inferred = unsafe { shapes::infer(registered.api, op, &registered.bindings[index], context) };
        inferred.map_err(|error| error.with_op(&op.signature().name))
    });
    if let (Err(error), Ok(Some(api))) = (inferred, Api::find()) {
        // SAFETY: the status is TensorFlow's, live until this returns.
        unsafe { api::set_status(api, status, &error) };
    }
}
