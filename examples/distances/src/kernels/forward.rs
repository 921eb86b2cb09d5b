//! z[i,j] = Σₖ |x[i,k] − y[j,k]|.
//!
//! The work is `n·m·p` terms, and the processor's vector units are the limit, so operations per term
//! count. Taken directly a term is three: subtract, clear the sign, add. Because
//! |x − y| = (max(x, y) − x) + (max(x, y) − y), a block of terms is also
//! (Σ max − Σ x) + (Σ max − Σ y), which is two per term, max and add; the row sums cost nothing.
//! What it costs is accuracy where the distance is small beside the magnitudes Σ|x| + Σ|y|, so
//! - blocks are short ([`block_len`]), and only their distances are added up;
//! - each pair whose magnitudes outweigh its distance more than [`Kernel::CONDITION`] times, and each
//!   with a NaN or an infinity, is done again directly. However long the rows, the relative error that
//!   maxima add stays below that of a plain loop over 3,200 terms (in practice a few units of rounding),
//!   and equal rows are exactly zero apart;
//! - a sample of pairs decides beforehand whether the whole call is done directly.
#![allow(clippy::needless_range_loop, reason = "tiles are indexed by row and column, as the formulas are")]

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ops::Range;

use crate::kernels::parallel::{Output, Parallel};
use crate::kernels::rows::{distance, row_sum, row_weight};
use crate::kernels::simd::{Kernel, MAX_LANES, Vector, multiversioned};

/// Bytes of a row that make a block.
const BLOCK_BYTES: usize = 512;
/// Bytes of a packed block of `y`, at most 4 AVX-512 vectors of `f32` per term; it stays in the first-level cache.
const PANEL_BYTES: usize = BLOCK_BYTES * 64;
/// Columns of `z` per unit of parallel work: a whole number of panels on every instruction set.
const COLUMNS: usize = 64;
/// Rows per unit are a multiple of this, which every register tile divides.
const ROW_STEP: usize = 24;
/// Rows per unit at most.
const MAX_ROWS: usize = 1024;
/// Distances of fewer terms are always taken directly.
const SHORT: usize = 24;

/// One call's arrays and sizes.
#[derive(Clone, Copy)]
struct Call<'a, T> {
    x: &'a [T],
    y: &'a [T],
    z: Output<T>,
    m: usize,
    p: usize,
    /// Sums of the rows of `x` where maxima are used.
    x_sums: Option<RowSums<'a, T>>,
}

/// What maxima need to know of `x`, computed once per call.
#[derive(Clone, Copy)]
struct RowSums<'a, T> {
    /// For each row the sum of its magnitudes.
    weights: &'a [T],
    /// For each block of terms the sums of all rows.
    blocks: &'a [T],
}

/// Terms per block: 128 of `f32`, 64 of `f64`.
const fn block_len<T>() -> usize {
    BLOCK_BYTES / size_of::<T>()
}

/// Writes the distances between the `n` rows of `x` and the `m` rows of `y`, each `p` long, to `z`.
///
/// The slices are dense and row-major. NaN and infinities propagate as in NumPy. The result does not
/// depend on the number of threads.
///
/// # Panics
/// If a slice does not have the length its sizes ask for.
pub(crate) fn forward<T: Kernel>(
    par: &dyn Parallel,
    x: &[T],
    y: &[T],
    z: &mut [T],
    n: usize,
    m: usize,
    p: usize,
) {
    assert!(
        x.len() == n * p && y.len() == m * p && z.len() == n * m,
        "forward: a slice has the wrong length"
    );
    let call = Call { x, y, z: Output(z.as_mut_ptr()), m, p, x_sums: None };
    // Packing `y` into panels pays from a few rows and columns on.
    if n < 4 || m < 4 {
        return par.parallel_for(n * m, 3 * p, &|range| {
            // SAFETY: the lengths were checked; the threads' elements are disjoint.
            unsafe { pairs::<T>(&call, range) }
        });
    }
    if p < SHORT || !well_conditioned(&call, n) {
        return rectangles(par, &call, n);
    }
    let (mut sums, len) = (Vec::new(), n * (1 + p.div_ceil(block_len::<T>())));
    if sums.try_reserve_exact(len).is_err() {
        return rectangles(par, &call, n);
    }
    sums.resize(len, T::ZERO);
    let (weights, blocks) = sums.split_at_mut(n);
    // SAFETY: the lengths were checked, and the sums have one place per row and block.
    unsafe { sum_rows::<T>(&call, weights, blocks) };
    rectangles(par, &Call { x_sums: Some(RowSums { weights, blocks }), ..call }, n);
}

/// Cuts `z` into rectangles and gives them to the threads.
fn rectangles<T: Kernel>(par: &dyn Parallel, call: &Call<T>, n: usize) {
    let across = call.m.div_ceil(COLUMNS);
    let down = (4 * par.threads()).div_ceil(across).max(n.div_ceil(MAX_ROWS));
    let rows = n.div_ceil(down).next_multiple_of(ROW_STEP);
    par.parallel_for(across * n.div_ceil(rows), 3 * rows * COLUMNS.min(call.m) * call.p, &|units| {
        for unit in units {
            let (i, j) = (unit / across * rows, unit % across * COLUMNS);
            // SAFETY: `forward` checked the lengths; the rectangles are disjoint.
            unsafe { rectangle::<T>(call, i..(i + rows).min(n), j..(j + COLUMNS).min(call.m)) }
        }
    });
}

multiversioned! {
    /// The sums of all rows of `x`, for [`RowSums`].
    ///
    /// # Safety
    /// `x` holds a row for each weight; `blocks` has room for each block of each row.
    unsafe fn sum_rows(call: &Call<T>, weights: &mut [T], blocks: &mut [T]) = sum_rows_body
}

#[inline(always)]
unsafe fn sum_rows_body<V: Vector, const MR: usize, const NV: usize>(
    call: &Call<V::Elem>,
    weights: &mut [V::Elem],
    blocks: &mut [V::Elem],
) {
    let n = weights.len();
    for i in 0..n {
        // SAFETY: the caller's promise.
        unsafe {
            let x = call.x.as_ptr().add(i * call.p);
            weights[i] = row_weight::<V>(x, call.p);
            for (b, start) in (0..call.p).step_by(block_len::<V::Elem>()).enumerate() {
                blocks[b * n + i] = row_sum::<V>(x.add(start), (call.p - start).min(block_len::<V::Elem>()));
            }
        }
    }
}

/// Whether most of a sample of pairs may be done by maxima.
fn well_conditioned<T: Kernel>(call: &Call<T>, n: usize) -> bool {
    const SAMPLE: usize = 8;
    let p = call.p;
    let good = (0..SAMPLE).filter(|s| {
        let (i, j) = (s * (n - 1) / (SAMPLE - 1), (s * 5 + 3) % SAMPLE * (call.m - 1) / (SAMPLE - 1));
        let (x, y) = (&call.x[i * p..(i + 1) * p], &call.y[j * p..(j + 1) * p]);
        // SAFETY: plain vectors need no instruction set; both rows are `p` long.
        let (weight, z) = unsafe {
            let weight = row_weight::<T::Plain>(x.as_ptr(), p) + row_weight::<T::Plain>(y.as_ptr(), p);
            (weight, distance::<T::Plain>(x.as_ptr(), y.as_ptr(), p))
        };
        z * T::CONDITION >= weight
    });
    good.count() > SAMPLE / 2
}

multiversioned! {
    /// Elements of `z`, pair by pair.
    ///
    /// # Safety
    /// The arrays have the lengths that `m`, `p` and the range ask for; nobody else touches these elements.
    unsafe fn pairs(call: &Call<T>, range: Range<usize>) = pairs_body
}

#[inline(always)]
unsafe fn pairs_body<V: Vector, const MR: usize, const NV: usize>(call: &Call<V::Elem>, range: Range<usize>) {
    let Call { x, y, z, m, p, .. } = *call;
    for pair in range {
        let (i, j) = (pair / m, pair % m);
        // SAFETY: the caller's promise.
        unsafe { *z.0.add(pair) = distance::<V>(x.as_ptr().add(i * p), y.as_ptr().add(j * p), p) };
    }
}

multiversioned! {
    /// Distances of a rectangle of `z`, in panels of `y`.
    ///
    /// # Safety
    /// The arrays hold `m`, `p`, `rows` and `columns`; nobody else touches the rectangle of `z`.
    unsafe fn rectangle(call: &Call<T>, rows: Range<usize>, columns: Range<usize>) = rectangle_body
}

#[inline(always)]
unsafe fn rectangle_body<V: Vector, const MR: usize, const NV: usize>(
    call: &Call<V::Elem>,
    rows: Range<usize>,
    columns: Range<usize>,
) {
    let mut j = columns.start;
    while j < columns.end {
        let left = columns.end - j;
        // SAFETY: the caller's promise.
        unsafe {
            if left >= NV * V::LANES {
                panel::<V, MR, NV>(call, rows.clone(), j, NV * V::LANES);
                j += NV * V::LANES;
            } else {
                let width = left.min(V::LANES);
                panel::<V, MR, 1>(call, rows.clone(), j, width);
                j += width;
            }
        }
    }
}

/// A packed block of `y`: for each term the values of `NV` vectors of columns.
#[repr(C, align(64))]
struct Panel(MaybeUninit<[u8; PANEL_BYTES]>);

/// Distances of some rows and `width <= NV·LANES` columns of `z` from column `j` on.
#[inline(always)]
unsafe fn panel<V: Vector, const MR: usize, const NV: usize>(
    call: &Call<V::Elem>,
    rows: Range<usize>,
    j: usize,
    width: usize,
) {
    let mut panel = Panel(MaybeUninit::uninit());
    let packed = panel.0.as_mut_ptr().cast::<V::Elem>();
    // SAFETY: the caller's promise; a block of packed `y` fits the panel.
    unsafe {
        let mut weights = [V::splat(V::Elem::ZERO); NV];
        let mut start = 0;
        loop {
            let len = (call.p - start).min(block_len::<V::Elem>());
            let mut block = Block { start, len, j, width, packed, x_sums: &[], y_sums: weights };
            pack::<V, NV>(call, &block);
            if let Some(x_sums) = call.x_sums {
                let n = x_sums.weights.len();
                block.x_sums = &x_sums.blocks[start / block_len::<V::Elem>() * n..][..n];
                block.y_sums = column_sums::<V, NV>(packed, len, &mut weights);
                block_rows::<V, MR, NV, true>(call, &rows, &block);
            } else {
                block_rows::<V, MR, NV, false>(call, &rows, &block);
            }
            start += len;
            if start >= call.p {
                break;
            }
        }
        if let Some(x_sums) = call.x_sums {
            refine::<V, NV>(call, x_sums.weights, rows, j, width, &weights);
        }
    }
}

/// A block of terms of some columns.
struct Block<'a, V: Vector, const NV: usize> {
    /// The first term and how many.
    start: usize,
    len: usize,
    /// The first column and how many.
    j: usize,
    width: usize,
    /// The values of `y`, term by term.
    packed: *mut V::Elem,
    /// Sums over the block's terms, of each row of `x` and of each column; unused where the work is direct.
    x_sums: &'a [V::Elem],
    y_sums: [V; NV],
}

/// Copies a block of `y`, transposed; columns beyond the width become zeros.
#[inline(always)]
unsafe fn pack<V: Vector, const NV: usize>(call: &Call<V::Elem>, block: &Block<V, NV>) {
    let stride = NV * V::LANES;
    for first in (0..stride).step_by(V::LANES) {
        let columns = block.width.saturating_sub(first).min(V::LANES);
        // SAFETY: the caller's promise; columns beyond the width are not read.
        unsafe {
            let from = call.y.as_ptr().wrapping_add((block.j + first) * call.p + block.start);
            for k in 0..block.len {
                let to = block.packed.add(k * stride + first);
                for column in 0..columns {
                    to.add(column).write(*from.add(column * call.p + k));
                }
                for column in columns..V::LANES {
                    to.add(column).write(V::Elem::ZERO);
                }
            }
        }
    }
}

/// The sums of a packed block's columns; adds those of the magnitudes to `weights`.
#[inline(always)]
unsafe fn column_sums<V: Vector, const NV: usize>(
    packed: *const V::Elem,
    len: usize,
    weights: &mut [V; NV],
) -> [V; NV] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [V::splat(V::Elem::ZERO); NV];
        for k in 0..len {
            for c in 0..NV {
                let y = V::load(packed.add((k * NV + c) * V::LANES));
                sums[c] = sums[c].add(y);
                weights[c] = weights[c].add(y.abs());
            }
        }
        sums
    }
}

/// Adds a block's terms to all rows of the rectangle; the first block writes them.
#[inline(always)]
unsafe fn block_rows<V: Vector, const MR: usize, const NV: usize, const MAX: bool>(
    call: &Call<V::Elem>,
    rows: &Range<usize>,
    block: &Block<V, NV>,
) {
    let mut i = rows.start;
    // SAFETY: the caller's promise.
    unsafe {
        while i + MR <= rows.end {
            tile::<V, MR, NV, MAX>(call, i, block);
            i += MR;
        }
        while i < rows.end {
            tile::<V, 1, NV, MAX>(call, i, block);
            i += 1;
        }
    }
}

/// `MR` rows by `NV` vectors of `z`: a block's terms, summed in registers.
#[inline(always)]
unsafe fn tile<V: Vector, const MR: usize, const NV: usize, const MAX: bool>(
    call: &Call<V::Elem>,
    i: usize,
    block: &Block<V, NV>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let x = call.x.as_ptr().add(i * call.p + block.start);
        let mut tile = [[V::splat(V::Elem::ZERO); NV]; MR];
        // The compiler must not know that it is 1, or it makes plain additions of the fused ones.
        let one = black_box(V::splat(V::Elem::ONE));
        for k in 0..block.len {
            for r in 0..MR {
                let from_x = V::splat(*x.add(r * call.p + k));
                for c in 0..NV {
                    let from_y = V::load(block.packed.add((k * NV + c) * V::LANES));
                    let term = if MAX { from_x.max(from_y) } else { from_x.sub(from_y).abs() };
                    tile[r][c] = tile[r][c].add_by_multiplier(one, term);
                }
            }
        }
        for r in 0..MR {
            let x_sum = V::splat(if MAX { block.x_sums[i + r] } else { V::Elem::ZERO });
            for c in 0..NV {
                let len = block.width.saturating_sub(c * V::LANES).min(V::LANES);
                let z = call.z.0.add((i + r) * call.m + block.j + c * V::LANES);
                let mut value = tile[r][c];
                if MAX {
                    value = value.sub(x_sum).add(value.sub(block.y_sums[c]));
                }
                if block.start > 0 {
                    value = value.add(V::load_partial(z, len));
                }
                value.store_partial(z, len);
            }
        }
    }
}

/// Does the pairs again that maxima cannot give accurately.
#[inline(always)]
unsafe fn refine<V: Vector, const NV: usize>(
    call: &Call<V::Elem>,
    x_weights: &[V::Elem],
    rows: Range<usize>,
    j: usize,
    width: usize,
    y_weights: &[V; NV],
) {
    let Call { x, y, z, m, p, .. } = *call;
    for i in rows {
        // SAFETY: the caller's promise.
        unsafe {
            let x = x.as_ptr().add(i * p);
            let x_weight = V::splat(x_weights[i]);
            for c in 0..NV {
                let first = j + c * V::LANES;
                let len = (j + width).saturating_sub(first).min(V::LANES);
                let z = z.0.add(i * m + first);
                let weight = y_weights[c].add(x_weight);
                if V::load_partial(z, len).outweighs(weight) {
                    continue;
                }
                let mut lanes = [V::Elem::ZERO; MAX_LANES];
                weight.store(lanes.as_mut_ptr());
                for l in 0..len {
                    let accurate = *z.add(l) * V::Elem::CONDITION >= lanes[l];
                    if !accurate {
                        *z.add(l) = distance::<V>(x, y.as_ptr().add((first + l) * p), p);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::parallel::tests::{SIZES, Threads, noise};
    use crate::kernels::simd::tests::each_level;

    fn run<T: Kernel>(threads: usize, x: &[T], y: &[T], [n, m, p]: [usize; 3]) -> Vec<T> {
        let mut z = vec![T::CONDITION; n * m];
        forward(&Threads(threads), x, y, &mut z, n, m, p);
        z
    }

    /// The definition, in float64.
    fn expected(x: &[f32], y: &[f32], [n, m, p]: [usize; 3]) -> Vec<f64> {
        let term = |i, j, k| (f64::from(x[i * p + k]) - f64::from(y[j * p + k])).abs();
        (0..n * m).map(|e| (0..p).map(|k| term(e / m, e % m, k)).sum()).collect()
    }

    #[test]
    fn agrees_with_the_definition_on_every_instruction_set() {
        each_level(|level| {
            for size @ [n, m, p] in SIZES {
                let (x, y) = (noise(n * p, 1), noise(m * p, 2));
                let wide = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
                let want = expected(&x, &y, size);
                for (z, want) in run(1, &x, &y, size).iter().zip(&want) {
                    assert!(
                        (f64::from(*z) - want).abs() <= 2e-6 * want,
                        "{level:?} {size:?}: {z} for {want}"
                    );
                }
                for (z, want) in run(1, &wide(&x), &wide(&y), size).iter().zip(&want) {
                    assert!((z - want).abs() <= 4e-15 * want, "{level:?} {size:?}: {z} for {want}");
                }
            }
        });
    }

    #[test]
    fn near_rows_and_large_offsets_stay_accurate() {
        let size @ [n, m, p] = [30, 40, 200];
        let mut x = noise(n * p, 3);
        let y = noise(m * p, 4);
        x[..p].copy_from_slice(&y[..p]);
        for k in 0..p {
            x[p + k] = y[p + k] * (1.0 + 1e-6);
        }
        for offset in [0.0, 1000.0] {
            let [x, y] = [&x, &y].map(|v| v.iter().map(|v| v + offset).collect::<Vec<_>>());
            let z = run(1, &x, &y, size);
            assert_eq!(z[0], 0.0);
            for (z, want) in z.iter().zip(expected(&x, &y, size)) {
                assert!((f64::from(*z) - want).abs() <= 4e-6 * want, "{offset}: {z} for {want}");
            }
        }
    }

    #[test]
    fn nan_and_infinities_propagate() {
        let size @ [n, m, p] = [8, 9, 50];
        let (mut x, mut y) = (noise(n * p, 5), noise(m * p, 6));
        (x[0], x[p], x[2 * p]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
        (y[0], y[p + 1]) = (f32::INFINITY, f32::NAN);
        each_level(|level| {
            for (e, (z, want)) in run(1, &x, &y, size).iter().zip(expected(&x, &y, size)).enumerate() {
                let same = f64::from(*z) == want || z.is_nan() && want.is_nan();
                assert!(
                    same || (f64::from(*z) - want).abs() <= 2e-6 * want,
                    "{level:?} [{e}]: {z} for {want}"
                );
            }
        });
    }

    #[test]
    fn threads_change_no_bit() {
        for size @ [n, m, p] in SIZES.into_iter().chain([[200, 150, 150]]) {
            let (x, y) = (noise(n * p, 7), noise(m * p, 8));
            let one = run(1, &x, &y, size);
            for threads in [2, 3, 7] {
                assert!(run(threads, &x, &y, size) == one, "{size:?} on {threads} threads");
            }
        }
    }
}
