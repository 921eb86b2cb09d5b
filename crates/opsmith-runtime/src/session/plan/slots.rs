//! Where steps find what they read: each value has a slot on every device that reads it, and crosses to each once.

use std::sync::atomic::AtomicU32;

use opsmith_core::{Device, Result};

use super::super::place::asks_for_shapes;
use super::super::step::at_node;
use super::{Action, Builder, Crossing, Slot, Step};
use crate::graph::{Endpoint, Kind, NodeId};
use crate::tensor::Tensor;

impl Builder<'_> {
    pub(super) fn new_slot(&mut self, endpoint: Endpoint, at: Device, made_by: Option<usize>) -> Slot {
        let slot = self.unnamed_slot(made_by);
        self.slots.insert((endpoint, at), slot);
        slot
    }

    /// A slot that is not where others read an endpoint.
    fn unnamed_slot(&mut self, made_by: Option<usize>) -> Slot {
        self.constants.push(None);
        self.made_by.push(made_by);
        self.constants.len() - 1
    }

    /// Where an endpoint is read from on a device: made where it is fed or constant and was not read before, and where it has
    /// to be copied there.
    pub(super) fn slot(&mut self, endpoint: &Endpoint, at: Device) -> Result<Slot> {
        let endpoint = *self.simplified.same.get(endpoint).unwrap_or(endpoint);
        if let Some(&slot) = self.slots.get(&(endpoint, at)) {
            return Ok(slot);
        }
        if at != Device::CPU || self.home(endpoint) != Device::CPU {
            return self.crossed(endpoint, at);
        }
        let slot = self.new_slot(endpoint, Device::CPU, None);
        if !self.graph.feeds.contains(&endpoint) {
            self.constants[slot] = self.simplified.constants.get(&endpoint).cloned();
        }
        Ok(slot)
    }

    /// Where an endpoint is before anybody asks for it elsewhere.
    fn home(&self, endpoint: Endpoint) -> Device {
        let is_given =
            self.graph.feeds.contains(&endpoint) || self.simplified.constants.contains_key(&endpoint);
        if is_given {
            Device::CPU
        } else {
            self.placement.device(&self.graph.nodes[endpoint.node], endpoint.node)
        }
    }

    /// Has an endpoint copied to a device: a constant once for all runs of the session, anything else by a step. From one CUDA
    /// device to another it goes through host memory.
    fn crossed(&mut self, endpoint: Endpoint, at: Device) -> Result<Slot> {
        let node = &self.graph.nodes[endpoint.node];
        let home = self.home(endpoint);
        let from = self.slot(&endpoint, if at == Device::CPU { home } else { Device::CPU })?;
        let device = self.placement.card_at(at);
        if let (Some(device), Some(constant)) = (device, &self.constants[from]) {
            let there =
                self.devices.constant(endpoint, device, constant).map_err(|error| at_node(error, node))?;
            let slot = self.new_slot(endpoint, at, None);
            self.constants[slot] = Some(Tensor::clone(&there));
            self.shared.push(there);
            return Ok(slot);
        }
        let crossing = device.map_or(Crossing::Out, |device| Crossing::In(device.clone()));
        let slot = self.new_slot(endpoint, at, Some(self.steps.len()));
        self.cross(endpoint, crossing, from, slot);
        Ok(slot)
    }

    /// Adds the step that brings an endpoint from slot to slot.
    fn cross(&mut self, endpoint: Endpoint, crossing: Crossing, from: Slot, to: Slot) {
        self.steps.push(Step {
            node: self.graph.nodes[endpoint.node].clone(),
            action: Action::Cross(crossing),
            inputs: vec![Some(from)],
            outputs: vec![Some(to)],
            needs: self.made_by[from].into_iter().collect(),
            cost: AtomicU32::new(0),
            prepared: opsmith_core::fork::OnceLock::new(),
        });
    }

    /// Where an endpoint is read from by an op that asks for its shape alone: what is on a device stays there.
    fn shape_slot(&mut self, endpoint: &Endpoint) -> Result<Slot> {
        let endpoint = *self.simplified.same.get(endpoint).unwrap_or(endpoint);
        let home = self.home(endpoint);
        if home == Device::CPU || self.slots.contains_key(&(endpoint, Device::CPU)) {
            return self.slot(&endpoint, Device::CPU);
        }
        if let Some(&slot) = self.stand_ins.get(&endpoint) {
            return Ok(slot);
        }
        let from = self.slot(&endpoint, home)?;
        let slot = self.unnamed_slot(Some(self.steps.len()));
        self.stand_ins.insert(endpoint, slot);
        self.cross(endpoint, Crossing::Shape, from, slot);
        Ok(slot)
    }

    /// Where an assignment reads an endpoint: a constant, an initial value say, is copied in the run, and not kept on the device for
    /// runs to come.
    fn assigned_slot(&mut self, endpoint: &Endpoint, at: Device) -> Result<Slot> {
        let same = *self.simplified.same.get(endpoint).unwrap_or(endpoint);
        let device = self.placement.card_at(at).filter(|_| self.simplified.constants.contains_key(&same));
        let Some(device) = device.filter(|_| !self.graph.feeds.contains(&same)) else {
            return self.slot(&same, at);
        };
        let crossing = Crossing::In(device.clone());
        let from = self.slot(&same, Device::CPU)?;
        let slot = self.unnamed_slot(Some(self.steps.len()));
        self.cross(same, crossing, from, slot);
        Ok(slot)
    }

    /// Where a step reads its inputs.
    pub(super) fn inputs(&mut self, id: NodeId) -> Result<Vec<Option<Slot>>> {
        let graph = self.graph;
        let node = &graph.nodes[id];
        let of_variable = |variable: NodeId| self.placement.device(&graph.nodes[variable], variable);
        let read: Vec<(Option<Endpoint>, Device)> = match &node.kind {
            Kind::Call { op, .. } if asks_for_shapes(op) => {
                let inputs = node.inputs.iter();
                return inputs
                    .map(|input| input.as_ref().map(|it| self.shape_slot(it)).transpose())
                    .collect();
            }
            Kind::Initialize => {
                let values = graph.inputs(id).into_iter().map(Some);
                values.zip(graph.variables.iter().map(|&variable| of_variable(variable))).collect()
            }
            Kind::Assign { variable } => {
                node.inputs.iter().map(|&input| (input, of_variable(*variable))).collect()
            }
            _ => node.inputs.iter().copied().zip(self.placement.reads(node, id)).collect(),
        };
        let assigns = matches!(node.kind, Kind::Initialize | Kind::Assign { .. });
        let mut slot = |(input, at): (Option<Endpoint>, Device)| match input {
            Some(input) if assigns => self.assigned_slot(&input, at).map(Some),
            Some(input) => self.slot(&input, at).map(Some),
            None => Ok(None),
        };
        read.into_iter().map(&mut slot).collect()
    }

    /// Where a fetched endpoint is read from: in host memory where it is there anyway, else where it was made.
    pub(super) fn fetched(&mut self, endpoint: &Endpoint) -> Result<Slot> {
        let same = *self.simplified.same.get(endpoint).unwrap_or(endpoint);
        let is_there = self.slots.contains_key(&(same, Device::CPU));
        let at = if is_there { Device::CPU } else { self.home(same) };
        self.slot(&same, at)
    }
}
