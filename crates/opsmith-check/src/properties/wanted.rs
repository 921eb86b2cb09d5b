//! Outputs that need not be computed must not depend on which others are.

use super::Setting;
use crate::case::Case;
use crate::lab::{FILL, Lab, Trouble};
use crate::subject::Subject;
use crate::values::difference;
use crate::wire::Call;

/// Why there is nothing to choose.
pub(super) fn skipped(subject: &Subject) -> Option<String> {
    optional(subject).is_empty().then(|| "it has no output that may be left out".into())
}

/// The positions of the outputs that need not be computed; a call has a bit for no more than 64.
fn optional(subject: &Subject) -> Vec<usize> {
    let outputs = subject.signature.outputs.iter().enumerate().take(64);
    outputs.filter(|(_, output)| output.optional).map(|(output, _)| output).collect()
}

/// What is computed when one output is left out, or all but one are, is what it is when all are wanted.
pub(super) fn others_are_the_same(
    lab: &mut Lab<'_>,
    setting: &Setting<'_, '_>,
    case: &Case,
) -> Result<(), Trouble> {
    let subject = setting.subject;
    let all = lab.accepted(subject, case)?;
    let optional = optional(subject);
    let none = optional.iter().fold(u64::MAX, |mask, output| mask & !(1 << output));
    for output in optional {
        for wanted in [none | 1 << output, !(1 << output)] {
            let call = Call { wanted, ..case.call(subject, FILL) };
            let got = lab.call(call)?.accepted(case)?;
            let names = setting.names(&all.counts).into_iter().zip(&all.values);
            let made = names.zip(&got.made).filter(|(_, made)| **made);
            let (names, expected): (Vec<String>, Vec<_>) =
                made.map(|((name, value), _)| (name, value.clone())).unzip();
            if let Some(difference) = difference(&names, &got.values, &expected, setting.of_rounding()) {
                let how = if wanted & 1 << output == 0 { "is not wanted" } else { "alone is wanted" };
                let name = &subject.signature.outputs[output].name;
                let message = format!("where `{name}` {how}, {difference}");
                return Err(Trouble::fail(message, case));
            }
        }
    }
    Ok(())
}
