//! The axes of a call: those of the graph, and those of the batch, as few as the strides of all arguments allow.

use opsmith_body::code::{Held, Lies};
use opsmith_body::{Axes, Axis};
use opsmith_core::space::{Extents, IndexSpace};
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
    /// Of one number.
    pub(super) fn nowhere() -> Self {
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
            // What has more numbers than memory is refused before it is made.
            stride = stride.saturating_mul(sizes[axis.index()] as isize);
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
            let merged = merged(space, placed, Some(axis));
            if let Some(&inner) = merged.dims().first() {
                spread.sizes[axis] = inner;
                spread.lie(axis, &merged, 0);
            }
            if merged.dims().len() > 1 {
                let first = spread.sizes.len();
                spread.push(&merged, 1, space)?;
                let more = (first..spread.sizes.len()).chain([axis]).map(|axis| Axes::of(Axis::new(axis)));
                spread.groups.push((axis, more.fold(Axes::NONE, Axes::union)));
            }
        }
        spread.push(&merged(space, placed, None), 0, space)?;
        Ok(spread)
    }

    /// Adds an axis for each dim but for some of the innermost ones, which come first.
    fn push(&mut self, merged: &IndexSpace, innermost: usize, space: &Space<'_>) -> Result<()> {
        for dim in (innermost..merged.dims().len()).rev() {
            let axis = self.sizes.len();
            ensure!(
                axis < Axis::MOST,
                Unimplemented,
                "the arguments have {} dims whose strides cannot be told as those of {} axes",
                space.dims.len(),
                Axis::MOST
            );
            self.sizes.push(merged.dims()[dim]);
            self.lie(axis, merged, dim);
        }
        Ok(())
    }

    fn lie(&mut self, axis: usize, merged: &IndexSpace, dim: usize) {
        for (operand, lie) in self.lies.iter_mut().enumerate() {
            lie.add(axis, merged.strides(operand)[dim]);
        }
    }
}

/// The dims of an axis, or of the batch, with those as one that all arguments go through as if they were.
pub(super) fn merged(space: &Space<'_>, placed: &[Placed], axis: Option<usize>) -> IndexSpace {
    let mut merged = IndexSpace::with_room(space.dims.len(), placed.len());
    let dims = space.dims.iter().enumerate().rev();
    for (position, dim) in dims.filter(|(_, dim)| dim.axis == axis) {
        merged.push(dim.size, placed.iter().map(|placed| placed.strides[position]));
    }
    merged
}
