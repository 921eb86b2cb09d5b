//! Our own thread pool, for callers that lend none: one a process however many libraries are open, and safe to
//! use in a forked child.
//!
//! Every library exports the slot `opsmith_thread_pool_v1`. The pool of the process is that of the first object, in
//! the order in which objects were opened, that exports one: all libraries come to the same answer without a lock.

use std::ffi::{CStr, CString, c_int, c_void};
use std::io::Write;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use opsmith_core::fork;
use rayon_core::{ThreadPool, ThreadPoolBuilder};

use crate::first_work;
use crate::parallel::{Body, SharedLoop, body_context, call_body};

/// The environment variable that sizes the pool.
pub const NUM_THREADS_VARIABLE: &str = "OPSMITH_NUM_THREADS";

/// The stack of a thread of the pool.
const STACK: usize = 2 << 20;

/// What a thread of the pool takes before it works: its stack, and what its first call takes.
const THREAD: usize = STACK + (1 << 18);

/// The addresses that the allocator of the GNU C library sets aside for a thread, for up to eight threads a core.
const ARENA: usize = 64 << 20;

/// The most threads that the variable can ask for where there are fewer cores: a loop that wakes more takes milliseconds for that.
const MOST_THREADS: usize = 256;

type RawBody = unsafe extern "C" fn(begin: usize, end: usize, context: *mut c_void);

/// What a library publishes of its pool. The layout is fixed; fields may be added at the end.
#[repr(C)]
pub struct PoolSlot {
    /// `sizeof(PoolSlot)`.
    size: usize,
    num_threads: unsafe extern "C" fn() -> usize,
    parallel_for: unsafe extern "C" fn(total: usize, grain: usize, body: RawBody, context: *mut c_void),
    /// Has each thread of the pool call `body`, which must stay loaded, when it next looks for work, and waits for none: one may
    /// hold what another waits for.
    tell_all: unsafe extern "C" fn(body: extern "C" fn()),
}

/// This library's slot.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static opsmith_thread_pool_v1: PoolSlot = PoolSlot {
    size: size_of::<PoolSlot>(),
    num_threads: own_num_threads,
    parallel_for: own_parallel_for,
    tell_all: own_tell_all,
};

/// How many threads [`parallel_for`] uses, the calling one included: `OPSMITH_NUM_THREADS` where it is set to a number from 1 to
/// [`MOST_THREADS`] or that of the cores, else as many as the machine lets the process use.
pub(crate) fn num_threads() -> usize {
    // SAFETY: a slot's functions may be called from any thread.
    unsafe { (slot().num_threads)() }
}

/// Calls `body` on ranges that cover `0..total`, each of at least `grain` units but the last, and returns when all
/// are done. `body` must not unwind.
pub(crate) fn parallel_for(total: usize, grain: usize, body: Body<'_>) {
    let tell_all = |begin: extern "C" fn()| {
        crate::stay_loaded();
        // SAFETY: a slot's functions may be called from any thread, and `begin` stays where it is.
        unsafe { (slot().tell_all)(begin) }
    };
    let others = num_threads() - 1;
    if total <= grain || others == 0 || !first_work::may_begin(others, tell_all) {
        return body(0..total);
    }
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
    // The lock of the walk is not freed in a forked child.
    let _section = fork::section();
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

/// The pool that this library owns; null before first use.
static POOL: AtomicPtr<Own> = AtomicPtr::new(null_mut());

/// A pool, and the process that has its threads; none where it could not have any.
struct Own {
    generation: u64,
    pool: Option<ThreadPool>,
}

unsafe extern "C" fn own_num_threads() -> usize {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    match COUNT.load(Ordering::Relaxed) {
        0 => {
            let given = std::env::var_os(NUM_THREADS_VARIABLE).unwrap_or_default();
            let given = given.to_string_lossy();
            let cores = std::thread::available_parallelism().map_or(1, Into::into);
            let (count, warning) = threads_for(given.trim(), cores);
            if COUNT.swap(count, Ordering::Relaxed) == 0
                && let Some(warning) = warning
            {
                // Not `eprintln!`, which panics where standard error is a closed pipe.
                let _ = writeln!(std::io::stderr(), "opsmith: {warning}");
            }
            count
        }
        count => count,
    }
}

/// How many threads a value of the variable gives on so many cores, and what is wrong with it.
fn threads_for(given: &str, cores: usize) -> (usize, Option<String>) {
    let most = MOST_THREADS.max(cores);
    match given.parse() {
        Ok(count) if (1..=most).contains(&count) => (count, None),
        _ if given.is_empty() => (cores, None),
        _ => {
            let what =
                format!("{NUM_THREADS_VARIABLE}={given:?} is not a number of threads, from 1 to {most}");
            (cores, Some(format!("{what}: {cores} are used")))
        }
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

unsafe extern "C" fn own_tell_all(body: extern "C" fn()) {
    // SAFETY: the function has no preconditions.
    if let Some(pool) = own_pool(unsafe { own_num_threads() }) {
        pool.spawn_broadcast(move |_| body());
    }
}

/// The pool, made at first use in a process; `None` when no threads can be had, and then callers work alone. In a forked child the
/// threads of the former pool are gone: that is leaked, and another one made.
fn own_pool(threads: usize) -> Option<&'static ThreadPool> {
    static MAKING: fork::Turn = fork::Turn::new();
    known_pool().unwrap_or_else(|| {
        let _turn = MAKING.take();
        known_pool().unwrap_or_else(|| {
            let own = Own { generation: fork::generation(), pool: new_pool(threads - 1) };
            let own: &'static Own = Box::leak(Box::new(own));
            POOL.store(std::ptr::from_ref(own).cast_mut(), Ordering::Release);
            own.pool.as_ref()
        })
    })
}

/// The pool of this process, or that it has none, where that has been found out.
fn known_pool() -> Option<Option<&'static ThreadPool>> {
    // SAFETY: a published pool is never freed.
    let own = unsafe { POOL.load(Ordering::Acquire).as_ref() }?;
    (own.generation == fork::generation()).then_some(own.pool.as_ref())
}

/// A pool of as many workers as there is room for: that many, or the half, or the half of that.
fn new_pool(workers: usize) -> Option<ThreadPool> {
    let halves = std::iter::successors(Some(workers), |workers| Some(workers / 2));
    halves.take_while(|workers| *workers > 0).find_map(|workers| {
        if !first_work::has_room(room_for(workers)) {
            return None;
        }
        let _section = fork::section();
        let builder = ThreadPoolBuilder::new().num_threads(workers).stack_size(STACK);
        let pool = builder.thread_name(|i| format!("opsmith-{i}")).build().ok()?;
        // The first work of the first pool makes what all pools have, behind a lock that a fork knows nothing of; and all threads
        // begin here, not later, when there may be no memory left for it.
        pool.broadcast(|_| ());
        Some(pool)
    })
}

/// What there should be for so many workers: what they take, and as much for the process beside them.
fn room_for(workers: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, Into::into);
    2 * workers * THREAD + workers.min(8 * cores) * ARENA
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
    fn a_number_of_threads_that_cannot_be_is_told_and_replaced() {
        for (given, count) in [("", 6), ("1", 1), ("3", 3), ("256", 256)] {
            assert_eq!(threads_for(given, 6), (count, None), "{given:?}");
        }
        assert_eq!(threads_for("300", 384), (300, None));
        for given in ["0", "-3", "two", "1.5", "4 cores", "257", "99999", "99999999999999999999999"] {
            let (threads, warning) = threads_for(given, 6);
            let warning = warning.expect(given);
            assert_eq!(threads, 6, "{given:?}");
            assert!(warning.contains(given) && warning.ends_with("256: 6 are used"), "{warning}");
        }
    }

    #[test]
    fn a_pool_has_as_many_threads_as_there_is_room_for() {
        assert!(new_pool(0).is_none());
        let limited = |room: usize| {
            let mut status = 0;
            // SAFETY: the child only makes a pool under a limit of its own, and ends without a return from here.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    let all = libc::rlimit { rlim_cur: used() + room as u64, rlim_max: libc::RLIM_INFINITY };
                    libc::setrlimit(libc::RLIMIT_AS, &all);
                    libc::_exit(new_pool(100).map_or(0, |pool| pool.current_num_threads()) as i32);
                }
                libc::waitpid(child, &mut status, 0);
            }
            libc::WEXITSTATUS(status)
        };
        assert_eq!(limited(0), 0);
        assert_eq!(limited(room_for(13)), 12);
        assert_eq!(limited(room_for(101)), 100);
    }

    /// How many bytes of addresses the process has.
    fn used() -> u64 {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
    }

    #[test]
    fn every_thread_of_the_pool_is_told() {
        static TOLD: AtomicUsize = AtomicUsize::new(0);
        extern "C" fn tell() {
            TOLD.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: a slot's functions may be called from any thread.
        unsafe { own_tell_all(tell) };
        let threads = own_pool(num_threads()).map_or(0, ThreadPool::current_num_threads);
        let begin = std::time::Instant::now();
        while TOLD.load(Ordering::Relaxed) < threads {
            assert!(begin.elapsed() < std::time::Duration::from_secs(60));
            std::thread::yield_now();
        }
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
