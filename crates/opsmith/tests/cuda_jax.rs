//! Calls of JAX's handlers on a card, in frames as `xla/ffi/api/c_api.h` lays them out, with functions of XLA's that note what they
//! are asked: launches go to the test in place of a card.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

use opsmith::__private::frameworks::{StaticLibrary, jax};
use opsmith::cuda::{CudaCall, CudaElement, DeviceView, DeviceViewMut, Index, with_launches_to};
use opsmith::prelude::*;
use opsmith::{DeviceKind, OpDefinition};

/// `factor` times `x`, by way of temporary memory where it is not declared that there is none.
#[op(shape = "(1),(n)->(n)", cuda = "cuda/scaled.cu", capturable)]
fn plain<T: Float>(#[host] factor: ArrayView1<f64>, x: ArrayView1<T>, mut z: ArrayViewMut1<T>) {
    let factor = T::from(factor[0]).unwrap_or_else(T::nan);
    z.assign(&x.mapv(|x| factor * x));
}

fn plain_cuda<T: CudaElement + Float>(
    call: &CudaCall,
    factor: ArrayView1<f64>,
    x: DeviceView<T>,
    z: DeviceViewMut<T>,
) -> Result<()> {
    assert_eq!((call.device().kind, call.device().index), (DeviceKind::Cuda, 3));
    assert_eq!(call.stream() as usize, STREAM);
    let factor = T::from(factor[0]).unwrap_or_else(T::nan);
    let launch = call.kernel("plain").for_each(z.num_elements()).pointer(&x).value(factor).pointer(&z);
    // SAFETY: nothing is launched here.
    unsafe { launch.launch() }
}

/// The same in two steps.
#[op(shape = "(n)->(n)", cuda = "cuda/scaled.cu")]
fn in_steps<T: Float>(x: ArrayView1<T>, mut z: ArrayViewMut1<T>) {
    z.assign(&x);
}

fn in_steps_cuda<T: CudaElement>(call: &CudaCall, x: DeviceView<T>, z: DeviceViewMut<T>) -> Result<()> {
    let (temp, more) = (call.temp::<T>(z.num_elements())?, call.temp::<T>(0)?);
    let index = Index::of(&[&x, &z]);
    let launch = call.kernel("in_steps").pointer(&temp).pointer(&more).flat(&x, index);
    // SAFETY: nothing is launched here.
    unsafe { launch.launch() }
}

/// On the CPU alone.
#[op(shape = "(n)->(n)")]
fn on_cpu<T: Float>(x: ArrayView1<T>, mut z: ArrayViewMut1<T>) {
    z.assign(&x);
}

const PLAIN: usize = 0;
const IN_STEPS: usize = 1;
const ON_CPU: usize = 2;

static LIBRARY: StaticLibrary = StaticLibrary::new(
    "on_a_card",
    "1.0",
    &[<plain as OpDefinition>::def, <in_steps as OpDefinition>::def, <on_cpu as OpDefinition>::def],
);

const STREAM: usize = 0x1230;
const CONTEXT: usize = 0x4560;
/// An address of a card's, not aligned to more than XLA promises.
const MEMORY: usize = 0x7000_0010;

thread_local! {
    /// What XLA has been asked, in order.
    static ASKED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn asked(what: String) {
    ASKED.with_borrow_mut(|asked| asked.push(what));
}

/// What all of XLA's structures begin with.
#[repr(C)]
#[derive(Clone, Copy)]
struct Head {
    size: usize,
    extension: *mut c_void,
}

fn head<T>() -> Head {
    Head { size: size_of::<T>(), extension: null_mut() }
}

#[repr(C)]
struct ErrorArgs {
    head: Head,
    message: *const c_char,
    code: i32,
}

#[repr(C)]
struct ContextArgs {
    head: Head,
    context: usize,
    /// What the function gives; the size of memory where it is one of memory.
    out: usize,
    alignment_or_data: usize,
    data: usize,
}

unsafe extern "C" fn error_create(args: *mut ErrorArgs) -> *mut CString {
    // SAFETY: the handler gives its own.
    unsafe {
        let message = CStr::from_ptr((*args).message).to_string_lossy();
        Box::into_raw(Box::new(CString::new(format!("{}: {message}", (*args).code)).unwrap()))
    }
}

unsafe extern "C" fn error_destroy(args: *mut ContextArgs) {
    // SAFETY: what `error_create` made is given back once.
    drop(unsafe { Box::from_raw((*args).context as *mut CString) });
}

unsafe extern "C" fn error_message(args: *mut ContextArgs) {
    // SAFETY: an error is one that `error_create` made.
    unsafe { (*args).out = (*((*args).context as *const CString)).as_ptr() as usize };
}

unsafe extern "C" fn stream_get(args: *mut ContextArgs) -> *mut CString {
    // SAFETY: the handler gives its own.
    unsafe {
        assert_eq!(((*args).head.size, (*args).context), (32, CONTEXT));
        (*args).out = STREAM;
    }
    null_mut()
}

unsafe extern "C" fn ordinal_get(args: *mut ContextArgs) -> *mut CString {
    // SAFETY: the handler gives its own; the ordinal is an `int32_t`.
    unsafe {
        assert_eq!(((*args).head.size, (*args).context), (28, CONTEXT));
        (&raw mut (*args).out).cast::<i32>().write(3);
    }
    null_mut()
}

unsafe extern "C" fn allocate(args: *mut ContextArgs) -> *mut CString {
    // SAFETY: the handler gives its own.
    unsafe {
        assert_eq!(((*args).head.size, (*args).context, (*args).alignment_or_data), (48, CONTEXT, 16));
        asked(format!("allocate {}", (*args).out));
        (*args).data = MEMORY;
    }
    null_mut()
}

unsafe extern "C" fn full(_: *mut ContextArgs) -> *mut CString {
    Box::into_raw(Box::new(c"out of memory while trying".to_owned()))
}

unsafe extern "C" fn free(args: *mut ContextArgs) -> *mut CString {
    // SAFETY: the handler gives its own.
    unsafe {
        assert_eq!(((*args).head.size, (*args).alignment_or_data), (40, MEMORY));
        asked(format!("free {}", (*args).out));
    }
    null_mut()
}

type Function = unsafe extern "C" fn(*mut ContextArgs) -> *mut CString;

#[repr(C)]
struct Api {
    head: Head,
    version: [usize; 3],
    internal: usize,
    error_create: unsafe extern "C" fn(*mut ErrorArgs) -> *mut CString,
    error_get_message: unsafe extern "C" fn(*mut ContextArgs),
    error_destroy: unsafe extern "C" fn(*mut ContextArgs),
    handler_register: usize,
    stream_get: Function,
    type_register_to_state_get: [usize; 4],
    device_memory_allocate: Function,
    device_memory_free: Function,
    thread_pool_schedule: usize,
    thread_pool_num_threads: usize,
    future_create_to_run_id_get: [usize; 4],
    device_ordinal_get: Function,
}

fn api() -> Api {
    // The functions that a call on a card needs; the handler calls no other.
    Api {
        head: head::<Api>(),
        version: [24, 0, 3 << 32],
        internal: 0,
        error_create,
        error_get_message: error_message,
        error_destroy,
        handler_register: 0,
        stream_get,
        type_register_to_state_get: [0; 4],
        device_memory_allocate: allocate,
        device_memory_free: free,
        thread_pool_schedule: 0,
        thread_pool_num_threads: 0,
        future_create_to_run_id_get: [0; 4],
        device_ordinal_get: ordinal_get,
    }
}

#[repr(C)]
struct Buffer {
    head: Head,
    dtype: i32,
    data: usize,
    rank: i64,
    dims: *const i64,
}

#[repr(C)]
struct List {
    head: Head,
    size: i64,
    kinds: *const i32,
    first: *const c_void,
    second: *const c_void,
}

#[repr(C)]
struct Buffers {
    head: Head,
    size: i64,
    kinds: *const i32,
    buffers: *const *const Buffer,
}

#[repr(C)]
struct Frame {
    head: Head,
    api: *const Api,
    context: usize,
    stage: i32,
    inputs: Buffers,
    outputs: Buffers,
    attrs: List,
}

#[repr(C)]
struct Span {
    data: *const c_char,
    len: usize,
}

const EXECUTE: i32 = 3;
const INSTANTIATE: i32 = 0;

/// Calls a handler with float32 inputs and one output, all of six elements, at these addresses; `factor` is an attribute.
fn call(api: &Api, op: usize, stage: i32, inputs: &[usize], factor: Option<&str>) -> Result<(), String> {
    let dims = [6i64];
    let buffer =
        |&data: &usize| Buffer { head: head::<Buffer>(), dtype: 11, data, rank: 1, dims: dims.as_ptr() };
    let (inputs, output) = (inputs.iter().map(buffer).collect::<Vec<_>>(), buffer(&0x2000));
    let (inputs, outputs): (Vec<*const Buffer>, [*const Buffer; 1]) =
        (inputs.iter().map(|buffer| &raw const *buffer).collect(), [&raw const output]);
    let list = |buffers: &[*const Buffer]| Buffers {
        head: head::<Buffers>(),
        size: buffers.len() as i64,
        kinds: null(),
        buffers: buffers.as_ptr(),
    };
    let span = |text: &str| Span { data: text.as_ptr().cast(), len: text.len() };
    let (name, value) = (span("factor"), span(factor.unwrap_or_default()));
    let (names, values, kinds) = ([&raw const name], [&raw const value], [4i32]);
    let attrs = List {
        head: head::<List>(),
        size: factor.is_some().into(),
        kinds: kinds.as_ptr(),
        first: names.as_ptr().cast(),
        second: values.as_ptr().cast(),
    };
    let mut frame = Frame {
        head: head::<Frame>(),
        api,
        context: CONTEXT,
        stage,
        inputs: list(&inputs),
        outputs: list(&outputs),
        attrs,
    };
    // SAFETY: the frame is as XLA builds one.
    let error = unsafe { jax::handle(&LIBRARY, op, DeviceKind::Cuda, (&raw mut frame).cast()) };
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: an error is one that `error_create` made.
    Err(unsafe { Box::from_raw(error.cast::<CString>()) }.to_string_lossy().into_owned())
}

const FACTOR: &str = "{ dtype: float64 tensor_shape { dim { size: 1 } } double_val: [2.5] }";

#[test]
fn a_call_goes_to_xlas_stream_and_card() {
    let mut seen = Vec::new();
    let mut sink = |launch: &mut opsmith::cuda::Launch<'_>| {
        let arguments = (0..3).map(|argument| launch.arguments.bytes(argument).to_vec());
        seen.push((launch.kernel.clone(), arguments.collect::<Vec<_>>()));
        Ok(())
    };
    let done = with_launches_to(&mut sink, || call(&api(), PLAIN, EXECUTE, &[0x1000], Some(FACTOR)));
    assert_eq!(done, Ok(()));
    let expected = vec![
        0x1000u64.to_ne_bytes().to_vec(),
        2.5f32.to_ne_bytes().to_vec(),
        0x2000u64.to_ne_bytes().to_vec(),
    ];
    assert_eq!(seen, [("plain".to_owned(), expected)]);
    assert_eq!(ASKED.take(), Vec::<String>::new());
}

#[test]
fn temporary_memory_is_xlas_and_goes_back() {
    let mut seen = Vec::new();
    let mut sink = |launch: &mut opsmith::cuda::Launch<'_>| {
        seen.push(launch.arguments.bytes(0).to_vec());
        Ok(())
    };
    let done = with_launches_to(&mut sink, || call(&api(), IN_STEPS, EXECUTE, &[0x1000], None));
    assert_eq!(done, Ok(()));
    // At the next address that is a multiple of 256.
    assert_eq!(seen, [0x7000_0100u64.to_ne_bytes()]);
    assert_eq!(ASKED.take(), ["allocate 280", "allocate 257", "free 280", "free 257"]);
    let api = Api { device_memory_allocate: full, ..api() };
    assert_eq!(
        call(&api, IN_STEPS, EXECUTE, &[0x1000], None),
        Err("8: InSteps: cannot allocate a temporary of 280 bytes: out of memory while trying".to_owned())
    );
}

#[test]
fn what_cannot_run_there_says_why() {
    let wrong = |op, stage, inputs: &[usize], factor| call(&api(), op, stage, inputs, factor).unwrap_err();
    assert_eq!(wrong(ON_CPU, INSTANTIATE, &[], None), "12: OnCpu: has no CUDA kernel");
    assert_eq!(wrong(ON_CPU, EXECUTE, &[0x1000], None), "12: OnCpu: has no CUDA kernel");
    assert_eq!(call(&api(), PLAIN, INSTANTIATE, &[], None), Ok(()));
    let error = wrong(PLAIN, EXECUTE, &[0x1000, 0x1800], None);
    assert!(error.starts_with("3: Plain: input `factor` is read in host memory"), "{error}");
    let error = wrong(PLAIN, EXECUTE, &[0x1000], Some("{ dtype: float }"));
    assert!(error.starts_with("3: Plain: input `factor`"), "{error}");
    let error = wrong(PLAIN, EXECUTE, &[0x1000, 0x1000], Some(FACTOR));
    assert!(error.contains("1 of them absent or given as text, got 2 tensors"), "{error}");
    // As releases were that do not tell the card.
    let old =
        Api { head: Head { size: std::mem::offset_of!(Api, device_ordinal_get), ..head::<Api>() }, ..api() };
    let error = call(&old, PLAIN, EXECUTE, &[0x1000], Some(FACTOR)).unwrap_err();
    assert_eq!(error, "9: Plain: this release of JAX does not tell which card a call runs on; update JAX");
}

#[repr(C)]
struct Metadata {
    size: usize,
    version: [usize; 3],
    traits: u32,
}

#[repr(C)]
struct MetadataExtension {
    size: usize,
    kind: i32,
    next: *mut c_void,
    metadata: *mut Metadata,
}

#[test]
fn xla_may_record_what_says_so() {
    let traits = |op, kind| {
        let mut metadata = Metadata { size: size_of::<Metadata>(), version: [0; 3], traits: 99 };
        let mut extension = MetadataExtension {
            size: size_of::<MetadataExtension>(),
            kind: 1,
            next: null_mut(),
            metadata: &mut metadata,
        };
        let none = || Buffers { head: head::<Buffers>(), size: 0, kinds: null(), buffers: null() };
        let api = api();
        let mut frame = Frame {
            head: Head { size: size_of::<Frame>(), extension: (&raw mut extension).cast() },
            api: &api,
            context: 0,
            stage: EXECUTE,
            inputs: none(),
            outputs: none(),
            attrs: List { head: head::<List>(), size: 0, kinds: null(), first: null(), second: null() },
        };
        // SAFETY: the frame is as XLA builds one that asks for metadata.
        assert!(unsafe { jax::handle(&LIBRARY, op, kind, (&raw mut frame).cast()) }.is_null());
        assert_eq!(metadata.version, api.version);
        metadata.traits
    };
    assert_eq!(traits(PLAIN, DeviceKind::Cuda), 1);
    assert_eq!(traits(PLAIN, DeviceKind::Cpu), 0);
    assert_eq!(traits(IN_STEPS, DeviceKind::Cuda), 0, "it takes temporary memory");
    assert_eq!(traits(ON_CPU, DeviceKind::Cuda), 0);
}
