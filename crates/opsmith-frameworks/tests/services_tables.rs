//! What a caller of the C ABI lends, `OpsmithServices`, has grown: tables of every size that callers have been built with, on the CPU
//! and for a card. The kernel "on the card" here computes in host memory; it is about what reaches it, and no proof of a card.

mod common;

use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::offset_of;

use opsmith_core::abi::*;
use opsmith_core::kernel::{KernelDef, OpKernel, OpKernelConstruction, OpKernelContext};
use opsmith_core::{Code, OpDef, Result, shape_fns};
use opsmith_cuda::{CudaCall, Index, Source};
use opsmith_frameworks::{Root, StaticLibrary, capi};

use self::common::taken;

/// The size of the first table: before `stream`.
const FIRST: usize = offset_of!(OpsmithServices, stream);
/// That of the second: before `launch`.
const SECOND: usize = offset_of!(OpsmithServices, launch);
const FULL: usize = size_of::<OpsmithServices>();
/// Every size that ends within or after a field which was added later, and that of a caller of the future.
const SIZES: [usize; 7] = [FIRST, FIRST + 4, FIRST + 8, SECOND, SECOND + 4, FULL, FULL + 8];
/// What a caller lends as its stream.
const STREAM: usize = 0x5EED;

/// What a kernel on a card has seen: its stream, and its temporary memory or why there is none.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    stream: usize,
    temp: std::result::Result<usize, String>,
}

thread_local! {
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

/// Twice the input.
struct Twice;

impl OpKernel for Twice {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Twice)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let x = context.slice::<f32>("x")?;
        let mut y = context.allocate_output("y", context.input("x")?.shape())?;
        y.as_slice_mut::<f32>()?.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
        Ok(())
    }
}

/// The same, and it notes what a launch would be given.
struct TwiceOnCard;

impl OpKernel for TwiceOnCard {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(TwiceOnCard)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let temp = context.device_temp(300).map(|data| data.as_ptr() as usize);
        let temp = temp.map_err(|error| error.message().to_owned());
        SEEN.set(Some(Seen { stream: context.stream() as usize, temp }));
        let x = context.input("x")?;
        let y = context.allocate_output("y", x.shape())?;
        assert_eq!(y.device(), x.device());
        let (from, to) = (x.data_ptr().cast::<f32>(), y.data_ptr().cast::<f32>());
        for i in 0..x.num_elements() {
            // SAFETY: the test's tensors lie in host memory, whatever they are said to be on, and are dense.
            unsafe { *to.add(i) = 2.0 * *from.add(i) };
        }
        Ok(())
    }
}

fn twice() -> OpDef {
    OpDef::new("Twice")
        .input("x: float")
        .output("y: float")
        .shape_fn(shape_fns::unchanged)
        .kernel(KernelDef::cpu::<Twice>())
        .kernel(KernelDef::cuda::<TwiceOnCard>())
}

/// With an input that the card's kernel has in host memory.
fn twice_of_sizes() -> OpDef {
    OpDef::new("TwiceOfSizes")
        .input("x: float")
        .input("sizes: float")
        .output("y: float")
        .shape_fn(shape_fns::unchanged)
        .kernel(KernelDef::cpu::<Twice>())
        .kernel(KernelDef::cuda::<TwiceOnCard>().host_memory("sizes"))
}

static SOURCE: Source =
    Source::new("kernels.cu", "// #include \"opsmith.cuh\"").beside("crates/a/src/lib.rs");

/// Launches a kernel of the name that the attribute says.
struct Launches(String);

impl OpKernel for Launches {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        construction.attr("kernel").map(Launches)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let call = CudaCall::new(context, &SOURCE);
        let x = call.input::<f32>("x")?;
        call.output::<f32>("y", x.shape())?;
        let kernel = call.kernel(self.0.clone()).grid([2, 3, 4]).block([32, 2, 1]).shared(48);
        // SAFETY: the tests take the launch, and no card does.
        unsafe { kernel.value(7u8).index(3, Index::Bits64).launch() }
    }
}

fn launched() -> OpDef {
    launching("Launched", "welcome")
}

fn unwelcome() -> OpDef {
    launching("Unwelcome", "unwelcome")
}

fn launching(name: &str, kernel: &str) -> OpDef {
    OpDef::new(name)
        .attr(&format!("kernel: string = '{kernel}'"))
        .input("x: float")
        .output("y: float")
        .shape_fn(shape_fns::unchanged)
        .kernel(KernelDef::cpu::<Twice>())
        .kernel(KernelDef::cuda::<Launches>())
}

static LIBRARY: StaticLibrary =
    StaticLibrary::new("services_tables", "1.0.0", &[twice, twice_of_sizes, launched, unwelcome]);
static TABLE: OpsmithLibrary = capi::table::<Tables>("services_tables", "1.0.0");

struct Tables;

// SAFETY: there is one.
unsafe impl Root for Tables {
    fn library() -> &'static StaticLibrary {
        &LIBRARY
    }
}

#[repr(C, align(256))]
struct Memory([f32; 128]);

/// What a caller's functions make: one of each in a call here.
#[derive(Default)]
struct Caller {
    output: Option<Box<Memory>>,
    temp: Option<Box<Memory>>,
    launched: Vec<Launched>,
}

/// A launch that a caller got: file and line, source, headers, kernel, geometry, arguments.
#[derive(Debug, PartialEq)]
struct Launched {
    place: (String, u32),
    source: String,
    headers: Vec<String>,
    kernel: String,
    geometry: ([u32; 3], [u32; 3], u32),
    arguments: Vec<Vec<u8>>,
}

/// Notes the launch; a kernel called `unwelcome` fails.
unsafe extern "C" fn launch(context: *mut c_void, launch: *const OpsmithLaunch) -> i32 {
    // SAFETY: the tables below have a `Caller` as their context, and the library's launch is whole.
    let (caller, launch) = unsafe { (&mut *context.cast::<Caller>(), &*launch) };
    assert_eq!(launch.size, size_of::<OpsmithLaunch>());
    // SAFETY: texts and lists are as long as they say.
    unsafe {
        let text = |text: OpsmithStr| String::from_utf8(text.as_bytes().to_vec()).unwrap();
        let headers = std::slice::from_raw_parts(launch.headers, launch.num_headers);
        let arguments = (0..launch.num_arguments).map(|at| {
            let (data, size) = (*launch.arguments.add(at), *launch.argument_sizes.add(at));
            std::slice::from_raw_parts(data.cast::<u8>(), size).to_vec()
        });
        caller.launched.push(Launched {
            place: (text(launch.file), launch.line),
            source: text(launch.source),
            headers: headers.iter().map(|header| text(header.name)).collect(),
            kernel: text(launch.kernel),
            geometry: (launch.grid, launch.block, launch.shared),
            arguments: arguments.collect(),
        });
        if text(launch.kernel) == "unwelcome" { 7 } else { 0 }
    }
}

unsafe extern "C" fn allocate_output(
    context: *mut c_void,
    _: usize,
    _: i32,
    _: i32,
    _: *const i64,
) -> *mut c_void {
    // SAFETY: the tables below have a `Caller` as their context.
    let caller = unsafe { &mut *context.cast::<Caller>() };
    caller.output.insert(Box::new(Memory([f32::NAN; 128]))).0.as_mut_ptr().cast()
}

unsafe extern "C" fn allocate_temp(context: *mut c_void, bytes: usize) -> *mut c_void {
    assert!(bytes <= size_of::<Memory>());
    // SAFETY: as above.
    let caller = unsafe { &mut *context.cast::<Caller>() };
    caller.temp.insert(Box::new(Memory([f32::NAN; 128]))).0.as_mut_ptr().cast()
}

/// The words of a table whose size says `size`. What is behind it in memory is no part of it: here an address that nothing may
/// be called at, and a stream that nobody lent.
fn table(caller: &mut Caller, size: usize) -> [usize; FULL / 8 + 1] {
    let services = OpsmithServices {
        size,
        context: std::ptr::from_mut(caller).cast(),
        allocate_output: Some(allocate_output),
        num_threads: None,
        parallel_for: None,
        keep_string: None,
        stream: STREAM as *mut c_void,
        allocate_temp: Some(allocate_temp),
        launch: Some(launch),
    };
    let mut words = [0xDEAD; FULL / 8 + 1];
    // SAFETY: the array is larger than the structure, which is made of words.
    unsafe { words.as_mut_ptr().cast::<OpsmithServices>().write(services) };
    words[size.div_ceil(8).min(FULL / 8)..].fill(0xDEAD);
    words
}

/// An input: three numbers, on a device of this kind and number.
fn input(data: &mut [f32; 3], (kind, index): (i32, i32)) -> OpsmithTensor {
    OpsmithTensor {
        size: size_of::<OpsmithTensor>(),
        data: data.as_mut_ptr().cast(),
        dtype: OPSMITH_FLOAT32,
        device_kind: kind,
        device_index: index,
        rank: 1,
        shape: SHAPE.as_ptr(),
        strides: std::ptr::null(),
    }
}

thread_local! {
    /// What the last call launched.
    static LAUNCHED: RefCell<Vec<Launched>> = const { RefCell::new(Vec::new()) };
}

static SHAPE: [i64; 1] = [3];

const CPU: (i32, i32) = (OPSMITH_DEVICE_CPU, 0);
const CARD: (i32, i32) = (OPSMITH_DEVICE_CUDA, 0);

type Failure = (i32, String);

/// Calls the op at this position with inputs on these devices and a table of this size: the output, or the error's code and message.
fn call(
    op: usize,
    devices: &[(i32, i32)],
    size: usize,
    planned: bool,
) -> std::result::Result<[f32; 3], Failure> {
    SEEN.set(None);
    let mut data = [[1.0, -2.0, 3.5]; 2];
    let tensors: Vec<_> = data.iter_mut().zip(devices).map(|(data, device)| input(data, *device)).collect();
    let pointers: Vec<_> = tensors.iter().map(std::ptr::from_ref).collect();
    let mut caller = Caller::default();
    let services = table(&mut caller, size);
    let mut call = OpsmithCall {
        size: size_of::<OpsmithCall>(),
        op,
        tensors: pointers.as_ptr(),
        num_tensors: pointers.len(),
        counts: std::ptr::null(),
        num_arguments: pointers.len(),
        attrs: std::ptr::null(),
        num_attrs: 0,
        wanted: u64::MAX,
        services: services.as_ptr().cast(),
        output_counts: std::ptr::null_mut(),
        num_outputs: 0,
        plan: std::ptr::null(),
    };
    let mut plan = std::ptr::null_mut();
    if planned {
        // SAFETY: all that the call points to is alive, and `plan` is a place to write to.
        taken(&TABLE, unsafe { (TABLE.plan)(&call, &mut plan) })?;
        call.plan = plan;
    }
    // SAFETY: as above, and the plan is one of the library's, freed once.
    let result = unsafe {
        let result = taken(&TABLE, (TABLE.call)(&call));
        (TABLE.plan_free)(plan);
        result
    };
    LAUNCHED.set(caller.launched);
    let output = caller.output.map_or([f32::NAN; 128], |memory| memory.0);
    result.map(|()| [output[0], output[1], output[2]])
}

#[test]
fn calls_on_the_cpu_are_the_same_with_tables_of_every_size() {
    for size in SIZES {
        for planned in [false, true] {
            assert_eq!(call(0, &[CPU], size, planned), Ok([2.0, -4.0, 7.0]), "{size} bytes");
            assert_eq!(call(1, &[CPU, CPU], size, planned), Ok([2.0, -4.0, 7.0]), "{size} bytes");
        }
    }
    let (code, message) = call(0, &[CPU], FIRST - 8, false).unwrap_err();
    assert_eq!(code, Code::InvalidArgument as i32);
    assert_eq!(message, "the call's services say they have 40 bytes; version 3 of the ABI has 48");
}

#[test]
fn a_kernel_on_a_card_has_the_stream_and_the_memory_that_are_lent() {
    for planned in [false, true] {
        for size in [SECOND, SECOND + 4, FULL, FULL + 8] {
            assert_eq!(call(0, &[CARD], size, planned), Ok([2.0, -4.0, 7.0]));
            let seen = SEEN.take().unwrap();
            assert_eq!(seen.stream, STREAM);
            assert!(seen.temp.is_ok_and(|temp| temp != 0 && temp % 256 == 0));
        }
        assert_eq!(call(0, &[CARD], FIRST + 8, planned), Ok([2.0, -4.0, 7.0]));
        let none = "the caller lends no `allocate_temp`, memory on the device".to_owned();
        assert_eq!(SEEN.take(), Some(Seen { stream: STREAM, temp: Err(none) }));
    }
}

#[test]
fn a_call_on_a_card_with_a_table_from_before_streams_is_an_error() {
    for size in [FIRST, FIRST + 4] {
        for planned in [false, true] {
            let (code, message) = call(0, &[CARD], size, planned).unwrap_err();
            assert_eq!(code, Code::FailedPrecondition as i32);
            assert_eq!(
                message,
                format!(
                    "Twice: the call is on CUDA:0, and its services, of {size} bytes, have no `stream`: they are of a version of the \
                     ABI before calls on a card; build the caller with a newer opsmith.h"
                )
            );
            assert_eq!(SEEN.take(), None, "no kernel has run");
        }
    }
}

#[test]
fn inputs_on_different_devices_are_refused_whatever_the_table() {
    for size in SIZES {
        let refused = |op, devices: &[(i32, i32)], text: &str| {
            let (code, message) = call(op, devices, size, false).unwrap_err();
            assert_eq!((code, message.as_str()), (Code::InvalidArgument as i32, text));
            assert_eq!(SEEN.take(), None, "no kernel has run");
        };
        refused(
            1,
            &[CARD, (OPSMITH_DEVICE_CUDA, 1)],
            "TwiceOfSizes: inputs are on CUDA:0 and CUDA:1; all must be on one device",
        );
        if size >= FIRST + 8 {
            let text = "TwiceOfSizes: input `x` is on CPU:0, but others are on CUDA:0; move it there";
            refused(1, &[CPU, CARD], text);
            let text = "TwiceOfSizes: input `sizes` is on CUDA:0; the CUDA kernel reads it in host memory";
            refused(1, &[CARD, CARD], text);
            assert_eq!(call(1, &[CARD, CPU], size, false), Ok([2.0, -4.0, 7.0]));
            assert_eq!(SEEN.take().map(|seen| seen.stream), Some(STREAM));
        }
    }
    let (code, message) = call(0, &[(7, 0)], FULL, false).unwrap_err();
    assert_eq!(
        (code, message.as_str()),
        (Code::InvalidArgument as i32, "Twice: a tensor is on a device of unknown kind 7")
    );
}

#[test]
fn a_caller_that_takes_launches_gets_each_with_all_that_it_is_made_of() {
    for (size, planned) in [(FULL, false), (FULL + 8, true)] {
        assert!(call(2, &[CARD], size, planned).is_ok());
        let launched = Launched {
            place: ("crates/a/src/kernels.cu".to_owned(), 1),
            source: "// #include \"opsmith.cuh\"".to_owned(),
            headers: vec!["opsmith.cuh".to_owned()],
            kernel: "welcome".to_owned(),
            geometry: ([2, 3, 4], [32, 2, 1], 48),
            arguments: vec![vec![7], 3i64.to_ne_bytes().to_vec()],
        };
        assert_eq!(LAUNCHED.take(), [launched]);
        assert_eq!(call(2, &[CPU], size, planned), Ok([2.0, -4.0, 7.0]));
        assert_eq!(LAUNCHED.take(), [], "on the CPU there is nothing to launch");
    }
    let (code, message) = call(3, &[CARD], FULL, false).unwrap_err();
    let text = "Unwelcome: kernel `unwelcome`: the caller, who takes launches, failed with 7";
    assert_eq!((code, message.as_str()), (Code::Internal as i32, text));
}
