//! The threads of a process: one pool however many libraries are open, for callers that lend none and for who shares work that is
//! not a kernel's, the engine, say; and loops that any threads share.

mod first_work;
mod parallel;
mod pool;

use std::ops::Range;

pub use parallel::{Body, SharedLoop, body_context, call_body, chunk_size};
pub use pool::{NUM_THREADS_VARIABLE, PoolSlot, opsmith_thread_pool_v1};

/// How many threads [`parallel_for`] uses at most, the calling one included.
pub fn num_threads() -> usize {
    pool::num_threads()
}

/// Calls `body` on ranges that cover `0..total`, each of at least `grain` units but the last, on several threads, and
/// returns when all are done. A kernel that runs in `body` may share its own work in the same way. A panic of `body`
/// aborts the process: it must not unwind.
pub fn parallel_for(total: usize, grain: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
    pool::parallel_for(total, grain, body);
}

/// As [`parallel_for`], on at most so many threads, the calling one included.
pub fn parallel_for_on(threads: usize, total: usize, grain: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
    let threads = threads.min(num_threads());
    if threads <= 1 {
        return body(0..total);
    }
    let shared = SharedLoop::new(total, grain, threads, body);
    pool::parallel_for(shared.workers(threads), 1, &|range| range.for_each(|worker| shared.work(worker)));
}

/// Keeps this shared object in the process, even if whoever opened it closes it: a framework, or a thread of a pool, now has
/// functions of it.
pub fn stay_loaded() {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let own = stay_loaded as *const std::ffi::c_void;
    // SAFETY: the address is in this object; the name that comes back is a C string which lives as long as it does.
    unsafe {
        if libc::dladdr(own, info.as_mut_ptr()) != 0 {
            let flags = libc::RTLD_NOLOAD | libc::RTLD_LAZY | libc::RTLD_NODELETE;
            libc::dlopen(info.assume_init().dli_fname, flags);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_loop_stays_on_as_many_threads_as_it_may() {
        for threads in [1, 2, 3] {
            let (count, ids) = (AtomicUsize::new(0), Mutex::new(HashSet::new()));
            parallel_for_on(threads, 10_000, 7, &|range| {
                count.fetch_add(range.len(), Ordering::Relaxed);
                ids.lock().unwrap().insert(std::thread::current().id());
            });
            assert_eq!(count.into_inner(), 10_000);
            assert!(ids.into_inner().unwrap().len() <= threads);
        }
    }
}
