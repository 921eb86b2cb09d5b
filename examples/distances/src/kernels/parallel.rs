//! Threads as the kernels see them.

use std::ops::Range;

use opsmith::Compute;

/// Arithmetic operations that a core does in a nanosecond, roughly: they are vectors of 16.
const OPERATIONS_PER_NANOSECOND: usize = 16;

/// A pool that runs the parts of a range; in an op the context's `parallel_for`.
pub(crate) trait Parallel {
    /// The number of threads that may work at once.
    fn threads(&self) -> usize;
    /// Calls `body` on disjoint ranges that cover `0..total`; `cost_per_unit` is in arithmetic operations.
    fn parallel_for(&self, total: usize, cost_per_unit: usize, body: &(dyn Fn(Range<usize>) + Sync));
}

impl Parallel for Compute<'_> {
    fn threads(&self) -> usize {
        self.num_threads()
    }

    fn parallel_for(&self, total: usize, cost_per_unit: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
        Compute::parallel_for(self, total, cost_per_unit / OPERATIONS_PER_NANOSECOND, body);
    }
}

/// An output that several threads write, each its own part.
#[derive(Clone, Copy)]
pub(crate) struct Output<T>(pub *mut T);

// SAFETY: the kernels give every thread parts of the output that no other thread touches.
unsafe impl<T: Send> Send for Output<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Output<T> {}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// One part per unit: on this thread where `0` is 1, else on threads of their own.
    pub(crate) struct Threads(pub usize);

    impl Parallel for Threads {
        fn threads(&self) -> usize {
            self.0
        }
        fn parallel_for(&self, total: usize, _: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
            if self.0 == 1 {
                return if total > 0 {
                    body(0..total)
                };
            }
            std::thread::scope(|scope| {
                for part in 0..self.0 {
                    scope.spawn(move || body(part * total / self.0..(part + 1) * total / self.0));
                }
            });
        }
    }

    /// Numbers between −1 and 1 that look random.
    pub(crate) fn noise(len: usize, seed: u64) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..len).map(|_| next()).collect()
    }

    /// Sizes with every kind of remainder: rows, columns, vectors, blocks; and empty ones.
    pub(crate) const SIZES: [[usize; 3]; 12] = [
        [0, 3, 4],
        [3, 0, 4],
        [5, 7, 0],
        [1, 1, 1],
        [1, 70, 33],
        [2, 3, 300],
        [4, 4, 23],
        [25, 5, 24],
        [13, 67, 129],
        [50, 131, 40],
        [61, 64, 260],
        [300, 9, 17],
    ];
}
