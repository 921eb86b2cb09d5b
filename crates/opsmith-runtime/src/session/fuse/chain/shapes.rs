//! Which shapes the inputs of a chain have to have, and for which it pays.

use std::collections::BTreeSet;

use opsmith_core::space::{Extents, broadcast_shape};

use super::Lie;

/// So many rows of what is folded are enough for threads and vectors. It is the same for any number of threads, which may change no bit.
const LEAST_ROWS: usize = 256;

/// The positions that all numbers tell apart: those of float32.
const MOST_POSITIONS: usize = 1 << 24;

/// What of its inputs has to be in a run.
pub(in crate::session::fuse) struct Shapes {
    pub(super) batch: usize,
    /// For each argument of the op the inputs that it is made of, the axes of its last dims, and whether steps before make it.
    pub(super) arguments: Vec<(Vec<usize>, Vec<usize>, bool)>,
    /// How the other inputs lie.
    pub(super) others: Vec<(usize, Lie)>,
    pub(super) axes: usize,
    /// The dims that steps after the op fold.
    pub(super) folded: BTreeSet<usize>,
    /// Whether a position along one is looked for.
    pub(super) has_positions: bool,
    /// The dims that what it gives has.
    pub(super) free: BTreeSet<usize>,
}

impl Shapes {
    /// Whether every part gives tensors that lie as it was thought, and it pays to compute them together.
    pub(in crate::session::fuse) fn fit(&self, shapes: &[&[usize]]) -> bool {
        self.sizes(shapes).is_some_and(|sizes| self.pays(shapes, &sizes) && self.lie(shapes, &sizes))
    }

    /// The size of each dim of the space, if the op takes inputs of these shapes.
    fn sizes(&self, shapes: &[&[usize]]) -> Option<Extents> {
        let mut sizes: Vec<Option<usize>> = vec![None; self.batch + self.axes];
        let mut batches: Vec<(Extents, bool)> = Vec::new();
        for (inputs, axes, is_made) in &self.arguments {
            let mut shape = broadcast_shape(inputs.iter().map(|&input| shapes[input]))?;
            let own = shape.drain(shape.len().checked_sub(axes.len())?..);
            for (size, axis) in own.zip(axes) {
                if *sizes[self.batch + axis].get_or_insert(size) != size {
                    return None;
                }
            }
            batches.push((shape, *is_made));
        }
        let batch = broadcast_shape(batches.iter().map(|(batch, _)| &batch[..]))?;
        // What is made would be computed for each part of the batch for which it is read.
        let is_whole = batches.iter().all(|(own, is_made)| !is_made || *own == batch);
        let sizes = batch.iter().copied().map(Some).chain(sizes.into_iter().skip(self.batch));
        let sizes: Extents = sizes.collect::<Option<_>>()?;
        (batch.len() == self.batch && is_whole).then_some(sizes)
    }

    fn pays(&self, shapes: &[&[usize]], sizes: &[usize]) -> bool {
        let count = |sizes: &mut dyn Iterator<Item = usize>| sizes.fold(1, usize::saturating_mul);
        let rows = count(&mut self.free.iter().map(|&dim| sizes[dim]));
        let all = count(&mut self.free.union(&self.folded).map(|&dim| sizes[dim]));
        // What has no more numbers than an input is computed apart from what folds it, and in memory all the same; of
        // few more it takes longer to fold them here.
        let are_told = !self.has_positions || self.folded.iter().all(|&dim| sizes[dim] <= MOST_POSITIONS);
        let is_much = shapes.iter().all(|shape| count(&mut shape.iter().copied()) < all / 2);
        // Folds of nothing are left to whoever knows them.
        !sizes.contains(&0) && are_told && (self.folded.is_empty() || rows >= LEAST_ROWS && is_much)
    }

    fn lie(&self, shapes: &[&[usize]], sizes: &[usize]) -> bool {
        self.others.iter().all(|(input, lie)| {
            let Some(first) = lie.len().checked_sub(shapes[*input].len()) else { return false };
            let fits = |(&size, dim): (&usize, &Option<usize>)| {
                size == 1 || dim.is_some_and(|dim| size == sizes[dim])
            };
            shapes[*input].iter().zip(&lie[first..]).all(fits)
        })
    }
}
