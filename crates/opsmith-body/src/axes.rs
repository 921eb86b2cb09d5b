//! The axes that numbers of a body lie on.

use std::fmt;

/// An axis of a body, by its position among the names that its signature has.
///
/// Authors write its name, `x.sum(k)`, and `#[body]` puts this in its place; a function that a body calls takes one as a
/// parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Axis(u8);

impl Axis {
    /// The most axes that a body has.
    pub const MOST: usize = 16;

    /// The axis of a position.
    ///
    /// # Panics
    /// If it is none of the first [`MOST`](Self::MOST).
    pub const fn new(position: usize) -> Self {
        assert!(position < Self::MOST, "a body has at most 16 axes");
        Self(position as u8)
    }

    /// The position.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of axes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Axes(u16);

impl Axes {
    /// None: of a constant, there is one number.
    pub const NONE: Self = Self(0);
    /// The first one alone. What a body without names computes is once for each position of it.
    pub const FIRST: Self = Self(1);

    /// The set as bits, the first axis the lowest one.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The set of these bits.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// One axis.
    pub const fn of(axis: Axis) -> Self {
        Self(1 << axis.0)
    }

    /// Those of these positions.
    ///
    /// # Panics
    /// As [`Axis::new`].
    pub fn at(positions: &[usize]) -> Self {
        positions.iter().map(|&position| Self::of(Axis::new(position))).fold(Self::NONE, Self::union)
    }

    /// What is in either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in both.
    #[must_use]
    pub const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// What is not in the other.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// With an axis.
    #[must_use]
    pub const fn with(self, axis: Axis) -> Self {
        self.union(Self::of(axis))
    }

    /// Without an axis.
    #[must_use]
    pub const fn without(self, axis: Axis) -> Self {
        self.minus(Self::of(axis))
    }

    /// Whether an axis is in it.
    pub const fn has(self, axis: Axis) -> bool {
        self.0 >> axis.0 & 1 == 1
    }

    /// Whether all of it is in the other.
    pub const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The axes, in order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Axis> {
        (0..Axis::MOST as u8).map(Axis).filter(move |axis| self.has(*axis))
    }
}

impl fmt::Debug for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Axis::index)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_sets() {
        let (a, b) = (Axes::at(&[0, 3]), Axes::at(&[3, 15]));
        assert_eq!(a.union(b), Axes::at(&[0, 3, 15]));
        assert_eq!((a.both(b), a.minus(b)), (Axes::at(&[3]), Axes::FIRST));
        assert!(a.both(b).is_within(a) && !a.is_within(b));
        assert_eq!(b.iter().map(Axis::index).collect::<Vec<_>>(), [3, 15]);
        assert_eq!(b.without(Axis::new(15)).with(Axis::new(0)), a);
        assert_eq!(format!("{b:?} {:?}", Axes::NONE), "{3, 15} {}");
    }
}
