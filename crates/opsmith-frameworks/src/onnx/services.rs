//! ONNX Runtime's services for one call: memory for outputs, threads, on a card its stream. Temporaries in host memory are our own.

use std::cell::{OnceCell, RefCell};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::thread::available_parallelism;

use opsmith_core::fork::OnceLock;
use opsmith_core::kernel::Services;
use opsmith_core::tensor::StrRef;
use opsmith_core::{DType, Device, Error, Result, bail, ensure, memory};
use opsmith_threads::{Body, SharedLoop};

use super::api::{Api, KernelContext, Value};
use super::card::CardCall;
use super::tensor::Tensor;
use crate::memory::{Scratch, Texts};

/// The texts of an output, which the kernel writes, and its tensor.
type Strings = (Box<[StrRef]>, *mut Value);

/// The services of one call, and what it has made so far.
pub(super) struct OrtServices<'a> {
    api: Api,
    context: *mut KernelContext,
    /// Whether the node has each output.
    present: &'a [bool],
    /// The same call, where it is on a card.
    card: Option<&'a CardCall<'a>>,
    /// Made when there is something to keep: most small calls have nothing.
    kept: OnceCell<Box<Kept>>,
}

/// What lives as long as the call.
#[derive(Default)]
struct Kept {
    scratch: Scratch,
    /// Outputs of text: the kernel's, and where ONNX Runtime wants them.
    strings: RefCell<Vec<Strings>>,
    texts: Texts,
}

impl<'a> OrtServices<'a> {
    /// The services of a call, on a card where that is said, of a node that has these outputs.
    pub(super) fn new(
        api: Api,
        context: *mut KernelContext,
        present: &'a [bool],
        card: Option<&'a CardCall<'a>>,
    ) -> OrtServices<'a> {
        OrtServices { api, context, present, card, kept: OnceCell::new() }
    }

    fn kept(&self) -> &Kept {
        self.kept.get_or_init(Box::default)
    }

    /// Hands over the texts.
    ///
    /// # Errors
    /// What ONNX Runtime says.
    pub(super) fn finish(&self) -> Result<()> {
        let Some(kept) = self.kept.get() else { return Ok(()) };
        let api = self.api;
        for (texts, value) in kept.strings.borrow().iter() {
            for (index, text) in texts.iter().enumerate() {
                let mut target = null_mut();
                // SAFETY: the tensor is the call's and has as many texts; the memory that comes back has the length asked
                // for, and the kernel's texts are kept until the call ends.
                unsafe {
                    api.check((api.string_element())(*value, index, text.len, &mut target))?;
                    if text.len > 0 {
                        std::ptr::copy_nonoverlapping(text.data, target.cast::<u8>(), text.len);
                    }
                }
            }
        }
        Ok(())
    }

    fn output(&self, index: usize, shape: &[usize]) -> Result<Tensor> {
        let api = self.api;
        let mut value = null_mut();
        // SAFETY: the call is ONNX Runtime's and runs. Dims are less than 2⁶³, and so the same as `i64`.
        let made = unsafe {
            let make = api.call_output();
            api.check(make(self.context, index, shape.as_ptr().cast(), shape.len(), &mut value))
        };
        made.map_err(|error| match error.message() {
            text if text.contains("allocate") => Error::resource_exhausted(text),
            _ => error,
        })?;
        if value.is_null() {
            return Err(Error::internal(format!("ONNX Runtime gives no memory for output {index}")));
        }
        Ok(Tensor { api, value })
    }

    /// Room for the elements of an output of text, all empty, that are handed over at the end.
    #[cold]
    fn text_output(&self, tensor: Tensor, count: usize) -> Result<*mut u8> {
        let empty = StrRef { data: std::ptr::null(), len: 0 };
        let mut texts = memory::filled(empty, count, "the elements of text")?.into_boxed_slice();
        let data = texts.as_mut_ptr();
        self.kept().strings.borrow_mut().push((texts, tensor.value));
        Ok(data.cast())
    }

    /// Room for an output that the node does not have.
    #[cold]
    fn unseen_output(&self, dtype: DType, count: usize) -> Result<*mut u8> {
        let bytes = count * dtype.size();
        if let Some(card) = self.card {
            return Ok(card.allocate(bytes)?.as_ptr());
        }
        let data = self.kept().scratch.allocate(bytes)?.as_ptr();
        if dtype == DType::String {
            // SAFETY: there are as many bytes; a text of zeros is empty.
            unsafe { data.write_bytes(0, bytes) };
        }
        Ok(data)
    }
}

// SAFETY: ONNX Runtime's allocator gives what the dims ask for, and keeps it until the call ends; `Scratch` keeps temporaries; a
// loop is over when `ParallelFor` returns.
unsafe impl Services for OrtServices<'_> {
    fn device(&self) -> Device {
        self.card.map_or(Device::CPU, CardCall::device)
    }

    fn stream(&self) -> *mut c_void {
        self.card.map_or(null_mut(), |card| card.stream)
    }

    fn allocate_device_temp(&self, bytes: usize) -> Result<NonNull<u8>> {
        let Some(card) = self.card else { bail!(Internal, "the call is not on a card") };
        card.allocate(bytes)
    }

    fn allocate_output(&self, index: usize, dtype: DType, shape: &[usize]) -> Result<*mut u8> {
        let tensor = match self.present.get(index) {
            Some(true) => Some(self.output(index, shape)?),
            _ => None,
        };
        match tensor {
            Some(tensor) if dtype == DType::String => self.text_output(tensor, shape.iter().product()),
            Some(_) if shape.contains(&0) => Ok(NonNull::<u128>::dangling().as_ptr().cast()),
            Some(tensor) => {
                let data = tensor.data()?;
                ensure!(
                    data.addr().is_multiple_of(dtype.alignment()),
                    InvalidArgument,
                    "output {index} is in memory that is not aligned for {dtype}"
                );
                Ok(data)
            }
            None => self.unseen_output(dtype, shape.iter().product()),
        }
    }

    fn allocate_temp(&self, bytes: usize) -> Result<NonNull<u8>> {
        self.kept().scratch.allocate(bytes)
    }

    fn keep_string(&self, bytes: &[u8]) -> Result<NonNull<u8>> {
        self.kept().texts.keep(bytes)
    }

    /// ONNX Runtime does not say how many threads a session has: where it has fewer, a thread has several shares of a loop.
    fn num_threads(&self) -> usize {
        static CORES: OnceLock<usize> = OnceLock::new();
        *CORES.get_or_init(|| available_parallelism().map_or(1, usize::from))
    }

    fn parallel_for(&self, total: usize, grain: usize, body: Body<'_>) {
        let threads = self.num_threads();
        let shared = SharedLoop::new(total, grain, threads, body);
        let workers = shared.workers(threads);
        if workers <= 1 {
            return shared.work(0);
        }
        let data = std::ptr::from_ref(&shared).cast_mut().cast();
        // SAFETY: the call is ONNX Runtime's and runs; the loop is alive until it returns.
        let done = unsafe {
            let run = self.api.parallel_for();
            self.api.succeeded(run(self.context, work, workers, workers, data))
        };
        if !done {
            shared.work(0);
        }
    }
}

unsafe extern "C" fn work(data: *mut c_void, worker: usize) {
    // SAFETY: `parallel_for` has given the loop, and waits.
    unsafe { &*data.cast::<SharedLoop<'_>>() }.work(worker);
}
