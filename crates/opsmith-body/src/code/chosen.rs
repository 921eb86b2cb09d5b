//! Innermost loops in which a mask that is the same in all turns says what is taken: where it is true for all that is computed side by
//! side, as most often it is, there is a loop that does not look at it; where it is false for all of it, nothing is done.

use super::asm::{Gpr, Rm, When};
use super::lower::{self, Rounded};
use super::place::{Address, FRAME, LineInput, Pointer, Stored, Target, Which};
use super::segment::Segment;
use super::tile::each_given;
use super::writer::{At, Object, Turns, Writer};
use crate::axes::Axis;
use crate::expr::{Fold, Interpreted, Step, Sum};

/// So many turns are worth another loop.
const LEAST_TURNS: usize = 8;

impl Writer<'_> {
    /// A loop with no other in it, in two ways if a mask is the same in all turns.
    pub(super) fn chosen(
        &mut self,
        axis: Axis,
        steps: &[Step],
        sums: &[Sum],
        at: &At,
        turns: &Turns,
    ) -> Option<()> {
        let masks = if turns.whole < LEAST_TURNS { Vec::new() } else { self.masks(axis, steps) };
        if masks.is_empty() {
            return self.innermost(axis, steps, sums, at, turns);
        }
        let (looking, end) = (self.asm.label(), self.asm.label());
        if is_nothing_else(steps, &masks) {
            let any = self.of_all(&masks, Fold::Max, at)?;
            self.asm.int_of_number(Gpr::RAX, any);
            self.asm.add_to(Rm::General(Gpr::RAX), 0);
            self.asm.jump(When::Equal, end);
        }
        let all = self.of_all(&masks, Fold::Min, at)?;
        self.asm.int_of_number(Gpr::RAX, all);
        self.asm.add_to(Rm::General(Gpr::RAX), -1);
        self.asm.jump(When::NotEqual, looking);
        let taken: Vec<Step> = steps.iter().map(|step| taken(step, &masks)).collect();
        self.innermost(axis, &taken, sums, at, turns)?;
        self.asm.go_to(end);
        self.asm.here(looking);
        self.innermost(axis, steps, sums, at, turns)?;
        self.asm.here(end);
        Some(())
    }

    /// The registers that are masks, and the same in all turns.
    fn masks(&self, axis: Axis, steps: &[Step]) -> Vec<usize> {
        let mut given = Vec::new();
        each_given(steps, &mut |register| given.push(register));
        let mut found = Vec::new();
        for step in steps {
            let Step::Compute { graph, inputs, .. } = step else { continue };
            let masks = graph.choosing_inputs().into_iter().map(|input| inputs[input]);
            found.extend(masks.filter(|register| {
                !given.contains(register) && !self.is_along(Object::Register(*register), axis)
            }));
        }
        found.sort_unstable();
        found.dedup();
        // Of what else reads them the loop would have to look.
        let is_mask = |register: &usize| {
            steps.iter().all(|step| match step {
                Step::Compute { graph, inputs, .. } => {
                    let choosing = graph.choosing_inputs();
                    let mut own = inputs.iter().enumerate().filter(|(_, own)| *own == register);
                    own.all(|(input, _)| choosing.contains(&input))
                }
                Step::Fold { from, .. } | Step::Store { from, .. } => from != register,
                Step::Loop { .. } => false,
                _ => true,
            })
        };
        found.retain(is_mask);
        found
    }

    /// Where in the frame the largest or smallest of masks is, of all that is computed side by side.
    fn of_all(&mut self, masks: &[usize], op: Fold, at: &At) -> Option<Rm> {
        let mut segment = Segment::new();
        let mut whole = None;
        for here in self.tile(at) {
            for register in masks {
                let value = segment.source(LineInput::Memory(self.vector(*register, &here)));
                whole = Some(match whole {
                    Some(other) => lower::fold(&mut segment.line, (op, Rounded::Alone), other, value),
                    None => value,
                });
            }
        }
        let whole = lower::across(&mut segment.line, op, &[whole?], self.vectors)[0];
        let offset = self.frame.room(self.vectors.bytes());
        let which = Which::Dense(self.width());
        let place = Address { pointer: Pointer::Frame, offset, stored: Stored::Same, which };
        segment.targets.push((whole, Target::AtEnd(place)));
        self.place(&segment, at)?;
        Some(Rm::At(FRAME, offset))
    }
}

/// Whether steps do nothing but add up numbers that are 0 where one of the masks is false.
fn is_nothing_else(steps: &[Step], masks: &[usize]) -> bool {
    let is_chosen = |register: usize| {
        steps.iter().any(|step| {
            let Step::Compute { graph, inputs, outputs, .. } = step else { return false };
            let own: Vec<usize> = (0..inputs.len()).filter(|input| masks.contains(&inputs[*input])).collect();
            let output = outputs.iter().position(|output| *output == register);
            output.is_some_and(|output| graph.is_chosen(output, &own))
        })
    };
    masks.len() == 1
        && steps.iter().all(|step| match step {
            Step::Load { .. } | Step::Compute { .. } => true,
            Step::Fold { op: Fold::Sum, from, .. } => is_chosen(*from),
            _ => false,
        })
}

/// The step where masks are true everywhere.
fn taken(step: &Step, masks: &[usize]) -> Step {
    let Step::Compute { graph, inputs, outputs, .. } = step else { return step.clone() };
    let (own, others): (Vec<usize>, Vec<usize>) =
        (0..inputs.len()).partition(|input| masks.contains(&inputs[*input]));
    let graph = graph.chosen_by(&own).with_inputs(&others);
    let program = Box::new(Interpreted::new(&graph));
    let inputs = others.into_iter().map(|input| inputs[input]).collect();
    Step::Compute { graph: Box::new(graph), program, inputs, outputs: outputs.clone() }
}
