//! XLA's foreign function interface: its structures, as `xla/ffi/api/c_api.h` lays them out.
//!
//! Every structure that XLA passes begins with the size that XLA knows of it. A call's is asked for whole, and the thread
//! pool's functions are called only where the size of XLA's table covers them.

use std::ffi::{CStr, c_char, c_void};
use std::mem::offset_of;

use opsmith_core::{DType, Error};

/// A structure that an extension of another begins with.
#[repr(C)]
pub(super) struct Extension {
    pub(super) struct_size: usize,
    pub(super) kind: i32,
    pub(super) next: *mut Extension,
}

/// The kind of [`MetadataExtension`].
pub(super) const METADATA: i32 = 1;

/// Comes with a call that only asks what the handler is.
#[repr(C)]
pub(super) struct MetadataExtension {
    pub(super) base: Extension,
    pub(super) metadata: *mut Metadata,
}

/// What a handler is. XLA has set the fields after these, where it knows any, to what stands for nothing.
#[repr(C)]
pub(super) struct Metadata {
    pub(super) struct_size: usize,
    pub(super) api_version: ApiVersion,
    pub(super) traits: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ApiVersion {
    struct_size: usize,
    extension: *mut Extension,
    major: i32,
    minor: i32,
}

impl ApiVersion {
    /// The version up to JAX 0.5.
    pub(super) const FIRST: ApiVersion = ApiVersion {
        struct_size: size_of::<ApiVersion>(),
        extension: std::ptr::null_mut(),
        major: 0,
        minor: 1,
    };
}

/// The bit of [`Metadata::traits`] that says that the calls' work on a card may be recorded once and replayed, in a CUDA
/// graph.
pub(super) const COMMAND_BUFFER_COMPATIBLE: u32 = 1;

/// A call of a handler.
#[repr(C)]
pub struct CallFrame {
    pub(super) struct_size: usize,
    pub(super) extension: *mut Extension,
    pub(super) api: *const Api,
    pub(super) context: *mut c_void,
    pub(super) stage: i32,
    pub(super) inputs: Buffers,
    pub(super) outputs: Buffers,
    pub(super) attrs: Attrs,
}

/// The stage in which a program is compiled: there are attributes, and no tensors yet.
pub(super) const INSTANTIATE: i32 = 0;
/// The stage in which a handler computes; the other stages prepare.
pub(super) const EXECUTE: i32 = 3;

/// The inputs or the outputs of a call.
#[repr(C)]
pub(super) struct Buffers {
    struct_size: usize,
    extension: *mut Extension,
    size: i64,
    kinds: *const i32,
    buffers: *const *const Buffer,
}

/// The attributes of a call, sorted by the bytes of their names.
#[repr(C)]
pub(super) struct Attrs {
    struct_size: usize,
    extension: *mut Extension,
    pub(super) size: i64,
    pub(super) kinds: *const i32,
    pub(super) names: *const *const ByteSpan,
    pub(super) values: *const *const c_void,
}

/// A tensor in memory, dense and row-major.
#[repr(C)]
pub(super) struct Buffer {
    struct_size: usize,
    extension: *mut Extension,
    pub(super) dtype: i32,
    pub(super) data: *mut u8,
    rank: i64,
    dims: *const i64,
}

#[repr(C)]
pub(super) struct ByteSpan {
    pub(super) data: *const u8,
    pub(super) len: usize,
}

/// An attribute of kind [`SCALAR`].
#[repr(C)]
pub(super) struct Scalar {
    pub(super) dtype: i32,
    pub(super) value: *const c_void,
}

/// An attribute of kind [`ARRAY`].
#[repr(C)]
pub(super) struct Array {
    pub(super) dtype: i32,
    pub(super) size: usize,
    pub(super) data: *const c_void,
}

pub(super) const ARRAY: i32 = 1;
pub(super) const SCALAR: i32 = 3;
pub(super) const STRING: i32 = 4;

/// XLA's functions. Fields that no function here uses are addresses of nothing in particular.
#[repr(C)]
pub(super) struct Api {
    struct_size: usize,
    extension: *mut Extension,
    pub(super) version: ApiVersion,
    internal: *const c_void,
    error_create: unsafe extern "C" fn(*mut ErrorCreateArgs) -> *mut ErrorHandle,
    error_get_message: unsafe extern "C" fn(*mut ErrorGetMessageArgs),
    error_destroy: unsafe extern "C" fn(*mut ErrorDestroyArgs),
    handler_register: *const c_void,
    stream_get: unsafe extern "C" fn(*mut StreamArgs) -> *mut ErrorHandle,
    others: [*const c_void; 4],
    device_memory_allocate: unsafe extern "C" fn(*mut AllocateArgs) -> *mut ErrorHandle,
    device_memory_free: unsafe extern "C" fn(*mut FreeArgs) -> *mut ErrorHandle,
    thread_pool_schedule: unsafe extern "C" fn(*mut ScheduleArgs) -> *mut ErrorHandle,
    thread_pool_num_threads: unsafe extern "C" fn(*mut NumThreadsArgs) -> *mut ErrorHandle,
}

/// XLA's functions with those that later releases have behind them.
#[repr(C)]
struct LaterApi {
    first: Api,
    others: [*const c_void; 4],
    device_ordinal_get: unsafe extern "C" fn(*mut OrdinalArgs) -> *mut ErrorHandle,
}

/// An error as XLA keeps it.
#[repr(C)]
pub struct ErrorHandle {
    _opaque: [u8; 0],
}

#[repr(C)]
struct ErrorCreateArgs {
    struct_size: usize,
    extension: *mut Extension,
    message: *const c_char,
    code: i32,
}

#[repr(C)]
struct ErrorDestroyArgs {
    struct_size: usize,
    extension: *mut Extension,
    error: *mut ErrorHandle,
}

#[repr(C)]
struct ErrorGetMessageArgs {
    struct_size: usize,
    extension: *mut Extension,
    error: *mut ErrorHandle,
    message: *const c_char,
}

#[repr(C)]
struct StreamArgs {
    struct_size: usize,
    extension: *mut Extension,
    context: *mut c_void,
    stream: *mut c_void,
}

#[repr(C)]
struct AllocateArgs {
    struct_size: usize,
    extension: *mut Extension,
    context: *mut c_void,
    size: usize,
    alignment: usize,
    data: *mut c_void,
}

#[repr(C)]
struct FreeArgs {
    struct_size: usize,
    extension: *mut Extension,
    context: *mut c_void,
    size: usize,
    data: *mut c_void,
}

#[repr(C)]
struct OrdinalArgs {
    struct_size: usize,
    extension: *mut Extension,
    context: *mut c_void,
    ordinal: i32,
}

/// What a scheduled task is.
pub(super) type Task = unsafe extern "C" fn(*mut c_void);

#[repr(C)]
struct ScheduleArgs {
    struct_size: usize,
    extension: *mut Extension,
    context: *mut c_void,
    task: Task,
    data: *mut c_void,
}

#[repr(C)]
struct NumThreadsArgs {
    struct_size: usize,
    extension: *mut Extension,
    context: *mut c_void,
    num_threads: *mut i64,
}

/// The size of a structure without what the compiler adds behind the last field, as XLA counts it.
macro_rules! size_to {
    ($structure:ty, $last:ident: $kind:ty) => {
        offset_of!($structure, $last) + size_of::<$kind>()
    };
}

impl CallFrame {
    /// Whether XLA knows all the fields here.
    pub(super) fn is_complete(&self) -> bool {
        self.struct_size >= size_of::<CallFrame>()
    }
}

impl Buffers {
    /// The buffers, one by one.
    ///
    /// # Safety
    /// They must come from XLA, and its call still run.
    pub(super) unsafe fn get(&self) -> &[&Buffer] {
        match self.size {
            0 => &[],
            // SAFETY: XLA gives as many pointers as it says, each to a buffer, the one kind of argument there is.
            size => unsafe { std::slice::from_raw_parts(self.buffers.cast(), size as usize) },
        }
    }
}

impl Buffer {
    /// The dims.
    ///
    /// # Safety
    /// The buffer must come from XLA, and its call still run.
    pub(super) unsafe fn shape(&self) -> &[usize] {
        match self.rank {
            0 => &[],
            // SAFETY: XLA gives as many dims as it says, none negative, so each reads as a `usize`.
            rank => unsafe { std::slice::from_raw_parts(self.dims.cast(), rank as usize) },
        }
    }
}

impl Api {
    /// Makes XLA's error of ours.
    ///
    /// # Safety
    /// XLA must have passed this.
    pub(super) unsafe fn error(&self, error: &Error) -> *mut ErrorHandle {
        // A NUL inside a message would end it early; nothing else is lost.
        let message = format!("{}\0", error.message().replace('\0', "\u{fffd}"));
        let mut args = ErrorCreateArgs {
            struct_size: size_to!(ErrorCreateArgs, code: i32),
            extension: std::ptr::null_mut(),
            message: message.as_ptr().cast(),
            code: error.code() as i32,
        };
        // SAFETY: XLA has had this function from the first, and copies the message.
        unsafe { (self.error_create)(&mut args) }
    }

    /// Whether XLA says that it lends threads. Releases up to 0.5 do not say so: some do and some do not.
    pub(super) fn lends_threads(&self) -> bool {
        self.struct_size >= size_of::<Api>()
    }

    /// How many threads XLA lends.
    ///
    /// # Safety
    /// XLA must have passed this and `context`, and [`lends_threads`](Self::lends_threads) be true.
    pub(super) unsafe fn num_threads(&self, context: *mut c_void) -> usize {
        let mut threads = 1;
        let mut args = NumThreadsArgs {
            struct_size: size_of::<NumThreadsArgs>(),
            extension: std::ptr::null_mut(),
            context,
            num_threads: &mut threads,
        };
        // SAFETY: the function is there, and the pointer is to a local of the right type.
        unsafe { self.forget((self.thread_pool_num_threads)(&mut args)) };
        usize::try_from(threads).unwrap_or(1).max(1)
    }

    /// Has a thread of XLA's call `task` with `data` some time; gives false when it will not.
    ///
    /// # Safety
    /// As for [`num_threads`](Self::num_threads).
    pub(super) unsafe fn schedule(&self, context: *mut c_void, task: Task, data: *mut c_void) -> bool {
        let mut args = ScheduleArgs {
            struct_size: size_of::<ScheduleArgs>(),
            extension: std::ptr::null_mut(),
            context,
            task,
            data,
        };
        // SAFETY: the function is there, and copies what it needs.
        unsafe { self.forget((self.thread_pool_schedule)(&mut args)) }
    }

    /// The card that a call runs on, and its stream there, a `CUstream`.
    ///
    /// # Errors
    /// `FailedPrecondition` for a release that does not tell the card, `Internal` with XLA's own message.
    ///
    /// # Safety
    /// XLA must have passed this and `context`, with a call for CUDA.
    pub(super) unsafe fn card(&self, context: *mut c_void) -> Result<(i32, *mut c_void), Error> {
        if self.struct_size < size_of::<LaterApi>() {
            return Err(Error::failed_precondition(
                "this release of JAX does not tell which card a call runs on; update JAX",
            ));
        }
        // SAFETY: XLA's structure is as large as it says, and begins with what this refers to.
        let later = unsafe { &*std::ptr::from_ref(self).cast::<LaterApi>() };
        let mut ordinal = OrdinalArgs {
            struct_size: size_to!(OrdinalArgs, ordinal: i32),
            extension: std::ptr::null_mut(),
            context,
            ordinal: 0,
        };
        let mut stream = StreamArgs {
            struct_size: size_of::<StreamArgs>(),
            extension: std::ptr::null_mut(),
            context,
            stream: std::ptr::null_mut(),
        };
        let lacks = |what: &str, reason: String| Error::internal(format!("XLA gives no {what}: {reason}"));
        // SAFETY: the functions are there, and the arguments are locals of the right types.
        unsafe {
            self.outcome((later.device_ordinal_get)(&mut ordinal)).map_err(|why| lacks("card", why))?;
            self.outcome((self.stream_get)(&mut stream)).map_err(|why| lacks("stream", why))?;
        }
        Ok((ordinal.ordinal, stream.stream))
    }

    /// Memory on the call's card, aligned to 16 bytes.
    ///
    /// # Errors
    /// `ResourceExhausted` with XLA's own message.
    ///
    /// # Safety
    /// [`card`](Self::card) must have given the call's card.
    pub(super) unsafe fn allocate(&self, context: *mut c_void, size: usize) -> Result<*mut u8, Error> {
        let mut args = AllocateArgs {
            struct_size: size_of::<AllocateArgs>(),
            extension: std::ptr::null_mut(),
            context,
            size,
            // XLA takes no larger one here.
            alignment: 16,
            data: std::ptr::null_mut(),
        };
        // SAFETY: the function is there where a later one is, and the arguments are a local of the right type.
        let outcome = unsafe { self.outcome((self.device_memory_allocate)(&mut args)) };
        let reason = match outcome {
            Ok(()) if args.data.is_null() => "it gives none".to_owned(),
            Ok(()) => return Ok(args.data.cast()),
            Err(reason) => reason,
        };
        Err(Error::resource_exhausted(format!("cannot allocate a temporary of {size} bytes: {reason}")))
    }

    /// Gives memory back that [`allocate`](Self::allocate) gave. Work on the call's stream may still use it: what XLA gives it to
    /// next comes after that on the stream.
    ///
    /// # Safety
    /// It must be of this call and size, and not be used by later work.
    pub(super) unsafe fn free(&self, context: *mut c_void, data: *mut u8, size: usize) {
        let mut args = FreeArgs {
            struct_size: size_of::<FreeArgs>(),
            extension: std::ptr::null_mut(),
            context,
            size,
            data: data.cast(),
        };
        // SAFETY: promised by the caller.
        unsafe { self.forget((self.device_memory_free)(&mut args)) };
    }

    /// What came of a call of XLA's: on failure, its message.
    ///
    /// # Safety
    /// As for [`forget`](Self::forget).
    unsafe fn outcome(&self, error: *mut ErrorHandle) -> Result<(), String> {
        if error.is_null() {
            return Ok(());
        }
        let mut args = ErrorGetMessageArgs {
            struct_size: size_of::<ErrorGetMessageArgs>(),
            extension: std::ptr::null_mut(),
            error,
            message: std::ptr::null(),
        };
        // SAFETY: promised by the caller; the message is a C string that lives as long as the error.
        unsafe {
            (self.error_get_message)(&mut args);
            let message = match args.message.is_null() {
                true => String::new(),
                false => CStr::from_ptr(args.message).to_string_lossy().into_owned(),
            };
            self.forget(error);
            Err(message)
        }
    }

    /// Frees an error; gives true when there is none.
    ///
    /// # Safety
    /// XLA must have passed this, and have given the error.
    unsafe fn forget(&self, error: *mut ErrorHandle) -> bool {
        if error.is_null() {
            return true;
        }
        let mut args = ErrorDestroyArgs {
            struct_size: size_of::<ErrorDestroyArgs>(),
            extension: std::ptr::null_mut(),
            error,
        };
        // SAFETY: promised by the caller; nobody has the error after this.
        unsafe { (self.error_destroy)(&mut args) };
        false
    }
}

/// XLA's numbers of our dtypes.
const DTYPES: [(i32, DType); 15] = [
    (1, DType::Bool),
    (2, DType::Int8),
    (3, DType::Int16),
    (4, DType::Int32),
    (5, DType::Int64),
    (6, DType::UInt8),
    (7, DType::UInt16),
    (8, DType::UInt32),
    (9, DType::UInt64),
    (10, DType::Float16),
    (11, DType::Float32),
    (12, DType::Float64),
    (15, DType::Complex64),
    (16, DType::BFloat16),
    (18, DType::Complex128),
];

/// Our dtype of this number of XLA's.
pub(super) fn dtype(number: i32) -> Result<DType, Error> {
    let found = DTYPES.iter().find(|(xla, _)| *xla == number);
    found.map(|(_, dtype)| *dtype).ok_or_else(|| {
        Error::unimplemented(format!("has XLA's dtype number {number}, which Opsmith does not have"))
    })
}
