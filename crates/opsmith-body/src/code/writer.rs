//! What is known while code of a nest is written: its registers, and in which loops the code is.

use std::collections::BTreeMap;

use super::asm::{Asm, Gpr, Vector};
use super::frame::Frame;
use super::place::Pointer;
use super::straight::Straight;
use super::vectors::Vectors;
use super::wanted::{Tile, Wanted};
use crate::axes::{Axes, Axis};
use crate::expr::{Step, Sum};

/// The most vectors that a line has no registers for.
pub(super) const MOST_SPILLED: usize = 64;

/// The registers for addresses in innermost loops, and for counting.
pub(super) const POINTERS: [Gpr; 10] =
    [Gpr::RCX, Gpr::RDX, Gpr::RSI, Gpr::RDI, Gpr::R8, Gpr::R9, Gpr::R10, Gpr::R11, Gpr::R12, Gpr::R13];
pub(super) const TURNS: Gpr = Gpr::R14;

/// A loop: so many whole vectors or positions, and so many numbers of a last vector.
pub(super) struct Turns {
    pub(super) whole: usize,
    pub(super) rest: usize,
}

/// A register of the nest: one vector in the frame, or as many as some loops have positions.
pub(super) struct Register {
    pub(super) first: i32,
    pub(super) count: usize,
    /// The axes of the tile along which it has others, and how many bytes further those are.
    pub(super) tiled: Vec<(Axis, i32)>,
    /// The axes, and how many bytes a position along each is.
    pub(super) along: Vec<(Axis, i32)>,
    /// Where the address of the vector is where the loops are, if there are several.
    pub(super) slot: i32,
}

/// Something that an address is kept of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Object {
    Argument(usize),
    Register(usize),
}

/// Where code is: in which loops.
#[derive(Clone, Default)]
pub(super) struct At {
    /// The axes of the loops around, but for the outermost.
    pub(super) bound: Axes,
    /// How many numbers a vector along the lanes has here.
    pub(super) len: usize,
    /// Whether only those are folded.
    pub(super) is_partial: bool,
    /// How many vectors or positions further than the addresses say.
    pub(super) ahead: usize,
    pub(super) addresses: BTreeMap<Object, Gpr>,
    /// How many bytes further than the addresses, and where, in loops that are written out.
    pub(super) further: BTreeMap<Object, i32>,
    pub(super) fixed: BTreeMap<Axis, usize>,
    /// The axis of a loop around of which a turn computes several positions, and how many.
    pub(super) inner: Option<(Axis, usize)>,
    /// Where in the tile, along its axes.
    pub(super) tiled: Vec<(Axis, usize)>,
    pub(super) pins: BTreeMap<(usize, i32), Vector>,
    pub(super) pinned: Vec<Vector>,
}

pub(super) struct Writer<'a> {
    pub(super) wanted: &'a Wanted<'a>,
    pub(super) vectors: Vectors,
    pub(super) asm: Asm,
    pub(super) frame: Frame,
    pub(super) registers: Vec<Register>,
    /// How often each register is read.
    pub(super) reads: Vec<usize>,
    pub(super) straight: Straight<'a>,
    /// Whether what is the same in all turns of a loop is in registers.
    pub(super) holds: bool,
    /// Where vectors are that registers do not suffice for.
    pub(super) spills: i32,
    /// The registers that have the size of an axis, which is known.
    pub(super) counts: BTreeMap<usize, f64>,
    /// The sums of the nest that another loop computes too, by the register of their parts.
    pub(super) again_sums: BTreeMap<usize, Sum>,
    /// Along which axes of the tile each register differs, and which are carried along the inner one.
    pub(super) varies: Vec<Axes>,
    pub(super) carried: Vec<bool>,
}

impl At {
    /// How many positions are computed side by side here.
    pub(super) fn positions(&self, tile: &Tile) -> usize {
        tile.positions() * self.inner.map_or(1, |(_, count)| count)
    }

    /// Where it is in the tile along an axis.
    pub(super) fn in_tile(&self, axis: Axis) -> usize {
        self.tiled.iter().find(|(own, _)| *own == axis).map_or(0, |(_, turns)| *turns)
    }
}

impl Writer<'_> {
    pub(super) fn width(&self) -> usize {
        self.vectors.width()
    }

    /// All positions of the tile, where the loops are.
    pub(super) fn tile(&self, at: &At) -> Vec<At> {
        let mut all = vec![at.clone()];
        let counts = self.wanted.tile.counts.iter().copied().chain(at.inner);
        for (axis, count) in counts.filter(|(_, count)| *count > 1) {
            let is_lanes = self.wanted.nest.lanes == Some(axis);
            let here = |at: &At, turns: usize| {
                let mut at = at.clone();
                at.tiled.push((axis, turns));
                if is_lanes {
                    at.len = if turns + 1 == count { self.wanted.tile.last } else { self.vectors.width() };
                }
                at
            };
            all = all.iter().flat_map(|at| (0..count).map(move |turns| here(at, turns))).collect();
        }
        all
    }

    /// Whether a step is done at a position of the tile: what is the same along an axis is done once.
    pub(super) fn is_done(&self, step: &Step, at: &At) -> bool {
        let varies = match step {
            Step::Load { to, .. } | Step::Index { to, .. } | Step::Count { to, .. } => self.varies[*to],
            Step::Compute { outputs, .. } => self.varies[outputs[0]],
            Step::Fill { register, .. } | Step::Across { register, .. } => self.varies[*register],
            Step::Online(_) => unreachable!("only cards have these"),
            Step::Fold { into, .. } => match at.inner {
                Some((axis, _)) if self.carried[*into] => self.varies[*into].with(axis),
                _ => self.varies[*into],
            },
            Step::Store { from, to } => {
                self.varies[*from].union(self.wanted.lies[to.argument(self.wanted.counts)].axes)
            }
            Step::Loop { .. } => return true,
        };
        at.tiled.iter().all(|(axis, turns)| *turns == 0 || varies.has(*axis))
    }

    /// The positions of a loop that is written out.
    pub(super) fn written_out(&self, axis: Axis, steps: &[Step], at: &At) -> Vec<At> {
        let size = self.wanted.sizes[axis.index()];
        let bound = at.bound.with(axis);
        if self.wanted.nest.lanes == Some(axis) {
            let width = self.width();
            let vector = |ahead: usize| {
                let len = (size - ahead * width).min(width);
                At { bound, len, is_partial: len < width, ahead, ..at.clone() }
            };
            return (0..size.div_ceil(width)).map(vector).collect();
        }
        let strides = self.strides(axis, steps);
        let position = |position: usize| {
            let mut here = at.further(&strides, position);
            here.bound = bound;
            here.fixed.insert(axis, position);
            here
        };
        (0..size).map(position).collect()
    }
}

impl At {
    /// The same at a position of a loop that is written out, whose positions are so many bytes apart.
    pub(super) fn further(&self, strides: &[(Object, i32)], position: usize) -> At {
        let mut at = self.clone();
        for (object, bytes) in strides {
            *at.further.entry(*object).or_default() += bytes * position as i32;
        }
        at
    }

    /// Where the address of something is.
    pub(super) fn pointer(&self, object: Object, slot: i32) -> Pointer {
        self.addresses.get(&object).map_or(Pointer::Slot(slot), |register| Pointer::Register(*register))
    }
}

pub(super) fn count_reads(steps: &[Step], reads: &mut [usize]) {
    for step in steps {
        match step {
            Step::Store { from, .. } => reads[*from] += 1,
            Step::Fold { from, into, .. } => {
                reads[*from] += 1;
                reads[*into] += 1;
            }
            Step::Across { register, .. } => reads[*register] += 1,
            Step::Compute { inputs, .. } => inputs.iter().for_each(|input| reads[*input] += 1),
            Step::Loop { steps, sums, .. } => {
                count_reads(steps, reads);
                sums.iter().for_each(|sum| reads[sum.part] += 1);
            }
            _ => {}
        }
    }
}
