//! PyTorch's stable C functions, found in the process at run time.
//!
//! Nothing is linked: the functions are looked up in `libtorch_cpu` once it is there, so that one library serves
//! every release. What a release lacks and an op can do without is `Option`.

mod autograd;

use std::ffi::{CStr, c_char, c_void};

use opsmith_core::fork::OnceLock;
use opsmith_core::{DType, Error, Result};

use crate::process::{self, opened, symbol};

/// A tensor that PyTorch made; owned unless said otherwise.
pub(super) type TensorHandle = *mut c_void;
/// A place where ops or kernels are registered; kept for the life of the process.
pub(super) type LibraryHandle = *mut c_void;
/// A list of values, owned.
pub(super) type ListHandle = *mut c_void;
/// A string, owned.
pub(super) type StringHandle = *mut c_void;
/// What PyTorch calls for an op: the arguments come and the results go in `stack`, one word each.
pub type Kernel = unsafe extern "C-unwind" fn(stack: *mut u64, n_inputs: u64, n_outputs: u64);
/// The work that `torch_parallel_for` hands out.
pub(super) type ParallelBody = unsafe extern "C" fn(begin: i64, end: i64, context: *mut c_void);

const LIBTORCH: &CStr = c"libtorch_cpu.so";
/// Where PyTorch's functions for cards are, in a build that has them.
const LIBTORCH_CUDA: &CStr = c"libtorch_cuda.so";

macro_rules! functions {
    (
        required { $($required:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)* }
        optional { $($optional:ident: fn($($oarg:ty),*) $(-> $oret:ty)?;)* }
    ) => {
        /// The functions; those that return `i32` give 0 when they succeed.
        pub(super) struct Functions {
            $(pub(super) $required: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            $(pub(super) $optional: Option<unsafe extern "C" fn($($oarg),*) $(-> $oret)?>,)*
        }

        impl Functions {
            /// Looks every function up in the library that `handle` has opened.
            fn resolve(handle: *mut c_void) -> Result<Functions> {
                // SAFETY: a symbol of this name is a function of this type in every release that has it: the
                // functions are PyTorch's stable C interface.
                unsafe {
                    Ok(Functions {
                        $($required: std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($arg),*) $(-> $ret)?,
                        >(required(handle, stringify!($required))?),)*
                        $($optional: std::mem::transmute::<
                            *mut c_void,
                            Option<unsafe extern "C" fn($($oarg),*) $(-> $oret)?>,
                        >(symbol(handle, stringify!($optional))),)*
                    })
                }
            }
        }
    };
}

functions! {
    required {
        aoti_torch_library_init_fragment: fn(*const c_char, *const c_char, u32, *mut LibraryHandle) -> i32;
        aoti_torch_library_init_impl:
            fn(*const c_char, *const c_char, *const c_char, u32, *mut LibraryHandle) -> i32;
        aoti_torch_library_def: fn(LibraryHandle, *const c_char) -> i32;
        aoti_torch_library_impl: fn(LibraryHandle, *const c_char, Kernel) -> i32;
        aoti_torch_delete_library_object: fn(LibraryHandle) -> i32;
        aoti_torch_delete_tensor_object: fn(TensorHandle) -> i32;
        aoti_torch_new_tensor_handle: fn(TensorHandle, *mut TensorHandle) -> i32;
        aoti_torch_call_dispatcher: fn(*const c_char, *const c_char, *mut u64) -> i32;
        aoti_torch_grad_mode_is_enabled: fn() -> bool;
        aoti_torch_grad_mode_set_enabled: fn(bool);
        aoti_torch_empty_strided:
            fn(i64, *const i64, *const i64, i32, i32, i32, *mut TensorHandle) -> i32;
        aoti_torch_get_data_ptr: fn(TensorHandle, *mut *mut c_void) -> i32;
        aoti_torch_get_dim: fn(TensorHandle, *mut i64) -> i32;
        aoti_torch_get_sizes: fn(TensorHandle, *mut *const i64) -> i32;
        aoti_torch_get_strides: fn(TensorHandle, *mut *const i64) -> i32;
        aoti_torch_get_dtype: fn(TensorHandle, *mut i32) -> i32;
        aoti_torch_get_device_type: fn(TensorHandle, *mut i32) -> i32;
        aoti_torch_device_type_cpu: fn() -> i32;
        aoti_torch_device_type_cuda: fn() -> i32;
        aoti_torch_device_type_meta: fn() -> i32;
    }
    optional {
        torch_library_impl: fn(LibraryHandle, *const c_char, Kernel, u64) -> i32;
        torch_library_def_with_tags: fn(LibraryHandle, *const c_char, *const i32, i32) -> i32;
        torch_tag_nondeterministic_seeded: fn() -> i32;
        torch_get_const_data_ptr: fn(TensorHandle, *mut *const c_void) -> i32;
        torch_new_list_reserve_size: fn(usize, *mut ListHandle) -> i32;
        torch_list_size: fn(ListHandle, *mut usize) -> i32;
        torch_list_get_item: fn(ListHandle, usize, *mut u64) -> i32;
        torch_list_push_back: fn(ListHandle, u64) -> i32;
        torch_delete_list: fn(ListHandle) -> i32;
        torch_string_length: fn(StringHandle, *mut usize) -> i32;
        torch_string_c_str: fn(StringHandle, *mut *const c_char) -> i32;
        torch_delete_string: fn(StringHandle) -> i32;
        torch_delete_stable_ivalue: fn(*mut u64) -> i32;
        torch_parallel_for: fn(i64, i64, i64, ParallelBody, *mut c_void) -> i32;
        torch_get_num_threads: fn(*mut u32) -> i32;
        torch_exception_get_what_without_backtrace: fn() -> *const c_char;
        aoti_torch_get_device_index: fn(TensorHandle, *mut i32) -> i32;
    }
}

/// C++'s own functions that have no counterpart in C.
pub(super) struct CppRuntime {
    /// `std::__throw_runtime_error(const char*)`, of libstdc++ or libc++.
    pub(super) throw_runtime_error: unsafe extern "C-unwind" fn(*const c_char) -> !,
    /// `operator delete(void*)`.
    pub(super) delete: unsafe extern "C" fn(*mut c_void),
}

/// PyTorch, as it is in this process.
pub(super) struct Shim {
    pub(super) functions: Functions,
    pub(super) cpp: CppRuntime,
    pub(super) autograd: Option<autograd::Fallback>,
    pub(super) cpu: i32,
    pub(super) cuda: i32,
    meta: i32,
    from_code: [Option<DType>; CODES],
    to_code: [Option<i32>; 32],
}

/// PyTorch numbers its dtypes from 0; the highest known is below 64.
const CODES: usize = 64;

const DTYPE_GETTERS: [(DType, &str); 15] = [
    (DType::Float32, "aoti_torch_dtype_float32"),
    (DType::Float64, "aoti_torch_dtype_float64"),
    (DType::Float16, "aoti_torch_dtype_float16"),
    (DType::BFloat16, "aoti_torch_dtype_bfloat16"),
    (DType::Int8, "aoti_torch_dtype_int8"),
    (DType::Int16, "aoti_torch_dtype_int16"),
    (DType::Int32, "aoti_torch_dtype_int32"),
    (DType::Int64, "aoti_torch_dtype_int64"),
    (DType::UInt8, "aoti_torch_dtype_uint8"),
    (DType::UInt16, "aoti_torch_dtype_uint16"),
    (DType::UInt32, "aoti_torch_dtype_uint32"),
    (DType::UInt64, "aoti_torch_dtype_uint64"),
    (DType::Bool, "aoti_torch_dtype_bool"),
    (DType::Complex64, "aoti_torch_dtype_complex64"),
    (DType::Complex128, "aoti_torch_dtype_complex128"),
];

impl Shim {
    /// PyTorch, or `None` when it is not in the process (yet).
    ///
    /// # Errors
    /// `Unimplemented`, with the name of the missing function, for a release that is too old.
    pub(super) fn find() -> Result<Option<&'static Shim>> {
        static FOUND: OnceLock<Result<Shim>> = OnceLock::new();
        process::find(&FOUND, LIBTORCH, Shim::resolve)
    }

    fn resolve(handle: *mut c_void) -> Result<Shim> {
        let functions = Functions::resolve(handle)?;
        let (from_code, to_code) = dtype_tables(handle)?;
        // SAFETY: getters without preconditions.
        let (cpu, cuda, meta) = unsafe {
            (
                (functions.aoti_torch_device_type_cpu)(),
                (functions.aoti_torch_device_type_cuda)(),
                (functions.aoti_torch_device_type_meta)(),
            )
        };
        let autograd = autograd::Fallback::resolve(|name| symbol(handle, name));
        Ok(Shim { cpp: cpp_runtime(handle)?, functions, autograd, cpu, cuda, meta, from_code, to_code })
    }

    /// The dtype with PyTorch's number `code`, `None` for one that Opsmith does not have.
    pub(super) fn dtype(&self, code: i32) -> Option<DType> {
        *self.from_code.get(usize::try_from(code).ok()?)?
    }

    /// PyTorch's number for a dtype, `None` for one that its plain tensors do not have.
    pub(super) fn dtype_code(&self, dtype: DType) -> Option<i32> {
        self.to_code[dtype as usize]
    }

    /// PyTorch's stream of this thread on a card, a `cudaStream_t`.
    ///
    /// # Errors
    /// `Unimplemented` where PyTorch is built without CUDA, `Internal` when it has no stream.
    pub(super) fn cuda_stream(&self, index: i32) -> Result<*mut c_void> {
        type GetStream = unsafe extern "C" fn(i32, *mut *mut c_void) -> i32;
        static FOUND: OnceLock<Option<GetStream>> = OnceLock::new();
        let get = FOUND.get_or_init(|| {
            let handle = opened(LIBTORCH_CUDA);
            let address = if handle.is_null() {
                std::ptr::null_mut()
            } else {
                symbol(handle, "aoti_torch_get_current_cuda_stream")
            };
            // SAFETY: a symbol of this name is a function of this type in every release that has it.
            unsafe { std::mem::transmute::<*mut c_void, Option<GetStream>>(address) }
        });
        let Some(get) = get else {
            return Err(Error::unimplemented(
                "this PyTorch is built without CUDA, so it has no stream for a card",
            ));
        };
        let mut stream = std::ptr::null_mut();
        // SAFETY: the pointer is to a local of the right type.
        match unsafe { get(index, &mut stream) } {
            0 => Ok(stream),
            _ => Err(Error::internal(format!(
                "PyTorch gives no stream of card {index}: {}",
                self.last_error()
            ))),
        }
    }

    /// The word for a kind of device.
    pub(super) fn device_name(&self, device: i32) -> String {
        match device {
            _ if device == self.cpu => "cpu".to_owned(),
            _ if device == self.cuda => "cuda".to_owned(),
            _ if device == self.meta => "meta".to_owned(),
            _ => format!("number {device}"),
        }
    }

    /// What PyTorch said of the call that has just failed on this thread, where the release tells.
    pub(super) fn last_error(&self) -> String {
        let what = self.functions.torch_exception_get_what_without_backtrace.map(|what| {
            // SAFETY: the function has no preconditions; the text it gives lives until the next failure on this
            // thread, and is copied here.
            let text = unsafe { what() };
            if text.is_null() {
                return String::new();
            }
            // SAFETY: not null, ended by a NUL, as said above.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned()
        });
        what.filter(|text| !text.is_empty()).unwrap_or_else(|| "PyTorch gives no reason".to_owned())
    }

    /// Whether the release passes lists and strings to kernels written in C: 2.10 is the first.
    pub(super) fn has_lists_and_strings(&self) -> bool {
        self.functions.torch_list_get_item.is_some() && self.functions.torch_string_c_str.is_some()
    }
}

/// From PyTorch's numbers to dtypes, and back.
type DTypeTables = ([Option<DType>; CODES], [Option<i32>; 32]);

fn dtype_tables(handle: *mut c_void) -> Result<DTypeTables> {
    let mut from_code = [None; CODES];
    let mut to_code = [None; 32];
    for (dtype, name) in DTYPE_GETTERS {
        // SAFETY: the getters take nothing and return an i32, in every release.
        let code = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> i32>(required(handle, name)?)()
        };
        to_code[dtype as usize] = Some(code);
        if let Some(entry) = usize::try_from(code).ok().and_then(|code| from_code.get_mut(code)) {
            *entry = Some(dtype);
        }
    }
    Ok((from_code, to_code))
}

fn cpp_runtime(handle: *mut c_void) -> Result<CppRuntime> {
    // dlsym on a handle looks through what the library depends on too: the C++ runtime that PyTorch uses.
    let throw = ["_ZSt21__throw_runtime_errorPKc", "_ZNSt3__121__throw_runtime_errorEPKc"];
    let throw = throw.into_iter().map(|name| symbol(handle, name)).find(|address| !address.is_null());
    let throw = throw.ok_or_else(|| missing("std::__throw_runtime_error"))?;
    let delete = required(handle, "_ZdlPv")?;
    // SAFETY: the mangled names say what the functions take; none of the three has another return type.
    unsafe {
        Ok(CppRuntime {
            throw_runtime_error: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C-unwind" fn(*const c_char) -> !,
            >(throw),
            delete: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(delete),
        })
    }
}

fn required(handle: *mut c_void, name: &str) -> Result<*mut c_void> {
    let address = symbol(handle, name);
    if address.is_null() { Err(missing(name)) } else { Ok(address) }
}

fn missing(name: &str) -> Error {
    Error::unimplemented(format!(
        "this PyTorch has no `{name}`; Opsmith needs 2.8 or later, and 2.10 or later for ops with lists or strings"
    ))
}
