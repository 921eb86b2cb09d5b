//! The memory of tensors: blocks of our own, aligned to 64 bytes, or foreign memory kept alive by its owner.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use opsmith_core::{Error, Result};
use opsmith_host::prefer_large_pages;

use crate::pool::MemoryPool;

/// What keeps foreign memory alive: dropped when the last tensor that uses the memory is.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// The alignment of every block that we allocate: a cache line, and the widest vector register.
const ALIGNMENT: usize = 64;

/// A block of memory of our own, aligned to 64 bytes.
pub(crate) struct Block {
    memory: Memory,
    /// Where the memory goes back to.
    pool: Option<Arc<MemoryPool>>,
}

/// Memory from the global allocator, which whoever holds it gives back.
///
/// It is cut from a block that is a little larger: asked for memory of this alignment, allocators take several times as long
/// as for any other, and do not know which they have zeroed already.
pub(crate) struct Memory {
    data: NonNull<u8>,
    /// How far into what the allocator gave `data` is.
    offset: usize,
    size: usize,
}

/// The alignment that allocators give without being asked.
const USUAL: usize = 2 * size_of::<usize>();

/// What the global allocator is asked for, for memory of so many bytes.
fn around(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(ALIGNMENT - USUAL)?, USUAL).ok()
}

// SAFETY: it is plain memory that only its holder reaches.
unsafe impl Send for Memory {}
// SAFETY: shared, it gives nothing but its address.
unsafe impl Sync for Memory {}

impl Memory {
    /// `bytes` uninitialised bytes (at least one).
    pub(crate) fn new(bytes: usize) -> Result<Memory> {
        // SAFETY: `with` never asks for an empty layout.
        Memory::with(bytes, |layout| unsafe { alloc(layout) })
    }

    fn with(bytes: usize, allocate: impl FnOnce(Layout) -> *mut u8) -> Result<Memory> {
        let too_much = || Error::resource_exhausted(format!("cannot allocate a tensor of {bytes} bytes"));
        let size = bytes.max(1);
        let layout = around(size).ok_or_else(too_much)?;
        let start = NonNull::new(allocate(layout)).ok_or_else(too_much)?;
        let offset = start.align_offset(ALIGNMENT);
        // SAFETY: addresses that are aligned to `USUAL` are at most the difference of both before an aligned one.
        let data = unsafe { start.add(offset) };
        // SAFETY: that many bytes follow in what the allocator gave.
        unsafe { prefer_large_pages(data.as_ptr(), size) };
        Ok(Memory { data, offset, size })
    }

    /// How many bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Gives it back to the global allocator.
    pub(crate) fn free(self) {
        let Some(layout) = around(self.size) else { return };
        // SAFETY: it came from the global allocator with this layout, and nobody holds it any more.
        unsafe { dealloc(self.data.as_ptr().sub(self.offset), layout) };
    }
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
        self.memory.data.as_ptr()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // The block is not used again, so this is the only holder of the memory.
        let memory = Memory { ..self.memory };
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
}
