//! Products of matrices on several threads: as many parts as there are threads, as each packs the other factor for itself.

use std::sync::Mutex;

use ndarray::{ArrayViewMut2, Axis, Slice};
use opsmith_core::{Compute, Result, memory};

use super::Product;
use super::native::{self, Native};

/// How many multiplications with an addition are done in a nanosecond.
pub(crate) const PER_NANOSECOND: usize = 64;

/// The least work, in nanoseconds, that is worth a thread of its own. It is less than that of other loops: the threads of a
/// model that multiplies matrices are awake.
const MIN_COST: usize = 4_000;

/// The rows or columns that a part is a multiple of: those of the widest register tile.
const GRANULE: usize = 16;

/// The multiplications of a part where the shape says how many parts there are; of one product of several that are computed one after
/// another; and the most parts.
pub(crate) const OF_A_PART: usize = 1 << 24;
pub(crate) const OF_A_SMALL_PART: usize = 1 << 21;
const MOST_PARTS: usize = 64;

/// So many nanoseconds are a unit of a loop that no thread gets more than one of, unless it has to.
const WORTH_A_THREAD: usize = 1 << 20;

/// Of a matrix that a vector is multiplied with, the numbers of a part and the rows that it has at least.
const PART: usize = 1 << 17;
const LEAST_ROWS: usize = 32;

/// How many of its numbers are read in a nanosecond.
const READ_PER_NANOSECOND: usize = 8;

/// The product, on the threads of `compute` if there are any.
///
/// # Errors
/// As [`native::product`] has them.
pub(super) fn product<T: Native>(product: Product<'_, T>, compute: Option<&Compute<'_>>) -> Result<()> {
    let Some(compute) = compute else { return native::product(product) };
    let Some(product) = vector_by_rows(product, compute)? else { return Ok(()) };
    let parts = compute.num_threads().min(work(&product) / PER_NANOSECOND / MIN_COST);
    in_parts(product, compute, parts)
}

/// The product, on the threads of `compute` if there are any, in as many parts as its shape says, with so many multiplications each.
///
/// # Errors
/// As [`native::product`] has them.
pub(super) fn product_by_shape<T: Native>(
    product: Product<'_, T>,
    compute: Option<&Compute<'_>>,
    of_a_part: usize,
) -> Result<()> {
    let Some(compute) = compute else { return native::product(product) };
    let parts = (work(&product) / of_a_part).min(MOST_PARTS);
    in_parts(product, compute, parts)
}

/// How many multiplications it has.
fn work<T: Native>(product: &Product<'_, T>) -> usize {
    let (rows, columns) = product.c.dim();
    rows.saturating_mul(columns).saturating_mul(product.a.ncols())
}

/// The product in so many parts of the longer dim of the result, or in fewer where that is short.
fn in_parts<T: Native>(product: Product<'_, T>, compute: &Compute<'_>, parts: usize) -> Result<()> {
    let Product { alpha, a, b, beta, mut c } = product;
    let (rows, columns) = c.dim();
    // Of a square, halves of the columns: 5 % faster than halves of the rows.
    let (axis, length) = if rows > columns { (Axis(0), rows) } else { (Axis(1), columns) };
    let parts = parts.min(length / GRANULE).max(1);
    if parts == 1 {
        return native::product(Product { alpha, a, b, beta, c });
    }
    let size = length.div_ceil(parts).next_multiple_of(GRANULE);
    let parts: Vec<_> = c.axis_chunks_iter_mut(axis, size).map(|part| Mutex::new(Some(part))).collect();
    // Each part is worth a thread, whatever it takes.
    compute.try_parallel_for(parts.len(), WORTH_A_THREAD, |range| {
        for index in range {
            let Some(c) = parts[index].lock().ok().and_then(|mut part| part.take()) else { continue };
            let part = Slice::from(index * size..index * size + c.len_of(axis));
            let (a, b) = match axis {
                Axis(0) => (a.slice_axis(axis, part), b),
                _ => (a, b.slice_axis(axis, part)),
            };
            native::product(Product { alpha, a, b, beta, c })?;
        }
        Ok(())
    })
}

/// The product of a vector and a matrix with dense rows (or of one with dense columns and a vector), by parts of the rows:
/// each part is read from one end to the other. Parts of columns would leave sets of the caches unused, as the parts of a row
/// lie as far apart as the rows are long. How many parts there are is a matter of the shape alone, and their sums are added
/// up in their order, so the result does not depend on the number of threads. Elsewhere the product is given back.
fn vector_by_rows<'a, T: Native>(
    product: Product<'a, T>,
    compute: &Compute<'_>,
) -> Result<Option<Product<'a, T>>> {
    let (inner, outer) = (product.a.ncols(), product.c.len());
    let parts = (inner.saturating_mul(outer) / PART).min(inner / LEAST_ROWS);
    let is_row = product.c.nrows() == 1 && product.b.strides()[1] == 1;
    let is_column = product.c.ncols() == 1 && product.a.strides()[0] == 1;
    if parts < 2 || !(is_row || is_column) {
        return Ok(Some(product));
    }
    let mut sums =
        memory::filled(T::zero(), parts.saturating_mul(outer), "the sums of a product with a vector")?;
    let size = inner.div_ceil(parts);
    let Product { alpha, a, b, .. } = &product;
    let rooms = sums.chunks_mut(outer).map(|room| Mutex::new(Some(room)));
    let rooms = memory::collected(rooms, "the parts of a product with a vector")?;
    compute.try_parallel_for(parts, size.saturating_mul(outer) / READ_PER_NANOSECOND, |range| {
        for index in range {
            let Some(room) = rooms[index].lock().ok().and_then(|mut room| room.take()) else { continue };
            let part = Slice::from(inner.min(index * size)..inner.min((index + 1) * size));
            let shape = if is_row { (1, outer) } else { (outer, 1) };
            let Ok(c) = ArrayViewMut2::from_shape(shape, room) else { continue };
            let (a, b) = (a.slice_axis(Axis(1), part), b.slice_axis(Axis(0), part));
            native::product(Product { alpha: *alpha, a, b, beta: T::zero(), c })?;
        }
        Ok(())
    })?;
    let mut product = product;
    product.scale();
    for part in sums.chunks(outer) {
        match product.c.as_slice_mut() {
            // The same, vectorised.
            Some(c) => c.iter_mut().zip(part).for_each(|(to, &sum)| *to += sum),
            None => product.c.iter_mut().zip(part).for_each(|(to, &sum)| *to += sum),
        }
    }
    Ok(None)
}
