//! The axes of a call: those of the graph, and those of the batch, as few as the strides of all arguments allow.

use opsmith_body::code::{Held, Lies};
use opsmith_body::{Axes, Axis};
use opsmith_core::tensor::{Extents, Strides};
use opsmith_core::{Result, ensure};
use smallvec::SmallVec;

use super::{Placed, Space};

/// How an argument lies along the axes. It does not lie on those along which it stays where it is.
#[derive(Clone)]
pub(super) struct Lie {
    pub(super) along: [isize; Axis::MOST],
    pub(super) axes: Axes,
}

impl Lie {
    fn nowhere() -> Self {
        Lie { along: [0; Axis::MOST], axes: Axes::NONE }
    }

    fn add(&mut self, axis: usize, stride: isize) {
        if stride != 0 {
            self.along[axis] = stride;
            self.axes = self.axes.with(Axis::new(axis));
        }
    }

    /// Of dense memory on some axes, of these sizes: those of the graph are the inner ones, and each other's in their order.
    pub(super) fn dense(axes: Axes, sizes: &[usize], of_graph: usize) -> Self {
        let mut lie = Self::nowhere();
        let mut stride = 1;
        let (own, others): (Vec<Axis>, Vec<Axis>) =
            axes.iter().rev().partition(|axis| axis.index() < of_graph);
        for axis in own.into_iter().chain(others) {
            lie.along[axis.index()] = stride;
            stride *= sizes[axis.index()] as isize;
        }
        lie.axes = axes;
        lie
    }

    /// The same for code, of what is held so in so many bytes.
    pub(super) fn held(&self, held: Held, bytes: usize) -> Lies {
        let along = self.along.map(|stride| stride * bytes as isize);
        Lies { axes: self.axes, dense: self.dense_along(), along, held }
    }

    /// The axes along which one number lies after another.
    pub(super) fn dense_along(&self) -> Axes {
        let dense = self.axes.iter().filter(|axis| self.along[axis.index()] == 1);
        dense.map(Axes::of).fold(Axes::NONE, Axes::union)
    }
}

/// Dims that all arguments go through as if they were one.
pub(super) struct Merged {
    pub(super) size: usize,
    pub(super) strides: Strides,
}

/// The axes of a call, and how the arguments lie along them.
pub(super) struct Spread {
    pub(super) sizes: Extents,
    /// The axes of the graph that several stand for, and those.
    pub(super) groups: SmallVec<[(usize, Axes); 2]>,
    pub(super) lies: SmallVec<[Lie; 8]>,
}

impl Spread {
    pub(super) fn new(space: &Space<'_>, placed: &[Placed]) -> Result<Spread> {
        let mut spread = Spread {
            sizes: Extents::from_elem(1, space.axes),
            groups: SmallVec::new(),
            lies: placed.iter().map(|_| Lie::nowhere()).collect(),
        };
        for axis in 0..space.axes {
            let mut merged = merged(space, placed, Some(axis));
            if let Some(inner) = merged.pop() {
                spread.sizes[axis] = inner.size;
                spread.lie(axis, &inner);
            }
            if !merged.is_empty() {
                let first = spread.sizes.len();
                spread.push(merged, space)?;
                let more = (first..spread.sizes.len()).chain([axis]).map(|axis| Axes::of(Axis::new(axis)));
                spread.groups.push((axis, more.fold(Axes::NONE, Axes::union)));
            }
        }
        let batch = merged(space, placed, None);
        spread.push(batch, space)?;
        Ok(spread)
    }

    /// Adds an axis for each of some dims.
    fn push(&mut self, merged: SmallVec<[Merged; 4]>, space: &Space<'_>) -> Result<()> {
        for dims in merged {
            let axis = self.sizes.len();
            ensure!(
                axis < Axis::MOST,
                Unimplemented,
                "the arguments have {} dims whose strides cannot be told as those of {} axes",
                space.dims.len(),
                Axis::MOST
            );
            self.sizes.push(dims.size);
            self.lie(axis, &dims);
        }
        Ok(())
    }

    fn lie(&mut self, axis: usize, dims: &Merged) {
        for (lie, &stride) in self.lies.iter_mut().zip(&dims.strides) {
            lie.add(axis, stride);
        }
    }
}

/// The dims of an axis, or of the batch, but for those of size 1: the innermost one last, where numbers are most often beside each
/// other.
pub(super) fn merged(space: &Space<'_>, placed: &[Placed], axis: Option<usize>) -> SmallVec<[Merged; 4]> {
    let mut found: SmallVec<[Merged; 4]> = SmallVec::new();
    let dims = space.dims.iter().enumerate().rev();
    for (position, dim) in dims.filter(|(_, dim)| dim.axis == axis && dim.size != 1) {
        let strides: Strides = placed.iter().map(|placed| placed.strides[position]).collect();
        if let Some(inner) = found.last_mut() {
            let continues = |(&stride, &inner_stride): (&isize, &isize)| {
                inner_stride.checked_mul(inner.size as isize) == Some(stride)
                    && (stride == 0) == (inner_stride == 0)
            };
            if strides.iter().zip(&inner.strides).all(continues) {
                inner.size *= dim.size;
                continue;
            }
        }
        found.push(Merged { size: dim.size, strides });
    }
    found.reverse();
    found
}
