//! XLA's services for one call: the outputs, made before the call, and threads.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Thread, current, park};

use opsmith_core::kernel::Host;
use opsmith_core::{DType, Result, bail};
use smallvec::SmallVec;

use super::ffi::{self, Api, Buffer};
use crate::memory::Scratch;
use crate::parallel::{Body, chunk_size};
use crate::pool;

/// The services of one call.
pub(super) struct JaxHost<'a> {
    pub(super) api: &'a Api,
    pub(super) context: *mut c_void,
    /// For each output tensor its buffer, or `None` where it is not wanted.
    pub(super) outputs: SmallVec<[Option<&'a Buffer>; 4]>,
    pub(super) scratch: Scratch,
}

// SAFETY: a buffer is given out only if it has the dtype and shape asked for, and the core asks once; `Scratch` keeps
// temporaries, and `Work` tells when no thread works any more.
unsafe impl Host for JaxHost<'_> {
    fn allocate_output(&self, index: usize, dtype: DType, shape: &[usize]) -> Result<*mut u8> {
        let Some(buffer) = self.outputs[index] else {
            let bytes = shape.iter().product::<usize>() * dtype.size();
            return Ok(self.scratch.allocate(bytes)?.as_ptr());
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
            return pool::num_threads();
        }
        // SAFETY: both are XLA's, of the call that runs.
        unsafe { self.api.num_threads(self.context) }
    }

    /// Handlers run on the threads that XLA lends: one that waited for others to be free would wait for itself. So the
    /// caller takes chunks until none is left, and waits only for helpers that are at work on one.
    fn parallel_for(&self, total: usize, grain: usize, body: Body<'_>) {
        if !self.api.lends_threads() {
            return pool::parallel_for(total, grain, body);
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
