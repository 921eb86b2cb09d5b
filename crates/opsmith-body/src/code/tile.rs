//! Which positions of the outermost loops are computed side by side, and of loops with others in them, so that what is read or computed
//! for one is there for others, and sums need not wait for each other.

use super::straight::{MOST_VECTORS, Straight};
use super::time::Time;
use super::vectors::Vectors;
use super::wanted::{Lies, Tile, Wanted};
use crate::axes::{Axes, Axis};
use crate::expr::Step;

/// How many rows there are in tiles, and how many vectors or rows of another kind.
const SHAPES: [(usize, usize); 10] =
    [(4, 4), (8, 2), (4, 2), (2, 4), (4, 1), (8, 1), (2, 2), (2, 1), (1, 4), (1, 2)];
/// The part of the time that a tile takes at most.
const WORTH: f64 = 0.9;
/// As many tiles there have to be, so that threads can share them.
const LEAST_UNITS: usize = 16;
/// The most vectors of all registers of a tile.
const MOST_COPIES: usize = 4096;
/// How many positions a turn of a loop with others in it computes.
const INNER: [usize; 2] = [4, 2];

impl Tile {
    /// The tile in which the positions of a nest take the least time, and the part of the time that they take alone.
    pub fn best(wanted: &Wanted<'_>, vectors: Vectors) -> (Self, f64) {
        Self::best_of(wanted, vectors, shapes(wanted, vectors))
    }

    /// The same of one position of the outermost loops, for a loop that is gone along in parts.
    pub fn best_in_parts(wanted: &Wanted<'_>, vectors: Vectors) -> (Self, f64) {
        let mut shapes = shapes(wanted, vectors);
        shapes.truncate(1);
        Self::best_of(wanted, vectors, shapes)
    }

    /// The best of such shapes, of which the first one is a single position.
    fn best_of(wanted: &Wanted<'_>, vectors: Vectors, mut shapes: Vec<Vec<(Axis, usize)>>) -> (Self, f64) {
        let single = Tile { counts: shapes.remove(0), last: vectors.width(), inner: None };
        let alone = single.time(wanted, vectors);
        let (mut best, mut least) = (single.clone(), alone * WORTH);
        for counts in [single.counts.clone()].into_iter().chain(shapes) {
            for inner in inner_turns(wanted) {
                let tile = Tile { counts: counts.clone(), inner, ..single };
                if tile.positions() * inner.map_or(1, |(_, count)| count) > vectors.registers() / 2 {
                    continue;
                }
                let time = tile.time(wanted, vectors);
                if time < least {
                    (best, least) = (tile, time);
                }
            }
        }
        let part = if best == single { 1.0 } else { least / alone };
        (best, part)
    }

    /// Roughly the instructions for each position of the tile, endless if its sums have no registers.
    fn time(&self, wanted: &Wanted<'_>, vectors: Vectors) -> f64 {
        let wanted = Wanted { tile: self, ..*wanted };
        let straight = Straight::new(&wanted, vectors, MOST_VECTORS);
        let varies = varying(&wanted, &straight);
        let copies = |axes: &Axes| {
            let of_inner = self.inner.filter(|(axis, _)| axes.has(*axis)).map_or(1, |(_, count)| count);
            of_inner * axes.iter().map(|axis| self.count(axis)).product::<usize>()
        };
        let of_register = |(axes, varies): (&Axes, &Axes)| {
            axes.iter()
                .map(|axis| wanted.sizes[axis.index()])
                .product::<usize>()
                .saturating_mul(copies(&varies.minus(*axes)))
        };
        let is_own = |lies: &Lies| {
            self.axes().is_within(lies.axes) && wanted.nest.lanes.is_some_and(|lanes| lies.axes.has(lanes))
        };
        let all = wanted.nest.registers.iter().zip(&varies).map(of_register).fold(0, usize::saturating_add);
        // Rows of which each is read on its own, vector by vector, are better read one after another, unless they are so short that
        // registers have all of them.
        let is_inner =
            self.positions() > 1 && wanted.nest.lanes.is_some_and(|lanes| !wanted.nest.free.has(lanes));
        let is_in_registers = wanted.nest.steps.iter().all(|step| straight.has(step))
            && self.positions() * straight.vectors_along_lanes() <= vectors.registers() * 3 / 4;
        let is_apart = is_inner && !is_in_registers && wanted.lies.iter().any(is_own);
        if self.positions() > 1 && all > MOST_COPIES || is_apart {
            return f64::INFINITY;
        }
        let carried = carried(&wanted, &straight);
        let (varies, carried) = (&varies, &carried);
        Time { wanted: &wanted, straight, varies, carried, vectors, is_inner: false }.of(&wanted.nest.steps)
    }
}

/// How many positions there may be along axes of the outermost loops, first one along each.
fn shapes(wanted: &Wanted<'_>, vectors: Vectors) -> Vec<Vec<(Axis, usize)>> {
    let nest = wanted.nest;
    let lanes = nest.lanes.filter(|lanes| nest.free.has(*lanes));
    let size = |axis: Axis| wanted.sizes[axis.index()];
    let looped = looped(&nest.steps);
    let is_near = |axis: Axis| wanted.lies.iter().all(|lies| lies.is_near(axis));
    let rows: Vec<Axis> =
        nest.free.minus(looped).iter().filter(|axis| lanes != Some(*axis) && is_near(*axis)).collect();
    let second = lanes.filter(|lanes| !looped.has(*lanes) && is_near(*lanes));
    let positions = |axis: Axis| if lanes == Some(axis) { size(axis) / vectors.width() } else { size(axis) };
    let units = nest.free.iter().map(positions).fold(1, usize::saturating_mul);
    let mut pairs: Vec<[Option<Axis>; 2]> = rows.iter().map(|row| [Some(*row), second]).collect();
    if lanes.is_none() {
        for (index, row) in rows.iter().enumerate() {
            pairs.extend(rows[..index].iter().map(|other| [Some(*row), Some(*other)]));
        }
    }
    pairs.push([None, second]);
    let mut found = vec![lanes.map(|lanes| (lanes, 1)).into_iter().collect()];
    for ([row, other], (first, more)) in pairs.iter().flat_map(|pair| SHAPES.map(|shape| (*pair, shape))) {
        let fits =
            |axis: Option<Axis>, count: usize| axis.map_or(count == 1, |axis| count <= positions(axis));
        if fits(row, first) && fits(other, more) && units / (first * more) >= LEAST_UNITS {
            let own = lanes.filter(|_| other.is_none()).map(|lanes| (lanes, 1));
            let axes = [row.map(|row| (row, first)), other.map(|other| (other, more))];
            found.push(axes.into_iter().flatten().chain(own).collect());
        }
    }
    found
}

/// How many positions a turn may compute of loops with others in them, and along which axis.
fn inner_turns(wanted: &Wanted<'_>) -> impl Iterator<Item = Option<(Axis, usize)>> {
    let nest = wanted.nest;
    let is_near = |axis: &Axis| wanted.lies.iter().all(|lies| lies.is_near(*axis));
    let axes = inner_axes(&nest.steps).minus(nest.free).iter();
    let axes = axes.filter(|axis| nest.lanes != Some(*axis)).filter(is_near);
    let turns = axes.flat_map(|axis| INNER.map(|count| (axis, count)));
    let turns = turns.filter(|(axis, count)| wanted.sizes[axis.index()] >= 2 * count);
    [None].into_iter().chain(turns.map(Some))
}

/// The axes of loops with others in them, but for those along which a loop is within another one.
fn inner_axes(steps: &[Step]) -> Axes {
    fn find(steps: &[Step], around: Axes, (found, again): (&mut Axes, &mut Axes)) {
        for step in steps {
            if let Step::Loop { axis, steps, .. } = step {
                if around.has(*axis) {
                    *again = again.with(*axis);
                }
                if steps.iter().any(|step| matches!(step, Step::Loop { .. })) {
                    *found = found.with(*axis);
                }
                find(steps, around.with(*axis), (found, again));
            }
        }
    }
    let (mut found, mut again) = (Axes::NONE, Axes::NONE);
    find(steps, Axes::NONE, (&mut found, &mut again));
    found.minus(again)
}

/// The axes along which there are loops.
fn looped(steps: &[Step]) -> Axes {
    let of_step = |step: &Step| match step {
        Step::Loop { axis, steps, .. } => looped(steps).with(*axis),
        _ => Axes::NONE,
    };
    steps.iter().map(of_step).fold(Axes::NONE, Axes::union)
}

/// Along which axes of the tile each register differs.
pub(super) fn varying(wanted: &Wanted<'_>, straight: &Straight<'_>) -> Vec<Axes> {
    let mut varies = vec![Axes::NONE; wanted.nest.registers.len()];
    let carried = carried(wanted, straight);
    // What a loop folds may be read in it.
    loop {
        let before = varies.clone();
        spread(wanted, &wanted.nest.steps, &mut varies);
        vary_inside(wanted, straight, &carried, &mut varies);
        if before == varies {
            return varies;
        }
    }
}

/// The same for code. A loop that is written out is done for one position of the tile after another, so what is given in it is there
/// for each.
pub(super) fn varying_in_code(wanted: &Wanted<'_>, straight: &Straight<'_>) -> Vec<Axes> {
    let mut varies = varying(wanted, straight);
    let carried = carried(wanted, straight);
    loop {
        let before = varies.clone();
        spread(wanted, &wanted.nest.steps, &mut varies);
        given_in_short_loops(straight, &wanted.nest.steps, &mut |register| {
            varies[register] = wanted.tile.axes()
        });
        vary_inside(wanted, straight, &carried, &mut varies);
        if before == varies {
            return varies;
        }
    }
}

/// The registers that loops with several positions in a turn carry from one position to the next: what is folded in them and began before.
pub(super) fn carried(wanted: &Wanted<'_>, straight: &Straight<'_>) -> Vec<bool> {
    fn find(straight: &Straight<'_>, steps: &[Step], found: &mut [bool]) {
        for step in steps {
            let Step::Loop { axis, steps: own, .. } = step else { continue };
            if straight.is_inner(*axis, own) {
                folded(own, &mut |register| found[register] |= !begins(own, register));
            }
            find(straight, own, found);
        }
    }
    let mut found = vec![false; wanted.nest.registers.len()];
    if wanted.tile.inner.is_some() {
        find(straight, &wanted.nest.steps, &mut found);
    }
    found
}

fn folded(steps: &[Step], found: &mut impl FnMut(usize)) {
    for step in steps {
        match step {
            Step::Fold { into, .. } => found(*into),
            Step::Loop { steps, .. } => folded(steps, found),
            _ => {}
        }
    }
}

/// Whether steps give a register its first value.
pub(super) fn begins(steps: &[Step], register: usize) -> bool {
    steps.iter().any(|step| match step {
        Step::Fill { register: own, .. } => *own == register,
        Step::Loop { steps, .. } => begins(steps, register),
        _ => false,
    })
}

/// Along the inner axis that differs which is given in its loops and not carried, or has a place of its own for each position.
fn vary_inside(wanted: &Wanted<'_>, straight: &Straight<'_>, carried: &[bool], varies: &mut [Axes]) {
    fn find(straight: &Straight<'_>, steps: &[Step], given: &mut [bool]) {
        for step in steps {
            match step {
                Step::Loop { axis, steps, .. } if straight.is_inner(*axis, steps) => {
                    each_given(steps, &mut |register| given[register] = true);
                }
                Step::Loop { steps, .. } => find(straight, steps, given),
                _ => {}
            }
        }
    }
    let Some((inner, _)) = wanted.tile.inner else { return };
    let mut given = vec![false; varies.len()];
    find(straight, &wanted.nest.steps, &mut given);
    for (register, varies) in varies.iter_mut().enumerate() {
        if wanted.nest.registers[register].has(inner) {
            *varies = varies.with(inner);
        } else if carried[register] || !given[register] {
            *varies = varies.without(inner);
        }
    }
}

fn given_in_short_loops(straight: &Straight<'_>, steps: &[Step], found: &mut impl FnMut(usize)) {
    for step in steps {
        if let Step::Loop { axis, steps, .. } = step {
            match straight.is_written_out(*axis, steps) {
                true => each_given(steps, found),
                false => given_in_short_loops(straight, steps, found),
            }
        }
    }
}

pub(super) fn each_given(steps: &[Step], found: &mut impl FnMut(usize)) {
    for step in steps {
        match step {
            Step::Load { to, .. } | Step::Index { to, .. } | Step::Count { to, .. } => found(*to),
            Step::Compute { outputs, .. } => outputs.iter().for_each(|output| found(*output)),
            Step::Fill { register, .. } | Step::Across { register, .. } => found(*register),
            Step::Online(_) => unreachable!("only cards have these"),
            Step::Fold { into, .. } => found(*into),
            Step::Loop { steps, sums, .. } => {
                sums.iter().flat_map(|sum| [sum.part, sum.total, sum.lost]).for_each(&mut *found);
                each_given(steps, found);
            }
            Step::Store { .. } => {}
        }
    }
}

fn spread(wanted: &Wanted<'_>, steps: &[Step], varies: &mut [Axes]) {
    let tile = wanted.tile.axes();
    for step in steps {
        match step {
            Step::Load { from, to } => {
                varies[*to] = varies[*to].union(wanted.lies[from.argument(wanted.counts)].axes.both(tile));
            }
            Step::Index { axis, to } => varies[*to] = varies[*to].union(Axes::of(*axis).both(tile)),
            Step::Compute { inputs, outputs, .. } => {
                // They are computed together, wherever one of them is.
                let all = inputs.iter().chain(outputs).map(|own| varies[*own]);
                let all = all.fold(Axes::NONE, Axes::union);
                outputs.iter().for_each(|output| varies[*output] = all);
            }
            Step::Fold { from, into, .. } => varies[*into] = varies[*into].union(varies[*from]),
            Step::Loop { steps, sums, .. } => {
                spread(wanted, steps, varies);
                for sum in sums {
                    (varies[sum.total], varies[sum.lost]) = (varies[sum.part], varies[sum.part]);
                }
            }
            Step::Store { .. } | Step::Count { .. } | Step::Fill { .. } | Step::Across { .. } => {}
            Step::Online(_) => unreachable!("only cards have these"),
        }
    }
}
