//! The memory of tensors: blocks of our own, aligned to 64 bytes, or foreign memory kept alive by its owner.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use opsmith_core::{Error, Result};

/// What keeps foreign memory alive: dropped when the last tensor that uses the memory is.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// The alignment of every block that we allocate: a cache line, and the widest vector register.
const ALIGNMENT: usize = 64;

/// A block of memory of our own, aligned to 64 bytes.
pub(crate) struct Block {
    data: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a block is plain memory that only its holder reaches.
unsafe impl Send for Block {}
// SAFETY: a shared block gives nothing but its address.
unsafe impl Sync for Block {}

impl Block {
    /// A block of `bytes` uninitialised bytes (at least one).
    pub(crate) fn new(bytes: usize) -> Result<Block> {
        // SAFETY: `with` never asks for an empty layout.
        Block::with(bytes, |layout| unsafe { alloc(layout) })
    }

    /// A block of `bytes` zero bytes (at least one).
    pub(crate) fn zeroed(bytes: usize) -> Result<Block> {
        // SAFETY: as above.
        Block::with(bytes, |layout| unsafe { alloc_zeroed(layout) })
    }

    fn with(bytes: usize, allocate: impl FnOnce(Layout) -> *mut u8) -> Result<Block> {
        let too_much = || Error::resource_exhausted(format!("cannot allocate a tensor of {bytes} bytes"));
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).map_err(|_| too_much())?;
        let data = NonNull::new(allocate(layout)).ok_or_else(too_much)?;
        Ok(Block { data, layout })
    }

    /// The address of the first byte.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.data.as_ptr()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the block came from the global allocator with this layout and is freed once.
        unsafe { dealloc(self.data.as_ptr(), self.layout) };
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
