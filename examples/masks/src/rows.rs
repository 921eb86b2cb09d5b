//! Arithmetic on the rows of a run: its places one after the other, `d` numbers each.
//!
//! Everything is compiled for each instruction set, and for the usual `d` apart: `D` is `d`, or 0 for any.

use std::ops::AddAssign;

use opsmith::isa::Isa;
use opsmith::prelude::*;

/// The number of places whose distances are in a block, which stays in registers and the nearest cache.
pub(crate) const BLOCK: usize = 64;

/// The width of the vectors that code is written for.
const LANES: usize = 8;

/// The most vectors that sums along a run are kept in.
const MOST_VECTORS: usize = 8;

/// A float that the kernels are compiled for.
pub(crate) trait Real: Float + Into<f64> {
    /// The nearest number.
    fn of(value: f64) -> Self;
}

impl Real for f32 {
    #[inline(always)]
    fn of(value: f64) -> f32 {
        value as f32
    }
}

impl Real for f64 {
    #[inline(always)]
    fn of(value: f64) -> f64 {
        value
    }
}

/// `a * b + c`, in one operation where the instruction set has it.
#[inline(always)]
pub(crate) fn fused<I: Isa, T: Real>(a: T, b: T, c: T) -> T {
    if I::FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Into how many sums the numbers of a run go: a multiple of `d`, and where `d` allows of the vectors' width.
pub(crate) fn sums(d: usize) -> usize {
    let common = (1..=LANES).map(|times| times * d).find(|sums| sums.is_multiple_of(LANES)).unwrap_or(d);
    let common = if common == LANES { 2 * LANES } else { common };
    if common <= MOST_VECTORS * LANES { common } else { d }
}

/// Adds the numbers of a run: number `i` to sum `i` modulo the number of sums, which [`sums`] says.
#[inline(always)]
pub(crate) fn add<T: Real>(rows: &[T], sums: &mut [f64]) {
    match sums.len() / LANES * usize::from(sums.len().is_multiple_of(LANES)) {
        2 => add_vectors::<T, 2>(rows, sums),
        3 => add_vectors::<T, 3>(rows, sums),
        4 => add_vectors::<T, 4>(rows, sums),
        5 => add_vectors::<T, 5>(rows, sums),
        6 => add_vectors::<T, 6>(rows, sums),
        7 => add_vectors::<T, 7>(rows, sums),
        8 => add_vectors::<T, 8>(rows, sums),
        _ => rows.chunks_exact(sums.len()).for_each(|row| accumulate(row, sums)),
    }
}

#[inline(always)]
fn add_vectors<T: Real, const V: usize>(rows: &[T], sums: &mut [f64]) {
    let (vectors, _) = sums.as_chunks_mut::<LANES>();
    let mut totals: [[f64; LANES]; V] = std::array::from_fn(|v| vectors[v]);
    let groups = rows.chunks_exact(V * LANES);
    let rest = groups.remainder();
    for group in groups {
        for v in 0..V {
            for lane in 0..LANES {
                totals[v][lane] += group[v * LANES + lane].into();
            }
        }
    }
    vectors.copy_from_slice(&totals);
    accumulate(rest, sums);
}

/// Adds numbers to sums, one each.
#[inline(always)]
pub(crate) fn accumulate<T: Copy + Into<f64>>(numbers: &[T], sums: &mut [f64]) {
    for (sum, &number) in sums.iter_mut().zip(numbers) {
        *sum += number.into();
    }
}

/// The sum of products of the differences of two pairs of rows.
#[inline(always)]
pub(crate) fn dot<I: Isa, T: Real>(a: &[T], from_a: &[T], b: &[T], from_b: &[T]) -> T {
    let mut lanes = [T::zero(); LANES];
    let ((a, a_rest), (from_a, from_a_rest)) = (a.as_chunks::<LANES>(), from_a.as_chunks::<LANES>());
    let ((b, b_rest), (from_b, from_b_rest)) = (b.as_chunks::<LANES>(), from_b.as_chunks::<LANES>());
    for (((a, from_a), b), from_b) in a.iter().zip(from_a).zip(b).zip(from_b) {
        for lane in 0..LANES {
            lanes[lane] = fused::<I, T>(a[lane] - from_a[lane], b[lane] - from_b[lane], lanes[lane]);
        }
    }
    let mut total = sum_of_lanes(lanes);
    for (((&a, &from_a), &b), &from_b) in a_rest.iter().zip(from_a_rest).zip(b_rest).zip(from_b_rest) {
        total = fused::<I, T>(a - from_a, b - from_b, total);
    }
    total
}

/// The square of the distance of two rows.
#[inline(always)]
pub(crate) fn squared_distance<I: Isa, T: Real>(a: &[T], b: &[T]) -> T {
    dot::<I, T>(a, b, a, b)
}

/// The sum of the lanes, halves first.
#[inline(always)]
pub(crate) fn sum_of_lanes<T: Copy + AddAssign>(mut lanes: [T; LANES]) -> T {
    for half in [4, 2, 1] {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
    }
    lanes[0]
}

/// The squares of the distances of up to [`BLOCK`] rows from `centre`, and zeros behind them.
#[inline(always)]
pub(crate) fn squared_distances<I: Isa, T: Real, const D: usize>(rows: &[T], centre: &[T]) -> [T; BLOCK] {
    let mut squares = [T::zero(); BLOCK];
    let centre = sized::<T, D>(centre);
    for (square, row) in squares.iter_mut().zip(rows.chunks_exact(centre.len())) {
        *square = squared_distance::<I, T>(row, centre);
    }
    squares
}

/// Adds the sum of `(row - centre) * weight` over up to [`BLOCK`] rows.
#[inline(always)]
pub(crate) fn add_weighted<I: Isa, T: Real, const D: usize>(
    rows: &[T],
    centre: &[T],
    weights: &[T],
    sums: &mut [f64],
) {
    let centre = sized::<T, D>(centre);
    if D == 0 {
        for (row, &weight) in rows.chunks_exact(centre.len()).zip(weights) {
            for ((sum, &number), &mean) in sums.iter_mut().zip(row).zip(centre) {
                *sum += (weight * (number - mean)).into();
            }
        }
        return;
    }
    let mut totals = [T::zero(); D];
    for (row, &weight) in rows.chunks_exact(D).zip(weights) {
        for k in 0..D {
            totals[k] = fused::<I, T>(weight, row[k] - centre[k], totals[k]);
        }
    }
    accumulate(&totals, sums);
}

/// Adds `(row - centre) * weight + shift` to each row of an output.
#[inline(always)]
pub(crate) fn put_weighted<I: Isa, T: Real, const D: usize>(
    rows: &[T],
    centre: &[T],
    weights: &[T],
    shift: &[T],
    output: &mut [T],
) {
    let (centre, shift) = (sized::<T, D>(centre), sized::<T, D>(shift));
    let d = centre.len();
    for ((row, &weight), output) in rows.chunks_exact(d).zip(weights).zip(output.chunks_exact_mut(d)) {
        for ((output, &number), (&mean, &shift)) in output.iter_mut().zip(row).zip(centre.iter().zip(shift)) {
            *output += fused::<I, T>(weight, number - mean, shift);
        }
    }
}

/// The row, of a length that the compiler knows unless `D` is 0.
#[inline(always)]
fn sized<T, const D: usize>(row: &[T]) -> &[T] {
    if D == 0 { row } else { &row[..D] }
}

/// Adds a row to each row of an output.
#[inline(always)]
pub(crate) fn add_row<T: Real, const D: usize>(row: &[T], output: &mut [T]) {
    let row = sized::<T, D>(row);
    for output in output.chunks_exact_mut(row.len()) {
        for (output, &number) in output.iter_mut().zip(row) {
            *output += number;
        }
    }
}

/// What a distance has beyond `delta`, none if it has less; NaN stays NaN.
#[inline(always)]
pub(crate) fn beyond<T: Real>(distance: T, delta: T) -> T {
    let excess = distance - delta;
    if excess < T::zero() { T::zero() } else { excess }
}

/// A number over a distance; 0 where that is 0, which is the derivative that a norm is taken to have there.
#[inline(always)]
pub(crate) fn over<T: Real>(number: T, distance: T) -> T {
    if distance == T::zero() { T::zero() } else { number / distance }
}

/// Of the squares of distances: the sum of the squares of what these have beyond `delta`, and in place of each square what
/// its distance has beyond `delta`, over the distance.
#[inline(always)]
pub(crate) fn hinges<T: Real>(squares: &mut [T; BLOCK], delta: T) -> T {
    let mut totals = [T::zero(); LANES];
    for squares in squares.as_chunks_mut::<LANES>().0 {
        for (total, square) in totals.iter_mut().zip(squares) {
            let distance = square.sqrt();
            let hinge = beyond(distance, delta);
            *total += hinge * hinge;
            *square = over(hinge, distance);
        }
    }
    sum_of_lanes(totals)
}
