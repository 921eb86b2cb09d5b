//! The fold of all pairs of rows by compiled tiles: panels of rows of `y`, transposed, which all rows of `x` go by.

use std::ops::Range;

use opsmith_body::{BLOCK, Block, Blocks, Fold, Level, Plain, Scalar, TILE, Tiles};
use opsmith_core::{Compute, Result, memory};

use super::differences::{RowSums, column_sums};
use super::elements::{Numbers, elements};
use super::shared::{Shared, Sizes};
use super::tiled::TileNumber;
use super::triples::{Pass, Source, Target};

/// Bytes of a row that are copied at a time: a panel of them takes half of the first cache.
const DEPTH_BYTES: usize = 512;
/// Elements of a row that are copied at a time.
const LINE: usize = 16;
/// Panels of terms that are summed before the sum is added to the total.
const SHORT: usize = 64;
/// Rows of `x` per unit of work, at most.
const MAX_ROWS: usize = 1024;
/// With fewer rows than these, copying costs more than tiles win.
const FEW: usize = 12;

/// A call.
#[derive(Clone, Copy)]
pub(crate) struct Folds<'a, T> {
    pub(crate) tiles: &'a dyn Tiles,
    pub(crate) sizes: Sizes,
    pub(crate) x: &'a [T],
    pub(crate) y: &'a [T],
    /// Whether the terms are `|x − y|` and the fold their sum.
    pub(crate) differences: bool,
    /// What is done with each fold: it is divided by a number, and goes through a body.
    pub(crate) divisor: Option<T>,
    pub(crate) finish: Option<&'a dyn Blocks>,
}

impl<T: TileNumber> Folds<'_, T> {
    /// Computes the folds of all pairs of rows.
    ///
    /// How the sums are cut depends on the sizes only: 512 bytes of terms at a time are summed in their order, then 64
    /// of those sums, then the rest. So a sum of `p` terms in float32 is off by at most `128 + 64 + p / 8192` roundings
    /// of the sum of their magnitudes, in float64 by half of the first and twice the last. Sums of `|x − y|` are
    /// off by at most 3200 roundings more, in practice by a few.
    ///
    /// # Errors
    /// `ResourceExhausted` when there is no memory.
    pub(crate) fn run(&self, cx: &Compute<'_>, z: &mut [T]) -> Result<()> {
        let Sizes { n, m, p } = self.sizes;
        if n == 0 || m == 0 {
            return Ok(());
        }
        if n < FEW || m < FEW {
            return self.one_by_one(cx, z);
        }
        let across = m.div_ceil(TILE);
        let down = (4 * cx.num_threads()).div_ceil(across).max(n.div_ceil(MAX_ROWS));
        let rows = n.div_ceil(down).next_multiple_of(4);
        let z = Shared::new(z);
        let depth = DEPTH_BYTES / size_of::<T>();
        let sums = match self.differences {
            true => RowSums::new(cx, self.sizes, (self.x, self.y), depth)?,
            false => None,
        };
        cx.try_parallel_for(across * n.div_ceil(rows), rows * TILE * p.max(1) / 16, |mut units| {
            units.try_for_each(|unit| {
                let (i, j) = (unit / across * rows, unit % across * TILE);
                // SAFETY: units have rows or columns of their own.
                unsafe { self.rectangle(i..(i + rows).min(n), j..(j + TILE).min(m), sums.as_ref(), &z) }
            })
        })
    }

    /// Without tiles: for few rows.
    fn one_by_one(&self, cx: &Compute<'_>, z: &mut [T]) -> Result<()> {
        let Sizes { n, m, .. } = self.sizes;
        let by_y = n < m;
        let mut pass = Pass::new(self.tiles, 4, self.tiles.fold(), self.sizes, by_y);
        pass.sources.extend(if by_y {
            [Source::Inner(self.x), Source::Outer(self.y)]
        } else {
            [Source::Outer(self.x), Source::Inner(self.y)]
        });
        debug_assert_eq!(z.len(), n * m);
        pass.run(cx, &mut [Target::Pair(z)])?;
        if let Some(divisor) = self.divisor {
            for fold in z.iter_mut() {
                *fold = divided(*fold, divisor);
            }
        }
        if let Some(finish) = self.finish {
            let folds = cx.temp::<T>(z.len())?;
            folds.copy_from_slice(z);
            elements(cx, finish, 8, &[Numbers::Each(folds)], &mut [z]);
        }
        Ok(())
    }

    /// The folds of some rows of `x` with at most [`TILE`] rows of `y`.
    ///
    /// # Safety
    /// Nobody else writes to these folds.
    unsafe fn rectangle(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        sums: Option<&RowSums<'_, T>>,
        z: &Shared<T>,
    ) -> Result<()> {
        let (level, fold, p) = (Level::best(), self.tiles.fold(), self.sizes.p);
        let depth = DEPTH_BYTES / size_of::<T>();
        let identity = T::store(fold.identity::<T::Number<Plain>>());
        // A whole number of blocks.
        let whole = rows.len().next_multiple_of(BLOCK / TILE);
        let mut folds = memory::filled([identity; TILE], whole, "the folds of a tile")?;
        let mut long: Vec<[T; TILE]> = Vec::new();
        let mut panel = memory::filled([T::default(); TILE], depth.min(p), "a panel of rows")?;
        let mut weights = [T::default(); TILE];
        for (number, k) in (0..p).step_by(depth).enumerate() {
            let len = depth.min(p - k);
            self.pack(&columns, k, &mut panel[..len]);
            let x = &self.x[rows.start * p + k..];
            if let Some(sums) = sums {
                let of_columns = column_sums(level, &panel[..len], &mut weights);
                sums.add_block(level, (&rows, number), (x, p), (&panel[..len], &of_columns), &mut folds);
            } else {
                T::fold(self.tiles, level, x, p, &panel[..len], &mut folds[..rows.len()]);
            }
            if fold == Fold::Sum && number % SHORT == SHORT - 1 {
                add_short(&mut long, &mut folds)?;
            }
        }
        if !long.is_empty() {
            add_short(&mut long, &mut folds)?;
            folds = long;
        }
        if let Some(sums) = sums {
            sums.refine(level, p, (self.x, self.y), (&rows, &columns), &weights, &mut folds);
        }
        self.finish(level, &mut folds);
        for (i, folds) in rows.zip(&folds) {
            // SAFETY: promised by the caller.
            let own = unsafe { z.slice(i * self.sizes.m + columns.start, columns.len()) };
            own.copy_from_slice(&folds[..columns.len()]);
        }
        Ok(())
    }

    /// Copies some rows of `y`, transposed; what is beyond them is the last again.
    fn pack(&self, columns: &Range<usize>, k: usize, panel: &mut [[T; TILE]]) {
        let p = self.sizes.p;
        // A cache line of each row at a time: more at once would evict what is written to.
        for (line, panel) in panel.chunks_mut(LINE).enumerate() {
            for l in 0..TILE {
                let row = (columns.start + l).min(columns.end - 1);
                let from = &self.y[row * p + k + line * LINE..][..panel.len()];
                for (to, from) in panel.iter_mut().zip(from) {
                    to[l] = *from;
                }
            }
        }
    }

    fn finish(&self, level: Level, folds: &mut [[T; TILE]]) {
        let folds = folds.as_flattened_mut();
        if let Some(divisor) = self.divisor {
            folds.iter_mut().for_each(|fold| *fold = divided(*fold, divisor));
        }
        if let Some(finish) = self.finish {
            let mut results = [Block::default()];
            for folds in folds.as_chunks_mut::<BLOCK>().0 {
                T::eval(finish, level, &[&*folds], &mut results);
                *folds = results[0].0;
            }
        }
    }
}

fn divided<T: TileNumber>(fold: T, divisor: T) -> T {
    T::store(fold.load::<Plain>() / divisor.load::<Plain>())
}

/// Adds the short sums to the long ones, and begins them anew.
fn add_short<T: TileNumber>(long: &mut Vec<[T; TILE]>, short: &mut [[T; TILE]]) -> Result<()> {
    memory::reserve(long, short.len() - long.len(), "the long sums of a tile")?;
    long.resize(short.len(), [T::default(); TILE]);
    for (sum, term) in long.as_flattened_mut().iter_mut().zip(short.as_flattened_mut()) {
        *sum = T::store(sum.load::<Plain>() + term.load::<Plain>());
        *term = T::store(T::Number::<Plain>::of(0.0));
    }
    Ok(())
}
