//! The memory of cards.

use opsmith_core::{Device, DeviceKind, Result, ensure};
use opsmith_runtime::Card;
use pyo3::prelude::*;

use crate::errors::to_python;
use crate::python_values::Text;

fn card(name: &str) -> Result<Card> {
    let device: Device = name.parse()?;
    ensure!(
        device.kind == DeviceKind::Cuda,
        InvalidArgument,
        "`{name}` is no card: expected one as `cuda:0`"
    );
    Card::open(device.index)
}

/// How many bytes of a card's memory tensors take now, and the most that they took, those of all sessions.
#[pyfunction]
pub(crate) fn card_memory(py: Python<'_>, device: Text) -> PyResult<(usize, usize)> {
    let memory = py.detach(|| card(&device).map(|card| card.memory_use()));
    memory.map(|memory| (memory.live, memory.peak)).map_err(|error| to_python(py, &error))
}

/// Gives memory that no tensor uses back to the card.
#[pyfunction]
pub(crate) fn release_card_memory(py: Python<'_>, device: Text) -> PyResult<()> {
    py.detach(|| card(&device).map(|card| card.release_memory())).map_err(|error| to_python(py, &error))
}
