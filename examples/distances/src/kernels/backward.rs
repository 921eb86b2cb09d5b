//! x_grad[i,k] = Σⱼ z_grad[i,j]·sign(x[i,k] − y[j,k]) and y_grad[j,k] = Σᵢ z_grad[i,j]·sign(y[j,k] − x[i,k]).
//!
//! One pass gives both: a vector of `k` from a few rows of `x` stays in registers with its sums while the
//! rows of `y` go by. Each sum is taken in the order of its index, so neither the number of threads nor
//! the instruction set changes a bit. The sign of NaN is NaN, as in NumPy, and that of zero is zero.
#![allow(clippy::needless_range_loop, reason = "tiles are indexed by row and column, as the formulas are")]

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::kernels::parallel::{Output, Parallel};
use crate::kernels::simd::{Kernel, MAX_LANES, Vector, multiversioned};

/// Rows of `y` and vectors of `k` that are copied together: read in place, rows a power of two apart would
/// evict each other from the cache.
const BLOCK: usize = 128;
const GROUP: usize = 4;
/// Values of `k` per unit of parallel work where there are many: a whole vector everywhere.
const STRIP: usize = MAX_LANES;
/// Rows per unit of parallel work where there are few values of `k`.
const ROWS: usize = 32;

/// One call's arrays and sizes; gradients that nobody wants are `None`.
#[derive(Clone, Copy)]
struct Call<'a, T> {
    x: &'a [T],
    y: &'a [T],
    z_grad: &'a [T],
    x_grad: Option<Output<T>>,
    y_grad: Option<Output<T>>,
    m: usize,
    p: usize,
}

/// The part of a call that one unit of work does: all of `x_grad` and `y_grad` that lies in it.
#[derive(Clone)]
struct Part {
    i: Range<usize>,
    j: Range<usize>,
    k: Range<usize>,
}

/// Writes the gradients of the distances between the `n` rows of `x` and the `m` rows of `y`, each `p` long,
/// given the gradient `z_grad` (n × m) of the distances.
///
/// The slices are dense and row-major; a gradient that is `None` is not computed. The result does not
/// depend on the number of threads.
///
/// # Panics
/// If a slice does not have the length its sizes ask for.
#[allow(clippy::too_many_arguments)]
pub(crate) fn backward<T: Kernel>(
    par: &dyn Parallel,
    x: &[T],
    y: &[T],
    z_grad: &[T],
    mut x_grad: Option<&mut [T]>,
    mut y_grad: Option<&mut [T]>,
    n: usize,
    m: usize,
    p: usize,
) {
    let lengths = x.len() == n * p && y.len() == m * p && z_grad.len() == n * m;
    assert!(lengths, "backward: an input has the wrong length");
    assert!(x_grad.as_ref().is_none_or(|g| g.len() == n * p), "backward: x_grad has the wrong length");
    assert!(y_grad.as_ref().is_none_or(|g| g.len() == m * p), "backward: y_grad has the wrong length");
    let output = |g: &mut Option<&mut [T]>| {
        g.as_mut().map(|g| {
            g.fill(T::ZERO);
            Output(g.as_mut_ptr())
        })
    };
    let (x_grad, y_grad) = (output(&mut x_grad), output(&mut y_grad));
    let call = Call { x, y, z_grad, x_grad, y_grad, m, p };
    let whole = Part { i: 0..n, j: 0..m, k: 0..p };
    let strips = p.div_ceil(STRIP);
    if strips >= 2 * par.threads() || n.max(m) <= ROWS {
        // Several strips together read `z_grad` from a nearer cache.
        let unit = STRIP * (strips / (4 * par.threads())).max(1);
        return par.parallel_for(p.div_ceil(unit), 4 * n * m * unit, &|range| {
            let k = range.start * unit..(range.end * unit).min(p);
            // SAFETY: the lengths were checked; the strips are disjoint.
            unsafe { part::<T>(&call, Part { k, ..whole.clone() }) }
        });
    }
    // Few values of `k`: each gradient by itself, over its rows.
    if x_grad.is_some() {
        let call = Call { y_grad: None, ..call };
        par.parallel_for(n.div_ceil(ROWS), 3 * ROWS * m * p, &|range| {
            let i = range.start * ROWS..(range.end * ROWS).min(n);
            // SAFETY: the lengths were checked; the rows of `x_grad` are disjoint.
            unsafe { part::<T>(&call, Part { i, ..whole.clone() }) }
        });
    }
    if y_grad.is_some() {
        let call = Call { x_grad: None, ..call };
        par.parallel_for(m.div_ceil(ROWS), 3 * ROWS * n * p, &|range| {
            let j = range.start * ROWS..(range.end * ROWS).min(m);
            // SAFETY: the lengths were checked; the rows of `y_grad` are disjoint.
            unsafe { part::<T>(&call, Part { j, ..whole.clone() }) }
        });
    }
}

multiversioned! {
    /// The gradients of one part.
    ///
    /// # Safety
    /// The part lies within the arrays; nobody else touches the gradients that lie in it.
    unsafe fn part(call: &Call<T>, part: Part) = part_body
}

#[inline(always)]
unsafe fn part_body<V: Vector, const MR: usize, const NV: usize>(call: &Call<V::Elem>, part: Part) {
    for start in part.j.clone().step_by(BLOCK) {
        let end = (start + BLOCK).min(part.j.end);
        for k in part.k.clone().step_by(GROUP * V::LANES) {
            let k = k..(k + GROUP * V::LANES).min(part.k.end);
            let part = Part { i: part.i.clone(), j: start..end, k };
            // SAFETY: the caller's promise; the part is at most a block by a group.
            unsafe {
                match (call.x_grad.is_some(), call.y_grad.is_some()) {
                    (true, true) => block::<V, MR, true, true>(call, &part),
                    (true, false) => block::<V, MR, true, false>(call, &part),
                    (false, true) => block::<V, MR, false, true>(call, &part),
                    (false, false) => {}
                }
            }
        }
    }
}

/// Vectors of `k` of a block of rows of `y`, and of sums for `y_grad`.
struct Columns<V> {
    y: [[MaybeUninit<V>; BLOCK]; GROUP],
    sums: [[MaybeUninit<V>; BLOCK]; GROUP],
}

/// A part of at most `BLOCK` rows of `y` and `GROUP` vectors of `k`.
#[inline(always)]
unsafe fn block<V: Vector, const MR: usize, const X: bool, const Y: bool>(call: &Call<V::Elem>, part: &Part) {
    const { assert!(size_of::<Columns<V>>() <= 64 << 10) };
    let mut columns = MaybeUninit::<Columns<V>>::uninit();
    let Part { i: rows, j, k } = part;
    // SAFETY: the caller's promise; the columns' elements may be uninitialised, and those in use are written first.
    unsafe {
        let columns = columns.assume_init_mut();
        for (g, k, len) in vectors::<V>(k) {
            for b in 0..j.len() {
                let y = call.y.as_ptr().add((j.start + b) * call.p + k);
                columns.y[g][b].write(V::load_partial(y, len));
                columns.sums[g][b].write(V::splat(V::Elem::ZERO));
            }
        }
        let mut i = rows.start;
        while i < rows.end {
            let whole = i + MR <= rows.end;
            for (g, k, len) in vectors::<V>(k) {
                let (y, sums) = (columns.y[g].as_ptr().cast(), columns.sums[g].as_mut_ptr().cast());
                if whole {
                    tile::<V, MR, X, Y>(call, i, j, k, len, y, sums);
                } else {
                    tile::<V, 1, X, Y>(call, i, j, k, len, y, sums);
                }
            }
            i += if whole { MR } else { 1 };
        }
        let (true, Some(y_grad)) = (Y, call.y_grad) else { return };
        for (g, k, len) in vectors::<V>(k) {
            for b in 0..j.len() {
                let sum = columns.sums[g][b].assume_init();
                sum.store_partial(y_grad.0.add((j.start + b) * call.p + k), len);
            }
        }
    }
}

/// The vectors of a range of `k`: number, first element and length.
#[inline(always)]
fn vectors<V: Vector>(k: &Range<usize>) -> impl Iterator<Item = (usize, usize, usize)> {
    let end = k.end;
    k.clone().step_by(V::LANES).enumerate().map(move |(g, k)| (g, k, (end - k).min(V::LANES)))
}

/// `MR` rows of `x` against a block of rows of `y`, one vector of `len <= LANES` values of `k`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn tile<V: Vector, const MR: usize, const X: bool, const Y: bool>(
    call: &Call<V::Elem>,
    i: usize,
    j: &Range<usize>,
    k: usize,
    len: usize,
    from_y: *const V,
    y_sums: *mut V,
) {
    // SAFETY: the caller's promise; `from_y` and `y_sums` have a vector per row of the block.
    unsafe {
        let mut x = [V::splat(V::Elem::ZERO); MR];
        let mut sums = x;
        for r in 0..MR {
            x[r] = V::load_partial(call.x.as_ptr().add((i + r) * call.p + k), len);
            if let (true, Some(x_grad)) = (X, call.x_grad) {
                sums[r] = V::load_partial(x_grad.0.add((i + r) * call.p + k), len);
            }
        }
        let z_grad = call.z_grad.as_ptr().add(i * call.m + j.start);
        for b in 0..j.len() {
            let y = *from_y.add(b);
            let mut y_sum = *y_sums.add(b);
            for r in 0..MR {
                let sign = x[r].sub(y).sign();
                let grad = V::splat(*z_grad.add(r * call.m + b));
                if X {
                    sums[r] = sums[r].add_signed(sign, grad);
                }
                if Y {
                    y_sum = y_sum.sub_signed(sign, grad);
                }
            }
            if Y {
                *y_sums.add(b) = y_sum;
            }
        }
        if let (true, Some(x_grad)) = (X, call.x_grad) {
            for r in 0..MR {
                sums[r].store_partial(x_grad.0.add((i + r) * call.p + k), len);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::parallel::tests::{SIZES, Threads, noise};
    use crate::kernels::simd::tests::each_level;

    type Gradients = (Option<Vec<f32>>, Option<Vec<f32>>);

    fn run(threads: usize, [x, y, z_grad]: [&[f32]; 3], [n, m, p]: [usize; 3], want: [bool; 2]) -> Gradients {
        let mut x_grad = want[0].then(|| vec![9.0; n * p]);
        let mut y_grad = want[1].then(|| vec![9.0; m * p]);
        let outputs = (x_grad.as_deref_mut(), y_grad.as_deref_mut());
        backward(&Threads(threads), x, y, z_grad, outputs.0, outputs.1, n, m, p);
        (x_grad, y_grad)
    }

    /// The definitions, summed in the order of the index: the same bits.
    fn expected([x, y, z_grad]: [&[f32]; 3], [n, m, p]: [usize; 3]) -> (Vec<f32>, Vec<f32>) {
        let (mut x_grad, mut y_grad) = (vec![0.0; n * p], vec![0.0; m * p]);
        for (i, j, k) in (0..n * m).flat_map(|e| (0..p).map(move |k| (e / m, e % m, k))) {
            let term = z_grad[i * m + j] * Kernel::sign(x[i * p + k] - y[j * p + k]);
            x_grad[i * p + k] += term;
            y_grad[j * p + k] -= term;
        }
        (x_grad, y_grad)
    }

    #[test]
    fn equals_the_definition_to_the_bit_on_every_instruction_set() {
        each_level(|level| {
            for size @ [n, m, p] in SIZES {
                // Rounded, so that many differences are zero.
                let coarse =
                    |len, seed| noise(len, seed).iter().map(|v| (v * 4.0).round()).collect::<Vec<_>>();
                let (x, y, z_grad) = (coarse(n * p, 1), coarse(m * p, 2), noise(n * m, 3));
                let arrays = [&x[..], &y[..], &z_grad[..]];
                let (x_grad, y_grad) = expected(arrays, size);
                for want in [[true, true], [true, false], [false, true], [false, false]] {
                    let wanted = (want[0].then(|| x_grad.clone()), want[1].then(|| y_grad.clone()));
                    assert!(run(1, arrays, size, want) == wanted, "{level:?} {size:?} {want:?}");
                }
            }
        });
    }

    #[test]
    fn threads_change_no_bit() {
        for size @ [n, m, p] in SIZES.into_iter().chain([[70, 90, 100]]) {
            let (x, y, z_grad) = (noise(n * p, 4), noise(m * p, 5), noise(n * m, 6));
            let arrays = [&x[..], &y[..], &z_grad[..]];
            let one = run(1, arrays, size, [true; 2]);
            for threads in [2, 3, 7] {
                assert!(run(threads, arrays, size, [true; 2]) == one, "{size:?} on {threads} threads");
            }
        }
    }

    #[test]
    fn nan_propagates_to_the_gradients_it_touches() {
        let (x_grad, y_grad) = run(1, [&[f32::NAN, 2.0], &[1.0, 5.0], &[1.0]], [1, 1, 2], [true; 2]);
        let (x_grad, y_grad) = (x_grad.unwrap(), y_grad.unwrap());
        assert!(x_grad[0].is_nan() && y_grad[0].is_nan());
        assert_eq!((x_grad[1], y_grad[1]), (-1.0, 1.0));
    }
}
