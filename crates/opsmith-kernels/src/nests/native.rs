//! Nests as machine code, and their runs.

use std::borrow::Cow;

use opsmith_body::code::{Code, Frame, Held, Tile, Wanted, Way, compile, fastest};
use opsmith_body::{Axis, Fold, Level, Nest, Plain, Step};
use opsmith_core::{Compute, Result, memory};

use super::made::{Along, Function, Kind, Made, Native, Packed, Parts};
use super::memory::Address;
use super::pages::Pages;
use super::work::Work;
use crate::stored::Stored;

/// Into so many parts a loop is split at most, all positions of the free axes together.
const PARTS: usize = 64;
/// With so many positions, tiles of them are better than parts.
const ENOUGH: usize = 16;
/// The least numbers of a part of a loop, along the lanes and along another axis.
const LEAST_NUMBERS: usize = 2048;
const LEAST_POSITIONS: usize = 16;
/// The most vectors that parts of loops are folded into.
const MOST_FOLDED: usize = 1 << 17;

/// Whether the processor has what code needs for numbers that are held so.
pub(crate) fn is_possible(held: impl IntoIterator<Item = Held>) -> bool {
    Level::best() >= Level::Avx2 && held.into_iter().all(|held| held != Held::Half || has_half_conversions())
}

impl Made<'_> {
    /// A nest as code; none if it does what code cannot.
    pub(super) fn native(&self, nest: &Nest) -> Option<Native> {
        let (packed, lies) = Packed::all(self, nest);
        let made = Made { lies: &lies, ..*self };
        let width = self.vectors.width();
        let lanes = nest.lanes.filter(|lanes| nest.free.has(*lanes));
        let single =
            Tile { counts: lanes.map(|lanes| (lanes, 1)).into_iter().collect(), last: width, inner: None };
        let size = |axis: Axis| self.sizes[axis.index()];
        let vectors = |axis: Axis| if lanes == Some(axis) { size(axis).div_ceil(width) } else { size(axis) };
        let parts = self.parts(nest, nest.free.iter().map(vectors).product());
        let all = (0, nest.steps.len());
        let wanted = made.wanted(nest, &single, all, None);
        let best = match parts {
            Some(_) => Tile::best_in_parts(&wanted, self.vectors),
            None => Tile::best(&wanted, self.vectors),
        };
        // What has no room in a tile may have it alone.
        let tiles = [best, (single, 1.0)];
        let mut written = tiles.iter().flat_map(|(tile, share)| Way::ALL.map(|way| (tile, *share, way)));
        // All functions are written in the first way in which each can be.
        let (tile, share, (kind, frame)) = written.find_map(|(tile, share, way)| {
            let own = (tile, way);
            let made = match parts {
                Some(parts) => made.in_parts(nest, parts, own)?,
                None => {
                    made.function(nest, all, None, own).map(|(own, frame, _)| (Kind::Units(own), frame))?
                }
            };
            Some((tile, share, made))
        })?;
        let along = |axis: Axis| {
            let step = tile.count(axis) * if lanes == Some(axis) { width } else { 1 };
            let position = tile.counts.iter().position(|(own, _)| *own == axis);
            let (units, whole) = (size(axis).div_ceil(step), size(axis) / step);
            Along { axis, units, whole, step, rest: position.map_or(0, |position| 1 << position) }
        };
        let first = fastest(nest, self.sizes, self.vectors);
        let others = nest.free.iter().rev().filter(|axis| Some(*axis) != first);
        let free = first.into_iter().chain(others).map(along).collect();
        let positions = tile.counts.iter().map(|(_, count)| count).product::<usize>();
        let cost = (self.cost(nest, &nest.steps).saturating_mul(positions) as f64 * share) as usize;
        Some(Native { free, packed, frame, vectors: self.vectors, kind, cost })
    }

    fn wanted<'a>(
        &'a self,
        nest: &'a Nest,
        tile: &'a Tile,
        steps: (usize, usize),
        part: Option<(usize, usize)>,
    ) -> Wanted<'a> {
        Wanted { nest, sizes: self.sizes, lies: self.lies, counts: self.counts, tile, steps, part }
    }

    /// The code of some steps, for whole tiles and for the rest of axes.
    fn function(
        &self,
        nest: &Nest,
        steps: (usize, usize),
        part: Option<(usize, usize)>,
        (tile, way): (&Tile, Way),
    ) -> Option<(Function, Frame, Vec<usize>)> {
        let width = self.vectors.width();
        let is_lanes = |axis: Axis| nest.lanes == Some(axis);
        let mut function: Function = Function::default();
        let mut known: Option<Code> = None;
        for (which, pages) in function.iter_mut().enumerate().take(1 << tile.counts.len()) {
            let mut own = tile.clone();
            for (position, (axis, count)) in own.counts.iter_mut().enumerate() {
                let step = *count * if is_lanes(*axis) { width } else { 1 };
                let size = self.sizes[axis.index()];
                if which >> position & 1 == 0 {
                    *count = if size < step { 0 } else { *count };
                } else if is_lanes(*axis) {
                    *count = (size % step).div_ceil(width);
                    own.last = (size % step + width - 1) % width + 1;
                } else {
                    *count = size % step;
                }
            }
            if own.counts.iter().any(|(_, count)| *count == 0) {
                continue;
            }
            let code = compile(&self.wanted(nest, &own, steps, part), self.vectors, way)?;
            *pages = Some(Pages::new(&code.bytes)?);
            match &mut known {
                Some(known) => known.frame.bytes = known.frame.bytes.max(code.frame.bytes),
                None => known = Some(code),
            }
        }
        let Code { frame, registers, .. } = known?;
        Some((function, frame, registers))
    }

    fn in_parts(
        &self,
        nest: &Nest,
        (step, count, length): (usize, usize, usize),
        own: (&Tile, Way),
    ) -> Option<(Kind, Frame)> {
        let Step::Loop { axis, steps, .. } = &nest.steps[step] else { return None };
        let width = if nest.lanes == Some(*axis) { self.vectors.width() } else { 1 };
        let size = self.sizes[axis.index()];
        let last = size - (count - 1) * length;
        let (before, mut frame, registers) = self.function(nest, (0, step), None, own)?;
        let mut more = |steps: (usize, usize), part: Option<(usize, usize)>| {
            let (function, more, _) = self.function(nest, steps, part, own)?;
            frame.bytes = frame.bytes.max(more.bytes);
            Some(function)
        };
        let part = more((0, step + 1), Some((length / width, length % width)))?;
        let last = more((0, step + 1), Some((last / width, last % width)))?;
        let after = more((step + 1, nest.steps.len()), None)?;
        let mut folds = Vec::new();
        let mut found: Vec<usize> = Vec::new();
        find_folds(steps, &mut |register, op| {
            if is_filled(nest, step, register) && !found.contains(&register) {
                found.push(register);
                folds.push((op, registers[register], self.vectors(nest, register)));
            }
        });
        let parts = Parts { axis: *axis, count, length, before, part, last, after, folds };
        Some((Kind::Parts(Box::new(parts)), frame))
    }

    fn vectors(&self, nest: &Nest, register: usize) -> usize {
        let positions = |axis: Axis| {
            let size = self.sizes[axis.index()];
            if nest.lanes == Some(axis) { size.div_ceil(self.vectors.width()) } else { size }
        };
        nest.registers[register].iter().map(positions).product()
    }

    /// How a nest is split, if it has few units, each of which folds along one long loop: which step is the loop, how many parts,
    /// and how many numbers or positions each has.
    fn parts(&self, nest: &Nest, units: usize) -> Option<(usize, usize, usize)> {
        let mut loops = nest.steps.iter().enumerate().filter(|(_, step)| has_folds(step));
        let (step, found) = loops.next()?;
        let Step::Loop { axis, steps, sums } = found else { return None };
        // What is in registers for each position is not there for a part; and a sum that another loop computes too is added up as there.
        let is_kept =
            nest.registers.iter().any(|axes| axes.has(*axis)) || sums.iter().any(|sum| sum.is_again);
        if loops.next().is_some() || units == 0 || units >= ENOUGH || is_kept {
            return None;
        }
        let size = self.sizes[axis.index()];
        let (least, unit) = if nest.lanes == Some(*axis) {
            (LEAST_NUMBERS, self.vectors.width())
        } else {
            (LEAST_POSITIONS, 1)
        };
        let length = size.div_ceil((PARTS / units).max(1)).max(least).next_multiple_of(unit);
        let count = size.div_ceil(length);
        let mut vectors = 0;
        find_folds(steps, &mut |register, _| vectors += self.vectors(nest, register));
        (count > 1 && vectors.saturating_mul(count * units) <= MOST_FOLDED).then_some((step, count, length))
    }

    /// Roughly the tenths of nanoseconds that steps take.
    fn cost(&self, nest: &Nest, steps: &[Step]) -> usize {
        let cost = |step: &Step| match step {
            Step::Loop { axis, steps, .. } => {
                let size = self.sizes[axis.index()];
                let turns =
                    if nest.lanes == Some(*axis) { size.div_ceil(self.vectors.width()) } else { size };
                self.cost(nest, steps).saturating_mul(turns)
            }
            Step::Compute { program, .. } => 15 * program.len(),
            _ => 5,
        };
        steps.iter().map(cost).fold(0, usize::saturating_add)
    }
}

/// Whether a register is filled before a step.
fn is_filled(nest: &Nest, step: usize, register: usize) -> bool {
    let fills = |step: &Step| matches!(step, Step::Fill { register: own, .. } if *own == register);
    nest.steps[..step].iter().any(fills)
}

#[cfg(target_arch = "x86_64")]
fn has_half_conversions() -> bool {
    is_x86_feature_detected!("f16c")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_half_conversions() -> bool {
    false
}

impl Native {
    /// Whether the numbers of a vector are near enough to each other for four bytes to say how far.
    pub(super) fn reaches(&self, addresses: &[Address]) -> bool {
        let is_near = |stride: isize| stride.unsigned_abs() < 1 << 27;
        let own = self.frame.distances.iter();
        own.copied().all(|(argument, axis, _)| is_near(addresses[argument].stride(axis)))
            && self.packed.iter().all(|packed| packed.reaches(addresses))
    }

    /// Runs the nest.
    pub(super) fn run<T: Stored>(&self, compute: &Compute<'_>, addresses: &[Address]) -> Result<()> {
        let units = self.free.iter().map(|along| along.units).product::<usize>();
        let given = addresses;
        let mut addresses = Cow::Borrowed(given);
        for packed in &self.packed {
            addresses.to_mut()[packed.argument] = packed.run::<T>(compute, given)?;
        }
        match &self.kind {
            Kind::Units(function) => {
                compute.try_parallel_for(units, (self.cost / 10).clamp(1, 1 << 30), |range| {
                    Work::new(self, &addresses)?.units(function, range, None);
                    Ok(())
                })
            }
            Kind::Parts(parts) => self.run_parts::<T>(parts, units, compute, &addresses),
        }
    }

    /// Folds the parts of a loop, then what there is of each unit.
    fn run_parts<T: Stored>(
        &self,
        parts: &Parts,
        units: usize,
        compute: &Compute<'_>,
        addresses: &[Address],
    ) -> Result<()> {
        let width = self.vectors.width();
        let each = parts.folds.iter().map(|(.., vectors)| vectors * width).sum::<usize>();
        let zero = T::Wide::default();
        let mut folded = memory::filled(zero, each * units * parts.count, "parts of a fold")?;
        let all = Shared(folded.as_mut_ptr());
        let cost = (self.cost / 10 / parts.count).clamp(1, 1 << 30);
        compute.try_parallel_for(units * parts.count, cost, |range| {
            let all = &all;
            let mut work = Work::new(self, addresses)?;
            for index in range {
                let (part, unit) = (index / units, index % units);
                let function = if part + 1 == parts.count { &parts.last } else { &parts.part };
                work.units(function, unit..unit + 1, Some((parts.axis, part * parts.length)));
                // SAFETY: there are so many numbers for each part of each unit, and each is of one thread.
                let mut to = unsafe { std::slice::from_raw_parts_mut(all.0.add(index * each), each) };
                for (_, at, vectors) in &parts.folds {
                    let (own, rest) = to.split_at_mut(vectors * width);
                    own.copy_from_slice(work.numbers(*at, *vectors));
                    to = rest;
                }
            }
            Ok(())
        })?;
        self.put_together::<T>(parts, units, compute, (addresses, &mut folded))
    }

    /// Folds what the parts were folded to, by pairs, so that a sum's error is small; then does the rest for each unit.
    fn put_together<T: Stored>(
        &self,
        parts: &Parts,
        units: usize,
        compute: &Compute<'_>,
        (addresses, folded): (&[Address], &mut [T::Wide]),
    ) -> Result<()> {
        let width = self.vectors.width();
        let each = folded.len() / (units * parts.count);
        let mut step = 1;
        while step < parts.count {
            for part in (0..parts.count - step).step_by(2 * step) {
                let (first, second) = folded.split_at_mut((part + step) * units * each);
                let mut into = &mut first[part * units * each..][..units * each];
                let mut from = &second[..units * each];
                for _ in 0..units {
                    for (op, _, vectors) in &parts.folds {
                        let count = vectors * width;
                        fold_numbers::<T>(*op, &mut into[..count], &from[..count]);
                        (into, from) = (&mut into[count..], &from[count..]);
                    }
                }
            }
            step *= 2;
        }
        let folded = &*folded;
        compute.try_parallel_for(units, 1000, |range| {
            let mut work = Work::new(self, addresses)?;
            for unit in range {
                work.units(&parts.before, unit..unit + 1, None);
                let mut from = &folded[unit * each..][..each];
                for (_, at, vectors) in &parts.folds {
                    let (own, rest) = from.split_at(vectors * width);
                    work.numbers(*at, *vectors).copy_from_slice(own);
                    from = rest;
                }
                work.units(&parts.after, unit..unit + 1, None);
            }
            Ok(())
        })
    }
}

fn fold_numbers<T: Stored>(op: Fold, into: &mut [T::Wide], from: &[T::Wide]) {
    use opsmith_body::Element;
    for (a, b) in into.iter_mut().zip(from) {
        *a = T::Wide::store::<Plain>(op.of_two(a.load::<Plain>(), b.load::<Plain>()));
    }
}

fn has_folds(step: &Step) -> bool {
    match step {
        Step::Fold { .. } => true,
        Step::Loop { steps, .. } => steps.iter().any(has_folds),
        _ => false,
    }
}

fn find_folds(steps: &[Step], found: &mut impl FnMut(usize, Fold)) {
    for step in steps {
        match step {
            Step::Fold { op, into, .. } => found(*into, *op),
            Step::Loop { steps, .. } => find_folds(steps, found),
            _ => {}
        }
    }
}

/// Numbers that threads share.
struct Shared<W>(*mut W);

// SAFETY: each number is written by one thread.
unsafe impl<W> Sync for Shared<W> {}

#[cfg(test)]
impl Native {
    /// Whether it computes several positions side by side, and whether it reads copies.
    pub(super) fn has(&self) -> (bool, bool) {
        let tiled = self.free.iter().filter(|along| along.rest > 0);
        let is_wide = |along: &Along| along.step > self.vectors.width();
        (tiled.clone().count() > 1 || tiled.clone().any(is_wide), !self.packed.is_empty())
    }
}
