//! One call across the C ABI: tensors in, memory for outputs lent on the device that they are on, errors back.

use std::ffi::{CStr, c_char, c_void};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use opsmith_core::abi::*;
use opsmith_core::{Code, DType, Error, Result};
use opsmith_cuda::Launch;
use smallvec::SmallVec;

use crate::attrs::{Named, to_abi_tensor, with_abi_attrs};
use crate::launch::with_launch;
use crate::tensor::Tensor;

pub use opsmith_core::kernel::CallInputs;

// Shapes and strides cross the ABI as they lie, `usize` and `isize` read as `i64`.
const _: () = assert!(size_of::<usize>() == size_of::<i64>());

/// One input of a call.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// One tensor.
    Tensor(&'a Tensor),
    /// A list of tensors.
    List(&'a [Tensor]),
    /// An optional input that is not given.
    Absent,
}

impl<'a> Arg<'a> {
    /// Its tensors.
    pub(crate) fn tensors(&self) -> &'a [Tensor] {
        match *self {
            Arg::Tensor(tensor) => std::slice::from_ref(tensor),
            Arg::List(tensors) => tensors,
            Arg::Absent => &[],
        }
    }
}

impl<'a> From<&'a Tensor> for Arg<'a> {
    fn from(tensor: &'a Tensor) -> Arg<'a> {
        Arg::Tensor(tensor)
    }
}

impl<'a> From<&'a [Tensor]> for Arg<'a> {
    fn from(tensors: &'a [Tensor]) -> Arg<'a> {
        Arg::List(tensors)
    }
}

/// Gives a call the memory for its outputs: NumPy's, say.
pub trait OutputMemory {
    /// Makes the output at flat position `index`, dense and row-major, and returns its memory: aligned to 64 bytes, and
    /// for `string` filled with zero bytes. Made at most once per call, on the calling thread.
    ///
    /// # Errors
    /// `ResourceExhausted` when the memory cannot be had, `Unimplemented` for a dtype that the caller lacks.
    fn allocate(&mut self, index: usize, dtype: DType, shape: &[usize]) -> Result<*mut u8>;

    /// Copies `bytes`, the text of an element of a `string` output, to where they stay until the outputs are read.
    ///
    /// # Errors
    /// `Unimplemented` where there are no string tensors.
    fn keep_string(&mut self, bytes: &[u8]) -> Result<*const u8>;

    /// The stream that the call's work is put on, where it is on a card; none on the CPU.
    fn stream(&self) -> Option<*mut c_void> {
        None
    }

    /// Memory of the device for the library's own use, aligned to 256 bytes, until the work that the call puts on the stream is
    /// done. Asked for only where there is a stream.
    ///
    /// # Errors
    /// `ResourceExhausted` when the memory cannot be had.
    fn allocate_temp(&mut self, _bytes: usize) -> Result<*mut u8> {
        Err(Error::unimplemented("the caller provides no temporary memory on a device"))
    }

    /// Whether [`launch`](Self::launch) gets the CUDA kernels of the call, and no device.
    fn takes_launches(&self) -> bool {
        false
    }

    /// Gets a CUDA kernel that the call would put on the stream.
    ///
    /// # Errors
    /// Whatever is to fail the call.
    fn launch(&mut self, launch: &mut Launch<'_>) -> Result<()> {
        Err(Error::unimplemented(format!("kernel `{}`: the caller takes no launches", launch.kernel)))
    }
}

/// What the callbacks of a call work on.
struct Lent<'a, M> {
    memory: &'a mut M,
    threads: usize,
    /// The first failure of a callback, which says more than the library can about a null pointer.
    failure: Option<Error>,
}

/// What is called, but for the tensors.
#[derive(Clone, Copy)]
pub(crate) struct Called<'a> {
    /// Of the op's library, and the op's position there and name.
    pub(crate) table: &'static OpsmithLibrary,
    pub(crate) index: usize,
    pub(crate) name: &'a str,
    /// The attributes that do not have their default value.
    pub(crate) attrs: &'a [Named<'a>],
    /// The outputs of the definition that are wanted, as bits.
    pub(crate) wanted: u64,
    /// The call worked out before, with these attributes: they are not looked at then.
    pub(crate) prepared: Option<&'a Prepared>,
    /// On how many threads it runs at most; on those of the pool where that is not said.
    pub(crate) threads: Option<NonZeroUsize>,
}

/// A call that its library worked out once, for tensors of the same dtypes.
pub(crate) struct Prepared {
    table: &'static OpsmithLibrary,
    plan: *mut OpsmithPlan,
}

// SAFETY: the ABI lets plans be used by any number of threads at a time, and freed by any.
unsafe impl Send for Prepared {}
// SAFETY: as above.
unsafe impl Sync for Prepared {}

impl Drop for Prepared {
    fn drop(&mut self) {
        // SAFETY: the library gave it, and no call uses it any more.
        unsafe { (self.table.plan_free)(self.plan) };
    }
}

/// Works out a call for tensors like these.
pub(crate) fn prepare(called: &Called<'_>, inputs: CallInputs<'_>) -> Result<Prepared> {
    let table = called.table;
    let mut plan = std::ptr::null_mut();
    let services = OpsmithServices {
        size: size_of::<OpsmithServices>(),
        context: std::ptr::null_mut(),
        allocate_output: None,
        num_threads: None,
        parallel_for: None,
        keep_string: None,
        stream: std::ptr::null_mut(),
        allocate_temp: None,
        launch: None,
    };
    let error = with_abi_call(called, inputs, &mut [], &services, |call| {
        // SAFETY: everything that the call points to is valid until it returns, and `plan` is a place to write to.
        unsafe { (table.plan)(call, &raw mut plan) }
    })?;
    // SAFETY: the library gave the error, and it is taken once.
    unsafe { take_error(table, error) }?;
    Ok(Prepared { table, plan })
}

/// Makes a call. `counts_out`, one for each output of the definition, gets how many tensors it holds.
pub(crate) fn call<M: OutputMemory>(
    called: &Called<'_>,
    inputs: CallInputs<'_>,
    counts_out: &mut [usize],
    memory: &mut M,
) -> Result<()> {
    let table = called.table;
    let threads = called.threads.map_or(0, NonZeroUsize::get);
    let (stream, takes_launches) = (memory.stream(), memory.takes_launches());
    let mut lent = Lent { memory, threads, failure: None };
    let mut services = OpsmithServices {
        size: size_of::<OpsmithServices>(),
        context: (&raw mut lent).cast(),
        allocate_output: Some(allocate_output::<M>),
        num_threads: None,
        parallel_for: None,
        keep_string: Some(keep_string::<M>),
        stream: stream.unwrap_or(std::ptr::null_mut()),
        allocate_temp: None,
        launch: None,
    };
    if stream.is_some() {
        services.allocate_temp = Some(allocate_temp::<M>);
    }
    if takes_launches {
        services.launch = Some(launch::<M>);
    }
    if threads > 0 {
        services.num_threads = Some(num_threads::<M>);
        services.parallel_for = Some(parallel_for::<M>);
    }
    // SAFETY: everything that the call points to is valid until it returns, as the ABI asks.
    let error = with_abi_call(called, inputs, counts_out, &services, |call| unsafe { (table.call)(call) })?;
    // SAFETY: the library gave the error, and it is taken once.
    let result = unsafe { take_error(table, error) };
    match lent.failure {
        Some(failure) if result.is_err() => Err(failure),
        _ => result,
    }
    .map_err(|error| error.with_op(called.name))
}

/// Lends `body` a call in the form of the ABI.
fn with_abi_call<R>(
    called: &Called<'_>,
    inputs: CallInputs<'_>,
    counts_out: &mut [usize],
    services: &OpsmithServices,
    body: impl FnOnce(*const OpsmithCall) -> R,
) -> Result<R> {
    // Filled where they lie: collected ones would be copied.
    let mut tensors: SmallVec<[OpsmithTensor; 4]> = SmallVec::new();
    tensors.extend(inputs.flat.iter().map(|tensor| tensor.as_ref().map_or(ABSENT, to_abi_tensor)));
    let mut pointers: SmallVec<[*const OpsmithTensor; 4]> = SmallVec::new();
    let pointer = |(input, tensor): (&Option<_>, &OpsmithTensor)| match input {
        Some(_) => std::ptr::from_ref(tensor),
        None => std::ptr::null(),
    };
    pointers.extend(inputs.flat.iter().zip(&tensors).map(pointer));
    let attrs = if called.prepared.is_some() { &[] } else { called.attrs };
    with_abi_attrs(attrs, |attrs| {
        let call = OpsmithCall {
            size: size_of::<OpsmithCall>(),
            op: called.index,
            tensors: pointers.as_ptr(),
            num_tensors: pointers.len(),
            counts: inputs.counts.as_ptr(),
            num_arguments: inputs.counts.len(),
            attrs: attrs.as_ptr(),
            num_attrs: attrs.len(),
            wanted: called.wanted,
            services: std::ptr::from_ref(services),
            output_counts: counts_out.as_mut_ptr(),
            num_outputs: counts_out.len(),
            plan: called.prepared.map_or(std::ptr::null(), |prepared| prepared.plan),
        };
        Ok(body(&raw const call))
    })
}

/// Stands for an absent optional input; nothing points to it.
const ABSENT: OpsmithTensor = OpsmithTensor {
    size: size_of::<OpsmithTensor>(),
    data: std::ptr::null_mut(),
    dtype: 0,
    device_kind: OPSMITH_DEVICE_CPU,
    device_index: 0,
    rank: 0,
    shape: std::ptr::null(),
    strides: std::ptr::null(),
};

/// Runs a callback's body; what goes wrong in it, a panic included, is kept and told as a null pointer.
fn guarded<M, T>(context: *mut c_void, body: impl FnOnce(&mut M) -> Result<*mut T>) -> *mut T {
    // SAFETY: `call` passed a pointer to its `Lent<M>`, which nobody else uses while the library runs: an output is
    // made on the calling thread.
    let lent = unsafe { &mut *context.cast::<Lent<'_, M>>() };
    let outcome = catch_unwind(AssertUnwindSafe(|| body(lent.memory)))
        .unwrap_or_else(|payload| Err(Error::from_panic(&*payload, None)));
    outcome.unwrap_or_else(|error| {
        lent.failure.get_or_insert(error);
        std::ptr::null_mut()
    })
}

unsafe extern "C" fn allocate_output<M: OutputMemory>(
    context: *mut c_void,
    index: usize,
    dtype: i32,
    rank: i32,
    shape: *const i64,
) -> *mut c_void {
    let made = guarded(context, |memory: &mut M| {
        let unknown =
            || Error::unimplemented(format!("the output has dtype number {dtype}, unknown to this version"));
        let dtype = u8::try_from(dtype).ok().and_then(DType::from_u8).ok_or_else(unknown)?;
        let shape: &[usize] = match rank {
            // A pointer to no dims may be anything.
            0 => &[],
            // SAFETY: the library gives `rank` dims, none of them negative.
            _ => unsafe { std::slice::from_raw_parts(shape.cast(), rank as usize) },
        };
        memory.allocate(index, dtype, shape)
    });
    made.cast()
}

unsafe extern "C" fn allocate_temp<M: OutputMemory>(context: *mut c_void, bytes: usize) -> *mut c_void {
    guarded(context, |memory: &mut M| memory.allocate_temp(bytes)).cast()
}

unsafe extern "C" fn launch<M: OutputMemory>(context: *mut c_void, launch: *const OpsmithLaunch) -> i32 {
    let taken = guarded(context, |memory: &mut M| {
        // SAFETY: the library's launch is as the ABI has it, and there until this returns.
        unsafe { with_launch(launch, |launch| memory.launch(launch)) }?;
        Ok(NonNull::<u8>::dangling().as_ptr())
    });
    i32::from(taken.is_null())
}

unsafe extern "C" fn num_threads<M>(context: *mut c_void) -> usize {
    // SAFETY: `call` passed a pointer to its `Lent<M>`; the field does not change.
    let threads = unsafe { (&raw const (*context.cast::<Lent<'_, M>>()).threads).read() };
    threads.min(opsmith_threads::num_threads())
}

unsafe extern "C" fn parallel_for<M>(
    context: *mut c_void,
    total: usize,
    grain: usize,
    body: OpsmithParallelBody,
    body_context: *mut c_void,
) {
    // SAFETY: as above.
    let threads = unsafe { num_threads::<M>(context) };
    let body_context = body_context as usize;
    // SAFETY: the library lets its body be called on ranges within the loop, from any thread, until this returns.
    let body = |range: Range<usize>| unsafe { body(range.start, range.end, body_context as *mut c_void) };
    opsmith_threads::parallel_for_on(threads, total, grain, &body);
}

unsafe extern "C" fn keep_string<M: OutputMemory>(context: *mut c_void, bytes: OpsmithStr) -> *const c_char {
    // SAFETY: the library's text is readable during the callback.
    let bytes = unsafe { bytes.as_bytes() };
    guarded(context, |memory: &mut M| memory.keep_string(bytes).map(<*const u8>::cast_mut)).cast()
}

/// The error as our own, freed; `Ok` for a null pointer.
///
/// # Safety
/// `error` is null or an error that a function of `table` gave and nobody freed.
pub(crate) unsafe fn take_error(table: &OpsmithLibrary, error: *mut OpsmithError) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: an error begins with its size, and one of this version has texts that are null or end in a NUL.
    let told = unsafe {
        let size = (&raw const (*error).size).read();
        if size < size_of::<OpsmithError>() {
            Err(size)
        } else {
            let OpsmithError { code, op, argument, text, .. } = *error;
            let own = |text: *const c_char| CStr::from_ptr(text).to_string_lossy().into_owned();
            Ok((code, [op, argument, text].map(|text| (!text.is_null()).then(|| own(text)))))
        }
    };
    // SAFETY: it is freed by who made it, once, and all that is kept of it is our own.
    unsafe { (table.error_free)(error) };
    let (code, [op, argument, text]) = told.map_err(|size| {
        let expected = size_of::<OpsmithError>();
        Error::internal(format!(
            "a library gave an error of {size} bytes, expected {expected}: it was built by another version of Opsmith"
        ))
    })?;
    let mut ours = Error::new(Code::from_i32(code), text.unwrap_or_else(|| "no text".to_owned()));
    if let Some(argument) = argument {
        ours = ours.naming(&argument);
    }
    if let Some(op) = op {
        ours = ours.with_op(&op);
    }
    Err(ours)
}
