//! TensorFlow's strings: `TF_TString`, whose layout is part of its interface, for all its functions are inline.

use std::ptr::copy_nonoverlapping;

use opsmith_core::tensor::StrRef;
use opsmith_core::{Error, Result};

/// A string: 24 bytes, of which the two lowest bits of the first say how the rest is to be read.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct TString([u8; 24]);

const SMALL: u8 = 0;
const LARGE: u8 = 1;
const OFFSET: u8 = 2;

/// The longest string that lies within the 24 bytes, with its length and a NUL.
const SMALL_CAPACITY: usize = 22;

impl TString {
    fn word(&self, index: usize) -> usize {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[8 * index..8 * index + 8]);
        usize::from_ne_bytes(bytes)
    }

    /// Its bytes, which stay where they are as long as the string does.
    pub(super) fn as_str_ref(&self) -> StrRef {
        let start = self.0.as_ptr();
        match self.0[0] & 3 {
            SMALL => StrRef { data: start.wrapping_add(1), len: usize::from(self.0[0] >> 2) },
            OFFSET => {
                let word = self.word(0);
                // Two numbers of 32 bits: length and type, and how far from here the bytes are.
                let (size, offset) = (word as u32, (word >> 32) as u32);
                StrRef { data: start.wrapping_add(offset as usize), len: (size >> 2) as usize }
            }
            // An own block (length, capacity, address), or somebody else's (length, address).
            kind => {
                let address = if kind == LARGE { self.word(2) } else { self.word(1) };
                StrRef { data: address as *const u8, len: self.word(0) >> 2 }
            }
        }
    }

    /// Makes an empty string a copy of `text`.
    ///
    /// # Errors
    /// `ResourceExhausted` when there is no memory for it.
    ///
    /// # Safety
    /// `text` must be readable.
    pub(super) unsafe fn set(&mut self, text: StrRef) -> Result<()> {
        let StrRef { data, len } = text;
        *self = TString([0; 24]);
        let target = if len <= SMALL_CAPACITY {
            self.0[0] = (len as u8) << 2 | SMALL;
            self.0[1..].as_mut_ptr()
        } else {
            // TensorFlow frees it with C's own `free`.
            // SAFETY: the size is not zero.
            let block = unsafe { libc::malloc(len + 1) }.cast::<u8>();
            if block.is_null() {
                return Err(Error::resource_exhausted(format!("cannot keep a string of {len} bytes")));
            }
            for (word, value) in [len << 2 | usize::from(LARGE), len, block as usize].into_iter().enumerate()
            {
                self.0[8 * word..8 * word + 8].copy_from_slice(&value.to_ne_bytes());
            }
            block
        };
        if len > 0 {
            // SAFETY: the caller's text is readable, and there is room for it and a NUL.
            unsafe { copy_nonoverlapping(data, target, len) };
        }
        // SAFETY: as above.
        unsafe { *target.add(len) = 0 };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_every_length_come_back() {
        for len in [0, 1, 21, 22, 23, 24, 1000] {
            let text: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let mut string = TString([0; 24]);
            // SAFETY: the text is readable.
            unsafe { string.set(StrRef { data: text.as_ptr(), len }) }.unwrap();
            let StrRef { data, len: got } = string.as_str_ref();
            // SAFETY: the string is alive.
            assert_eq!(unsafe { std::slice::from_raw_parts(data, got) }, text);
            if len > SMALL_CAPACITY {
                // SAFETY: a large string has a block of its own.
                unsafe { libc::free(data.cast_mut().cast()) };
            }
        }
    }
}
