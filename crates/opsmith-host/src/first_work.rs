//! The first work of a thread for this library. The C library takes memory then, for the library's thread-local variables, and ends
//! the process where there is none: so loops go to threads only where there is some.

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use opsmith_core::fork;

/// What a thread takes at its first work, at most: thread-local variables, and what the allocator keeps for it.
const FIRST_MEMORY: usize = 1 << 18;

/// How many threads of the pool have worked for this library, and behind them, shifted, in which process: a forked child has none of
/// its parent's threads.
static KNOWN: AtomicU64 = AtomicU64::new(0);

/// Where the process stands in [`KNOWN`].
const PROCESS: u32 = 32;

thread_local! {
    /// One more than the process in which this thread has worked.
    static WORKED: Cell<u64> = const { Cell::new(0) };
}

/// Whether so many threads of the pool may work for this library: all have before, or there is memory for those that have not.
pub(crate) fn may_begin(threads: usize) -> bool {
    // It works itself, and is none of the pool's as far as this library knows.
    WORKED.set(fork::generation() + 1);
    let known = known(fork::generation());
    known >= threads || has_room((threads - known).saturating_mul(FIRST_MEMORY))
}

fn known(process: u64) -> usize {
    let known = KNOWN.load(Ordering::Relaxed);
    if known >> PROCESS == process { (known & ((1 << PROCESS) - 1)) as usize } else { 0 }
}

/// Notes that the calling thread works.
pub(crate) fn note() {
    let process = fork::generation();
    if WORKED.replace(process + 1) != process + 1 {
        let counted = |_| Some(process << PROCESS | (known(process) as u64 + 1));
        // It always succeeds.
        let _ = KNOWN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted);
    }
}

/// Whether the process may have so many bytes more.
pub(crate) fn has_room(bytes: usize) -> bool {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory is asked for, which nobody uses, and given back.
    unsafe {
        let room = libc::mmap(null_mut(), bytes, access, kind, -1, 0);
        room != libc::MAP_FAILED && libc::munmap(room, bytes) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_counted_once_and_new_ones_need_memory() {
        assert!(may_begin(2) && !may_begin(1 << 44), "there is no memory for so many");
        let before = known(fork::generation());
        note();
        assert_eq!(known(fork::generation()), before, "who runs a loop is none of the pool's");
        std::thread::spawn(|| (note(), note())).join().unwrap();
        assert!(known(fork::generation()) > before);
    }
}
