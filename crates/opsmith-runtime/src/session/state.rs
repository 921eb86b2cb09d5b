//! The values of variables in a session.

use std::collections::HashMap;
use std::sync::{MutexGuard, RwLockReadGuard};

use opsmith_core::fork::{Guard, RwLock, Turn};

use crate::card::CardTensor;
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
#[derive(Default)]
pub(super) struct Values {
    pub(super) in_memory: HashMap<NodeId, Tensor>,
    pub(super) on_card: HashMap<NodeId, CardTensor>,
}

/// New values of variables, one for each.
#[derive(Default)]
pub(super) struct Written {
    in_memory: Vec<(NodeId, Tensor)>,
    on_card: Vec<(NodeId, CardTensor)>,
}

impl Written {
    /// The new value of a variable in main memory, where it has one.
    pub(super) fn get(&self, variable: NodeId) -> Option<&Tensor> {
        self.in_memory.iter().find(|(id, _)| *id == variable).map(|(_, value)| value)
    }

    /// Makes this the new value of a variable in main memory.
    pub(super) fn set(&mut self, variable: NodeId, value: Tensor) {
        self.in_memory.retain(|(id, _)| *id != variable);
        self.in_memory.push((variable, value));
    }

    /// As [`set`](Self::set), of a variable on a card.
    pub(super) fn set_on_card(&mut self, variable: NodeId, value: CardTensor) {
        self.on_card.retain(|(id, _)| *id != variable);
        self.on_card.push((variable, value));
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
        let in_memory: Vec<_> =
            new.in_memory.into_iter().filter_map(|(id, value)| values.in_memory.insert(id, value)).collect();
        let on_card: Vec<_> =
            new.on_card.into_iter().filter_map(|(id, value)| values.on_card.insert(id, value)).collect();
        drop(values);
        drop((in_memory, on_card));
    }

    /// Waits until no other run writes.
    pub(super) fn begin_writing(&self) -> MutexGuard<'_, ()> {
        self.writer.take()
    }
}
