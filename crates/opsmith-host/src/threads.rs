//! The threads of the process's pool, for those who share work that is not a kernel's: the engine, say.

use std::ops::Range;

use crate::pool;

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
