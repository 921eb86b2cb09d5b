//! Large blocks of memory in large pages.

/// From how many bytes on a block is worth it, as NumPy has it: below, a block may share its pages with others.
const WORTH_IT: usize = 4 << 20;

/// The size of the pages on which the advice has to begin.
const PAGE: usize = 4096;

/// Asks the system for large pages under a new block of memory that nobody wrote yet, so that writing it first takes a page
/// fault every 2 MiB rather than every 4 KiB. It is advice: where the system has no such pages, nothing happens. Small blocks
/// are left as they are.
///
/// # Safety
/// There must be `bytes` bytes of memory at `data`, all of one block.
pub unsafe fn prefer_huge_pages(data: *mut u8, bytes: usize) {
    if bytes < WORTH_IT {
        return;
    }
    #[cfg(target_os = "linux")]
    {
        let before = data.align_offset(PAGE);
        // SAFETY: the pages are those of the caller's block, and the advice changes nothing of what they hold.
        unsafe { libc::madvise(data.add(before).cast(), bytes - before, libc::MADV_HUGEPAGE) };
    }
}
