//! Where numbers lie.

use opsmith_body::code::Lies;
use opsmith_body::{Axes, Axis, BLOCK, Block, Kind, Level, Nests};

use super::axes::Lie;
use crate::stored::{Stored, Wide};

/// What lies somewhere.
#[derive(Clone, Copy)]
enum Data<T: Stored> {
    /// Nothing, which is zeros.
    Absent,
    Given(*mut T),
    /// Numbers as they are computed.
    Wide(*mut T::Wide),
    Positions(*mut i64),
    /// 1 where it is true, else 0.
    Truths(*mut u8),
}

impl<T: Stored> Data<T> {
    fn of(kind: Kind, data: *mut u8) -> Self {
        match kind {
            Kind::Number => Self::Given(data.cast()),
            Kind::Index => Self::Positions(data.cast()),
            Kind::Mask => Self::Truths(data),
        }
    }
}

/// An argument of a call, or temporary memory.
#[derive(Clone)]
pub(super) struct Operand<T: Stored> {
    data: Data<T>,
    along: [isize; Axis::MOST],
    pub(super) axes: Axes,
}

// SAFETY: whoever makes a task promises that what it writes is its own, and each number is written by one thread.
unsafe impl<T: Stored> Sync for Operand<T> {}

/// Where an argument of a call, or temporary memory, is for machine code.
#[derive(Clone)]
pub(super) struct Address {
    data: *mut u8,
    /// Strides in bytes, 0 along axes on which it does not lie.
    along: [isize; Axis::MOST],
}

// SAFETY: as for an operand.
unsafe impl Sync for Address {}

impl Address {
    pub(super) fn new(data: *mut u8, lie: &Lie, element: usize) -> Self {
        let along = lie.along.map(|stride| stride * element as isize);
        Address { data, along }
    }

    /// Memory that lies so.
    pub(super) fn of(data: *mut u8, lies: &Lies) -> Self {
        Address { data, along: lies.along }
    }

    pub(super) fn begin(&self) -> *mut u8 {
        self.data
    }

    pub(super) fn stride(&self, axis: Axis) -> isize {
        self.along[axis.index()]
    }

    /// The address at positions of some axes.
    pub(super) fn at(&self, at: &[(Axis, usize)]) -> *mut u8 {
        let along = |(axis, at): &(Axis, usize)| *at as isize * self.along[axis.index()];
        self.data.wrapping_offset(at.iter().map(along).sum())
    }
}

/// The numbers of a block: the axis along which they lie, and how many there are.
pub(super) type Lanes = Option<(Axis, usize)>;

impl<T: Stored> Operand<T> {
    pub(super) fn absent() -> Self {
        Operand { data: Data::Absent, along: [0; Axis::MOST], axes: Axes::NONE }
    }

    /// An argument that lies there.
    pub(super) fn new(data: *mut u8, kind: Kind, lie: &Lie) -> Self {
        Operand { data: Data::of(kind, data), along: lie.along, axes: lie.axes }
    }

    /// Temporary memory.
    pub(super) fn temporary(memory: *mut T::Wide, lie: &Lie) -> Self {
        Operand { data: Data::Wide(memory), along: lie.along, axes: lie.axes }
    }

    /// How far it is at these positions of some axes.
    pub(super) fn offset(&self, axes: Axes, at: &[usize; Axis::MOST]) -> isize {
        let own = self.axes.both(axes);
        own.iter().map(|axis| at[axis.index()] as isize * self.along[axis.index()]).sum()
    }

    /// Its stride along the lanes, if it lies along them, and how many numbers there are.
    fn lanes(&self, lanes: Lanes) -> Option<(isize, usize)> {
        let lanes = lanes.filter(|(axis, _)| self.axes.has(*axis));
        lanes.map(|(axis, count)| (self.along[axis.index()], count))
    }

    /// Reads a block from an offset on: the numbers along the lanes, or one number everywhere.
    ///
    /// # Safety
    /// There must be such numbers in the argument, and nobody may write there.
    pub(super) unsafe fn load(&self, level: Level, offset: isize, lanes: Lanes, to: &mut Block<T::Wide>) {
        let lanes = self.lanes(lanes);
        // SAFETY: promised by the caller.
        unsafe {
            match self.data {
                Data::Given(data) => given(level, data.offset(offset), lanes, to),
                Data::Wide(data) => gathered(data.offset(offset), lanes, to, |number| number),
                Data::Positions(data) => {
                    gathered(data.offset(offset), lanes, to, |at| T::Wide::of_double(at as f64));
                }
                Data::Truths(data) => {
                    let number = |truth| T::Wide::of_double(f64::from(u8::from(truth != 0)));
                    gathered(data.offset(offset), lanes, to, number);
                }
                Data::Absent => to.0 = [T::Wide::of_double(0.0); BLOCK],
            }
        }
    }

    /// Writes a block from an offset on.
    ///
    /// # Safety
    /// There must be such numbers in the output, and nobody else may read or write there.
    pub(super) unsafe fn store(&self, level: Level, offset: isize, lanes: Lanes, from: &[T::Wide; BLOCK]) {
        let (stride, count) = self.lanes(lanes).unwrap_or((0, 1));
        let numbers = &from[..count];
        // SAFETY: promised by the caller.
        unsafe {
            match self.data {
                Data::Given(data) if stride == 1 => {
                    T::narrow(level, from, std::slice::from_raw_parts_mut(data.offset(offset), count));
                }
                Data::Given(data) => {
                    let mut room = [T::default(); BLOCK];
                    T::narrow(level, from, &mut room[..count]);
                    scattered(data.offset(offset), stride, &room[..count], |number| number);
                }
                Data::Wide(data) => scattered(data.offset(offset), stride, numbers, |number| number),
                Data::Positions(data) => {
                    scattered(data.offset(offset), stride, numbers, |number| number.double() as i64);
                }
                Data::Truths(data) => {
                    scattered(data.offset(offset), stride, numbers, |number| {
                        u8::from(number.double() != 0.0)
                    });
                }
                Data::Absent => {}
            }
        }
    }
}

/// # Safety
/// There must be a place for each number from the first on.
unsafe fn scattered<E, W: Copy>(data: *mut E, stride: isize, numbers: &[W], element: impl Fn(W) -> E) {
    for (lane, &number) in numbers.iter().enumerate() {
        // SAFETY: promised by the caller.
        unsafe { data.offset(lane as isize * stride).write(element(number)) };
    }
}

/// # Safety
/// There must be an element, and those along the lanes from it on.
unsafe fn given<T: Stored>(
    level: Level,
    data: *const T,
    lanes: Option<(isize, usize)>,
    to: &mut Block<T::Wide>,
) {
    // SAFETY: promised by the caller.
    unsafe {
        match lanes {
            Some((1, count)) => T::widen_few(level, std::slice::from_raw_parts(data, count), to),
            Some((stride, count)) => {
                let mut room = [T::default(); BLOCK];
                for (lane, number) in room[..count].iter_mut().enumerate() {
                    *number = *data.offset(lane as isize * stride);
                }
                T::widen_few(level, &room[..count], to);
            }
            None => {
                T::widen_few(level, std::slice::from_ref(&*data), to);
                to.0 = [to.0[0]; BLOCK];
            }
        }
    }
}

/// # Safety
/// As [`given`].
unsafe fn gathered<E: Copy, W: Wide>(
    data: *const E,
    lanes: Option<(isize, usize)>,
    to: &mut Block<W>,
    number: impl Fn(E) -> W,
) {
    // SAFETY: promised by the caller.
    unsafe {
        match lanes {
            Some((stride, count)) => {
                for (lane, to) in to.0[..count].iter_mut().enumerate() {
                    *to = number(*data.offset(lane as isize * stride));
                }
            }
            None => to.0 = [number(*data); BLOCK],
        }
    }
}

/// The nests of a call, and what they read and write.
pub(super) struct Task<'a, T: Stored> {
    pub(super) nests: &'a Nests,
    pub(super) sizes: &'a [usize],
    /// The inputs, the outputs and the temporaries.
    pub(super) operands: Vec<Operand<T>>,
    /// The same, for machine code.
    pub(super) addresses: Vec<Address>,
    /// How many inputs there are, and outputs.
    pub(super) counts: (usize, usize),
}
