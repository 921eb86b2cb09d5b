//! The C ABI of an Opsmith library: plain structures, no code.
//!
//! A library exports one symbol, `opsmith_library_v1`, an [`OpsmithLibrary`]. Every structure begins with its own
//! size in bytes: whoever reads one uses only the fields that lie within that size, so a newer side may add fields
//! at the end. What cannot be read that way gets another version, hence another symbol. `include/opsmith.h` is
//! generated from this module.

pub mod dlpack;
pub mod program;
pub mod shapes;

use std::ffi::{c_char, c_void};

use self::dlpack::OpsmithDLPackCall;
use self::program::OpsmithProgram;
use self::shapes::{OpsmithShapeQuery, OpsmithShapes};

/// The version of the ABI that this file describes. Until the first release every change of a declaration takes the next number:
/// `cargo xtask lint` compares the header with `xtask/abi.txt`.
pub const OPSMITH_ABI_VERSION: u32 = 3;

/// `code` of an error; the numbers are those of `absl::StatusCode`. This one: the call was cancelled.
pub const OPSMITH_CANCELLED: i32 = 1;
/// A failure that fits no other code.
pub const OPSMITH_UNKNOWN: i32 = 2;
/// The caller passed something that is wrong whatever the state of the system.
pub const OPSMITH_INVALID_ARGUMENT: i32 = 3;
/// A deadline passed first.
pub const OPSMITH_DEADLINE_EXCEEDED: i32 = 4;
/// A named thing does not exist.
pub const OPSMITH_NOT_FOUND: i32 = 5;
/// A named thing exists already, and differs.
pub const OPSMITH_ALREADY_EXISTS: i32 = 6;
/// The caller may not do this.
pub const OPSMITH_PERMISSION_DENIED: i32 = 7;
/// Memory or another resource ran out.
pub const OPSMITH_RESOURCE_EXHAUSTED: i32 = 8;
/// The system is not in the state that the call needs.
pub const OPSMITH_FAILED_PRECONDITION: i32 = 9;
/// The call was aborted, typically by a concurrent one.
pub const OPSMITH_ABORTED: i32 = 10;
/// An index is outside the valid range.
pub const OPSMITH_OUT_OF_RANGE: i32 = 11;
/// Not implemented, or not supported here.
pub const OPSMITH_UNIMPLEMENTED: i32 = 12;
/// A bug in a kernel or in Opsmith; a panic.
pub const OPSMITH_INTERNAL: i32 = 13;
/// A service is not available just now.
pub const OPSMITH_UNAVAILABLE: i32 = 14;
/// Data was lost or is corrupt.
pub const OPSMITH_DATA_LOSS: i32 = 15;

/// `dtype` of a tensor; the numbers are those of TensorFlow's `DataType`. This one: IEEE 754 binary32.
pub const OPSMITH_FLOAT32: i32 = 1;
/// IEEE 754 binary64.
pub const OPSMITH_FLOAT64: i32 = 2;
/// Signed 32-bit integer.
pub const OPSMITH_INT32: i32 = 3;
/// Unsigned 8-bit integer.
pub const OPSMITH_UINT8: i32 = 4;
/// Signed 16-bit integer.
pub const OPSMITH_INT16: i32 = 5;
/// Signed 8-bit integer.
pub const OPSMITH_INT8: i32 = 6;
/// Bytes of any length; an element is an `OpsmithStr`.
pub const OPSMITH_STRING: i32 = 7;
/// Two `float32`, real and imaginary part.
pub const OPSMITH_COMPLEX64: i32 = 8;
/// Signed 64-bit integer.
pub const OPSMITH_INT64: i32 = 9;
/// A byte, 0 or 1.
pub const OPSMITH_BOOL: i32 = 10;
/// Quantised signed 8-bit integer.
pub const OPSMITH_QINT8: i32 = 11;
/// Quantised unsigned 8-bit integer.
pub const OPSMITH_QUINT8: i32 = 12;
/// Quantised signed 32-bit integer.
pub const OPSMITH_QINT32: i32 = 13;
/// The upper half of a `float32`.
pub const OPSMITH_BFLOAT16: i32 = 14;
/// Quantised signed 16-bit integer.
pub const OPSMITH_QINT16: i32 = 15;
/// Quantised unsigned 16-bit integer.
pub const OPSMITH_QUINT16: i32 = 16;
/// Unsigned 16-bit integer.
pub const OPSMITH_UINT16: i32 = 17;
/// Two `float64`, real and imaginary part.
pub const OPSMITH_COMPLEX128: i32 = 18;
/// IEEE 754 binary16.
pub const OPSMITH_FLOAT16: i32 = 19;
/// Unsigned 32-bit integer.
pub const OPSMITH_UINT32: i32 = 22;
/// Unsigned 64-bit integer.
pub const OPSMITH_UINT64: i32 = 23;

/// `device_kind` of the CPU, whose memory is host memory, as in DLPack.
pub const OPSMITH_DEVICE_CPU: i32 = 1;
/// `device_kind` of a card, an NVIDIA GPU, as in DLPack.
pub const OPSMITH_DEVICE_CUDA: i32 = 2;

/// `kind` of an attribute: text; an element is an `OpsmithStr`.
pub const OPSMITH_ATTR_STRING: i32 = 0;
/// An `int`; an element is an `int64_t`.
pub const OPSMITH_ATTR_INT: i32 = 1;
/// A `float`; an element is a `double`.
pub const OPSMITH_ATTR_FLOAT: i32 = 2;
/// A `bool`; an element is a byte, 0 or 1.
pub const OPSMITH_ATTR_BOOL: i32 = 3;
/// A `type`; an element is an `int32_t`, the number of the dtype.
pub const OPSMITH_ATTR_TYPE: i32 = 4;
/// A `shape`; an element is an `OpsmithShape`.
pub const OPSMITH_ATTR_SHAPE: i32 = 5;
/// A `tensor`; an element is a pointer to an `OpsmithTensor` in host memory.
pub const OPSMITH_ATTR_TENSOR: i32 = 6;

/// A run of bytes, UTF-8 where it is text, with no NUL at its end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpsmithStr {
    /// The first byte; may be null when `len` is 0.
    pub data: *const c_char,
    /// How many bytes.
    pub len: usize,
}

/// A failure. Free it with the library's `error_free`.
#[repr(C)]
pub struct OpsmithError {
    /// `sizeof(OpsmithError)`.
    pub size: usize,
    /// What kind of failure: `OPSMITH_INVALID_ARGUMENT` and so on.
    pub code: i32,
    /// The name of the op that failed, ended by a NUL; null where the failure is of no op.
    pub op: *const c_char,
    /// The name of the input, output or attribute that is to blame, ended by a NUL; null where it is none, or not known.
    pub argument: *const c_char,
    /// What is wrong, ended by a NUL: what was expected and what came. It names the argument, and not the op.
    pub text: *const c_char,
}

/// A tensor that somebody else owns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpsmithTensor {
    /// `sizeof(OpsmithTensor)`.
    pub size: usize,
    /// The element at index 0 of every dim. A `string` tensor's elements are `OpsmithStr`.
    pub data: *mut c_void,
    /// The type of the elements: `OPSMITH_FLOAT32` and so on.
    pub dtype: i32,
    /// Where `data` is: `OPSMITH_DEVICE_…`.
    pub device_kind: i32,
    /// Which one of several devices.
    pub device_index: i32,
    /// The number of dims.
    pub rank: i32,
    /// The dims, `rank` of them.
    pub shape: *const i64,
    /// The strides in elements, `rank` of them; null for row-major without gaps.
    pub strides: *const i64,
}

/// A shape of which parts may be unknown.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpsmithShape {
    /// The number of dims; -1 when it is unknown.
    pub rank: i64,
    /// The dims, `rank` of them; -1 is an unknown one.
    pub dims: *const i64,
}

/// The value of an attribute.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpsmithAttr {
    /// `sizeof(OpsmithAttr)`.
    pub size: usize,
    /// The attribute's name.
    pub name: OpsmithStr,
    /// The type of its elements: `OPSMITH_ATTR_…`.
    pub kind: i32,
    /// 1 for a list, 0 for one value.
    pub is_list: i32,
    /// How many elements `values` has; 1 unless it is a list.
    pub len: usize,
    /// The elements, of the type that `kind` says.
    pub values: *const c_void,
}

/// The work that `parallel_for` hands out: called with a range and the context given beside it. It never unwinds.
pub type OpsmithParallelBody = unsafe extern "C" fn(begin: usize, end: usize, body_context: *mut c_void);

/// What the caller lends to a call. Functions get `context` back.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpsmithServices {
    /// `sizeof(OpsmithServices)`.
    pub size: usize,
    /// Passed to every function below.
    pub context: *mut c_void,
    /// Makes the output at flat position `index`: dense, row-major, aligned to 64 bytes, of `rank` dims; a
    /// `string` output filled with zero bytes. The caller owns it, whether or not the call succeeds. Null when
    /// the memory cannot be had.
    pub allocate_output: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            index: usize,
            dtype: i32,
            rank: i32,
            shape: *const i64,
        ) -> *mut c_void,
    >,
    /// How many threads `parallel_for` uses. Null together with it: then the library's own pool is used.
    pub num_threads: Option<unsafe extern "C" fn(context: *mut c_void) -> usize>,
    /// Calls `body` on ranges that cover `0..total`, each of at least `grain` units but the last, and returns when
    /// all are done. May be null.
    pub parallel_for: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            total: usize,
            grain: usize,
            body: OpsmithParallelBody,
            body_context: *mut c_void,
        ),
    >,
    /// Copies bytes to where they stay until the outputs have been read: an element of a `string` output. Null
    /// where there are no string tensors; null back when the memory cannot be had.
    pub keep_string: Option<unsafe extern "C" fn(context: *mut c_void, bytes: OpsmithStr) -> *const c_char>,
    /// The stream that the call's work is put on, of the device that the tensors are on: a `CUstream` on CUDA, null for the
    /// default one. Nothing waits for it.
    pub stream: *mut c_void,
    /// Memory on that device for the library's own use, aligned to 256 bytes, until the work that the call puts on the stream
    /// is done. Null where there is none, and on the CPU; null back when the memory cannot be had.
    pub allocate_temp: Option<unsafe extern "C" fn(context: *mut c_void, bytes: usize) -> *mut c_void>,
    /// Gets each CUDA kernel that the call would put on the stream, and no driver does: for tools that have no card, of whose
    /// tensors the library reads no element then. 0 when that is done; else the call fails. Null where kernels are to run.
    pub launch: Option<unsafe extern "C" fn(context: *mut c_void, launch: *const OpsmithLaunch) -> i32>,
}

/// A text that a CUDA source may include.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpsmithHeader {
    /// What it is included as.
    pub name: OpsmithStr,
    /// The text.
    pub text: OpsmithStr,
}

/// A CUDA kernel that a call would put on the stream. It is there until `launch` returns.
#[repr(C)]
pub struct OpsmithLaunch {
    /// `sizeof(OpsmithLaunch)`.
    pub size: usize,
    /// The file of the source, for the compiler's messages.
    pub file: OpsmithStr,
    /// The source in CUDA C++.
    pub source: OpsmithStr,
    /// What the source may include.
    pub headers: *const OpsmithHeader,
    /// How many there are.
    pub num_headers: usize,
    /// Which kernel of the source: `doubled`, or of a template `doubled<float, int>`.
    pub kernel: OpsmithStr,
    /// The arguments, each the address of its bytes.
    pub arguments: *const *const c_void,
    /// How many bytes each of them has.
    pub argument_sizes: *const usize,
    /// How many there are.
    pub num_arguments: usize,
    /// How many blocks, along x, y and z.
    pub grid: [u32; 3],
    /// How many threads a block has, along x, y and z.
    pub block: [u32; 3],
    /// How many bytes of shared memory a block gets beside what the kernel declares.
    pub shared: u32,
    /// The number in `file` of the source's first line.
    pub line: u32,
}

/// One call of an op.
#[repr(C)]
pub struct OpsmithCall {
    /// `sizeof(OpsmithCall)`.
    pub size: usize,
    /// The op's position in the library, as `find_op` gives it.
    pub op: usize,
    /// The input tensors, argument after argument; a null pointer is an absent optional one.
    pub tensors: *const *const OpsmithTensor,
    /// How many pointers `tensors` has.
    pub num_tensors: usize,
    /// How many tensors each argument holds, in the definition's order; null when each holds one.
    pub counts: *const usize,
    /// How many arguments; the length of `counts`.
    pub num_arguments: usize,
    /// Attributes that have not their default value, in any order. Those that inputs decide need not be given.
    pub attrs: *const *const OpsmithAttr,
    /// How many pointers `attrs` has.
    pub num_attrs: usize,
    /// Bit `i` is set when output `i` of the definition is wanted; all ones for everything.
    pub wanted: u64,
    /// The caller's services.
    pub services: *const OpsmithServices,
    /// Where to write how many tensors each output of the definition holds, before the first is made; may be null.
    pub output_counts: *mut usize,
    /// The length of `output_counts`.
    pub num_outputs: usize,
    /// What `plan` gave for a call like this one, which then reads no attributes; null where there is none.
    pub plan: *const OpsmithPlan,
}

/// A call worked out: its attributes and dtypes, and the kernel that they lead to. Only the library knows what is in it.
pub enum OpsmithPlan {}

/// What a library exports as `opsmith_library_v1`. All functions may be called from any thread.
#[repr(C)]
pub struct OpsmithLibrary {
    /// `sizeof(OpsmithLibrary)`.
    pub size: usize,
    /// `OPSMITH_ABI_VERSION` of the library.
    pub abi_version: u32,
    /// The library's name.
    pub name: OpsmithStr,
    /// The library's version, as its author gives it.
    pub version: OpsmithStr,
    /// Checks the definitions, once. Null when they are sound; else what is wrong. The other functions fail with
    /// the same error.
    pub init: unsafe extern "C" fn() -> *mut OpsmithError,
    /// The library as JSON: its ops, their arguments, attributes, shapes, gradients and kernels. Valid for good.
    pub describe: unsafe extern "C" fn(json: *mut OpsmithStr) -> *mut OpsmithError,
    /// Writes the position of the op of this name, CamelCase or snake_case.
    pub find_op: unsafe extern "C" fn(name: OpsmithStr, op: *mut usize) -> *mut OpsmithError,
    /// Computes an op. Null when it succeeded.
    pub call: unsafe extern "C" fn(call: *const OpsmithCall) -> *mut OpsmithError,
    /// Infers the shapes and dtypes of an op's outputs. Free the answer with `shapes_free`.
    pub infer_shapes: unsafe extern "C" fn(
        query: *const OpsmithShapeQuery,
        shapes: *mut *const OpsmithShapes,
    ) -> *mut OpsmithError,
    /// Frees an error; null is fine.
    pub error_free: unsafe extern "C" fn(error: *mut OpsmithError),
    /// Frees a string that `explain` gave.
    pub string_free: unsafe extern "C" fn(string: OpsmithStr),
    /// Registers the ops with a framework that is in the process: `"torch"` or `"tensorflow"`; `"torch.gradients"` makes way for
    /// who is about to register gradients of the ops with PyTorch. Doing it twice is fine. Opening the library does it for frameworks
    /// that are there by then. JAX and ONNX Runtime register a library's ops themselves. An error names each op that the framework
    /// refuses; the others are registered.
    pub register_framework: unsafe extern "C" fn(framework: OpsmithStr) -> *mut OpsmithError,
    /// Tells what an op's kernel is made of, where it is written once for all devices: attributes not given have their
    /// defaults, dtypes `float32` where they may. `response` is JSON, for people to read:
    /// `{"formula": text, "cuda_source": text, "vectors": text}`; free it with `string_free`.
    pub explain: unsafe extern "C" fn(
        op: usize,
        attrs: *const *const OpsmithAttr,
        num_attrs: usize,
        response: *mut OpsmithStr,
    ) -> *mut OpsmithError,
    /// Works out a call for later ones with the same op, attributes, dtypes, counts and kind of device, whose `plan` it
    /// becomes: they may come from any number of threads at a time, and have other shapes. Of the tensors only dtypes and
    /// devices are read, and no service of the caller. Free it with `plan_free`.
    pub plan:
        unsafe extern "C" fn(call: *const OpsmithCall, plan: *mut *mut OpsmithPlan) -> *mut OpsmithError,
    /// Frees a plan that no call uses any more; null is fine.
    pub plan_free: unsafe extern "C" fn(plan: *mut OpsmithPlan),
    /// Tells what an op computes of each element, for these attributes: those not given have their defaults, dtypes `float32`
    /// where they may. Null where it is more than a function of each element, or rounds once what a program would round
    /// several times. Free it with `program_free`.
    pub program: unsafe extern "C" fn(
        op: usize,
        attrs: *const *const OpsmithAttr,
        num_attrs: usize,
        program: *mut *const OpsmithProgram,
    ) -> *mut OpsmithError,
    /// Frees a program with all that it points to; null is fine.
    pub program_free: unsafe extern "C" fn(program: *const OpsmithProgram),
    /// Frees the answer of `infer_shapes` with all that it points to; null is fine.
    pub shapes_free: unsafe extern "C" fn(shapes: *const OpsmithShapes),
    /// Computes an op on tensors in DLPack's form, on the library's own threads. Null when it succeeded.
    pub call_dlpack: unsafe extern "C" fn(call: *const OpsmithDLPackCall) -> *mut OpsmithError,
}

// SAFETY: the table and the text that it points to never change.
unsafe impl Sync for OpsmithLibrary {}

impl OpsmithStr {
    /// The bytes of `text`.
    pub const fn new(text: &str) -> OpsmithStr {
        OpsmithStr { data: text.as_ptr().cast(), len: text.len() }
    }

    /// The bytes as a slice.
    ///
    /// # Safety
    /// `data` must be readable for `len` bytes for `'a`.
    pub const unsafe fn as_bytes<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: promised by the caller.
        unsafe { std::slice::from_raw_parts(self.data.cast(), self.len) }
    }
}
