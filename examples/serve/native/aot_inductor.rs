//! Runs a model that AOTInductor has packaged, with an op of a library: aot_inductor MODEL.pt2 [LIBRARY.so]...
//!
//! Reads a matrix of float32 from standard input, its rows and columns first, and writes the model's first output. It needs PyTorch's
//! libraries, from 2.15 on, and no C++: `rustc` alone builds it.
//!
//! By itself a package calls custom ops through an executor that only C++ can make. Packaged with the setting `custom_ops_to_c_shims` it
//! calls a C function for each of them instead, and `shims!` defines these.

use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::ExitCode;
use std::ptr::{null, null_mut};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// `AtenTensorHandle`: a tensor of PyTorch's, owned by who has it unless a function says otherwise.
type Handle = *mut c_void;

#[link(name = "torch_cpu")]
unsafe extern "C" {
    fn aoti_torch_call_dispatcher(op: *const c_char, overload: *const c_char, stack: *mut u64) -> c_int;
    fn aoti_torch_create_tensor_from_blob(
        data: *const c_void,
        rank: i64,
        sizes: *const i64,
        strides: *const i64,
        offset: i64,
        dtype: i32,
        device: i32,
        index: i32,
        tensor: *mut Handle,
    ) -> c_int;
    fn aoti_torch_delete_tensor_object(tensor: Handle) -> c_int;
    fn aoti_torch_device_type_cpu() -> i32;
    fn aoti_torch_dtype_float32() -> i32;
    fn aoti_torch_get_data_ptr(tensor: Handle, data: *mut *mut c_void) -> c_int;
    fn aoti_torch_get_dim(tensor: Handle, rank: *mut i64) -> c_int;
    fn aoti_torch_get_dtype(tensor: Handle, dtype: *mut i32) -> c_int;
    fn aoti_torch_get_sizes(tensor: Handle, sizes: *mut *const i64) -> c_int;
    fn aoti_torch_get_strides(tensor: Handle, strides: *mut *const i64) -> c_int;
    fn aoti_torch_new_tensor_handle(tensor: Handle, same: *mut Handle) -> c_int;
    /// What went wrong last on this thread, lent until something does again.
    fn torch_exception_get_what_without_backtrace() -> *const c_char;
}

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

const RTLD_NOW: c_int = 2;

/// Calls an op of tensors that gives one. 0 is success; what fails is written to standard error, as the package does.
///
/// # Safety
/// The tensors must be alive, and `result` a place for one.
unsafe fn call(op: &CStr, tensors: &[Handle], result: *mut Handle) -> c_int {
    let mut stack = vec![0; tensors.len().max(1)];
    for (place, tensor) in stack.iter_mut().zip(tensors) {
        let mut own = null_mut();
        // SAFETY: promised by the caller. The call takes the handles, and the package keeps its own.
        if unsafe { aoti_torch_new_tensor_handle(*tensor, &mut own) } != 0 {
            return 1;
        }
        *place = own as u64;
    }
    // SAFETY: the stack has the op's arguments, and then its result.
    let failed = unsafe { aoti_torch_call_dispatcher(op.as_ptr(), c"".as_ptr(), stack.as_mut_ptr()) };
    if failed == 0 {
        // SAFETY: promised by the caller.
        unsafe { *result = stack[0] as Handle };
    } else {
        // SAFETY: a C string, which PyTorch keeps.
        let why = unsafe { CStr::from_ptr(torch_exception_get_what_without_backtrace()) };
        eprintln!("{}: {}", op.to_string_lossy(), why.to_string_lossy());
    }
    failed
}

/// The C functions that the package calls, by the names that it was packaged with.
macro_rules! shims {
    ($($name:ident = $op:literal($($tensor:ident),*);)*) => {$(
        // SAFETY: the name is that of a declaration which the package has.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($tensor: Handle,)* result: *mut Handle) -> c_int {
            // SAFETY: passed on from the package.
            unsafe { call($op, &[$($tensor),*], result) }
        }
    )*};
}

shims! {
    aoti_torch_cpu_pairwise_manhattan_distance = c"distances::pairwise_manhattan_distance"(x, y);
}

/// A shared object, open for as long as the process runs.
struct Library(*mut c_void);

impl Library {
    fn open(path: &str) -> Outcome<Library> {
        let path = CString::new(path)?;
        // SAFETY: a C string; the caller trusts the library, whose start-up code runs.
        let library = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
        if library.is_null() {
            // SAFETY: after a failure there is a message.
            return Err(unsafe { CStr::from_ptr(dlerror()) }.to_string_lossy().into());
        }
        Ok(Library(library))
    }

    /// # Safety
    /// `F` must be the function's type.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Outcome<F> {
        // SAFETY: the library is open.
        let function = unsafe { dlsym(self.0, name.as_ptr()) };
        if function.is_null() {
            return Err(format!("the model has no function {}", name.to_string_lossy()).into());
        }
        // SAFETY: promised by the caller; a function's address is a pointer.
        Ok(unsafe { std::mem::transmute_copy(&function) })
    }
}

/// The shared object in a package, which is a ZIP archive that nothing is compressed in.
fn shared_object(package: &[u8]) -> Outcome<&[u8]> {
    let not = || "the package is cut off, or no ZIP archive";
    let number = |at: usize, bytes: usize| -> Outcome<usize> {
        let own = at.checked_add(bytes).and_then(|end| package.get(at..end)).ok_or_else(not)?;
        Ok(own.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    };
    let end = package.windows(4).rposition(|own| own == b"PK\x05\x06").ok_or_else(not)?;
    let (count, mut entry) = (number(end + 10, 2)?, number(end + 16, 4)?);
    for _ in 0..count {
        if number(entry, 4)? != 0x0201_4b50 {
            return Err(not().into());
        }
        let (method, size, start) = (number(entry + 10, 2)?, number(entry + 20, 4)?, number(entry + 42, 4)?);
        let (name, rest) = (number(entry + 28, 2)?, number(entry + 30, 2)? + number(entry + 32, 2)?);
        if package.get(entry + 46..entry + 46 + name).ok_or_else(not)?.ends_with(b".so") {
            if method != 0 || size == 0xffff_ffff || start == 0xffff_ffff {
                return Err("the model in the package is compressed, or larger than 4 GB".into());
            }
            let data = start + 30 + number(start + 26, 2)? + number(start + 28, 2)?;
            return package.get(data..data + size).ok_or_else(|| not().into());
        }
        entry += 46 + name + rest;
    }
    Err("the package has no model for this system".into())
}

fn check(failed: c_int, what: &str) -> Outcome<()> {
    if failed == 0 { Ok(()) } else { Err(format!("cannot {what}; why is said above").into()) }
}

/// A model that is loaded.
struct Model {
    library: Library,
    container: *mut c_void,
}

impl Model {
    fn load(package: &str) -> Outcome<Model> {
        let package = std::fs::read(package)?;
        // Only a file can be opened as a library; once it is, it needs no name.
        let object = shared_object(&package)?;
        let file = std::env::temp_dir().join(format!("aot-inductor-{}.so", std::process::id()));
        let name = file.to_str().ok_or("the folder for temporary files has no UTF-8 name")?;
        // A file that is there already is somebody else's.
        let made = OpenOptions::new().write(true).create_new(true).mode(0o700).open(&file);
        let mut made = made.map_err(|error| format!("{name}: {error}"))?;
        let library = match made.write_all(&object) {
            Ok(()) => Library::open(name),
            Err(error) => Err(error.into()),
        };
        std::fs::remove_file(&file)?;
        let library = library?;
        type Create = unsafe extern "C" fn(*mut *mut c_void, usize, *const c_char, *const c_char) -> c_int;
        let mut container = null_mut();
        // SAFETY: the function is of this type in packages of PyTorch's; one model, on the CPU, whose files are nowhere.
        let failed = unsafe {
            let create: Create = library.function(c"AOTInductorModelContainerCreateWithDevice")?;
            create(&mut container, 1, c"cpu".as_ptr(), null())
        };
        check(failed, "load the model")?;
        Ok(Model { library, container })
    }

    /// The first output for one input, which is taken.
    fn run(&self, mut x: Handle) -> Outcome<Handle> {
        type Count = unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int;
        type Run = unsafe extern "C" fn(
            *mut c_void,
            *mut Handle,
            usize,
            *mut Handle,
            usize,
            *mut c_void,
            *mut c_void,
        ) -> c_int;
        let (mut inputs, mut outputs) = (0, 0);
        // SAFETY: the functions are of these types, and the container is alive.
        let run: Run = unsafe {
            let count: Count = self.library.function(c"AOTInductorModelContainerGetNumInputs")?;
            check(count(self.container, &mut inputs), "count the model's inputs")?;
            let count: Count = self.library.function(c"AOTInductorModelContainerGetNumOutputs")?;
            check(count(self.container, &mut outputs), "count the model's outputs")?;
            self.library.function(c"AOTInductorModelContainerRun")?
        };
        if inputs != 1 || outputs == 0 {
            return Err(format!("expected a model of one input, got {inputs} and {outputs} outputs").into());
        }
        let mut results = vec![null_mut(); outputs];
        // SAFETY: as above; there are as many tensors as the model has. No stream, and no executor of C++.
        let failed =
            unsafe { run(self.container, &mut x, 1, results.as_mut_ptr(), outputs, null_mut(), null_mut()) };
        check(failed, "run the model")?;
        for other in results.drain(1..) {
            // SAFETY: the outputs are ours, each once.
            unsafe { aoti_torch_delete_tensor_object(other) };
        }
        Ok(results[0])
    }
}

/// A matrix as a tensor, which lies in `numbers`.
fn tensor(numbers: &[f32], sizes: [i64; 2]) -> Outcome<Handle> {
    let (strides, mut tensor) = ([sizes[1].max(1), 1], null_mut());
    // SAFETY: there are as many numbers, dense.
    let failed = unsafe {
        let (dtype, device) = (aoti_torch_dtype_float32(), aoti_torch_device_type_cpu());
        let data = numbers.as_ptr().cast();
        let make = aoti_torch_create_tensor_from_blob;
        make(data, 2, sizes.as_ptr(), strides.as_ptr(), 0, dtype, device, 0, &mut tensor)
    };
    check(failed, "make a tensor")?;
    Ok(tensor)
}

/// Writes the dims and elements of a tensor.
fn write(tensor: Handle) -> Outcome<()> {
    let (mut rank, mut dtype, mut sizes, mut strides, mut data) = (0, 0, null(), null(), null_mut());
    // SAFETY: the tensor is alive; its dims are lent as long as it is.
    let (sizes, strides) = unsafe {
        check(aoti_torch_get_dtype(tensor, &mut dtype), "tell a dtype")?;
        check(aoti_torch_get_dim(tensor, &mut rank), "tell a rank")?;
        check(aoti_torch_get_sizes(tensor, &mut sizes), "tell dims")?;
        check(aoti_torch_get_strides(tensor, &mut strides), "tell strides")?;
        check(aoti_torch_get_data_ptr(tensor, &mut data), "tell where elements are")?;
        if dtype != aoti_torch_dtype_float32() {
            return Err("expected an output of float32".into());
        }
        let lent = |from: *const i64| match rank {
            0 => &[][..],
            _ => std::slice::from_raw_parts(from, rank as usize),
        };
        (lent(sizes), lent(strides))
    };
    println!("{}", sizes.iter().map(|size| format!("{size} ")).collect::<String>());
    for index in 0..sizes.iter().product::<i64>() {
        let (mut rest, mut at) = (index, 0);
        for (size, stride) in sizes.iter().zip(strides).rev() {
            at += rest % size * stride;
            rest /= size;
        }
        // SAFETY: an element of the tensor.
        println!("{:e}", unsafe { *data.cast::<f32>().offset(at as isize) });
    }
    Ok(())
}

fn run(package: &str, libraries: &[String]) -> Outcome<()> {
    for library in libraries {
        Library::open(library)?;
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let mut words = text.split_whitespace();
    let mut size =
        || -> Outcome<i64> { Ok(words.next().ok_or("expected rows and columns")?.parse::<u32>()?.into()) };
    let sizes = [size()?, size()?];
    let numbers = words.map(str::parse).collect::<Result<Vec<f32>, _>>()?;
    if numbers.len() as i64 != sizes[0] * sizes[1] {
        return Err(format!("expected {} numbers, got {}", sizes[0] * sizes[1], numbers.len()).into());
    }
    let y = Model::load(package)?.run(tensor(&numbers, sizes)?)?;
    write(y)?;
    // SAFETY: the output is ours.
    check(unsafe { aoti_torch_delete_tensor_object(y) }, "let go of the output")
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(package) = arguments.next() else {
        eprintln!("usage: aot_inductor MODEL.pt2 [LIBRARY.so]... < MATRIX");
        return ExitCode::from(2);
    };
    // A package takes inputs of any shape and dtype otherwise, and computes something.
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("AOTI_RUNTIME_CHECK_INPUTS", "1") };
    match run(&package, &arguments.collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
