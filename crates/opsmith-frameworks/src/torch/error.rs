//! Errors leave as C++ exceptions: PyTorch's interface for kernels written in C has no other way.

use std::cell::RefCell;
use std::ffi::c_char;

use opsmith_core::{Error, Signature};

use super::shim::Shim;

thread_local! {
    /// The message of the error that is about to be thrown: it must outlive every Rust frame.
    static MESSAGE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Keeps `library::op: what happened` for [`throw`]; of an error of another op, which this one has called, `Op: Other: what happened`.
pub(super) fn remember(library: &str, signature: &Signature, error: &Error) {
    let (error, own) = (error.clone().with_op(&signature.name), &signature.name);
    let name = |op: &str| match op == own {
        true => format!("{library}::{}", signature.snake_name()),
        false => op.to_owned(),
    };
    remember_text(&error.message_with(name));
}

/// Keeps a message for [`throw`].
pub(super) fn remember_text(text: &str) {
    // A thread that is ending has no message to keep any more; `throw` then has a text of its own.
    let _ = MESSAGE.try_with(|message| {
        let mut message = message.borrow_mut();
        message.clear();
        message.extend(text.bytes().map(|byte| if byte == 0 { b' ' } else { byte }));
        message.push(0);
    });
}

/// Throws a `std::runtime_error` with the message that was remembered.
///
/// # Safety
/// No frame between the caller's and PyTorch's may have anything left to drop: the exception is not Rust's.
pub(super) unsafe fn throw(shim: &Shim) -> ! {
    let text: *const c_char = MESSAGE
        .try_with(|message| {
            let message = message.borrow();
            if message.is_empty() { std::ptr::null() } else { message.as_ptr().cast() }
        })
        .unwrap_or(std::ptr::null());
    let text = if text.is_null() { c"an Opsmith op failed".as_ptr() } else { text };
    // SAFETY: the text ends with a NUL and stays until this thread fails again; the exception copies it.
    unsafe { (shim.cpp.throw_runtime_error)(text) }
}

#[cfg(test)]
mod tests {
    use opsmith_core::SignatureBuilder;

    use super::*;

    #[test]
    fn an_op_is_said_once() {
        let signature = SignatureBuilder::new("ZeroOut").build().unwrap();
        let remembered = |error: Error| {
            remember("lib", &signature, &error);
            MESSAGE.with_borrow(|message| String::from_utf8(message.clone()).unwrap())
        };
        let error = || Error::internal("no");
        assert_eq!(remembered(error()), "lib::zero_out: no\0");
        assert_eq!(remembered(error().with_op("ZeroOut")), "lib::zero_out: no\0");
        assert_eq!(remembered(error().with_op("Sum")), "ZeroOut: Sum: no\0");
        assert_eq!(remembered(error().with_op("Sum").with_op("ZeroOut")), "ZeroOut: Sum: no\0");
    }
}
