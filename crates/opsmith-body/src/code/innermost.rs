//! Loops with no others in them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::asm::{Gpr, Rm, Vector};
use super::line::Value;
use super::lower::{self, add_part};
use super::place::{Address, FRAME, LineInput, Pointer, Stored, Target, Which};
use super::segment::Segment;
use super::tile::{begins, each_given};
use super::writer::{At, Object, POINTERS, TURNS, Turns, Writer};
use crate::axes::Axis;
use crate::expr::{Fold, PART, Step, Sum};

const CHUNKS: Gpr = Gpr::R15;
/// So many turns of a loop are written one after another.
const FEW_TURNS: usize = 3;
/// The most vectors of a register whose sums are put together one after another.
const MOST_ADDED: usize = 64;

/// The vectors that are in registers in a loop.
type Pins = BTreeMap<(usize, i32), Vector>;

/// What is folded into in an innermost loop.
struct Folded {
    /// The register, and how many bytes further than its address.
    key: (usize, i32),
    op: Fold,
    /// A register for each of the vectors that are computed side by side.
    pins: Vec<Vector>,
}

impl Writer<'_> {
    /// A loop with no other in it: what it folds into and its addresses are in registers, and several vectors are computed side by
    /// side.
    pub(super) fn innermost(
        &mut self,
        axis: Axis,
        steps: &[Step],
        sums: &[Sum],
        at: &At,
        turns: &Turns,
    ) -> Option<()> {
        let mut at = at.clone();
        let objects = self.objects(steps);
        let (moving, still): (Vec<Object>, Vec<Object>) =
            objects.into_iter().partition(|object| self.is_along(*object, axis));
        for (object, gpr) in moving.iter().chain(&still).zip(POINTERS) {
            self.asm.get(gpr, Rm::At(FRAME, self.slot(*object)));
            at.addresses.insert(*object, gpr);
        }
        let beside = self.beside(axis, steps, turns, &at);
        let folded = self.pin(steps, axis, beside, &mut at)?;
        let held = if self.holds && turns.whole > FEW_TURNS {
            self.hold(steps, axis, &mut at)?
        } else {
            Pins::new()
        };
        let groups = turns.whole / beside;
        let (strides, unrolled) = (self.strides(axis, steps), self.unrolled(axis, steps, &at));
        let body = |own: &mut Self, beside: usize, unrolled: usize| -> Option<()> {
            for turn in 0..unrolled {
                for ahead in 0..beside {
                    let pins = folded.iter().map(|folded| (folded.key, folded.pins[ahead]));
                    let pins = pins.chain(held.clone()).collect();
                    own.segment(steps, &At { ahead, pins, ..at.further(&strides, turn) })?;
                }
            }
            for object in &moving {
                let address = match at.addresses.get(object) {
                    Some(gpr) => Rm::General(*gpr),
                    None => Rm::At(FRAME, own.slot(*object)),
                };
                own.go_on_by(*object, axis, address, beside * unrolled);
            }
            own.count_on(axis, beside * unrolled);
            Some(())
        };
        let go = |own: &mut Self, turns: usize| -> Option<()> {
            own.turn(turns / unrolled, &|own: &mut Self| body(own, beside, unrolled))?;
            own.turn(turns % unrolled, &|own: &mut Self| body(own, beside, 1))
        };
        self.in_chunks(groups, sums, &folded, &at, &go)?;
        self.turn(turns.whole % beside, &|own: &mut Self| body(own, 1, 1))?;
        if turns.rest > 0 {
            let pins = folded.iter().map(|folded| (folded.key, folded.pins[0])).chain(held).collect();
            self.segment(steps, &At { len: turns.rest, is_partial: true, pins, ..at.clone() })?;
        }
        self.put_together(&folded, &at)?;
        self.unpin(&folded, &at)
    }

    /// All turns of a loop, a few at a time if sums are added up of so many terms first.
    fn in_chunks(
        &mut self,
        turns: usize,
        sums: &[Sum],
        folded: &[Folded],
        at: &At,
        go: &impl Fn(&mut Self, usize) -> Option<()>,
    ) -> Option<()> {
        let part = if sums.is_empty() { turns } else { PART };
        let (chunks, rest) = (turns / part.max(1), turns % part.max(1));
        if chunks > 0 {
            let again = self.asm.label();
            if chunks > 1 {
                self.asm.set(CHUNKS, i32::try_from(chunks).ok()?);
                self.asm.here(again);
            }
            go(self, part)?;
            if !sums.is_empty() {
                self.put_together(folded, at)?;
                self.add_pinned_parts(sums, folded, at)?;
            }
            if chunks > 1 {
                self.asm.count_down(Rm::General(CHUNKS), again);
            }
        }
        if rest > 0 { go(self, rest) } else { Some(()) }
    }

    /// A loop of so many turns.
    fn turn(&mut self, times: usize, body: &impl Fn(&mut Self) -> Option<()>) -> Option<()> {
        if times <= FEW_TURNS {
            return (0..times).try_for_each(|_| body(self));
        }
        let again = self.asm.label();
        self.asm.set(TURNS, i32::try_from(times).ok()?);
        self.asm.here(again);
        body(self)?;
        self.asm.count_down(Rm::General(TURNS), again);
        Some(())
    }

    /// The most registers that folds have in a loop.
    fn most_pins(&self) -> usize {
        self.vectors.registers() / 2
    }

    /// How many turns are written one after another, so that counting takes less.
    fn unrolled(&self, axis: Axis, steps: &[Step], at: &At) -> usize {
        if self.wanted.nest.lanes == Some(axis)
            || self.straight.indexed.has(axis)
            || !self.straight.is_near(steps, axis)
        {
            return 1;
        }
        match self.straight.weight(steps) * at.positions(self.wanted.tile) {
            0..=24 => 4,
            25..=100 => 2,
            _ => 1,
        }
    }

    /// How many vectors are computed side by side, so that a fold need not wait for the one before, and loops turn less often.
    fn beside(&self, axis: Axis, steps: &[Step], turns: &Turns, at: &At) -> usize {
        if self.wanted.nest.lanes != Some(axis) {
            return 1;
        }
        // What another loop computes too is added in the same order here.
        let is_again =
            |step: &Step| matches!(step, Step::Fold { into, .. } if self.again_sums.contains_key(into));
        let folds = steps.iter().filter(|step| matches!(step, Step::Fold { .. })).count();
        let work = self.straight.weight(steps).saturating_sub(steps.len());
        let wanted: usize = match work {
            _ if steps.iter().any(is_again) || !self.straight.is_near(steps, axis) => 1,
            0..=5 => 4,
            6..=12 => 2,
            _ => 1,
        };
        let tile = at.positions(self.wanted.tile);
        let wanted = wanted.div_ceil(tile);
        let wanted = if turns.whole < 2 * wanted { 1 } else { wanted };
        if folds * wanted * tile <= self.most_pins() { wanted } else { 1 }
    }

    /// The vectors that steps fold into, and how.
    fn folds(&self, steps: &[Step], at: &At, found: &mut Vec<((usize, i32), Fold)>) {
        for step in steps.iter().filter(|step| self.is_done(step, at)) {
            match step {
                Step::Fold { op, into, .. } => {
                    let key = self.key(*into, at);
                    if found.iter().all(|(other, _)| *other != key) {
                        found.push((key, *op));
                    }
                }
                Step::Loop { axis, steps, .. } => {
                    for here in self.written_out(*axis, steps, at) {
                        self.folds(steps, &here, found);
                    }
                }
                _ => {}
            }
        }
    }

    /// Puts what is folded into into registers; the vectors beside the first begin with what changes nothing.
    fn pin(&mut self, steps: &[Step], axis: Axis, beside: usize, at: &mut At) -> Option<Vec<Folded>> {
        let mut folds = Vec::new();
        for here in self.tile(at) {
            self.folds(steps, &here, &mut folds);
        }
        // What moves along the loop is another vector in each turn; what begins anew in each turn is none that is kept.
        let is_kept =
            |register: usize| !self.is_along(Object::Register(register), axis) && !begins(steps, register);
        let mut folded: Vec<Folded> = Vec::new();
        let mut next = self.vectors.registers() as u8;
        for (key, op) in folds {
            if !is_kept(key.0) || (folded.len() + 1) * beside > self.most_pins() {
                continue;
            }
            next -= beside as u8;
            folded.push(Folded { key, op, pins: (next..next + beside as u8).map(Vector).collect() });
        }
        at.pinned = folded.iter().flat_map(|folded| folded.pins.iter().copied()).collect();
        let mut segment = Segment::new();
        for Folded { key, op, pins } in &folded {
            let place = self.vector_at(*key, at);
            let first = segment.source(LineInput::Memory(place));
            segment.targets.push((first, Target::Pinned(pins[0])));
            for pin in &pins[1..] {
                let identity = segment.line.number(op.identity_value());
                segment.targets.push((identity, Target::Pinned(*pin)));
            }
        }
        self.place(&segment, at)?;
        Some(folded)
    }

    /// Puts what is the same in all turns of a loop into registers, as far as there are some.
    fn hold(&mut self, steps: &[Step], axis: Axis, at: &mut At) -> Option<Pins> {
        let mut reads = Vec::new();
        for here in self.tile(at) {
            self.find_reads(steps, &here, &mut reads);
        }
        reads.retain(|key| {
            let is_known = self.counts.contains_key(&key.0) || gives(steps, key.0);
            !is_known && !self.is_along(Object::Register(key.0), axis)
        });
        let used = at.pinned.len();
        let (mut held, mut segment) = (Pins::new(), Segment::new());
        for key in reads {
            // The registers for folds are the last ones.
            let register = self.vectors.registers() - 1 - used - held.len();
            if register < self.vectors.registers() / 2 {
                break;
            }
            if let Entry::Vacant(entry) = held.entry(key) {
                let value = segment.source(LineInput::Memory(self.vector_at(key, at)));
                let pin = *entry.insert(Vector(register as u8));
                segment.targets.push((value, Target::Pinned(pin)));
            }
        }
        at.pinned.extend(held.values());
        self.place(&segment, at)?;
        Some(held)
    }

    /// The vectors of registers that steps read.
    fn find_reads(&self, steps: &[Step], at: &At, found: &mut Vec<(usize, i32)>) {
        for step in steps.iter().filter(|step| self.is_done(step, at)) {
            match step {
                Step::Fold { from, .. } | Step::Store { from, .. } => found.push(self.key(*from, at)),
                Step::Compute { inputs, .. } => {
                    found.extend(inputs.iter().map(|input| self.key(*input, at)));
                }
                Step::Loop { axis, steps, .. } => {
                    for here in self.written_out(*axis, steps, at) {
                        self.find_reads(steps, &here, found);
                    }
                }
                _ => {}
            }
        }
    }

    /// Folds the vectors that were computed side by side into the first of them.
    fn put_together(&mut self, folded: &[Folded], at: &At) -> Option<()> {
        let mut segment = Segment::new();
        for Folded { op, pins, .. } in folded.iter().filter(|folded| folded.pins.len() > 1) {
            let mut vectors: Vec<Value> =
                pins.iter().map(|pin| segment.source(LineInput::Pinned(*pin))).collect();
            while vectors.len() > 1 {
                let half = vectors.len() / 2;
                for index in 0..half {
                    vectors[index] = lower::fold(
                        &mut segment.line,
                        (*op, lower::Rounded::Alone),
                        vectors[index],
                        vectors[index + half],
                    );
                }
                vectors.truncate(half);
            }
            segment.targets.push((vectors[0], Target::Pinned(pins[0])));
            for pin in &pins[1..] {
                let identity = segment.line.number(op.identity_value());
                segment.targets.push((identity, Target::Pinned(*pin)));
            }
        }
        self.place(&segment, at)
    }

    fn add_pinned_parts(&mut self, sums: &[Sum], folded: &[Folded], at: &At) -> Option<()> {
        for sum in sums {
            let [part, total, lost] = [sum.part, sum.total, sum.lost].map(|r| self.registers[r].first);
            let count = self.registers[sum.part].count;
            if count > MOST_ADDED {
                return None;
            }
            let bytes = self.vectors.bytes() as i32;
            for far in (0..count as i32).map(|index| bytes * index) {
                let place = |first: i32| Address {
                    pointer: Pointer::Frame,
                    offset: first + far,
                    stored: Stored::Same,
                    which: Which::Dense(self.width()),
                };
                let places = [part, total, lost].map(place);
                let pin = folded.iter().find(|folded| folded.key == (sum.part, far)).map(|own| own.pins[0]);
                let mut segment = Segment::new();
                let source = pin.map_or(LineInput::Memory(places[0]), LineInput::Pinned);
                let part = segment.source(source);
                let before = [places[1], places[2]].map(|place| segment.source(LineInput::Memory(place)));
                let (new_total, new_lost) = add_part(&mut segment.line, part, before[0], before[1]);
                let zero = segment.line.number(0.0);
                segment.targets.push((new_total, Target::AtEnd(places[1])));
                segment.targets.push((new_lost, Target::AtEnd(places[2])));
                segment.targets.push((zero, pin.map_or(Target::AtEnd(places[0]), Target::Pinned)));
                self.place(&segment, at)?;
            }
        }
        Some(())
    }

    /// Writes back what was folded in registers.
    fn unpin(&mut self, folded: &[Folded], at: &At) -> Option<()> {
        let mut segment = Segment::new();
        for Folded { key, pins, .. } in folded {
            let value = segment.source(LineInput::Pinned(pins[0]));
            let place = self.vector_at(*key, at);
            segment.targets.push((value, Target::AtEnd(place)));
        }
        self.place(&segment, at)
    }
}

/// Whether steps give a register a value.
fn gives(steps: &[Step], register: usize) -> bool {
    let mut found = false;
    each_given(steps, &mut |own| found |= own == register);
    found
}
