//! Panics become errors here, with their message and place, before they can reach a foreign frame.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

use crate::{Error, Result};

thread_local! {
    /// How many `catch` frames are on this thread's stack: a panic under one is reported by its error alone.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `body` and gives its result, or `Internal` with the message and place of its panic.
///
/// The default panic hook would print to the caller's standard error; under `catch` nothing is printed, since the
/// error says it all. Panics elsewhere in the process go to the hook that was there before.
pub fn catch<R>(body: impl FnOnce() -> Result<R>) -> Result<R> {
    install_hook();
    // One look-up of the thread's variable: in a shared object each is a call.
    let outcome = DEPTH.with(|depth| {
        depth.set(depth.get() + 1);
        let outcome = catch_unwind(AssertUnwindSafe(body));
        depth.set(depth.get() - 1);
        outcome
    });
    match outcome {
        Ok(result) => result,
        Err(payload) => Err(error_of(payload)),
    }
}

#[cold]
fn error_of(payload: Box<dyn Any + Send>) -> Error {
    match payload.downcast::<Error>() {
        Ok(error) => *error,
        Err(payload) => {
            let place = PLACE.with(|place| place.borrow_mut().take());
            let error = Error::from_panic(&*payload, place.as_deref());
            // What somebody panicked with may panic again when it is dropped.
            if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(again);
            }
            error
        }
    }
}

/// Unwinds to the nearest [`catch`], which gives `error` back: how the failure of a worker ends a kernel.
pub(crate) fn unwind_with(error: Error) -> ! {
    resume_unwind(Box::new(error))
}

fn install_hook() {
    static INSTALL: Once = Once::new();
    if INSTALL.is_completed() {
        return;
    }
    let _section = crate::fork::section();
    INSTALL.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if DEPTH.with(Cell::get) == 0 {
                return before(info);
            }
            PLACE.with(|place| *place.borrow_mut() = info.location().map(ToString::to_string));
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn a_panic_becomes_an_internal_error_with_message_and_place() {
        let error = catch::<()>(|| panic!("the number is {}", 7)).unwrap_err();
        assert_eq!(error.code(), Code::Internal);
        assert!(error.message().starts_with("panicked at ") && error.message().contains("panic.rs:"));
        assert!(error.message().ends_with(": the number is 7"));
    }

    #[test]
    fn a_value_that_panics_when_it_is_dropped_does_no_harm() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                std::panic::panic_any(Bomb);
            }
        }
        let error = catch::<()>(|| std::panic::panic_any(Bomb)).unwrap_err();
        assert!(error.message().ends_with(": a value that is not text"));
    }

    #[test]
    fn an_error_that_unwinds_comes_back_as_it_was() {
        let error = catch::<()>(|| unwind_with(Error::out_of_range("place 3"))).unwrap_err();
        assert_eq!(error, Error::out_of_range("place 3"));
    }
}
