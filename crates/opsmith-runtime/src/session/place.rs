//! Where the nodes of a run are: on the CPU, or on which card.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use opsmith_core::fork::{Mutex, Turn};
use opsmith_core::{Code, DType, Device, DeviceKind, Error, Result};

use super::needed::{Needed, changed_inputs};
use crate::device::Card;
use crate::graph::{Endpoint, Kind, Node, NodeId};
use crate::library::Library;
use crate::library::Op;
use crate::tensor::Tensor;

/// The devices of a session. Which ones there are, and are not, is kept, so that nodes and variables stay where they are.
#[derive(Default)]
pub(super) struct Devices {
    opened: Mutex<HashMap<i32, Result<Card>>>,
    opening: Turn,
    /// Copies of constants, for as long as some plan has them.
    constants: Mutex<HashMap<(Endpoint, Device), Weak<Tensor>>>,
    copying: Turn,
    /// Whether a node that cannot be on a device is on the CPU.
    soft: bool,
}

impl Devices {
    pub(super) fn new(soft: bool) -> Devices {
        Devices { soft, ..Devices::default() }
    }

    /// Devices that are opened already.
    #[cfg(test)]
    pub(super) fn of(soft: bool, devices: &[Card]) -> Devices {
        let opened = devices.iter().map(|device| (device.device().index, Ok(device.clone()))).collect();
        Devices { opened: Mutex::new(opened), soft, ..Devices::default() }
    }

    /// The device of this number, opened by `open` where what came of that is not known yet. An error that may pass, of a device
    /// that is full say, is not kept.
    fn opened(&self, index: i32, open: impl FnOnce(i32) -> Result<Card>) -> Result<Card> {
        let _turn = self.opening.take();
        let known = self.opened.lock().get(&index).cloned();
        known.unwrap_or_else(|| {
            let found = open(index);
            if found.as_ref().err().is_none_or(is_of_place) {
                self.opened.lock().insert(index, found.clone());
            }
            found
        })
    }

    /// The copy of a constant on a device: one for all plans of the session.
    pub(super) fn constant(&self, endpoint: Endpoint, device: &Card, value: &Tensor) -> Result<Arc<Tensor>> {
        // Who asks while it is copied gets the same.
        let _turn = self.copying.take();
        let key = (endpoint, device.device());
        let known = self.constants.lock().get(&key).and_then(Weak::upgrade);
        if let Some(there) = known {
            return Ok(there);
        }
        let there = Arc::new(value.to_cuda(device)?);
        let mut constants = self.constants.lock();
        constants.retain(|_, copy| copy.strong_count() > 0);
        constants.insert(key, Arc::downgrade(&there));
        Ok(there)
    }

    /// The device that the values of a variable are on; none for one in host memory.
    pub(super) fn of_variable(&self, node: &Node) -> Result<Option<Card>> {
        if node.device.kind == DeviceKind::Cpu {
            return Ok(None);
        }
        if node.outputs[0].dtype == DType::String {
            return self.unless_soft(node, Error::unimplemented("a string tensor cannot be on a device"));
        }
        self.of_node(node)
    }

    /// The device that a node is placed on, if there is one.
    fn of_node(&self, node: &Node) -> Result<Option<Card>> {
        match self.opened(node.device.index, Card::open) {
            Ok(device) => Ok(Some(device)),
            Err(error) => self.unless_soft(node, error),
        }
    }

    /// Nothing, for a node that cannot be on its device and may be on the CPU; else the error, with the node.
    fn unless_soft<T>(&self, node: &Node, error: Error) -> Result<Option<T>> {
        if self.soft && is_of_place(&error) {
            return Ok(None);
        }
        let device = node.device.name();
        let advice = "place it on the CPU, or have the session do so by `allow_soft_placement`";
        let error = error.with_text(|text| format!("{text}; it is placed on {device}: {advice}"));
        Err(error.within(node.described()))
    }
}

/// Whether an error says that something cannot be on a device: there is no kernel, no driver or no such device.
fn is_of_place(error: &Error) -> bool {
    matches!(error.code(), Code::Unimplemented | Code::FailedPrecondition | Code::NotFound)
}

/// Where each node of a run is. Constants and what is fed are in host memory, and are copied to where they are read.
#[derive(Default)]
pub(super) struct Placement {
    placed: HashMap<NodeId, Placed>,
}

/// A call or a variable on a device.
struct Placed {
    device: Card,
    /// The inputs of the definition that its kernel reads in host memory, as bits.
    in_host_memory: u64,
}

impl Placement {
    /// Places the nodes of `order`.
    ///
    /// # Errors
    /// As opening the device of a node; `Unimplemented` for a node that the device cannot run.
    pub(super) fn new(graph: &Needed<'_>, order: &[NodeId], devices: &Devices) -> Result<Placement> {
        let mut placement = Placement::default();
        // Kernels first: what a device could not run is said without one too.
        let mut kernels = HashMap::new();
        for &id in order {
            let node = &*graph.nodes[id];
            let Kind::Call { op, .. } = &node.kind else { continue };
            if node.device.kind == DeviceKind::Cpu || asks_for_shapes(op) {
                continue;
            }
            let in_host_memory = match host_memory(graph.nodes, node, op) {
                Ok(bits) => Some(bits),
                Err(error) => devices.unless_soft(node, error)?,
            };
            kernels.extend(in_host_memory.map(|bits| (id, bits)));
        }
        for &id in order {
            match &graph.nodes[id].kind {
                Kind::Call { op, .. } => placement.add_call((graph, id, op), kernels.get(&id), devices)?,
                Kind::Variable { .. } => placement.add_variable(graph, id, devices)?,
                Kind::Assign { variable } => placement.add_variable(graph, *variable, devices)?,
                Kind::Initialize => {
                    graph.variables.iter().try_for_each(|&id| placement.add_variable(graph, id, devices))?;
                }
                Kind::Constant(_) | Kind::Placeholder | Kind::Group => {}
            }
        }
        Ok(placement)
    }

    fn add_variable(&mut self, graph: &Needed<'_>, id: NodeId, devices: &Devices) -> Result<()> {
        if let Some(device) = devices.of_variable(&graph.nodes[id])? {
            self.placed.insert(id, Placed { device, in_host_memory: 0 });
        }
        Ok(())
    }

    fn add_call(
        &mut self,
        (graph, id, op): (&Needed<'_>, NodeId, &Op),
        kernel: Option<&u64>,
        devices: &Devices,
    ) -> Result<()> {
        let node = &*graph.nodes[id];
        if let Some(&in_host_memory) = kernel
            && let Some(device) = devices.of_node(node)?
        {
            self.placed.insert(id, Placed { device, in_host_memory });
            return Ok(());
        }
        for variable in changed_inputs(op, node).map(|input| input.node) {
            let changed = &graph.nodes[variable];
            if let Some(device) = devices.of_variable(changed)? {
                let text = format!(
                    "changes variable `{}` in place, which is on {}: place the variable on the CPU",
                    changed.name,
                    device.device().name()
                );
                let error = Error::unimplemented(text).with_op(&op.signature().name);
                return Err(error.within(node.described()));
            }
        }
        Ok(())
    }

    /// The device that a device of these nodes is; none of the CPU.
    pub(super) fn card_at(&self, device: Device) -> Option<&Card> {
        self.placed.values().map(|placed| &placed.device).find(|known| known.device() == device)
    }

    /// The device that runs a node, or has a variable.
    pub(super) fn card(&self, id: NodeId) -> Option<&Card> {
        self.placed.get(&id).map(|placed| &placed.device)
    }

    /// Where what a node gives is.
    pub(super) fn device(&self, node: &Node, id: NodeId) -> Device {
        let id = if let Kind::Assign { variable } = node.kind { variable } else { id };
        self.card(id).map_or(Device::CPU, Card::device)
    }

    /// Where a call reads each of its tensors.
    pub(super) fn reads(&self, node: &Node, id: NodeId) -> Vec<Device> {
        let Some(placed) = self.placed.get(&id) else { return vec![Device::CPU; node.inputs.len()] };
        let at = |arg: usize| {
            if placed.in_host_memory >> arg & 1 == 1 { Device::CPU } else { placed.device.device() }
        };
        let counts = node.counts.iter().enumerate();
        counts.flat_map(|(arg, &count)| std::iter::repeat_n(at(arg), count)).collect()
    }
}

/// Whether an op reads no element of its input. Wherever it is placed, it runs on the CPU, and its input stays where it is.
pub(super) fn asks_for_shapes(op: &Op) -> bool {
    let is_one = matches!(op.signature().name.as_str(), "Shape" | "ZerosLike");
    is_one && Library::standard().is_ok_and(|standard| std::ptr::eq(standard.table(), op.library().table()))
}

/// The inputs of the definition that the CUDA kernel for a node reads in host memory, as bits.
///
/// # Errors
/// `Unimplemented` where a device cannot run the node.
fn host_memory(nodes: &[Arc<Node>], node: &Node, op: &Op) -> Result<u64> {
    let dtype = |input: &Option<Endpoint>| input.map(|it| nodes[it.node].outputs[it.index].dtype);
    let dtypes: Vec<Option<DType>> = node.inputs.iter().map(dtype).collect();
    let Kind::Call { attrs, .. } = &node.kind else { return Ok(0) };
    let bits = op.kernel_for(DeviceKind::Cuda, (&node.counts, &dtypes), attrs)?.in_host_memory();
    let error = |text| Error::unimplemented(text).with_op(&op.signature().name);
    if changed_inputs(op, node).next().is_some() {
        return Err(error("changes variables in place, which the engine does on the CPU only"));
    }
    let mut first = 0;
    let mut is_there = false;
    for (arg, &count) in node.counts.iter().enumerate() {
        is_there |= bits >> arg & 1 == 0 && node.inputs[first..first + count].iter().any(Option::is_some);
        first += count;
    }
    if is_there { Ok(bits) } else { Err(error("takes no tensor that would be on the device")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::tests::double_of;

    #[test]
    fn a_device_that_could_not_be_opened_for_a_while_is_opened_later() {
        let devices = Devices::new(true);
        let passing = |_| Err(Error::resource_exhausted("full"));
        assert_eq!(devices.opened(0, passing).unwrap_err().code(), Code::ResourceExhausted);
        let (device, _) = double_of(1 << 10, 0);
        assert!(devices.opened(0, |_| Ok(device.clone())).is_ok());
        assert!(devices.opened(0, passing).is_ok(), "it is open");
        // That there is none lasts: nodes and variables stay where they are.
        assert_eq!(devices.opened(1, |_| Err(Error::not_found("no"))).unwrap_err().code(), Code::NotFound);
        assert_eq!(devices.opened(1, |_| Ok(device.clone())).unwrap_err().code(), Code::NotFound);
    }
}
