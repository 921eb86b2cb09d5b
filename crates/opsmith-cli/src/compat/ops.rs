//! Libraries and ops as a whole.

use opsmith_core::Signature;

use super::change::{Change, Changes, Part};
use super::rules::Rule;
use super::{args, attrs, gradient, kernels, parallel, shapes};
use crate::definitions::{Definitions, Op};

pub(super) fn compare(old: &Definitions, new: &Definitions) -> Vec<Change> {
    let mut list = Vec::new();
    if old.name != new.name {
        let detail = format!("`{}` became `{}`", old.name, new.name);
        Changes { subject: &old.name, list: &mut list }.add(Rule::LibraryRenamed, Part::Whole, detail);
    }
    let mut added: Vec<&Op> = new.ops.iter().filter(|op| old.op(op.name()).is_none()).collect();
    for op in &old.ops {
        let mut changes = Changes { subject: op.name(), list: &mut list };
        if let Some(same) = new.op(op.name()) {
            compare_op(op, same, &mut changes);
        } else if let Some(at) = added.iter().position(|other| is_same_but_for_its_name(op, other)) {
            let detail = format!("is called {} now", added.remove(at).name());
            changes.add(Rule::OpRenamed, Part::Whole, detail);
        } else {
            changes.add(Rule::OpRemoved, Part::Whole, "is gone");
        }
    }
    for op in added {
        let mut changes = Changes { subject: op.name(), list: &mut list };
        changes.add(Rule::OpAdded, Part::Whole, "is new");
    }
    list
}

fn compare_op(old: &Op, new: &Op, changes: &mut Changes<'_>) {
    match (old.signature.stateful, new.signature.stateful) {
        (false, true) => changes.add(Rule::StatefulAdded, Part::Whole, "is stateful now"),
        (true, false) => changes.add(Rule::StatefulRemoved, Part::Whole, "is no longer stateful"),
        _ => {}
    }
    args::compare(&old.signature, &new.signature, changes);
    attrs::compare(&old.signature, &new.signature, changes);
    shapes::compare(old, new, changes);
    parallel::compare(old, new, changes);
    gradient::compare(old, new, changes);
    kernels::compare(old, new, changes);
}

/// Documentation does not count.
fn is_same_but_for_its_name(old: &Op, new: &Op) -> bool {
    let text = |op: &Op| {
        let unnamed = Signature { name: String::new(), ..op.signature.clone() };
        (unnamed.to_string(), op.shape.as_ref().map(ToString::to_string))
    };
    text(old) == text(new)
}
