//! Parallel loops: one way to share work among threads, whoever they belong to.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The body of a parallel loop.
pub(crate) type Body<'a> = &'a (dyn Fn(Range<usize>) + Sync);

/// The context to pass beside [`call_body`].
pub(crate) fn body_context(body: &Body<'_>) -> *mut c_void {
    std::ptr::from_ref(body).cast_mut().cast()
}

/// Calls the body behind `context` on a range.
///
/// # Safety
/// `context` must come from [`body_context`] of a body that is still alive.
pub(crate) unsafe extern "C" fn call_body(begin: usize, end: usize, context: *mut c_void) {
    // SAFETY: promised by the caller.
    let body = unsafe { &*context.cast::<Body<'_>>() };
    body(begin..end);
}

/// Chunks for each worker: enough that one which starts late, or is held up, leaves its share to the others.
const CHUNKS_PER_WORKER: usize = 4;

/// The size of the chunks in which at most `threads` workers share a loop, `grain` or more.
pub(crate) fn chunk_size(total: usize, grain: usize, threads: usize) -> usize {
    let chunks = total.div_ceil(grain.max(1)).min(threads * CHUNKS_PER_WORKER).max(1);
    total.div_ceil(chunks).max(1)
}

/// A loop that several workers share: each takes the next chunk until none is left.
pub(crate) struct SharedLoop<'a> {
    body: Body<'a>,
    total: usize,
    chunk: usize,
    next: AtomicUsize,
}

impl<'a> SharedLoop<'a> {
    /// The loop over `0..total` in chunks of at least `grain`, for at most `threads` workers.
    pub(crate) fn new(total: usize, grain: usize, threads: usize, body: Body<'a>) -> SharedLoop<'a> {
        SharedLoop { body, total, chunk: chunk_size(total, grain, threads), next: AtomicUsize::new(0) }
    }

    /// How many workers have something to do when `threads` are to be had.
    pub(crate) fn workers(&self, threads: usize) -> usize {
        self.total.div_ceil(self.chunk).min(threads).max(1)
    }

    /// Works until no chunk is left.
    pub(crate) fn work(&self) {
        loop {
            let begin = self.next.fetch_add(self.chunk, Ordering::Relaxed);
            if begin >= self.total {
                return;
            }
            (self.body)(begin..self.total.min(begin + self.chunk));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn chunks_cover_the_loop_once_and_keep_to_the_grain() {
        for (total, grain, threads) in [(0, 1, 2), (1, 1, 2), (10, 3, 2), (1000, 7, 3), (5, 100, 16)] {
            let ranges = Mutex::new(Vec::new());
            let body = |range: Range<usize>| ranges.lock().unwrap().push(range);
            let shared = SharedLoop::new(total, grain, threads, &body);
            assert!(shared.workers(threads) <= threads);
            shared.work();
            let ranges = ranges.into_inner().unwrap();
            assert!(ranges.iter().rev().skip(1).all(|range| range.len() >= grain));
            assert_eq!(ranges.into_iter().flatten().collect::<Vec<_>>(), (0..total).collect::<Vec<_>>());
        }
    }
}
