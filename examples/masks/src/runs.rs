//! The runs of all masks, checked and sorted by column.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

use opsmith::isa::{Isa, Kernel, dispatch};
use opsmith::ndarray::{ArrayViewMut1, aview_mut1};
use opsmith::prelude::*;

/// How many runs are looked at in a nanosecond, roughly.
const LOOKS: usize = 4;

/// A dtype of run-length-encoded masks.
pub(crate) trait RunIndex: Integer + Into<i64> + Display {}

impl<S: Integer + Into<i64> + Display> RunIndex for S {}

/// Places `start..end` of a column that belong to a mask; never empty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) mask: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The runs that are not empty, column after column and in a column by mask.
///
/// Masks are few in most columns, so this is small, and a pass over the embedding looks at nothing else.
#[derive(Clone, Copy)]
pub(crate) struct Runs<'a> {
    /// The number of columns of one element of the batch.
    pub(crate) x: usize,
    /// The number of masks of one element of the batch, empty ones too.
    pub(crate) masks: usize,
    /// How many places each mask of each element of the batch has.
    pub(crate) counts: &'a [u64],
    /// Where the runs of each column of each element of the batch begin; one more is the end of the last.
    offsets: &'a [u64],
    /// Mask, start and end.
    runs: &'a [[u64; 3]],
}

impl<'a> Runs<'a> {
    /// Checks the masks against the number `y` of places in a column, and sorts their runs. `None` where no mask has a
    /// run, not even an empty one, for then sizes may be huge.
    pub(crate) fn new<S: RunIndex>(
        cx: &Compute<'a>,
        rle_mask: ArrayView4<'_, S>,
        y: usize,
    ) -> Result<Option<Runs<'a>>> {
        let (batch, masks, x, _) = rle_mask.dim();
        if rle_mask.is_empty() {
            return Ok(None);
        }
        let table = Table { runs: super::dense(rle_mask)?.as_chunks().0, masks, x };
        let counts = table.counts(cx, batch, y)?;
        let offsets = table.offsets(cx, batch)?;
        let runs = table.sorted(cx, offsets)?;
        Ok(Some(Runs { x, masks, counts, offsets, runs }))
    }

    /// The size of the batch.
    pub(crate) fn batch(&self) -> usize {
        self.counts.len() / self.masks
    }

    /// How many masks of an element of the batch are not empty.
    pub(crate) fn masks_with_places(&self, batch: usize) -> usize {
        self.counts_of(batch).iter().filter(|&&count| count > 0).count()
    }

    /// How many places each mask of an element of the batch has.
    pub(crate) fn counts_of(&self, batch: usize) -> &'a [u64] {
        &self.counts[batch * self.masks..][..self.masks]
    }

    /// The runs of a column, which is numbered through the whole batch.
    #[inline(always)]
    pub(crate) fn of_column(&self, column: usize) -> impl Iterator<Item = Run> + use<'a> {
        let runs = &self.runs[self.offsets[column] as usize..self.offsets[column + 1] as usize];
        runs.iter().map(|&[mask, start, end]| Run {
            mask: mask as usize,
            start: start as usize,
            end: end as usize,
        })
    }
}

/// The runs as they come: by mask, then by column.
struct Table<'a, S> {
    runs: &'a [[S; 2]],
    masks: usize,
    x: usize,
}

impl<S: RunIndex> Table<'_, S> {
    /// How many places each mask has; an error where a run leaves its column.
    fn counts<'c>(&self, cx: &Compute<'c>, batch: usize, y: usize) -> Result<&'c [u64]> {
        let counts = cx.temp::<u64>(batch * self.masks)?;
        let size = i64::try_from(y).unwrap_or(i64::MAX);
        let outside = AtomicBool::new(false);
        cx.parallel_over(aview_mut1(counts), Axis(0), self.x / LOOKS, |range, mut counts| {
            for (count, mask) in counts.iter_mut().zip(range) {
                let look = dispatch(Look { runs: &self.runs[mask * self.x..][..self.x], size });
                *count = look.unwrap_or_else(|| {
                    outside.store(true, Ordering::Relaxed);
                    0
                });
            }
        });
        match self.runs.iter().position(|&run| leaves(run, size)).filter(|_| outside.into_inner()) {
            None => Ok(counts),
            Some(first) => {
                let [start, end] = self.runs[first];
                let (row, x) = (first / self.x, first % self.x);
                bail!(
                    OutOfRange,
                    "`rle_mask` must have runs within the {y} places of dim 2 of `embedding`, got the run from {start} \
                     to {end} at batch {}, mask {}, x {x}",
                    row / self.masks,
                    row % self.masks
                )
            }
        }
    }

    /// Where the runs of each column begin among all that are not empty.
    fn offsets<'c>(&self, cx: &Compute<'c>, batch: usize) -> Result<&'c [u64]> {
        let offsets = cx.temp::<u64>(batch * self.x + 1)?;
        let numbers: ArrayViewMut1<'_, u64> = aview_mut1(&mut offsets[1..]);
        cx.parallel_over(numbers, Axis(0), self.masks / LOOKS, |columns, mut numbers| {
            let numbers = numbers.as_slice_mut().expect("a part of a slice");
            self.visit(columns.clone(), |column, _, run| {
                numbers[column - columns.start] += u64::from(length(run) > 0);
            });
        });
        let mut total = 0;
        for offset in offsets.iter_mut() {
            total += *offset;
            *offset = total;
        }
        Ok(offsets)
    }

    /// The runs that are not empty, by column.
    fn sorted<'c>(&self, cx: &Compute<'c>, offsets: &[u64]) -> Result<&'c [[u64; 3]]> {
        let columns = offsets.len() - 1;
        let sorted = cx.temp::<u64>(3 * offsets[columns] as usize)?.as_chunks_mut::<3>().0;
        let next = cx.temp::<u64>(columns)?;
        next.copy_from_slice(&offsets[..columns]);
        self.visit(0..columns, |column, mask, run| {
            if length(run) > 0 {
                let [start, end] = run.map(|place| place.into() as u64);
                sorted[next[column] as usize] = [mask as u64, start, end];
                next[column] += 1;
            }
        });
        Ok(sorted)
    }

    /// Calls a function with each run of some columns, and with its column and mask: by element of the batch, then by
    /// mask, in the order in which they lie in memory.
    fn visit(&self, columns: std::ops::Range<usize>, mut function: impl FnMut(usize, usize, [S; 2])) {
        let mut begin = columns.start;
        while begin < columns.end {
            let batch = begin / self.x;
            let end = columns.end.min((batch + 1) * self.x);
            let within = begin - batch * self.x..end - batch * self.x;
            for mask in 0..self.masks {
                let runs = &self.runs[(batch * self.masks + mask) * self.x..][within.clone()];
                for (column, &run) in (begin..end).zip(runs) {
                    function(column, mask, run);
                }
            }
            begin = end;
        }
    }
}

/// How many places runs have in columns of `size` places; `None` if one leaves its column.
struct Look<'a, S> {
    runs: &'a [[S; 2]],
    size: i64,
}

impl<S: RunIndex> Kernel for Look<'_, S> {
    type Output = Option<u64>;

    #[inline(always)]
    fn run<I: Isa>(self) -> Option<u64> {
        let (mut leaving, mut places) = (false, 0u64);
        for &run in self.runs {
            leaving |= leaves(run, self.size);
            // Where a run leaves its column, or there are more places than memory could hold, the sum is of no account.
            places = places.wrapping_add(length(run));
        }
        (!leaving).then_some(places)
    }
}

/// Whether a run begins or ends outside a column of `size` places.
#[inline(always)]
fn leaves<S: RunIndex>(run: [S; 2], size: i64) -> bool {
    let [start, end] = run.map(Into::into);
    (start < 0) | (start > size) | (end < 0) | (end > size)
}

/// How many places a run has that does not leave its column.
#[inline(always)]
fn length<S: RunIndex>([start, end]: [S; 2]) -> u64 {
    end.into().wrapping_sub(start.into()).max(0) as u64
}
