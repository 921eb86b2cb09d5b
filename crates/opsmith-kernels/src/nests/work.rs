//! A thread's part of a nest that is code.

use std::ops::Range;

use opsmith_body::Axis;
use opsmith_core::{Result, memory};
use smallvec::SmallVec;

use super::made::{Along, Function, Native};
use super::memory::Address;

/// A part of a thread's frame, as long as the longest vector.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Vector([u8; 64]);

pub(super) struct Work<'a> {
    native: &'a Native,
    addresses: &'a [Address],
    frame: Vec<Vector>,
}

impl<'a> Work<'a> {
    pub(super) fn new(native: &'a Native, addresses: &'a [Address]) -> Result<Self> {
        let vectors = native.frame.bytes.div_ceil(size_of::<Vector>());
        let frame = memory::filled(Vector([0; 64]), vectors, "the registers of a body")?;
        let mut work = Work { native, addresses, frame };
        for (argument, axis, at) in &native.frame.strides {
            work.set(*at, addresses[*argument].stride(*axis) as u64);
        }
        for (argument, axis, at) in &native.frame.distances {
            let stride = addresses[*argument].stride(*axis);
            for lane in 0..native.vectors.bytes() / size_of::<i32>() {
                work.set_int(at + 4 * lane, (stride * lane as isize) as i32);
            }
        }
        Ok(work)
    }

    fn set(&mut self, at: usize, number: u64) {
        // SAFETY: what the frame has at this place is within it.
        unsafe { self.frame.as_mut_ptr().cast::<u8>().add(at).cast::<u64>().write(number) };
    }

    fn set_int(&mut self, at: usize, number: i32) {
        // SAFETY: as above.
        unsafe { self.frame.as_mut_ptr().cast::<u8>().add(at).cast::<i32>().write(number) };
    }

    /// Goes to a unit: its positions along the free axes, and along one that is split. Gives which function is for it.
    fn go_to(&mut self, unit: usize, start: Option<(Axis, usize)>) -> usize {
        let mut at: SmallVec<[(Axis, usize); 4]> = SmallVec::new();
        let mut rest = unit;
        let mut which = 0;
        for Along { axis, units, whole, step, rest: own } in &self.native.free {
            which += if rest % units < *whole { 0 } else { *own };
            at.push((*axis, rest % units * step));
            rest /= units;
        }
        at.extend(start);
        for (axis, at) in &at {
            self.set(self.native.frame.positions + 8 * axis.index(), *at as u64);
        }
        for (argument, address) in self.addresses.iter().enumerate() {
            self.set(self.native.frame.addresses + 8 * argument, address.at(&at) as u64);
        }
        which
    }

    /// Runs a function for some units, which are gone to one after another.
    pub(super) fn units(&mut self, function: &Function, units: Range<usize>, start: Option<(Axis, usize)>) {
        let (fast, whole) = self.native.free.first().map_or((1, 1), |along| (along.units, along.whole));
        let mut unit = units.start;
        while unit < units.end {
            let which = self.go_to(unit, start);
            let at = unit % fast;
            let count = whole.saturating_sub(at).min(units.end - unit).max(1);
            self.set(self.native.frame.count, count as u64);
            if let Some(pages) = &function[which] {
                // SAFETY: the code was made for these arguments and this frame; who gave the arguments promises what is there.
                unsafe { pages.run(self.frame.as_mut_ptr().cast()) };
            }
            unit += count;
        }
    }

    /// The numbers of a register.
    pub(super) fn numbers<W>(&mut self, at: usize, vectors: usize) -> &mut [W] {
        // SAFETY: the register has so many vectors in the frame, which is aligned for numbers.
        unsafe {
            let first = self.frame.as_mut_ptr().cast::<u8>().add(at).cast::<W>();
            std::slice::from_raw_parts_mut(first, vectors * self.native.vectors.width())
        }
    }
}
