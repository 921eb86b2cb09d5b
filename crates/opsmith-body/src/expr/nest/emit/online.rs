//! Sums of exponentials in the loop of the largest number.

use std::collections::{BTreeMap, BTreeSet};

use super::{Emitter, Held, Registers};
use crate::axes::{Axes, Axis};
use crate::expr::nest::known::Exponentials;
use crate::expr::nest::{Online, Step, Sum};
use crate::expr::node::Id;

impl Emitter<'_> {
    /// Whether a sum of exponentials can be computed in the loop of the largest number, which is ready along an axis.
    pub(super) fn joins(
        &self,
        id: Id,
        (bound, axis): (Axes, Axis),
        (ready, found): (&[Id], &BTreeSet<Id>),
        registers: &Registers,
    ) -> bool {
        let Some(Exponentials { largest, shift, .. }) = self.known.online.get(&id) else { return false };
        let mut registers = registers.clone();
        let is_new = registers.insert(*shift, Held { register: 0, everywhere: Axes::NONE }).is_none();
        let is_ready = is_new && ready.contains(largest) && !bound.has(axis);
        let others = found.iter().copied().filter(|other| other != largest).collect();
        is_ready && !self.needs(id, &others, &registers)
    }

    /// The sums of exponentials among folds that are computed in one loop with the largest number.
    pub(super) fn online(&self, folds: &[Id]) -> BTreeMap<Id, Exponentials> {
        let own = folds.iter().filter_map(|id| Some((*id, *self.known.online.get(id)?)));
        own.filter(|(_, of)| folds.contains(&of.largest)).collect()
    }

    /// What follows each number whose largest one is looked for in a loop, in a register that stands for what is subtracted.
    pub(super) fn follow(
        &mut self,
        online: &BTreeMap<Id, Exponentials>,
        sums: &[Sum],
        inside: &mut Registers,
    ) -> Vec<(usize, Online)> {
        let shifts: BTreeSet<(Id, Id)> = online.values().map(|of| (of.shift, of.number)).collect();
        let follow = shifts.into_iter().map(|(of, number)| {
            let shift = self.register(Axes::NONE);
            let is_own = |sum: &Sum| online.get(&sum.of).is_some_and(|own| own.shift == of);
            let sums = sums.iter().copied().filter(is_own).collect();
            let number = inside[&number].register;
            inside.insert(of, Held { register: shift, everywhere: Axes::NONE });
            (shift, Online::Follow { number, shift, sums })
        });
        follow.collect()
    }

    /// Makes sums of exponentials of what is to be subtracted, and computes those again that are not finite then.
    pub(super) fn settle(
        &mut self,
        (bound, axis): (Axes, Axis),
        online: &BTreeMap<Id, Exponentials>,
        inside: &Registers,
        registers: &mut Registers,
    ) -> Vec<Step> {
        let mut steps = Vec::new();
        if online.is_empty() {
            return steps;
        }
        for (id, of) in online {
            steps.extend(self.compute(&BTreeSet::from([of.shift]), registers));
            let (shift, to) = (inside[&of.shift].register, registers[&of.shift].register);
            let sums = vec![registers[id].register];
            steps.push(Step::Online(Online::Settle { shift, to, sums }));
        }
        let sums: Vec<Id> = online.keys().copied().collect();
        self.into = sums.iter().map(|id| (*id, registers[id].register)).collect();
        let finite = self.into.values().copied().collect();
        let again = self.fold(bound, axis, &sums, &mut registers.clone());
        steps.push(Step::Online(Online::Unless { finite, steps: again }));
        steps
    }
}
