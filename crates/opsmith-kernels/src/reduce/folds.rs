//! Folds of long rows: lanes of a block first, then the block, then chunks of a row by pairs.
//!
//! A chunk is [`CHUNK`] blocks of 128 numbers: block by block each of 128 lanes folds at most 16 numbers, then the lanes
//! are folded by halves, 7 times, and the chunks of a row by pairs. How a row is cut depends on nothing but its length,
//! so the sum of n numbers has the same bits whatever threads do; and no number is in more than 16 + 7 + ⌈log₂(n/2048)⌉
//! additions, so the error of a sum is at most that many times the unit roundoff times the sum of the magnitudes.

use opsmith_body::{BLOCK, Block, Element, Fold, Isa, Kernel, Level, Plain, dispatch_at};

/// How many blocks make a chunk.
pub(crate) const CHUNK: usize = 16;

/// The fold of the lanes of a block.
pub(crate) fn across<W: Element>(level: Level, fold: Fold, mut lanes: Block<W>) -> W {
    dispatch_at(level, Across { fold, lanes: &mut lanes });
    lanes.0[0]
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

struct Across<'a, W> {
    fold: Fold,
    lanes: &'a mut Block<W>,
}

impl<W: Element> Kernel for Across<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { fold, lanes } = self;
        for_each_fold!(fold, |FOLD| {
            let mut half = BLOCK / 2;
            while half > 0 {
                let (low, high) = lanes.0.split_at_mut(half);
                for (a, b) in low.iter_mut().zip(high) {
                    *a = W::store(FOLD.of_two(a.load::<I>(), b.load::<I>()));
                }
                half /= 2;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_are_those_of_all_numbers() {
        let numbers = Block(std::array::from_fn(|k| ((k * 37) % 128) as f32 - 60.0));
        for level in Level::available() {
            assert_eq!(across(level, Fold::Sum, numbers), 128.0 * 3.5);
            assert_eq!(across(level, Fold::Max, numbers), 67.0);
            assert_eq!(across(level, Fold::Min, numbers), -60.0);
            let mut nan = numbers;
            nan.0[77] = f32::NAN;
            assert!(across(level, Fold::Max, nan).is_nan() && across(level, Fold::Min, nan).is_nan());
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
