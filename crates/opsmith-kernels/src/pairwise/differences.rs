//! Sums of `|x − y|`, which need two operations a term instead of three.
//!
//! Because `|x − y| = (max(x, y) − x) + (max(x, y) − y)`, a block of terms is `(Σ max − Σ x) + (Σ max − Σ y)`, and the sums
//! over rows of one matrix cost nothing beside those over pairs. What it costs is accuracy where the sum is small beside
//! the magnitudes `Σ |x| + Σ |y|`. So only sums of short blocks are made in this way; a pair whose magnitudes outweigh its
//! sum more than [`CONDITION`] times, and each with a NaN or an infinity, is done again directly; and a sample of pairs
//! decides beforehand whether the whole call is done directly.

use std::ops::Range;

use opsmith_body::{
    Body, Closing, Fold, FoldTile, Graph, Isa, Kernel, Level, Pair, Plain, Scalar, TILE, compose, dispatch_at,
};
use opsmith_core::{Compute, Result};

use super::shared::{Shared, Sizes};
use super::tiled::TileNumber;

/// How much larger than a sum the magnitudes behind it may be.
const CONDITION: f64 = 8.0;
/// Sums of fewer terms are always made directly.
const SHORT: usize = 24;
/// Pairs that are looked at beforehand.
const SAMPLE: usize = 8;
/// Numbers that are added side by side.
const LANES: usize = 16;

/// Whether a body's sum is that of `|x − y|`.
pub(crate) fn are_summed(graph: &Graph, fold: Fold) -> bool {
    let difference = |of: usize| compose(2, 1, |inputs| vec![(inputs[of] - inputs[1 - of]).abs()]);
    fold == Fold::Sum && (*graph == difference(0) || *graph == difference(1))
}

/// The larger of two numbers, either one where one is NaN.
struct Larger;

impl Body<2, 1> for Larger {
    #[inline(always)]
    fn eval<S: Scalar>(&self, [x, y]: [S; 2]) -> [S; 1] {
        [S::select(x.gt(y), x, y)]
    }
}

impl Pair for Larger {
    const FOLD: Fold = Fold::Sum;
}

/// What is known of the rows of `x` in a call.
pub(crate) struct RowSums<'a, T> {
    /// For each row the sum of the magnitudes.
    weights: &'a [T],
    /// For each row the sums of its blocks.
    blocks: &'a [T],
    count: usize,
}

impl<'a, T: TileNumber> RowSums<'a, T> {
    /// The sums of rows in blocks of `depth` elements, if most of a sample of pairs may be done in this way.
    ///
    /// # Errors
    /// `ResourceExhausted` when there is no memory.
    pub(crate) fn new(
        cx: &Compute<'a>,
        sizes: Sizes,
        (x, y): (&[T], &[T]),
        depth: usize,
    ) -> Result<Option<RowSums<'a, T>>> {
        let Sizes { n, m, p } = sizes;
        let good = |s: usize| {
            let (i, j) = (s * (n - 1) / (SAMPLE - 1), (s * 5 + 3) % SAMPLE * (m - 1) / (SAMPLE - 1));
            let (x, y) = (&x[i * p..][..p], &y[j * p..][..p]);
            let weight = add(sum(x, |v| v.abs()), sum(y, |v| v.abs()));
            is_exact(direct(x, y), weight)
        };
        if p < SHORT || (0..SAMPLE).filter(|s| good(*s)).count() <= SAMPLE / 2 {
            return Ok(None);
        }
        let count = p.div_ceil(depth);
        let (weights, blocks) = (cx.temp::<T>(n)?, cx.temp::<T>(n * count)?);
        let (to_weights, to_blocks) = (Shared::new(weights), Shared::new(blocks));
        cx.parallel_for(n, p / 8, |rows| {
            // SAFETY: ranges do not overlap.
            let (weights, blocks) = unsafe {
                let blocks = to_blocks.slice(rows.start * count, rows.len() * count);
                (to_weights.slice(rows.start, rows.len()), blocks)
            };
            let x = &x[rows.start * p..rows.end * p];
            dispatch_at(Level::best(), SumRows { x, p, depth, weights, blocks });
        });
        Ok(Some(RowSums { weights, blocks, count }))
    }

    /// Adds the sums of a block of terms of some rows of `x`, which lie `p` apart, with the rows of `y` of a panel.
    pub(crate) fn add_block(
        &self,
        level: Level,
        (rows, block): (&Range<usize>, usize),
        (x, p): (&[T], usize),
        (panel, columns): (&[[T; TILE]], &[T; TILE]),
        sums: &mut [[T; TILE]],
    ) {
        let rows = &self.blocks[rows.start * self.count..rows.end * self.count];
        let closing = Differences { rows, block, count: self.count, columns };
        let folds = &mut sums[..rows.len() / self.count];
        dispatch_at(level, FoldTile { body: &Larger, closing, x, stride: p, y: panel, folds });
    }

    /// Does the pairs again that are not exact.
    pub(crate) fn refine(
        &self,
        level: Level,
        p: usize,
        (x, y): (&[T], &[T]),
        (rows, columns): (&Range<usize>, &Range<usize>),
        weights: &[T; TILE],
        sums: &mut [[T; TILE]],
    ) {
        for (i, sums) in rows.clone().zip(sums) {
            let of_row = self.weights[i];
            if dispatch_at(level, AreExact { sums, weights, of_row }) {
                continue;
            }
            for ((j, z), weight) in columns.clone().zip(sums.iter_mut()).zip(weights) {
                if !is_exact(*z, add(*weight, of_row)) {
                    *z = direct(&x[i * p..][..p], &y[j * p..][..p]);
                }
            }
        }
    }
}

/// The sums of the columns of a panel; those of the magnitudes are added to `weights`.
pub(crate) fn column_sums<T: TileNumber>(
    level: Level,
    panel: &[[T; TILE]],
    weights: &mut [T; TILE],
) -> [T; TILE] {
    dispatch_at(level, SumColumns { panel, weights })
}

#[inline(always)]
fn add<T: TileNumber>(a: T, b: T) -> T {
    T::store(a.load::<Plain>() + b.load::<Plain>())
}

/// Whether a sum outweighs the error of what it is made of.
#[inline(always)]
fn is_exact<T: TileNumber>(sum: T, weight: T) -> bool {
    sum.double() * CONDITION >= weight.double()
}

/// The sum of a function of numbers.
fn sum<T: TileNumber>(numbers: &[T], of: impl Fn(T::Number<Plain>) -> T::Number<Plain>) -> T {
    let mut lanes = [T::default(); LANES];
    for numbers in numbers.chunks(LANES) {
        for (lane, number) in lanes.iter_mut().zip(numbers) {
            *lane = T::store(lane.load::<Plain>() + of(number.load::<Plain>()));
        }
    }
    halves(lanes)
}

/// The sum of the differences of two rows.
fn direct<T: TileNumber>(x: &[T], y: &[T]) -> T {
    let mut lanes = [T::default(); LANES];
    for (x, y) in x.chunks(LANES).zip(y.chunks(LANES)) {
        for ((lane, x), y) in lanes.iter_mut().zip(x).zip(y) {
            *lane = T::store(lane.load::<Plain>() + (x.load::<Plain>() - y.load::<Plain>()).abs());
        }
    }
    halves(lanes)
}

fn halves<T: TileNumber>(mut lanes: [T; LANES]) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = add(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}

struct SumRows<'a, T> {
    x: &'a [T],
    p: usize,
    depth: usize,
    weights: &'a mut [T],
    blocks: &'a mut [T],
}

impl<T: TileNumber> Kernel for SumRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let blocks = self.blocks.chunks_exact_mut(self.p.div_ceil(self.depth));
        for ((x, weight), blocks) in self.x.chunks_exact(self.p).zip(self.weights).zip(blocks) {
            let mut magnitudes = [T::default(); LANES];
            for (x, block) in x.chunks(self.depth).zip(blocks) {
                let mut lanes = [T::default(); LANES];
                let (whole, rest) = x.as_chunks::<LANES>();
                for x in whole {
                    for l in 0..LANES {
                        let number = x[l].load::<I>();
                        lanes[l] = T::store(lanes[l].load::<I>() + number);
                        magnitudes[l] = T::store(magnitudes[l].load::<I>() + number.abs());
                    }
                }
                for (l, x) in rest.iter().enumerate() {
                    let number = x.load::<I>();
                    lanes[l] = T::store(lanes[l].load::<I>() + number);
                    magnitudes[l] = T::store(magnitudes[l].load::<I>() + number.abs());
                }
                *block = halves(lanes);
            }
            *weight = halves(magnitudes);
        }
    }
}

struct SumColumns<'a, T> {
    panel: &'a [[T; TILE]],
    weights: &'a mut [T; TILE],
}

impl<T: TileNumber> Kernel for SumColumns<'_, T> {
    type Output = [T; TILE];

    #[inline(always)]
    fn run<I: Isa>(self) -> [T; TILE] {
        let (mut sums, mut magnitudes) = ([T::default(); TILE], *self.weights);
        for row in self.panel {
            for l in 0..TILE {
                let number = row[l].load::<I>();
                sums[l] = T::store(sums[l].load::<I>() + number);
                magnitudes[l] = T::store(magnitudes[l].load::<I>() + number.abs());
            }
        }
        *self.weights = magnitudes;
        sums
    }
}

/// What a block adds to the sums: the larger numbers, less those of the row and those of the column.
struct Differences<'a, T> {
    /// For each row the sums of its blocks.
    rows: &'a [T],
    block: usize,
    count: usize,
    columns: &'a [T; TILE],
}

impl<T: TileNumber> Closing<T> for Differences<'_, T> {
    #[inline(always)]
    fn close<I: Isa>(&self, row: usize, larger: &[T; TILE], sums: &mut [T; TILE]) {
        let of_row = self.rows[row * self.count + self.block].load::<I>();
        for l in 0..TILE {
            let larger = larger[l].load::<I>();
            let difference = (larger - of_row) + (larger - self.columns[l].load::<I>());
            sums[l] = T::store(sums[l].load::<I>() + difference);
        }
    }
}

/// Whether all sums of a row outweigh the error of what they are made of.
struct AreExact<'a, T> {
    sums: &'a [T; TILE],
    weights: &'a [T; TILE],
    of_row: T,
}

impl<T: TileNumber> Kernel for AreExact<'_, T> {
    type Output = bool;

    #[inline(always)]
    fn run<I: Isa>(self) -> bool {
        let mut all = true;
        for l in 0..TILE {
            all &= is_exact(self.sums[l], add(self.weights[l], self.of_row));
        }
        all
    }
}
