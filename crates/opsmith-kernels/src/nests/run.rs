//! Nests, run on the threads of the call: the same step for several positions of the free axes, one after another, so that choosing it
//! costs little.

use std::ops::Range;

use opsmith_body::{Axes, Axis, BLOCK, Block, Fold, Nest, Nests, Place, Step};
use opsmith_core::{Compute, Result, memory};

use super::machine::Machine;
use super::memory::{Address, Operand};
use super::native::Native;
use crate::stored::Stored;

/// What a step takes, in nanoseconds, for a block.
const STEP_COST: usize = 20;
/// At most so many positions of the free axes are computed together.
pub(super) const MOST_TOGETHER: usize = 16;
/// The bytes that their blocks may have.
const ROOM: usize = 1 << 16;
/// Into so many parts a loop is split at most, all positions of the free axes together.
const PARTS: usize = 64;
/// The least positions of a part of a loop.
const LEAST_OF_PART: usize = 16;
/// The most blocks that parts of loops are folded into.
const MOST_FOLDED: usize = 1 << 14;

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

/// A loop that is split into parts, so that there is more to compute side by side. It depends on sizes alone, as do the results.
pub(super) struct Split {
    /// Which step of the nest it is, and along which axis.
    pub(super) step: usize,
    pub(super) axis: Axis,
    /// How many parts there are, and how many positions each but the last has.
    parts: usize,
    length: usize,
    /// How many the last one has.
    last: usize,
    /// The registers that are folded into, and how.
    pub(super) folds: Vec<(usize, Fold)>,
}

/// What a strip of units computes: which of them, and which positions of the loop that is split.
#[derive(Clone)]
pub(super) struct Strip {
    pub(super) units: Range<usize>,
    /// How many positions each has of the loop that is split.
    pub(super) length: usize,
}

impl<T: Stored> Task<'_, T> {
    /// Runs all nests, those as machine code that are.
    pub(super) fn run(&self, compute: &Compute<'_>, natives: &[Option<Native>]) -> Result<()> {
        self.nests.nests.iter().enumerate().try_for_each(|(position, nest)| {
            let native = natives.get(position).and_then(Option::as_ref);
            if let Some(native) = native.filter(|native| native.reaches(&self.addresses)) {
                return native.run::<T>(compute, &self.addresses);
            }
            let units = nest.free.iter().map(|axis| self.positions(nest, axis)).product::<usize>();
            match self.split(nest, units) {
                Some(split) => self.in_parts(compute, nest, units, &split),
                None => {
                    let cost = self.cost(nest, &nest.steps);
                    self.strips(compute, nest, units, cost, |together| {
                        let mut machine = Machine::new(self, nest, None, together)?;
                        Ok(move |units: Range<usize>| {
                            machine.go_to(&Strip { units, length: 0 }, 0, 1);
                            machine.steps(&nest.steps);
                        })
                    })
                }
            }
        })
    }

    /// Calls a function of each thread for strips of units.
    fn strips<F: FnMut(Range<usize>)>(
        &self,
        compute: &Compute<'_>,
        nest: &Nest,
        units: usize,
        cost: usize,
        of_thread: impl Fn(usize) -> Result<F> + Sync,
    ) -> Result<()> {
        let together = self.together(nest, units, compute.num_threads());
        let cost = cost.saturating_mul(together).min(1 << 30);
        compute.try_parallel_for(units.div_ceil(together), cost, |range| {
            let mut run = of_thread(together)?;
            for strip in range {
                run(strip * together..units.min((strip + 1) * together));
            }
            Ok(())
        })
    }

    /// How many units are computed together: all threads have some, and their blocks stay in the cache. Results do not depend on it.
    fn together(&self, nest: &Nest, units: usize, threads: usize) -> usize {
        let blocks = |axes: &Axes| axes.iter().map(|axis| self.positions(nest, axis)).product::<usize>();
        let bytes = nest.registers.iter().map(blocks).sum::<usize>() * size_of::<Block<T::Wide>>();
        let fair = if threads > 1 { units.div_ceil(2 * threads) } else { units };
        (ROOM / bytes.max(1)).min(fair).clamp(1, MOST_TOGETHER)
    }

    /// Which operand a place is.
    pub(super) fn operand(&self, place: Place) -> usize {
        let (inputs, outputs) = self.counts;
        match place {
            Place::Input(input) => input,
            Place::Output(output) => inputs + output,
            Place::Temporary(array) => inputs + outputs + array,
        }
    }

    /// How many positions the loop along an axis has, which goes by blocks along the lanes.
    pub(super) fn positions(&self, nest: &Nest, axis: Axis) -> usize {
        let size = self.sizes[axis.index()];
        if nest.lanes == Some(axis) { size.div_ceil(BLOCK) } else { size }
    }

    /// Roughly the nanoseconds that steps take.
    fn cost(&self, nest: &Nest, steps: &[Step]) -> usize {
        let cost = |step: &Step| match step {
            Step::Loop { axis, steps, .. } => {
                self.cost(nest, steps).saturating_mul(self.positions(nest, *axis))
            }
            Step::Compute { program, .. } => STEP_COST.saturating_mul(program.len()),
            _ => STEP_COST,
        };
        steps.iter().map(cost).fold(0, usize::saturating_add)
    }

    /// How a nest is split, if it has few units, each of which folds along one long loop.
    fn split(&self, nest: &Nest, units: usize) -> Option<Split> {
        let mut loops = nest.steps.iter().enumerate().filter(|(_, step)| has_folds(step));
        let (step, found) = loops.next()?;
        let Step::Loop { axis, steps, sums } = found else { return None };
        // What is in registers for each position is not there for a part; and a sum that another loop computes too is added up as there.
        let is_kept =
            nest.registers.iter().any(|axes| axes.has(*axis)) || sums.iter().any(|sum| sum.is_again);
        if loops.next().is_some() || units == 0 || is_kept {
            return None;
        }
        let positions = self.positions(nest, *axis);
        let length = positions.div_ceil((PARTS / units).max(1)).max(LEAST_OF_PART);
        let parts = positions.div_ceil(length);
        let filled = |register: usize| {
            nest.steps[..step]
                .iter()
                .any(|step| matches!(step, Step::Fill { register: own, .. } if *own == register))
        };
        let mut folds = Vec::new();
        find_folds(steps, &mut |register, op| {
            if filled(register) && !folds.contains(&(register, op)) {
                folds.push((register, op));
            }
        });
        let inner = |(register, _): &(usize, Fold)| {
            nest.registers[*register].iter().map(|axis| self.positions(nest, axis)).product::<usize>()
        };
        let blocks = folds.iter().map(inner).sum::<usize>().saturating_mul(parts * units);
        let last = positions - (parts.max(1) - 1) * length;
        (parts > 1 && blocks <= MOST_FOLDED).then_some(Split {
            step,
            axis: *axis,
            parts,
            length,
            last,
            folds,
        })
    }

    /// Folds the parts of a loop, then what there is of each unit.
    fn in_parts(&self, compute: &Compute<'_>, nest: &Nest, units: usize, split: &Split) -> Result<()> {
        let step = &nest.steps[split.step];
        let cost = self.cost(nest, std::slice::from_ref(step)) / split.parts;
        let probe = Machine::new(self, nest, Some(split), 1)?;
        let each = probe.folded_blocks();
        let mut folded =
            memory::filled(Block::<T::Wide>::default(), each * units * split.parts, "parts of a fold")?;
        let all = Shared(folded.as_mut_ptr());
        // Units of part 0, then of part 1, and so on; the last ones may be shorter, and are apart.
        let whole = units * (split.parts - 1);
        for (first, count, length) in [(0, whole, split.length), (whole, units, split.last)] {
            self.strips(compute, nest, count, cost, |together| {
                let mut machine = Machine::new(self, nest, Some(split), together)?;
                let all = &all;
                Ok(move |range: Range<usize>| {
                    let strip = Strip { units: range.start + first..range.end + first, length };
                    machine.go_to(&strip, split.length, units);
                    machine.steps(&nest.steps[..=split.step]);
                    for unit in 0..range.len() {
                        let to = (strip.units.start + unit) * each;
                        // SAFETY: there are so many blocks for each part of each unit, and each is of one strip.
                        let to = unsafe { std::slice::from_raw_parts_mut(all.0.add(to), each) };
                        machine.take_folded(unit, to);
                    }
                })
            })?;
        }
        let folded = &folded;
        self.strips(compute, nest, units, STEP_COST * split.parts, |together| {
            let mut machine = Machine::new(self, nest, Some(split), together)?;
            Ok(move |range: Range<usize>| {
                machine.go_to(&Strip { units: range.clone(), length: 0 }, split.length, units);
                machine.steps(&nest.steps[..split.step]);
                for (unit, of) in range.enumerate() {
                    let parts = (0..split.parts).map(|part| &folded[(part * units + of) * each..][..each]);
                    machine.put_folded(unit, parts);
                }
                machine.steps(&nest.steps[split.step + 1..]);
            })
        })
    }
}

/// Blocks that threads share.
struct Shared<W>(*mut Block<W>);

// SAFETY: each block is written by one thread.
unsafe impl<W> Sync for Shared<W> {}

pub(super) fn has_folds(step: &Step) -> bool {
    match step {
        Step::Fold { .. } => true,
        Step::Loop { steps, .. } => steps.iter().any(has_folds),
        _ => false,
    }
}

pub(super) fn find_folds(steps: &[Step], found: &mut impl FnMut(usize, Fold)) {
    for step in steps {
        match step {
            Step::Fold { op, into, .. } => found(*into, *op),
            Step::Loop { steps, .. } => find_folds(steps, found),
            _ => {}
        }
    }
}
