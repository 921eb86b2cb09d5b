//! Products of matrices on several threads: as many parts as there are threads, as each packs the other factor for itself.

use std::sync::Mutex;

use ndarray::{Axis, Slice};
use opsmith_core::Compute;

use super::Product;
use super::native::{self, Native};

/// How many multiplications with an addition are done in a nanosecond.
const PER_NANOSECOND: usize = 64;

/// The least work, in nanoseconds, that is worth a thread of its own. It is less than that of other loops: the threads of a
/// model that multiplies matrices are awake.
const MIN_COST: usize = 4_000;

/// The rows or columns that a part is a multiple of: those of the widest register tile.
const GRANULE: usize = 16;

/// So many nanoseconds are a unit of a loop that no thread gets more than one of, unless it has to.
const WORTH_A_THREAD: usize = 1 << 20;

/// The product, on the threads of `compute` if there are any.
pub(super) fn product<T: Native>(product: Product<'_, T>, compute: Option<&Compute<'_>>) {
    let Some(compute) = compute else { return native::product(product) };
    let Product { alpha, a, b, beta, mut c } = product;
    let (rows, columns) = c.dim();
    // Of a square, halves of the columns: 5 % faster than halves of the rows.
    let (axis, length) = if rows > columns { (Axis(0), rows) } else { (Axis(1), columns) };
    let cost = rows.saturating_mul(columns).saturating_mul(a.ncols()) / PER_NANOSECOND;
    let parts = compute.num_threads().min(cost / MIN_COST).min(length / GRANULE).max(1);
    if parts == 1 {
        return native::product(Product { alpha, a, b, beta, c });
    }
    let size = length.div_ceil(parts).next_multiple_of(GRANULE);
    let parts: Vec<_> = c.axis_chunks_iter_mut(axis, size).map(|part| Mutex::new(Some(part))).collect();
    // Each part is worth a thread, whatever it takes.
    compute.parallel_for(parts.len(), WORTH_A_THREAD, |range| {
        for index in range {
            let Some(c) = parts[index].lock().ok().and_then(|mut part| part.take()) else { continue };
            let part = Slice::from(index * size..index * size + c.len_of(axis));
            let (a, b) = match axis {
                Axis(0) => (a.slice_axis(axis, part), b),
                _ => (a, b.slice_axis(axis, part)),
            };
            native::product(Product { alpha, a, b, beta, c });
        }
    });
}
