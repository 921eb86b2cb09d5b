//! Our own thread pool, for callers that lend none: one a process however many libraries are open, and safe to
//! use in a forked child.
//!
//! Every library exports the slot `opsmith_thread_pool_v1`. The pool of the process is that of the first object, in
//! the order in which objects were opened, that exports one: all libraries come to the same answer without a lock.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use rayon_core::{ThreadPool, ThreadPoolBuilder};

use crate::parallel::{Body, SharedLoop, body_context, call_body};

/// The environment variable that sizes the pool.
pub const NUM_THREADS_VARIABLE: &str = "OPSMITH_NUM_THREADS";

type RawBody = unsafe extern "C" fn(begin: usize, end: usize, context: *mut c_void);

/// What a library publishes of its pool. The layout is fixed; fields may be added at the end.
#[repr(C)]
pub struct PoolSlot {
    /// `sizeof(PoolSlot)`.
    size: usize,
    num_threads: unsafe extern "C" fn() -> usize,
    parallel_for: unsafe extern "C" fn(total: usize, grain: usize, body: RawBody, context: *mut c_void),
}

/// This library's slot.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static opsmith_thread_pool_v1: PoolSlot =
    PoolSlot { size: size_of::<PoolSlot>(), num_threads: own_num_threads, parallel_for: own_parallel_for };

/// How many threads [`parallel_for`] uses, the calling one included: `OPSMITH_NUM_THREADS` where it is set to a
/// positive number, else as many as the machine lets the process use.
pub(crate) fn num_threads() -> usize {
    // SAFETY: a slot's functions may be called from any thread.
    unsafe { (slot().num_threads)() }
}

/// Calls `body` on ranges that cover `0..total`, each of at least `grain` units but the last, and returns when all
/// are done. `body` must not unwind.
pub(crate) fn parallel_for(total: usize, grain: usize, body: Body<'_>) {
    // SAFETY: `call_body` gets the context that it expects, and a slot's function returns when all calls are done.
    unsafe { (slot().parallel_for)(total, grain, call_body, body_context(&body)) }
}

/// The slot of the process, looked for once.
fn slot() -> &'static PoolSlot {
    static FOUND: AtomicPtr<PoolSlot> = AtomicPtr::new(null_mut());
    let mut found = FOUND.load(Ordering::Acquire);
    if found.is_null() {
        found = first_slot().cast_mut();
        FOUND.store(found, Ordering::Release);
    }
    // SAFETY: it is our own static, or one of a library that stays open.
    unsafe { &*found }
}

/// The slot of the first object that exports one, in the order in which objects were opened: ours at the latest.
fn first_slot() -> *const PoolSlot {
    objects().iter().find_map(|name| slot_of(name)).unwrap_or(&raw const opsmith_thread_pool_v1)
}

/// The names of the objects that are open, in the order in which they were opened.
fn objects() -> Vec<CString> {
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: the callback gets back the address of `names`, which outlives the walk.
    unsafe { libc::dl_iterate_phdr(Some(keep_name), (&raw mut names).cast()) };
    names
}

/// Keeps a name, and looks no further: the walk holds one of the loader's locks, which a thread that opens a library
/// waits for while it holds the other, the one that `dlopen` and `dlsym` wait for.
unsafe extern "C" fn keep_name(info: *mut libc::dl_phdr_info, _: usize, names: *mut c_void) -> c_int {
    // SAFETY: the loader gives a valid record, whose name is a C string or null.
    let name = unsafe { (*info).dlpi_name };
    if !name.is_null() {
        // SAFETY: as above; `names` is the vector of `objects`.
        unsafe { (*names.cast::<Vec<CString>>()).push(CStr::from_ptr(name).to_owned()) };
    }
    0
}

/// The slot of the open object of that name, if it exports one that we can use.
fn slot_of(name: &CStr) -> Option<*const PoolSlot> {
    // The program itself, whose exports are those of any object.
    if name.is_empty() {
        return None;
    }
    // SAFETY: with NOLOAD the object, if it is still open, only gains a reference, which is not given back where the
    // slot is used: a pool in use must stay. A symbol of this name is a `PoolSlot`, whose size is read before
    // anything else.
    unsafe {
        let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if handle.is_null() {
            return None;
        }
        let slot = libc::dlsym(handle, c"opsmith_thread_pool_v1".as_ptr()).cast::<PoolSlot>();
        if slot.is_null() || (*slot).size < size_of::<PoolSlot>() {
            libc::dlclose(handle);
            return None;
        }
        Some(slot)
    }
}

/// The pool that this library owns; null before first use and in a child that has not used it yet.
static POOL: AtomicPtr<ThreadPool> = AtomicPtr::new(null_mut());

unsafe extern "C" fn own_num_threads() -> usize {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    match COUNT.load(Ordering::Relaxed) {
        0 => {
            let asked = std::env::var(NUM_THREADS_VARIABLE).ok().and_then(|text| text.trim().parse().ok());
            let count = asked
                .filter(|&count: &usize| count > 0)
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, Into::into));
            COUNT.store(count, Ordering::Relaxed);
            count
        }
        count => count,
    }
}

unsafe extern "C" fn own_parallel_for(total: usize, grain: usize, body: RawBody, context: *mut c_void) {
    // SAFETY: the function has no preconditions.
    let threads = unsafe { own_num_threads() };
    let context = context as usize;
    // SAFETY: the caller promised that `body` takes any range within `0..total` with this context.
    let body = |range: Range<usize>| unsafe { body(range.start, range.end, context as *mut c_void) };
    let shared = SharedLoop::new(total, grain, threads, &body);
    let helpers = shared.workers(threads) - 1;
    let pool = if helpers == 0 { None } else { own_pool(threads) };
    let Some(pool) = pool else { return body(0..total) };
    // The caller works too, and the scope ends only when every helper has: nobody touches `shared` after that.
    pool.in_place_scope(|scope| {
        for helper in 1..=helpers {
            let shared = &shared;
            scope.spawn(move |_| shared.work(helper));
        }
        shared.work(0);
    });
}

/// The pool, made at first use; `None` when threads cannot be had, and then the caller works alone.
fn own_pool(threads: usize) -> Option<&'static ThreadPool> {
    let pool = POOL.load(Ordering::Acquire);
    if !pool.is_null() {
        // SAFETY: a published pool is never freed.
        return Some(unsafe { &*pool });
    }
    static FORK_HANDLER: Once = Once::new();
    // SAFETY: the handler only stores to an atomic, which is allowed between fork and exec.
    FORK_HANDLER.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(forget_pool));
    });
    let builder = ThreadPoolBuilder::new().num_threads(threads - 1);
    let made = Box::into_raw(Box::new(builder.thread_name(|i| format!("opsmith-{i}")).build().ok()?));
    match POOL.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: just published, never freed.
        Ok(_) => Some(unsafe { &*made }),
        Err(other) => {
            // SAFETY: `made` was not published, so nobody else has it.
            drop(unsafe { Box::from_raw(made) });
            // SAFETY: a published pool is never freed.
            Some(unsafe { &*other })
        }
    }
}

/// In a forked child the pool's threads are gone: the dead pool is leaked, and the next use makes another.
extern "C" fn forget_pool() {
    POOL.store(null_mut(), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    fn sum_to(total: usize, grain: usize) -> u64 {
        let sum = AtomicU64::new(0);
        parallel_for(total, grain, &|range| {
            sum.fetch_add(range.map(|i| i as u64).sum::<u64>(), Ordering::Relaxed);
        });
        sum.into_inner()
    }

    #[test]
    fn every_unit_is_done_once() {
        for total in [0, 1, 2, 7, 1000, 100_003] {
            for grain in [1, 3, 1000] {
                assert_eq!(sum_to(total, grain), (total as u64) * (total as u64).saturating_sub(1) / 2);
            }
        }
    }

    /// The two locks of the loader are taken in one order by who opens a library and by who looks for the slot.
    #[test]
    fn libraries_are_opened_while_the_slot_is_looked_for() {
        use std::sync::mpsc::channel;
        use std::time::Duration;

        let (done, finished) = channel();
        let open = || {
            for _ in 0..2000 {
                // SAFETY: an empty library of the C library's, which nothing else here uses.
                unsafe {
                    let handle = libc::dlopen(c"libutil.so.1".as_ptr(), libc::RTLD_NOW);
                    assert!(!handle.is_null());
                    libc::dlclose(handle);
                }
            }
        };
        let look = || (0..2000).for_each(|_| assert!(!first_slot().is_null()));
        for work in [Box::new(open) as Box<dyn Fn() + Send>, Box::new(look)] {
            let done = done.clone();
            std::thread::spawn(move || {
                work();
                done.send(()).unwrap();
            });
        }
        for _ in 0..2 {
            finished.recv_timeout(Duration::from_secs(60)).expect("both threads end");
        }
    }

    #[test]
    fn loops_nest_and_run_at_once() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    parallel_for(16, 1, &|range| {
                        for _ in range {
                            assert_eq!(sum_to(1000, 10), 499_500);
                        }
                    });
                });
            }
        });
    }
}
