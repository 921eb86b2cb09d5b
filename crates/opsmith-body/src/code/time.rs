//! Roughly how long a nest takes with a tile.

use super::straight::Straight;
use super::vectors::Vectors;
use super::wanted::{Tile, Wanted};
use crate::axes::{Axes, Axis};
use crate::expr::{Binary, Fold, Node, Step, Unary};

/// As many instructions could be done while a sum waits for the one before.
const WAIT: f64 = 16.0;
/// Instructions of a turn of a loop.
const TURN: f64 = 4.0;

/// How long the positions of a tile take.
pub(super) struct Time<'a> {
    pub(super) wanted: &'a Wanted<'a>,
    pub(super) straight: Straight<'a>,
    pub(super) varies: &'a [Axes],
    pub(super) carried: &'a [bool],
    pub(super) vectors: Vectors,
    /// Whether a loop that computes several positions in a turn is around.
    pub(super) is_inner: bool,
}

impl Time<'_> {
    /// How many positions are computed side by side.
    fn counts(&self) -> impl Iterator<Item = (Axis, usize)> {
        let Tile { counts, inner, .. } = self.wanted.tile;
        counts.iter().copied().chain(inner.filter(|_| self.is_inner))
    }

    /// The part of the positions for which something has to be done that differs along some axes.
    fn share(&self, axes: Axes) -> f64 {
        let others = self.counts().filter(|(axis, _)| !axes.has(*axis));
        others.map(|(_, count)| 1.0 / count as f64).product()
    }

    pub(super) fn of(&self, steps: &[Step]) -> f64 {
        steps.iter().map(|step| self.of_step(step)).sum()
    }

    fn of_step(&self, step: &Step) -> f64 {
        match step {
            Step::Load { from, to } => {
                let lies = &self.wanted.lies[from.argument(self.wanted.counts)];
                let lanes = self.wanted.nest.lanes.filter(|lanes| lies.axes.has(*lanes));
                let is_gathered = lanes.is_some_and(|lanes| !lies.dense.has(lanes));
                self.share(self.varies[*to]) * if is_gathered { 20.0 } else { 1.0 }
            }
            Step::Compute { graph, inputs, .. } => {
                let mut axes: Vec<Axes> = Vec::with_capacity(graph.nodes().len());
                let mut time = 0.0;
                for node in graph.nodes() {
                    let own = match node {
                        Node::Input(position) => self.varies[inputs[*position as usize]],
                        _ => node.operands().map(|id| axes[id.index()]).fold(Axes::NONE, Axes::union),
                    };
                    time += self.share(own) * instructions(*node);
                    axes.push(own);
                }
                time
            }
            // What is carried from position to position is folded for each.
            Step::Fold { into, .. } => self.share(self.varies[*into].union(self.carried_along(*into))),
            Step::Loop { axis, steps, .. } => {
                let is_inner = self.is_inner || self.straight.is_inner(*axis, steps);
                let own = Time { is_inner, ..*self };
                own.of_loop(*axis, steps)
            }
            Step::Across { op, register } => {
                let own = self.varies[*register];
                let together: usize =
                    self.counts().filter(|(axis, _)| own.has(*axis)).map(|(_, count)| count).product();
                // A move and an addition for each halving, of extremes a look for NaN too; of several vectors at once about half.
                let pairs = self.vectors.width().ilog2() as f64;
                let fold = if matches!(op, Fold::Max | Fold::Min) { 4.0 } else { 2.0 };
                self.share(own) * pairs * fold * if together > 1 { 0.5 } else { 1.0 }
            }
            _ => 0.0,
        }
    }

    fn carried_along(&self, register: usize) -> Axes {
        match self.wanted.tile.inner {
            Some((axis, _)) if self.carried[register] => Axes::of(axis),
            _ => Axes::NONE,
        }
    }

    fn of_loop(&self, axis: Axis, steps: &[Step]) -> f64 {
        let size = self.wanted.sizes[axis.index()];
        let is_lanes = self.wanted.nest.lanes == Some(axis);
        let turns = if is_lanes { size.div_ceil(self.vectors.width()) } else { size };
        let is_innermost = steps.iter().all(|step| !matches!(step, Step::Loop { .. }));
        // What moves along the loop is read and written for each fold, the others stay in registers.
        let (mut folded, mut moved) = (0.0, 0.0);
        for step in steps {
            if let Step::Fold { into, .. } = step {
                let share = self.share(self.varies[*into]);
                match self.wanted.nest.registers[*into].has(axis) {
                    true => moved += 2.0 * share,
                    false => folded += share / self.share(Axes::NONE),
                }
            }
        }
        let positions = self.counts().map(|(_, count)| count).product::<usize>();
        if is_innermost && positions > 1 && folded > (self.vectors.registers() / 2) as f64 {
            return f64::INFINITY;
        }
        // Along the lanes several vectors are folded side by side in any case.
        let wait = if is_innermost && folded > 0.0 && !is_lanes { WAIT } else { 0.0 };
        turns as f64 * (self.of(steps) + moved + TURN / positions as f64).max(wait / positions as f64)
    }
}

/// Roughly how many instructions a node of a graph is.
fn instructions(node: Node) -> f64 {
    match node {
        Node::Input(_) | Node::Constant(_) | Node::Attribute(_) | Node::Detached(_) => 0.0,
        Node::Binary(Binary::Div, ..) => 5.0,
        Node::Binary(Binary::Pow, ..) => 60.0,
        Node::Unary(Unary::Neg | Unary::Abs | Unary::Floor, _) => 1.0,
        Node::Unary(Unary::Sign, _) => 4.0,
        Node::Unary(Unary::Sqrt, _) => 6.0,
        Node::Unary(..) => 20.0,
        _ => 1.0,
    }
}
