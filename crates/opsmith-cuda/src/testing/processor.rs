//! Kernels on the processor: a CUDA source compiled by a C++ compiler, its threads one after another.
//!
//! It shows on any machine that a kernel computes what it should with the arguments and the geometry of a launch. It is no card:
//! of memory that threads share without a barrier, of speed and of the card's rounding it shows nothing.

use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::{env, fs, process};

use opsmith_core::{Error, Result, bail, ensure};

use crate::launch::Launch;
use crate::shared_object::SharedObject;

/// What stands before a source.
const PRELUDE: &str = include_str!("processor.cpp");

/// A kernel as the compiled library has it.
type Kernel = unsafe extern "C" fn(
    arguments: *mut *mut c_void,
    sizes: *const usize,
    count: usize,
    grid: *const c_uint,
    block: *const c_uint,
    shared: c_uint,
) -> c_int;

/// Whether there is a C++ compiler that kernels can be run with; where there is none, says on standard error that the test is
/// skipped.
pub fn can_run() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let found = *FOUND.get_or_init(|| {
        let version =
            Command::new(compiler()).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    });
    if !found {
        super::skipped(&format!("there is no C++ compiler `{}`: kernels run on the processor", compiler()));
    }
    found
}

fn compiler() -> String {
    env::var("CXX").unwrap_or_else(|_| "g++".to_owned())
}

/// Runs a launch on the processor, and waits for it: the addresses among its arguments are those of host memory.
///
/// # Errors
/// `Internal` when the source does not compile as C++, an argument has not the size of the kernel's parameter, or not all threads
/// of a block come to a barrier.
///
/// # Safety
/// The addresses among the arguments must be valid for what the kernel does with them.
pub unsafe fn run(launch: &mut Launch<'_>) -> Result<()> {
    let kernel = compiled(launch)?;
    let sizes: Vec<usize> = (0..launch.arguments.len()).map(|at| launch.arguments.bytes(at).len()).collect();
    let mut pointers = launch.arguments.pointers();
    let name = &launch.kernel;
    // One at a time: threads of a block are in variables of the library.
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: there are as many arguments as sizes; the rest the caller promised.
    let status = unsafe {
        kernel(
            pointers.as_mut_ptr(),
            sizes.as_ptr(),
            sizes.len(),
            launch.grid.as_ptr(),
            launch.block.as_ptr(),
            launch.shared,
        )
    };
    drop(turn);
    match status {
        0 => Ok(()),
        -1000 => {
            bail!(Internal, "kernel `{name}` is given {} arguments, and has another number", sizes.len())
        }
        wrong if wrong < 0 => {
            let position = wrong.unsigned_abs() as usize;
            bail!(
                Internal,
                "kernel `{name}`: argument {position} has {} bytes, its parameter has not",
                sizes[position - 1]
            )
        }
        line => {
            bail!(Internal, "kernel `{name}`: not all threads of a block come to the barrier in line {line}")
        }
    }
}

/// The kernel of a launch, compiled once.
fn compiled(launch: &Launch<'_>) -> Result<Kernel> {
    static KERNELS: Mutex<Option<HashMap<(u128, String), Kernel>>> = Mutex::new(None);
    let key = (launch.source.key(), launch.kernel.clone());
    let mut kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
    let kernels = kernels.get_or_insert_default();
    if let Some(kernel) = kernels.get(&key) {
        return Ok(*kernel);
    }
    let folder = env::temp_dir().join(format!("opsmith-processor-{}-{}", process::id(), kernels.len()));
    let failed = |error: std::io::Error| Error::internal(format!("{}: {error}", folder.display()));
    let (source, library) = (folder.join("kernel.cpp"), folder.join("kernel.so"));
    fs::create_dir_all(&folder).map_err(failed)?;
    for (name, text) in launch.source.headers() {
        fs::write(folder.join(&**name), &**text).map_err(failed)?;
    }
    let text = format!(
        "{PRELUDE}{}\nextern \"C\" __attribute__((visibility(\"default\"))) int opsmith_run(void **a, const size_t *s, size_t n, const unsigned *g, const unsigned *b, \
         unsigned m) {{\n    return processor::launch({}, a, s, n, g, b, m);\n}}\n",
        launch.source.program(),
        launch.kernel
    );
    fs::write(&source, text).map_err(failed)?;
    // Hidden, as static variables of templates would else be one in all libraries of the process.
    let output = Command::new(compiler())
        .args([
            "-std=c++17",
            "-O1",
            "-w",
            // Where checks are compiled in, a jump to another stack is taken for a mistake.
            "-U_FORTIFY_SOURCE",
            "-fvisibility=hidden",
            "-shared",
            "-fPIC",
            "-ffp-contract=off",
            "-o",
        ])
        .args([&library, &source])
        .output();
    let output = output.map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), Internal, "kernel `{}` does not compile as C++:\n{said}", launch.kernel);
    let opened = SharedObject::open(&library).map_err(Error::internal)?;
    // The system keeps what is open.
    let _ = fs::remove_dir_all(&folder);
    let symbol = opened
        .symbol(c"opsmith_run")
        .ok_or_else(|| Error::internal("the kernel's library has no function"))?;
    // SAFETY: the function above is of this type.
    let kernel = unsafe { std::mem::transmute::<*mut c_void, Kernel>(symbol.as_ptr()) };
    kernels.insert(key, kernel);
    Ok(kernel)
}
