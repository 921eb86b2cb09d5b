//! The nests of a call, one after another.

use opsmith_core::{Compute, Result};

use super::machine;
use super::made::Native;
use super::memory::Task;
use crate::stored::Stored;

impl<T: Stored> Task<'_, T> {
    /// Runs all nests, those as machine code that are.
    pub(super) fn run(&self, compute: &Compute<'_>, natives: &[Option<Native>]) -> Result<()> {
        let native = |position: usize| {
            let native = natives.get(position).and_then(Option::as_ref);
            native.filter(|native| native.reaches(&self.addresses))
        };
        // Sums that are compared with each other are computed in one way.
        let is_native =
            (0..self.nests.nests.len()).all(|own| native(own).is_some()) || !self.nests.folds_again();
        self.nests.nests.iter().enumerate().try_for_each(|(position, nest)| {
            match native(position).filter(|_| is_native) {
                Some(native) => native.run::<T>(compute, &self.addresses),
                None => machine::run(self, nest, compute),
            }
        })
    }
}
