//! Locks for processes that fork.
//!
//! A forked child has one thread. What other threads held stays held there for ever, and what they were changing stays half
//! changed. So whatever is shared by threads is behind one of these:
//!
//! - [`Mutex`] and [`RwLock`] are held for a short [`section`], in which no fork happens: a fork waits until no thread is in
//!   one. What holds them waits for nothing, calls nobody's code and drops nobody's values: not a kernel's, not a driver's, no
//!   Python object's. Whoever forks may hold Python's lock, and other libraries have sections of their own.
//! - [`Turn`] keeps long work to one thread at a time. A fork does not wait for it, and in the child it is free.
//! - [`OnceLock`] is made by one thread at a time. What was being made at a fork is made again in the child.
//!
//! Each shared object that carries this crate has sections and handlers of its own.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// How many counters of sections there are, so that threads seldom share one.
const COUNTERS: usize = 16;

/// How long a thread sleeps before it looks again whether a fork is over, or may begin.
const PAUSE: Duration = Duration::from_micros(20);

/// How many threads are in a section, alone in a line of the cache.
#[repr(align(128))]
struct Counter(AtomicUsize);

static INSIDE: [Counter; COUNTERS] = [const { Counter(AtomicUsize::new(0)) }; COUNTERS];

/// How many threads are forking.
static FORKING: AtomicUsize = AtomicUsize::new(0);

/// How many forks lie between the process that loaded this object and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// What a thread knows of its sections.
struct Here {
    /// How many it is in; they nest.
    depth: Cell<usize>,
    /// Its counter, and one more; 0 before its first section.
    counter: Cell<usize>,
}

thread_local! {
    static HERE: Here = const { Here { depth: Cell::new(0), counter: Cell::new(0) } };
}

/// A part of a thread's work in which no fork happens; see the module.
#[must_use = "it ends when it is dropped"]
pub struct Section(PhantomData<*const ()>);

/// Begins a section. Where a thread is forking it waits for that, unless this thread is in a section already.
pub fn section() -> Section {
    HERE.with(|here| {
        if here.depth.get() == 0 {
            enter(&here.own().0);
        }
        here.depth.set(here.depth.get() + 1);
    });
    Section(PhantomData)
}

impl Drop for Section {
    fn drop(&mut self) {
        HERE.with(|here| {
            here.depth.set(here.depth.get() - 1);
            if here.depth.get() == 0 {
                here.own().0.fetch_sub(1, Ordering::Release);
            }
        });
    }
}

impl Here {
    fn own(&self) -> &'static Counter {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        if self.counter.get() == 0 {
            self.counter.set(1 + NEXT.fetch_add(1, Ordering::Relaxed) % COUNTERS);
        }
        &INSIDE[self.counter.get() - 1]
    }
}

fn enter(counter: &AtomicUsize) {
    loop {
        // Counted before it is looked at: either the fork sees the section, or the section the fork.
        counter.fetch_add(1, Ordering::SeqCst);
        if FORKING.load(Ordering::SeqCst) == 0 {
            return;
        }
        counter.fetch_sub(1, Ordering::SeqCst);
        while FORKING.load(Ordering::SeqCst) != 0 {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Has the C library call the handlers, from when the object is loaded: before any thread can be in a section.
#[used]
#[unsafe(link_section = ".init_array")]
static WATCH: extern "C" fn() = {
    extern "C" fn watch() {
        // SAFETY: the handlers only use atomics, sleep, and read a thread's variable that needs no making.
        unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
    }
    watch
};

/// Waits until no other thread is in a section.
extern "C" fn before() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    HERE.with(|here| {
        let own = (here.depth.get() > 0).then(|| here.own());
        for counter in &INSIDE {
            let mine = usize::from(own.is_some_and(|own| std::ptr::eq(own, counter)));
            while counter.0.load(Ordering::SeqCst) > mine {
                std::thread::sleep(PAUSE);
            }
        }
    });
}

extern "C" fn after_in_parent() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// Forgets the other threads: those that looked in at a counter, and those that were forking too.
extern "C" fn after_in_child() {
    HERE.with(|here| {
        INSIDE.iter().for_each(|counter| counter.0.store(0, Ordering::SeqCst));
        if here.depth.get() > 0 {
            here.own().0.store(1, Ordering::SeqCst);
        }
    });
    GENERATION.fetch_add(1, Ordering::SeqCst);
    FORKING.store(0, Ordering::SeqCst);
}

/// How many forks lie between the process that loaded this object and this one: it differs in a child.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// What a lock guards, for as long as it is held. A holder that panicked does not matter: what these locks guard is left
/// consistent at every step.
pub struct Guard<G> {
    // Let go of before the section ends.
    guard: G,
    _section: Section,
}

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// A mutex that is held for a [`section`].
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex that guards `value`.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    /// Waits until nobody else has it.
    pub fn lock(&self) -> Guard<MutexGuard<'_, T>> {
        let _section = section();
        Guard { guard: self.0.lock().unwrap_or_else(PoisonError::into_inner), _section }
    }
}

/// A lock that many read or one writes, held for a [`section`]. A thread that reads must not read again.
#[derive(Debug, Default)]
pub struct RwLock<T>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock that guards `value`.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(std::sync::RwLock::new(value))
    }

    /// Waits until nobody writes.
    pub fn read(&self) -> Guard<RwLockReadGuard<'_, T>> {
        let _section = section();
        Guard { guard: self.0.read().unwrap_or_else(PoisonError::into_inner), _section }
    }

    /// Waits until nobody reads or writes.
    pub fn write(&self) -> Guard<RwLockWriteGuard<'_, T>> {
        let _section = section();
        Guard { guard: self.0.write().unwrap_or_else(PoisonError::into_inner), _section }
    }
}

/// Lets one thread at a time do something long. It guards no value: what the work changes is behind a lock of its own, changed in
/// one step at the end. In a forked child it is free, whoever had it.
#[derive(Debug, Default)]
pub struct Turn(AtomicPtr<Queue>);

/// Where the threads of one process wait.
struct Queue {
    generation: u64,
    mutex: std::sync::Mutex<()>,
}

impl Turn {
    /// A turn that nobody has.
    pub const fn new() -> Turn {
        Turn(AtomicPtr::new(null_mut()))
    }

    /// Waits until nobody else of this process has it.
    pub fn take(&self) -> MutexGuard<'_, ()> {
        self.queue().mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> &Queue {
        let known = self.0.load(Ordering::Acquire);
        let generation = generation();
        // SAFETY: a queue is freed with the turn, and one of another process never.
        if let Some(queue) = unsafe { known.as_ref() }
            && queue.generation == generation
        {
            return queue;
        }
        let new = Box::into_raw(Box::new(Queue { generation, mutex: std::sync::Mutex::new(()) }));
        match self.0.compare_exchange(known, new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: as above.
            Ok(_) => unsafe { &*new },
            Err(other) => {
                // SAFETY: nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: as above; only a fork makes it an old one, and this thread has not forked.
                unsafe { &*other }
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let queue = *self.0.get_mut();
        if !queue.is_null() {
            // SAFETY: it came from a box, and who takes a turn borrows it.
            drop(unsafe { Box::from_raw(queue) });
        }
    }
}

/// A value that is made once, by one thread at a time. Where a fork happens while it is made, the child makes it again.
#[derive(Debug, Default)]
pub struct OnceLock<T> {
    cell: std::sync::OnceLock<T>,
    turn: Turn,
}

impl<T> OnceLock<T> {
    /// One that is not made yet.
    pub const fn new() -> OnceLock<T> {
        OnceLock { cell: std::sync::OnceLock::new(), turn: Turn::new() }
    }

    /// The value, where it has been made.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.cell.get()
    }

    /// The value, made by `make` where it is not yet. `make` may do anything but ask for this value.
    #[inline]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        match self.cell.get() {
            Some(value) => value,
            None => self.init(make),
        }
    }

    #[cold]
    fn init(&self, make: impl FnOnce() -> T) -> &T {
        let _turn = self.turn.take();
        match self.cell.get() {
            Some(value) => value,
            None => set_or_get(&self.cell, make()),
        }
    }
}

/// What a cell has, which is `value` where it had nothing.
pub fn set_or_get<T>(cell: &std::sync::OnceLock<T>, value: T) -> &T {
    let mut value = Some(value);
    let section = section();
    // A value that comes too late is dropped after the section.
    let found = cell.get_or_init(|| value.take().unwrap_or_else(|| unreachable!("a cell is filled once")));
    drop(section);
    found
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;

    /// Whether a forked child does `body`, and it is true there, within ten seconds.
    fn in_child(body: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child ends without a return from here; what it calls is what is tested.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork failed");
        if child == 0 {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(false);
            // SAFETY: it runs no destructors of the parent's.
            unsafe { libc::_exit(i32::from(!done)) };
        }
        let (begin, mut status) = (Instant::now(), 0);
        // SAFETY: the pointer is to a local of the right type, and the child is this process's.
        while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
            if begin.elapsed() > Duration::from_secs(10) {
                // SAFETY: as above.
                unsafe { (libc::kill(child, libc::SIGKILL), libc::waitpid(child, &mut status, 0)) };
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        status == 0
    }

    /// Runs `during` while another thread is in `body`, which is given what it waits for to end.
    fn beside<R>(body: impl FnOnce(&dyn Fn()) + Send, during: impl FnOnce() -> R) -> R {
        let ((begun, has_begun), (end, ended)) = (channel(), channel());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                body(&|| {
                    begun.send(()).unwrap();
                    ended.recv().unwrap();
                });
            });
            has_begun.recv().unwrap();
            let result = during();
            end.send(()).unwrap();
            result
        })
    }

    #[test]
    fn a_turn_is_free_in_a_child() {
        let turn = Turn::new();
        let hold = |wait: &dyn Fn()| {
            let _turn = turn.take();
            wait();
        };
        assert!(beside(hold, || in_child(|| {
            let _turn = turn.take();
            // Of a child of the child as well.
            std::thread::scope(|scope| scope.spawn(|| generation() == 1).join().unwrap())
        })));
        drop(turn.take());
    }

    #[test]
    fn what_was_being_made_is_made_again_in_a_child() {
        let made = OnceLock::new();
        let hold = |wait: &dyn Fn()| {
            made.get_or_init(|| {
                wait();
                1
            });
        };
        assert!(beside(hold, || in_child(|| *made.get_or_init(|| 2) == 2)));
        assert_eq!(made.get(), Some(&1));
    }

    #[test]
    fn a_fork_waits_for_the_sections_of_other_threads_and_not_for_its_own() {
        let mutex = Arc::new(Mutex::new(vec![0; 3]));
        let stop = Arc::new(AtomicBool::new(false));
        let busy: Vec<_> = (0..4)
            .map(|_| {
                let (mutex, stop) = (mutex.clone(), stop.clone());
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let mut all = mutex.lock();
                        let nested = section();
                        all.iter_mut().for_each(|one| *one += 1);
                        std::hint::black_box(vec![0u8; 100]);
                        drop(all);
                        drop(nested);
                    }
                })
            })
            .collect();
        let whole = || mutex.lock().windows(2).all(|two| two[0] == two[1]);
        for _ in 0..200 {
            assert!(in_child(whole));
        }
        stop.store(true, Ordering::Relaxed);
        busy.into_iter().for_each(|thread| thread.join().unwrap());
        let _own = section();
        assert!(in_child(whole));
    }
}
