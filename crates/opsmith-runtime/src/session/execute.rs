//! Running a plan: step after step, several at once where that is worth it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use opsmith_core::{AttrValue, Device, Result};
use smallvec::SmallVec;

use super::op_call::{Given, OpCall};
use super::schedule::{Batch, next_batch};
use super::state::{State, Written};
use super::step::{Action, Fused, KEPT, Plan, Slot, Step, at_node};
use super::trace::{Did, Recorder};
use crate::call::Arg;
use crate::device::Card;
use crate::graph::NodeId;
use crate::library::Op;
use crate::pool::MemoryPool;
use crate::tensor::Tensor;

/// Runs a plan, and gives what is fetched.
pub(super) fn run(
    plan: &Plan,
    feeds: impl Iterator<Item = Tensor>,
    state: &State,
    pool: &Arc<MemoryPool>,
    recorder: Option<&Recorder>,
) -> Result<Vec<Tensor>> {
    let _writing = plan.writes.then(|| state.begin_writing());
    let left = plan.readers.clone();
    let written = Written::default();
    let mut run = Run { plan, slots: plan.begin(), lent: vec![], left, written, pool, recorder };
    for (&slot, value) in plan.feeds.iter().zip(feeds) {
        run.slots[slot] = Some(value);
    }
    let outcome = run.begin(state).and_then(|()| run.steps()).and_then(|()| run.fetch());
    // Also after an error: what was lent may change when the run ends.
    let outcome = run.wait_for_lent().and(outcome);
    if outcome.is_ok() && plan.writes {
        state.write(std::mem::take(&mut run.written));
    }
    if outcome.is_ok() {
        run.leave();
    }
    outcome
}

/// One run of a plan.
pub(super) struct Run<'a> {
    pub(super) plan: &'a Plan,
    pub(super) slots: Vec<Option<Tensor>>,
    /// The devices to which memory that is not the engine's own was copied, and which were not waited for.
    pub(super) lent: Vec<Card>,
    /// How many readers each slot still has: steps do not always run in their order.
    left: Vec<u32>,
    /// The variables that were written, and their new values.
    pub(super) written: Written,
    pool: &'a Arc<MemoryPool>,
    pub(super) recorder: Option<&'a Recorder>,
}

impl Run<'_> {
    /// Fills the slots of variables.
    fn begin(&mut self, state: &State) -> Result<()> {
        let reads = &self.plan.variables;
        if !reads.is_empty() {
            let values = state.read();
            for read in reads {
                let value = values.get(&read.variable).ok_or_else(|| read.has_no_value())?;
                self.slots[read.slot] = Some(value.clone());
            }
        }
        Ok(())
    }

    fn steps(&mut self) -> Result<()> {
        let steps = &self.plan.steps;
        let mut done = vec![false; if self.plan.parallel { steps.len() } else { 0 }];
        for (index, step) in steps.iter().enumerate() {
            if self.plan.parallel {
                if done[index] {
                    continue;
                }
                let batch = next_batch(steps, index, &done, |step| self.size(step));
                if batch.steps.len() > 1 {
                    batch.steps.iter().for_each(|&index| done[index] = true);
                    self.batch(&batch)?;
                    continue;
                }
                done[index] = true;
            }
            self.step(step)?;
        }
        Ok(())
    }

    /// How many elements a step reads.
    fn size(&self, step: &Step) -> usize {
        let inputs = step.inputs.iter().flatten().filter_map(|&slot| self.slots[slot].as_ref());
        inputs.map(Tensor::num_elements).sum()
    }

    /// Runs steps that do not depend on each other. When one fails, those that have not begun do not.
    fn batch(&mut self, batch: &Batch) -> Result<()> {
        let this = &*self;
        let given = batch.run(self.plan.threads, |index| this.call(&this.plan.steps[index]))?;
        for (&index, given) in batch.steps.iter().zip(given) {
            self.keep(&self.plan.steps[index], given);
        }
        for &index in &batch.steps {
            self.release(&self.plan.steps[index]);
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        match &step.action {
            Action::Call { .. } | Action::Fused(_) => {
                let given = self.call(step)?;
                self.keep(step, given);
            }
            Action::Change { op, attrs, variables } => self.change(step, op, attrs, variables)?,
            Action::Assign { variables } => self.assign(step, variables)?,
            Action::Cross(crossing) => self.cross(step, crossing)?,
        }
        self.release(step);
        Ok(())
    }

    /// Calls the op of a step, which changes nothing.
    fn call(&self, step: &Step) -> Result<Given> {
        self.call_on(step, &self.inputs(step))
    }

    fn call_on(&self, step: &Step, inputs: &[Option<&Tensor>]) -> Result<Given> {
        let is_measured = self.plan.parallel && step.cost.load(Ordering::Relaxed) == 0;
        let begin = (is_measured || self.recorder.is_some()).then(Instant::now);
        let (op, attrs, wanted, device) = match &step.action {
            Action::Fused(fused) if !fused.fits(inputs) => return self.one_by_one(step, fused, inputs),
            Action::Fused(Fused { op, attrs, .. }) => (op, attrs, u64::MAX, None),
            Action::Call { op, attrs, wanted, device } => (op, attrs, *wanted, device.as_ref()),
            _ => unreachable!("steps that write variables run by themselves"),
        };
        let call = OpCall { op, attrs, counts: &step.node.counts, wanted, threads: self.plan.threads };
        let given = call.run(inputs, Some(&step.prepared), (device, self.pool));
        let given = given.map_err(|error| at_node(error, &step.node))?;
        if let Some(begin) = begin {
            let device = device.map_or(Device::CPU, Card::device);
            self.measured(step, device, begin, &given);
        }
        Ok(given)
    }

    fn inputs(&self, step: &Step) -> SmallVec<[Option<&Tensor>; 8]> {
        step.inputs.iter().map(|slot| slot.and_then(|slot| self.slots[slot].as_ref())).collect()
    }

    /// Runs the parts of a step whose shapes do not fit together as one.
    fn one_by_one(&self, step: &Step, fused: &Fused, inputs: &[Option<&Tensor>]) -> Result<Given> {
        let begin = Instant::now();
        let outside: HashMap<Slot, &Tensor> =
            step.inputs.iter().zip(inputs).filter_map(|(slot, value)| Some(((*slot)?, (*value)?))).collect();
        let mut made: HashMap<Slot, Tensor> = HashMap::new();
        let mut readers: HashMap<Slot, usize> = HashMap::new();
        for &slot in fused
            .parts
            .iter()
            .flat_map(|part| part.inputs.iter().flatten())
            .chain(step.outputs.iter().flatten())
        {
            *readers.entry(slot).or_default() += 1;
        }
        for part in &fused.parts {
            let given = {
                let value = |slot: &Slot| {
                    // Constants that are numbers of the program are no inputs of it.
                    let outside = || outside.get(slot).copied().or(self.slots[*slot].as_ref());
                    made.get(slot).or_else(outside)
                };
                let inputs: SmallVec<[Option<&Tensor>; 8]> =
                    part.inputs.iter().map(|slot| slot.as_ref().and_then(value)).collect();
                self.call_on(part, &inputs)?
            };
            for slot in part.inputs.iter().flatten() {
                let left = readers.entry(*slot).or_default();
                *left -= 1;
                if *left == 0 {
                    made.remove(slot);
                }
            }
            made.extend(part.outputs.iter().zip(given).filter_map(|(slot, value)| Some(((*slot)?, value?))));
        }
        let microseconds = begin.elapsed().as_micros().min(u32::MAX.into()) as u32;
        step.cost.store(microseconds.max(1), Ordering::Relaxed);
        Ok(step.outputs.iter().map(|slot| slot.and_then(|slot| made.remove(&slot))).collect())
    }

    /// Notes how long a step took: for the next run, and in the trace.
    fn measured(&self, step: &Step, device: Device, begin: Instant, given: &Given) {
        let microseconds = begin.elapsed().as_micros().min(u32::MAX.into()) as u32;
        step.cost.store(microseconds.max(1), Ordering::Relaxed);
        if let Some(recorder) = self.recorder {
            let bytes = given.iter().flatten().map(Tensor::num_bytes).sum();
            recorder.note(&step.node, Did::Call, device, (begin, bytes));
        }
    }

    /// Calls the op of a step that changes variables, on the values that they have by now in this run.
    fn change(
        &mut self,
        step: &Step,
        op: &Op,
        attrs: &[(String, AttrValue)],
        variables: &[NodeId],
    ) -> Result<()> {
        let begin = Instant::now();
        let named: Vec<(&str, AttrValue)> =
            attrs.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let mut changed: Vec<Tensor> = Vec::with_capacity(variables.len());
        let (mut args, mut at) = (Vec::new(), 0);
        for (def, &count) in op.signature().inputs.iter().zip(&step.node.counts) {
            let slots = &step.inputs[at..at + count];
            at += count;
            let values: Vec<Tensor> =
                slots.iter().filter_map(|slot| slot.and_then(|slot| self.slots[slot].clone())).collect();
            if def.is_ref {
                let written = self.written.get(variables[changed.len()]);
                changed.extend(written.cloned().or(values.into_iter().next()));
            } else {
                args.push((values, def.count.is_list()));
            }
        }
        let args: Vec<Arg<'_>> = args
            .iter()
            .map(|(values, is_list)| match values.as_slice() {
                list if *is_list => Arg::List(list),
                [value] => Arg::Tensor(value),
                _ => Arg::Absent,
            })
            .collect();
        let mut places: Vec<&mut Tensor> = changed.iter_mut().collect();
        let given = op
            .call_in_place_on(self.plan.threads, &mut places, &args, &named)
            .map_err(|error| at_node(error, &step.node))?;
        for (&variable, value) in variables.iter().zip(changed) {
            self.written.set(variable, value);
        }
        let given = given.into_iter().map(Some).collect();
        self.measured(step, Device::CPU, begin, &given);
        self.keep(step, given);
        Ok(())
    }

    /// Makes each input of a step the value of a variable. What was lent for the run is copied: it may change after it.
    fn assign(&mut self, step: &Step, variables: &[NodeId]) -> Result<()> {
        for (&variable, slot) in variables.iter().zip(&step.inputs) {
            let Some(slot) = *slot else { continue };
            if let Some(value) = self.slots[slot].clone() {
                let value = value.into_own().map_err(|error| at_node(error, &step.node))?;
                self.plan.check_value(variable, value.shape()).map_err(|error| at_node(error, &step.node))?;
                if let Some(&Some(output)) = step.outputs.first() {
                    self.slots[output] = Some(value.clone());
                }
                self.written.set(variable, value);
            }
        }
        Ok(())
    }

    fn keep(&mut self, step: &Step, given: Given) {
        for (slot, value) in step.outputs.iter().zip(given) {
            if let Some(slot) = *slot {
                self.slots[slot] = value;
            }
        }
    }

    /// Gives back what a step was the last to read.
    fn release(&mut self, step: &Step) {
        for &slot in step.inputs.iter().flatten().filter(|slot| self.plan.readers[**slot] != KEPT) {
            self.left[slot] -= 1;
            if self.left[slot] == 0 {
                self.slots[slot] = None;
            }
        }
    }

    /// Gives the slots back for the next run, with nothing in them but constants.
    fn leave(mut self) {
        let fed = self.plan.feeds.iter();
        let read = self.plan.variables.iter().map(|read| &read.slot);
        let made = self.plan.steps.iter().flat_map(|step| step.outputs.iter().flatten());
        for &slot in fed.chain(read).chain(made) {
            self.slots[slot] = None;
        }
        self.plan.end(self.slots);
    }
}
