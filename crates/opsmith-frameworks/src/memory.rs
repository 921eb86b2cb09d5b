//! Scratch memory of a call where the caller offers none: aligned to 64 bytes, freed when the call ends.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::RefCell;
use std::ptr::NonNull;

use opsmith_core::{Error, Result};

const ALIGNMENT: usize = 64;

/// The temporaries of one call.
#[derive(Default)]
pub(crate) struct Scratch {
    blocks: RefCell<Vec<(NonNull<u8>, Layout)>>,
}

impl Scratch {
    /// A block of `bytes` bytes.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<NonNull<u8>> {
        let too_much = || Error::resource_exhausted(format!("cannot allocate a temporary of {bytes} bytes"));
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).map_err(|_| too_much())?;
        // SAFETY: the size is not zero.
        let block = NonNull::new(unsafe { alloc(layout) }).ok_or_else(too_much)?;
        self.blocks.borrow_mut().push((block, layout));
        Ok(block)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for (block, layout) in self.blocks.get_mut().drain(..) {
            // SAFETY: the block came from `alloc` with this layout and is freed once.
            unsafe { dealloc(block.as_ptr(), layout) };
        }
    }
}
