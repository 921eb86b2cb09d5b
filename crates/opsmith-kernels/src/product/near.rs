//! Products whose second factor is read where it lies. Kernels for products of any size make room and copies of both factors first,
//! and where a factor is small that takes longer than it saves.

use std::mem::MaybeUninit;

use ndarray::{ArrayView2, s};
use opsmith_core::memory;

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
    let (rows, inner, columns) = (product.a.nrows(), product.a.ncols(), product.b.ncols());
    // Columns behind the last whole panel are copied, with zeros beside them.
    let is_near = is_near(&product.b, lanes);
    let in_place = if is_near { columns / lanes * lanes } else { 0 };
    let width = (columns - in_place).next_multiple_of(lanes);
    if !is_near && rows.max(columns).max(inner) > SMALL {
        return Some(product);
    }
    let (mut copied, mut long) = ([MaybeUninit::uninit(); SMALL * SMALL], Vec::<T>::new());
    let copied = if inner * width <= copied.len() {
        &mut copied[..]
    } else if memory::reserve(&mut long, inner * width, "the last columns of a factor").is_ok() {
        long.spare_capacity_mut()
    } else {
        return Some(product);
    };
    let mut product = product;
    if in_place > 0 {
        let panels = (product.b.as_ptr(), product.b.strides()[0]);
        // SAFETY: there are `inner` rows of as many numbers.
        unsafe { multiply(&mut product, panels, (0, in_place), lanes, tiles) };
    }
    if width > 0 {
        copy(product.b.slice(s![.., in_place..]), width, copied);
        // SAFETY: as above, of which some are zeros.
        unsafe {
            multiply(&mut product, (copied.as_ptr().cast(), width as isize), (in_place, width), lanes, tiles)
        };
    }
    None
}

/// Rows one after another, with zeros behind each.
fn copy<T: Tiles>(b: ArrayView2<'_, T>, width: usize, room: &mut [MaybeUninit<T>]) {
    for (row, places) in b.outer_iter().zip(room.chunks_exact_mut(width)) {
        let (numbers, zeros) = places.split_at_mut(row.len());
        numbers.iter_mut().zip(row).for_each(|(place, &number)| _ = place.write(number));
        zeros.iter_mut().for_each(|place| _ = place.write(T::zero()));
    }
}

/// Computes columns of the result from `first` on, of `width` columns of `panels`, whose rows are `down` apart.
///
/// # Safety
/// There must be as many rows as `a` has columns, of `width` numbers each, which is a multiple of `lanes`. The processor must have what
/// the tiles ask for.
unsafe fn multiply<T: Tiles>(
    product: &mut Product<'_, T>,
    (panels, down): (*const T, isize),
    (first, width): (usize, usize),
    lanes: usize,
    tiles: &[Tile<T>],
) {
    let Product { alpha, a, b, beta, c } = product;
    let (inner, steps, down_c) = (a.ncols(), (a.strides()[0], a.strides()[1]), c.strides()[0]);
    let (alpha, beta, left) = (*alpha, *beta, b.ncols() - first);
    let mut room = [MaybeUninit::uninit(); TILE];
    let mut panel = 0;
    while panel < width {
        let Some(tile) = tiles.iter().find(|tile| tile.panels * lanes <= width - panel) else { break };
        let height = tile.panels * lanes;
        let is_whole = panel + height <= left && alpha.is_one() && beta.is_zero();
        let mut row = 0;
        while row < a.nrows() {
            let (count, sum) = tile.of(a.nrows() - row);
            let factors = a.as_ptr().wrapping_offset(row as isize * steps.0);
            let to = c.as_mut_ptr().wrapping_offset(row as isize * down_c).wrapping_add(first + panel);
            let sums = if is_whole { (to, down_c) } else { (room.as_mut_ptr().cast::<T>(), height as isize) };
            // SAFETY: promised by the caller; there are `count` rows of factors from this one on, and room for as many sums.
            unsafe {
                let panels = (panels.add(panel), lanes as isize, down);
                sum(panels, inner, (factors, steps.0, steps.1), sums);
            }
            for (at, sums) in room.chunks_exact(height).take(if is_whole { 0 } else { count }).enumerate() {
                for (column, sum) in sums.iter().take(left - panel).enumerate() {
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
        panel += height;
    }
}
