//! The gradient of a sum by compiled tiles: strips of elements of all rows, each by itself.

use std::ops::Range;

use opsmith_body::{Fold, GradientTile, Level, Plain, TILE, Tiles};
use opsmith_core::{Compute, Result, memory};

use super::shared::{Shared, Sizes, add_parts};
use super::tiled::TileNumber;

/// Rows of `x` and of `y` in a tile: with their gradients they fit the first cache.
const ROWS: usize = 32;
/// Rows of `y` that are copied together, and rows of either matrix whose terms are summed before the sum is added to
/// the total.
const BAND: usize = 256;
/// Units of work from which on they are enough for any number of threads.
const UNITS: usize = 16;
/// The least rows of a part, where strips are cut into parts.
const PART: usize = 128;

/// Arrays of a call.
#[derive(Clone, Copy)]
pub(crate) struct Arrays<'a, T> {
    pub(crate) sizes: Sizes,
    pub(crate) x: &'a [T],
    pub(crate) y: &'a [T],
    /// The gradient of the sum of each pair.
    pub(crate) weights: &'a [T],
}

/// Computes the gradients of the rows of `x` and of `y`, or one of them.
///
/// How the sums are cut depends on the sizes only: 256 terms at a time are summed in their order, then those sums, then
/// at most 16 of them. So a gradient of `s` terms is off by at most `256 + s / 256 + 16` roundings of the sum of their
/// magnitudes.
///
/// # Errors
/// `ResourceExhausted` when there is no memory for parts of sums.
pub(crate) fn gradient<T: TileNumber>(
    cx: &Compute<'_>,
    tiles: &dyn Tiles,
    arrays: Arrays<'_, T>,
    mut x_grad: Option<&mut [T]>,
    mut y_grad: Option<&mut [T]>,
) -> Result<()> {
    let Sizes { n, m, p } = arrays.sizes;
    x_grad.iter_mut().for_each(|grad| grad.fill(T::default()));
    y_grad.iter_mut().for_each(|grad| grad.fill(T::default()));
    let strips = p.div_ceil(TILE);
    if strips == 0 || n == 0 || m == 0 {
        return Ok(());
    }
    // The longer side is cut, and the gradient of the other is a sum over the parts.
    let (by_x, side) = (n >= m, n.max(m));
    let parts = UNITS.div_ceil(strips).min(side.div_ceil(PART));
    let part = side.div_ceil(parts);
    let (own, mut summed) = if by_x { (x_grad, y_grad) } else { (y_grad, x_grad) };
    let mut partial = match &summed {
        Some(summed) if parts > 1 => Some(cx.temp::<T>(parts * summed.len())?),
        _ => None,
    };
    let size = n.min(m) * p;
    let own = own.map(Shared::new);
    let to_sum = match (&mut partial, &mut summed) {
        (Some(sums), _) | (None, Some(sums)) => Some(Shared::new(sums)),
        (None, None) => None,
    };
    cx.try_parallel_for(strips * parts, part * n.min(m) * TILE / 8, |mut units| {
        units.try_for_each(|unit| {
            let (strip, number) = (unit / parts, unit % parts);
            let cut = (number * part).min(side)..((number + 1) * part).min(side);
            let k = strip * TILE;
            let to_sum = to_sum.as_ref().map(|sums| (sums, number * size));
            let own = own.as_ref().map(|own| (own, 0));
            let (rows, columns, x_to, y_to) =
                if by_x { (cut, 0..m, own, to_sum) } else { (0..n, cut, to_sum, own) };
            let work = Strip { arrays, tiles, level: Level::best(), k, len: TILE.min(p - k), x_to, y_to };
            // SAFETY: units differ in their strips or in their parts.
            unsafe { work.run(&rows, &columns) }
        })
    })?;
    if let (Some(summed), Some(partial)) = (summed, &partial) {
        add_parts(cx, summed, partial);
    }
    Ok(())
}

/// Where gradients are added, and where the rows begin there.
type Sums<'a, T> = Option<(&'a Shared<T>, usize)>;

/// `len` elements from `k` on, of all rows.
struct Strip<'a, T> {
    arrays: Arrays<'a, T>,
    tiles: &'a dyn Tiles,
    level: Level,
    k: usize,
    len: usize,
    x_to: Sums<'a, T>,
    y_to: Sums<'a, T>,
}

impl<T: TileNumber> Strip<'_, T> {
    /// # Safety
    /// Nobody else writes to the strip's gradients of these rows.
    unsafe fn run(&self, rows: &Range<usize>, columns: &Range<usize>) -> Result<()> {
        let mut x = [[T::default(); TILE]; ROWS];
        let mut x_grads = x;
        let band = BAND.min(columns.len());
        let strip = || memory::filled([T::default(); TILE], band, "a band of rows");
        let (mut y, mut y_short, mut y_long) = (strip()?, strip()?, strip()?);
        for first in columns.clone().step_by(BAND) {
            let band = first..(first + BAND).min(columns.end);
            self.pack(self.arrays.y, &band, &mut y);
            y_long.fill([T::default(); TILE]);
            for group in rows.clone().step_by(BAND) {
                y_short.fill([T::default(); TILE]);
                let group_end = (group + BAND).min(rows.end);
                for row in (group..group_end).step_by(ROWS) {
                    let here = row..(row + ROWS).min(group_end);
                    self.pack(self.arrays.x, &here, &mut x);
                    x_grads.fill([T::default(); TILE]);
                    let x_grads = &mut x_grads[..here.len()];
                    self.tiles(&here, &band, (&x[..here.len()], x_grads), (&y, &mut y_short));
                    // SAFETY: promised by the caller.
                    unsafe { self.add(self.x_to, &here, x_grads) };
                }
                for (long, short) in y_long.iter_mut().zip(&y_short) {
                    add_lanes(long, short);
                }
            }
            // SAFETY: promised by the caller.
            unsafe { self.add(self.y_to, &band, &y_long[..band.len()]) };
        }
        Ok(())
    }

    /// Some rows of `x` with a band of rows of `y`.
    fn tiles(
        &self,
        rows: &Range<usize>,
        band: &Range<usize>,
        (x, x_grads): (&[[T; TILE]], &mut [[T; TILE]]),
        (y, y_grads): (&[[T; TILE]], &mut [[T; TILE]]),
    ) {
        let m = self.arrays.sizes.m;
        let mut weights = [T::default(); ROWS * ROWS];
        for start in (0..band.len()).step_by(ROWS) {
            let end = (start + ROWS).min(band.len());
            let (columns, pairs) = (end - start, rows.len() * (end - start));
            for (i, to) in rows.clone().zip(weights.chunks_exact_mut(columns)) {
                to.copy_from_slice(&self.arrays.weights[i * m + band.start + start..][..columns]);
            }
            let tile = GradientTile {
                x,
                y: &y[start..end],
                weights: &weights[..pairs],
                x_grads: &mut *x_grads,
                y_grads: &mut y_grads[start..end],
            };
            T::gradient(self.tiles, self.level, tile);
        }
    }

    /// Copies the strip of some rows.
    fn pack(&self, from: &[T], rows: &Range<usize>, to: &mut [[T; TILE]]) {
        for (row, to) in rows.clone().zip(to) {
            to[..self.len].copy_from_slice(&from[row * self.arrays.sizes.p + self.k..][..self.len]);
        }
    }

    /// # Safety
    /// Nobody else writes to the strip of these rows.
    unsafe fn add(&self, to: Sums<'_, T>, rows: &Range<usize>, grads: &[[T; TILE]]) {
        let Some((to, start)) = to else { return };
        for (row, grads) in rows.clone().zip(grads) {
            // SAFETY: promised by the caller.
            let own = unsafe { to.slice(start + row * self.arrays.sizes.p + self.k, self.len) };
            add_lanes(own, grads);
        }
    }
}

/// Adds as many numbers as there are sums.
fn add_lanes<T: TileNumber>(sums: &mut [T], terms: &[T]) {
    for (sum, term) in sums.iter_mut().zip(terms) {
        *sum = T::store(Fold::Sum.of_two(sum.load::<Plain>(), term.load::<Plain>()));
    }
}
