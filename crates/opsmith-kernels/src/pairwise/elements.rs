//! Stages without pairs of rows: a body computed for every element of some arrays of one size.

use opsmith_body::{BLOCK, Block, Blocks, Level};
use opsmith_core::Compute;
use smallvec::SmallVec;

use super::shared::Shared;
use crate::stored::Wide;

/// An operand: numbers, or one that stands for all.
pub(crate) enum Numbers<'a, T> {
    Each(&'a [T]),
    All(T),
}

/// Computes the targets, which are as long as the sources.
pub(crate) fn elements<T: Wide>(
    cx: &Compute<'_>,
    blocks: &dyn Blocks,
    nodes: usize,
    sources: &[Numbers<'_, T>],
    targets: &mut [&mut [T]],
) {
    let len = targets.first().map_or(0, |target| target.len());
    let targets: SmallVec<[Shared<T>; 4]> = targets.iter_mut().map(|target| Shared::new(target)).collect();
    cx.parallel_for(len.div_ceil(BLOCK), BLOCK * nodes / 8, |units| {
        let level = Level::best();
        let mut gathered: SmallVec<[Block<T>; 8]> = sources.iter().map(|_| Block::default()).collect();
        let mut results: SmallVec<[Block<T>; 4]> = targets.iter().map(|_| Block::default()).collect();
        for unit in units {
            let start = unit * BLOCK;
            let count = BLOCK.min(len - start);
            for (source, block) in sources.iter().zip(&mut gathered) {
                match source {
                    Numbers::Each(numbers) => {
                        block.0[..count].copy_from_slice(&numbers[start..start + count])
                    }
                    Numbers::All(number) => block.0.fill(*number),
                }
            }
            let inputs: SmallVec<[&[T; BLOCK]; 8]> = gathered.iter().map(|block| &block.0).collect();
            T::eval(blocks, level, &inputs, &mut results);
            for (target, result) in targets.iter().zip(&results) {
                // SAFETY: units do not overlap.
                let own = unsafe { target.slice(start, count) };
                own.copy_from_slice(&result.0[..count]);
            }
        }
    });
}
