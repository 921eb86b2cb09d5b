//! Products with few rows of a matrix whose columns are dense, as in layers of networks: `x · weightsᵀ`.
//!
//! The matrix is large beside the rest, and its columns are read as they lie, number by number, each multiplied with all rows
//! at once. Kernels for products of any size copy it first, and that takes longer than such a product.

#![allow(
    clippy::needless_range_loop,
    reason = "iterators over several arrays are not always compiled into the loop, and then not for its instruction set"
)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use std::ops::Range;

use ndarray::{ArrayView2, Axis, NdFloat};
#[cfg(target_arch = "x86_64")]
use opsmith_body::Level;
use opsmith_core::memory;

use super::Product;

/// The most rows.
const ROWS: usize = 64;

/// How many times as many columns there are at least: else copies of the matrix are no matter.
const COLUMNS_PER_ROW: usize = 2;

/// The columns of the tiles for what is left of a matrix, as long as there are as many.
const FEW: usize = 4;

/// The most numbers of a tile.
pub(super) const TILE: usize = 512;

/// Adds up `inner` products for a tile. Of both factors there are the first number, the steps to the next panel or column, and those
/// along the sum; of the sums, where the first one goes, and the steps to the next column. Those of a column lie side by side. Of the
/// last panel only the first `last` numbers are read, and as many sums stored.
///
/// # Safety
/// There must be that many numbers everywhere, and a processor that has what the function is compiled for.
pub(super) type Sum<T> = unsafe fn(
    panels: (*const T, isize, isize),
    last: usize,
    inner: usize,
    columns: (*const T, isize, isize),
    sums: (*mut T, isize),
);

/// A tile of some panels and columns.
pub(crate) struct Tile<T> {
    pub(super) panels: usize,
    columns: usize,
    sum: Sum<T>,
    /// The same for [`FEW`] columns, and for one: what is left of the matrix.
    sum_of_few: Sum<T>,
    sum_of_one: Sum<T>,
}

impl<T> Tile<T> {
    /// How many columns of those that are left, and what adds up their products. As few as can be are left to be summed one by one.
    pub(super) fn of(&self, left: usize) -> (usize, Sum<T>) {
        let leaves_more =
            (self.columns..2 * self.columns).contains(&left) && (left - self.columns) % FEW > left % FEW;
        match left {
            left if left >= self.columns && !leaves_more => (self.columns, self.sum),
            left if left >= FEW => (FEW, self.sum_of_few),
            _ => (1, self.sum_of_one),
        }
    }
}

/// A float with tiles.
pub(crate) trait Tiles: NdFloat {
    /// How many rows are side by side in a panel, and the tiles, of most panels first, the last one of one.
    fn tiles() -> Option<(usize, &'static [Tile<Self>])>;
}

#[cfg(target_arch = "x86_64")]
macro_rules! tiles {
    ($number:ty: $($level:ident $features:literal $sum:ident $lanes:literal $zero:ident $load:ident $splat:ident $fused:ident
        $store:ident $mask:ident $load_some:ident $store_some:ident [$($panels:literal x $columns:literal),*];)*) => {
        $(
            #[target_feature(enable = $features)]
            unsafe fn $sum<const PANELS: usize, const COLUMNS: usize>(
                (panels, apart, down): (*const $number, isize, isize),
                last: usize,
                inner: usize,
                (columns, step, along): (*const $number, isize, isize),
                (sums, further): (*mut $number, isize),
            ) {
                const { assert!(PANELS * COLUMNS * $lanes <= TILE) }
                let (whole, mask) = (PANELS - 1, $mask(last));
                let mut tile = [[$zero(); PANELS]; COLUMNS];
                for at in 0..inner as isize {
                    let mut rows = [$zero(); PANELS];
                    // SAFETY: the caller promised that these numbers are there.
                    unsafe {
                        for panel in 0..whole {
                            rows[panel] = $load(panels.offset(panel as isize * apart + at * down));
                        }
                        rows[whole] = $load_some(panels.offset(whole as isize * apart + at * down), mask);
                    }
                    for column in 0..COLUMNS {
                        // SAFETY: as above.
                        let factor = $splat(unsafe { *columns.offset(column as isize * step + at * along) });
                        for panel in 0..PANELS {
                            tile[column][panel] = $fused(rows[panel], factor, tile[column][panel]);
                        }
                    }
                }
                for column in 0..COLUMNS {
                    // SAFETY: as above.
                    unsafe {
                        let to = sums.offset(column as isize * further);
                        for panel in 0..whole {
                            $store(to.add(panel * $lanes), tile[column][panel]);
                        }
                        // Stores of some are slow on some processors.
                        match last {
                            $lanes => $store(to.add(whole * $lanes), tile[column][whole]),
                            _ => $store_some(to.add(whole * $lanes), mask, tile[column][whole]),
                        }
                    }
                }
            }
        )*

        impl Tiles for $number {
            fn tiles() -> Option<(usize, &'static [Tile<Self>])> {
                match Level::best() {
                    $(Level::$level => Some((
                        $lanes,
                        const {
                            &[$(Tile {
                                panels: $panels,
                                columns: $columns,
                                sum: $sum::<$panels, $columns>,
                                sum_of_few: $sum::<$panels, FEW>,
                                sum_of_one: $sum::<$panels, 1>,
                            }),*]
                        },
                    )),)*
                    _ => None,
                }
            }
        }
    };
}

/// What is true for the first `count` of the numbers of a register.
#[cfg(target_arch = "x86_64")]
macro_rules! masks {
    ($($name:ident $features:literal |$count:ident| $mask:ty: $value:expr;)*) => {$(
        #[target_feature(enable = $features)]
        fn $name($count: usize) -> $mask {
            $value
        }
    )*};
}

#[cfg(target_arch = "x86_64")]
masks! {
    mask_f32_avx512 "avx512f" |count| __mmask16: ((1_u32 << count) - 1) as __mmask16;
    mask_f64_avx512 "avx512f" |count| __mmask8: ((1_u32 << count) - 1) as __mmask8;
    mask_f32_avx2 "avx2" |count| __m256i:
        _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    mask_f64_avx2 "avx2" |count| __m256i:
        _mm256_cmpgt_epi64(_mm256_set1_epi64x(count as i64), _mm256_setr_epi64x(0, 1, 2, 3));
}

/// Some numbers, and zeros.
///
/// # Safety
/// The numbers that the mask names must be there.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn load_f32_avx512(from: *const f32, mask: __mmask16) -> __m512 {
    // SAFETY: promised by the caller.
    unsafe { _mm512_maskz_loadu_ps(mask, from) }
}

/// As above.
///
/// # Safety
/// As above.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn load_f64_avx512(from: *const f64, mask: __mmask8) -> __m512d {
    // SAFETY: promised by the caller.
    unsafe { _mm512_maskz_loadu_pd(mask, from) }
}

#[cfg(target_arch = "x86_64")]
tiles! { f32:
    Avx512 "avx512f" sum_f32_avx512 16 _mm512_setzero_ps _mm512_loadu_ps _mm512_set1_ps _mm512_fmadd_ps _mm512_storeu_ps
        mask_f32_avx512 load_f32_avx512 _mm512_mask_storeu_ps
        [4 x 6, 2 x 8, 1 x 16];
    Avx2 "avx2,fma" sum_f32_avx2 8 _mm256_setzero_ps _mm256_loadu_ps _mm256_set1_ps _mm256_fmadd_ps _mm256_storeu_ps
        mask_f32_avx2 _mm256_maskload_ps _mm256_maskstore_ps
        [2 x 5, 1 x 8];
}

#[cfg(target_arch = "x86_64")]
tiles! { f64:
    Avx512 "avx512f" sum_f64_avx512 8 _mm512_setzero_pd _mm512_loadu_pd _mm512_set1_pd _mm512_fmadd_pd _mm512_storeu_pd
        mask_f64_avx512 load_f64_avx512 _mm512_mask_storeu_pd
        [4 x 6, 2 x 12, 1 x 12];
    Avx2 "avx2,fma" sum_f64_avx2 4 _mm256_setzero_pd _mm256_loadu_pd _mm256_set1_pd _mm256_fmadd_pd _mm256_storeu_pd
        mask_f64_avx2 _mm256_maskload_pd _mm256_maskstore_pd
        [2 x 5, 1 x 8];
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! no_tiles {
    ($($number:ty)*) => {$(
        impl Tiles for $number {
            fn tiles() -> Option<(usize, &'static [Tile<Self>])> {
                None
            }
        }
    )*};
}

#[cfg(not(target_arch = "x86_64"))]
no_tiles! { f32 f64 }

/// The product where it is one of few rows, or few columns, of that kind; elsewhere it is given back.
pub(super) fn product<T: Tiles>(product: Product<'_, T>) -> Option<Product<'_, T>> {
    let fits = |rows: usize, columns: usize| rows <= ROWS && columns >= COLUMNS_PER_ROW * rows;
    let (rows, columns) = product.c.dim();
    if product.b.strides()[0] == 1 && product.b.strides()[1] != 1 && fits(rows, columns) {
        return by_rows(product);
    }
    if product.a.strides()[1] == 1 && product.a.strides()[0] != 1 && fits(columns, rows) {
        return by_rows(product.turned()).map(Product::turned);
    }
    Some(product)
}

fn by_rows<T: Tiles>(product: Product<'_, T>) -> Option<Product<'_, T>> {
    let Some((lanes, tiles)) = T::tiles() else { return Some(product) };
    let Some(panels) = panels(product.a, lanes) else { return Some(product) };
    let mut product = product;
    let (inner, columns) = product.b.dim();
    let count = product.a.nrows().div_ceil(lanes);
    let mut sums = [T::zero(); TILE];
    let mut first = 0;
    while first < count {
        let Some(tile) = tiles.iter().find(|tile| tile.panels <= count - first) else { break };
        let mut column = 0;
        while column < columns {
            let (width, sum) = tile.of(columns - column);
            let (from, step) =
                (product.b.slice_axis(Axis(1), (column..).into()).as_ptr(), product.b.strides()[1]);
            // SAFETY: the panels from this one on, of `inner` times `lanes` numbers each, are at least as many as those of the
            // tile; the columns are dense, and as many. The processor has the level.
            unsafe {
                let panels = panels[first * inner * lanes..].as_ptr();
                let sums = (sums.as_mut_ptr(), (tile.panels * lanes) as isize);
                sum((panels, (inner * lanes) as isize, lanes as isize), lanes, inner, (from, step, 1), sums);
            }
            product.store(first * lanes, column..column + width, tile.panels * lanes, &sums);
            column += width;
        }
        first += tile.panels;
    }
    None
}

/// The rows of a matrix side by side, so many at a time: `[panel][column][row]`, with zeros for rows that are none. Nothing if
/// there is no memory for that.
fn panels<T: NdFloat>(a: ArrayView2<'_, T>, lanes: usize) -> Option<Vec<T>> {
    let len = a.nrows().next_multiple_of(lanes).checked_mul(a.ncols())?;
    let mut panels = memory::filled(T::zero(), len, "panels of rows").ok()?;
    for (rows, panel) in a.axis_chunks_iter(Axis(0), lanes).zip(panels.chunks_exact_mut(lanes * a.ncols())) {
        let (start, down, along) = (rows.as_ptr(), rows.strides()[0], rows.strides()[1]);
        // Stores lie side by side, and each of the few rows is read from its begin to its end.
        for (column, places) in panel.chunks_exact_mut(lanes).enumerate() {
            for (row, place) in places[..rows.nrows()].iter_mut().enumerate() {
                // SAFETY: the row and the column are those of an element.
                *place = unsafe { *start.offset(row as isize * down + column as isize * along) };
            }
        }
    }
    Some(panels)
}

impl<T: NdFloat> Product<'_, T> {
    /// Stores sums of some columns from a row on; those of each column are `height` numbers.
    fn store(&mut self, first: usize, columns: Range<usize>, height: usize, sums: &[T; TILE]) {
        let (rows, width) = (height.min(self.c.nrows() - first), columns.len());
        assert!(height * width <= TILE && columns.end <= self.c.ncols());
        let (down, along) = (self.c.strides()[0], self.c.strides()[1]);
        let corner =
            self.c.as_mut_ptr().wrapping_offset(first as isize * down + columns.start as isize * along);
        let (alpha, beta) = (self.alpha, self.beta);
        let block = Block { corner, rows, width, down, height };
        // SAFETY: the places are those of elements of `c`, which nobody else has, and there are as many sums.
        unsafe {
            match (along, alpha.is_one(), beta.is_zero(), beta.is_one()) {
                (1, true, true, _) => block.each(1, sums, |place, sum| *place = sum),
                (1, true, _, true) => block.each(1, sums, |place, sum| *place += sum),
                (_, _, true, _) => block.each(along, sums, |place, sum| *place = alpha * sum),
                _ => block.each(along, sums, |place, sum| *place = alpha * sum + beta * *place),
            }
        }
    }
}

/// Where the sums of a tile go.
struct Block<T> {
    corner: *mut T,
    rows: usize,
    width: usize,
    /// From a row to the next.
    down: isize,
    /// How many sums each column has.
    height: usize,
}

impl<T: NdFloat> Block<T> {
    /// Calls a function with each place, the next one in a row so far `along`, and its sum.
    ///
    /// # Safety
    /// The places must be there, and nobody else's, and so must the sums.
    #[inline(always)]
    unsafe fn each(&self, along: isize, sums: &[T; TILE], store: impl Fn(&mut T, T)) {
        for row in 0..self.rows {
            let line = self.corner.wrapping_offset(row as isize * self.down);
            for column in 0..self.width {
                // SAFETY: promised by the caller.
                unsafe {
                    let sum = *sums.get_unchecked(column * self.height + row);
                    store(&mut *line.offset(column as isize * along), sum);
                }
            }
        }
    }
}
