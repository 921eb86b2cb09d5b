//! PyTorch's services for one call: memory for outputs, and threads.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use opsmith_core::fork;
use opsmith_core::kernel::Services;
use opsmith_core::tensor::{DimOrder, row_major_strides};
use opsmith_core::{DType, Device, DeviceKind, Error, Plan, Result, Signature, bail};
use opsmith_threads::{Body, SharedLoop};
use smallvec::SmallVec;

use super::shim::Shim;
use super::value::{OwnedList, OwnedTensor};
use crate::memory::Scratch;

/// The services of one call, and the outputs made so far.
pub(super) struct TorchServices<'s> {
    shim: &'s Shim,
    outputs: RefCell<SmallVec<[Option<OwnedTensor<'s>>; 4]>>,
    scratch: Scratch,
    device: Device,
    /// The order in which the kernel sees dims, where that is not theirs.
    order: Option<&'s DimOrder>,
    /// That of the card, for a call there.
    stream: *mut c_void,
    /// Temporary memory on the card. PyTorch's allocator gives it to nobody else before the stream is through with it.
    temps: RefCell<Vec<OwnedTensor<'s>>>,
}

impl<'s> TorchServices<'s> {
    /// The services of a call on `device` that has `outputs` output tensors, and whose kernel sees dims in `order`.
    ///
    /// # Errors
    /// As [`Shim::cuda_stream`].
    pub(super) fn new(
        shim: &'s Shim,
        outputs: usize,
        device: Device,
        order: Option<&'s DimOrder>,
    ) -> Result<TorchServices<'s>> {
        let mut none = SmallVec::new();
        none.resize_with(outputs, || None);
        let stream = match device.kind {
            DeviceKind::Cpu => std::ptr::null_mut(),
            DeviceKind::Cuda => shim.cuda_stream(device.index)?,
        };
        Ok(TorchServices {
            shim,
            outputs: RefCell::new(none),
            scratch: Scratch::default(),
            device,
            order,
            stream,
            temps: RefCell::default(),
        })
    }

    /// Writes the outputs to the stack, each now PyTorch's; those nobody wanted are empty.
    ///
    /// # Errors
    /// `ResourceExhausted` or `Internal` when PyTorch cannot make a list or an empty tensor; nothing is written then.
    ///
    /// # Safety
    /// `stack` must have room for a word for each output of `signature`.
    pub(super) unsafe fn give(&self, signature: &Signature, plan: &Plan, stack: *mut u64) -> Result<()> {
        let mut outputs = self.outputs.borrow_mut();
        for (flat, output) in outputs.iter_mut().enumerate() {
            if output.is_none() {
                *output = Some(empty(self.shim, self.device, plan.output_dtypes()[flat], &[0])?);
            }
        }
        // All that may fail is done before anything is given away.
        let mut lists: SmallVec<[OwnedList<'s>; 1]> = SmallVec::new();
        for (arg, output) in signature.outputs.iter().enumerate() {
            if output.count.is_list() {
                let own = plan.output_offset(arg)..plan.output_offset(arg + 1);
                let mut list = OwnedList::with_capacity(self.shim, own.len())?;
                for tensor in outputs[own].iter_mut().filter_map(Option::take) {
                    list.push(tensor)?;
                }
                lists.push(list);
            }
        }
        let mut lists = lists.into_iter();
        for (arg, output) in signature.outputs.iter().enumerate() {
            let word = match output.count.is_list() {
                true => lists.next().map(OwnedList::into_raw),
                false => outputs[plan.output_offset(arg)].take().map(OwnedTensor::into_raw),
            };
            let word = word.unwrap_or_else(|| unreachable!("each output is there once"));
            // SAFETY: there is a word for each output.
            unsafe { stack.add(arg).write(word as u64) };
        }
        Ok(())
    }
}

/// A new tensor, dense and row-major, its elements not set.
fn empty<'s>(shim: &'s Shim, device: Device, dtype: DType, shape: &[usize]) -> Result<OwnedTensor<'s>> {
    empty_strided(shim, device, dtype, shape, &row_major_strides(shape))
}

/// A new tensor with these strides, its elements not set.
fn empty_strided<'s>(
    shim: &'s Shim,
    device: Device,
    dtype: DType,
    shape: &[usize],
    strides: &[isize],
) -> Result<OwnedTensor<'s>> {
    let Some(code) = shim.dtype_code(dtype) else {
        bail!(Unimplemented, "PyTorch has no plain tensors of dtype {dtype}");
    };
    let (kind, index) = match device.kind {
        DeviceKind::Cpu => (shim.cpu, 0),
        DeviceKind::Cuda => (shim.cuda, device.index),
    };
    let mut handle = std::ptr::null_mut();
    // SAFETY: shape and strides have as many elements as said, and a usize reads as an i64; the pointer is to a
    // local of the right type.
    let failed = unsafe {
        (shim.functions.aoti_torch_empty_strided)(
            shape.len() as i64,
            shape.as_ptr().cast(),
            strides.as_ptr().cast(),
            code,
            kind,
            index,
            &mut handle,
        )
    };
    if failed != 0 {
        let reason = shim.last_error();
        bail!(ResourceExhausted, "cannot allocate a {dtype} tensor of shape {shape:?}: {reason}");
    }
    // SAFETY: the handle is new and ours.
    Ok(unsafe { OwnedTensor::new(shim, handle) })
}

/// Where a tensor's elements are, to be written.
fn memory(shim: &Shim, tensor: &OwnedTensor<'_>) -> Result<*mut u8> {
    let mut data = std::ptr::null_mut();
    // SAFETY: the tensor is live and the pointer is to a local of the right type.
    if unsafe { (shim.functions.aoti_torch_get_data_ptr)(tensor.handle(), &mut data) } != 0 {
        bail!(Internal, "a new tensor has no memory: {}", shim.last_error());
    }
    Ok(data.cast())
}

// SAFETY: PyTorch's allocator and loops are as the trait asks, and `Scratch` keeps temporaries.
unsafe impl Services for TorchServices<'_> {
    fn device(&self) -> Device {
        self.device
    }

    fn stream(&self) -> *mut c_void {
        self.stream
    }

    fn allocate_device_temp(&self, bytes: usize) -> Result<NonNull<u8>> {
        let tensor = empty(self.shim, self.device, DType::UInt8, &[bytes.max(1)])?;
        let data = memory(self.shim, &tensor)?;
        self.temps.borrow_mut().push(tensor);
        NonNull::new(data).ok_or_else(|| Error::internal("a new tensor has no memory"))
    }

    fn allocate_output(&self, index: usize, dtype: DType, shape: &[usize]) -> Result<*mut u8> {
        let tensor = match self.order.filter(|order| order.shape().len() == shape.len()) {
            None => empty(self.shim, self.device, dtype, shape)?,
            Some(order) => {
                let (shape, strides) = order.restored(shape);
                empty_strided(self.shim, self.device, dtype, &shape, &strides)?
            }
        };
        let data = memory(self.shim, &tensor)?;
        self.outputs.borrow_mut()[index] = Some(tensor);
        if self.device == Device::CPU {
            let bytes = dtype.size() * shape.iter().product::<usize>();
            // SAFETY: the new tensor has as many.
            unsafe { opsmith_core::memory::prefer_large_pages(data, bytes) };
        }
        Ok(data)
    }

    fn allocate_temp(&self, bytes: usize) -> Result<NonNull<u8>> {
        self.scratch.allocate(bytes)
    }

    fn keep_string(&self, _bytes: &[u8]) -> Result<NonNull<u8>> {
        bail!(Unimplemented, "PyTorch has no string tensors")
    }

    fn num_threads(&self) -> usize {
        if is_forked() {
            return 1;
        }
        let mut threads = 1;
        match self.shim.functions.torch_get_num_threads {
            // SAFETY: the pointer is to a local of the right type.
            Some(get) if unsafe { get(&mut threads) } == 0 => (threads as usize).max(1),
            Some(_) => 1,
            None => opsmith_threads::num_threads(),
        }
    }

    fn parallel_for(&self, total: usize, grain: usize, body: Body<'_>) {
        if is_forked() {
            return body(0..total);
        }
        let Some(parallel_for) = self.shim.functions.torch_parallel_for else {
            return opsmith_threads::parallel_for(total, grain, body);
        };
        // PyTorch gives each thread one equal range. A range here is a worker that takes chunks until none is left, so
        // that a thread which is held up does not hold up the loop. The same thread is the same worker, usually.
        let threads = self.num_threads();
        let shared = SharedLoop::new(total, grain, threads, body);
        let workers = shared.workers(threads);
        // SAFETY: `run_workers` gets its context back, which lives until all ranges are done.
        let failed =
            unsafe { parallel_for(0, workers as i64, 1, run_workers, (&raw const shared).cast_mut().cast()) };
        // The core catches the panic and makes it the error of the call; there is no other way out of here.
        assert!(failed == 0, "PyTorch's thread pool failed: {}", self.shim.last_error());
    }
}

unsafe extern "C" fn run_workers(begin: i64, end: i64, context: *mut c_void) {
    // SAFETY: the context is the one that `parallel_for` above passes, alive until it returns.
    let shared = unsafe { &*context.cast::<SharedLoop<'_>>() };
    (begin..end).for_each(|worker| shared.work(worker as usize));
}

/// The process in which PyTorch got the ops: the threads of PyTorch's pool do not come along to a fork of it, and the pool waits
/// for them for ever.
static REGISTERED_IN: AtomicU64 = AtomicU64::new(0);

/// Has forked children of this process compute on the calling thread alone.
pub(super) fn watch_forks() {
    REGISTERED_IN.store(fork::generation(), Ordering::Relaxed);
}

fn is_forked() -> bool {
    fork::generation() != REGISTERED_IN.load(Ordering::Relaxed)
}
