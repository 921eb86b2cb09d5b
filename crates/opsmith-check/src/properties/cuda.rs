//! A card gives what the CPU gives.

use std::sync::Arc;

use opsmith_core::attr::TensorValue;

use super::Setting;
use crate::case::Case;
use crate::lab::{FILL, Lab, Outcome, Trouble};
use crate::subject::Subject;
use crate::values::difference;

/// Why an op is not called on a card; `None` where it is.
pub(super) fn skipped(subject: &Subject) -> Option<String> {
    let changed = subject.signature.inputs.iter().find(|input| input.is_ref);
    match changed {
        _ if !subject.has_cuda() => Some("it has no CUDA kernel".into()),
        _ if subject.kernels.is_empty() => Some("it has no CPU kernel to compare with".into()),
        _ if subject.signature.stateful => Some("it is stateful: two calls may differ".into()),
        Some(changed) => Some(format!("it changes `{}` in place", changed.name)),
        None => None,
    }
}

/// What the CPU takes, the device takes, and gives the same but for rounding.
pub(super) fn is_that_of_the_cpu(
    lab: &mut Lab<'_>,
    setting: &Setting<'_, '_>,
    case: &Case,
) -> Result<(), Trouble> {
    let subject = setting.subject;
    let expected = lab.accepted(subject, case)?;
    let dtype = |tensor: &Option<Arc<TensorValue>>| tensor.as_ref().map(|tensor| tensor.dtype);
    let dtypes: Vec<Vec<_>> = case.inputs.iter().map(|list| list.iter().map(dtype).collect()).collect();
    let in_host_memory = subject.in_host_memory(&dtypes, &case.attrs);
    let got = match lab.on_device(case.call(subject, FILL), in_host_memory)? {
        Outcome::Refused(refusal) => {
            let message = format!("the CPU takes it, but on a card it is an error: {}", refusal.message);
            return Err(Trouble::fail(message, case));
        }
        outcome => outcome.accepted(case)?,
    };
    let names = setting.names(&expected.counts);
    match difference(&names, &got.values, &expected.values, setting.of_other_arithmetic()) {
        Some(difference) => Err(Trouble::fail(format!("on a card {difference}, which the CPU gives"), case)),
        None => Ok(()),
    }
}
