//! The loops of a nest, from the outermost inwards: every number is computed in the outermost loop in which it is known.

mod online;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::known::{Known, is_dear};
use super::{Nest, Online, Place, Room, Step, Sum};
use crate::axes::{Axes, Axis};
use crate::body::BLOCK;
use crate::expr::interpret::Interpreted;
use crate::expr::node::{Fold, Id, Node};

/// A number of a nest, the axes for whose positions it is wanted, and what becomes of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) id: Id,
    pub(super) axes: Axes,
    pub(super) action: Action,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Store(Place),
    Fold(Fold, usize),
}

/// The register that a number is in.
#[derive(Clone, Copy)]
struct Held {
    register: usize,
    /// The axes at all of whose positions it is in it; at others it is where the loops are.
    everywhere: Axes,
}

/// The registers that numbers are in.
type Registers = BTreeMap<Id, Held>;

pub(super) struct Emitter<'a> {
    known: &'a Known<'a>,
    lanes: Option<Axis>,
    registers: Vec<Axes>,
    /// The folds into memory that this nest computes.
    own: &'a BTreeSet<Id>,
    /// The registers of what is computed in one loop and kept for another.
    keep: BTreeMap<Id, usize>,
    /// What of that is computed.
    kept: BTreeSet<Id>,
    /// The axes along which there is a loop within another one.
    again: Axes,
    /// The registers of folds that are computed again.
    into: BTreeMap<Id, usize>,
}

/// The most blocks that are kept of a number that needs no fold in the loop.
const MOST_KEPT: usize = 64;

impl<'a> Emitter<'a> {
    pub(super) fn new(known: &'a Known<'a>, lanes: Option<Axis>, own: &'a BTreeSet<Id>) -> Self {
        let (keep, kept, into) = Default::default();
        Emitter { known, lanes, registers: Vec::new(), own, keep, kept, again: Axes::NONE, into }
    }

    /// The nest that does something with numbers at all positions of the free axes.
    pub(super) fn nest(mut self, free: Axes, items: &[Item]) -> Nest {
        let mut registers = Registers::new();
        self.find_what_to_keep(free, items);
        let mut steps = self.pack(free, items, &mut registers);
        steps.extend(self.emit(free, items, &mut registers));
        Nest { lanes: self.lanes, free, registers: self.registers, steps }
    }

    fn axes(&self, id: Id) -> Axes {
        self.known.axes[id.index()]
    }

    fn register(&mut self, axes: Axes) -> usize {
        self.registers.push(axes);
        self.registers.len() - 1
    }

    /// Whether a number is read from memory.
    fn is_leaf(&self, id: Id) -> bool {
        let is_kept = self.known.is_kept(id) && !self.own.contains(&id);
        is_kept || matches!(self.known.node(id), Node::Input(_) | Node::Index(_) | Node::Count(_))
    }

    /// What a number is computed from in this nest.
    fn operands(&self, id: Id) -> Vec<Id> {
        if self.is_leaf(id) { Vec::new() } else { self.known.node(id).operands().collect() }
    }

    /// All that numbers are computed from in this nest, but by way of `stops`.
    fn below(&self, roots: impl IntoIterator<Item = Id>, stops: &BTreeSet<Id>) -> BTreeSet<Id> {
        let mut found = BTreeSet::new();
        let mut pending: Vec<Id> = roots.into_iter().collect();
        while let Some(id) = pending.pop() {
            if !stops.contains(&id) && found.insert(id) {
                pending.extend(self.operands(id));
            }
        }
        found
    }

    /// Finds what would be dear to compute again in another of the loops for the same positions of the free axes.
    fn find_what_to_keep(&mut self, free: Axes, items: &[Item]) {
        if self.lanes.is_none() {
            return;
        }
        let all = self.below(items.iter().map(|item| item.id), &BTreeSet::new());
        // A loop along an empty axis computes nothing that another one could use.
        if all.iter().any(|id| self.known.room.count(self.axes(*id)) == 0) {
            return;
        }
        let is_row =
            |id: &Id| matches!(self.known.node(*id), Node::Fold(..)) && self.axes(*id).is_within(free);
        let folds: BTreeSet<Id> =
            all.iter().copied().filter(|id| !self.is_leaf(*id)).filter(is_row).collect();
        let of_folds = folds.iter().map(|id| self.below(self.operands(*id), &folds));
        let outputs = items.iter().filter(|item| !folds.contains(&item.id));
        let of_loops: Vec<BTreeSet<Id>> =
            of_folds.chain([self.below(outputs.map(|item| item.id), &folds)]).collect();
        let is_common = |id: Id| {
            let within = self.axes(id).minus(free);
            let uses = of_loops.iter().filter(|own| own.contains(&id)).count();
            uses > 1 && !within.is_empty() && !self.is_leaf(id)
        };
        let common: BTreeSet<Id> = all.iter().copied().filter(|id| is_common(*id)).collect();
        // What only others of these are made of is not kept with them.
        let is_within = |id: &Id| {
            let mut users = all.iter().filter(|user| self.operands(**user).contains(id)).peekable();
            users.peek().is_some() && users.all(|user| common.contains(user))
        };
        let known = self.known;
        let is_fold = |id: &Id| matches!(known.node(*id), Node::Fold(..));
        let largest: Vec<Id> = common.iter().copied().filter(|id| !is_within(id) && !is_fold(id)).collect();
        let mut stops = folds;
        for id in largest {
            let below = self.below([id], &stops);
            // What is dear and of the whole row is computed once for it.
            if !below.iter().any(|id| is_dear(known.node(*id)) && !self.axes(*id).is_within(free)) {
                continue;
            }
            let blocks = |axis: Axis| {
                let count = self.known.room.count(Axes::of(axis));
                if self.lanes == Some(axis) { count.div_ceil(BLOCK) } else { count }
            };
            let within = self.axes(id).minus(free);
            let most = if below.iter().any(is_fold) { Room::MOST_BLOCKS } else { MOST_KEPT };
            if within.iter().map(blocks).fold(1, usize::saturating_mul) <= most {
                let register = self.register(within);
                self.keep.insert(id, register);
                stops.insert(id);
            }
        }
    }

    /// Whether an input is gathered along the lanes and read in several loops.
    fn is_gathered(&self, id: Id, within: Axes) -> bool {
        match (self.known.node(id), self.lanes) {
            (Node::Input(position), Some(lanes)) => {
                self.own.len() > 1
                    && !self.known.room.is_dense(position as usize, lanes)
                    && self.known.room.count(within) <= MOST_KEPT
            }
            _ => false,
        }
    }

    /// Reads what lies along the lanes once for all inner loops, if it is read in a loop along an axis that it does not lie on, or
    /// gathered for several.
    fn pack(&mut self, free: Axes, items: &[Item], registers: &mut Registers) -> Vec<Step> {
        let found = self.below(items.iter().map(|item| item.id), &BTreeSet::new());
        let inner = found.iter().map(|id| self.axes(*id)).fold(Axes::NONE, Axes::union).minus(free);
        let mut steps = Vec::new();
        for id in found {
            let own = self.axes(id);
            let within = own.minus(free);
            let lies = self.lanes.is_some_and(|lanes| own.has(lanes) && free.has(lanes));
            let is_read = self.is_leaf(id) && !matches!(self.known.node(id), Node::Index(_));
            let fits = self.known.room.has(within);
            let pays = within != inner || self.is_gathered(id, within);
            if is_read && lies && !within.is_empty() && pays && fits {
                let to = self.register(within);
                let mut load = self.read(id, to);
                for axis in within.iter() {
                    load = Step::Loop { axis, steps: vec![load], sums: Vec::new() };
                }
                steps.push(load);
                registers.insert(id, Held { register: to, everywhere: within });
            }
        }
        steps
    }

    fn read(&self, id: Id, to: usize) -> Step {
        match (self.known.node(id), self.known.kept().get(&id)) {
            (_, Some(array)) => Step::Load { from: Place::Temporary(*array), to },
            (Node::Input(position), _) => Step::Load { from: Place::Input(position as usize), to },
            (Node::Index(axis), _) => Step::Index { axis, to },
            (Node::Count(axis), _) => Step::Count { axis, to },
            _ => unreachable!("only leaves are read"),
        }
    }

    /// Does something with numbers where the loops along `bound` are.
    fn emit(&mut self, bound: Axes, items: &[Item], registers: &mut Registers) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some((axis, folds)) = self.next_folds(bound, items, registers) {
            let before = self.kept.clone();
            steps.extend(self.fold(bound, axis, &folds, registers));
            // What the loop has kept holds for the next ones: it went everywhere but where this one is.
            let here = bound.without(axis);
            for id in self.kept.difference(&before) {
                let register = self.keep[id];
                registers.insert(*id, Held { register, everywhere: self.registers[register].minus(here) });
            }
        }
        let (now, mut later): (Vec<Item>, Vec<Item>) =
            items.iter().copied().partition(|item| item.axes.is_within(bound));
        let mut wanted: BTreeSet<Id> = now.iter().map(|item| item.id).collect();
        let mut seen = BTreeSet::new();
        for item in &later {
            self.hoist(bound, item.id, registers, &mut wanted, &mut seen);
        }
        steps.extend(self.compute(&wanted, registers));
        for item in &now {
            let from = registers[&item.id].register;
            steps.push(match item.action {
                Action::Store(to) => Step::Store { from, to },
                Action::Fold(op, into) => Step::Fold { op, from, into },
            });
        }
        while let Some(axis) = later.first().and_then(|item| item.axes.minus(bound).iter().next()) {
            let (group, rest) = later.into_iter().partition(|item| item.axes.has(axis));
            later = rest;
            let inner = self.emit(bound.with(axis), &group, &mut registers.clone());
            steps.push(Step::Loop { axis, steps: inner, sums: Vec::new() });
        }
        steps
    }

    /// The folds along one axis that come next, and the axis.
    fn next_folds(&self, bound: Axes, items: &[Item], registers: &Registers) -> Option<(Axis, Vec<Id>)> {
        let mut found = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for item in items {
            self.find_folds(bound, item.id, Axes::NONE, registers, &mut found, &mut seen);
        }
        let axis_of = |id: Id| match self.known.node(id) {
            Node::Fold(_, axis, _) => axis,
            _ => unreachable!("only folds are found"),
        };
        let (ready, rest): (Vec<Id>, Vec<Id>) =
            found.iter().copied().partition(|id| !self.needs(*id, &found, registers));
        let axis = axis_of(*ready.first()?);
        let along =
            |folds: Vec<Id>| -> Vec<Id> { folds.into_iter().filter(|id| axis_of(*id) == axis).collect() };
        let read = |id: &Id| -> BTreeSet<Id> {
            let below = self.below(self.operands(*id), &found).into_iter();
            below.filter(|id| self.is_leaf(*id) && self.axes(*id).has(axis)).collect()
        };
        let (joined, rest): (Vec<Id>, Vec<Id>) = along(rest)
            .into_iter()
            .partition(|id| self.joins(*id, (bound, axis), (&ready, &found), registers));
        let read_later: BTreeSet<Id> = rest.iter().flat_map(read).collect();
        // What only later loops need is folded by one of these, if that reads the same anyway.
        let can_wait = |id: &Id| {
            let is_needed = |other: &Id| self.needs(*other, &BTreeSet::from([*id]), registers);
            !rest.iter().chain(&joined).any(is_needed) && read(id).is_subset(&read_later)
        };
        let ready = along(ready);
        let now: Vec<Id> = ready.iter().copied().filter(|id| !can_wait(id)).collect();
        // What the others wait for may be folded along another axis.
        let mut now = if now.is_empty() { ready } else { now };
        now.extend(joined);
        Some((axis, now))
    }

    /// The folds that are to be computed in this loop: those that do not vary along the axes of folds around them, and whose
    /// numbers have room in a register.
    fn find_folds(
        &self,
        bound: Axes,
        id: Id,
        inside: Axes,
        registers: &Registers,
        found: &mut BTreeSet<Id>,
        seen: &mut BTreeSet<(Id, Axes)>,
    ) {
        if registers.contains_key(&id) || self.is_leaf(id) || !seen.insert((id, inside)) {
            return;
        }
        let mut within = inside;
        if let Node::Fold(_, axis, _) = self.known.node(id) {
            let own = self.axes(id);
            if own.both(inside).is_empty() && self.known.room.has(own.minus(bound)) {
                found.insert(id);
            }
            within = inside.with(axis);
        }
        for operand in self.operands(id) {
            self.find_folds(bound, operand, within, registers, found, seen);
        }
    }

    /// Whether a fold is computed from one of `found`.
    fn needs(&self, id: Id, found: &BTreeSet<Id>, registers: &Registers) -> bool {
        let mut pending = self.operands(id);
        let mut seen = BTreeSet::new();
        while let Some(id) = pending.pop() {
            if found.contains(&id) {
                return true;
            }
            if seen.insert(id) && !registers.contains_key(&id) {
                pending.extend(self.operands(id));
            }
        }
        false
    }

    /// Folds along an axis.
    fn fold(&mut self, bound: Axes, axis: Axis, folds: &[Id], registers: &mut Registers) -> Vec<Step> {
        let (mut wanted, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let outside = bound.without(axis);
        let online = self.online(folds);
        let mut known = registers.clone();
        // What is subtracted is known after the loop.
        let shifts = online.values().map(|of| (of.shift, Held { register: 0, everywhere: Axes::NONE }));
        known.extend(shifts);
        for operand in folds.iter().flat_map(|id| self.operands(*id)) {
            if !self.axes(operand).is_within(outside) {
                self.hoist(outside, operand, &known, &mut wanted, &mut seen);
            }
        }
        let (mut items, mut sums) = (Vec::new(), Vec::new());
        let mut steps = self.compute(&wanted, registers);
        for &id in folds {
            let Node::Fold(op, _, operand) = self.known.node(id) else { continue };
            let own = self.axes(id).minus(bound);
            let into = self.into.remove(&id).unwrap_or_else(|| self.register(own));
            steps.push(Step::Fill { register: into, value: op.identity_value() });
            if op == Fold::Sum {
                let (total, lost) = (self.register(own), self.register(own));
                sums.push(Sum { part: into, total, lost, of: id, is_again: false, is_fused: true });
            }
            let axes = self.axes(operand).with(axis);
            items.push((id, op, into, Item { id: operand, axes, action: Action::Fold(op, into) }));
        }
        let again = self.again;
        self.again = again.union(Axes::of(axis).both(bound));
        let mut inside = self.along(bound, axis, registers);
        let of = |is_online: bool| -> Vec<Item> {
            let own = items.iter().filter(|(id, ..)| online.contains_key(id) == is_online);
            own.map(|(.., item)| *item).collect()
        };
        let mut inner = self.emit(bound.with(axis), &of(false), &mut inside);
        let shifts = self.follow(&online, &sums, &mut inside);
        for (shift, follow) in &shifts {
            steps.push(Step::Fill { register: *shift, value: Online::BEGIN });
            inner.push(Step::Online(follow.clone()));
        }
        if !online.is_empty() {
            inner.extend(self.emit(bound.with(axis), &of(true), &mut inside));
        }
        self.again = again;
        steps.push(Step::Loop { axis, steps: inner, sums });
        for (id, op, into, _) in items {
            if self.lanes == Some(axis) {
                steps.push(Step::Across { op, register: into });
            }
            registers.insert(id, Held { register: into, everywhere: self.registers[into] });
        }
        steps.extend(self.settle((bound, axis), &online, &inside, registers));
        steps
    }

    /// What of the registers holds in a loop along an axis. Where that is within another loop along it, it is not what was read
    /// or computed at the position of that; nor, along the lanes, what was computed for a last block that is not full.
    fn along(&self, bound: Axes, axis: Axis, registers: &Registers) -> Registers {
        let is_within = bound.has(axis);
        let holds = |id: Id, held: Held| {
            let is_whole = self.lanes != Some(axis) && !self.axes(id).has(axis);
            !is_within || held.everywhere.has(axis) || is_whole
        };
        registers.iter().map(|(id, held)| (*id, *held)).filter(|(id, held)| holds(*id, *held)).collect()
    }

    /// The register in which a number is kept for other loops, if it is and this loop computes what they need: not where there is
    /// another loop along an axis that a position of it has no block for.
    fn to_keep(&self, id: Id) -> Option<usize> {
        let register = *self.keep.get(&id)?;
        self.again.both(self.axes(id)).is_within(self.registers[register]).then_some(register)
    }

    /// The largest parts of a number that are known in this loop and needed in loops within; not those that another loop along one
    /// of the same axes computes at its own positions.
    fn hoist(
        &self,
        bound: Axes,
        id: Id,
        registers: &Registers,
        wanted: &mut BTreeSet<Id>,
        seen: &mut BTreeSet<(Id, Axes)>,
    ) {
        let is_constant = matches!(self.known.node(id), Node::Constant(_) | Node::Attribute(_));
        if is_constant || registers.contains_key(&id) || !seen.insert((id, bound)) {
            return;
        }
        if self.axes(id).is_within(bound) {
            wanted.insert(id);
            return;
        }
        let within = match self.known.node(id) {
            Node::Fold(_, axis, _) => bound.without(axis),
            _ => bound,
        };
        for operand in self.operands(id) {
            self.hoist(within, operand, registers, wanted, seen);
        }
    }

    /// Computes numbers, which then are in registers.
    fn compute(&mut self, wanted: &BTreeSet<Id>, registers: &mut Registers) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut new: BTreeSet<Id> = wanted.iter().copied().filter(|id| !registers.contains_key(id)).collect();
        let known: BTreeSet<Id> = registers.keys().copied().collect();
        let kept = self.below(new.iter().copied(), &known);
        // Folds of these have loops of their own.
        let kept: Vec<Id> =
            kept.into_iter().filter(|id| self.to_keep(*id).is_some() && !self.kept.contains(id)).collect();
        new.extend(&kept);
        let (leaves, computed): (Vec<Id>, Vec<Id>) = new.into_iter().partition(|id| self.is_leaf(*id));
        self.kept.extend(&kept);
        let given = |id: Id| (registers.contains_key(&id) || self.is_leaf(id)).then_some(id);
        let (graph, inputs) = self.known.graph.part(&computed, given);
        for id in leaves.into_iter().chain(inputs.iter().copied()) {
            if let Entry::Vacant(entry) = registers.entry(id) {
                let to = self.register(Axes::NONE);
                steps.push(self.read(id, to));
                entry.insert(Held { register: to, everywhere: Axes::NONE });
            }
        }
        if computed.is_empty() {
            return steps;
        }
        let inputs = inputs.iter().map(|id| registers[id].register).collect();
        let outputs: Vec<usize> = computed
            .iter()
            .map(|id| self.to_keep(*id).unwrap_or_else(|| self.register(Axes::NONE)))
            .collect();
        for (id, register) in computed.iter().zip(&outputs) {
            registers.insert(*id, Held { register: *register, everywhere: Axes::NONE });
        }
        let program = Box::new(Interpreted::new(&graph));
        steps.push(Step::Compute { graph: Box::new(graph), program, inputs, outputs });
        steps
    }
}
