//! What code is made for: a nest, how its arguments lie, and which positions are computed side by side.

use crate::axes::{Axes, Axis};
use crate::expr::Nest;

/// How an argument lies, or temporary memory.
#[derive(Clone, Copy, Debug)]
pub struct Lies {
    /// The axes that it lies on.
    pub axes: Axes,
    /// Those of them along which the numbers of a vector lie one after another.
    pub dense: Axes,
    /// How many bytes it is from a position along each axis to the next; of panels, on average.
    pub along: [isize; Axis::MOST],
    /// What its numbers are held as.
    pub held: Held,
}

/// What a number is held as in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// As it is computed with: a float32 or a float64.
    Same,
    /// As a float16, of a body that computes in float32.
    Half,
    /// As a bfloat16, of a body that computes in float32.
    BFloat,
    /// As an integer of 8 bytes.
    Position,
    /// As a byte: 0, or true.
    Truth,
    /// The argument is not there: all numbers are 0.
    Absent,
}

impl Lies {
    /// Whether instructions can say how far it is to some positions further along an axis.
    pub(super) fn is_near(&self, axis: Axis) -> bool {
        self.along[axis.index()].unsigned_abs() < 1 << 22
    }
}

/// What code is made for: steps of a nest, and what there is in a call.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// The nest.
    pub nest: &'a Nest,
    /// The size of each axis.
    pub sizes: &'a [usize],
    /// How the inputs, the outputs and the temporaries lie.
    pub lies: &'a [Lies],
    /// How many inputs there are, and outputs.
    pub counts: (usize, usize),
    /// What is computed side by side of the outermost loops.
    pub tile: &'a Tile,
    /// The first of the nest's steps, and the one after the last.
    pub steps: (usize, usize),
    /// If the last step is a loop of which a part is gone along: how many whole vectors or positions that has, and how many numbers
    /// of a last vector.
    pub part: Option<(usize, usize)>,
}

/// Positions that are computed side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Axes of the outermost loops, and how many positions along each; of the lanes, how many vectors. The lanes are the last.
    pub counts: Vec<(Axis, usize)>,
    /// How many numbers the last vector along the lanes has, where they are an outermost axis.
    pub last: usize,
    /// An axis along which loops with others in them compute several positions in a turn, and how many.
    pub inner: Option<(Axis, usize)>,
}

impl Tile {
    /// How many positions there are along an axis.
    pub fn count(&self, axis: Axis) -> usize {
        self.counts.iter().find(|(own, _)| *own == axis).map_or(1, |(_, count)| *count)
    }

    pub(super) fn positions(&self) -> usize {
        self.counts.iter().map(|(_, count)| count).product()
    }

    /// The axes along which there are several positions.
    pub(super) fn axes(&self) -> Axes {
        let several = self.counts.iter().chain(&self.inner).filter(|(_, count)| *count > 1);
        several.map(|(axis, _)| Axes::of(*axis)).fold(Axes::NONE, Axes::union)
    }
}
