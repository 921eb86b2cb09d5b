//! What a framework refuses while a library is registered with it. The other ops are there nonetheless.

use opsmith_core::{Error, Result};

/// The ops that were refused, each with its error.
#[derive(Default)]
pub(crate) struct Refused {
    ops: Vec<(String, Error)>,
    /// Whether there are others.
    has_others: bool,
}

impl Refused {
    /// Notes what came of an op, by its name in the framework.
    pub(crate) fn note(&mut self, op: &str, outcome: Result<()>) {
        match outcome {
            Ok(()) => self.has_others = true,
            Err(error) => self.ops.push((op.to_owned(), error)),
        }
    }

    /// What came of all: one error that names each op that was refused, those with one reason together.
    pub(crate) fn outcome(&self) -> Result<()> {
        let Some((_, first)) = self.ops.first() else { return Ok(()) };
        let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
        for (op, error) in &self.ops {
            let reason = error.message();
            match reasons.iter_mut().find(|(other, _)| *other == reason) {
                Some((_, ops)) => ops.push(op),
                None => reasons.push((reason, vec![op])),
            }
        }
        let told = reasons.iter().map(|(reason, ops)| format!("{}: {reason}", ops.join(", ")));
        let mut told = told.collect::<Vec<_>>().join("; ");
        if self.has_others {
            told += "; the other ops are registered";
        }
        Err(Error::new(first.code(), told))
    }
}

#[cfg(test)]
mod tests {
    use opsmith_core::Code;

    use super::*;

    #[test]
    fn ops_with_one_reason_are_told_together() {
        let mut refused = Refused::default();
        refused.note("A", Ok(()));
        assert_eq!(refused.outcome(), Ok(()));
        let taken = || Err(Error::already_exists("is there already"));
        refused.note("B", taken());
        refused.note("C", Err(Error::internal("no kernel")));
        refused.note("D", taken());
        let error = refused.outcome().unwrap_err();
        assert_eq!(error.message(), "B, D: is there already; C: no kernel; the other ops are registered");
        assert_eq!(error.code(), Code::AlreadyExists);
    }
}
