//! Which loops are written out: their positions one after another, as parts of straight lines.

use std::collections::BTreeSet;

use super::vectors::Vectors;
use super::wanted::Wanted;
use crate::axes::{Axes, Axis};
use crate::expr::{PART, Step};

/// The most vectors of a row that is written out.
pub(super) const MOST_VECTORS: usize = 8;
/// The most operations of a loop that is written out.
const MOST_WRITTEN: usize = 96;
/// The same in a tile, for each of its positions.
const MOST_TILED: usize = 32;

/// What decides which loops are written out.
#[derive(Clone, Copy)]
pub(super) struct Straight<'a> {
    wanted: &'a Wanted<'a>,
    vectors: Vectors,
    /// The axes whose positions are needed.
    pub(super) indexed: Axes,
    /// The axes along which a loop may be within another one, or within the outermost.
    again: Axes,
    /// The most vectors of a row that is written out.
    most_vectors: usize,
}

impl<'a> Straight<'a> {
    pub(super) fn new(wanted: &'a Wanted<'a>, vectors: Vectors, most_vectors: usize) -> Self {
        let nested = nested(&wanted.nest.steps, Axes::NONE);
        let indexed = indexed(&wanted.nest.steps).union(nested);
        Self { wanted, vectors, indexed, again: nested.union(wanted.nest.free), most_vectors }
    }

    /// Whether a step is one of a line: it is no loop, or one of few positions that are written one after another.
    pub(super) fn has(&self, step: &Step) -> bool {
        match step {
            Step::Loop { axis, steps, .. } => self.is_written_out(*axis, steps),
            Step::Fill { register, .. } | Step::Across { register, .. } => {
                self.wanted.nest.registers[*register].is_empty()
            }
            _ => true,
        }
    }

    pub(super) fn is_written_out(&self, axis: Axis, steps: &[Step]) -> bool {
        let is_lanes = self.wanted.nest.lanes == Some(axis);
        let most = if is_lanes { self.most_vectors } else { PART };
        let written = if self.wanted.tile.positions() > 1 { MOST_TILED } else { MOST_WRITTEN };
        let turns = self.turns(axis);
        let is_small = turns <= most && turns.saturating_mul(self.weight(steps)) <= written;
        is_small
            && !(is_lanes && self.indexed.has(axis))
            && !self.outer().union(self.again).has(axis)
            && steps.iter().all(|step| self.has(step))
            && self.is_near(steps, axis)
    }

    /// Whether a turn of a loop computes several positions: of one with others in it that are not all written out.
    pub(super) fn is_inner(&self, axis: Axis, steps: &[Step]) -> bool {
        self.wanted.tile.inner.is_some_and(|(own, _)| own == axis)
            && steps.iter().any(|step| matches!(step, Step::Loop { .. }))
            && !steps.iter().all(|step| self.has(step))
    }

    /// Whether a few positions along an axis are so near to each other that instructions can say how far, in all that steps read and
    /// write.
    pub(super) fn is_near(&self, steps: &[Step], axis: Axis) -> bool {
        self.arguments(steps).iter().all(|argument| self.wanted.lies[*argument].is_near(axis))
    }

    /// How many operations steps are when loops are written out.
    pub(super) fn weight(&self, steps: &[Step]) -> usize {
        let of_step = |step: &Step| match step {
            Step::Loop { axis, steps, .. } => self.turns(*axis).saturating_mul(self.weight(steps)),
            Step::Compute { program, .. } => 1 + program.len(),
            _ => 1,
        };
        steps.iter().map(of_step).fold(0, usize::saturating_add)
    }

    /// How many vectors there are along the lanes; none where there are no lanes.
    pub(super) fn vectors_along_lanes(&self) -> usize {
        self.wanted.nest.lanes.map_or(0, |lanes| self.turns(lanes))
    }

    /// How many positions a loop has, or vectors.
    fn turns(&self, axis: Axis) -> usize {
        let size = self.wanted.sizes[axis.index()];
        if self.wanted.nest.lanes == Some(axis) { size.div_ceil(self.vectors.width()) } else { size }
    }

    /// The axes of the outermost loops, and of one that is gone along in parts.
    pub(super) fn outer(&self) -> Axes {
        let nest = self.wanted.nest;
        match (self.wanted.part, nest.steps.get(self.wanted.steps.1.wrapping_sub(1))) {
            (Some(_), Some(Step::Loop { axis, .. })) => nest.free.with(*axis),
            _ => nest.free,
        }
    }

    /// The arguments that steps read or write.
    pub(super) fn arguments(&self, steps: &[Step]) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        for step in steps {
            match step {
                Step::Load { from: argument, .. } | Step::Store { to: argument, .. } => {
                    found.insert(argument.argument(self.wanted.counts));
                }
                Step::Loop { steps, .. } => found.extend(self.arguments(steps)),
                _ => {}
            }
        }
        found
    }
}

/// The axes whose positions steps read.
fn indexed(steps: &[Step]) -> Axes {
    let of_step = |step: &Step| match step {
        Step::Index { axis, .. } => Axes::of(*axis),
        Step::Loop { steps, .. } => indexed(steps),
        _ => Axes::NONE,
    };
    steps.iter().map(of_step).fold(Axes::NONE, Axes::union)
}

/// The axes along which there are loops in loops.
fn nested(steps: &[Step], around: Axes) -> Axes {
    let of_step = |step: &Step| match step {
        Step::Loop { axis, steps, .. } => {
            let own = if around.has(*axis) { Axes::of(*axis) } else { Axes::NONE };
            own.union(nested(steps, around.with(*axis)))
        }
        _ => Axes::NONE,
    };
    steps.iter().map(of_step).fold(Axes::NONE, Axes::union)
}
