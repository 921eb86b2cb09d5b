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
    let ((rows, inner), columns) = (a.dim(), b.ncols());
    let width = columns.next_multiple_of(lanes);
    let mut copied = [MaybeUninit::uninit(); MOST * MOST];
    let (panels, down) = if b.strides()[1] == 1 && columns == width {
        (b.as_ptr(), b.strides()[0])
    } else {
        copy(b, width, &mut copied);
        (copied.as_ptr().cast(), width as isize)
    };
    let (mut room, down_c) = ([MaybeUninit::uninit(); TILE], c.strides()[0]);
    let mut first = 0;
    while first < width {
        let Some(tile) = tiles.iter().find(|tile| tile.panels * lanes <= width - first) else { break };
        let height = tile.panels * lanes;
        let is_whole = first + height <= columns && alpha.is_one() && beta.is_zero();
        let mut row = 0;
        while row < rows {
            let (count, sum) = tile.of(rows - row);
            let factors = a.as_ptr().wrapping_offset(row as isize * a.strides()[0]);
            let to = c.as_mut_ptr().wrapping_offset(row as isize * down_c).wrapping_add(first);
            let sums = if is_whole { (to, down_c) } else { (room.as_mut_ptr().cast::<T>(), height as isize) };
            // SAFETY: there are `inner` rows of `width` numbers, so far apart, `count` rows of `inner` factors from this one on, and room for
            // as many sums. The processor has the level.
            unsafe {
                let panels = (panels.add(first), lanes as isize, down);
                sum(panels, inner, (factors, a.strides()[0], a.strides()[1]), sums);
            }
            for (at, sums) in room.chunks_exact(height).take(if is_whole { 0 } else { count }).enumerate() {
                for (column, sum) in sums.iter().take(columns - first).enumerate() {
                    // SAFETY: the sum has been stored, and its place is that of an element of `c`.
                    unsafe {
                        let (sum, to) =
                            (sum.assume_init(), &mut *to.offset(at as isize * down_c).add(column));
                        *to = if beta.is_zero() { alpha * sum } else { alpha * sum + beta * *to };
                    }
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
