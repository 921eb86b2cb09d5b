//! What a library points to, looked at with care, for the library may be any.

use opsmith_core::{Result, ensure};

/// The most elements of a list.
const MOST: usize = 1 << 20;

/// A structure that a library points to.
///
/// # Safety
/// `pointer` must be null or point to a structure that begins with its own size, valid for `'a`.
pub(crate) unsafe fn structure<'a, T>(pointer: *const T, what: &str) -> Result<&'a T> {
    ensure!(!pointer.is_null(), Internal, "{what}: null");
    // SAFETY: every structure of the ABI begins with its size.
    let (size, needed) = (unsafe { *pointer.cast::<usize>() }, size_of::<T>());
    ensure!(size >= needed, Internal, "{what}: expected a structure of {needed} bytes, got {size}");
    // SAFETY: it is at least as large.
    Ok(unsafe { &*pointer })
}

/// A list that a library points to; an empty one may be null.
///
/// # Safety
/// `data` must be readable for `len` elements for `'a`.
pub(crate) unsafe fn slice<'a, T>(data: *const T, len: usize, what: &str) -> Result<&'a [T]> {
    ensure!(len <= MOST, Internal, "expected at most {MOST} {what}, got {len}");
    if len == 0 {
        return Ok(&[]);
    }
    ensure!(!data.is_null(), Internal, "expected {len} {what}, got null");
    // SAFETY: promised by the caller.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}
