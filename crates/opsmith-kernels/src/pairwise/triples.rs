//! Stages that nothing is compiled for: a graph computed by blocks, for all pairs of rows and their elements.

use std::ops::Range;

use opsmith_body::{BLOCK, Block, Blocks, Fold, Level, Plain};
use opsmith_core::{Compute, Result};
use smallvec::SmallVec;

use super::shared::{Shared, Sizes, add_parts};
use crate::stored::Wide;

/// Blocks that are summed before the sum is added to the total, so that no sum is long.
const SHORT: usize = 64;
/// Parts that a long sum over few rows is cut into.
const PARTS: usize = 16;
/// Rows from which on they are enough work for the threads.
const MANY_ROWS: usize = 16;
/// The least rows of a part.
const PART: usize = 64;
/// What a node of a graph costs for an element, in units of 1/16 ns.
const NODE: usize = 2;

/// An operand of a pass. A pass goes over the rows of one matrix, and for each over those of the other.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a, T> {
    /// A number for each element of the rows of the outer matrix.
    Outer(&'a [T]),
    /// A number for each element of the rows of the inner matrix.
    Inner(&'a [T]),
    /// A number for each pair of rows.
    Pair(&'a [T]),
    /// The same for all.
    Constant(T),
}

/// An output of a pass.
pub(crate) enum Target<'a, T> {
    /// Sums over the inner rows.
    Outer(&'a mut [T]),
    /// Folds over the elements of pairs of rows.
    Pair(&'a mut [T]),
}

/// A pass over all pairs of rows.
pub(crate) struct Pass<'a, T> {
    pub(crate) blocks: &'a dyn Blocks,
    /// How many functions the body is made of, roughly.
    pub(crate) nodes: usize,
    pub(crate) fold: Fold,
    pub(crate) outer: usize,
    pub(crate) inner: usize,
    pub(crate) depth: usize,
    /// How far pairs lie apart, of an outer row and the next, and of an inner row and the next.
    pub(crate) strides: (usize, usize),
    pub(crate) sources: SmallVec<[Source<'a, T>; 8]>,
}

impl<'a, T: Wide> Pass<'a, T> {
    /// A pass over the rows of `x`, or where `by_y` is true over those of `y`.
    pub(crate) fn new(blocks: &'a dyn Blocks, nodes: usize, fold: Fold, sizes: Sizes, by_y: bool) -> Self {
        let Sizes { n, m, p } = sizes;
        let (outer, inner, strides) = if by_y { (m, n, (1, m)) } else { (n, m, (m, 1)) };
        Pass { blocks, nodes, fold, outer, inner, depth: p, strides, sources: SmallVec::new() }
    }

    /// Computes the targets.
    ///
    /// How the sums are cut depends on the sizes only. Each is of sums of 64 blocks, for a target of pairs of at most
    /// 128 terms each, added in halves.
    ///
    /// # Errors
    /// `ResourceExhausted` when there is no memory for parts of sums.
    pub(crate) fn run(&self, cx: &Compute<'_>, targets: &mut [Target<'_, T>]) -> Result<()> {
        for target in targets.iter_mut() {
            match target {
                Target::Outer(sums) => sums.fill(T::default()),
                Target::Pair(folds) => folds.fill(identity(self.fold)),
            }
        }
        if self.depth == 0 || self.inner == 0 || self.outer == 0 {
            return Ok(());
        }
        let parts = match self.outer {
            MANY_ROWS.. => 1,
            _ => self.inner.div_ceil(PART).min(PARTS),
        };
        let size = self.outer * self.depth;
        let mut partial = SmallVec::<[Option<&mut [T]>; 4]>::new();
        for target in targets.iter() {
            let needs = matches!(target, Target::Outer(_)) && parts > 1;
            partial.push(if needs { Some(cx.temp(parts * size)?) } else { None });
        }
        let writers: SmallVec<[Writer<T>; 4]> = targets
            .iter_mut()
            .zip(&mut partial)
            .map(|(target, partial)| match (target, partial) {
                (Target::Outer(_), Some(partial)) => Writer::Outer(Shared::new(partial)),
                (Target::Outer(sums), None) => Writer::Outer(Shared::new(sums)),
                (Target::Pair(folds), _) => Writer::Pair(Shared::new(folds)),
            })
            .collect();
        let part = self.inner.div_ceil(parts);
        let cost = part * self.depth * self.nodes * NODE / 16;
        cx.parallel_for(self.outer * parts, cost, |units| {
            let level = Level::best();
            for unit in units {
                let (row, number) = (unit / parts, unit % parts);
                let inner = (number * part).min(self.inner)..((number + 1) * part).min(self.inner);
                // SAFETY: each unit has its own row and part.
                unsafe { self.unit(level, row, inner, &writers, number * size) };
            }
        });
        for (target, partial) in targets.iter_mut().zip(&partial) {
            if let (Target::Outer(sums), Some(partial)) = (target, partial) {
                add_parts(cx, sums, partial);
            }
        }
        Ok(())
    }

    /// An outer row with some of the inner ones; sums over them go to the part at `part`.
    ///
    /// # Safety
    /// Nobody else writes to what is the outer row's, and the inner rows'.
    unsafe fn unit(&self, level: Level, row: usize, inner: Range<usize>, writers: &[Writer<T>], part: usize) {
        let width = self.depth.min(BLOCK);
        // Several short rows share a block.
        let rows = BLOCK / width;
        let mut gathered: SmallVec<[Block<T>; 8]> = self.sources.iter().map(|_| Block::default()).collect();
        let mut results: SmallVec<[Block<T>; 4]> = writers.iter().map(|_| Block::default()).collect();
        let mut sums: SmallVec<[[Block<T>; 2]; 4]> = writers.iter().map(|_| Default::default()).collect();
        for k in (0..self.depth).step_by(width) {
            let len = width.min(self.depth - k);
            for (source, block) in self.sources.iter().zip(&mut gathered) {
                match source {
                    Source::Outer(numbers) => {
                        let own = &numbers[row * self.depth + k..][..len];
                        block.0.chunks_exact_mut(len).take(rows).for_each(|to| to.copy_from_slice(own));
                    }
                    Source::Constant(number) => block.0.fill(*number),
                    _ => {}
                }
            }
            sums.iter_mut().for_each(|sums| *sums = Default::default());
            for (count, first) in inner.clone().step_by(rows).enumerate() {
                let here = first..(first + rows).min(inner.end);
                let inputs = self.gather(&mut gathered, row, here.clone(), k, len);
                T::eval(self.blocks, level, &inputs, &mut results);
                let flush = count % SHORT == SHORT - 1 || here.end == inner.end;
                for ((writer, result), sums) in writers.iter().zip(&results).zip(&mut sums) {
                    match writer {
                        // SAFETY: these pairs are this unit's.
                        Writer::Pair(folds) => unsafe {
                            self.fold_pairs(folds, result, row, here.clone(), len)
                        },
                        Writer::Outer(_) => add_rows(sums, &result.0[..here.len() * len], len, flush),
                    }
                }
            }
            for (writer, sums) in writers.iter().zip(&sums) {
                if let Writer::Outer(to) = writer {
                    // SAFETY: this row of this part is this unit's.
                    let own = unsafe { to.slice(part + row * self.depth + k, len) };
                    own.copy_from_slice(&sums[1].0[..len]);
                }
            }
        }
    }

    /// The inputs of a block: `len` elements from `k` on of the inner rows `here`.
    fn gather<'b>(
        &'b self,
        gathered: &'b mut SmallVec<[Block<T>; 8]>,
        row: usize,
        here: Range<usize>,
        k: usize,
        len: usize,
    ) -> SmallVec<[&'b [T; BLOCK]; 8]> {
        let count = here.len() * len;
        for (source, block) in self.sources.iter().zip(gathered.iter_mut()) {
            match source {
                Source::Inner(numbers) if count < BLOCK => {
                    block.0[..count].copy_from_slice(&numbers[here.start * self.depth + k..][..count]);
                }
                Source::Pair(numbers) => {
                    for (inner, to) in here.clone().zip(block.0.chunks_mut(len)) {
                        to.fill(numbers[row * self.strides.0 + inner * self.strides.1]);
                    }
                }
                _ => {}
            }
        }
        let inputs = self.sources.iter().zip(gathered.iter());
        inputs
            .map(|(source, block)| match source {
                // A whole block is read where it lies.
                Source::Inner(numbers) => numbers[here.start * self.depth + k..]
                    .first_chunk()
                    .filter(|_| count == BLOCK)
                    .unwrap_or(&block.0),
                _ => &block.0,
            })
            .collect()
    }

    /// # Safety
    /// Nobody else writes to these pairs.
    unsafe fn fold_pairs(
        &self,
        folds: &Shared<T>,
        result: &Block<T>,
        row: usize,
        here: Range<usize>,
        len: usize,
    ) {
        for (inner, terms) in here.zip(result.0.chunks(len)) {
            let at = row * self.strides.0 + inner * self.strides.1;
            // SAFETY: promised by the caller.
            let own = unsafe { &mut folds.slice(at, 1)[0] };
            *own = of_two(self.fold, *own, fold_terms(self.fold, terms));
        }
    }
}

enum Writer<T> {
    Outer(Shared<T>),
    Pair(Shared<T>),
}

fn identity<T: Wide>(fold: Fold) -> T {
    T::store(fold.identity::<T::Number<Plain>>())
}

fn of_two<T: Wide>(fold: Fold, a: T, b: T) -> T {
    T::store(fold.of_two(a.load::<Plain>(), b.load::<Plain>()))
}

/// The fold of at most a block of terms: sixteen of every sixteenth, then halves.
fn fold_terms<T: Wide>(fold: Fold, terms: &[T]) -> T {
    const LANES: usize = 16;
    let mut lanes = [identity::<T>(fold); LANES];
    for chunk in terms.chunks(LANES) {
        for (lane, term) in lanes.iter_mut().zip(chunk) {
            *lane = of_two(fold, *lane, *term);
        }
    }
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = of_two(fold, lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Adds rows of `len` terms to the short sums, and those to the long ones in time.
fn add_rows<T: Wide>(sums: &mut [Block<T>; 2], terms: &[T], len: usize, flush: bool) {
    let [short, long] = sums;
    for row in terms.chunks(len) {
        for (sum, term) in short.0.iter_mut().zip(row) {
            *sum = of_two(Fold::Sum, *sum, *term);
        }
    }
    if flush {
        for (sum, short) in long.0.iter_mut().zip(&mut short.0) {
            *sum = of_two(Fold::Sum, *sum, *short);
            *short = T::default();
        }
    }
}
