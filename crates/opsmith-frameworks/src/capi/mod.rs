//! The C ABI of a library: [`opsmith_core::abi::OpsmithLibrary`] over the core.

mod call;
mod dlpack;
mod explain;
mod infer;
mod launch;
mod program;
mod read;

use std::ffi::CString;
use std::ptr::null;

use opsmith_core::abi::dlpack::OpsmithDLPackCall;
use opsmith_core::abi::program::OpsmithProgram;
use opsmith_core::abi::shapes::{OpsmithShapeQuery, OpsmithShapes};
use opsmith_core::abi::{
    OPSMITH_ABI_VERSION, OpsmithAttr, OpsmithCall, OpsmithError, OpsmithLibrary, OpsmithPlan, OpsmithStr,
};
use opsmith_core::{Error, Result, ensure, panic};

use crate::{Root, StaticLibrary};

/// The table that a library exports as `opsmith_library_v1`.
pub const fn table<R: Root>(name: &'static str, version: &'static str) -> OpsmithLibrary {
    OpsmithLibrary {
        size: size_of::<OpsmithLibrary>(),
        abi_version: OPSMITH_ABI_VERSION,
        name: OpsmithStr::new(name),
        version: OpsmithStr::new(version),
        init: init::<R>,
        describe: describe::<R>,
        find_op: find_op::<R>,
        call: call::<R>,
        infer_shapes: infer_shapes::<R>,
        error_free,
        string_free,
        register_framework: register_framework::<R>,
        explain: explain::<R>,
        plan: plan::<R>,
        plan_free: call::free_plan,
        program: program::<R>,
        program_free: program::free,
        shapes_free: infer::free,
        call_dlpack: call_dlpack::<R>,
    }
}

// What is generic over the library only passes it on: all the rest is compiled once, not in every library.

unsafe extern "C" fn init<R: Root>() -> *mut OpsmithError {
    check(R::library())
}

fn check(library: &'static StaticLibrary) -> *mut OpsmithError {
    guard(|| library.get().map(drop))
}

unsafe extern "C" fn describe<R: Root>(json: *mut OpsmithStr) -> *mut OpsmithError {
    // SAFETY: passed on from the caller.
    unsafe { describe_library(R::library(), json) }
}

unsafe fn describe_library(library: &'static StaticLibrary, json: *mut OpsmithStr) -> *mut OpsmithError {
    guard(|| {
        let text = library.json()?;
        // SAFETY: the caller passes a place to write to.
        unsafe { give(json, OpsmithStr::new(text)) }
    })
}

unsafe extern "C" fn find_op<R: Root>(name: OpsmithStr, op: *mut usize) -> *mut OpsmithError {
    // SAFETY: passed on from the caller.
    unsafe { find_op_in(R::library(), name, op) }
}

unsafe fn find_op_in(library: &'static StaticLibrary, name: OpsmithStr, op: *mut usize) -> *mut OpsmithError {
    guard(|| {
        // SAFETY: the caller passes readable text.
        let name = unsafe { read::text(name) }?;
        let index = library.get()?.op_index(name)?;
        // SAFETY: the caller passes a place to write to.
        unsafe { give(op, index) }
    })
}

unsafe extern "C" fn call<R: Root>(call: *const OpsmithCall) -> *mut OpsmithError {
    // SAFETY: passed on from the caller.
    unsafe { call_in(R::library(), call) }
}

#[cfg_attr(not(feature = "prebuilt"), inline)]
unsafe fn call_in(library: &'static StaticLibrary, call: *const OpsmithCall) -> *mut OpsmithError {
    // SAFETY: the caller passes a call whose pointers are valid as the header says.
    guard(|| unsafe { call::run(library, call) })
}

unsafe extern "C" fn plan<R: Root>(
    call: *const OpsmithCall,
    plan: *mut *mut OpsmithPlan,
) -> *mut OpsmithError {
    // SAFETY: passed on from the caller.
    unsafe { plan_in(R::library(), call, plan) }
}

unsafe fn plan_in(
    library: &'static StaticLibrary,
    call: *const OpsmithCall,
    plan: *mut *mut OpsmithPlan,
) -> *mut OpsmithError {
    guard(|| {
        ensure!(!plan.is_null(), InvalidArgument, "{NO_PLACE}");
        // SAFETY: the caller passes a call whose pointers are valid as the header says, and a place to write to.
        unsafe { give(plan, call::plan(library, call)?) }
    })
}

unsafe extern "C" fn call_dlpack<R: Root>(call: *const OpsmithDLPackCall) -> *mut OpsmithError {
    // SAFETY: passed on from the caller.
    unsafe { call_dlpack_in(R::library(), call) }
}

unsafe fn call_dlpack_in(
    library: &'static StaticLibrary,
    call: *const OpsmithDLPackCall,
) -> *mut OpsmithError {
    // SAFETY: the caller passes a call whose pointers are valid as the header says.
    guard(|| unsafe { dlpack::run(library, call) })
}

unsafe extern "C" fn infer_shapes<R: Root>(
    query: *const OpsmithShapeQuery,
    shapes: *mut *const OpsmithShapes,
) -> *mut OpsmithError {
    // SAFETY: passed on from the caller.
    unsafe { infer_shapes_in(R::library(), query, shapes) }
}

unsafe fn infer_shapes_in(
    library: &'static StaticLibrary,
    query: *const OpsmithShapeQuery,
    shapes: *mut *const OpsmithShapes,
) -> *mut OpsmithError {
    guard(|| {
        ensure!(!shapes.is_null(), InvalidArgument, "{NO_PLACE}");
        // SAFETY: the caller passes a query that is valid as the header says, and a place to write to.
        unsafe { give(shapes, infer::answer(library, query)?) }
    })
}

unsafe extern "C" fn explain<R: Root>(
    op: usize,
    attrs: *const *const OpsmithAttr,
    num_attrs: usize,
    response: *mut OpsmithStr,
) -> *mut OpsmithError {
    // SAFETY: passed on from the caller.
    unsafe { explain_in(R::library(), op, (attrs, num_attrs), response) }
}

unsafe fn explain_in(
    library: &'static StaticLibrary,
    op: usize,
    attrs: (*const *const OpsmithAttr, usize),
    response: *mut OpsmithStr,
) -> *mut OpsmithError {
    guard(|| {
        ensure!(!response.is_null(), InvalidArgument, "{NO_PLACE}");
        // SAFETY: the caller passes attributes that are valid as the header says, and a place to write to.
        unsafe {
            let text = Box::leak(explain::respond(library, op, attrs)?.into_boxed_str());
            give(response, OpsmithStr::new(text))
        }
    })
}

unsafe extern "C" fn program<R: Root>(
    op: usize,
    attrs: *const *const OpsmithAttr,
    num_attrs: usize,
    program: *mut *const OpsmithProgram,
) -> *mut OpsmithError {
    // SAFETY: passed on from the caller.
    unsafe { program_in(R::library(), op, (attrs, num_attrs), program) }
}

unsafe fn program_in(
    library: &'static StaticLibrary,
    op: usize,
    attrs: (*const *const OpsmithAttr, usize),
    program: *mut *const OpsmithProgram,
) -> *mut OpsmithError {
    guard(|| {
        ensure!(!program.is_null(), InvalidArgument, "{NO_PLACE}");
        // SAFETY: the caller passes attributes that are valid as the header says, and a place to write to.
        unsafe { give(program, program::tell(library, op, attrs)?) }
    })
}

const NO_PLACE: &str = "the place for the result is null";

/// Writes a result to where the caller wants it.
///
/// # Safety
/// `place` must be null or writable.
unsafe fn give<T>(place: *mut T, value: T) -> Result<()> {
    ensure!(!place.is_null(), InvalidArgument, "{NO_PLACE}");
    // SAFETY: promised by the caller.
    unsafe { place.write(value) };
    Ok(())
}

unsafe extern "C" fn register_framework<R: Root>(framework: OpsmithStr) -> *mut OpsmithError {
    // SAFETY: passed on from the caller.
    unsafe { register_framework_in(R::library(), framework) }
}

unsafe fn register_framework_in(library: &'static StaticLibrary, framework: OpsmithStr) -> *mut OpsmithError {
    guard(|| {
        // SAFETY: the caller passes readable text.
        let framework = unsafe { read::text(framework) }?;
        register(library, framework)
    })
}

fn register(library: &'static StaticLibrary, key: &str) -> Result<()> {
    let (name, is_for_gradients) = match key.strip_suffix(".gradients") {
        Some(name) => (name, true),
        None => (key, false),
    };
    let Some(framework) = library.frameworks.into_iter().flatten().find(|framework| framework.key == name)
    else {
        let library = library.name();
        return Err(Error::unimplemented(format!(
            "library `{library}` was built without the framework `{key}`"
        )));
    };
    if is_for_gradients {
        (framework.release_gradients)(library);
        return Ok(());
    }
    let (name, import) = (framework.name, framework.key);
    let is_present = (framework.register_if_present)(library)?;
    ensure!(is_present, FailedPrecondition, "{name} is not in the process; import {import} first");
    Ok(())
}

/// An error on the heap, with the texts that it points to.
#[repr(C)]
struct Failure {
    header: OpsmithError,
    texts: [Option<CString>; 3],
}

/// Runs `body`; a failure or a panic becomes an error for the caller to free.
fn guard(body: impl FnOnce() -> Result<()>) -> *mut OpsmithError {
    match panic::catch(body) {
        Ok(()) => std::ptr::null_mut(),
        Err(error) => give_error(&error),
    }
}

#[cold]
fn give_error(error: &Error) -> *mut OpsmithError {
    // A NUL inside a text would end it early; nothing else is lost.
    let (op, text) = error.as_called();
    let texts = [op, error.argument(), Some(&*text)]
        .map(|text| text.map(|text| CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()));
    let [op, argument, text] =
        texts.each_ref().map(|text| text.as_ref().map_or(null(), |text| text.as_ptr()));
    let header =
        OpsmithError { size: size_of::<OpsmithError>(), code: error.code() as i32, op, argument, text };
    Box::into_raw(Box::new(Failure { header, texts })).cast()
}

unsafe extern "C" fn error_free(error: *mut OpsmithError) {
    if !error.is_null() {
        // SAFETY: the caller gives back what `guard` made, once.
        let failure = unsafe { Box::from_raw(error.cast::<Failure>()) };
        drop(failure.texts);
    }
}

unsafe extern "C" fn string_free(string: OpsmithStr) {
    if !string.data.is_null() {
        let text = std::ptr::slice_from_raw_parts_mut(string.data.cast_mut().cast::<u8>(), string.len);
        // SAFETY: the caller gives back what `explain_in` made, once.
        drop(unsafe { Box::from_raw(text) });
    }
}
