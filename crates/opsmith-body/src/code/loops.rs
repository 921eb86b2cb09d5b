//! Loops of nests as code.

use std::collections::BTreeSet;

use super::asm::{Gpr, Rm, Ymm};
use super::line::Value;
use super::lower::{self, add_part, sum_up};
use super::nest::{At, Object, Writer};
use super::place::{FRAME, Place, Pointer, Source, Stored, Target, Which};
use super::segment::Segment;
use crate::axes::Axis;
use crate::expr::{Fold, PART, Step, Sum};

/// The registers for addresses in innermost loops, and for counting.
const POINTERS: [Gpr; 10] = [
    Gpr::RCX,
    Gpr::RDX,
    Gpr::RSI,
    Gpr::RDI,
    Gpr::R8,
    Gpr::R9,
    Gpr::R10,
    Gpr::R11,
    Gpr::R12,
    Gpr::R13,
];
const TURNS: Gpr = Gpr::R14;
const CHUNKS: Gpr = Gpr::R15;
/// So many turns of a loop are written one after another.
const FEW_TURNS: usize = 3;
/// The most vectors of a register whose sums are put together one after another.
const MOST_ADDED: usize = 64;
/// The most registers that folds have in a loop.
const MOST_PINS: usize = 8;

/// A loop: so many whole vectors or positions, and so many numbers of a last vector.
struct Turns {
    whole: usize,
    rest: usize,
}

/// What is folded into in an innermost loop.
struct Folded {
    /// The register, and how many bytes further than its address.
    key: (usize, i32),
    op: Fold,
    /// A register for each of the vectors that are computed side by side.
    pins: Vec<Ymm>,
}

impl Writer<'_> {
    /// Writes steps; if there is a part, the last one is a loop of which that is gone along.
    pub(super) fn steps(&mut self, steps: &[Step], at: &At, part: Option<(usize, usize)>) -> Option<()> {
        let mut first = 0;
        while first < steps.len() {
            let straight = steps[first..].iter().take_while(|step| self.is_straight(step)).count();
            if straight > 0 {
                self.segment(&steps[first..first + straight], at)?;
                first += straight;
                continue;
            }
            match &steps[first] {
                Step::Loop { axis, steps: inner, sums } => {
                    let part = part.filter(|_| first + 1 == steps.len());
                    self.go_along(*axis, inner, sums, at, part)?;
                }
                Step::Fill { register, value } => self.for_all(&[*register], |segment, _| {
                    let value = segment.line.number(*value);
                    vec![value]
                })?,
                Step::Across { op, register } => {
                    let double = self.double;
                    self.for_all(&[*register], |segment, vectors| {
                        vec![lower::across(&mut segment.line, *op, vectors[0], double)]
                    })?;
                }
                _ => unreachable!("all others are straight"),
            }
            first += 1;
        }
        Some(())
    }

    /// Does something with all vectors of some registers, which have as many.
    fn for_all(
        &mut self,
        registers: &[usize],
        what: impl Fn(&mut Segment, &[Value]) -> Vec<Value>,
    ) -> Option<()> {
        let own: Vec<(i32, usize)> =
            registers.iter().map(|register| (self.registers[*register].first, self.registers[*register].count)).collect();
        let count = own[0].1;
        if count == 0 {
            return Some(());
        }
        let is_one = count == 1;
        for (gpr, (first, _)) in POINTERS.iter().zip(&own) {
            self.asm.get_address(*gpr, FRAME);
            self.asm.add_to(Rm::General(*gpr), *first);
        }
        self.asm.set(TURNS, i32::try_from(count).ok()?);
        let again = self.asm.label();
        self.asm.here(again);
        let place = |gpr: &Gpr| Place {
            pointer: Pointer::Register(*gpr),
            offset: 0,
            stored: Stored::Same,
            which: Which::Dense(self.width()),
        };
        let places: Vec<Place> = POINTERS.iter().take(own.len()).map(place).collect();
        let mut segment = Segment::new();
        let vectors: Vec<Value> = places.iter().map(|place| segment.source(Source::Memory(*place))).collect();
        let results = what(&mut segment, &vectors);
        segment.targets = results.into_iter().zip(places.iter().map(|place| Target::AtEnd(*place))).collect();
        self.place(&segment, &At::default())?;
        if !is_one {
            for gpr in &POINTERS[..own.len()] {
                self.asm.add_to(Rm::General(*gpr), 32);
            }
            self.asm.count_down(Rm::General(TURNS), again);
        }
        Some(())
    }

    /// A loop along an axis.
    fn go_along(
        &mut self,
        axis: Axis,
        steps: &[Step],
        sums: &[Sum],
        at: &At,
        part: Option<(usize, usize)>,
    ) -> Option<()> {
        let is_lanes = self.wanted.nest.lanes == Some(axis);
        let size = self.wanted.sizes[axis.index()];
        let (whole, rest) = match (part, is_lanes) {
            (Some(part), _) => part,
            (None, true) => (size / self.width(), size % self.width()),
            (None, false) => (size, 0),
        };
        let turns = Turns { whole, rest };
        // There may be a loop along the axis around this one: then the addresses are somewhere along.
        let is_within = part.is_none() && self.outer().union(at.bound).has(axis);
        let counter = self.indexed.has(axis).then(|| self.frame.position(axis));
        let saved = is_within.then(|| self.frame.room(8));
        if let Some(saved) = saved {
            self.asm.get(Gpr::RAX, Rm::At(FRAME, self.frame.position(axis)));
            self.asm.put(Gpr::RAX, Rm::At(FRAME, saved));
        }
        let is_moving = |object: &Object| self.is_along(*object, axis);
        let moving: Vec<Object> = self.objects(steps).into_iter().filter(is_moving).collect();
        if is_within && moving.iter().any(|object| matches!(object, Object::Register(_))) {
            return None;
        }
        let slots: Vec<(i32, i32)> =
            moving.iter().map(|object| (self.slot(*object), self.frame.room(8))).collect();
        for ((slot, saved_slot), object) in slots.iter().zip(&moving) {
            self.asm.get(Gpr::RAX, Rm::At(FRAME, *slot));
            self.asm.put(Gpr::RAX, Rm::At(FRAME, *saved_slot));
            if let (Some(saved), Object::Argument(argument)) = (saved, object) {
                let stride = self.frame.stride(*argument, axis);
                self.asm.get(Gpr::RAX, Rm::At(FRAME, saved));
                self.asm.multiply(Gpr::RAX, Rm::At(FRAME, stride));
                self.asm.subtract_from(Rm::At(FRAME, *slot), Gpr::RAX);
            }
        }
        if part.is_none() && (is_within || counter.is_some()) {
            self.asm.set(Gpr::RAX, 0);
            self.asm.put(Gpr::RAX, Rm::At(FRAME, self.frame.position(axis)));
        }
        let inner = At { bound: at.bound.with(axis), ..At::default() };
        let is_innermost = steps.iter().all(|step| self.is_straight(step));
        let sums = if turns.whole + usize::from(turns.rest > 0) > PART { sums } else { &[] };
        for sum in sums {
            self.for_all(&[sum.total, sum.lost], |segment, _| {
                let zero = segment.line.number(0.0);
                vec![zero, zero]
            })?;
        }
        let len = if is_lanes { self.width() } else { at.len };
        let inner = At { len, is_partial: at.is_partial && !is_lanes, ..inner };
        match is_innermost {
            true => self.innermost(axis, steps, sums, &inner, &turns)?,
            false => self.with_loops(axis, steps, sums, &inner, &turns)?,
        }
        for sum in sums {
            self.for_all(&[sum.part, sum.total, sum.lost], |segment, vectors| {
                let (total, lost) = add_part(&mut segment.line, vectors[0], vectors[1], vectors[2]);
                vec![sum_up(&mut segment.line, total, lost), total, lost]
            })?;
        }
        for (slot, saved_slot) in &slots {
            self.asm.get(Gpr::RAX, Rm::At(FRAME, *saved_slot));
            self.asm.put(Gpr::RAX, Rm::At(FRAME, *slot));
        }
        if let Some(saved) = saved {
            self.asm.get(Gpr::RAX, Rm::At(FRAME, saved));
            self.asm.put(Gpr::RAX, Rm::At(FRAME, self.frame.position(axis)));
        }
        Some(())
    }

    /// A loop around others.
    fn with_loops(&mut self, axis: Axis, steps: &[Step], sums: &[Sum], at: &At, turns: &Turns) -> Option<()> {
        let (left, chunks) = (self.frame.room(8), self.frame.room(8));
        let body = |own: &mut Self| -> Option<()> {
            own.steps(steps, at, None)?;
            own.go_on(axis, steps);
            Some(())
        };
        let part = if sums.is_empty() { turns.whole } else { PART };
        let (whole_chunks, rest) = (turns.whole / part.max(1), turns.whole % part.max(1));
        let outer = self.asm.label();
        if whole_chunks > 0 {
            if whole_chunks > 1 {
                self.set_counter(chunks, whole_chunks);
                self.asm.here(outer);
            }
            self.repeat(left, part, &body)?;
            self.add_parts(sums)?;
            if whole_chunks > 1 {
                self.asm.count_down(Rm::At(FRAME, chunks), outer);
            }
        }
        if rest > 0 {
            self.repeat(left, rest, &body)?;
        }
        if turns.rest > 0 {
            let is_folded = !self.wanted.nest.free.has(axis);
            let at = At { len: turns.rest, is_partial: is_folded || at.is_partial, ..at.clone() };
            self.steps(steps, &at, None)?;
        }
        Some(())
    }

    fn set_counter(&mut self, counter: i32, number: usize) {
        self.asm.set(Gpr::RAX, number as i32);
        self.asm.put(Gpr::RAX, Rm::At(FRAME, counter));
    }

    fn repeat(&mut self, counter: i32, times: usize, body: &impl Fn(&mut Self) -> Option<()>) -> Option<()> {
        let again = self.asm.label();
        if times > 1 {
            self.set_counter(counter, times);
            self.asm.here(again);
        }
        body(self)?;
        if times > 1 {
            self.asm.count_down(Rm::At(FRAME, counter), again);
        }
        Some(())
    }

    /// What a few terms were added to is added to the sums before, and begins at 0.
    fn add_parts(&mut self, sums: &[Sum]) -> Option<()> {
        for sum in sums {
            self.for_all(&[sum.part, sum.total, sum.lost], |segment, vectors| {
                let (total, lost) = add_part(&mut segment.line, vectors[0], vectors[1], vectors[2]);
                vec![segment.line.number(0.0), total, lost]
            })?;
        }
        Some(())
    }

    /// Addresses go on by a position.
    fn go_on(&mut self, axis: Axis, steps: &[Step]) {
        for object in self.objects(steps) {
            if self.is_along(object, axis) {
                let slot = Rm::At(FRAME, self.slot(object));
                self.go_on_by(object, axis, slot, 1);
            }
        }
        self.count_on(axis, 1);
    }

    fn go_on_by(&mut self, object: Object, axis: Axis, address: Rm, times: usize) {
        let is_lanes = self.wanted.nest.lanes == Some(axis);
        match object {
            Object::Register(register) => {
                let bytes = self.registers[register].along.iter().find(|(own, _)| *own == axis);
                let bytes = bytes.map_or(0, |(_, bytes)| *bytes);
                self.asm.add_to(address, bytes * times as i32);
            }
            Object::Argument(argument) if is_lanes && self.wanted.lies[argument].dense.has(axis) => {
                self.asm.add_to(address, (self.width() * self.bytes_of(argument) * times) as i32);
            }
            Object::Argument(argument) => {
                let stride = self.frame.stride(argument, axis);
                self.asm.get(Gpr::RAX, Rm::At(FRAME, stride));
                let times = times * if is_lanes { self.width() } else { 1 };
                if times > 1 {
                    self.asm.shift_left_general(Gpr::RAX, times.trailing_zeros() as u8);
                }
                self.asm.add_register(address, Gpr::RAX);
            }
        }
    }

    fn count_on(&mut self, axis: Axis, times: usize) {
        let is_within = self.outer().has(axis) || self.indexed.has(axis);
        if is_within {
            let step = if self.wanted.nest.lanes == Some(axis) { self.width() } else { 1 };
            self.asm.add_to(Rm::At(FRAME, self.frame.position(axis)), (step * times) as i32);
        }
    }

    /// What steps read and write that is in memory.
    pub(super) fn objects(&self, steps: &[Step]) -> BTreeSet<Object> {
        let mut found: BTreeSet<Object> = self.arguments(steps).into_iter().map(Object::Argument).collect();
        self.find_registers(steps, &mut found);
        found
    }

    fn find_registers(&self, steps: &[Step], found: &mut BTreeSet<Object>) {
        for step in steps {
            let own: Vec<usize> = match step {
                Step::Load { to, .. } | Step::Index { to, .. } | Step::Count { to, .. } => vec![*to],
                Step::Store { from, .. } => vec![*from],
                Step::Compute { inputs, outputs, .. } => inputs.iter().chain(outputs).copied().collect(),
                Step::Fold { from, into, .. } => vec![*from, *into],
                // All of it, from its beginning.
                Step::Fill { .. } | Step::Across { .. } => Vec::new(),
                Step::Loop { steps, .. } => {
                    self.find_registers(steps, found);
                    Vec::new()
                }
            };
            let in_memory = own.into_iter().filter(|register| !self.registers[*register].along.is_empty());
            found.extend(in_memory.map(Object::Register));
        }
    }

    pub(super) fn is_along(&self, object: Object, axis: Axis) -> bool {
        match object {
            Object::Argument(argument) => self.wanted.lies[argument].axes.has(axis),
            Object::Register(register) => self.registers[register].along.iter().any(|(own, _)| *own == axis),
        }
    }

    fn slot(&self, object: Object) -> i32 {
        match object {
            Object::Argument(argument) => self.frame.address(argument),
            Object::Register(register) => self.registers[register].slot,
        }
    }

    /// A loop with no other in it: what it folds into and its addresses are in registers, and several vectors are computed side by
    /// side.
    fn innermost(&mut self, axis: Axis, steps: &[Step], sums: &[Sum], at: &At, turns: &Turns) -> Option<()> {
        let mut at = at.clone();
        let objects = self.objects(steps);
        let (moving, still): (Vec<Object>, Vec<Object>) =
            objects.into_iter().partition(|object| self.is_along(*object, axis));
        for (object, gpr) in moving.iter().chain(&still).zip(POINTERS) {
            self.asm.get(gpr, Rm::At(FRAME, self.slot(*object)));
            at.addresses.insert(*object, gpr);
        }
        let beside = self.beside(axis, steps, turns);
        let folded = self.pin(steps, axis, beside, &mut at)?;
        let groups = turns.whole / beside;
        let body = |own: &mut Self, beside: usize| -> Option<()> {
            for ahead in 0..beside {
                let pins = folded.iter().map(|folded| (folded.key, folded.pins[ahead])).collect();
                own.segment(steps, &At { ahead, pins, ..at.clone() })?;
            }
            for object in &moving {
                let address = match at.addresses.get(object) {
                    Some(gpr) => Rm::General(*gpr),
                    None => Rm::At(FRAME, own.slot(*object)),
                };
                own.go_on_by(*object, axis, address, beside);
            }
            own.count_on(axis, beside);
            Some(())
        };
        let part = if sums.is_empty() { groups } else { PART };
        let (chunks, rest) = (groups / part.max(1), groups % part.max(1));
        if chunks > 0 {
            let again = self.asm.label();
            if chunks > 1 {
                self.asm.set(CHUNKS, chunks as i32);
                self.asm.here(again);
            }
            self.turn(part, &|own: &mut Self| body(own, beside))?;
            if !sums.is_empty() {
                self.put_together(&folded, &at)?;
                self.add_pinned_parts(sums, &folded, &at)?;
            }
            if chunks > 1 {
                self.asm.count_down(Rm::General(CHUNKS), again);
            }
        }
        if rest > 0 {
            self.turn(rest, &|own: &mut Self| body(own, beside))?;
        }
        self.turn(turns.whole % beside, &|own: &mut Self| body(own, 1))?;
        if turns.rest > 0 {
            let is_partial = !self.wanted.nest.free.has(axis) || at.is_partial;
            let pins = folded.iter().map(|folded| (folded.key, folded.pins[0])).collect();
            self.segment(steps, &At { len: turns.rest, is_partial, pins, ..at.clone() })?;
        }
        self.put_together(&folded, &at)?;
        self.unpin(&folded, &at)
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

    /// How many vectors are computed side by side, so that a fold need not wait for the one before.
    fn beside(&self, axis: Axis, steps: &[Step], turns: &Turns) -> usize {
        if self.wanted.nest.lanes != Some(axis) {
            return 1;
        }
        let is_dense = |object: &Object| match object {
            Object::Argument(argument) => {
                let lies = &self.wanted.lies[*argument];
                !lies.axes.has(axis) || lies.dense.has(axis)
            }
            Object::Register(_) => true,
        };
        let folds = steps.iter().filter(|step| matches!(step, Step::Fold { .. })).count();
        let work = self.weight(steps).saturating_sub(steps.len());
        let wanted = match work {
            _ if folds == 0 || !self.objects(steps).iter().all(is_dense) => 1,
            0..=5 => 4,
            6..=12 => 2,
            _ => 1,
        };
        let wanted = if turns.whole < 2 * wanted { 1 } else { wanted };
        if folds * wanted <= MOST_PINS { wanted } else { 1 }
    }

    /// The vectors that steps fold into, and how.
    fn folds(&self, steps: &[Step], at: &At, found: &mut Vec<((usize, i32), Fold)>) {
        for step in steps {
            match step {
                Step::Fold { op, into, .. } if found.iter().all(|(key, _)| *key != at.key(*into)) => {
                    found.push((at.key(*into), *op));
                }
                Step::Loop { axis, steps, .. } => {
                    let strides = self.strides(*axis, steps);
                    for position in 0..self.wanted.sizes[axis.index()] {
                        self.folds(steps, &at.further(&strides, position), found);
                    }
                }
                _ => {}
            }
        }
    }

    /// Puts what is folded into into registers; the vectors beside the first begin with what changes nothing.
    fn pin(&mut self, steps: &[Step], axis: Axis, beside: usize, at: &mut At) -> Option<Vec<Folded>> {
        let mut folds = Vec::new();
        self.folds(steps, at, &mut folds);
        // What moves along the loop is another vector in each turn; what begins anew in each turn is none that is kept.
        let begins = |register: usize| steps.iter().any(|step| is_begun(step, register));
        let is_kept = |register: usize| !self.is_along(Object::Register(register), axis) && !begins(register);
        let mut folded: Vec<Folded> = Vec::new();
        let mut next = 16_u8;
        for (key, op) in folds {
            if !is_kept(key.0) || (folded.len() + 1) * beside > MOST_PINS {
                continue;
            }
            next -= beside as u8;
            folded.push(Folded { key, op, pins: (next..next + beside as u8).map(Ymm).collect() });
        }
        at.pinned = folded.iter().flat_map(|folded| folded.pins.iter().copied()).collect();
        let mut segment = Segment::new();
        for Folded { key, op, pins } in &folded {
            let place = self.vector_at(*key, at);
            let first = segment.source(Source::Memory(place));
            segment.targets.push((first, Target::Pinned(pins[0])));
            for pin in &pins[1..] {
                let identity = segment.line.number(op.identity_value());
                segment.targets.push((identity, Target::Pinned(*pin)));
            }
        }
        self.place(&segment, at)?;
        Some(folded)
    }

    /// Folds the vectors that were computed side by side into the first of them.
    fn put_together(&mut self, folded: &[Folded], at: &At) -> Option<()> {
        let mut segment = Segment::new();
        for Folded { op, pins, .. } in folded.iter().filter(|folded| folded.pins.len() > 1) {
            let mut vectors: Vec<Value> =
                pins.iter().map(|pin| segment.source(Source::Pinned(*pin))).collect();
            while vectors.len() > 1 {
                let half = vectors.len() / 2;
                for index in 0..half {
                    vectors[index] = lower::fold(&mut segment.line, *op, vectors[index], vectors[index + half]);
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
            for far in (0..count as i32).map(|index| 32 * index) {
                let place = |first: i32| Place {
                    pointer: Pointer::Frame,
                    offset: first + far,
                    stored: Stored::Same,
                    which: Which::Dense(self.width()),
                };
                let places = [part, total, lost].map(place);
                let pin = folded.iter().find(|folded| folded.key == (sum.part, far)).map(|own| own.pins[0]);
                let mut segment = Segment::new();
                let source = pin.map_or(Source::Memory(places[0]), Source::Pinned);
                let part = segment.source(source);
                let before = [places[1], places[2]].map(|place| segment.source(Source::Memory(place)));
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
            let value = segment.source(Source::Pinned(pins[0]));
            let place = self.vector_at(*key, at);
            segment.targets.push((value, Target::AtEnd(place)));
        }
        self.place(&segment, at)
    }
}

/// Whether a step gives a register its first value.
fn is_begun(step: &Step, register: usize) -> bool {
    match step {
        Step::Fill { register: own, .. } => *own == register,
        Step::Loop { steps, .. } => steps.iter().any(|step| is_begun(step, register)),
        _ => false,
    }
}
