//! The first work of a thread for this library. The C library takes memory then, for the library's thread-local variables, and ends
//! the process where there is none: so loops go to threads only after there was some for all of them, and all have been told to
//! take it.

use std::cell::Cell;
use std::hint::black_box;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use opsmith_core::fork;

/// What a thread takes at its first work, at most: thread-local variables, and what the allocator keeps for it.
const FIRST_MEMORY: usize = 1 << 18;

/// One more than the process in which the pool's threads have been told to begin: a forked child has none of its parent's threads.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// Whether so many threads of the pool may work for this library. It is found out once in a process, and again where there was no
/// memory; `tell_all` has each thread of the pool call a function soon, and waits for none.
pub(crate) fn may_begin(threads: usize, tell_all: impl FnOnce(extern "C" fn())) -> bool {
    have_begun(&BEGUN, threads, tell_all)
}

fn have_begun(begun: &AtomicU64, threads: usize, tell_all: impl FnOnce(extern "C" fn())) -> bool {
    let process = fork::generation() + 1;
    if begun.load(Ordering::Relaxed) == process {
        return true;
    }
    if !has_room(threads.saturating_mul(FIRST_MEMORY)) {
        return false;
    }
    if begun.swap(process, Ordering::Relaxed) != process {
        tell_all(begin);
    }
    true
}

/// Takes what the calling thread takes at its first work: one thread-local variable brings the memory of all.
extern "C" fn begin() {
    thread_local!(static FIRST: Cell<bool> = const { Cell::new(false) });
    FIRST.set(black_box(true));
    black_box(Vec::<u8>::with_capacity(1));
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
    fn threads_are_told_once_and_where_there_is_memory_for_all() {
        let (begun, mut told) = (AtomicU64::new(0), 0);
        let mut asked = |threads| have_begun(&begun, threads, |_| told += 1);
        assert!(!asked(1 << 44), "there is no memory for so many");
        assert!(asked(2) && asked(2) && asked(1 << 44), "it is looked for once");
        assert_eq!(told, 1);
    }
}
