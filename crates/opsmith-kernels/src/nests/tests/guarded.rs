//! Memory between pages that nobody may touch, and a caller that lends such memory.

use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use opsmith_core::kernel::Services;
use opsmith_core::{DType, Error, Result};

const PAGE: usize = 4096;

/// What memory is full of at first: of floats NaN or large, none that is computed.
pub(super) const FILL: u8 = 0xfd;

/// So many bytes.
pub(super) struct Guarded {
    base: *mut libc::c_void,
    mapped: usize,
    data: *mut u8,
    bytes: usize,
}

// SAFETY: it is memory as any other.
unsafe impl Send for Guarded {}

impl Guarded {
    /// At the end of its pages, so that nothing behind it can be read, or else at their beginning.
    pub(super) fn new(bytes: usize, is_at_end: bool) -> Self {
        let inner = bytes.next_multiple_of(PAGE).max(PAGE);
        let mapped = inner + 2 * PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory, of which the inner pages are made accessible and filled.
        unsafe {
            let base = libc::mmap(ptr::null_mut(), mapped, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            let first = base.cast::<u8>().add(PAGE);
            assert_eq!(libc::mprotect(first.cast(), inner, libc::PROT_READ | libc::PROT_WRITE), 0);
            first.write_bytes(FILL, inner);
            let data = first.add(if is_at_end { inner - bytes } else { 0 });
            Guarded { base, mapped, data, bytes }
        }
    }

    pub(super) fn data(&self) -> *mut u8 {
        self.data
    }

    /// What is in it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        // SAFETY: there are so many, and nobody writes to them while tests look.
        unsafe { std::slice::from_raw_parts(self.data, self.bytes).to_vec() }
    }

    /// Whether nothing was written around it.
    pub(super) fn is_clean_around(&self) -> bool {
        let (first, count) = (self.base.cast::<u8>().wrapping_add(PAGE), self.mapped - 2 * PAGE);
        // SAFETY: the inner pages.
        let all = unsafe { std::slice::from_raw_parts(first, count) };
        let before = self.data as usize - first as usize;
        all[..before].iter().chain(&all[before + self.bytes..]).all(|byte| *byte == FILL)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: it was mapped so.
        unsafe { libc::munmap(self.base, self.mapped) };
    }
}

/// So many threads, and temporary memory.
pub(super) struct Threads {
    count: usize,
    lent: Mutex<Vec<Guarded>>,
}

impl Threads {
    pub(super) fn new(count: usize) -> Self {
        Threads { count, lent: Mutex::default() }
    }
}

// SAFETY: memory is kept until the caller is dropped, and the scope ends when all ranges are done.
unsafe impl Services for Threads {
    fn allocate_output(&self, _: usize, _: DType, _: &[usize]) -> Result<*mut u8> {
        Err(Error::internal("no outputs here"))
    }

    fn allocate_temp(&self, bytes: usize) -> Result<NonNull<u8>> {
        let memory = Guarded::new(bytes.next_multiple_of(64), true);
        let data = memory.data();
        self.lent.lock().unwrap().push(memory);
        NonNull::new(data).ok_or_else(|| Error::internal("no memory"))
    }

    fn keep_string(&self, _: &[u8]) -> Result<NonNull<u8>> {
        Err(Error::internal("no strings here"))
    }

    fn num_threads(&self) -> usize {
        self.count
    }

    fn parallel_for(&self, total: usize, _: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
        let step = total.div_ceil(self.count + 2);
        std::thread::scope(|scope| {
            for begin in (0..total).step_by(step) {
                scope.spawn(move || body(begin..total.min(begin + step)));
            }
        });
    }
}
