//! The part of a run that is on cards: calls there, and what is copied there and back.
//!
//! All work is put on each card's one stream, in the order of the steps, and nothing waits but where main memory is needed: for
//! a copy out, once for all that is fetched, and once for what is fed, whose memory may change after the run.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use opsmith_core::{Device, Result, TensorView};
use smallvec::SmallVec;

use super::execute::{OpCall, Run, at_node};
use super::plan::{Action, Plan, Read, Slot, Step};
use super::state::Values;
use super::trace::Did;
use crate::call::CallInputs;
use crate::card::{Card, CardTensor};
use crate::graph::{Node, NodeId};
use crate::tensor::Tensor;

/// From where to where a value is copied.
pub(super) enum Crossing {
    /// From main memory to a card.
    In(Card),
    /// From a card to main memory.
    Out,
    /// The shape of what is on a card, as a tensor in main memory whose elements are one and the same.
    Shape,
}

/// What a plan has on cards.
#[derive(Default)]
pub(super) struct OnCards {
    /// Copies of constants, which every run begins with.
    pub(super) constants: Vec<(Slot, Arc<CardTensor>)>,
    /// What is fed and where it is copied to.
    pub(super) feeds: Vec<Fed>,
    /// The variables that a run reads on cards.
    pub(super) variables: Vec<Read>,
}

/// A value that is fed, and read on a card.
pub(super) struct Fed {
    pub(super) node: Arc<Node>,
    pub(super) from: Slot,
    pub(super) to: Slot,
    pub(super) card: Card,
}

impl Plan {
    /// What is on cards when a run begins: of each slot its tensor. Empty for a run on the CPU alone.
    pub(super) fn begin_on_cards(&self) -> Vec<Option<CardTensor>> {
        let Some(on_cards) = &self.on_cards else { return vec![] };
        let mut slots = vec![None; self.readers.len()];
        for (slot, constant) in &on_cards.constants {
            slots[*slot] = Some(CardTensor::clone(constant));
        }
        slots
    }
}

impl Run<'_> {
    /// Puts the variables that are on cards into their slots.
    pub(super) fn read_on_cards(&mut self, values: &Values) -> Result<()> {
        let Some(on_cards) = &self.plan.on_cards else { return Ok(()) };
        for read in &on_cards.variables {
            let value = values.on_card.get(&read.variable).ok_or_else(|| read.has_no_value())?;
            self.on_card[read.slot] = Some(value.clone());
        }
        Ok(())
    }

    /// Copies what is fed to the cards that read it, and waits once for each card.
    pub(super) fn feed_cards(&mut self) -> Result<()> {
        let Some(on_cards) = &self.plan.on_cards else { return Ok(()) };
        let mut lent: Vec<&Card> = vec![];
        let mut copied = Ok(());
        for Fed { node, from, to, card } in &on_cards.feeds {
            let Some(value) = &self.slots[*from] else { continue };
            if !value.is_own() && lent.iter().all(|known| known.device() != card.device()) {
                lent.push(card);
            }
            let begin = Instant::now();
            match card.put_lent(value) {
                Ok(there) => {
                    self.note_copy(Some(node), card.device(), (begin, there.num_bytes()));
                    self.on_card[*to] = Some(there);
                }
                Err(error) => copied = Err(at_node(error, node)),
            }
        }
        // Also after an error: what was lent may change when the run ends.
        lent.into_iter().fold(copied, |done, card| done.and(card.wait()))
    }

    /// Notes in a trace that what a node gave was copied to a device.
    fn note_copy(&self, node: Option<&Arc<Node>>, device: Device, copy: (Instant, usize)) {
        if let (Some(node), Some(recorder)) = (node, self.recorder) {
            recorder.note(node, Did::Copy, device, copy);
        }
    }

    /// Notes in a trace what was copied out at once: one value after the other, each for its part of the bytes.
    fn note_batch(&self, begin: Instant, slots: &[Slot], here: &[Tensor]) {
        let Some(recorder) = self.recorder else { return };
        let took = begin.elapsed();
        let all = here.iter().map(Tensor::num_bytes).sum::<usize>().max(1) as f64;
        let mut before = 0;
        for (&slot, bytes) in slots.iter().zip(here.iter().map(Tensor::num_bytes)) {
            let share = |bytes: usize| took.mul_f64(bytes as f64 / all);
            if let Some(node) = self.node_of(slot) {
                let copy = (begin + share(before), share(bytes), bytes);
                recorder.note_lasting(node, Did::Copy, Device::CPU, copy);
            }
            before += bytes;
        }
    }

    /// The node that gave what is in a slot on a card.
    fn node_of(&self, slot: Slot) -> Option<&Arc<Node>> {
        let steps = self.plan.steps.iter();
        let made = steps.filter(|step| step.outputs.contains(&Some(slot))).map(|step| &step.node);
        let read = self.plan.on_cards.iter().flat_map(|on_cards| &on_cards.variables);
        made.chain(read.filter(|read| read.slot == slot).map(|read| &read.node)).next()
    }

    /// Where a slot's tensor lies.
    fn view(&self, slot: Slot) -> Option<TensorView<'_>> {
        let there = self.on_card[slot].as_ref().map(CardTensor::as_view);
        there.or_else(|| self.slots[slot].as_ref().map(Tensor::as_view))
    }

    /// Calls the op of a step on its card.
    pub(super) fn call_on_card(&mut self, step: &Step) -> Result<()> {
        let Action::OnCard { card, op, attrs, wanted } = &step.action else { return Ok(()) };
        let begin = self.recorder.map(|_| Instant::now());
        let given = {
            let flat: SmallVec<[Option<TensorView<'_>>; 8]> =
                step.inputs.iter().map(|slot| slot.and_then(|slot| self.view(slot))).collect();
            let counts = &step.node.counts;
            let call = OpCall { op, attrs, counts, wanted: *wanted, threads: self.plan.threads };
            let inputs = CallInputs { flat: &flat, counts };
            call.prepared(inputs, Some(&step.prepared), |called| card.call_flat(called, inputs))
        };
        let given = given.map_err(|error| at_node(error, &step.node))?;
        if let (Some(begin), Some(recorder)) = (begin, self.recorder) {
            let bytes = given.iter().flatten().map(CardTensor::num_bytes).sum();
            recorder.note(&step.node, Did::Call, card.device(), (begin, bytes));
        }
        for (slot, value) in step.outputs.iter().zip(given) {
            if let Some(slot) = *slot {
                self.on_card[slot] = value;
            }
        }
        Ok(())
    }

    /// Copies the input of a step to another device.
    pub(super) fn cross(&mut self, step: &Step, crossing: &Crossing) -> Result<()> {
        let (Some(&Some(from)), Some(&to)) = (step.inputs.first(), step.outputs.first()) else {
            return Ok(());
        };
        let begin = Instant::now();
        let mut copy = || -> Result<(Device, usize)> {
            Ok(match crossing {
                Crossing::In(card) => {
                    let Some(value) = &self.slots[from] else { return Ok((card.device(), 0)) };
                    let there = card.put(value)?;
                    let bytes = there.num_bytes();
                    to.into_iter().for_each(|to| self.on_card[to] = Some(there.clone()));
                    (card.device(), bytes)
                }
                Crossing::Out => {
                    let Some(value) = &self.on_card[from] else { return Ok((Device::CPU, 0)) };
                    let here = value.get()?;
                    let bytes = value.num_bytes();
                    to.into_iter().for_each(|to| self.slots[to] = Some(here.clone()));
                    (Device::CPU, bytes)
                }
                Crossing::Shape => {
                    let Some(value) = &self.on_card[from] else { return Ok((Device::CPU, 0)) };
                    to.into_iter().for_each(|to| self.slots[to] = Some(stand_in(value)));
                    (Device::CPU, 0)
                }
            })
        };
        let (device, bytes) = copy().map_err(|error| at_node(error, &step.node))?;
        if bytes > 0 {
            self.note_copy(Some(&step.node), device, (begin, bytes));
        }
        Ok(())
    }

    /// Makes what a step reads on a card the value of a variable there; whether it does.
    pub(super) fn assign_on_card(&mut self, step: &Step, variable: NodeId, slot: Slot) -> Result<bool> {
        let Some(Some(value)) = self.on_card.get(slot) else { return Ok(false) };
        let value = value.clone();
        self.plan.check_value(variable, value.shape()).map_err(|error| at_node(error, &step.node))?;
        if let Some(&Some(output)) = step.outputs.first() {
            self.on_card[output] = Some(value.clone());
        }
        self.written.set_on_card(variable, value);
        Ok(true)
    }

    /// What is fetched, some of it from cards: each value is copied once, and each card waited for once.
    pub(super) fn fetch_from_cards(&self) -> Result<Vec<Tensor>> {
        let mut by_card: Vec<(&Card, Vec<Slot>)> = vec![];
        for &slot in &self.plan.fetches {
            let Some(value) = &self.on_card[slot] else { continue };
            match by_card.iter_mut().find(|(card, _)| card.device() == value.device()) {
                Some((_, slots)) if slots.contains(&slot) => {}
                Some((_, slots)) => slots.push(slot),
                None => by_card.push((value.card(), vec![slot])),
            }
        }
        let mut copied: HashMap<Slot, Tensor> = HashMap::new();
        for (card, slots) in by_card {
            let there: Vec<&CardTensor> =
                slots.iter().filter_map(|slot| self.on_card[*slot].as_ref()).collect();
            let begin = Instant::now();
            let here = card.get_all(&there)?;
            self.note_batch(begin, &slots, &here);
            copied.extend(slots.into_iter().zip(here));
        }
        let fetches = self.plan.fetches.iter();
        fetches.map(|&slot| copied.get(&slot).cloned().map_or_else(|| self.fetched(slot), Ok)).collect()
    }
}

/// A tensor like one on a card, whose elements are all the same zero: for an op that asks for its shape.
fn stand_in(like: &CardTensor) -> Tensor {
    let zero = Arc::new(0u128);
    let data = std::ptr::from_ref(&*zero).cast();
    let strides = vec![0; like.shape().len()];
    // SAFETY: with these strides all indices have the one element, which is as large and as aligned as any dtype's, and zeros
    // are a value of each but text, which is on no card. Its owner lives as long as the tensor, and nobody writes to it.
    unsafe { Tensor::from_foreign(zero, data, like.dtype(), like.shape(), &strides) }
}
