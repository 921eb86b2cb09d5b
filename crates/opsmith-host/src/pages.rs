//! Large outputs in large pages.

/// The least number of bytes for which large pages are asked: two of them, and some.
#[cfg(target_os = "linux")]
const LARGE: usize = 1 << 22;

/// Tells the system that new memory is going to be written as a whole, so that it comes in large pages where the system
/// has them for who asks. Of a large output most of the time goes to getting its small pages, one by one.
#[cfg(target_os = "linux")]
pub(crate) fn prefer_large(data: *mut u8, bytes: usize) {
    const PAGE: usize = 1 << 12;
    if bytes < LARGE {
        return;
    }
    let begin = (data as usize).next_multiple_of(PAGE);
    let end = (data as usize + bytes) / PAGE * PAGE;
    // SAFETY: it is advice about whole pages of memory that is ours; a failure changes nothing.
    unsafe { libc::madvise(begin as *mut libc::c_void, end - begin, libc::MADV_HUGEPAGE) };
}

/// There is no such advice elsewhere.
#[cfg(not(target_os = "linux"))]
pub(crate) fn prefer_large(_data: *mut u8, _bytes: usize) {}
