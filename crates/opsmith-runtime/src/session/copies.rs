//! Copies between devices in a run.
//!
//! All work on a card is put on its one stream, in the order of the steps, and nothing waits but where host memory is
//! needed: for a copy out, once for all that is fetched, and at the end of the run where memory was lent to it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use opsmith_core::{Device, Error, Result};

use super::execute::Run;
use super::step::{Crossing, Slot, Step, at_node};
use super::trace::Did;
use crate::device::Card;
use crate::graph::Node;
use crate::tensor::Tensor;

impl Run<'_> {
    /// Copies the input of a step to another device.
    pub(super) fn cross(&mut self, step: &Step, crossing: &Crossing) -> Result<()> {
        let (Some(&Some(from)), Some(&to)) = (step.inputs.first(), step.outputs.first()) else {
            return Ok(());
        };
        let Some(value) = &self.slots[from] else { return Ok(()) };
        let begin = Instant::now();
        let made = match crossing {
            Crossing::In(device) => {
                let is_waited_for = |device: &Card| self.lent.iter().any(|it| it.device() == device.device());
                if !value.is_own() && !is_waited_for(device) {
                    self.lent.push(device.clone());
                }
                value.lent_to(device)
            }
            Crossing::Out => value.to(Device::CPU),
            Crossing::Shape => Ok(stand_in(value)),
        };
        let made = made.map_err(|error| at_node(error, &step.node))?;
        if let (Crossing::In(_) | Crossing::Out, Some(recorder)) = (crossing, self.recorder) {
            recorder.note(&step.node, Did::Copy, made.device(), (begin, made.num_bytes()));
        }
        if let Some(to) = to {
            self.slots[to] = Some(made);
        }
        Ok(())
    }

    /// Waits for the devices to which memory was lent.
    pub(super) fn wait_for_lent(&mut self) -> Result<()> {
        let mut done = Ok(());
        for device in self.lent.drain(..) {
            // Also where another one went wrong.
            done = done.and(device.wait());
        }
        done
    }

    /// What is fetched, in host memory: each value is copied once, and each device waited for once.
    pub(super) fn fetch(&mut self) -> Result<Vec<Tensor>> {
        let mut by_device: Vec<(Device, Vec<Slot>)> = vec![];
        for &slot in &self.plan.fetches {
            let Some(value) = &self.slots[slot] else { continue };
            let device = value.device();
            match by_device.iter_mut().find(|(known, _)| *known == device) {
                _ if device == Device::CPU => {}
                Some((_, slots)) if slots.contains(&slot) => {}
                Some((_, slots)) => slots.push(slot),
                None => by_device.push((device, vec![slot])),
            }
        }
        let mut copied: HashMap<Slot, Tensor> = HashMap::new();
        for (device, slots) in by_device {
            let there: Vec<&Tensor> = slots.iter().filter_map(|&slot| self.slots[slot].as_ref()).collect();
            let begin = Instant::now();
            let here = Tensor::to_host(&there)?;
            self.lent.retain(|lent| lent.device() != device);
            self.note_batch(begin, &slots, &here);
            copied.extend(slots.into_iter().zip(here));
        }
        let fetched = |slot: &Slot| copied.get(slot).or(self.slots[*slot].as_ref()).cloned();
        let missing = || Error::internal("a fetched tensor was not computed");
        self.plan.fetches.iter().map(|slot| fetched(slot).ok_or_else(missing)).collect()
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

    /// The node that gave what is in a slot.
    fn node_of(&self, slot: Slot) -> Option<&Arc<Node>> {
        let steps = self.plan.steps.iter();
        let made = steps.filter(|step| step.outputs.contains(&Some(slot))).map(|step| &step.node);
        let read = self.plan.variables.iter().filter(|read| read.slot == slot).map(|read| &read.node);
        made.chain(read).next()
    }
}

/// A tensor like one on a device, whose elements are all the same zero: for an op that asks for its shape.
fn stand_in(like: &Tensor) -> Tensor {
    let zero = Arc::new(0u128);
    let data = std::ptr::from_ref(&*zero).cast();
    let strides = vec![0; like.shape().len()];
    // SAFETY: with these strides all indices have the one element, which is as large and as aligned as any dtype's, and zeros
    // are a value of each but text, which is on no device. Its owner lives as long as the tensor, and nobody writes to it.
    unsafe { Tensor::from_foreign(zero, data, like.dtype(), like.shape(), &strides) }
}
