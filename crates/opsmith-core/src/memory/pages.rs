//! Large blocks of memory in large pages.

/// From how many bytes on a block is worth it: below, it may share its pages with others.
const LARGE: usize = 1 << 22;
/// How many bytes a large page has.
const PAGE: usize = 1 << 21;

/// Tells the system that new memory is going to be written as a whole, so that it comes in large pages where the system
/// has them for who asks: writing it first then takes a page fault every 2 MiB rather than every 4 KiB. Small blocks are left
/// as they are, and so is what is no whole large page: one that reaches beyond the block would be cleared as a whole, and split
/// when the block is given back.
///
/// # Safety
/// There must be `bytes` bytes of memory at `data`, all of one block.
pub unsafe fn prefer_large_pages(data: *mut u8, bytes: usize) {
    if bytes < LARGE {
        return;
    }
    let begin = (data as usize).next_multiple_of(PAGE);
    let end = (data as usize + bytes) / PAGE * PAGE;
    if begin < end {
        // SAFETY: it is advice about whole pages of the caller's block; a failure changes nothing.
        unsafe { libc::madvise(begin as *mut libc::c_void, end - begin, libc::MADV_HUGEPAGE) };
    }
}
