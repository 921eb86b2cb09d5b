//! Locks whose holder panicked: what they guard is left consistent at every step, so it is used on.

use std::sync::{LockResult, PoisonError};

/// Takes what a lock guards, whether or not a holder panicked.
pub(crate) trait Unpoisoned<G> {
    /// The guard.
    fn unpoisoned(self) -> G;
}

impl<G> Unpoisoned<G> for LockResult<G> {
    fn unpoisoned(self) -> G {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}
