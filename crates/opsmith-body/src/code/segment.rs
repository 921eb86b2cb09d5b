//! Steps without loops as lines.

use std::collections::{BTreeMap, BTreeSet};

use super::line::{Line, Op, Value};
use super::lower::{self, Rounded};
use super::place::{Address, LineInput, Lined, Pointer, Stored, Target, Which, place};
use super::wanted::Held;
use super::writer::{At, MOST_SPILLED, Object, Writer, count_reads};
use crate::axes::Axis;
use crate::expr::{Fold, Step};

/// A line that is being made of steps.
pub(super) struct Segment {
    pub(super) line: Line,
    pub(super) sources: Vec<LineInput>,
    pub(super) targets: Vec<(Value, Target)>,
    /// What is in the registers of the nest: in each of their vectors, so many bytes further than the first.
    values: BTreeMap<(usize, i32), Value>,
    /// Those that are to be written back, and where to; those that were read before they were written.
    written: BTreeMap<(usize, i32), Target>,
    carried: BTreeSet<(usize, i32)>,
    /// How often its steps read each register.
    reads: Vec<usize>,
}

impl Segment {
    pub(super) fn new() -> Self {
        Self {
            line: Line::default(),
            sources: Vec::new(),
            targets: Vec::new(),
            values: BTreeMap::new(),
            written: BTreeMap::new(),
            carried: BTreeSet::new(),
            reads: Vec::new(),
        }
    }

    pub(super) fn source(&mut self, source: LineInput) -> Value {
        let known = self.sources.iter().position(|other| *other == source);
        let position = known.unwrap_or_else(|| {
            self.sources.push(source);
            self.sources.len() - 1
        });
        self.line.push(Op::Input(position as u32))
    }
}

impl Writer<'_> {
    /// Writes steps without loops; none if they do what code cannot.
    pub(super) fn segment(&mut self, steps: &[Step], at: &At) -> Option<()> {
        let mut segment = Segment::new();
        segment.line.scales = self.vectors.wide;
        segment.reads.resize(self.registers.len(), 0);
        count_reads(steps, &mut segment.reads);
        let all = self.tile(at);
        // What is folded across vectors is folded for all positions at once.
        for run in steps.split_inclusive(|step| matches!(step, Step::Across { .. })) {
            let (last, before) = run.split_last()?;
            let (before, across) = match last {
                Step::Across { op, register } => (before, Some((*op, *register))),
                _ => (run, None),
            };
            for here in &all {
                for step in before {
                    self.step(&mut segment, step, here);
                }
            }
            if let Some(across) = across {
                let done: Vec<&At> = all.iter().filter(|here| self.is_done(last, here)).collect();
                self.across(&mut segment, across, &done);
            }
        }
        for (key, target) in &segment.written {
            if self.reads[key.0] > segment.reads[key.0] || segment.carried.contains(key) {
                segment.targets.push((segment.values[key], *target));
            }
        }
        self.place(&segment, at)
    }

    /// Writes a line.
    pub(super) fn place(&mut self, segment: &Segment, at: &At) -> Option<()> {
        let lined = Lined {
            line: &segment.line,
            sources: &segment.sources,
            targets: &segment.targets,
            pinned: &at.pinned,
        };
        let spilled = place(&mut self.asm, &lined, self.vectors, self.spills);
        (spilled <= MOST_SPILLED).then_some(())
    }

    fn step(&mut self, segment: &mut Segment, step: &Step, at: &At) {
        if !self.is_done(step, at) {
            return;
        }
        match step {
            Step::Load { from, to } => {
                let value = self.loaded(segment, from.argument(self.wanted.counts), at);
                self.define(segment, *to, value, at);
            }
            Step::Store { from, to } => {
                let value = self.read(segment, *from, at);
                let argument = to.argument(self.wanted.counts);
                let place = self.number(argument, at);
                segment.targets.push((value, Target::Memory(place)));
            }
            Step::Index { axis, to } => {
                let value = self.position(segment, *axis, at);
                self.define(segment, *to, value, at);
            }
            // It is a constant where it is read.
            Step::Count { .. } => {}
            Step::Compute { graph, inputs, outputs, .. } => {
                let inputs: Vec<Value> = inputs.iter().map(|input| self.read(segment, *input, at)).collect();
                let results = match self.vectors.double {
                    true => lower::compute::<true>(&mut segment.line, graph, &inputs),
                    false => lower::compute::<false>(&mut segment.line, graph, &inputs),
                };
                for (output, value) in outputs.iter().zip(results) {
                    self.define(segment, *output, value, at);
                }
            }
            Step::Fill { register, value } => {
                let value = segment.line.number(*value);
                self.define(segment, *register, value, at);
            }
            Step::Fold { op, from, into } => {
                let value = self.folded(segment, *op, (*from, *into), at);
                self.define(segment, *into, value, at);
            }
            Step::Across { op, register } => self.across(segment, (*op, *register), &[at]),
            Step::Online(_) => unreachable!("only cards have these"),
            Step::Loop { axis, steps, .. } => {
                for here in self.written_out(*axis, steps, at) {
                    for step in steps {
                        self.step(segment, step, &here);
                    }
                }
            }
        }
    }

    /// Folds the numbers of a register's vectors, at some positions.
    fn across(&mut self, segment: &mut Segment, (op, register): (Fold, usize), all: &[&At]) {
        let values: Vec<Value> = all.iter().map(|at| self.read(segment, register, at)).collect();
        let folded = lower::across(&mut segment.line, op, &values, self.vectors);
        for (value, at) in folded.into_iter().zip(all) {
            self.define(segment, register, value, at);
        }
    }

    fn loaded(&mut self, segment: &mut Segment, argument: usize, at: &At) -> Value {
        match self.wanted.lies[argument].held {
            Held::Absent => segment.line.number(0.0),
            _ => {
                let place = self.number(argument, at);
                segment.source(LineInput::Memory(place))
            }
        }
    }

    fn position(&self, segment: &mut Segment, axis: Axis, at: &At) -> Value {
        if let Some(position) = at.fixed.get(&axis) {
            return segment.line.number(*position as f64);
        }
        let along = self.wanted.nest.lanes == Some(axis);
        let turns = at.in_tile(axis);
        let more = if along { (at.ahead + turns) * self.width() } else { turns } as i32;
        let counter = self.frame.position(axis);
        segment.source(LineInput::Position { counter, more, along })
    }

    fn folded(&mut self, segment: &mut Segment, op: Fold, (from, into): (usize, usize), at: &At) -> Value {
        let (old, from) = (self.read(segment, into, at), self.read(segment, from, at));
        let rounded = match self.again_sums.get(&into) {
            None => Rounded::AlwaysFused,
            Some(sum) if sum.is_fused => Rounded::Fused,
            Some(_) => Rounded::Alone,
        };
        let value = lower::fold(&mut segment.line, (op, rounded), old, from);
        match at.is_partial {
            true => segment.line.push(Op::FirstOf(at.len as u8, value, old)),
            false => value,
        }
    }

    /// By how many bytes positions along an axis are apart.
    pub(super) fn strides(&self, axis: Axis, steps: &[Step]) -> Vec<(Object, i32)> {
        let bytes = |object: Object| match object {
            Object::Argument(argument) => self.wanted.lies[argument].along[axis.index()] as i32,
            Object::Register(register) => {
                let own = self.registers[register].along.iter().find(|(own, _)| *own == axis);
                own.map_or(0, |(_, bytes)| *bytes)
            }
        };
        let objects = self.objects(steps).into_iter().filter(|object| self.is_along(*object, axis));
        objects.map(|object| (object, bytes(object))).collect()
    }

    /// A register has a new value.
    fn define(&self, segment: &mut Segment, register: usize, value: Value, at: &At) {
        let key = self.key(register, at);
        segment.values.insert(key, value);
        let target = match at.pins.get(&key) {
            Some(pin) => Target::Pinned(*pin),
            None => Target::AtEnd(self.vector(register, at)),
        };
        segment.written.insert(key, target);
    }

    fn read(&mut self, segment: &mut Segment, register: usize, at: &At) -> Value {
        if let Some(count) = self.counts.get(&register) {
            return segment.line.number(*count);
        }
        let key = self.key(register, at);
        if let Some(value) = segment.values.get(&key) {
            return *value;
        }
        let source = match at.pins.get(&key) {
            Some(pin) => LineInput::Pinned(*pin),
            None => LineInput::Memory(self.vector(register, at)),
        };
        let value = segment.source(source);
        segment.values.insert(key, value);
        segment.carried.insert(key);
        value
    }

    /// A vector of a register: which register, and how many bytes further than its address.
    pub(super) fn key(&self, register: usize, at: &At) -> (usize, i32) {
        // Vectors for other axes may lie between those along the lanes.
        let mut along = self.registers[register].along.iter();
        let along = along.find(|(axis, _)| self.wanted.nest.lanes == Some(*axis));
        let ahead = along.map_or(0, |(_, bytes)| bytes * at.ahead as i32);
        let tiled = self.registers[register].tiled.iter();
        let own = self.registers[register].along.iter();
        let own = own.filter(|(axis, _)| at.inner.is_some_and(|(inner, _)| inner == *axis));
        let tiled: i32 = tiled.chain(own).map(|(axis, bytes)| bytes * at.in_tile(*axis) as i32).sum();
        (register, ahead + tiled + at.further.get(&Object::Register(register)).copied().unwrap_or(0))
    }

    /// Where a vector of a register is.
    pub(super) fn vector_at(&self, (register, further): (usize, i32), at: &At) -> Address {
        let place = self.vector(register, at);
        Address { offset: place.offset + further - self.key(register, at).1, ..place }
    }

    /// Where the vector of a register is.
    pub(super) fn vector(&self, register: usize, at: &At) -> Address {
        let own = &self.registers[register];
        let which = Which::Dense(self.width());
        if own.along.is_empty() {
            let offset = own.first + self.key(register, at).1;
            return Address { pointer: Pointer::Frame, offset, stored: Stored::Same, which };
        }
        let pointer = at.pointer(Object::Register(register), own.slot);
        Address { pointer, offset: self.key(register, at).1, stored: Stored::Same, which }
    }

    /// Where the numbers of an argument are.
    fn number(&mut self, argument: usize, at: &At) -> Address {
        let lies = self.wanted.lies[argument];
        let nest = self.wanted.nest;
        let lanes = nest.lanes.filter(|lanes| nest.free.union(at.bound).has(*lanes) && lies.axes.has(*lanes));
        let stored = match lies.held {
            Held::Half => Stored::Half,
            Held::BFloat => Stored::BFloat,
            Held::Position => Stored::Position,
            Held::Truth => Stored::Truth,
            Held::Same | Held::Absent => Stored::Same,
        };
        let pointer = at.pointer(Object::Argument(argument), self.frame.address(argument));
        let which = match lanes {
            None => Which::One,
            Some(lanes) if lies.dense.has(lanes) => Which::Dense(at.len),
            Some(lanes) => self.apart(argument, lanes, at.len),
        };
        let along = |axis: Axis| match nest.lanes == Some(axis) {
            true => lies.along[axis.index()] * self.width() as isize,
            false => lies.along[axis.index()],
        };
        let ahead = lanes.map_or(0, |lanes| along(lanes) * at.ahead as isize);
        let tiled: isize = at.tiled.iter().map(|(axis, turns)| along(*axis) * *turns as isize).sum();
        let further = at.further.get(&Object::Argument(argument)).copied().unwrap_or(0);
        let offset = (ahead + tiled) as i32 + further;
        Address { pointer, offset, stored, which }
    }

    fn apart(&mut self, argument: usize, lanes: Axis, count: usize) -> Which {
        let (stride, distances) = (self.frame.stride(argument, lanes), self.frame.distance(argument, lanes));
        Which::Apart { count, stride, distances }
    }
}
