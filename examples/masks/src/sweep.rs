//! Passes over the runs of an embedding: towards sums for each mask, or towards an output along the columns.
//!
//! Either way a thread takes whole columns, which it reads once. Sums are cut at places that the sizes alone decide, and put
//! together in a fixed order, so threads change no bit.

use std::ops::Range;

use opsmith::isa::{Isa, Kernel, dispatch};
use opsmith::ndarray::{ArrayViewMut, ArrayViewMut2, Ix3, s};
use opsmith::prelude::*;

use crate::rows::{self, BLOCK, Real};
use crate::runs::Runs;

/// Into how many parts a call is cut for sums, roughly: enough for the threads of a large machine.
const PARTS: usize = 64;

/// How many numbers of an embedding a thread goes through in a nanosecond, roughly.
const NUMBERS_PER_NANOSECOND: usize = 4;

/// An embedding and the masks on it.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'a, T> {
    /// Row-major: batch, x, y, d.
    pub(crate) embedding: &'a [T],
    pub(crate) runs: Runs<'a>,
    pub(crate) y: usize,
    pub(crate) d: usize,
}

impl<'a, T: Real> Scene<'a, T> {
    /// Row-major rows of `d` numbers for each mask.
    pub(crate) fn of_masks<'m, N>(&self, rows: &'m [N]) -> Rows<'m, N> {
        Rows { rows, d: self.d }
    }

    /// Roughly the nanoseconds that a column takes.
    fn cost(&self) -> usize {
        self.y.saturating_mul(self.d) / NUMBERS_PER_NANOSECOND
    }

    /// Sums for each mask, `width` of them, of what `visit` adds to them for the runs that it is called with.
    pub(crate) fn gather<'c, V: Visit<T>>(
        &self,
        cx: &Compute<'c>,
        width: usize,
        visit: impl Fn() -> V + Sync,
    ) -> Result<&'c mut [f64]> {
        let (batch, x, masks) = (self.runs.batch(), self.runs.x, self.runs.masks);
        // The sums of all parts are to be fewer than the numbers of the embedding by far.
        let affordable = self.embedding.len() / batch / 16 / (masks * width).max(1);
        let parts = PARTS.div_ceil(batch).min(affordable).clamp(1, x);
        let all = cx.temp::<f64>(
            (batch * parts).checked_mul(masks).and_then(|rows| rows.checked_mul(width)).unwrap_or(usize::MAX),
        )?;
        let view = shaped(all, [batch * parts, masks * width])?;
        cx.parallel_over(view, Axis(0), self.cost().saturating_mul(x / parts), |range, mut view| {
            for (part, mut sums) in range.zip(view.outer_iter_mut()) {
                let (element, part) = (part / parts, part % parts);
                let columns = element * x + part * x / parts..element * x + (part + 1) * x / parts;
                let sums = sums.as_slice_mut().expect("a row of a slice");
                dispatch(Walk { scene: *self, columns, width, output: sums, visit: visit() });
            }
        });
        let view = ArrayViewMut::<f64, Ix3>::from_shape((batch, parts, masks * width), all);
        cx.parallel_over(view.map_err(unfit)?, Axis(2), batch * parts / 8, |_, mut view| {
            for part in 1..parts {
                let (mut first, other) = view.multi_slice_mut((s![.., 0, ..], s![.., part, ..]));
                first += &other;
            }
        });
        for element in 1..batch {
            let from = element * parts * masks * width;
            all.copy_within(from..from + masks * width, element * masks * width);
        }
        Ok(&mut all[..batch * masks * width])
    }

    /// Calls `visit` with the runs of each column and the column's part of `output`, which begins as zeros.
    pub(crate) fn scatter<O: Element + Copy + Default, V: Visit<T, O>>(
        &self,
        cx: &Compute<'_>,
        output: &mut [O],
        visit: impl Fn() -> V + Sync,
    ) -> Result<()> {
        let columns = self.runs.batch() * self.runs.x;
        let view = shaped(output, [columns, output.len() / columns])?;
        cx.parallel_over(view, Axis(0), self.cost(), |columns, mut view| {
            let width = view.ncols();
            let output = view.as_slice_mut().expect("rows of a slice");
            dispatch(Walk { scene: *self, columns, width, output, visit: visit() });
        });
        Ok(())
    }

    /// The means of the masks, zero for an empty one: row-major, batch, mask, d.
    pub(crate) fn means(&self, cx: &Compute<'_>, means: &mut [T]) -> Result<()> {
        if self.d == 0 {
            return Ok(());
        }
        let width = rows::sums(self.d);
        let sums = self.gather(cx, width, || Sum)?;
        for ((mean, sums), &count) in
            means.chunks_exact_mut(self.d).zip(sums.chunks_exact_mut(width)).zip(self.runs.counts)
        {
            let (first, rest) = sums.split_at_mut(self.d);
            rest.chunks_exact(self.d).for_each(|sums| rows::accumulate(sums, first));
            for (mean, &sum) in mean.iter_mut().zip(&*first) {
                *mean = T::of(if count > 0 { sum / count as f64 } else { 0.0 });
            }
        }
        Ok(())
    }

    /// As [`means`](Self::means), in memory of the call.
    pub(crate) fn temporary_means<'c>(&self, cx: &Compute<'c>) -> Result<&'c mut [T]> {
        let means = cx.temp::<T>(self.runs.counts.len() * self.d)?;
        self.means(cx, means)?;
        Ok(means)
    }
}

/// Rows of numbers, one for each mask.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a, N> {
    rows: &'a [N],
    d: usize,
}

impl<'a, N> Rows<'a, N> {
    /// That of a mask, which is numbered through the whole batch.
    #[inline(always)]
    pub(crate) fn of(&self, mask: usize) -> &'a [N] {
        &self.rows[mask * self.d..][..self.d]
    }
}

/// Up to [`BLOCK`] places of a run, or as many as there are.
pub(crate) struct Places<'a, T> {
    /// The mask, numbered through the whole batch.
    pub(crate) mask: usize,
    /// The places, numbered through the whole batch.
    pub(crate) places: Range<usize>,
    /// Their rows in the embedding.
    pub(crate) rows: &'a [T],
}

/// What a pass does with the places of the masks.
pub(crate) trait Visit<T, O = f64> {
    /// Whether it takes runs in blocks, and is compiled for the usual `d` apart.
    const BLOCKS: bool = true;
    /// Whether the output lies along the columns; else it is sums for each mask.
    const ALONG: bool = true;

    /// Adds to `output`: to the sums of the mask, or to what the output has for these places.
    fn visit<I: Isa, const D: usize>(&mut self, places: Places<'_, T>, output: &mut [O]);
}

/// Sums of rows, as many as [`rows::sums`] says.
struct Sum;

impl<T: Real> Visit<T> for Sum {
    const BLOCKS: bool = false;
    const ALONG: bool = false;

    #[inline(always)]
    fn visit<I: Isa, const D: usize>(&mut self, places: Places<'_, T>, sums: &mut [f64]) {
        rows::add(places.rows, sums);
    }
}

/// A pass of one thread over some columns.
struct Walk<'a, 'o, T, O, V> {
    scene: Scene<'a, T>,
    /// Numbered through the whole batch; of one element of the batch, if the output is sums.
    columns: Range<usize>,
    /// How much of the output belongs to a mask, or to a column.
    width: usize,
    output: &'o mut [O],
    visit: V,
}

impl<T: Real, O: Copy + Default, V: Visit<T, O>> Kernel for Walk<'_, '_, T, O, V> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        // Each is code of its own for each instruction set, so the least of these has but one. An output of long rows is bound by
        // memory, whatever the code.
        if !(V::BLOCKS && I::FUSED) {
            return self.walk::<I, 0>();
        }
        match self.scene.d {
            2 => self.walk::<I, 2>(),
            3 => self.walk::<I, 3>(),
            4 => self.walk::<I, 4>(),
            8 if !V::ALONG => self.walk::<I, 8>(),
            16 if !V::ALONG => self.walk::<I, 16>(),
            _ => self.walk::<I, 0>(),
        }
    }
}

impl<T: Real, O: Copy + Default, V: Visit<T, O>> Walk<'_, '_, T, O, V> {
    #[inline(always)]
    fn walk<I: Isa, const D: usize>(mut self) {
        let Scene { embedding, runs, y, d } = self.scene;
        let block = if V::BLOCKS { BLOCK } else { usize::MAX };
        for (index, column) in self.columns.enumerate() {
            if V::ALONG {
                self.output[index * self.width..][..self.width].fill(O::default());
            }
            for run in runs.of_column(column) {
                let mask = column / runs.x * runs.masks + run.mask;
                let mut start = run.start;
                while start < run.end {
                    let end = start.saturating_add(block).min(run.end);
                    let places = column * y + start..column * y + end;
                    let rows = &embedding[places.start * d..places.end * d];
                    let part = if V::ALONG {
                        let each = self.width / y;
                        index * self.width + start * each..index * self.width + end * each
                    } else {
                        run.mask * self.width..(run.mask + 1) * self.width
                    };
                    self.visit.visit::<I, D>(Places { mask, places, rows }, &mut self.output[part]);
                    start = end;
                }
            }
        }
    }
}

/// A slice as a matrix.
fn shaped<N>(slice: &mut [N], [rows, columns]: [usize; 2]) -> Result<ArrayViewMut2<'_, N>> {
    ArrayViewMut2::from_shape((rows, columns), slice).map_err(unfit)
}

/// A slice that does not have the shape which it was made for.
fn unfit(error: opsmith::ndarray::ShapeError) -> Error {
    Error::internal(format!("scratch memory of another size: {error}"))
}
