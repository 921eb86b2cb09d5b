//! What is in the process: libraries of frameworks, found by name and never loaded, and their functions.

use std::ffi::{CStr, CString, c_void};

use opsmith_core::Result;
use opsmith_core::fork::OnceLock;

/// The library of this name, null where it is not in the process. It stays open: its functions must not go away.
pub(crate) fn opened(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string; with RTLD_NOLOAD nothing is loaded and no code runs.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) }
}

/// A function of a library that is [`opened`], or of one that it depends on; null where there is none of this name.
pub(crate) fn symbol(handle: *mut c_void, name: &str) -> *mut c_void {
    let name = CString::new(name).unwrap_or_default();
    // SAFETY: `handle` is open and the name is a C string.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

/// What `resolve` makes of a library, once, or `None` when it is not in the process (yet).
///
/// # Errors
/// What `resolve` said.
pub(crate) fn find<T>(
    found: &'static OnceLock<Result<T>>,
    library: &CStr,
    resolve: fn(*mut c_void) -> Result<T>,
) -> Result<Option<&'static T>> {
    if found.get().is_none() {
        let handle = opened(library);
        if handle.is_null() {
            return Ok(None);
        }
        found.get_or_init(|| resolve(handle));
    }
    match found.get() {
        Some(Ok(found)) => Ok(Some(found)),
        Some(Err(error)) => Err(error.clone()),
        None => Ok(None),
    }
}
