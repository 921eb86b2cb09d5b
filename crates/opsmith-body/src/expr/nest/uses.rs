//! What steps read and write, and whether threads can share the loops of a nest.

use std::collections::BTreeSet;

use super::{Nest, Online, Place, Step};
use crate::axes::Axis;
use crate::expr::node::Fold;

/// The registers that steps fold into and do not fill themselves, and how.
pub(super) fn folded(steps: &[Step]) -> Vec<(usize, Fold)> {
    let mut found: Vec<(usize, Fold)> = Vec::new();
    let (mut filled, mut pending) = (BTreeSet::new(), vec![steps]);
    while let Some(steps) = pending.pop() {
        for step in steps {
            match step {
                Step::Fill { register, .. } => {
                    filled.insert(*register);
                }
                Step::Fold { op, into, .. } if !found.contains(&(*into, *op)) => found.push((*into, *op)),
                Step::Online(Online::Follow { shift, .. }) => found.push((*shift, Fold::Max)),
                Step::Online(Online::Unless { steps, .. }) | Step::Loop { steps, .. } => pending.push(steps),
                _ => {}
            }
        }
    }
    found.retain(|(register, _)| !filled.contains(register));
    found
}

/// The registers that steps read before they are written, and all that are written.
#[derive(Default)]
pub(super) struct Uses {
    pub(super) read: BTreeSet<usize>,
    pub(super) written: BTreeSet<usize>,
}

impl Uses {
    pub(super) fn of(steps: &[Step]) -> Self {
        let mut uses = Self::default();
        steps.iter().for_each(|step| uses.step(step));
        uses
    }

    fn reads(&mut self, register: usize) {
        if !self.written.contains(&register) {
            self.read.insert(register);
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Load { to, .. } | Step::Index { to, .. } | Step::Count { to, .. } => {
                self.written.insert(*to);
            }
            Step::Store { from, .. } => self.reads(*from),
            Step::Compute { inputs, outputs, .. } => {
                inputs.iter().for_each(|input| self.reads(*input));
                self.written.extend(outputs);
            }
            Step::Fill { register, .. } => {
                self.written.insert(*register);
            }
            Step::Fold { from, into, .. } => {
                self.reads(*from);
                self.reads(*into);
                self.written.insert(*into);
            }
            Step::Loop { steps, .. } => steps.iter().for_each(|step| self.step(step)),
            Step::Across { register, .. } => self.reads(*register),
            Step::Online(online) => self.online(online),
        }
    }

    fn online(&mut self, online: &Online) {
        match online {
            Online::Follow { number, shift, sums } => {
                let scaled = sums.iter().map(|sum| sum.part).chain([*shift]);
                scaled.clone().chain([*number]).for_each(|register| self.reads(register));
                self.written.extend(scaled);
            }
            Online::Settle { shift, to, sums } => {
                sums.iter().chain([shift, to]).for_each(|register| self.reads(*register));
                self.written.extend(sums);
            }
            Online::Unless { finite, steps } => {
                finite.iter().for_each(|register| self.reads(*register));
                steps.iter().for_each(|step| self.step(step));
            }
        }
    }
}

/// The steps, with those of a condition in its place.
pub(super) fn flat(steps: &[Step]) -> Vec<&Step> {
    let of = |step| match step {
        &Step::Online(Online::Unless { ref steps, .. }) => steps.iter().collect(),
        step => vec![step],
    };
    steps.iter().flat_map(of).collect()
}

impl Nest {
    /// Whether there are sums that are scaled while a number grows.
    pub fn follows(&self) -> bool {
        flat(&self.steps).iter().any(|step| {
            matches!(step, Step::Loop { steps, .. }
                if steps.iter().any(|step| matches!(step, Step::Online(Online::Follow { .. }))))
        })
    }

    /// Calls `act` with what its loops read: the innermost axis gone along, and from where.
    pub fn for_each_load(&self, act: &mut impl FnMut(Axis, Place)) {
        fn go(steps: &[Step], along: Option<Axis>, act: &mut impl FnMut(Axis, Place)) {
            for step in steps {
                match step {
                    Step::Loop { axis, steps, .. } => go(steps, Some(*axis), act),
                    Step::Online(Online::Unless { steps, .. }) => go(steps, along, act),
                    Step::Load { from, .. } => along.into_iter().for_each(|axis| act(axis, *from)),
                    _ => {}
                }
            }
        }
        go(&self.steps, None, act);
    }

    /// How many loops threads share, one after another, how many folds these have in all, and whether something comes after the last one.
    pub fn shared_loops(&self) -> (usize, usize, bool) {
        let steps = flat(&self.steps);
        let loops = steps.iter().filter_map(|step| match step {
            Step::Loop { steps, .. } => Some(folded(steps).len()),
            _ => None,
        });
        let folds: Vec<usize> = loops.collect();
        let is_last = matches!(self.steps.last(), Some(Step::Loop { .. })) && folds.last() == Some(&0);
        (folds.len(), folds.iter().sum(), !is_last)
    }

    /// Whether threads can share the loops of a position: what they leave behind are folds, which are put together.
    pub fn is_shared(&self) -> bool {
        let (mut stale, mut has_loops) = (BTreeSet::new(), false);
        for step in flat(&self.steps) {
            let uses = Uses::of(std::slice::from_ref(step));
            if !uses.read.is_disjoint(&stale) {
                return false;
            }
            stale.retain(|register| !uses.written.contains(register));
            if let Step::Loop { steps, .. } = step {
                has_loops = true;
                let folded: BTreeSet<usize> =
                    folded(steps).into_iter().map(|(register, _)| register).collect();
                stale.extend(uses.written.difference(&folded));
            }
        }
        let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
        places(&self.steps, &mut read, &mut written);
        has_loops && read.is_disjoint(&written)
    }
}

/// What steps read and write.
fn places(steps: &[Step], read: &mut BTreeSet<Place>, written: &mut BTreeSet<Place>) {
    for step in steps {
        match step {
            Step::Load { from, .. } => {
                read.insert(*from);
            }
            Step::Store { to, .. } => {
                written.insert(*to);
            }
            Step::Loop { steps, .. } | Step::Online(Online::Unless { steps, .. }) => {
                places(steps, read, written);
            }
            _ => {}
        }
    }
}
