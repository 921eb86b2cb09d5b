//! ONNX Runtime's C API: an array of functions, to which releases only append, and the structure that describes an op.
//!
//! Nothing is linked or looked up: whoever registers or calls an op hands the array over. A process may have several copies of the
//! runtime, so the array goes with each op and call.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;

use opsmith_core::{Code, DType, Error, Result};

/// The oldest release, as a minor version: the first that has threads for ops, and shape functions.
pub(super) const OLDEST: u32 = 17;

/// From this release on a shape function may be asked about a node that lacks an optional input; before, that ends the process.
pub(super) const ABSENT_IN_SHAPES: u32 = 24;

/// From this release on a shape function may tell of outputs that a node does not have; before, that ends the process. No release
/// tells how many it has.
pub(super) const ABSENT_OUTPUTS: u32 = 32;

/// From this release on a kernel is told its provider's memory, and lent some in the order of its stream.
pub(super) const CARDS: u32 = 18;

/// The version of [`OrtCustomOp`] that is filled in: releases refuse one that is newer than they are.
const STRUCTURE: u32 = 18;

/// `OrtStatus`, owned by who gets it; null is success.
#[repr(C)]
pub struct Status {
    _private: [u8; 0],
}

/// `OrtSessionOptions`, lent.
#[repr(C)]
pub struct SessionOptions {
    _private: [u8; 0],
}

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $($(#[$doc])* #[repr(C)] pub(super) struct $name { _private: [u8; 0] })*
    };
}

opaque! {
    /// `OrtCustomOpDomain`, which lives as long as sessions do.
    Domain
    /// `OrtKernelInfo`, a node that a kernel is made for, lent.
    KernelInfo
    /// `OrtKernelContext`, a call, lent.
    KernelContext
    /// `OrtShapeInferContext`, a node whose shapes are inferred, lent.
    ShapeContext
    /// `OrtOpAttr`, an attribute of that node, lent.
    OpAttr
    /// `OrtValue`: a tensor.
    Value
    /// `OrtTensorTypeAndShapeInfo`.
    TensorInfo
    /// `OrtTypeInfo`.
    TypeInfo
    /// `OrtAllocator`.
    Allocator
    /// `OrtMemoryInfo`, of what device memory is, lent.
    MemoryInfo
}

/// What ONNX Runtime gives to who registers ops.
#[repr(C)]
pub struct ApiBase {
    get_api: unsafe extern "C" fn(u32) -> *const *const c_void,
    get_version: unsafe extern "C" fn() -> *const c_char,
}

impl ApiBase {
    /// The functions of this copy of ONNX Runtime, and its minor version, 0 where that is not known. The first version has those that
    /// tell an error.
    ///
    /// # Safety
    /// It must be ONNX Runtime's.
    pub(super) unsafe fn api(&self) -> (Option<Api>, u32) {
        // SAFETY: promised by the caller; the version is a C string.
        let version = unsafe { CStr::from_ptr((self.get_version)()) }.to_str().unwrap_or_default();
        let minor = minor_version(version);
        // SAFETY: promised by the caller.
        let functions = unsafe { (self.get_api)(minor.max(1)) };
        ((!functions.is_null()).then_some(Api { functions, minor }), minor)
    }
}

/// `1.24.4` → 24. Of another major version nothing is known: 0, which is too old.
fn minor_version(version: &str) -> u32 {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    match (numbers.next(), numbers.next()) {
        (Some(1), Some(minor)) => minor,
        _ => 0,
    }
}

/// The functions of one copy of ONNX Runtime.
#[derive(Clone, Copy)]
pub(super) struct Api {
    functions: *const *const c_void,
    pub(super) minor: u32,
}

impl Api {
    /// Whether it is of the same copy.
    pub(super) fn is(self, other: Api) -> bool {
        self.functions == other.functions
    }
}

#[cfg(test)]
impl Api {
    /// What a test plays ONNX Runtime by: a release of this minor version, with these functions by position.
    pub(super) fn played(minor: u32, functions: &[(usize, *const c_void)]) -> Api {
        let mut table = vec![std::ptr::null(); 512];
        functions.iter().for_each(|(at, function)| table[*at] = *function);
        Api { functions: table.leak().as_ptr(), minor }
    }
}

// SAFETY: the array is ONNX Runtime's, is never written, and lives as long as its library.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

macro_rules! functions {
    ($($name:ident = $index:literal: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        impl Api {
            $(pub(super) fn $name(self) -> unsafe extern "C" fn($($arg),*) $(-> $ret)? {
                // SAFETY: the array has a function of this type at this place in all releases from the one on that the comment
                // in the list says, and whoever asks for a newer one than `OLDEST` compares `minor` first.
                unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($arg),*) $(-> $ret)?>(*self.functions.add($index)) }
            })*
        }
    };
}

/// What gives a status: null is success.
pub(super) type Outcome = *mut Status;

/// `fn(data, index)`, what a loop calls.
type LoopBody = unsafe extern "C" fn(*mut c_void, usize);

functions! {
    create_status = 0: fn(c_int, *const c_char) -> Outcome;
    error_code = 1: fn(*const Status) -> c_int;
    error_message = 2: fn(*const Status) -> *const c_char;
    release_status = 93: fn(Outcome);
    create_domain = 26: fn(*const c_char, *mut *mut Domain) -> Outcome;
    domain_add = 27: fn(*mut Domain, *const OrtCustomOp) -> Outcome;
    add_domain = 28: fn(*mut SessionOptions, *mut Domain) -> Outcome;
    tensor_data = 51: fn(*mut Value, *mut *mut c_void) -> Outcome;
    strings_length = 53: fn(*const Value, *mut usize) -> Outcome;
    strings_content = 54: fn(*const Value, *mut c_void, usize, *mut usize, usize) -> Outcome;
    tensor_info_of_type = 55: fn(*const TypeInfo, *mut *const TensorInfo) -> Outcome;
    create_tensor_info = 57: fn(*mut *mut TensorInfo) -> Outcome;
    set_element_type = 58: fn(*mut TensorInfo, c_int) -> Outcome;
    set_dimensions = 59: fn(*mut TensorInfo, *const i64, usize) -> Outcome;
    element_type = 60: fn(*const TensorInfo, *mut c_int) -> Outcome;
    rank = 61: fn(*const TensorInfo, *mut usize) -> Outcome;
    dimensions = 62: fn(*const TensorInfo, *mut i64, usize) -> Outcome;
    symbols = 63: fn(*const TensorInfo, *mut *const c_char, usize) -> Outcome;
    tensor_info = 65: fn(*const Value, *mut *mut TensorInfo) -> Outcome;
    attr_float = 85: fn(*const KernelInfo, *const c_char, *mut f32) -> Outcome;
    attr_int = 86: fn(*const KernelInfo, *const c_char, *mut i64) -> Outcome;
    attr_text = 87: fn(*const KernelInfo, *const c_char, *mut c_char, *mut usize) -> Outcome;
    call_input = 90: fn(*const KernelContext, usize, *mut *const Value) -> Outcome;
    call_output = 91: fn(*mut KernelContext, usize, *const i64, usize, *mut *mut Value) -> Outcome;
    memory_device = 72: fn(*const MemoryInfo, *mut c_int) -> Outcome;
    allocate = 75: fn(*mut Allocator, usize, *mut *mut c_void) -> Outcome;
    free = 76: fn(*mut Allocator, *mut c_void) -> Outcome;
    allocator_memory = 77: fn(*const Allocator, *mut *const MemoryInfo) -> Outcome;
    default_allocator = 78: fn(*mut *mut Allocator) -> Outcome;
    release_value = 96: fn(*mut Value);
    release_type_info = 98: fn(*mut TypeInfo);
    release_tensor_info = 99: fn(*mut TensorInfo);
    providers = 125: fn(*mut *mut *mut c_char, *mut c_int) -> Outcome;
    release_providers = 126: fn(*mut *mut c_char, c_int) -> Outcome;
    release_allocator = 132: fn(*mut Allocator);
    attr_floats = 162: fn(*const KernelInfo, *const c_char, *mut f32, *mut usize) -> Outcome;
    attr_ints = 163: fn(*const KernelInfo, *const c_char, *mut i64, *mut usize) -> Outcome;
    call_stream = 193: fn(*const KernelContext, *mut *mut c_void) -> Outcome;
    input_count = 230: fn(*const KernelInfo, *mut usize) -> Outcome;
    output_count = 231: fn(*const KernelInfo, *mut usize) -> Outcome;
    input_name = 232: fn(*const KernelInfo, usize, *mut c_char, *mut usize) -> Outcome;
    output_name = 233: fn(*const KernelInfo, usize, *mut c_char, *mut usize) -> Outcome;
    input_type = 234: fn(*const KernelInfo, usize, *mut *mut TypeInfo) -> Outcome;
    attr_tensor = 236: fn(*const KernelInfo, *const c_char, *mut Allocator, *mut *mut Value) -> Outcome;
    string_element = 252: fn(*mut Value, usize, usize, *mut *mut c_char) -> Outcome;
    shapes_input_count = 267: fn(*const ShapeContext, *mut usize) -> Outcome;
    shapes_input = 268: fn(*const ShapeContext, usize, *mut *mut TensorInfo) -> Outcome;
    shapes_attr = 269: fn(*const ShapeContext, *const c_char, *mut *const OpAttr) -> Outcome;
    shapes_set_output = 270: fn(*const ShapeContext, usize, *const TensorInfo) -> Outcome;
    set_symbols = 271: fn(*mut TensorInfo, *const *const c_char, usize) -> Outcome;
    read_attr = 272: fn(*const OpAttr, c_int, *mut c_void, usize, *mut usize) -> Outcome;
    parallel_for = 274: fn(*const KernelContext, LoopBody, usize, usize, *mut c_void) -> Outcome;
    // From 1.18 on.
    call_memory = 277: fn(*const KernelContext, *const MemoryInfo, usize, *mut *mut c_void) -> Outcome;
    kernel_allocator = 278: fn(*const KernelInfo, c_int, *mut *mut Allocator) -> Outcome;
    // From 1.24 on.
    tensor_type_and_shape = 414: fn(*const Value, *mut c_int, *mut *const i64, *mut usize) -> Outcome;
    // From 1.25 on.
    attr_texts = 417: fn(*const KernelInfo, *const c_char, *mut Allocator, *mut *mut *mut c_char, *mut usize) -> Outcome;
}

impl Api {
    /// The error that an outcome is, which is let go of.
    ///
    /// # Safety
    /// The outcome must be of one of the functions, and used once.
    #[inline(always)]
    pub(super) unsafe fn check(self, outcome: Outcome) -> Result<()> {
        match outcome.is_null() {
            true => Ok(()),
            // SAFETY: promised by the caller.
            false => Err(unsafe { self.error(outcome) }),
        }
    }

    /// # Safety
    /// As [`check`](Self::check), for an outcome that is not success.
    #[cold]
    unsafe fn error(self, outcome: Outcome) -> Error {
        // SAFETY: promised by the caller; the message is a C string that lives as long as the status.
        unsafe {
            let message = CStr::from_ptr((self.error_message())(outcome)).to_string_lossy().into_owned();
            let code = match (self.error_code())(outcome) {
                INVALID_ARGUMENT => Code::InvalidArgument,
                NOT_IMPLEMENTED => Code::Unimplemented,
                _ => Code::Internal,
            };
            (self.release_status())(outcome);
            Error::new(code, format!("ONNX Runtime: {message}"))
        }
    }

    /// Whether an outcome is success; an error is let go of.
    ///
    /// # Safety
    /// As [`check`](Self::check).
    pub(super) unsafe fn succeeded(self, outcome: Outcome) -> bool {
        if !outcome.is_null() {
            // SAFETY: promised by the caller.
            unsafe { (self.release_status())(outcome) };
        }
        outcome.is_null()
    }

    /// What ONNX Runtime gets of a result: null, or a status that has the error.
    pub(super) fn outcome(self, result: Result<()>) -> Outcome {
        let Err(error) = result else { return null_mut() };
        let code = match error.code() {
            Code::InvalidArgument | Code::OutOfRange => INVALID_ARGUMENT,
            Code::Unimplemented => NOT_IMPLEMENTED,
            Code::NotFound | Code::AlreadyExists | Code::FailedPrecondition => FAIL,
            _ => RUNTIME_EXCEPTION,
        };
        let message = CString::new(error.message().replace('\0', "\u{fffd}")).unwrap_or_default();
        // SAFETY: the message is a C string, which is copied.
        unsafe { (self.create_status())(code, message.as_ptr()) }
    }
}

const FAIL: c_int = 1;
const INVALID_ARGUMENT: c_int = 2;
const RUNTIME_EXCEPTION: c_int = 6;
const NOT_IMPLEMENTED: c_int = 9;

/// `OrtMemType`: the memory of a kernel's provider.
pub(super) const OWN_MEMORY: c_int = 0;
/// Host memory, for an input.
pub(super) const HOST_MEMORY: c_int = -2;

/// Any dtype, for an argument that is not said to have one.
pub(super) const UNDEFINED: c_int = 0;

/// The dtype of ONNX's number.
pub(super) fn dtype_of(code: c_int) -> Result<DType> {
    DType::from_onnx(code).ok_or_else(|| {
        Error::unimplemented(format!("is of ONNX's dtype number {code}, which Opsmith does not have"))
    })
}

type Count = unsafe extern "C" fn(*const OrtCustomOp) -> usize;
type OfArgument = unsafe extern "C" fn(*const OrtCustomOp, usize) -> c_int;
type Number = unsafe extern "C" fn(*const OrtCustomOp) -> c_int;
type Text = unsafe extern "C" fn(*const OrtCustomOp) -> *const c_char;

/// `OrtCustomOp` of version 18: what ONNX Runtime asks of an op.
#[repr(C)]
pub(super) struct OrtCustomOp {
    version: u32,
    create_kernel: *const c_void,
    get_name: Text,
    get_provider: Text,
    get_input_type: OfArgument,
    get_input_count: Count,
    get_output_type: OfArgument,
    get_output_count: Count,
    kernel_compute: *const c_void,
    kernel_destroy: unsafe extern "C" fn(*mut c_void),
    get_input_kind: OfArgument,
    get_output_kind: OfArgument,
    get_input_memory: OfArgument,
    variadic_input_min: Number,
    variadic_input_same: Number,
    variadic_output_min: Number,
    variadic_output_same: Number,
    create_kernel_v2: CreateKernel,
    kernel_compute_v2: unsafe extern "C" fn(*mut c_void, *mut KernelContext) -> Outcome,
    infer_shapes: Option<InferShapes>,
    get_start_version: Number,
    get_end_version: Number,
    /// `GetMayInplace`, `ReleaseMayInplace`, `GetAliasMap`, `ReleaseAliasMap`: there is none.
    in_place: [*const c_void; 4],
}

/// `CreateKernelV2`.
type CreateKernel = unsafe extern "C" fn(
    *const OrtCustomOp,
    *const *const c_void,
    *const KernelInfo,
    *mut *mut c_void,
) -> Outcome;

/// `InferOutputShapeFn`.
type InferShapes = unsafe extern "C" fn(*const OrtCustomOp, *mut ShapeContext) -> Outcome;

/// What an op answers with: those of its functions that compute.
pub(super) struct Callbacks {
    pub(super) create: CreateKernel,
    pub(super) compute: unsafe extern "C" fn(*mut c_void, *mut KernelContext) -> Outcome,
    pub(super) destroy: unsafe extern "C" fn(*mut c_void),
    pub(super) infer_shapes: Option<InferShapes>,
}

/// The functions that only tell what the op is.
pub(super) struct Facts {
    pub(super) name: Text,
    pub(super) provider: Text,
    pub(super) input_type: OfArgument,
    pub(super) input_count: Count,
    pub(super) input_kind: OfArgument,
    pub(super) input_memory: OfArgument,
    pub(super) input_same: Number,
    pub(super) output_type: OfArgument,
    pub(super) output_count: Count,
    pub(super) output_kind: OfArgument,
    pub(super) output_same: Number,
}

impl OrtCustomOp {
    /// The structure for a release of this minor version.
    pub(super) fn new(minor: u32, facts: Facts, callbacks: Callbacks) -> OrtCustomOp {
        OrtCustomOp {
            version: minor.min(STRUCTURE),
            create_kernel: std::ptr::null(),
            get_name: facts.name,
            get_provider: facts.provider,
            get_input_type: facts.input_type,
            get_input_count: facts.input_count,
            get_output_type: facts.output_type,
            get_output_count: facts.output_count,
            kernel_compute: std::ptr::null(),
            kernel_destroy: callbacks.destroy,
            get_input_kind: facts.input_kind,
            get_output_kind: facts.output_kind,
            get_input_memory: facts.input_memory,
            variadic_input_min: none,
            variadic_input_same: facts.input_same,
            variadic_output_min: none,
            variadic_output_same: facts.output_same,
            create_kernel_v2: callbacks.create,
            kernel_compute_v2: callbacks.compute,
            infer_shapes: callbacks.infer_shapes,
            get_start_version: first_version,
            get_end_version: last_version,
            in_place: [std::ptr::null(); 4],
        }
    }
}

/// How few tensors a list may have: what is too few for the op, it says itself.
unsafe extern "C" fn none(_: *const OrtCustomOp) -> c_int {
    0
}

unsafe extern "C" fn first_version(_: *const OrtCustomOp) -> c_int {
    1
}

unsafe extern "C" fn last_version(_: *const OrtCustomOp) -> c_int {
    c_int::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        for (text, minor) in [("1.17.3", 17), ("1.32.0", 32), ("1.9", 9), ("2.0.0", 0), ("", 0), ("1", 0)] {
            assert_eq!(minor_version(text), minor, "{text}");
        }
    }

    #[test]
    fn the_structure_is_as_the_header_has_it() {
        assert_eq!(size_of::<OrtCustomOp>(), 26 * size_of::<usize>());
        assert_eq!(std::mem::offset_of!(OrtCustomOp, create_kernel_v2), 17 * size_of::<usize>());
    }
}
