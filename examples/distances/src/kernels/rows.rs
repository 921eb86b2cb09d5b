//! Reductions of single rows, in vectors along the row.

use crate::kernels::simd::{Kernel, Vector};

/// The sum over `0..len` of a term, given per vector and per element, in four vectors of partial sums.
macro_rules! row_reduce {
    ($V:ident, $len:ident, $vector:expr, $scalar:expr) => {{
        let mut sums = [$V::splat(<$V as Vector>::Elem::ZERO); 4];
        let mut k = 0;
        while k + 4 * $V::LANES <= $len {
            for (s, sum) in sums.iter_mut().enumerate() {
                *sum = sum.add($vector(k + s * $V::LANES));
            }
            k += 4 * $V::LANES;
        }
        while k + $V::LANES <= $len {
            sums[0] = sums[0].add($vector(k));
            k += $V::LANES;
        }
        let mut total = sums[0].add(sums[1]).add(sums[2].add(sums[3])).sum();
        while k < $len {
            total = total + $scalar(k);
            k += 1;
        }
        total
    }};
}

/// The distance of two rows.
///
/// # Safety
/// The processor has the vector's instruction set and both rows are `len` long.
#[inline(always)]
pub(crate) unsafe fn distance<V: Vector>(x: *const V::Elem, y: *const V::Elem, len: usize) -> V::Elem {
    // SAFETY: the caller vouches for both rows and the instruction set.
    unsafe {
        row_reduce!(V, len, |k| V::load(x.add(k)).sub(V::load(y.add(k))).abs(), |k| (*x.add(k) - *y.add(k))
            .magnitude())
    }
}

/// The sum of a row.
///
/// # Safety
/// The processor has the vector's instruction set and the row is `len` long.
#[inline(always)]
pub(crate) unsafe fn row_sum<V: Vector>(x: *const V::Elem, len: usize) -> V::Elem {
    // SAFETY: the caller vouches for the row and the instruction set.
    unsafe { row_reduce!(V, len, |k| V::load(x.add(k)), |k| *x.add(k)) }
}

/// The sum of a row's magnitudes.
///
/// # Safety
/// The processor has the vector's instruction set and the row is `len` long.
#[inline(always)]
pub(crate) unsafe fn row_weight<V: Vector>(x: *const V::Elem, len: usize) -> V::Elem {
    // SAFETY: the caller vouches for the row and the instruction set.
    unsafe { row_reduce!(V, len, |k| V::load(x.add(k)).abs(), |k| (*x.add(k)).magnitude()) }
}
