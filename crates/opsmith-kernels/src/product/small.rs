//! Products of small matrices. Kernels for products of any size make room and copies first, and that takes longer than such a product.

use std::mem::MaybeUninit;

use ndarray::ArrayView2;

use super::Product;
use super::few_rows::{TILE, Tile, Tiles};

/// The most rows, columns and terms of a sum.
const MOST: usize = 32;

/// The product where it is one of small matrices whose result has dense rows or columns; elsewhere it is given back.
pub(super) fn product<T: Tiles>(product: Product<'_, T>) -> Option<Product<'_, T>> {
    let (rows, columns) = product.c.dim();
    if rows.max(columns).max(product.a.ncols()) > MOST {
        return Some(product);
    }
    match (T::tiles(), product.c.strides()) {
        (Some((lanes, tiles)), [_, 1]) => by_rows(product, lanes, tiles),
        (Some((lanes, tiles)), [1, _]) => by_rows(product.turned(), lanes, tiles),
        _ => return Some(product),
    }
    None
}

/// Of a result whose rows are dense.
fn by_rows<T: Tiles>(product: Product<'_, T>, lanes: usize, tiles: &[Tile<T>]) {
    let Product { alpha, a, b, beta, mut c } = product;
    let (rows, inner) = a.dim();
    let width = b.ncols().next_multiple_of(lanes);
    let mut room = [MaybeUninit::uninit(); MOST * MOST];
    let (panels, down) = if b.strides()[1] == 1 && b.ncols() == width {
        (b.as_ptr(), b.strides()[0])
    } else {
        copy(b, width, &mut room);
        (room.as_ptr().cast(), width as isize)
    };
    let mut sums = [T::zero(); TILE];
    let mut first = 0;
    while first < width {
        let Some(tile) = tiles.iter().find(|tile| tile.panels * lanes <= width - first) else { break };
        let height = tile.panels * lanes;
        let mut row = 0;
        while row < rows {
            let (count, sum) = tile.of(rows - row);
            let factors = a.as_ptr().wrapping_offset(row as isize * a.strides()[0]);
            // SAFETY: there are `inner` rows of `width` numbers, so far apart, and `count` rows of `inner` factors from this one on. The
            // processor has the level.
            unsafe {
                let panels = panels.add(first);
                sum((panels, lanes as isize, down), inner, (factors, a.strides()[0], a.strides()[1]), &mut sums);
            }
            for (at, sums) in sums.chunks_exact(height).take(count).enumerate() {
                let mut to = c.row_mut(row + at);
                let Some(to) = to.as_slice_mut().and_then(|to| to.get_mut(first..)) else { continue };
                match (alpha.is_one(), beta.is_zero()) {
                    (true, true) => to.iter_mut().zip(sums).for_each(|(to, &sum)| *to = sum),
                    (_, true) => to.iter_mut().zip(sums).for_each(|(to, &sum)| *to = alpha * sum),
                    _ => to.iter_mut().zip(sums).for_each(|(to, &sum)| *to = alpha * sum + beta * *to),
                }
            }
            row += count;
        }
        first += height;
    }
}

/// Rows one after another, with zeros behind each.
fn copy<T: Tiles>(b: ArrayView2<'_, T>, width: usize, room: &mut [MaybeUninit<T>; MOST * MOST]) {
    for (row, places) in b.outer_iter().zip(room.chunks_exact_mut(width)) {
        let (numbers, zeros) = places.split_at_mut(row.len());
        numbers.iter_mut().zip(row).for_each(|(place, &number)| _ = place.write(number));
        zeros.iter_mut().for_each(|place| _ = place.write(T::zero()));
    }
}
