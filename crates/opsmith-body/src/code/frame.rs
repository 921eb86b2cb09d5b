//! The memory that code has for itself: addresses and counters, which its caller sets, and vectors.

use super::place::ROOM;
use super::vectors::Vectors;
use crate::axes::Axis;

/// Where things are in the frame, in bytes from its beginning.
#[derive(Clone, Debug)]
pub struct Frame {
    /// How many bytes it has. It begins at a multiple of those of a vector.
    pub bytes: usize,
    /// How many positions of the fastest outer axis are gone along: 8 bytes.
    pub count: usize,
    /// The position along each axis of the outer loops: 8 bytes for each axis there can be.
    pub positions: usize,
    /// The address of each argument and temporary at those positions: 8 bytes each.
    pub addresses: usize,
    /// Strides that the code reads, in bytes: of which argument, along which axis, and where.
    pub strides: Vec<(usize, Axis, usize)>,
    /// Distances of the numbers of a vector: of which argument, along which axis, and where; integers of four bytes, for each number one.
    pub distances: Vec<(usize, Axis, usize)>,
    /// The vectors of the code.
    pub vectors: Vectors,
}

impl Frame {
    pub(super) fn new(arguments: usize, vectors: Vectors) -> Self {
        let positions = ROOM as usize + 2 * vectors.bytes();
        let addresses = positions + 8 * Axis::MOST;
        let count = addresses + 8 * arguments;
        let bytes = count + 8;
        let (strides, distances) = (Vec::new(), Vec::new());
        Self { bytes, count, positions, addresses, strides, distances, vectors }
    }

    /// Room for so many bytes.
    pub(super) fn room(&mut self, bytes: usize) -> i32 {
        let at = self.bytes.next_multiple_of(if bytes < 32 { 8 } else { self.vectors.bytes() });
        self.bytes = at + bytes;
        at as i32
    }

    pub(super) fn position(&self, axis: Axis) -> i32 {
        (self.positions + 8 * axis.index()) as i32
    }

    pub(super) fn address(&self, argument: usize) -> i32 {
        (self.addresses + 8 * argument) as i32
    }

    pub(super) fn stride(&mut self, argument: usize, axis: Axis) -> i32 {
        self.told(8, (argument, axis), |frame| &mut frame.strides)
    }

    pub(super) fn distance(&mut self, argument: usize, axis: Axis) -> i32 {
        self.told(self.vectors.bytes(), (argument, axis), |frame| &mut frame.distances)
    }

    /// Where something is that the caller tells of an argument and an axis.
    fn told(&mut self, bytes: usize, of: (usize, Axis), all: fn(&mut Self) -> &mut Told) -> i32 {
        let known = all(self).iter().find(|(argument, axis, _)| (*argument, *axis) == of);
        if let Some((.., at)) = known {
            return *at as i32;
        }
        let at = self.room(bytes);
        all(self).push((of.0, of.1, at as usize));
        at
    }
}

/// Of which argument, along which axis, and where in the frame.
type Told = Vec<(usize, Axis, usize)>;
