//! Memory between two pages that nobody may touch: what reads or writes past its end ends the process at once.

use std::ptr::NonNull;

use opsmith_core::tensor::StrRef;
use opsmith_core::{DType, Device, Error, Result, TensorView};

use crate::wire::{Laid, read_dtype};

/// What lies between a buffer and the page behind it, to see whether it was written.
const CANARY: u8 = 0xC5;

/// A buffer that ends at, or at most an alignment before, a page without access; another such page is in front.
pub(crate) struct Guarded {
    mapping: NonNull<u8>,
    mapped: usize,
    data: NonNull<u8>,
    len: usize,
    slack: usize,
}

impl Guarded {
    /// `len` zero bytes, aligned to `align`, or one byte off that.
    ///
    /// # Errors
    /// `ResourceExhausted` where there is no memory.
    pub(crate) fn new(len: usize, align: usize, unaligned: bool) -> Result<Guarded> {
        // SAFETY: only asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let padded = len.next_multiple_of(align) + if unaligned { align } else { 0 };
        let inner = padded.max(1).next_multiple_of(page);
        let mapped = inner + 2 * page;
        let no_memory = || Error::resource_exhausted(format!("no memory for a tensor of {len} bytes"));
        // SAFETY: a new mapping, wherever there is room.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if mapping == libc::MAP_FAILED {
            return Err(no_memory());
        }
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or_else(no_memory)?;
        let offset = page + inner - padded + usize::from(unaligned);
        // SAFETY: inside the mapping.
        let data = unsafe { mapping.add(offset) };
        let slack = page + inner - offset - len;
        let guarded = Guarded { mapping, mapped, data, len, slack };
        // SAFETY: the pages between the first and the last of the mapping.
        let changed = unsafe {
            libc::mprotect(mapping.as_ptr().add(page).cast(), inner, libc::PROT_READ | libc::PROT_WRITE)
        };
        if changed != 0 {
            return Err(no_memory());
        }
        // SAFETY: the slack lies behind the data, in the pages that were opened.
        unsafe { data.as_ptr().add(len).write_bytes(CANARY, slack) };
        Ok(guarded)
    }

    /// The address of the first byte.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.data.as_ptr()
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: opened for reading, and nobody writes while this is borrowed.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }

    /// The bytes, to be filled.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: opened for writing, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }

    /// Whether the bytes behind the buffer, up to the page without access, are as they were.
    pub(crate) fn is_intact(&self) -> bool {
        // SAFETY: the slack was opened and filled by `new`.
        let slack = unsafe { std::slice::from_raw_parts(self.data.as_ptr().add(self.len), self.slack) };
        slack.iter().all(|byte| *byte == CANARY)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and is given back once. That it fails can only mean that it is gone.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

/// A tensor of a call, in memory that is guarded.
pub(crate) struct Input {
    pub(crate) memory: Guarded,
    _strings: Vec<Vec<u8>>,
    dtype: DType,
    pub(crate) laid: Laid,
}

impl Input {
    pub(crate) fn new(mut laid: Laid) -> Result<Input> {
        let dtype = read_dtype(&laid.dtype)?;
        let strings = std::mem::take(&mut laid.strings);
        let refs = strings.iter().map(|text| StrRef { data: text.as_ptr(), len: text.len() });
        let refs: Vec<StrRef> = refs.collect();
        let align = dtype.size().min(size_of::<u64>());
        let len = if refs.is_empty() { laid.buffer.len() } else { size_of_val(&*refs) };
        let memory = Guarded::new(len, align, laid.unaligned && refs.is_empty())?;
        let from = if refs.is_empty() { laid.buffer.as_ptr() } else { refs.as_ptr().cast() };
        // SAFETY: the new memory has `len` bytes, as many as are at `from`.
        unsafe { std::ptr::copy_nonoverlapping(from, memory.as_ptr(), len) };
        Ok(Input { memory, _strings: strings, dtype, laid })
    }

    pub(crate) fn view(&self) -> TensorView<'_> {
        let first = self.memory.as_ptr().wrapping_add(self.laid.offset * self.dtype.size());
        // SAFETY: the buffer holds every element that the strides reach: whoever laid it out made it so.
        unsafe {
            TensorView::from_raw_parts(first, self.dtype, Device::CPU, &self.laid.shape, &self.laid.strides)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_as_asked_and_sees_who_writes_behind_it() {
        for (len, align, unaligned) in [(0, 8, false), (12, 4, false), (12, 64, false), (24, 8, true)] {
            let mut guarded = Guarded::new(len, align, unaligned).unwrap();
            assert_eq!(guarded.as_ptr() as usize % align, usize::from(unaligned));
            guarded.bytes_mut().fill(7);
            assert!(guarded.is_intact());
            if guarded.slack > 0 {
                // SAFETY: one byte into the slack.
                unsafe { guarded.as_ptr().add(len).write(0) };
                assert!(!guarded.is_intact());
            }
        }
    }
}
