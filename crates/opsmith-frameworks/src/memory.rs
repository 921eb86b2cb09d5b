//! Memory of our own for a call whose caller offers none, freed when the call ends: scratch memory, aligned to 64 bytes, and texts.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::RefCell;
use std::ptr::NonNull;

use opsmith_core::{Error, Result, memory};

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

/// The elements of text of one call's outputs, in memory of our own.
#[derive(Default)]
pub(crate) struct Texts(RefCell<Vec<Vec<u8>>>);

impl Texts {
    /// Keeps a text.
    pub(crate) fn keep(&self, bytes: &[u8]) -> Result<NonNull<u8>> {
        let text = memory::copied(bytes, "text")?;
        let data = NonNull::from(&text[..]).cast();
        let mut texts = self.0.borrow_mut();
        memory::reserve(&mut texts, 1, "text")?;
        texts.push(text);
        Ok(data)
    }
}
