//! Memory that code is in.

use std::ptr;

/// Code that can be run: written first and made executable then, so that no memory is ever both.
pub(crate) struct Pages {
    address: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: nobody writes to it.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Nothing where there is no memory, or where the system allows no code that was not in a file.
    pub(crate) fn new(code: &[u8]) -> Option<Self> {
        let (read, write, execute) = (libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory, wherever there is room.
        let address = unsafe { libc::mmap(ptr::null_mut(), code.len(), read | write, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return None;
        }
        let pages = Pages { address, bytes: code.len() };
        // SAFETY: the memory has so many bytes, and is nobody else's.
        let is_executable = unsafe {
            ptr::copy_nonoverlapping(code.as_ptr(), address.cast(), code.len());
            libc::mprotect(address, code.len(), read | execute) == 0
        };
        is_executable.then_some(pages)
    }

    /// Runs the code.
    ///
    /// # Safety
    /// It must be a function of an address, and what it reads and writes must be there.
    pub(crate) unsafe fn run(&self, frame: *mut u8) {
        // SAFETY: promised by the caller; the memory is executable.
        unsafe {
            let function: unsafe extern "C" fn(*mut u8) = std::mem::transmute(self.address);
            function(frame);
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and nobody runs it any more.
        unsafe { libc::munmap(self.address, self.bytes) };
    }
}
