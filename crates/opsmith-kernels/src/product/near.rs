//! Products whose second factor is read where it lies. Kernels for products of any size make room and copies of both factors first,
//! and where a factor is small that takes longer than it saves.

use std::mem::MaybeUninit;

use ndarray::ArrayView2;

use super::Product;
use super::few_rows::{TILE, Tile, Tiles};

/// The most rows, columns and terms of a sum of products whose second factor is copied all the same, to the stack.
const SMALL: usize = 32;

/// The most bytes from the first row of the second factor to its last one, so that caches keep what is read for each few rows of the
/// result. It does not follow from how many of the columns a thread has.
const NEAR: usize = 1 << 16;

/// The product where that is best, and the result has dense rows or columns; elsewhere it is given back.
pub(super) fn product<T: Tiles>(product: Product<'_, T>) -> Option<Product<'_, T>> {
    let Some((lanes, tiles)) = T::tiles() else { return Some(product) };
    match product.c.strides() {
        [_, 1] => by_rows(product, lanes, tiles),
        [1, _] => by_rows(product.turned(), lanes, tiles).map(Product::turned),
        _ => Some(product),
    }
}

/// Whether a second factor with dense rows is near enough. Rows that are repeated count as a panel each: sums are not cut, and long ones
/// would be less exact.
fn is_near<T>(b: &ArrayView2<'_, T>, lanes: usize) -> bool {
    let step = b.strides()[0].unsigned_abs().max(lanes);
    b.strides()[1] == 1 && b.nrows().saturating_mul(step) <= NEAR / size_of::<T>()
}

/// Of a result whose rows are dense.
fn by_rows<'a, T: Tiles>(product: Product<'a, T>, lanes: usize, tiles: &[Tile<T>]) -> Option<Product<'a, T>> {
    let mut product = product;
    let (rows, inner, columns) = (product.a.nrows(), product.a.ncols(), product.b.ncols());
    if is_near(&product.b, lanes) {
        let panels = (product.b.as_ptr(), product.b.strides()[0]);
        // SAFETY: they are those of the factor, whose rows are dense.
        unsafe { multiply(&mut product, panels, lanes, tiles) };
    } else if rows.max(columns).max(inner) <= SMALL {
        let mut copied = [MaybeUninit::uninit(); SMALL * SMALL];
        copied.iter_mut().zip(&product.b).for_each(|(place, &number)| _ = place.write(number));
        // SAFETY: that many rows of as many numbers have been written.
        unsafe { multiply(&mut product, (copied.as_ptr().cast(), columns as isize), lanes, tiles) };
    } else {
        return Some(product);
    }
    None
}

/// Computes the result from the second factor's rows, each of which is `down` behind the one before.
///
/// # Safety
/// They must be there. The processor must have what the tiles ask for.
unsafe fn multiply<T: Tiles>(
    product: &mut Product<'_, T>,
    (b, down): (*const T, isize),
    lanes: usize,
    tiles: &[Tile<T>],
) {
    let Product { alpha, a, beta, c, .. } = product;
    let (inner, steps, down_c) = (a.ncols(), (a.strides()[0], a.strides()[1]), c.strides()[0]);
    let ((rows, columns), alpha, beta) = (c.dim(), *alpha, *beta);
    let is_plain = alpha.is_one() && beta.is_zero();
    let mut room = [MaybeUninit::uninit(); TILE];
    let mut first = 0;
    while first < columns {
        let panels = (columns - first).div_ceil(lanes);
        let Some(tile) = tiles.iter().find(|tile| tile.panels <= panels) else { break };
        let width = (tile.panels * lanes).min(columns - first);
        let last = width - (tile.panels - 1) * lanes;
        let mut row = 0;
        while row < rows {
            let (count, sum) = tile.of(rows - row);
            let factors = a.as_ptr().wrapping_offset(row as isize * steps.0);
            let to = c.as_mut_ptr().wrapping_offset(row as isize * down_c).wrapping_add(first);
            let sums = if is_plain { (to, down_c) } else { (room.as_mut_ptr().cast::<T>(), width as isize) };
            // SAFETY: promised by the caller; there are `count` rows of factors from this one on, and room for as many sums.
            unsafe {
                let panels = (b.add(first), lanes as isize, down);
                sum(panels, last, inner, (factors, steps.0, steps.1), sums);
            }
            for (at, sums) in room.chunks_exact(width).take(if is_plain { 0 } else { count }).enumerate() {
                for (column, sum) in sums.iter().enumerate() {
                    // SAFETY: the sum has been stored, and its place is that of an element of `c`.
                    unsafe {
                        let to = &mut *to.offset(at as isize * down_c).add(column);
                        let sum = alpha * sum.assume_init();
                        *to = if beta.is_zero() { sum } else { sum + beta * *to };
                    }
                }
            }
            row += count;
        }
        first += width;
    }
}
