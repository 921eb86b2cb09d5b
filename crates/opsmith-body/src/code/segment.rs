//! Steps without loops as lines.

use std::collections::BTreeMap;

use super::line::{Line, Op, Value};
use super::lower;
use super::nest::{At, Held, MOST_SPILLED, Object, Writer, count_reads};
use super::place::{Lined, Place, Pointer, Source, Stored, Target, Which, place};
use crate::axes::Axis;
use crate::expr::Step;

/// A line that is being made of steps.
pub(super) struct Segment {
    pub(super) line: Line,
    pub(super) sources: Vec<Source>,
    pub(super) targets: Vec<(Value, Target)>,
    /// What is in the registers of the nest.
    values: BTreeMap<usize, Value>,
    /// The registers that are to be written back, and those that are read here.
    written: Vec<usize>,
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
            written: Vec::new(),
            reads: Vec::new(),
        }
    }

    pub(super) fn source(&mut self, source: Source) -> Value {
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
        segment.reads.resize(self.registers.len(), 0);
        count_reads(steps, &mut segment.reads);
        for step in steps {
            self.step(&mut segment, step, at);
        }
        for &register in &segment.written {
            let value = segment.values[&register];
            let target = match at.pins.get(&register) {
                Some(pin) => Target::Pinned(*pin),
                None => Target::AtEnd(self.vector(register, at)),
            };
            segment.targets.push((value, target));
        }
        self.place(&segment, at)
    }

    /// Writes a line.
    pub(super) fn place(&mut self, segment: &Segment, at: &At) -> Option<()> {
        if segment.line.ops().iter().any(|op| matches!(op, Op::Call(..))) {
            return None;
        }
        let lined = Lined {
            line: &segment.line,
            sources: &segment.sources,
            targets: &segment.targets,
            pinned: &at.pinned,
        };
        let spilled = place(&mut self.asm, &lined, self.double, self.spills);
        (spilled <= MOST_SPILLED).then_some(())
    }

    fn step(&mut self, segment: &mut Segment, step: &Step, at: &At) {
        match step {
            Step::Load { from, to } => {
                let argument = self.argument(*from);
                let value = match self.wanted.lies[argument].held {
                    Held::Absent => segment.line.number(0.0),
                    _ => {
                        let place = self.number(argument, at);
                        segment.source(Source::Memory(place))
                    }
                };
                self.define(segment, *to, value);
            }
            Step::Store { from, to } => {
                let value = self.read(segment, *from, at);
                let argument = self.argument(*to);
                let place = self.number(argument, at);
                segment.targets.push((value, Target::Memory(place)));
            }
            Step::Index { axis, to } => {
                let along = self.wanted.nest.lanes == Some(*axis);
                let more = if along { at.ahead * self.width() } else { 0 } as i32;
                let counter = self.frame.position(*axis);
                let value = segment.source(Source::Position { counter, more, along });
                self.define(segment, *to, value);
            }
            Step::Count { axis, to } => {
                let value = segment.line.number(self.wanted.sizes[axis.index()] as f64);
                self.define(segment, *to, value);
            }
            Step::Compute { graph, inputs, outputs, .. } => {
                let inputs: Vec<Value> = inputs.iter().map(|input| self.read(segment, *input, at)).collect();
                let results = match self.double {
                    true => lower::compute::<true>(&mut segment.line, graph, &inputs),
                    false => lower::compute::<false>(&mut segment.line, graph, &inputs),
                };
                for (output, value) in outputs.iter().zip(results) {
                    self.define(segment, *output, value);
                }
            }
            Step::Fill { register, value } => {
                let value = segment.line.number(*value);
                segment.values.insert(*register, value);
                self.write_back(segment, *register);
            }
            Step::Fold { op, from, into } => {
                let (old, from) = (self.read(segment, *into, at), self.read(segment, *from, at));
                let mut value = lower::fold(&mut segment.line, *op, old, from);
                if at.is_partial {
                    value = segment.line.push(Op::FirstOf(at.len as u8, value, old));
                }
                segment.values.insert(*into, value);
                self.write_back(segment, *into);
            }
            Step::Across { op, register } => {
                let value = self.read(segment, *register, at);
                let value = lower::across(&mut segment.line, *op, value, self.double);
                segment.values.insert(*register, value);
                self.write_back(segment, *register);
            }
            Step::Loop { .. } => unreachable!("a segment has no loops"),
        }
    }

    fn write_back(&self, segment: &mut Segment, register: usize) {
        if !segment.written.contains(&register) {
            segment.written.push(register);
        }
    }

    /// A register has a new value, which is written back if it is read elsewhere.
    fn define(&self, segment: &mut Segment, register: usize, value: Value) {
        segment.values.insert(register, value);
        if self.reads[register] > segment.reads[register] {
            self.write_back(segment, register);
        }
    }

    fn read(&mut self, segment: &mut Segment, register: usize, at: &At) -> Value {
        if let Some(value) = segment.values.get(&register) {
            return *value;
        }
        let source = match at.pins.get(&register) {
            Some(pin) => Source::Pinned(*pin),
            None => Source::Memory(self.vector(register, at)),
        };
        let value = segment.source(source);
        segment.values.insert(register, value);
        value
    }

    /// Where the vector of a register is.
    pub(super) fn vector(&self, register: usize, at: &At) -> Place {
        let own = &self.registers[register];
        let which = Which::Dense(self.width());
        if own.along.is_empty() {
            return Place { pointer: Pointer::Frame, offset: own.first, stored: Stored::Same, which };
        }
        let pointer = at.pointer(Object::Register(register), own.slot);
        let is_ahead = self.wanted.nest.lanes.is_some_and(|lanes| own.along.iter().any(|(axis, _)| *axis == lanes));
        let offset = if is_ahead { 32 * at.ahead as i32 } else { 0 };
        Place { pointer, offset, stored: Stored::Same, which }
    }

    /// Where the numbers of an argument are.
    fn number(&mut self, argument: usize, at: &At) -> Place {
        let lies = self.wanted.lies[argument];
        let nest = self.wanted.nest;
        let lanes = nest.lanes.filter(|lanes| nest.free.union(at.bound).has(*lanes) && lies.axes.has(*lanes));
        let stored = match lies.held {
            Held::Half => Stored::Half,
            Held::BFloat => Stored::BFloat,
            Held::Same | Held::Absent | Held::Other => Stored::Same,
        };
        let pointer = at.pointer(Object::Argument(argument), self.frame.address(argument));
        let which = match lanes {
            None => Which::One,
            Some(lanes) if lies.dense.has(lanes) => Which::Dense(at.len),
            Some(lanes) => self.apart(argument, lanes, at.len),
        };
        let is_ahead = matches!(which, Which::Dense(_));
        let offset = if is_ahead { (at.ahead * self.width() * self.bytes_of(argument)) as i32 } else { 0 };
        Place { pointer, offset, stored, which }
    }

    fn apart(&mut self, argument: usize, lanes: Axis, count: usize) -> Which {
        let (stride, distances) = (self.frame.stride(argument, lanes), self.frame.distance(argument, lanes));
        Which::Apart { count, stride, distances }
    }

    /// How many bytes a number of an argument has.
    pub(super) fn bytes_of(&self, argument: usize) -> usize {
        match self.wanted.lies[argument].held {
            Held::Half | Held::BFloat => 2,
            Held::Same | Held::Absent | Held::Other => 32 / self.width(),
        }
    }
}

impl At {
    /// Where the address of something is.
    fn pointer(&self, object: Object, slot: i32) -> Pointer {
        self.addresses.get(&object).map_or(Pointer::Slot(slot), |register| Pointer::Register(*register))
    }
}
