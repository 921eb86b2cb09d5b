//! What the tests of the C ABI have in common.

use std::ffi::{CStr, c_char};

use opsmith_core::abi::{OpsmithError, OpsmithLibrary};

/// An error of a library's, freed: its code, and its message.
pub(crate) fn taken(table: &OpsmithLibrary, error: *mut OpsmithError) -> Result<(), (i32, String)> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the library gave the error, and it is freed once.
    unsafe {
        let own = |text: *const c_char| CStr::from_ptr(text).to_string_lossy();
        let op = if (*error).op.is_null() { String::new() } else { format!("{}: ", own((*error).op)) };
        let failure = ((*error).code, format!("{op}{}", own((*error).text)));
        (table.error_free)(error);
        Err(failure)
    }
}
