//! Which compositions a thread is in: one that is composed of itself never ends.

use std::cell::RefCell;

use opsmith::prelude::*;

thread_local! {
    static ENTERED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// That a thread is in a composition, until it is dropped.
pub(super) struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        ENTERED.with(|entered| drop(entered.borrow_mut().pop()));
    }
}

/// Enters the composition of this name.
///
/// # Errors
/// `FailedPrecondition` with the cycle, where the thread is in it already.
pub(super) fn enter(name: &str) -> Result<Entered> {
    ENTERED.with(|entered| {
        let mut entered = entered.borrow_mut();
        if let Some(first) = entered.iter().position(|other| other == name) {
            let cycle = entered[first..].iter().map(|name| format!("{name} → ")).collect::<String>();
            bail!(FailedPrecondition, "is composed of itself: {cycle}{name}");
        }
        entered.push(name.to_owned());
        Ok(Entered)
    })
}
