//! Copies of what is read many times, in which the numbers of a vector lie one after another.

use opsmith_body::code::{Held, Lies};
use opsmith_body::{Axes, Axis, Nest, Place, Step};
use opsmith_core::{Compute, Result};

use super::made::{Made, Packed};
use super::memory::Address;
use crate::stored::Stored;

/// How often something is read at least, so that it is copied before.
const LEAST_READS: usize = 4;
/// The same where those numbers do so already, but vectors would push each other out of the cache.
const MANY_READS: usize = if cfg!(test) { 2 } else { 32 };
/// How many sets of lines the first cache has, how many lines each, and the bytes of a line; in tests, whose arguments are small, fewer.
const SETS: usize = 64;
const WAYS: usize = if cfg!(test) { 1 } else { 8 };
const LINE: usize = 64;

/// Whether what loops read falls into so few sets of the cache that it does not stay there.
fn is_crowded(made: &Made<'_>, own: &Lies, free: Axes) -> bool {
    own.axes.minus(free).iter().any(|axis| {
        let stride = own.along[axis.index()].unsigned_abs();
        let lines = 1 << (stride / LINE).trailing_zeros().min(SETS.trailing_zeros());
        stride.is_multiple_of(LINE) && made.sizes[axis.index()] > SETS / lines * WAYS
    })
}

impl Packed {
    /// What a nest reads copies of, and how all arguments lie for it then.
    pub(super) fn all(made: &Made<'_>, nest: &Nest) -> (Vec<Self>, Vec<Lies>) {
        let (mut found, mut all) = (Vec::new(), made.lies.to_vec());
        let Some(lanes) = nest.lanes else { return (found, all) };
        let mut reads = vec![0; all.len()];
        count_reads(made, &nest.steps, nest.free, &mut reads);
        for (argument, times) in reads.into_iter().enumerate() {
            let own = all[argument];
            let pays = match own.dense.has(lanes) {
                true => times >= MANY_READS && is_crowded(made, &own, nest.free),
                false => times >= LEAST_READS,
            };
            let is_along = own.axes.has(lanes) && own.held != Held::Absent;
            if let Some(packed) = (pays && is_along).then(|| Self::new(made, own, argument, lanes)).flatten()
            {
                all[argument] = packed.lies;
                found.push(packed);
            }
        }
        (found, all)
    }

    fn new(made: &Made<'_>, own: Lies, argument: usize, lanes: Axis) -> Option<Self> {
        let (number, vector) = (made.vectors.number() as isize, made.vectors.bytes() as isize);
        let mut lies = Lies { dense: Axes::of(lanes), along: [0; Axis::MOST], held: Held::Same, ..own };
        let mut far = vector;
        for axis in own.axes.without(lanes).iter().rev() {
            lies.along[axis.index()] = far;
            far = far.checked_mul(made.sizes[axis.index()] as isize)?;
        }
        lies.along[lanes.index()] = far / vector * number;
        let vectors = made.sizes[lanes.index()].div_ceil(made.vectors.width());
        let bytes = vectors.checked_mul(far as usize)?;
        // A loop along which what is copied lies one number after another touches the same lines of the cache again.
        let within = own.axes.both(own.dense).without(lanes).iter().next();
        let (load, store) =
            (Step::Load { from: Place::Input(0), to: 0 }, Step::Store { from: 0, to: Place::Output(0) });
        let steps = match within {
            Some(axis) => vec![Step::Loop { axis, steps: vec![load, store], sums: Vec::new() }],
            None => vec![load, store],
        };
        let free = within.map_or(own.axes, |axis| own.axes.without(axis));
        let nest = Nest { lanes: Some(lanes), free, registers: vec![Axes::NONE], steps };
        let native = Made { lies: &[own, lies], counts: (1, 1), ..*made }.native(&nest)?;
        Some(Packed { argument, lies, bytes, native: Box::new(native) })
    }

    /// Copies it.
    pub(super) fn run<T: Stored>(&self, compute: &Compute<'_>, addresses: &[Address]) -> Result<Address> {
        let numbers = self.bytes / size_of::<T::Wide>();
        let memory = compute.temp::<T::Wide>(numbers)?;
        let copy = Address::of(memory.as_mut_ptr().cast(), &self.lies);
        self.native.run::<T>(compute, &[addresses[self.argument].clone(), copy.clone()])?;
        Ok(copy)
    }

    pub(super) fn reaches(&self, addresses: &[Address]) -> bool {
        self.native.reaches(std::slice::from_ref(&addresses[self.argument]))
    }
}

/// How often each argument is read for each of its numbers, at most.
fn count_reads(made: &Made<'_>, steps: &[Step], bound: Axes, reads: &mut [usize]) {
    for step in steps {
        match step {
            Step::Load { from, .. } => {
                let argument = from.argument(made.counts);
                let others = bound.minus(made.lies[argument].axes).iter();
                let times = others.map(|axis| made.sizes[axis.index()]).fold(1, usize::saturating_mul);
                reads[argument] = reads[argument].max(times);
            }
            Step::Loop { axis, steps, .. } => count_reads(made, steps, bound.with(*axis), reads),
            _ => {}
        }
    }
}
