//! Tiles of a card: a block of threads computes numbers for positions of two free axes side by side, each thread for some of them, so
//! that what is the same along one of the two is read and computed once for all.

use std::collections::{BTreeMap, BTreeSet};

use super::uses::{Uses, flat, folded};
use super::{Nest, Online, Place, Step};
use crate::axes::{Axes, Axis};
use crate::expr::graph::Graph;
use crate::expr::interpret::Interpreted;
use crate::expr::node::{Id, Node};

/// How a block of [`SIDE`](Self::SIDE) × [`SIDE`](Self::SIDE) threads computes a nest at the positions of a tile.
#[derive(Clone, Debug)]
pub struct Tile {
    /// The two axes that a tile lies on.
    pub axes: [Axis; 2],
    /// How many positions along either axis a thread has.
    pub edge: usize,
    /// Whether there are folds that are computed once for the positions of one of the axes, and not for each of the other.
    pub saves_folds: bool,
    /// How many numbers for each position of one of the axes are in shared memory, for as many positions of a loop as a side has.
    pub(super) shared: usize,
    pub(super) sides: Sides,
    pub(super) steps: Vec<Step>,
}

/// The two axes of a tile, the first one down a block of threads and the second one across.
#[derive(Clone, Debug)]
pub(super) struct Sides {
    pub(super) axes: [Axis; 2],
    /// Of each register, along which of the two its numbers differ.
    pub(super) varies: Vec<Axes>,
}

/// A loop of a tile, by as many positions at a time as a side has.
pub(super) struct Chunk {
    /// The registers whose numbers are in shared memory.
    pub(super) shared: Vec<usize>,
    /// What computes those that differ along the first axis, and those that differ along the second.
    pub(super) fills: [Vec<Step>; 2],
    /// What is done at every position then.
    pub(super) steps: Vec<Step>,
}

impl Tile {
    /// How many threads a block has along either axis.
    pub const SIDE: usize = 16;
    /// How many bytes of shared memory a block of every card has.
    const SHARED: usize = 48 << 10;
    /// The most operations that a thread does for the positions it has, so that its code stays small.
    const OPERATIONS: usize = 512;
    /// The most words of what a thread keeps along a loop.
    const WORDS: usize = 160;

    /// The tiles for a nest, if they save anything: `axes` says on which axes an array lies, and numbers take so many words.
    pub(super) fn of(nest: &Nest, axes: &impl Fn(Place) -> Axes, words: usize) -> Option<Self> {
        let free: Vec<Axis> = nest.free.iter().collect();
        let pairs = free.iter().enumerate().flat_map(|(n, a)| free[n + 1..].iter().map(move |b| [*a, *b]));
        let [a, b] = pairs.max_by_key(|[a, b]| repeated(&nest.steps, axes, Axes::of(*a).with(*b), false))?;
        if !nest.is_shared() {
            return None;
        }
        let both = Axes::of(a).with(b);
        let mut varies = vec![Axes::NONE; nest.registers.len()];
        vary(&nest.steps, axes, both, &mut varies);
        let steps = split(&nest.steps, &mut varies);
        vary(&steps, axes, both, &mut varies);
        let sides = Sides { axes: [a, b], varies };
        let (shared, saves_folds) = sides.shared(&steps, axes, true);
        let mut tile = Self { axes: sides.axes, edge: 1, saves_folds, shared, sides, steps };
        tile.edge = [4, 2, 1].into_iter().find(|edge| tile.fits(*edge, words))?;
        (tile.shared > 0).then_some(tile)
    }

    /// How many numbers lie between those of a position of the loop and the next one: so that threads reach different banks.
    pub(super) const fn stride(edge: usize) -> usize {
        Self::SIDE * edge + if edge > 1 { 4 } else { 1 }
    }

    fn fits(&self, edge: usize, words: usize) -> bool {
        let both = Axes::of(self.axes[0]).with(self.axes[1]);
        let is_full = |register: &usize| self.sides.varies[*register] == both;
        let loops = self.steps.iter().filter_map(|step| match step {
            Step::Loop { steps, .. } => Some(folded(steps)),
            _ => None,
        });
        // A fold has its own register, and a sum two more.
        let kept = loops.flatten().filter(|(register, _)| is_full(register)).count() * 3;
        let is_loop = |step: &&Step| {
            matches!(step, Step::Loop { .. } | Step::Fill { .. } | Step::Online(Online::Unless { .. }))
        };
        let outside = self.steps.iter().filter(|step| !is_loop(step));
        let outside = outside.flat_map(|step| Uses::of(std::slice::from_ref(step)).written);
        let kept = kept + outside.filter(is_full).count();
        let shared = self.shared * Self::SIDE * Self::stride(edge) * words * 4;
        shared <= Self::SHARED
            && (edge == 1
                || operations(&self.steps, &is_full) * edge * edge <= Self::OPERATIONS
                    && kept * edge * edge * words <= Self::WORDS)
    }
}

impl Sides {
    /// How many numbers for each position of a side loops need in shared memory, which they have one after another; and whether what fills
    /// it has loops. With `fills`, those have some of it beside.
    fn shared(&self, steps: &[Step], axes: &impl Fn(Place) -> Axes, fills: bool) -> (usize, bool) {
        let mut found = (0, false);
        for step in flat(steps) {
            let Step::Loop { axis, steps, .. } = step else { continue };
            let own = match self.chunk(steps) {
                Some(chunk) => {
                    let is_loop = |step: &Step| matches!(step, Step::Loop { .. });
                    let within = [0, 1].into_iter().filter(|_| fills).map(|which| {
                        self.of_fill(which, *axis, &chunk.fills[which], axes)
                            .shared(&chunk.fills[which], axes, false)
                            .0
                    });
                    let within = within.max().unwrap_or(0);
                    (chunk.shared.len() + within, chunk.fills.iter().flatten().any(is_loop))
                }
                None => self.shared(steps, axes, fills),
            };
            found = (found.0.max(own.0), found.1 || own.1);
        }
        found
    }

    /// Those of what fills shared memory for one of the two in a loop along an axis: the other one is that axis.
    pub(super) fn of_fill(
        &self,
        which: usize,
        axis: Axis,
        fill: &[Step],
        axes: &impl Fn(Place) -> Axes,
    ) -> Self {
        let mut own = self.axes;
        own[1 - which] = axis;
        let one = Axes::of(self.axes[which]);
        let mut varies = self.varies.iter().map(|varies| varies.both(one)).collect::<Vec<_>>();
        vary(fill, axes, one.with(axis), &mut varies);
        Self { axes: own, varies }
    }

    /// A loop of these steps as one of which shared memory has some positions at a time, if that saves anything and nothing that
    /// differs along both axes has a loop of its own.
    pub(super) fn chunk(&self, steps: &[Step]) -> Option<Chunk> {
        let folds: BTreeSet<usize> = folded(steps).into_iter().map(|(register, _)| register).collect();
        let along = |which: usize, register: &usize| self.varies[*register] == Axes::of(self.axes[which]);
        let written = Uses::of(steps).written;
        let is_shared = |register: &usize| along(0, register) || along(1, register);
        let stops = written.difference(&folds).copied().filter(is_shared).collect();
        let mut needed = folds;
        let own = slice(steps, &mut needed, &stops, true);
        let shared: Vec<usize> = needed.intersection(&stops).copied().collect();
        if shared.is_empty() || own.iter().any(|step| matches!(step, Step::Loop { .. })) {
            return None;
        }
        let fills = [0, 1].map(|which| {
            let mut needed = shared.iter().copied().filter(|register| along(which, register)).collect();
            slice(steps, &mut needed, &BTreeSet::new(), false)
        });
        // What follows numbers in one thread is not known in those that fill shared memory.
        let follows = fills.iter().flatten().any(|step| matches!(step, Step::Online(_)));
        (!follows).then_some(Chunk { shared, fills, steps: own })
    }
}

/// How many reads in loops are the same along one axis of a pair.
fn repeated(steps: &[Step], axes: &impl Fn(Place) -> Axes, pair: Axes, is_within: bool) -> usize {
    let count = |step: &Step| match step {
        Step::Load { from, .. } if is_within => usize::from(axes(*from).both(pair).len() == 1),
        Step::Loop { axis, steps, .. } => repeated(steps, axes, pair.without(*axis), true),
        _ => 0,
    };
    steps.iter().map(count).sum()
}

/// How many operations are done for each position of both axes.
fn operations(steps: &[Step], is_full: &impl Fn(&usize) -> bool) -> usize {
    let count = |step: &Step| match step {
        Step::Compute { graph, outputs, .. } if outputs.iter().any(is_full) => graph.nodes().len(),
        Step::Loop { steps, .. } => operations(steps, is_full),
        _ => 0,
    };
    steps.iter().map(count).sum()
}

/// Of each node, along which axes its numbers differ, if those of inputs do along these.
fn differing(graph: &Graph, inputs: &[usize], varies: &[Axes]) -> Vec<Axes> {
    let mut found: Vec<Axes> = Vec::new();
    for node in graph.nodes() {
        found.push(match *node {
            Node::Input(position) => varies[inputs[position as usize]],
            node => node.operands().map(|id| found[id.index()]).fold(Axes::NONE, Axes::union),
        });
    }
    found
}

/// Finds along which axes of a pair the numbers of registers differ.
fn vary(steps: &[Step], axes: &impl Fn(Place) -> Axes, pair: Axes, varies: &mut [Axes]) {
    loop {
        let before = varies.to_vec();
        vary_once(steps, axes, pair, varies);
        if before == varies {
            return;
        }
    }
}

fn vary_once(steps: &[Step], axes: &impl Fn(Place) -> Axes, pair: Axes, varies: &mut [Axes]) {
    for step in steps {
        match step {
            Step::Load { from, to } => varies[*to] = axes(*from).both(pair),
            Step::Index { axis, to } => varies[*to] = Axes::of(*axis).both(pair),
            Step::Compute { graph, inputs, outputs, .. } => {
                let found = differing(graph, inputs, varies);
                for (register, id) in outputs.iter().zip(graph.outputs()) {
                    varies[*register] = found[id.index()];
                }
            }
            Step::Fold { from, into, .. } => varies[*into] = varies[*into].union(varies[*from]),
            Step::Loop { axis, steps, sums } => {
                vary_once(steps, axes, pair.without(*axis), varies);
                for sum in sums {
                    (varies[sum.total], varies[sum.lost]) = (varies[sum.part], varies[sum.part]);
                }
            }
            Step::Online(Online::Follow { number, shift, sums }) => {
                varies[*shift] = varies[*number];
                sums.iter().for_each(|sum| varies[sum.part] = varies[sum.part].union(varies[*shift]));
            }
            Step::Online(Online::Settle { shift, to, sums }) => {
                let own = varies[*shift].union(varies[*to]);
                sums.iter().for_each(|sum| varies[*sum] = varies[*sum].union(own));
            }
            Step::Online(Online::Unless { steps, .. }) => vary_once(steps, axes, pair, varies),
            Step::Store { .. } | Step::Count { .. } | Step::Fill { .. } | Step::Across { .. } => {}
        }
    }
}

/// The steps, with what differs along fewer axes computed apart from what is made of it.
fn split(steps: &[Step], varies: &mut Vec<Axes>) -> Vec<Step> {
    let mut found = Vec::new();
    for step in steps {
        match step {
            Step::Compute { graph, inputs, outputs, .. } => {
                found.extend(split_one(graph, inputs, outputs, varies));
            }
            Step::Loop { axis, steps, sums } => {
                found.push(Step::Loop { axis: *axis, steps: split(steps, varies), sums: sums.clone() });
            }
            Step::Online(Online::Unless { finite, steps }) => {
                let (finite, steps) = (finite.clone(), split(steps, varies));
                found.push(Step::Online(Online::Unless { finite, steps }));
            }
            other => found.push(other.clone()),
        }
    }
    found
}

fn split_one(graph: &Graph, inputs: &[usize], outputs: &[usize], varies: &mut Vec<Axes>) -> Vec<Step> {
    let own = differing(graph, inputs, varies);
    let is_leaf = |node: Node| matches!(node, Node::Input(_) | Node::Constant(_) | Node::Attribute(_));
    let mut held: BTreeMap<Id, usize> = BTreeMap::new();
    let mut wanted: Vec<(Id, usize)> = graph.outputs().iter().copied().zip(outputs.iter().copied()).collect();
    held.extend(wanted.iter().copied().filter(|(id, _)| !is_leaf(graph.nodes()[id.index()])));
    for (index, node) in graph.nodes().iter().enumerate() {
        for id in node.operands().filter(|id| own[id.index()] != own[index]) {
            if !is_leaf(graph.nodes()[id.index()]) && !held.contains_key(&id) {
                varies.push(own[id.index()]);
                held.insert(id, varies.len() - 1);
                wanted.push((id, varies.len() - 1));
            }
        }
    }
    let kinds: BTreeSet<(usize, Axes)> =
        wanted.iter().map(|(id, _)| own[id.index()]).map(|axes| (axes.len(), axes)).collect();
    let steps = kinds.into_iter().map(|(_, axes)| {
        let (ids, outputs): (Vec<Id>, Vec<usize>) =
            wanted.iter().copied().filter(|(id, _)| own[id.index()] == axes).unzip();
        let given = |id: Id| match graph.nodes()[id.index()] {
            Node::Input(position) => Some(inputs[position as usize]),
            _ => held.get(&id).copied().filter(|_| own[id.index()] != axes),
        };
        let (graph, inputs) = graph.part(&ids, given);
        let program = Box::new(Interpreted::new(&graph));
        Step::Compute { graph: Box::new(graph), program, inputs, outputs }
    });
    steps.collect()
}

/// What of some steps computes the registers that are needed, but for those at which it stops, and perhaps what writes to memory; what
/// has to be known before is needed then.
fn slice(steps: &[Step], needed: &mut BTreeSet<usize>, stops: &BTreeSet<usize>, writes: bool) -> Vec<Step> {
    let mut found = Vec::new();
    for step in steps.iter().rev() {
        if let Step::Loop { axis, steps, sums } = step {
            let mut own = needed.clone();
            let steps = slice(steps, &mut own, stops, writes);
            if !steps.is_empty() {
                let sums = sums.iter().copied().filter(|sum| needed.contains(&sum.part)).collect();
                found.push(Step::Loop { axis: *axis, steps, sums });
                *needed = own;
            }
            continue;
        }
        let uses = Uses::of(std::slice::from_ref(step));
        let is_store = writes && matches!(step, Step::Store { .. });
        let is_wanted =
            uses.written.iter().any(|register| needed.contains(register) && !stops.contains(register));
        if is_store || is_wanted {
            needed.retain(|register| !uses.written.contains(register));
            needed.extend(uses.read);
            found.push(step.clone());
        }
    }
    found.reverse();
    found
}
