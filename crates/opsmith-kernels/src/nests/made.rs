//! What a nest as machine code is, and what it is made for.

use opsmith_body::code::{Frame, Lies, Vectors};
use opsmith_body::{Axis, Fold};
use smallvec::SmallVec;

use super::pages::Pages;

/// A nest as code.
pub(super) struct Native {
    /// The free axes, the fastest first.
    pub(super) free: SmallVec<[Along; 4]>,
    /// What is copied before, so that vectors lie one number after another.
    pub(super) packed: Vec<Packed>,
    pub(super) frame: Frame,
    pub(super) vectors: Vectors,
    pub(super) kind: Kind,
    pub(super) cost: usize,
}

/// A copy of an argument in panels: of each vector along the lanes, one after another what there is at the positions of all other axes.
pub(super) struct Packed {
    pub(super) argument: usize,
    pub(super) lies: Lies,
    pub(super) bytes: usize,
    pub(super) native: Box<Native>,
}

/// A free axis.
pub(super) struct Along {
    pub(super) axis: Axis,
    /// How many units there are along it, and how many of them are whole tiles.
    pub(super) units: usize,
    pub(super) whole: usize,
    /// How many positions a whole one has.
    pub(super) step: usize,
    /// What is added to the position of a function where one is not whole.
    pub(super) rest: usize,
}

/// Code for whole tiles, and for those at the end of the one axis, of the other, and of both.
pub(super) type Function = [Option<Pages>; 4];

pub(super) enum Kind {
    Units(Function),
    Parts(Box<Parts>),
}

/// A loop that is split into parts, so that threads share it. It depends on sizes alone, as do the results.
pub(super) struct Parts {
    pub(super) axis: Axis,
    pub(super) count: usize,
    /// How many numbers or positions a part has.
    pub(super) length: usize,
    pub(super) before: Function,
    pub(super) part: Function,
    pub(super) last: Function,
    pub(super) after: Function,
    /// The registers that are folded into: how, where they are in the frame, and how many vectors they have.
    pub(super) folds: Vec<(Fold, usize, usize)>,
}

/// What native code is made for.
pub(super) struct Made<'a> {
    pub(super) sizes: &'a [usize],
    pub(super) lies: &'a [Lies],
    pub(super) counts: (usize, usize),
    pub(super) vectors: Vectors,
}
