//! The handle that an `#[op]` function takes: threads, scratch memory and the device of the call.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use ndarray::{ArrayViewMut, Axis, Dimension, RawArrayViewMut};

use super::services::Services;
use crate::panic::{catch, unwind_with};
use crate::{Device, DeviceKind, Element, Error, Result};

/// The least work, in nanoseconds, that is worth handing to another thread.
const MIN_CHUNK_COST: usize = 20_000;

/// A raw view that several threads take their parts of.
struct Shared<T, D: Dimension>(RawArrayViewMut<T, D>);

// SAFETY: only `try_parallel_over` has one, and gives each element to one thread.
unsafe impl<T: Send, D: Dimension> Sync for Shared<T, D> {}

impl<T, D: Dimension> Shared<T, D> {
    fn get(&self) -> RawArrayViewMut<T, D> {
        self.0.clone()
    }
}

/// A function that is called once, by any thread.
enum Step<F, R> {
    Waits(F),
    Runs,
    Done(R),
}

impl<F: FnOnce() -> R, R> Step<F, R> {
    fn run(step: &Mutex<Self>) {
        // A range is handed out once, so nobody waits for the lock.
        let mut step = step.lock().unwrap_or_else(PoisonError::into_inner);
        if let Step::Waits(function) = std::mem::replace(&mut *step, Step::Runs) {
            *step = Step::Done(function());
        }
    }

    fn result(step: Mutex<Self>) -> R {
        match step.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Step::Done(result) => result,
            Step::Waits(_) | Step::Runs => panic!("the caller's loop left a function out"),
        }
    }
}

/// What a kernel computes with, beside its tensors.
#[derive(Clone, Copy)]
pub struct Compute<'a> {
    services: &'a dyn Services,
    /// Whether the kernel has said that it needs no temporary memory on a device.
    capturable: bool,
}

impl<'a> Compute<'a> {
    /// The handle for a call whose services are `services`.
    pub fn new(services: &'a dyn Services) -> Compute<'a> {
        Compute { services, capturable: false }
    }

    /// The handle for a call of a kernel that says whether it is [`capturable`](crate::KernelDef::capturable).
    pub(crate) fn of_kernel(services: &'a dyn Services, capturable: bool) -> Compute<'a> {
        Compute { services, capturable }
    }

    /// Where the call runs.
    pub fn device(&self) -> Device {
        self.services.device()
    }

    /// The stream that work on a card goes on; null on the CPU.
    pub fn stream(&self) -> *mut c_void {
        self.services.stream()
    }

    /// How many threads [`parallel_for`](Self::parallel_for) uses at most.
    pub fn num_threads(&self) -> usize {
        self.services.num_threads()
    }

    /// Calls `body` on ranges that cover `0..total`, on the call's threads.
    ///
    /// `cost_per_unit` is roughly the nanoseconds one unit takes on one thread. Work of less than some 20 µs a
    /// thread is not split further, so a small call stays on the calling thread. How the ranges are cut depends on
    /// the caller and the number of threads: a result that must not depend on it is computed per unit.
    ///
    /// # Panics
    /// A panic in `body` ends the whole call with an `Internal` error that has its message and place.
    pub fn parallel_for<F>(&self, total: usize, cost_per_unit: usize, body: F)
    where
        F: Fn(Range<usize>) + Sync,
    {
        let done = self.try_parallel_for(total, cost_per_unit, |range| {
            body(range);
            Ok(())
        });
        if let Err(error) = done {
            unwind_with(error);
        }
    }

    /// As [`parallel_for`](Self::parallel_for) over the length of `axis`, where each call of `body` has its own part
    /// of `array`: the range that it covers along `axis`, and that part.
    ///
    /// # Panics
    /// When `array` has no such axis, and as [`parallel_for`](Self::parallel_for) does.
    pub fn parallel_over<T, D, F>(
        &self,
        array: ArrayViewMut<'_, T, D>,
        axis: Axis,
        cost_per_unit: usize,
        body: F,
    ) where
        T: Element,
        D: Dimension,
        F: Fn(Range<usize>, ArrayViewMut<'_, T, D>) + Sync,
    {
        let done = self.try_parallel_over(array, axis, cost_per_unit, |range, part| {
            body(range, part);
            Ok(())
        });
        if let Err(error) = done {
            unwind_with(error);
        }
    }

    /// As [`parallel_over`](Self::parallel_over), for a `body` that can fail: ranges not begun are skipped after the
    /// first error.
    ///
    /// # Errors
    /// The first error of `body`, a panic in it being `Internal`.
    ///
    /// # Panics
    /// When `array` has no such axis.
    pub fn try_parallel_over<T, D, F>(
        &self,
        mut array: ArrayViewMut<'_, T, D>,
        axis: Axis,
        cost_per_unit: usize,
        body: F,
    ) -> Result<()>
    where
        T: Element,
        D: Dimension,
        F: Fn(Range<usize>, ArrayViewMut<'_, T, D>) -> Result<()> + Sync,
    {
        let total = array.len_of(axis);
        let whole = Shared(array.raw_view_mut());
        self.try_parallel_for(total, cost_per_unit, |range| {
            let (before, _) = whole.get().split_at(axis, range.end);
            let (_, part) = before.split_at(axis, range.start);
            // SAFETY: the view is borrowed mutably for the whole call, and ranges do not overlap, so nobody else
            // has these elements.
            body(range, unsafe { part.deref_into_view_mut() })
        })
    }

    /// As [`parallel_for`](Self::parallel_for), for a `body` that can fail: ranges not begun are skipped after the
    /// first error.
    ///
    /// # Errors
    /// The first error of `body`, a panic in it being `Internal`.
    pub fn try_parallel_for<F>(&self, total: usize, cost_per_unit: usize, body: F) -> Result<()>
    where
        F: Fn(Range<usize>) -> Result<()> + Sync,
    {
        if total == 0 {
            return Ok(());
        }
        let cost = cost_per_unit.max(1);
        if total.saturating_mul(cost) < 2 * MIN_CHUNK_COST || self.services.num_threads() <= 1 {
            return body(0..total);
        }
        let grain = (MIN_CHUNK_COST / cost).clamp(1, total);
        let failed = AtomicBool::new(false);
        let first: Mutex<Option<Error>> = Mutex::new(None);
        self.services.parallel_for(total, grain, &|range| {
            if failed.load(Ordering::Relaxed) {
                return;
            }
            if let Err(error) = catch(|| body(range)) {
                failed.store(true, Ordering::Relaxed);
                if let Ok(mut slot) = first.lock() {
                    slot.get_or_insert(error);
                }
            }
        });
        match first.into_inner() {
            Ok(Some(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Calls `body`, which never unwinds, on ranges of at least `grain` units, as the caller's own loop does: for services that pass loops
    /// on.
    #[doc(hidden)]
    pub fn loop_over(&self, total: usize, grain: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
        self.services.parallel_for(total, grain, body);
    }

    /// Calls two functions, the second on another thread where the caller has one, and gives what they return.
    ///
    /// It is for two pieces of work that take some microseconds or more, and about as long as each other: where one loop is too
    /// short for several threads, two may be long enough for two.
    ///
    /// # Panics
    /// A panic in a function ends the whole call, as in [`parallel_for`](Self::parallel_for).
    pub fn join<A: Send, B: Send>(
        &self,
        first: impl FnOnce() -> A + Send,
        second: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        let (first, second) = (Mutex::new(Step::Waits(first)), Mutex::new(Step::Waits(second)));
        self.parallel_for(2, MIN_CHUNK_COST, |range| {
            for index in range {
                match index {
                    0 => Step::run(&first),
                    _ => Step::run(&second),
                }
            }
        });
        (Step::result(first), Step::result(second))
    }

    /// Scratch memory of so many bytes on the call's device, uninitialised, that the caller takes back when the work that the
    /// call puts on the stream is done.
    ///
    /// # Errors
    /// `FailedPrecondition` on the CPU, which [`temp`](Self::temp) is for; `Internal` for a kernel that says of itself that it is
    /// [`capturable`](crate::KernelDef::capturable), and so needs none; `Unimplemented` where the caller lends none;
    /// `ResourceExhausted` when it has none left.
    pub fn device_temp(&self, bytes: usize) -> Result<NonNull<u8>> {
        if self.device().kind == DeviceKind::Cpu {
            return Err(Error::failed_precondition("the call runs on the CPU, where `temp` gives memory"));
        }
        if self.capturable {
            return Err(Error::internal(
                "the kernel is declared `capturable` but asks for temporary memory, which no longer exists when \
                 the recording is replayed; remove `capturable`",
            ));
        }
        self.services.allocate_device_temp(bytes)
    }

    /// Scratch memory of so many bytes, in host memory, aligned to 64 bytes and uninitialised, freed when the call ends.
    ///
    /// # Errors
    /// `ResourceExhausted` when the memory cannot be had.
    #[doc(hidden)]
    pub fn temp_bytes(&self, bytes: usize) -> Result<NonNull<u8>> {
        if bytes > isize::MAX as usize {
            return Err(Error::resource_exhausted(format!("a temporary of {bytes} bytes is too large")));
        }
        self.services.allocate_temp(bytes)
    }

    /// Scratch memory for `len` elements, in host memory, zeroed, freed when the call ends.
    ///
    /// # Errors
    /// `ResourceExhausted` when the memory cannot be had.
    pub fn temp<T: Element>(&self, len: usize) -> Result<&'a mut [T]> {
        let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= isize::MAX as usize);
        let bytes = bytes.ok_or_else(|| {
            Error::resource_exhausted(format!("a temporary of {len} {} elements is too large", T::DTYPE))
        })?;
        if bytes == 0 {
            return Ok(&mut []);
        }
        let data = self.temp_bytes(bytes)?.cast::<T>();
        // SAFETY: the caller gave `bytes` bytes aligned to 64, ours until the call ends, each piece given out once;
        // all-zero bytes are a valid value of every element type.
        unsafe {
            data.as_ptr().write_bytes(0, len);
            Ok(std::slice::from_raw_parts_mut(data.as_ptr(), len))
        }
    }
}
