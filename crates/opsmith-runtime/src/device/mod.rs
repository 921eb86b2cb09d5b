//! Cards: memory that is used again, and one stream, on which all work goes.

mod memory;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use opsmith_core::fork::{Mutex, Turn};
use opsmith_core::{Device, Result};
use opsmith_cuda::CardMemory;

use self::memory::Allocator;
pub(crate) use self::memory::Block;
use crate::pool::MemoryUse;

/// A card as the engine uses it. Clones are of one device, and so is every one of the same number.
#[derive(Clone)]
pub struct Card {
    allocator: Arc<Allocator>,
}

impl Card {
    /// The card of this number, from 0.
    ///
    /// # Errors
    /// `FailedPrecondition`, with what to do, where there is no driver or it does not work; `NotFound` where there is no such
    /// device.
    pub fn open(index: i32) -> Result<Card> {
        static OPEN: Mutex<Option<HashMap<i32, Card>>> = Mutex::new(None);
        static TURN: Turn = Turn::new();
        let _turn = TURN.take();
        if let Some(device) = OPEN.lock().get_or_insert_default().get(&index) {
            return Ok(device.clone());
        }
        let allocator = Allocator::new(Device::cuda(index), Box::new(CardMemory::open(index)?));
        let device = Card { allocator };
        OPEN.lock().get_or_insert_default().insert(index, device.clone());
        Ok(device)
    }

    /// The device whose memory a block is of.
    pub(crate) fn of(block: &Block) -> Card {
        Card { allocator: block.allocator().clone() }
    }

    /// Which device it is.
    pub fn device(&self) -> Device {
        self.allocator.device()
    }

    /// Waits until all that was put on the device's stream is done: for who measures.
    ///
    /// # Errors
    /// `Internal` for what went wrong on the device until then.
    pub fn wait(&self) -> Result<()> {
        self.allocator.wait()
    }

    /// How much of the device's memory tensors take.
    pub fn memory_use(&self) -> MemoryUse {
        self.allocator.memory_use()
    }

    /// Gives memory that no tensor uses back to the device, for others in this process or another.
    pub fn release_memory(&self) {
        self.allocator.release();
    }

    /// The stream that all work is put on.
    pub(crate) fn stream(&self) -> *mut c_void {
        self.allocator.raw().stream()
    }

    /// A block of at least so many bytes, whose elements are anything.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<Block> {
        self.allocator.allocate(bytes)
    }

    /// What gives out its memory, and copies.
    pub(crate) fn allocator(&self) -> &Allocator {
        &self.allocator
    }
}

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Card({})", self.device())
    }
}
