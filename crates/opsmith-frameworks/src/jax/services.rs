//! XLA's services for one call: the outputs, made before the call, threads, and on a card its stream and memory.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Thread, current, park};

use opsmith_core::kernel::Services;
use opsmith_core::{DType, Device, DeviceKind, Error, Result, bail};
use opsmith_threads::{Body, chunk_size};
use smallvec::SmallVec;

use super::ffi::{self, Api, Buffer};
use crate::memory::Scratch;

/// The services of one call.
pub(super) struct JaxServices<'a> {
    pub(super) api: &'a Api,
    pub(super) context: *mut c_void,
    /// For each output tensor its buffer, or `None` where it is not wanted.
    pub(super) outputs: SmallVec<[Option<&'a Buffer>; 4]>,
    pub(super) scratch: &'a Scratch,
    pub(super) place: DeviceStream,
    /// Whether XLA may replay the call's work, when temporary memory is gone.
    pub(super) capturable: bool,
    pub(super) temps: DeviceTemps<'a>,
}

/// Where a call runs.
#[derive(Clone, Copy)]
pub(super) struct DeviceStream {
    pub(super) device: Device,
    /// That of the card; null on the CPU.
    pub(super) stream: *mut c_void,
}

impl DeviceStream {
    /// That of a call.
    ///
    /// # Errors
    /// As [`Api::card`].
    ///
    /// # Safety
    /// `api` and `context` must be XLA's, of a call for this kind of device.
    pub(super) unsafe fn of(kind: DeviceKind, api: &Api, context: *mut c_void) -> Result<DeviceStream> {
        match kind {
            DeviceKind::Cpu => Ok(DeviceStream { device: Device::CPU, stream: std::ptr::null_mut() }),
            DeviceKind::Cuda => {
                // SAFETY: promised by the caller.
                let (index, stream) = unsafe { api.card(context) }?;
                Ok(DeviceStream { device: Device { kind, index }, stream })
            }
        }
    }
}

/// Temporary memory on the call's card, given back when the call ends, as XLA's own handlers do.
pub(super) struct DeviceTemps<'a> {
    api: &'a Api,
    context: *mut c_void,
    blocks: RefCell<Vec<(*mut u8, usize)>>,
}

impl<'a> DeviceTemps<'a> {
    /// None so far.
    ///
    /// # Safety
    /// `api` and `context` must be XLA's, of the call that runs as long as this is there.
    pub(super) unsafe fn new(api: &'a Api, context: *mut c_void) -> DeviceTemps<'a> {
        DeviceTemps { api, context, blocks: RefCell::default() }
    }

    /// # Safety
    /// [`Api::card`] must have given the call's card.
    unsafe fn allocate(&self, bytes: usize) -> Result<NonNull<u8>> {
        /// What a kernel counts on, and more than XLA promises.
        const ALIGNMENT: usize = 256;
        let size = bytes.max(1) + ALIGNMENT;
        // SAFETY: promised by the caller.
        let data = unsafe { self.api.allocate(self.context, size) }?;
        self.blocks.borrow_mut().push((data, size));
        let gap = data.addr().next_multiple_of(ALIGNMENT) - data.addr();
        NonNull::new(data.wrapping_add(gap)).ok_or_else(|| Error::internal("XLA gives no memory"))
    }
}

impl Drop for DeviceTemps<'_> {
    fn drop(&mut self) {
        for (data, size) in self.blocks.get_mut().drain(..) {
            // SAFETY: it is of this call, and all of its work is on the stream.
            unsafe { self.api.free(self.context, data, size) };
        }
    }
}

// SAFETY: a buffer is given out only if it has the dtype and shape asked for, and the core asks once; `Scratch` keeps
// temporaries, and `Work` tells when no thread works any more.
unsafe impl Services for JaxServices<'_> {
    fn device(&self) -> Device {
        self.place.device
    }

    fn stream(&self) -> *mut c_void {
        self.place.stream
    }

    fn allocate_device_temp(&self, bytes: usize) -> Result<NonNull<u8>> {
        // SAFETY: only a call on a card asks, and its card is known.
        unsafe { self.temps.allocate(bytes) }
    }

    fn allocate_output(&self, index: usize, dtype: DType, shape: &[usize]) -> Result<*mut u8> {
        let Some(buffer) = self.outputs[index] else {
            let bytes = shape.iter().product::<usize>() * dtype.size();
            if self.place.device == Device::CPU {
                return Ok(self.scratch.allocate(bytes)?.as_ptr());
            }
            if self.capturable {
                bail!(Internal, "a kernel that is declared `capturable` makes an output that nobody wants");
            }
            return Ok(self.allocate_device_temp(bytes)?.as_ptr());
        };
        // SAFETY: the buffer is XLA's, of the call that runs.
        let (expected, prepared) = (unsafe { buffer.shape() }, ffi::dtype(buffer.dtype)?);
        if (expected, prepared) != (shape, dtype) {
            bail!(
                InvalidArgument,
                "the op gives {dtype} of shape {shape:?}, the caller expects {prepared} of shape {expected:?}"
            );
        }
        Ok(buffer.data)
    }

    fn allocate_temp(&self, bytes: usize) -> Result<NonNull<u8>> {
        self.scratch.allocate(bytes)
    }

    fn keep_string(&self, _: &[u8]) -> Result<NonNull<u8>> {
        bail!(Unimplemented, "JAX has no string tensors")
    }

    fn num_threads(&self) -> usize {
        if !self.api.lends_threads() {
            return opsmith_threads::num_threads();
        }
        // SAFETY: both are XLA's, of the call that runs.
        unsafe { self.api.num_threads(self.context) }
    }

    /// Handlers run on the threads that XLA lends: one that waited for others to be free would wait for itself. So the
    /// caller takes chunks until none is left, and waits only for helpers that are at work on one.
    fn parallel_for(&self, total: usize, grain: usize, body: Body<'_>) {
        if !self.api.lends_threads() {
            return opsmith_threads::parallel_for(total, grain, body);
        }
        let threads = self.num_threads();
        let chunk = chunk_size(total, grain, threads);
        let workers = total.div_ceil(chunk).min(threads);
        if workers <= 1 {
            return body(0..total);
        }
        let work = Arc::new(Work::new(total, chunk, body));
        for _ in 1..workers {
            let data = Arc::into_raw(work.clone());
            // SAFETY: `help` gets back what it expects, at most once.
            if !unsafe { self.api.schedule(self.context, help, data.cast_mut().cast()) } {
                // SAFETY: XLA did not take it, so it is still ours.
                drop(unsafe { Arc::from_raw(data) });
            }
        }
        work.take_part();
        while work.left.load(Ordering::Acquire) != 0 {
            park();
        }
    }
}

/// A loop whose helpers may come when it is over: until its last unit is done the body is there, and after that nobody
/// finds a chunk.
struct Work {
    /// Not a reference: a late helper has the loop when the body is gone.
    body: *const (dyn Fn(Range<usize>) + Sync),
    total: usize,
    chunk: usize,
    next: AtomicUsize,
    left: AtomicUsize,
    caller: Thread,
}

// SAFETY: the body may be called from any thread, and the rest is atomic or only read.
unsafe impl Send for Work {}
// SAFETY: as above.
unsafe impl Sync for Work {}

impl Work {
    fn new(total: usize, chunk: usize, body: Body<'_>) -> Work {
        // SAFETY: only the lifetime changes. The caller waits until no unit is left, and no call begins after that.
        let body = unsafe { std::mem::transmute::<Body<'_>, Body<'static>>(body) };
        Work {
            body,
            total,
            chunk,
            next: AtomicUsize::new(0),
            left: AtomicUsize::new(total),
            caller: current(),
        }
    }

    /// Works until no chunk is left.
    fn take_part(&self) {
        loop {
            let begin = self.next.fetch_add(self.chunk, Ordering::Relaxed);
            if begin >= self.total {
                return;
            }
            let range = begin..self.total.min(begin + self.chunk);
            let done = range.len();
            // SAFETY: units of this range are left, so the body is there.
            unsafe { (*self.body)(range) };
            if self.left.fetch_sub(done, Ordering::AcqRel) == done {
                self.caller.unpark();
            }
        }
    }
}

unsafe extern "C" fn help(data: *mut c_void) {
    // SAFETY: `parallel_for` gave one count of the loop away to this call.
    unsafe { Arc::from_raw(data.cast::<Work>()) }.take_part();
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn every_unit_is_done_once_and_late_helpers_find_nothing() {
        for (total, helpers) in [(1, 3), (10, 0), (1000, 3)] {
            let work = {
                let seen = Mutex::new(Vec::new());
                let body = |range: Range<usize>| seen.lock().unwrap().extend(range);
                let work = Arc::new(Work::new(total, 7, &body));
                let threads: Vec<_> = (0..helpers)
                    .map(|_| work.clone())
                    .map(|work| std::thread::spawn(move || work.take_part()))
                    .collect();
                work.take_part();
                while work.left.load(Ordering::Acquire) != 0 {
                    park();
                }
                let mut seen = std::mem::take(&mut *seen.lock().unwrap());
                seen.sort_unstable();
                assert_eq!(seen, (0..total).collect::<Vec<_>>());
                threads.into_iter().for_each(|thread| thread.join().unwrap());
                work
            };
            // The body is gone.
            work.take_part();
        }
    }
}
