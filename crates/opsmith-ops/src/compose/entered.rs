//! Which compositions a thread is in: one that is composed of itself never ends.

use std::cell::{Cell, RefCell};

use opsmith::prelude::*;

thread_local! {
    static ENTERED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static CHECKS: Cell<bool> = const { Cell::new(false) };
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

/// Runs the checks of a composition's shape function within its kernel. Only those that the author states do anything: steps check
/// what they are given themselves.
pub(super) fn check_shapes(context: &OpKernelContext<'_>) -> Result<()> {
    /// Ends them, after a panic too.
    struct Checks;

    impl Drop for Checks {
        fn drop(&mut self) {
            CHECKS.set(false);
        }
    }

    CHECKS.set(true);
    let _checks = Checks;
    context.infer_shapes().map(drop)
}

/// Whether this thread is in [`check_shapes`].
pub(super) fn checks() -> bool {
    CHECKS.get()
}
