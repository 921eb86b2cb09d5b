//! Blocks of an operand: gathered from a tensor, or scattered to one.

use opsmith_body::{BLOCK, Block, Isa, Kernel, Level, dispatch_at};
use opsmith_core::space::{IndexSpace, Order};
use opsmith_core::{Result, memory};

use crate::stored::{Stored, Wide};

/// An operand as a loop reads it: which one of its space, where it lies and how.
pub(crate) struct Source<T> {
    data: *const T,
    operand: usize,
    order: Order,
}

/// The elements of an operand along a space.
pub(crate) enum Plain<T> {
    /// One after another from here on.
    Dense(*const T),
    /// All are this one.
    Same(T),
    /// In some other way.
    Strided,
}

// SAFETY: it is read only, by whoever promised when it was made that it may be.
unsafe impl<T: Sync> Sync for Source<T> {}

impl<T: Stored> Source<T> {
    /// # Safety
    /// While it is read from, the elements that the operand's strides reach from `data` along the space must be readable.
    /// They may be written between reads, but not while a block that was read is in use.
    pub(crate) unsafe fn new(space: &IndexSpace, operand: usize, data: *const T) -> Source<T> {
        Source { data, operand, order: space.order(operand) }
    }

    /// The `count` numbers from a linear index on, whose coordinates are `from`: where they lie, or else in `raw` or `wide`. What
    /// comes after them in the block is anything.
    ///
    /// # Safety
    /// The indices must be in the space.
    pub(crate) unsafe fn block(
        &self,
        space: &IndexSpace,
        level: Level,
        (begin, from): (usize, &[usize]),
        count: usize,
        (raw, wide): (&mut Block<T>, &mut Block<T::Wide>),
    ) -> *const [T::Wide; BLOCK] {
        let Some(at) = self.run(space, (begin, from), count) else {
            // SAFETY: promised by the caller; it is a whole block.
            return unsafe {
                self.gather(space, from, count, raw);
                T::widen(level, raw.0.as_ptr(), wide)
            };
        };
        // SAFETY: the indices are in the space, so these elements are the operand's.
        unsafe {
            if count == BLOCK {
                return T::widen(level, at, wide);
            }
            raw.0.as_mut_ptr().copy_from_nonoverlapping(at, count);
            T::widen(level, raw.0.as_ptr(), wide)
        }
    }

    /// Where the `count` elements from an index on lie one after another, if they do.
    pub(crate) fn run(
        &self,
        space: &IndexSpace,
        (begin, from): (usize, &[usize]),
        count: usize,
    ) -> Option<*const T> {
        let strides = space.strides(self.operand);
        let place = match self.order {
            Order::Dense => begin as isize,
            // All along the last dim.
            Order::Strided if strides[0] == 1 && from[0] + count <= space.dims()[0] => {
                from.iter().zip(strides).map(|(&at, stride)| at as isize * stride).sum()
            }
            _ => return None,
        };
        Some(self.data.wrapping_offset(place))
    }

    /// How its elements lie along the space, and where, if not in some way with strides.
    ///
    /// # Safety
    /// The space must have an index.
    pub(crate) unsafe fn plain(&self) -> Plain<T> {
        match self.order {
            Order::Dense => Plain::Dense(self.data),
            // SAFETY: the caller promised an index, and `new` that its element is there.
            Order::Same => Plain::Same(unsafe { *self.data }),
            Order::Strided => Plain::Strided,
        }
    }

    /// # Safety
    /// As [`block`](Self::block).
    unsafe fn gather(&self, space: &IndexSpace, from: &[usize], count: usize, to: &mut Block<T>) {
        let [stride] = space.steps([self.operand]);
        space.runs_from([self.operand], from, count, |position, [place], length| {
            let to = &mut to.0[position..position + length];
            // SAFETY: the caller promised that these indices, and `new` that their elements, are there.
            unsafe {
                let at = self.data.offset(place);
                match stride {
                    0 => to.fill(*at),
                    1 => to.as_mut_ptr().copy_from_nonoverlapping(at, length),
                    _ => {
                        for (index, to) in to.iter_mut().enumerate() {
                            *to = *at.offset(index as isize * stride);
                        }
                    }
                }
            }
        });
    }
}

/// An operand as a loop writes it.
pub(crate) struct Sink<T> {
    data: *mut T,
    operand: usize,
    order: Order,
}

// SAFETY: each element is written by one thread, as whoever made it promised.
unsafe impl<T: Send> Sync for Sink<T> {}

impl<T: Stored> Sink<T> {
    /// # Safety
    /// While it is written to, the elements that the operand's strides reach from `data` along the space must be
    /// writable and nobody else's, and no two indices reach the same.
    pub(crate) unsafe fn new(space: &IndexSpace, operand: usize, data: *mut T) -> Sink<T> {
        Sink { data, operand, order: space.order(operand) }
    }

    /// Where the elements from a linear index on lie one after another, if they do.
    pub(crate) fn run(&self, begin: usize) -> Option<*mut T> {
        (self.order == Order::Dense).then(|| self.data.wrapping_add(begin))
    }

    /// Stores the first `count` numbers of a block from a linear index on, whose coordinates are `from`.
    ///
    /// # Safety
    /// The indices must be in the space, and no other thread may write to them.
    pub(crate) unsafe fn store(
        &self,
        space: &IndexSpace,
        level: Level,
        (begin, from): (usize, &[usize]),
        count: usize,
        (numbers, raw): (&Block<T::Wide>, &mut Block<T>),
    ) {
        if self.order == Order::Dense {
            // SAFETY: the indices are in the space, so these elements are the operand's, and ours.
            let to = unsafe { std::slice::from_raw_parts_mut(self.data.add(begin), count) };
            return T::narrow(level, &numbers.0, to);
        }
        T::narrow(level, &numbers.0, &mut raw.0[..count]);
        let [stride] = space.steps([self.operand]);
        space.runs_from([self.operand], from, count, |position, [place], length| {
            for (index, &number) in raw.0[position..position + length].iter().enumerate() {
                // SAFETY: as above.
                unsafe { self.data.offset(place + index as isize * stride).write(number) };
            }
        });
    }
}

/// The sums of some numbers of a space, by the place that an operand has at them: the part of a range of indices.
pub(crate) struct Sums {
    operand: usize,
    /// The place of the first value.
    low: usize,
    values: Vec<f64>,
}

impl Sums {
    /// No numbers yet, for the operand's places from `low` to `high`.
    ///
    /// # Errors
    /// `ResourceExhausted` without memory.
    pub(crate) fn new(operand: usize, (low, high): (usize, usize)) -> Result<Sums> {
        Ok(Sums { operand, low, values: memory::filled(0.0, high - low + 1, "the sums of a gradient")? })
    }

    /// Adds the first `count` numbers of a block from some coordinates on.
    pub(crate) fn add<W: Wide>(
        &mut self,
        space: &IndexSpace,
        from: &[usize],
        count: usize,
        numbers: &Block<W>,
    ) {
        let Sums { low, values, operand } = self;
        let stride = space.steps([*operand])[0].unsigned_abs();
        space.runs_from([*operand], from, count, |position, [place], length| {
            let numbers = &numbers.0[position..position + length];
            let first = place.unsigned_abs() - *low;
            match stride {
                0 => values[first] += sum(numbers),
                1 => dispatch_at(Level::best(), Add { values: &mut values[first..first + length], numbers }),
                _ => {
                    for (value, number) in values[first..].iter_mut().step_by(stride).zip(numbers) {
                        *value += number.double();
                    }
                }
            }
        });
    }

    /// Adds what belongs to the places from `begin` on to `totals`.
    pub(crate) fn add_to(&self, begin: usize, totals: &mut [f64]) {
        let end = (begin + totals.len()).min(self.low + self.values.len());
        let first = begin.max(self.low);
        if first < end {
            let own = &self.values[first - self.low..end - self.low];
            for (total, value) in totals[first - begin..].iter_mut().zip(own) {
                *total += value;
            }
        }
    }
}

/// Numbers added to as many values.
struct Add<'a, W> {
    values: &'a mut [f64],
    numbers: &'a [W],
}

impl<W: Wide> Kernel for Add<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        for (value, number) in self.values.iter_mut().zip(self.numbers) {
            *value += number.double();
        }
    }
}

/// The sum of numbers: eight at a time, then by pairs.
fn sum<W: Wide>(numbers: &[W]) -> f64 {
    let mut lanes = [0.0; 8];
    let (eights, rest) = numbers.as_chunks::<8>();
    for eight in eights {
        for (lane, number) in lanes.iter_mut().zip(eight) {
            *lane += number.double();
        }
    }
    for (lane, number) in lanes.iter_mut().zip(rest) {
        *lane += number.double();
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}
