//! NVIDIA's run-time compiler, looked for at run time: no machine needs it to load a library.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use opsmith_core::fork::OnceLock;
use opsmith_core::{Error, Result, bail};

use crate::find;
use crate::shared_object::{SharedObject, function_table};
use crate::source::{Architecture, Compiled, Source, Target};

type Program = *mut c_void;

/// The stack that sources are compiled on: NVRTC takes more than the 2 MiB that threads of some frameworks have.
const STACK: usize = 64 << 20;
/// The option that says which C++ the sources are.
pub(crate) const LANGUAGE: &str = "--std=c++17";

function_table! {
    /// The functions of NVRTC; each gives 0 when it succeeds.
    Functions {
        version = c"nvrtcVersion": fn(*mut c_int, *mut c_int) -> c_int;
        error_string = c"nvrtcGetErrorString": fn(c_int) -> *const c_char;
        arch_count = c"nvrtcGetNumSupportedArchs": fn(*mut c_int) -> c_int;
        archs = c"nvrtcGetSupportedArchs": fn(*mut c_int) -> c_int;
        create = c"nvrtcCreateProgram": fn(
            *mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
        ) -> c_int;
        destroy = c"nvrtcDestroyProgram": fn(*mut Program) -> c_int;
        add_name = c"nvrtcAddNameExpression": fn(Program, *const c_char) -> c_int;
        lowered_name = c"nvrtcGetLoweredName": fn(Program, *const c_char, *mut *const c_char) -> c_int;
        compile = c"nvrtcCompileProgram": fn(Program, c_int, *const *const c_char) -> c_int;
        log_size = c"nvrtcGetProgramLogSize": fn(Program, *mut usize) -> c_int;
        log = c"nvrtcGetProgramLog": fn(Program, *mut c_char) -> c_int;
        cubin_size = c"nvrtcGetCUBINSize": fn(Program, *mut usize) -> c_int;
        cubin = c"nvrtcGetCUBIN": fn(Program, *mut c_char) -> c_int;
        ptx_size = c"nvrtcGetPTXSize": fn(Program, *mut usize) -> c_int;
        ptx = c"nvrtcGetPTX": fn(Program, *mut c_char) -> c_int;
    }
}

/// The compiler.
pub struct Nvrtc {
    functions: Functions,
    version: (i32, i32),
    architectures: Vec<Architecture>,
    /// Where CUDA's own headers are, for sources that include them, where they are.
    include: Option<PathBuf>,
}

impl Nvrtc {
    /// The compiler of this process, looked for once.
    ///
    /// # Errors
    /// `FailedPrecondition` that says where it was looked for and what to install.
    pub fn get() -> Result<&'static Nvrtc> {
        static FOUND: OnceLock<Result<Nvrtc>> = OnceLock::new();
        FOUND.get_or_init(Nvrtc::find).as_ref().map_err(Clone::clone)
    }

    /// The compiler at a place: a file, a folder that has it, or a Python environment.
    ///
    /// # Errors
    /// `FailedPrecondition` when there is none, or none that can be opened.
    pub fn open(place: &Path) -> Result<Nvrtc> {
        Nvrtc::first_of(&find::in_place(place))
    }

    fn find() -> Result<Nvrtc> {
        Nvrtc::first_of(&find::nvrtc_candidates()?)
    }

    fn first_of(candidates: &[PathBuf]) -> Result<Nvrtc> {
        let mut reasons = Vec::new();
        for path in candidates {
            let opened = match SharedObject::open(path) {
                Ok(object) => Nvrtc::new(object, path).map_err(|error| error.message().to_owned()),
                Err(reason) => Err(reason),
            };
            match opened {
                Ok(nvrtc) => return Ok(nvrtc),
                // A bare name that is nowhere says no more than that.
                Err(reason) if path.components().count() > 1 => reasons.push(reason),
                Err(_) => {}
            }
        }
        let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
        bail!(
            FailedPrecondition,
            "NVRTC, which compiles CUDA kernels, is not on this machine{reasons}: `pip install nvidia-cuda-nvrtc`, \
             or set {} to the file libnvrtc.so or to a folder that has it",
            find::VARIABLE
        )
    }

    fn new(object: SharedObject, path: &Path) -> Result<Nvrtc> {
        // SAFETY: the functions have had these types since NVRTC 11.2, the first that has all of them.
        let functions = unsafe { Functions::resolve(object) }.map_err(|missing| {
            Error::failed_precondition(format!("{} lacks {missing}; it is older than 11.2", path.display()))
        })?;
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: the pointers are to locals of the right types.
        unsafe {
            check(&functions, "nvrtcVersion", (functions.version)(&mut major, &mut minor))?;
            check(&functions, "nvrtcGetNumSupportedArchs", (functions.arch_count)(&mut count))?;
        }
        let mut architectures: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: there is room for as many as it said.
        let status = unsafe { (functions.archs)(architectures.as_mut_ptr()) };
        check(&functions, "nvrtcGetSupportedArchs", status)?;
        let include = path.parent().map(|lib| lib.with_file_name("include")).filter(|folder| folder.is_dir());
        Ok(Nvrtc {
            functions,
            version: (major, minor),
            architectures: architectures.into_iter().map(|number| Architecture(number as u32)).collect(),
            include,
        })
    }

    /// Its version: `(13, 2)`.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// What to compile for, for a card of this generation.
    ///
    /// # Errors
    /// `FailedPrecondition` when the compiler no longer knows such cards.
    pub fn target_for(&self, card: Architecture) -> Result<Target> {
        if self.architectures.contains(&card) {
            return Ok(Target::Machine(card));
        }
        // The driver compiles PTX of an earlier generation for a card that is newer than the compiler.
        if let Some(&best) = self.architectures.iter().filter(|known| **known < card).max() {
            return Ok(Target::Portable(best));
        }
        let (major, minor) = self.version;
        bail!(
            FailedPrecondition,
            "NVRTC {major}.{minor} no longer compiles for cards of {card}; install an older one, such as \
             `pip install nvidia-cuda-nvrtc-cu12`, and set {} to it",
            find::VARIABLE
        )
    }

    /// The options that a source is compiled with, in the order in which they are given.
    pub(crate) fn options(&self, target: Target, flags: &[String]) -> Vec<String> {
        let include = self.include.iter().map(|folder| format!("--include-path={}", folder.display()));
        [target.option(), LANGUAGE.to_owned()]
            .into_iter()
            .chain(include)
            .chain(flags.iter().cloned())
            .collect()
    }

    /// The flags that make it optimise little, for who asks only whether a source compiles; none of a version that has no such.
    pub(crate) fn quick(&self) -> Vec<String> {
        if self.version >= (13, 0) { vec!["--Ofast-compile=max".to_owned()] } else { Vec::new() }
    }

    /// Compiles one kernel of a source: `doubled`, or of a template `doubled<float, int>`.
    ///
    /// # Errors
    /// `Internal` with the compiler's messages, which name the author's file and lines.
    pub fn compile(
        &self,
        source: &Source,
        kernel: &str,
        target: Target,
        flags: &[String],
    ) -> Result<Compiled> {
        let compile = || self.compile_here(source, kernel, target, flags);
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("NVRTC".to_owned()).stack_size(STACK);
            match thread.spawn_scoped(scope, compile) {
                Ok(thread) => thread.join().unwrap_or_else(|_| Err(Error::internal("NVRTC panicked"))),
                Err(error) => {
                    Err(Error::resource_exhausted(format!("there is no thread for NVRTC: {error}")))
                }
            }
        })
    }

    /// As [`compile`](Self::compile), on this thread.
    fn compile_here(
        &self,
        source: &Source,
        kernel: &str,
        target: Target,
        flags: &[String],
    ) -> Result<Compiled> {
        let program = RawProgram::new(&self.functions, source)?;
        let kernel = c_string(kernel)?;
        // SAFETY: the program is live and the name a C string.
        let status = unsafe { (self.functions.add_name)(program.raw, kernel.as_ptr()) };
        check(&self.functions, "nvrtcAddNameExpression", status)?;
        let options: Vec<CString> =
            self.options(target, flags).iter().map(|option| c_string(option)).collect::<Result<_>>()?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is live, and the options are as many C strings.
        let status =
            unsafe { (self.functions.compile)(program.raw, options.len() as c_int, options.as_ptr()) };
        if status != 0 {
            let (kernel, log) = (kernel.to_string_lossy(), program.log());
            let file = source.file();
            bail!(Internal, "kernel `{kernel}` of {file} does not compile ({}):\n{log}", target.option());
        }
        let image = match target {
            Target::Machine(_) => program.bytes("cubin", self.functions.cubin_size, self.functions.cubin)?,
            Target::Portable(_) => program.bytes("PTX", self.functions.ptx_size, self.functions.ptx)?,
        };
        Ok(Compiled { symbol: program.lowered_name(&kernel)?, image })
    }
}

/// A program of NVRTC's, until it is dropped.
struct RawProgram<'f> {
    functions: &'f Functions,
    raw: Program,
}

impl<'f> RawProgram<'f> {
    fn new(functions: &'f Functions, source: &Source) -> Result<RawProgram<'f>> {
        let (text, name) = (c_string(&source.program())?, c_string(&source.file())?);
        let headers = source.headers().iter().map(|(name, text)| Ok((c_string(name)?, c_string(text)?)));
        let headers = headers.collect::<Result<Vec<_>>>()?;
        let (names, texts): (Vec<_>, Vec<_>) =
            headers.iter().map(|(name, text)| (name.as_ptr(), text.as_ptr())).unzip();
        let mut raw = std::ptr::null_mut();
        // SAFETY: all are C strings, of which the compiler makes copies; there are as many texts of headers as names.
        let status = unsafe {
            (functions.create)(
                &mut raw,
                text.as_ptr(),
                name.as_ptr(),
                names.len() as c_int,
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        check(functions, "nvrtcCreateProgram", status)?;
        Ok(RawProgram { functions, raw })
    }

    /// What the compiler said.
    fn log(&self) -> String {
        match self.bytes("log", self.functions.log_size, self.functions.log) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).trim_end_matches(['\0', '\n']).to_owned(),
            Err(error) => error.message().to_owned(),
        }
    }

    fn bytes(
        &self,
        what: &str,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        get: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>> {
        let mut len = 0;
        // SAFETY: the program is live and the pointer to a local of the right type.
        check(self.functions, what, unsafe { size(self.raw, &mut len) })?;
        let mut bytes = vec![0u8; len];
        // SAFETY: there is room for as many bytes as it said.
        check(self.functions, what, unsafe { get(self.raw, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    fn lowered_name(&self, kernel: &CStr) -> Result<String> {
        let mut name = std::ptr::null();
        // SAFETY: the program has been compiled with this name, and the pointer is to a local of the right type.
        let status = unsafe { (self.functions.lowered_name)(self.raw, kernel.as_ptr(), &mut name) };
        check(self.functions, "nvrtcGetLoweredName", status)?;
        // SAFETY: it gave a C string that lives as long as the program.
        Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }
}

impl Drop for RawProgram<'_> {
    fn drop(&mut self) {
        // SAFETY: the program is live, and nobody else has it.
        unsafe { (self.functions.destroy)(&mut self.raw) };
    }
}

fn check(functions: &Functions, what: &str, status: c_int) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: it gives a C string that is there for good, whatever the number.
    let text = unsafe { CStr::from_ptr((functions.error_string)(status)) };
    bail!(Internal, "NVRTC: {what}: {}", text.to_string_lossy())
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::invalid_argument("a CUDA source, or an option for it, has a NUL"))
}
