//! The values of variables in a session.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, RwLock};

use crate::graph::NodeId;
use crate::poison::Unpoisoned;
use crate::tensor::Tensor;

/// The values of the variables that have one.
#[derive(Default)]
pub(super) struct State {
    values: RwLock<HashMap<NodeId, Tensor>>,
    /// Held by a run that writes variables, so that none is lost between its reads and its writes.
    writer: Mutex<()>,
}

impl State {
    /// The values of these variables, all of one moment; none for one that has no value.
    pub(super) fn read(&self, variables: impl Iterator<Item = NodeId>) -> Vec<Option<Tensor>> {
        let values = self.values.read().unpoisoned();
        variables.map(|variable| values.get(&variable).cloned()).collect()
    }

    /// Makes these the values, all at one moment.
    pub(super) fn write(&self, new: impl Iterator<Item = (NodeId, Tensor)>) {
        self.values.write().unpoisoned().extend(new);
    }

    /// Gives a variable a value.
    pub(super) fn set(&self, variable: NodeId, value: Tensor) {
        let _writer = self.begin_writing();
        self.write(std::iter::once((variable, value)));
    }

    /// Waits until no other run writes.
    pub(super) fn begin_writing(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unpoisoned()
    }
}
