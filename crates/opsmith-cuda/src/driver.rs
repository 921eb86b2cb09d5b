//! The driver, opened at run time: no machine needs it to load a library.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::NonNull;

use opsmith_core::fork::{Mutex, OnceLock, Turn};
use opsmith_core::{Code, Error, Result, bail};

use crate::shared_object::{SharedObject, function_table};
use crate::source::{Architecture, Compiled};

type Context = *mut c_void;
type Module = *mut c_void;
type RawFunction = *mut c_void;

function_table! {
    /// The functions of the driver; each gives 0 when it succeeds.
    Functions {
        init = c"cuInit": fn(c_uint) -> c_int;
        version = c"cuDriverGetVersion": fn(*mut c_int) -> c_int;
        error_name = c"cuGetErrorName": fn(c_int, *mut *const c_char) -> c_int;
        error_string = c"cuGetErrorString": fn(c_int, *mut *const c_char) -> c_int;
        device_count = c"cuDeviceGetCount": fn(*mut c_int) -> c_int;
        device = c"cuDeviceGet": fn(*mut c_int, c_int) -> c_int;
        device_attribute = c"cuDeviceGetAttribute": fn(*mut c_int, c_int, c_int) -> c_int;
        retain_context = c"cuDevicePrimaryCtxRetain": fn(*mut Context, c_int) -> c_int;
        current_context = c"cuCtxGetCurrent": fn(*mut Context) -> c_int;
        push_context = c"cuCtxPushCurrent_v2": fn(Context) -> c_int;
        pop_context = c"cuCtxPopCurrent_v2": fn(*mut Context) -> c_int;
        exchange_capture_mode = c"cuThreadExchangeStreamCaptureMode": fn(*mut c_int) -> c_int;
        load_module = c"cuModuleLoadData": fn(*mut Module, *const c_void) -> c_int;
        module_function = c"cuModuleGetFunction": fn(*mut RawFunction, Module, *const c_char) -> c_int;
        set_function_attribute = c"cuFuncSetAttribute": fn(RawFunction, c_int, c_int) -> c_int;
        allocate = c"cuMemAlloc_v2": fn(*mut u64, usize) -> c_int;
        free = c"cuMemFree_v2": fn(u64) -> c_int;
        copy_in = c"cuMemcpyHtoDAsync_v2": fn(u64, *const c_void, usize, *mut c_void) -> c_int;
        copy_out = c"cuMemcpyDtoHAsync_v2": fn(*mut c_void, u64, usize, *mut c_void) -> c_int;
        new_stream = c"cuStreamCreate": fn(*mut *mut c_void, c_uint) -> c_int;
        wait = c"cuStreamSynchronize": fn(*mut c_void) -> c_int;
        launch = c"cuLaunchKernel": fn(
            RawFunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void,
            *mut *mut c_void, *mut *mut c_void
        ) -> c_int;
    }
}

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `…_MINOR`.
const CAPABILITY: [c_int; 2] = [75, 76];
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const DYNAMIC_SHARED: c_int = 8;
/// `CU_STREAM_NON_BLOCKING`: it does not wait for the default stream.
const NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;

/// The driver, with the cards that it has been asked for.
pub struct Driver {
    functions: Functions,
    version: (i32, i32),
    cards: Mutex<Vec<Card>>,
    /// How much dynamic shared memory each kernel may have, by its address.
    shared: Mutex<HashMap<usize, u32>>,
    /// Of who adds to these.
    turn: Turn,
}

/// A card whose primary context is ours to use: the one that frameworks use too.
#[derive(Clone, Copy)]
pub(crate) struct Card {
    pub(crate) index: i32,
    pub(crate) architecture: Architecture,
    context: Context,
}

// SAFETY: contexts belong to the process and may be used by any thread.
unsafe impl Send for Card {}
// SAFETY: as above.
unsafe impl Sync for Card {}

/// A kernel on a card.
#[derive(Clone, Copy)]
pub(crate) struct Function(RawFunction);

// SAFETY: functions of modules that are never unloaded may be launched by any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// A stream of a card.
pub(crate) struct Stream(pub(crate) *mut c_void);

// SAFETY: work may be put on a stream by any thread, and it is never destroyed.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

/// How a kernel is launched.
pub(crate) struct Geometry {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
}

impl Driver {
    /// The driver of this process, looked for once.
    ///
    /// # Errors
    /// `FailedPrecondition` that says what is missing.
    pub fn get() -> Result<&'static Driver> {
        static FOUND: OnceLock<Result<Driver>> = OnceLock::new();
        FOUND.get_or_init(Driver::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Driver> {
        let object = SharedObject::open(Path::new("libcuda.so.1")).map_err(|reason| {
            Error::failed_precondition(format!(
                "there is no NVIDIA driver on this machine ({reason}): install it, or give tensors in host memory"
            ))
        })?;
        // SAFETY: these are functions of the driver's stable interface, since CUDA 10.1.
        let functions = unsafe { Functions::resolve(object) }.map_err(|missing| {
            Error::failed_precondition(format!("the NVIDIA driver is too old: it lacks {missing}; update it"))
        })?;
        let driver = |version| Driver {
            functions,
            version,
            cards: Mutex::default(),
            shared: Mutex::default(),
            turn: Turn::new(),
        };
        let mut number = 0;
        // SAFETY: the pointer is to a local of the right type.
        driver((0, 0)).check("cuDriverGetVersion", unsafe { (functions.version)(&mut number) })?;
        let driver = driver((number / 1000, number % 1000 / 10));
        // SAFETY: it may be called any number of times.
        driver.check("cuInit", unsafe { (functions.init)(0) })?;
        Ok(driver)
    }

    /// The newest CUDA that it serves: `(13, 0)`.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// How many cards there are.
    ///
    /// # Errors
    /// `Internal` when the driver cannot say it.
    pub fn device_count(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: the pointer is to a local of the right type.
        self.check("cuDeviceGetCount", unsafe { (self.functions.device_count)(&mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The generation of a card.
    ///
    /// # Errors
    /// `NotFound` when there is no card of this number.
    pub fn architecture(&self, device: i32) -> Result<Architecture> {
        self.card(device).map(|card| card.architecture)
    }

    /// A card by its number.
    pub(crate) fn card(&self, index: i32) -> Result<Card> {
        let known = |card: &&Card| card.index == index;
        if let Some(card) = self.cards.lock().iter().find(known) {
            return Ok(*card);
        }
        let _turn = self.turn.take();
        if let Some(card) = self.cards.lock().iter().find(known) {
            return Ok(*card);
        }
        let count = self.device_count()?;
        if !usize::try_from(index).is_ok_and(|index| index < count) {
            bail!(NotFound, "there is no card {index}: the driver has {count}");
        }
        let (mut device, mut context, mut capability) = (0, std::ptr::null_mut(), [0; 2]);
        // SAFETY: the pointers are to locals of the right types. The context is never released.
        unsafe {
            self.check("cuDeviceGet", (self.functions.device)(&mut device, index))?;
            for (value, attribute) in capability.iter_mut().zip(CAPABILITY) {
                let status = (self.functions.device_attribute)(value, attribute, device);
                self.check("cuDeviceGetAttribute", status)?;
            }
            self.check("cuDevicePrimaryCtxRetain", (self.functions.retain_context)(&mut context, device))?;
        }
        let architecture = Architecture((capability[0] * 10 + capability[1]) as u32);
        let card = Card { index, architecture, context };
        self.cards.lock().push(card);
        Ok(card)
    }

    /// Does something in the context of a card, and puts the thread's own back.
    fn on<R>(&self, card: &Card, action: impl FnOnce() -> Result<R>) -> Result<R> {
        let mut current = std::ptr::null_mut();
        // SAFETY: the pointer is to a local of the right type.
        let known = unsafe { (self.functions.current_context)(&mut current) } == 0;
        if known && current == card.context {
            return action();
        }
        // SAFETY: the context is retained for good.
        self.check("cuCtxPushCurrent", unsafe { (self.functions.push_context)(card.context) })?;
        let result = action();
        // SAFETY: the context that was pushed above is popped.
        unsafe { (self.functions.pop_context)(&mut current) };
        result
    }

    /// Loads a kernel onto a card, for good.
    pub(crate) fn load(&self, card: &Card, compiled: &Compiled) -> Result<Function> {
        let name = CString::new(compiled.symbol.as_str())
            .map_err(|_| Error::internal("the name of a compiled kernel has a NUL"))?;
        self.on(card, || {
            let (mut module, mut function, mut mode) = (std::ptr::null_mut(), std::ptr::null_mut(), RELAXED);
            // SAFETY: the image is one that NVRTC made, PTX ended by a NUL, and the pointers are to locals of the right
            // types. While another stream of the thread is captured, loading is allowed in the relaxed mode only.
            unsafe {
                (self.functions.exchange_capture_mode)(&mut mode);
                let status = (self.functions.load_module)(&mut module, compiled.image.as_ptr().cast());
                (self.functions.exchange_capture_mode)(&mut mode);
                self.check("cuModuleLoadData", status)?;
                let status = (self.functions.module_function)(&mut function, module, name.as_ptr());
                self.check("cuModuleGetFunction", status)?;
            }
            Ok(Function(function))
        })
    }

    /// Puts a kernel on a stream, and waits for nothing.
    ///
    /// # Safety
    /// `arguments` must point to values as the kernel's parameters take them, whose memory is valid on the card for as
    /// long as the work on the stream takes; `stream` must be one of the card's.
    pub(crate) unsafe fn launch(
        &self,
        card: &Card,
        function: Function,
        geometry: &Geometry,
        stream: *mut c_void,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        let Geometry { grid, block, shared } = *geometry;
        self.on(card, || {
            self.allow_shared(function, shared)?;
            // SAFETY: promised by the caller.
            let status = unsafe {
                (self.functions.launch)(
                    function.0,
                    grid[0],
                    grid[1],
                    grid[2],
                    block[0],
                    block[1],
                    block[2],
                    shared,
                    stream,
                    arguments.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            };
            self.check("cuLaunchKernel", status)
        })
    }

    /// A stream, for good, that waits for no other.
    pub(crate) fn new_stream(&self, card: &Card) -> Result<Stream> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: the pointer is to a local of the right type.
        let mut create = || unsafe { (self.functions.new_stream)(&mut stream, NON_BLOCKING) };
        self.on(card, || self.check("cuStreamCreate", create()))?;
        Ok(Stream(stream))
    }

    /// Memory of a card.
    pub(crate) fn allocate(&self, card: &Card, bytes: usize) -> Result<NonNull<u8>> {
        let mut address = 0;
        // SAFETY: the pointer is to a local of the right type.
        let mut allocate = || unsafe { (self.functions.allocate)(&mut address, bytes) };
        self.on(card, || self.check("cuMemAlloc", allocate()))?;
        NonNull::new(address as *mut u8).ok_or_else(|| Error::internal("cuMemAlloc gave the address 0"))
    }

    /// Gives memory of a card back. That fails only where the card does not work any more, which the next call says.
    ///
    /// # Safety
    /// It came from [`allocate`](Self::allocate) for this card, and nobody uses it any more.
    pub(crate) unsafe fn free(&self, card: &Card, data: NonNull<u8>) {
        // SAFETY: promised by the caller.
        let free = || unsafe { (self.functions.free)(data.as_ptr() as u64) };
        let _ = self.on(card, || self.check("cuMemFree", free()));
    }

    /// Puts a copy to a card on its stream.
    ///
    /// # Safety
    /// Both must be memory of so many bytes, `to` of the card, whose stream it is; `from` must stay as it is until the stream
    /// was waited for.
    pub(crate) unsafe fn copy_in(
        &self,
        card: &Card,
        stream: &Stream,
        to: NonNull<u8>,
        from: *const u8,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: promised by the caller.
        let status = || unsafe { (self.functions.copy_in)(to.as_ptr() as u64, from.cast(), bytes, stream.0) };
        self.on(card, || self.check("cuMemcpyHtoDAsync", status()))
    }

    /// Puts a copy from a card on its stream.
    ///
    /// # Safety
    /// Both must be memory of so many bytes, `from` of the card, whose stream it is; nobody may use `to` until the stream was
    /// waited for.
    pub(crate) unsafe fn copy_out(
        &self,
        card: &Card,
        stream: &Stream,
        to: *mut u8,
        from: NonNull<u8>,
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: as above.
        let status =
            || unsafe { (self.functions.copy_out)(to.cast(), from.as_ptr() as u64, bytes, stream.0) };
        self.on(card, || self.check("cuMemcpyDtoHAsync", status()))
    }

    /// Waits for what is on a stream of a card.
    pub(crate) fn wait(&self, card: &Card, stream: &Stream) -> Result<()> {
        // SAFETY: streams are never destroyed.
        let status = || unsafe { (self.functions.wait)(stream.0) };
        self.on(card, || self.check("cuStreamSynchronize", status()))
    }

    /// Lets a kernel have so much dynamic shared memory. What it may have is raised only: another thread may be about to
    /// launch it with more. It is said whatever the size, since what is allowed unsaid counts static memory too.
    fn allow_shared(&self, function: Function, shared: u32) -> Result<()> {
        if shared == 0 {
            return Ok(());
        }
        let key = function.0 as usize;
        let is_allowed = || self.shared.lock().get(&key).is_some_and(|&most| shared <= most);
        if is_allowed() {
            return Ok(());
        }
        let _turn = self.turn.take();
        if is_allowed() {
            return Ok(());
        }
        // SAFETY: the function is loaded.
        let status =
            unsafe { (self.functions.set_function_attribute)(function.0, DYNAMIC_SHARED, shared as c_int) };
        self.check("cuFuncSetAttribute (shared memory)", status)?;
        self.shared.lock().insert(key, shared);
        Ok(())
    }

    /// An error that says what to do.
    fn check(&self, what: &str, status: c_int) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let text = |get: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut text = std::ptr::null();
            // SAFETY: the pointer is to a local of the right type; what it gives is there for good.
            unsafe {
                match get(status, &mut text) {
                    0 if !text.is_null() => CStr::from_ptr(text).to_string_lossy().into_owned(),
                    _ => format!("error {status}"),
                }
            }
        };
        let (name, reason) = (text(self.functions.error_name), text(self.functions.error_string));
        let (code, advice) = advice(status, self.version);
        Err(Error::new(code, format!("{what}: {name}, {reason}{advice}")))
    }
}

/// What kind of error a number of the driver's is, and what to do about it.
fn advice(status: c_int, (major, minor): (i32, i32)) -> (Code, String) {
    let text = |text: &str| format!("; {text}");
    match status {
        2 => (Code::ResourceExhausted, text("the card's memory is full: use smaller tensors or free some")),
        3 => (
            Code::FailedPrecondition,
            text(
                "in a process that was forked from one that had used CUDA, the driver does not work: start workers by `spawn` \
                 (`multiprocessing.get_context(\"spawn\")`, a data loader's `multiprocessing_context=\"spawn\"`), or use the card in \
                 the parent only",
            ),
        ),
        34 | 803 | 804 => (
            Code::FailedPrecondition,
            text("the NVIDIA driver does not work here: look what `nvidia-smi` says, and update the driver"),
        ),
        100 => (
            Code::FailedPrecondition,
            text("no card can be seen: look at `nvidia-smi` and CUDA_VISIBLE_DEVICES"),
        ),
        200 | 209 | 218 | 222 | 223 => (
            Code::FailedPrecondition,
            format!(
                "; the driver serves CUDA up to {major}.{minor}, and the kernel was compiled by a newer one: update the \
                 driver, or install an NVRTC of CUDA {major}"
            ),
        ),
        1 | 701 => (
            Code::InvalidArgument,
            text("the launch asks for more threads, registers or shared memory than the card gives a block"),
        ),
        700 | 716 | 717 | 718 | 719 => (
            Code::Internal,
            text(
                "an earlier kernel wrote or read where it may not: run the program under `compute-sanitizer`",
            ),
        ),
        900..=909 => (
            Code::FailedPrecondition,
            text("a CUDA graph is being captured: call the op once before, so that its kernel is loaded"),
        ),
        _ => (Code::Internal, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_a_code_and_says_what_to_do() {
        assert_eq!(advice(2, (12, 4)).0, Code::ResourceExhausted);
        let (code, text) = advice(222, (12, 4));
        assert_eq!(code, Code::FailedPrecondition);
        assert!(text.contains("serves CUDA up to 12.4") && text.contains("update the driver"), "{text}");
        let (code, text) = advice(3, (12, 4));
        assert_eq!(code, Code::FailedPrecondition);
        assert!(text.contains("forked") && text.contains("`spawn`"), "{text}");
        assert_eq!(advice(12345, (12, 4)), (Code::Internal, String::new()));
    }

    #[test]
    fn a_function_that_is_missing_is_named_as_it_is_in_the_driver() {
        let object = SharedObject::open(Path::new("libc.so.6")).unwrap();
        // SAFETY: the C library has none of these functions, and none is called.
        assert_eq!(unsafe { Functions::resolve(object) }.err(), Some("cuInit"));
    }

    #[test]
    fn without_a_driver_the_error_says_so() {
        match Driver::get() {
            Ok(driver) => assert!(driver.version() >= (10, 1)),
            Err(error) => {
                assert_eq!(error.code(), Code::FailedPrecondition);
                assert!(error.message().contains("NVIDIA driver"), "{error}");
            }
        }
    }
}
