//! zz[i,j] = Σₖ (gx[i,k] − gy[j,k])·sign(x[i,k] − y[j,k]): the gradient, with respect to `z_grad`, of the
//! gradients in `backward`, given the gradients `gx` of `x_grad` and `gy` of `y_grad`.
#![allow(clippy::needless_range_loop, reason = "tiles are indexed by row and column, as the formulas are")]

use std::ops::Range;

use crate::kernels::parallel::{Output, Parallel};
use crate::kernels::simd::{Kernel, Vector, multiversioned};

/// Rows of `x` per unit of parallel work.
const ROWS: usize = 16;

/// One call's arrays and sizes; a gradient that is absent counts as zeros.
#[derive(Clone, Copy)]
struct Call<'a, T> {
    x: &'a [T],
    y: &'a [T],
    gx: Option<&'a [T]>,
    gy: Option<&'a [T]>,
    zz: Output<T>,
    m: usize,
    p: usize,
}

/// Writes `zz` (n × m) from `x`, `gx` (n × p) and `y`, `gy` (m × p).
///
/// The slices are dense and row-major; `gx` or `gy` counts as zeros where it is `None`. The sign of NaN is
/// NaN. The result does not depend on the number of threads.
///
/// # Panics
/// If a slice does not have the length its sizes ask for.
#[allow(clippy::too_many_arguments)]
pub(crate) fn second_order<T: Kernel>(
    par: &dyn Parallel,
    x: &[T],
    y: &[T],
    gx: Option<&[T]>,
    gy: Option<&[T]>,
    zz: &mut [T],
    n: usize,
    m: usize,
    p: usize,
) {
    let lengths = x.len() == n * p && y.len() == m * p && zz.len() == n * m;
    assert!(lengths, "second_order: a slice has the wrong length");
    assert!(gx.is_none_or(|g| g.len() == n * p), "second_order: gx has the wrong length");
    assert!(gy.is_none_or(|g| g.len() == m * p), "second_order: gy has the wrong length");
    let call = Call { x, y, gx, gy, zz: Output(zz.as_mut_ptr()), m, p };
    par.parallel_for(n.div_ceil(ROWS), 4 * ROWS * m * p, &|units| {
        // SAFETY: the lengths were checked; the threads' rows are disjoint.
        unsafe { rows_of::<T>(&call, units.start * ROWS..(units.end * ROWS).min(n)) }
    });
}

multiversioned! {
    /// Whole rows of `zz`.
    ///
    /// # Safety
    /// The arrays hold `m`, `p` and at least `rows`; nobody else touches these rows of `zz`.
    unsafe fn rows_of(call: &Call<T>, rows: Range<usize>) = rows_body
}

#[inline(always)]
unsafe fn rows_body<V: Vector, const MR: usize, const NV: usize>(call: &Call<V::Elem>, rows: Range<usize>) {
    for first in rows.clone().step_by(ROWS) {
        let rows = first..(first + ROWS).min(rows.end);
        let mut j = 0;
        // SAFETY: the caller's promise.
        unsafe {
            while j + NV <= call.m {
                down::<V, NV, NV>(call, rows.clone(), j);
                j += NV;
            }
            while j < call.m {
                down::<V, NV, 1>(call, rows.clone(), j);
                j += 1;
            }
        }
    }
}

/// Some rows of `x` against `NR` rows of `y`, which stay in the first-level cache.
#[inline(always)]
unsafe fn down<V: Vector, const MR: usize, const NR: usize>(
    call: &Call<V::Elem>,
    rows: Range<usize>,
    j: usize,
) {
    let mut i = rows.start;
    // SAFETY: the caller's promise.
    unsafe {
        while i + MR <= rows.end {
            tile::<V, MR, NR>(call, i, j);
            i += MR;
        }
        while i < rows.end {
            tile::<V, 1, NR>(call, i, j);
            i += 1;
        }
    }
}

/// `MR` rows of `x` against `NR` rows of `y`, vectors along `k`.
#[inline(always)]
unsafe fn tile<V: Vector, const MR: usize, const NR: usize>(call: &Call<V::Elem>, i: usize, j: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[V::splat(V::Elem::ZERO); NR]; MR];
        let whole = call.p / V::LANES * V::LANES;
        for k in (0..whole).step_by(V::LANES) {
            // A constant length lets the compiler drop what is for the last vector only.
            terms(call, (i, j, k), V::LANES, &mut sums);
        }
        if whole < call.p {
            terms(call, (i, j, whole), call.p - whole, &mut sums);
        }
        for r in 0..MR {
            for c in 0..NR {
                *call.zz.0.add((i + r) * call.m + j + c) = sums[r][c].sum();
            }
        }
    }
}

/// Adds `len <= LANES` terms of `MR` rows of `x` and `NR` rows of `y`.
#[inline(always)]
unsafe fn terms<V: Vector, const MR: usize, const NR: usize>(
    call: &Call<V::Elem>,
    (i, j, k): (usize, usize, usize),
    len: usize,
    sums: &mut [[V; NR]; MR],
) {
    let Call { x, y, gx, gy, p, .. } = *call;
    // SAFETY: the caller's promise.
    unsafe {
        let zero = V::splat(V::Elem::ZERO);
        let (mut from_y, mut grad_y) = ([zero; NR], [zero; NR]);
        for c in 0..NR {
            let at = (j + c) * p + k;
            from_y[c] = V::load_partial(y.as_ptr().add(at), len);
            grad_y[c] = gy.map_or(zero, |g| V::load_partial(g.as_ptr().add(at), len));
        }
        for r in 0..MR {
            let at = (i + r) * p + k;
            let from_x = V::load_partial(x.as_ptr().add(at), len);
            let grad_x = gx.map_or(zero, |g| V::load_partial(g.as_ptr().add(at), len));
            for c in 0..NR {
                let sign = from_x.sub(from_y[c]).sign();
                sums[r][c] = sums[r][c].add_signed(sign, grad_x.sub(grad_y[c]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::parallel::tests::{SIZES, Threads, noise};
    use crate::kernels::simd::tests::each_level;

    #[test]
    fn agrees_with_the_definition_on_every_instruction_set() {
        each_level(|level| {
            for size @ [n, m, p] in SIZES {
                let [x, gx] = [1, 2].map(|seed| noise(n * p, seed));
                let [y, gy] = [3, 4].map(|seed| noise(m * p, seed));
                for (gx, gy) in [(Some(&gx), Some(&gy)), (Some(&gx), None), (None, Some(&gy)), (None, None)] {
                    let mut zz = vec![9.0; n * m];
                    let [a, b] = [gx, gy].map(|g| g.map(Vec::as_slice));
                    second_order(&Threads(1), &x, &y, a, b, &mut zz, n, m, p);
                    let term = |i: usize, j: usize, k: usize| {
                        let grad = a.map_or(0.0, |g| g[i * p + k]) - b.map_or(0.0, |g| g[j * p + k]);
                        f64::from(grad * Kernel::sign(x[i * p + k] - y[j * p + k]))
                    };
                    for (e, zz) in zz.iter().enumerate() {
                        let want: f64 = (0..p).map(|k| term(e / m, e % m, k)).sum();
                        assert!((f64::from(*zz) - want).abs() < 1e-4, "{level:?} {size:?}: {zz} for {want}");
                    }
                }
            }
        });
    }

    #[test]
    fn threads_change_no_bit() {
        let [n, m, p] = [70, 30, 37];
        let (x, y, gx, gy) = (noise(n * p, 5), noise(m * p, 6), noise(n * p, 7), noise(m * p, 8));
        let run = |threads| {
            let mut zz = vec![9.0; n * m];
            second_order(&Threads(threads), &x, &y, Some(&gx), Some(&gy), &mut zz, n, m, p);
            zz
        };
        assert!(run(1) == run(3));
    }
}
