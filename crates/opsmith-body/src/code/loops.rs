//! Loops of nests as code.

use std::collections::BTreeSet;

use super::asm::{Gpr, Rm};
use super::line::Value;
use super::lower::{self, add_part, sum_up};
use super::place::{Address, FRAME, LineInput, Pointer, Stored, Target, Which};
use super::segment::Segment;
use super::writer::{At, Object, POINTERS, TURNS, Turns, Writer};
use crate::axes::Axis;
use crate::expr::{PART, Step, Sum};

/// What is put back after a loop.
struct Left {
    /// Where the position is kept that a loop around this one along the same axis is at.
    around: Option<i32>,
    /// The slots of addresses, and where they are kept.
    slots: Vec<(i32, i32)>,
}

impl Writer<'_> {
    /// Writes steps; if there is a part, the last one is a loop of which that is gone along.
    pub(super) fn steps(&mut self, steps: &[Step], at: &At, part: Option<(usize, usize)>) -> Option<()> {
        let mut first = 0;
        while first < steps.len() {
            let straight = steps[first..].iter().take_while(|step| self.straight.has(step)).count();
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
                    let own = self.vectors;
                    self.for_all(&[*register], |segment, vectors| {
                        lower::across(&mut segment.line, *op, &vectors[..1], own)
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
        let own: Vec<(i32, usize)> = registers
            .iter()
            .map(|register| (self.registers[*register].first, self.registers[*register].count))
            .collect();
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
        let place = |gpr: &Gpr| Address {
            pointer: Pointer::Register(*gpr),
            offset: 0,
            stored: Stored::Same,
            which: Which::Dense(self.width()),
        };
        let places: Vec<Address> = POINTERS.iter().take(own.len()).map(place).collect();
        let mut segment = Segment::new();
        let vectors: Vec<Value> =
            places.iter().map(|place| segment.source(LineInput::Memory(*place))).collect();
        let results = what(&mut segment, &vectors);
        segment.targets = results.into_iter().zip(places.iter().map(|place| Target::AtEnd(*place))).collect();
        self.place(&segment, &At::default())?;
        if !is_one {
            for gpr in &POINTERS[..own.len()] {
                self.asm.add_to(Rm::General(*gpr), self.vectors.bytes() as i32);
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
        let left = self.enter(axis, steps, at, part.is_some())?;
        let sums = if turns.whole + usize::from(turns.rest > 0) > PART { sums } else { &[] };
        for sum in sums {
            self.for_all(&[sum.total, sum.lost], |segment, _| {
                let zero = segment.line.number(0.0);
                vec![zero, zero]
            })?;
        }
        let inner = At {
            bound: at.bound.with(axis),
            len: if is_lanes { self.width() } else { at.len },
            is_partial: at.is_partial && !is_lanes,
            inner: at.inner,
            ..At::default()
        };
        match steps.iter().all(|step| self.straight.has(step)) {
            true => self.chosen(axis, steps, sums, &inner, &turns)?,
            false => self.with_loops(axis, steps, sums, &inner, &turns)?,
        }
        for sum in sums {
            self.for_all(&[sum.part, sum.total, sum.lost], |segment, vectors| {
                let (total, lost) = add_part(&mut segment.line, vectors[0], vectors[1], vectors[2]);
                vec![sum_up(&mut segment.line, total, lost), total, lost]
            })?;
        }
        self.leave(axis, &left, part.is_some())
    }

    /// Goes to the first position of a loop, or leaves a part where it begins; gives what is to be put back after the loop.
    fn enter(&mut self, axis: Axis, steps: &[Step], at: &At, is_part: bool) -> Option<Left> {
        // There may be a loop along the axis around this one: then the addresses are somewhere along.
        let is_within = !is_part && self.straight.outer().union(at.bound).has(axis);
        let position = self.frame.position(axis);
        let around = is_within.then(|| self.frame.room(8));
        if let Some(around) = around {
            self.copy_slot(position, around);
        }
        let is_moving = |object: &Object| self.is_along(*object, axis);
        let moving: Vec<Object> = self.objects(steps).into_iter().filter(is_moving).collect();
        if is_within && moving.iter().any(|object| matches!(object, Object::Register(_))) {
            return None;
        }
        let mut slots = Vec::with_capacity(moving.len());
        for object in moving {
            let (slot, saved) = (self.slot(object), self.frame.room(8));
            self.copy_slot(slot, saved);
            slots.push((slot, saved));
            if let (Some(around), Object::Argument(argument)) = (around, object) {
                let stride = self.frame.stride(argument, axis);
                self.asm.get(Gpr::RAX, Rm::At(FRAME, around));
                self.asm.multiply(Gpr::RAX, Rm::At(FRAME, stride));
                self.asm.subtract_from(Rm::At(FRAME, slot), Gpr::RAX);
            }
        }
        if !is_part && (is_within || self.straight.indexed.has(axis)) {
            self.set_counter(position, 0)?;
        }
        Some(Left { around, slots })
    }

    /// Puts back what a loop has changed.
    fn leave(&mut self, axis: Axis, left: &Left, is_part: bool) -> Option<()> {
        for (slot, saved) in &left.slots {
            self.copy_slot(*saved, *slot);
        }
        let position = self.frame.position(axis);
        match left.around {
            Some(around) => self.copy_slot(around, position),
            // Along an axis of one position numbers are computed outside of loops too.
            None if !is_part && self.straight.indexed.has(axis) => self.set_counter(position, 0)?,
            None => {}
        }
        Some(())
    }

    /// Copies 8 bytes of the frame.
    fn copy_slot(&mut self, from: i32, to: i32) {
        self.asm.get(Gpr::RAX, Rm::At(FRAME, from));
        self.asm.put(Gpr::RAX, Rm::At(FRAME, to));
    }

    /// A loop around others.
    fn with_loops(&mut self, axis: Axis, steps: &[Step], sums: &[Sum], at: &At, turns: &Turns) -> Option<()> {
        let (left, chunks) = (self.frame.room(8), self.frame.room(8));
        let inner = self.wanted.tile.inner.filter(|_| self.straight.is_inner(axis, steps));
        let body = |own: &mut Self, inner: Option<(Axis, usize)>| -> Option<()> {
            let at = At { inner: inner.or(at.inner), ..at.clone() };
            own.steps(steps, &at, None)?;
            own.go_on(axis, steps, inner.map_or(1, |(_, count)| count));
            Some(())
        };
        let repeat = |own: &mut Self, turns: usize| -> Option<()> {
            let count = inner.map_or(1, |(_, count)| count);
            own.repeat(left, turns / count, &|own: &mut Self| body(own, inner))?;
            own.repeat(left, turns % count, &|own: &mut Self| body(own, None))
        };
        let part = if sums.is_empty() { turns.whole } else { PART };
        let (whole_chunks, rest) = (turns.whole / part.max(1), turns.whole % part.max(1));
        let outer = self.asm.label();
        if whole_chunks > 0 {
            if whole_chunks > 1 {
                self.set_counter(chunks, whole_chunks)?;
                self.asm.here(outer);
            }
            repeat(self, part)?;
            self.add_parts(sums)?;
            if whole_chunks > 1 {
                self.asm.count_down(Rm::At(FRAME, chunks), outer);
            }
        }
        if rest > 0 {
            repeat(self, rest)?;
        }
        if turns.rest > 0 {
            let at = At { len: turns.rest, is_partial: true, ..at.clone() };
            self.steps(steps, &at, None)?;
        }
        Some(())
    }

    fn set_counter(&mut self, counter: i32, number: usize) -> Option<()> {
        self.asm.set(Gpr::RAX, i32::try_from(number).ok()?);
        self.asm.put(Gpr::RAX, Rm::At(FRAME, counter));
        Some(())
    }

    fn repeat(&mut self, counter: i32, times: usize, body: &impl Fn(&mut Self) -> Option<()>) -> Option<()> {
        if times == 0 {
            return Some(());
        }
        let again = self.asm.label();
        if times > 1 {
            self.set_counter(counter, times)?;
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

    /// Addresses go on by some positions.
    fn go_on(&mut self, axis: Axis, steps: &[Step], times: usize) {
        for object in self.objects(steps) {
            if self.is_along(object, axis) {
                let slot = Rm::At(FRAME, self.slot(object));
                self.go_on_by(object, axis, slot, times);
            }
        }
        self.count_on(axis, times);
    }

    pub(super) fn go_on_by(&mut self, object: Object, axis: Axis, address: Rm, times: usize) {
        let is_lanes = self.wanted.nest.lanes == Some(axis);
        match object {
            Object::Register(register) => {
                let bytes = self.registers[register].along.iter().find(|(own, _)| *own == axis);
                let bytes = bytes.map_or(0, |(_, bytes)| *bytes);
                self.asm.add_to(address, bytes * times as i32);
            }
            Object::Argument(argument) => {
                let times = times * if is_lanes { self.width() } else { 1 };
                let bytes = self.wanted.lies[argument].along[axis.index()] as i64 * times as i64;
                if let Ok(bytes) = i32::try_from(bytes) {
                    return self.asm.add_to(address, bytes);
                }
                self.asm.get_wide(Gpr::RAX, bytes);
                self.asm.add_register(address, Gpr::RAX);
            }
        }
    }

    pub(super) fn count_on(&mut self, axis: Axis, times: usize) {
        let is_within = self.straight.outer().has(axis) || self.straight.indexed.has(axis);
        if is_within {
            let step = if self.wanted.nest.lanes == Some(axis) { self.width() } else { 1 };
            self.asm.add_to(Rm::At(FRAME, self.frame.position(axis)), (step * times) as i32);
        }
    }

    /// What steps read and write that is in memory.
    pub(super) fn objects(&self, steps: &[Step]) -> BTreeSet<Object> {
        let mut found: BTreeSet<Object> =
            self.straight.arguments(steps).into_iter().map(Object::Argument).collect();
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
                Step::Online(_) => unreachable!("only cards have these"),
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

    pub(super) fn slot(&self, object: Object) -> i32 {
        match object {
            Object::Argument(argument) => self.frame.address(argument),
            Object::Register(register) => self.registers[register].slot,
        }
    }
}
