//! Folds of long rows: lanes of a block first, then the block, then chunks of a row by pairs.
//!
//! A chunk is [`CHUNK`] blocks of 128 numbers: block by block each of 128 lanes folds at most 16 numbers, then the lanes
//! are folded by halves, 7 times, and the chunks of a row by pairs. How a row is cut depends on nothing but its length,
//! so the sum of n numbers has the same bits whatever threads do; and no number is in more than 16 + 7 + ⌈log₂(n/2048)⌉
//! additions, so the error of a sum is at most that many times the unit roundoff times the sum of the magnitudes.

use std::sync::atomic::{AtomicUsize, Ordering};

use opsmith_body::{BLOCK, Block, Element, Fold, Isa, Kernel, Level, Plain, dispatch_at};

/// How many blocks make a chunk.
pub(crate) const CHUNK: usize = 16;

/// The folds of rows, or of chunks of rows, of so many blocks each: all blocks of the first row, then of the second, and
/// so on. Of the last block of each, `last` numbers count.
pub(crate) fn of_rows<W: Element>(
    level: Level,
    fold: Fold,
    rows: &[&[W; BLOCK]],
    (blocks, last): (usize, usize),
    folded: &mut [W],
) {
    let halves = HALVES.each_ref().map(|half| half.load(Ordering::Relaxed));
    dispatch_at(level, Rows { fold, rows, blocks, last, folded, halves });
}

/// The folds of many rows of up to 128 numbers, a lane each, whose blocks are used up: the bits are those that
/// [`of_rows`] has for each of them.
pub(crate) fn of_lanes<W: Element>(level: Level, fold: Fold, blocks: &mut [Block<W>]) -> Block<W> {
    let mut folded = Block([identity(fold); BLOCK]);
    dispatch_at(level, Lanes { fold, blocks, folded: &mut folded });
    folded
}

/// Folds the first lanes of blocks into as many other blocks, lane by lane. What becomes of the other lanes is not said.
pub(crate) fn fold_blocks<W: Element>(
    level: Level,
    fold: Fold,
    lanes: usize,
    folded: &mut [Block<W>],
    blocks: &[&[W; BLOCK]],
) {
    dispatch_at(level, Blocks { fold, lanes, folded, blocks });
}

/// The folds of the chunks of many rows, a lane each, by pairs; `chunks` is used up.
pub(crate) fn of_chunk_blocks<W: Element>(level: Level, fold: Fold, chunks: &mut [Block<W>]) -> Block<W> {
    let mut count = chunks.len();
    while count > 1 {
        for pair in 0..count / 2 {
            let second = chunks[2 * pair + 1];
            chunks[pair] = chunks[2 * pair];
            fold_blocks(level, fold, BLOCK, &mut chunks[pair..=pair], &[&second.0]);
        }
        if count % 2 == 1 {
            chunks[count / 2] = chunks[count - 1];
        }
        count = count.div_ceil(2);
    }
    chunks.first().copied().unwrap_or(Block([identity(fold); BLOCK]))
}

/// The fold of the chunks of a row, by pairs; `chunks` is used up.
pub(crate) fn of_chunks<W: Element>(fold: Fold, chunks: &mut [W]) -> W {
    let mut count = chunks.len();
    while count > 1 {
        for pair in 0..count / 2 {
            let (a, b) = (chunks[2 * pair].load::<Plain>(), chunks[2 * pair + 1].load::<Plain>());
            chunks[pair] = W::store(fold.of_two(a, b));
        }
        if count % 2 == 1 {
            chunks[count / 2] = chunks[count - 1];
        }
        count = count.div_ceil(2);
    }
    chunks.first().map_or_else(|| identity(fold), |first| *first)
}

/// The fold of no numbers.
pub(crate) fn identity<W: Element>(fold: Fold) -> W {
    W::store(fold.identity::<W::Number<Plain>>())
}

/// A loop for each fold, so that none asks which fold it is.
macro_rules! for_each_fold {
    ($fold:expr, |$known:ident| $body:expr) => {
        match $fold {
            Fold::Sum => {
                const $known: Fold = Fold::Sum;
                $body
            }
            Fold::Max => {
                const $known: Fold = Fold::Max;
                $body
            }
            Fold::Min => {
                const $known: Fold = Fold::Min;
                $body
            }
        }
    };
}

/// The first numbers of a block folded into another, lane by lane.
macro_rules! fold_into {
    ($fold:ident, $isa:ty, $number:ty, $to:expr, $from:expr) => {
        for (a, b) in $to.iter_mut().zip($from.iter()) {
            *a = <$number>::store($fold.of_two(a.load::<$isa>(), b.load::<$isa>()));
        }
    };
}

/// So many lanes of so many rows are turned to columns and folded side by side: within a vector it would take longer.
const SIDE: usize = 16;
/// How many columns are folded into as many others, level by level. A static that could change keeps the loops loops, which
/// become whole vectors; unrolled, they would become pieces of vectors that wait for each other.
static HALVES: [AtomicUsize; 4] =
    [AtomicUsize::new(8), AtomicUsize::new(4), AtomicUsize::new(2), AtomicUsize::new(1)];

struct Rows<'a, W> {
    fold: Fold,
    rows: &'a [&'a [W; BLOCK]],
    blocks: usize,
    last: usize,
    folded: &'a mut [W],
    halves: [usize; 4],
}

impl<W: Element> Kernel for Rows<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { fold, rows, blocks, last, folded, halves } = self;
        let side = (2 * halves[0]).min(SIDE);
        for_each_fold!(fold, |FOLD| {
            // Eighths of a block, folded as its halves, and theirs, and theirs would be.
            macro_rules! eighths {
                ($row:expr, $columns:ident, $index:ident) => {{
                    let row: &[W; BLOCK] = $row;
                    let mut lanes = [W::default(); SIDE];
                    for lane in 0..side {
                        let at = |k: usize| FOLD.of_two(FOLD.identity(), row[lane + k * SIDE].load::<I>());
                        let pair = |k: usize| FOLD.of_two(at(k), at(k + 4));
                        let four = |k: usize| FOLD.of_two(pair(k), pair(k + 2));
                        lanes[lane] = W::store(FOLD.of_two(four(0), four(1)));
                    }
                    for (lane, number) in lanes.iter().enumerate() {
                        $columns[lane * SIDE + $index] = *number;
                    }
                }};
            }
            for (rows, folded) in rows.chunks(SIDE * blocks).zip(folded.chunks_mut(SIDE)) {
                let mut columns = [W::default(); SIDE * SIDE];
                for (index, row) in rows.chunks_exact(blocks).enumerate() {
                    if (blocks, last) == (1, BLOCK) {
                        eighths!(row[0], columns, index);
                        continue;
                    }
                    let mut lanes = Block([identity::<W>(FOLD); BLOCK]);
                    for block in &row[..blocks - 1] {
                        fold_into!(FOLD, I, W, lanes.0, block);
                    }
                    match last {
                        BLOCK => fold_into!(FOLD, I, W, lanes.0, row[blocks - 1]),
                        _ => fold_into!(FOLD, I, W, lanes.0[..last], row[blocks - 1]),
                    }
                    eighths!(&lanes.0, columns, index);
                }
                for half in halves {
                    let half = half.min(SIDE / 2) * SIDE;
                    let (low, high) = columns.split_at_mut(half);
                    fold_into!(FOLD, I, W, low, high);
                }
                folded.copy_from_slice(&columns[..folded.len()]);
            }
        });
    }
}

struct Blocks<'a, W> {
    fold: Fold,
    lanes: usize,
    folded: &'a mut [Block<W>],
    blocks: &'a [&'a [W; BLOCK]],
}

impl<W: Element> Kernel for Blocks<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { fold, lanes, folded, blocks } = self;
        // Whole vectors, and not a number that the compiler knows: it would unroll the loop and not vectorise it.
        let lanes = lanes.next_multiple_of(SIDE).min(BLOCK);
        for_each_fold!(fold, |FOLD| {
            for (folded, block) in folded.iter_mut().zip(blocks) {
                fold_into!(FOLD, I, W, folded.0[..lanes], block[..lanes]);
            }
        });
    }
}

struct Lanes<'a, W> {
    fold: Fold,
    blocks: &'a mut [Block<W>],
    folded: &'a mut Block<W>,
}

impl<W: Element> Kernel for Lanes<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { fold, blocks, folded } = self;
        for_each_fold!(fold, |FOLD| {
            let mut half = BLOCK / 2;
            while half > 0 {
                if half < blocks.len() {
                    let (low, high) = blocks.split_at_mut(half);
                    // What is beyond the row's end changes nothing.
                    for (a, b) in low.iter_mut().zip(high) {
                        fold_into!(FOLD, I, W, a.0, b.0);
                    }
                }
                half /= 2;
            }
            if let Some(first) = blocks.first() {
                fold_into!(FOLD, I, W, folded.0, first.0);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_row(level: Level, fold: Fold, row: &[f32; BLOCK]) -> f32 {
        let mut folded = [0.0];
        of_rows(level, fold, &[row], (1, BLOCK), &mut folded);
        folded[0]
    }

    #[test]
    fn folds_are_those_of_all_numbers() {
        let numbers = std::array::from_fn(|k| ((k * 37) % 128) as f32 - 60.0);
        for level in Level::available() {
            assert_eq!(of_row(level, Fold::Sum, &numbers), 128.0 * 3.5);
            assert_eq!(of_row(level, Fold::Max, &numbers), 67.0);
            assert_eq!(of_row(level, Fold::Min, &numbers), -60.0);
            let mut nan = numbers;
            nan[77] = f32::NAN;
            assert!(of_row(level, Fold::Max, &nan).is_nan() && of_row(level, Fold::Min, &nan).is_nan());
            let mut folded = [0.0; 2];
            of_rows(level, Fold::Max, &[&numbers, &nan, &numbers, &numbers], (2, 1), &mut folded);
            assert!(
                folded[0] == 67.0 && folded[1] == 67.0,
                "of the second block only the first number counts"
            );
        }
    }

    #[test]
    fn lanes_have_the_bits_of_a_row() {
        for length in [0, 1, 2, 3, 17, 64, 65, 100, 127, 128] {
            let number = |lane: usize, k: usize| ((lane * 7919 + k * 104_729) % 1009) as f32 / 7.0 - 70.0;
            for (level, fold) in
                Level::available().flat_map(|l| [Fold::Sum, Fold::Max, Fold::Min].map(|f| (l, f)))
            {
                let mut blocks: Vec<Block<f32>> =
                    (0..length).map(|k| Block(std::array::from_fn(|lane| number(lane, k)))).collect();
                let folded = of_lanes(level, fold, &mut blocks);
                for lane in 0..BLOCK {
                    let at = |k| if k < length { number(lane, k) } else { identity(fold) };
                    let row = of_row(level, fold, &std::array::from_fn(at));
                    assert_eq!(folded.0[lane].to_bits(), row.to_bits(), "{fold:?} of {length}");
                }
            }
        }
    }

    #[test]
    fn chunks_are_folded_by_pairs() {
        for count in 0..9 {
            let mut chunks: Vec<f64> = (0..count).map(f64::from).collect();
            assert_eq!(of_chunks(Fold::Sum, &mut chunks), f64::from(count * (count - 1) / 2));
        }
        assert_eq!(of_chunks::<f32>(Fold::Max, &mut []), f32::NEG_INFINITY);
    }
}
