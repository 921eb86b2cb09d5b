//! Memory that is little: a size that the input decides is refused here as it is where there is no such memory. What takes it without
//! asking ends the process, and so is found.

use std::alloc::{GlobalAlloc, Layout, System};

/// The largest block that there is.
pub const MOST_BYTES: usize = 64 << 20;

struct Little;

// SAFETY: it is the system's, or none.
unsafe impl GlobalAlloc for Little {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > MOST_BYTES {
            return std::ptr::null_mut();
        }
        // SAFETY: passed on from the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() > MOST_BYTES {
            return std::ptr::null_mut();
        }
        // SAFETY: passed on from the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: passed on from the caller.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size > MOST_BYTES {
            return std::ptr::null_mut();
        }
        // SAFETY: passed on from the caller.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static MEMORY: Little = Little;
