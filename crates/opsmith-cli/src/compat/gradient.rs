//! What is declared of gradients.

use opsmith_core::GradientWiring;

use super::change::{Changes, Part};
use super::rules::Rule;
use crate::definitions::{Gradient, Op};

pub(super) fn compare(old: &Op, new: &Op, changes: &mut Changes<'_>) {
    let rule = match (&old.gradient, &new.gradient) {
        (Gradient::Op(was), Gradient::Op(is)) => return compare_wiring((old, was), (new, is), changes),
        (Gradient::Undeclared, Gradient::Undeclared) => return,
        (Gradient::NotDifferentiable, Gradient::NotDifferentiable) => return,
        (Gradient::Undeclared, _) => Rule::GradientAdded,
        (_, Gradient::Undeclared) => Rule::GradientRemoved,
        (Gradient::Op(_), Gradient::NotDifferentiable) => Rule::GradientZero,
        (Gradient::NotDifferentiable, Gradient::Op(_)) => Rule::GradientNoLongerZero,
    };
    let detail = format!("was {}, is {}", words(&old.gradient), words(&new.gradient));
    changes.add(rule, Part::Gradient, detail);
}

fn words(gradient: &Gradient) -> String {
    match gradient {
        Gradient::Undeclared => "not declared".to_owned(),
        Gradient::NotDifferentiable => "not differentiable".to_owned(),
        Gradient::Op(wiring) => wiring.op.clone(),
    }
}

/// Looks at which inputs get a gradient, and from which op.
fn compare_wiring(old: (&Op, &GradientWiring), new: (&Op, &GradientWiring), changes: &mut Changes<'_>) {
    let inputs = |(op, wiring): (&Op, &GradientWiring)| -> Vec<String> {
        wiring.outputs.iter().map(|&input| op.signature.inputs[input].name.clone()).collect()
    };
    let (before, after) = (inputs(old), inputs(new));
    let exists = |op: &Op, name: &str| op.signature.input_index(name).is_some();
    for input in before.iter().filter(|input| !after.contains(input) && exists(new.0, input)) {
        let detail = format!("input `{input}` had one, has none");
        changes.add(Rule::GradientInputRemoved, Part::Gradient, detail);
    }
    for input in after.iter().filter(|input| !before.contains(input) && exists(old.0, input)) {
        let detail = format!("input `{input}` had none, has one");
        changes.add(Rule::GradientNoLongerZero, Part::Gradient, detail);
    }
    if old.1.op != new.1.op {
        let detail = format!("was {}, is {}", old.1.op, new.1.op);
        changes.add(Rule::GradientOpChanged, Part::Gradient, detail);
    }
}
