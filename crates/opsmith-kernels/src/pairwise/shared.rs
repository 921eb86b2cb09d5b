//! What the loops over pairs of rows share.

use opsmith_body::Fold;
use opsmith_body::Plain;
use opsmith_core::Compute;

use crate::stored::Wide;

/// Rows of `x`, rows of `y`, and the elements of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) n: usize,
    pub(crate) m: usize,
    pub(crate) p: usize,
}

/// Elements that several threads write, each its own.
pub(crate) struct Shared<T> {
    data: *mut T,
    len: usize,
}

// SAFETY: `slice` is unsafe, and who calls it promises that nobody else has the elements.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(elements: &mut [T]) -> Self {
        Shared { data: elements.as_mut_ptr(), len: elements.len() }
    }

    /// Some of the elements.
    ///
    /// # Safety
    /// The slice that this was made of is still borrowed, and nobody else has these elements.
    ///
    /// # Panics
    /// If there are no such elements.
    #[allow(clippy::mut_from_ref, reason = "that is what it is for")]
    pub(crate) unsafe fn slice(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start <= self.len && len <= self.len - start, "the elements are there");
        // SAFETY: they are there, and nobody else's, as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(start), len) }
    }
}

/// Writes the sum of the parts that `parts` consists of, in their order.
pub(crate) fn add_parts<T: Wide>(cx: &Compute<'_>, sums: &mut [T], parts: &[T]) {
    const UNIT: usize = 4096;
    let len = sums.len();
    let shared = Shared::new(sums);
    cx.parallel_for(len.div_ceil(UNIT), parts.len() / len.max(1) * UNIT / 4, |units| {
        let (start, end) = (units.start * UNIT, (units.end * UNIT).min(len));
        // SAFETY: units do not overlap.
        let own = unsafe { shared.slice(start, end - start) };
        for (number, part) in parts.chunks_exact(len).enumerate() {
            for (sum, term) in own.iter_mut().zip(&part[start..end]) {
                *sum = if number == 0 {
                    *term
                } else {
                    T::store(Fold::Sum.of_two(sum.load::<Plain>(), term.load::<Plain>()))
                };
            }
        }
    });
}
