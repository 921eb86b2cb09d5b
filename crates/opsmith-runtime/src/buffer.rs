//! The memory of tensors: blocks of our own, aligned to 64 bytes, or foreign memory kept alive by its owner.

use std::alloc::alloc_zeroed;
use std::sync::Arc;

use opsmith_core::Result;

use crate::device;
use crate::memory::{Memory, Owner};
use crate::pool::MemoryPool;

/// A block of memory of our own, aligned to 64 bytes.
pub(crate) struct Block {
    memory: Memory,
    /// Where the memory goes back to.
    pool: Option<Arc<MemoryPool>>,
}

impl Block {
    /// A block of `bytes` uninitialised bytes (at least one).
    pub(crate) fn new(bytes: usize) -> Result<Block> {
        Ok(Block { memory: Memory::new(bytes)?, pool: None })
    }

    /// A block of `bytes` zero bytes (at least one).
    pub(crate) fn zeroed(bytes: usize) -> Result<Block> {
        // SAFETY: `with` never asks for an empty layout.
        let memory = Memory::with(bytes, |layout| unsafe { alloc_zeroed(layout) })?;
        Ok(Block { memory, pool: None })
    }

    /// A block of `bytes` uninitialised bytes (at least one) that goes back to `pool`.
    pub(crate) fn pooled(bytes: usize, pool: &Arc<MemoryPool>) -> Result<Block> {
        Ok(Block { memory: pool.take(bytes)?, pool: Some(pool.clone()) })
    }

    /// The address of the first byte.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // The block is not used again, so this is the only holder of the memory.
        let memory = self.memory.take();
        match &self.pool {
            Some(pool) => pool.give_back(memory),
            None => memory.free(),
        }
    }
}

/// What a tensor holds on to.
#[derive(Clone)]
pub(crate) enum Buffer {
    /// A block of our own, which its only holder may write.
    Own(Arc<Block>),
    /// Memory of somebody else's, only read.
    Foreign(#[expect(dead_code, reason = "held for its drop")] Owner),
    /// A block of a device's, which kernels write once.
    Device(Arc<device::Block>),
}
