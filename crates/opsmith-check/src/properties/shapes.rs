//! Inferred shapes against those that are produced.

use opsmith_core::{Dim, Shape};

use super::Setting;
use crate::case::Case;
use crate::lab::{Lab, Outputs, Trouble};

/// Inference on the shapes of a call that is accepted gives the shapes that are produced: exactly those where it knows
/// them, the same after the symbols have their sizes, and none that contradict them where dims are unknown.
pub(super) fn inferred_is_produced(
    lab: &mut Lab<'_>,
    setting: &Setting<'_, '_>,
    case: &Case,
) -> Result<(), Trouble> {
    let outputs = lab.accepted(setting.subject, case)?;
    for knowledge in
        [Knowledge::All, Knowledge::Symbols, Knowledge::Ranks, Knowledge::Some, Knowledge::Nothing]
    {
        one(lab, setting, case, &outputs, knowledge)?;
    }
    Ok(())
}

/// An empty tensor is refused, or gives what was inferred.
pub(super) fn empty(lab: &mut Lab<'_>, setting: &Setting<'_, '_>, case: &Case) -> Result<(), Trouble> {
    if case.tensors().all(|tensor| tensor.shape.iter().product::<usize>() > 0) {
        return Err(Trouble::Reject("none of its tensors can be empty".into()));
    }
    match lab.accepted(setting.subject, case) {
        Ok(outputs) => one(lab, setting, case, &outputs, Knowledge::All),
        // To refuse it is right too.
        Err(Trouble::Reject(_)) => Ok(()),
        Err(trouble) => Err(trouble),
    }
}

/// What inference knows of the shapes of the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knowledge {
    All,
    /// A symbol for each size.
    Symbols,
    Some,
    Ranks,
    Nothing,
}

impl Knowledge {
    fn of(self, shapes: &[Vec<Shape>]) -> Vec<Vec<Shape>> {
        let mut position = 0;
        let mut dim = |dim: &Dim| {
            position += 1;
            match (self, dim.value()) {
                (Knowledge::Symbols, Some(size)) if size > 1 => Dim::symbol(&format!("s{size}")),
                (Knowledge::Ranks, _) => Dim::Unknown,
                (Knowledge::Some, _) if position % 2 == 0 => Dim::Unknown,
                _ => dim.clone(),
            }
        };
        let mut shape = |shape: &Shape| match shape.dims() {
            Some(dims) if self != Knowledge::Nothing => dims.iter().map(&mut dim).collect(),
            _ => Shape::unknown(),
        };
        shapes.iter().map(|list| list.iter().map(&mut shape).collect()).collect()
    }

    fn words(self) -> &'static str {
        match self {
            Knowledge::All => "from known shapes",
            Knowledge::Symbols => "from symbolic shapes",
            Knowledge::Some => "from partly known shapes",
            Knowledge::Ranks => "from known ranks",
            Knowledge::Nothing => "from unknown shapes",
        }
    }
}

fn one(
    lab: &mut Lab<'_>,
    setting: &Setting<'_, '_>,
    case: &Case,
    outputs: &Outputs,
    knowledge: Knowledge,
) -> Result<(), Trouble> {
    let given = knowledge.of(&case.shapes());
    let words = knowledge.words();
    let inferred = match lab.infer(case.infer(setting.subject, &given), case)? {
        Ok(inferred) => inferred,
        Err(refusal) => {
            let message = format!("the call succeeds, but inference {words} fails: {}", refusal.message);
            return Err(Trouble::fail(message, case));
        }
    };
    if inferred.len() != outputs.values.len() {
        let (expected, got) = (inferred.len(), outputs.values.len());
        return Err(Trouble::fail(format!("{got} tensors were produced, {expected} inferred {words}"), case));
    }
    for (i, (inferred, output)) in inferred.iter().zip(&outputs.values).enumerate() {
        let sizes = |symbol: &str| symbol.strip_prefix('s').and_then(|size| size.parse().ok());
        let resolved = inferred.substitute(&sizes).map_err(|error| {
            let message = format!("{inferred} was inferred {words}, which is no shape: {error}");
            Trouble::fail(message, case)
        })?;
        if !agree(&resolved, &output.shape) {
            let name = &setting.names(&outputs.counts)[i];
            let produced = &output.shape;
            let message =
                format!("output `{name}` has shape {produced:?}, but {inferred} was inferred {words}");
            return Err(Trouble::fail(message, case));
        }
    }
    Ok(())
}

/// Whether what is known of a shape is so.
fn agree(inferred: &Shape, produced: &[usize]) -> bool {
    inferred.dims().is_none_or(|dims| {
        dims.len() == produced.len()
            && dims.iter().zip(produced).all(|(dim, size)| dim.value().is_none_or(|dim| dim == *size as u64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_contradicts_nothing() {
        let shape = |text: &str| Shape::parse(text).unwrap();
        for (inferred, produced, expected) in [
            ("[2,3]", &[2, 3][..], true),
            ("[3,2]", &[2, 3], false),
            ("[?,3]", &[2, 3], true),
            ("[?]", &[2, 3], false),
        ] {
            assert_eq!(agree(&shape(inferred), produced), expected, "{inferred}");
        }
        assert!(agree(&Shape::unknown(), &[2]));
    }
}
