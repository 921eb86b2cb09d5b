//! Memory from the global allocator, aligned to 64 bytes.

use std::alloc::{Layout, alloc, dealloc};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use opsmith_core::memory::prefer_large_pages;
use opsmith_core::{Error, Result};

/// What keeps foreign memory alive: dropped when the last tensor that uses the memory is.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// The alignment of every block that we allocate: a cache line, and the widest vector register.
const ALIGNMENT: usize = 64;

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

    /// As [`new`](Self::new), from `allocate`.
    pub(crate) fn with(bytes: usize, allocate: impl FnOnce(Layout) -> *mut u8) -> Result<Memory> {
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

    /// The address of the first byte.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.data.as_ptr()
    }

    /// How many bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The memory, for the only holder to give back, who uses it no more.
    pub(crate) fn take(&mut self) -> Memory {
        Memory { ..*self }
    }

    /// Gives it back to the global allocator.
    pub(crate) fn free(self) {
        let Some(layout) = around(self.size) else { return };
        // SAFETY: it came from the global allocator with this layout, and nobody holds it any more.
        unsafe { dealloc(self.data.as_ptr().sub(self.offset), layout) };
    }
}
