//! What a run is made of: steps, each on its device, and the slots that they read and fill.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use opsmith_core::fork::{Mutex, OnceLock};
use opsmith_core::{AttrValue, Code, Error, Result, Shape, ensure};

use super::needed::quoted;
use crate::call::Prepared;
use crate::device::Card;
use crate::graph::{Node, NodeId, may_be};
use crate::library::Op;
use crate::tensor::Tensor;

/// Stands for the number of readers of what is fetched or constant.
pub(super) const KEPT: u32 = u32::MAX;

/// Where a tensor is during a run.
pub(super) type Slot = usize;

/// A run, worked out.
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) feeds: Vec<Slot>,
    pub(super) fetches: Vec<Slot>,
    pub(super) variables: Vec<Read>,
    /// Whether it writes variables.
    pub(super) writes: bool,
    pub(super) parallel: bool,
    /// On how many threads a step runs at most.
    pub(super) threads: Option<NonZeroUsize>,
    /// How often each slot is read; [`KEPT`] for one whose tensor stays to the end of the run.
    pub(super) readers: Vec<u32>,
    /// What every run begins with: the constants, each on every device that reads it.
    pub(super) constants: Vec<Option<Tensor>>,
    /// What may be assigned to each variable that is written.
    pub(super) shapes: HashMap<NodeId, Arc<Node>>,
    /// Slots of runs that have ended, their constants in them.
    pub(super) frames: Mutex<Vec<Vec<Option<Tensor>>>>,
    /// Copies of constants on devices, which plans of a session share: held for as long as this one needs them.
    #[expect(dead_code, reason = "held so that the session finds them")]
    pub(super) shared: Vec<Arc<Tensor>>,
}

/// A variable that a run reads.
pub(super) struct Read {
    pub(super) slot: Slot,
    pub(super) variable: NodeId,
    pub(super) node: Arc<Node>,
}

impl Read {
    /// The error that the variable has no value.
    pub(super) fn has_no_value(&self) -> Error {
        Error::failed_precondition(format!(
            "variable {} has no value yet: initialise it, after all variables, an optimiser's too, are made, or restore \
             it from a checkpoint",
            quoted(&self.node)
        ))
    }
}

/// One node's turn.
pub(super) struct Step {
    pub(super) node: Arc<Node>,
    pub(super) action: Action,
    pub(super) inputs: Vec<Option<Slot>>,
    /// A slot for each output, none where nobody reads it.
    pub(super) outputs: Vec<Option<Slot>>,
    /// The steps that have to be done before.
    pub(super) needs: Vec<usize>,
    /// How long it took, in microseconds, when it was last measured.
    pub(super) cost: AtomicU32,
    /// Its call, worked out when it is first run.
    pub(super) prepared: OnceLock<Option<Prepared>>,
}

/// What a step does.
pub(super) enum Action {
    /// Calls an op for the outputs of the definition whose bits are set: on a card, or else on the CPU.
    Call { op: Op, attrs: Arc<[(String, AttrValue)]>, wanted: u64, device: Option<Card> },
    /// Calls an op, on the CPU, that changes these variables: for each `Ref` input of the definition one.
    Change { op: Op, attrs: Arc<[(String, AttrValue)]>, variables: Vec<NodeId> },
    /// Calls the op that stands for several.
    Fused(Fused),
    /// Makes each input the value of a variable.
    Assign { variables: Vec<NodeId> },
    /// Copies its input from one device to another.
    Cross(Crossing),
}

/// From where to where a value is copied.
pub(super) enum Crossing {
    /// From host memory to a device.
    In(Card),
    /// From a device to host memory.
    Out,
    /// The shape of what is on a device, as a tensor in host memory whose elements are one and the same.
    Shape,
}

/// Several steps as one, on the CPU.
pub(super) struct Fused {
    pub(super) op: Op,
    pub(super) attrs: Arc<[(String, AttrValue)]>,
    /// What they were, for shapes that do not fit: pointwise ones that follow each other as one.
    pub(super) parts: Vec<Step>,
    pub(super) shapes: Box<dyn Fit>,
    /// Whether the shapes fit in every run.
    pub(super) proven: bool,
}

/// What the shapes of inputs have to be in a run.
pub(super) trait Fit: Send + Sync {
    /// Whether every part gives tensors of the shapes that it was thought to.
    fn fit(&self, shapes: &[&[usize]]) -> bool;
}

impl Fused {
    /// Whether every part gives tensors of the shapes that it was thought to.
    pub(super) fn fits(&self, inputs: &[Option<&Tensor>]) -> bool {
        if self.proven {
            return true;
        }
        let shapes: Option<Vec<&[usize]>> = inputs.iter().map(|input| Some((*input)?.shape())).collect();
        shapes.is_some_and(|shapes| self.shapes.fit(&shapes))
    }
}

impl Step {
    /// Whether it may run beside others: a call on the CPU that changes nothing. What is on a device is put on its one stream, in
    /// the order of the steps.
    pub(super) fn may_run_beside(&self) -> bool {
        matches!(self.action, Action::Call { device: None, .. } | Action::Fused(_))
    }
}

impl Plan {
    /// The slots of a run, the constants in them.
    pub(super) fn begin(&self) -> Vec<Option<Tensor>> {
        self.frames.lock().pop().unwrap_or_else(|| self.constants.clone())
    }

    /// Checks that a value of this shape may become that of a variable.
    pub(super) fn check_value(&self, variable: NodeId, shape: &[usize]) -> Result<()> {
        let Some(node) = self.shapes.get(&variable) else { return Ok(()) };
        let known = &node.outputs[0];
        ensure!(
            may_be(&Shape::known(shape), &known.shape),
            InvalidArgument,
            "variable `{}` has shape {}, cannot be assigned a value of shape {shape:?}",
            node.name,
            known.shape
        );
        Ok(())
    }

    /// Takes back the slots of a run in which nothing is left but the constants.
    pub(super) fn end(&self, frame: Vec<Option<Tensor>>) {
        self.frames.lock().push(frame);
    }
}

/// The error with the node that it happened at.
pub(super) fn at_node(error: Error, node: &Node) -> Error {
    error.within(node.described())
}

/// The error of a step that did not run because another one failed.
pub(super) fn cancelled() -> Error {
    Error::new(Code::Cancelled, "another node failed first")
}
