//! The values of variables in a session.

use std::collections::HashMap;
use std::sync::{MutexGuard, RwLockReadGuard};

use opsmith_core::fork::{Guard, RwLock, Turn};

use crate::graph::NodeId;
use crate::tensor::Tensor;

/// The values of the variables that have one.
#[derive(Default)]
pub(super) struct State {
    values: RwLock<Values>,
    /// Held by a run that writes variables, so that none is lost between its reads and its writes.
    writer: Turn,
}

/// Values of variables, each where its variable is.
pub(super) type Values = HashMap<NodeId, Tensor>;

/// New values of variables, one for each.
#[derive(Default)]
pub(super) struct Written(Vec<(NodeId, Tensor)>);

impl Written {
    /// The new value of a variable, where it has one.
    pub(super) fn get(&self, variable: NodeId) -> Option<&Tensor> {
        self.0.iter().find(|(id, _)| *id == variable).map(|(_, value)| value)
    }

    /// Makes this the new value of a variable.
    pub(super) fn set(&mut self, variable: NodeId, value: Tensor) {
        self.0.retain(|(id, _)| *id != variable);
        self.0.push((variable, value));
    }
}

impl State {
    /// The values, all of one moment.
    pub(super) fn read(&self) -> Guard<RwLockReadGuard<'_, Values>> {
        self.values.read()
    }

    /// Makes these the values, all at one moment.
    pub(super) fn write(&self, new: Written) {
        let mut values = self.values.write();
        // The old values are dropped when the lock is not held any more: they may be in foreign memory.
        let old: Vec<_> = new.0.into_iter().filter_map(|(id, value)| values.insert(id, value)).collect();
        drop(values);
        drop(old);
    }

    /// Waits until no other run writes.
    pub(super) fn begin_writing(&self) -> MutexGuard<'_, ()> {
        self.writer.take()
    }
}
