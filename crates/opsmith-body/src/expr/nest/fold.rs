//! Folds of blocks.

#![allow(
    clippy::needless_range_loop,
    reason = "no closures: only what is inlined, whatever happens, is compiled for the instruction set"
)]

use crate::body::{BLOCK, Block};
use crate::element::Element;
use crate::expr::node::Fold;
use crate::isa::{Isa, Kernel, Level, dispatch_at};
use crate::scalar::Scalar;

/// Folds the first numbers of blocks, of each as many as `lens` says, into those of as many other blocks.
pub fn fold_blocks<T: Element>(
    level: Level,
    op: Fold,
    into: &mut [Block<T>],
    from: &[&[T; BLOCK]],
    lens: &[usize],
) {
    dispatch_at(level, Into { op, into, from, lens });
}

/// Adds the sum of a few terms to that of those before, and what is rounded off to `lost`; the next few begin at 0.
///
/// By D. Knuth's sum of two numbers, which says exactly what it rounds off. So the error of a sum does not grow with the number
/// of its terms beyond that of a part.
pub fn add_part<T: Element>(level: Level, part: &mut Block<T>, total: &mut Block<T>, lost: &mut Block<T>) {
    dispatch_at(level, Add { part, total, lost });
}

/// Puts the whole sum into `part`.
pub fn sum_up<T: Element>(level: Level, part: &mut Block<T>, total: &mut Block<T>, lost: &mut Block<T>) {
    add_part(level, part, total, lost);
    dispatch_at(level, Up { part, total, lost });
}

/// Folds the numbers of each block, which all then are the fold: in pairs, so that a sum's error is small.
pub fn across<T: Element>(level: Level, op: Fold, blocks: &mut [Block<T>]) {
    dispatch_at(level, Across { op, blocks });
}

struct Across<'a, T> {
    op: Fold,
    blocks: &'a mut [Block<T>],
}

impl<T: Element> Kernel for Across<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { op, blocks } = self;
        macro_rules! halves {
            ($fold:expr, $block:ident, $($half:literal)*) => {$(
                for index in 0..$half {
                    let (a, b) = ($block.0[index].load::<I>(), $block.0[index + $half].load::<I>());
                    $block.0[index] = T::store($fold.of_two(a, b));
                }
            )*};
        }
        macro_rules! each {
            ($fold:expr) => {
                for block in blocks {
                    halves!($fold, block, 64 32 16 8 4 2 1);
                    block.0 = [block.0[0]; BLOCK];
                }
            };
        }
        match op {
            Fold::Sum => each!(Fold::Sum),
            Fold::Max => each!(Fold::Max),
            Fold::Min => each!(Fold::Min),
            Fold::Product => each!(Fold::Product),
        }
    }
}

struct Into<'a, T> {
    op: Fold,
    into: &'a mut [Block<T>],
    from: &'a [&'a [T; BLOCK]],
    lens: &'a [usize],
}

impl<T: Element> Kernel for Into<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { op, into, from, lens } = self;
        macro_rules! each {
            ($fold:expr) => {
                for ((into, from), len) in into.iter_mut().zip(from).zip(lens) {
                    if *len == BLOCK {
                        for (a, b) in into.0.iter_mut().zip(from.iter()) {
                            *a = T::store($fold.of_two(a.load::<I>(), b.load::<I>()));
                        }
                    } else {
                        for (a, b) in into.0[..*len].iter_mut().zip(&from[..*len]) {
                            *a = T::store($fold.of_two(a.load::<I>(), b.load::<I>()));
                        }
                    }
                }
            };
        }
        match op {
            Fold::Sum => each!(Fold::Sum),
            Fold::Max => each!(Fold::Max),
            Fold::Min => each!(Fold::Min),
            Fold::Product => each!(Fold::Product),
        }
    }
}

struct Add<'a, T> {
    part: &'a mut Block<T>,
    total: &'a mut Block<T>,
    lost: &'a mut Block<T>,
}

impl<T: Element> Kernel for Add<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { part, total, lost } = self;
        for index in 0..BLOCK {
            let (a, b) = (total.0[index].load::<I>(), part.0[index].load::<I>());
            let sum = a + b;
            let of_b = sum - a;
            let rest = (a - (sum - of_b)) + (b - of_b);
            total.0[index] = T::store(sum);
            lost.0[index] = T::store(lost.0[index].load::<I>() + rest);
            part.0[index] = T::store(T::Number::<I>::of(0.0));
        }
    }
}

struct Up<'a, T> {
    part: &'a mut Block<T>,
    total: &'a Block<T>,
    lost: &'a Block<T>,
}

impl<T: Element> Kernel for Up<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { part, total, lost } = self;
        for index in 0..BLOCK {
            let (total, lost) = (total.0[index].load::<I>(), lost.0[index].load::<I>());
            // Of an infinite sum nothing is lost, and what was computed for it is no number.
            let sum = T::Number::<I>::select(lost.eq(lost), total + lost, total);
            part.0[index] = T::store(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_sum_is_as_exact_as_a_short_one() {
        for level in Level::available() {
            let (mut part, mut total, mut lost) =
                (Block::<f32>::default(), Block::<f32>::default(), Block::<f32>::default());
            for term in 0..1 << 20 {
                fold_blocks(level, Fold::Sum, std::slice::from_mut(&mut part), &[&[0.1; BLOCK]], &[100]);
                if term % 32 == 31 {
                    add_part(level, &mut part, &mut total, &mut lost);
                }
            }
            sum_up(level, &mut part, &mut total, &mut lost);
            let exact = f64::from(0.1f32) * f64::from(1 << 20);
            assert!((f64::from(part.0[0]) / exact - 1.0).abs() < 1e-6, "{}", part.0[0]);
            assert_eq!((part.0[99], part.0[100]), (part.0[0], 0.0));
        }
    }

    #[test]
    fn what_is_infinite_stays_so() {
        let level = Level::best();
        let (mut part, mut total, mut lost) =
            (Block([f64::INFINITY; BLOCK]), Block::<f64>::default(), Block::<f64>::default());
        add_part(level, &mut part, &mut total, &mut lost);
        part.0[1] = f64::NEG_INFINITY;
        sum_up(level, &mut part, &mut total, &mut lost);
        assert_eq!(part.0[0], f64::INFINITY);
        assert!(part.0[1].is_nan());
    }

    #[test]
    fn a_block_is_folded_to_one_number() {
        let mut block = Block([1.0f32; BLOCK]);
        block.0[77] = 5.0;
        for (op, expected) in [(Fold::Sum, 132.0), (Fold::Max, 5.0), (Fold::Min, 1.0), (Fold::Product, 5.0)] {
            let mut folded = [block; 2];
            across(Level::best(), op, &mut folded);
            assert_eq!(folded[1].0, [expected; BLOCK]);
        }
    }
}
