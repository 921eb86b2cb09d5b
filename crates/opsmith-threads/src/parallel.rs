//! Parallel loops: one way to share work among threads, whoever they belong to.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The body of a parallel loop.
pub type Body<'a> = &'a (dyn Fn(Range<usize>) + Sync);

/// The context to pass beside [`call_body`].
pub fn body_context(body: &Body<'_>) -> *mut c_void {
    std::ptr::from_ref(body).cast_mut().cast()
}

/// Calls the body behind `context` on a range.
///
/// # Safety
/// `context` must come from [`body_context`] of a body that is still alive.
pub unsafe extern "C" fn call_body(begin: usize, end: usize, context: *mut c_void) {
    // SAFETY: promised by the caller.
    let body = unsafe { &*context.cast::<Body<'_>>() };
    body(begin..end);
}

/// Chunks for each worker: enough that one which starts late, or is held up, leaves its share to the others.
const CHUNKS_PER_WORKER: usize = 4;

/// The size of the chunks in which at most `threads` workers share a loop, `grain` or more.
pub fn chunk_size(total: usize, grain: usize, threads: usize) -> usize {
    let chunks = total.div_ceil(grain.max(1)).min(threads * CHUNKS_PER_WORKER).max(1);
    total.div_ceil(chunks).max(1)
}

/// The most shares that a loop is cut into; more workers begin at shares that others have too.
const SHARES: usize = 16;

/// A loop that several workers share: each takes the chunks of its own share, then what is left of the others'.
///
/// So a worker which is held up does not hold up the loop, and one that is not finds in its caches what it had there the
/// last time: the part of a model's weights, say, that it has multiplied with before.
pub struct SharedLoop<'a> {
    body: Body<'a>,
    total: usize,
    chunk: usize,
    shares: usize,
    /// For each share, how many of its chunks are taken.
    taken: [AtomicUsize; SHARES],
}

impl<'a> SharedLoop<'a> {
    /// The loop over `0..total` in chunks of at least `grain`, for at most `threads` workers.
    pub fn new(total: usize, grain: usize, threads: usize, body: Body<'a>) -> SharedLoop<'a> {
        let chunk = chunk_size(total, grain, threads);
        let shares = workers(total, chunk, threads).min(SHARES);
        SharedLoop { body, total, chunk, shares, taken: [const { AtomicUsize::new(0) }; SHARES] }
    }

    /// How many workers have something to do when `threads` are to be had.
    pub fn workers(&self, threads: usize) -> usize {
        workers(self.total, self.chunk, threads)
    }

    /// Has the worker with this number work until no chunk is left.
    pub fn work(&self, worker: usize) {
        let chunks = self.total.div_ceil(self.chunk);
        for share in (worker..worker + self.shares).map(|share| share % self.shares) {
            let first_of = |share: usize| share * chunks / self.shares;
            loop {
                let index = first_of(share) + self.taken[share].fetch_add(1, Ordering::Relaxed);
                if index >= first_of(share + 1) {
                    break;
                }
                let begin = index * self.chunk;
                (self.body)(begin..self.total.min(begin + self.chunk));
            }
        }
    }
}

fn workers(total: usize, chunk: usize, threads: usize) -> usize {
    total.div_ceil(chunk).min(threads).max(1)
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
            shared.work(0);
            let ranges = ranges.into_inner().unwrap();
            assert!(ranges.iter().rev().skip(1).all(|range| range.len() >= grain));
            assert_eq!(ranges.into_iter().flatten().collect::<Vec<_>>(), (0..total).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_worker_begins_with_its_own_share_and_takes_what_is_left() {
        let starts = Mutex::new(Vec::new());
        let body = |range: Range<usize>| starts.lock().unwrap().push(range.start);
        let shared = SharedLoop::new(80, 10, 2, &body);
        shared.work(1);
        shared.work(0);
        assert_eq!(starts.into_inner().unwrap(), [40, 50, 60, 70, 0, 10, 20, 30]);
        let count = AtomicUsize::new(0);
        let body = |range: Range<usize>| _ = count.fetch_add(range.len(), Ordering::Relaxed);
        let shared = SharedLoop::new(1000, 1, 3 * SHARES, &body);
        (0..shared.workers(3 * SHARES)).rev().for_each(|worker| shared.work(worker));
        assert_eq!(count.into_inner(), 1000);
    }
}
