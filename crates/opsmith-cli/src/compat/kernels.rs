//! Kernels: for which devices and dtypes there is one.

use opsmith_core::{AttrValue, DType, Signature};

use super::attrs::dtypes;
use super::change::{Changes, Part};
use super::rules::Rule;
use crate::definitions::{Kernel, Op};

/// No more calls are told apart.
const MOST_CALLS: usize = 10_000;

/// A dtype for each type attribute of a call that matters.
type Types = Vec<(String, DType)>;

pub(super) fn compare(old: &Op, new: &Op, changes: &mut Changes<'_>) {
    let mut devices: Vec<&str> = Vec::new();
    for kernel in old.kernels.iter().chain(&new.kernels) {
        if !devices.contains(&kernel.device.as_str()) {
            devices.push(&kernel.device);
        }
    }
    for device in devices {
        let on = |op: &Op| -> Vec<Kernel> {
            op.kernels.iter().filter(|kernel| kernel.device == device).cloned().collect()
        };
        let (before, after) = (on(old), on(new));
        let part = || Part::Kernels(device.to_owned());
        let lost = lost(&before, &old.signature, &after, &new.signature);
        if !lost.is_empty() {
            changes.add(Rule::KernelRemoved, part(), format!("none any more for {}", listed(&lost)));
        }
        let gained: Vec<Types> = after
            .iter()
            .filter(|kernel| !is_covered(&kernel.types, &before))
            .map(|k| k.types.clone())
            .collect();
        if !gained.is_empty() {
            changes.add(Rule::KernelAdded, part(), format!("new for {}", listed(&gained)));
        }
    }
}

/// Whether one of the kernels is for every call of these types.
fn is_covered(types: &Types, kernels: &[Kernel]) -> bool {
    kernels.iter().any(|kernel| kernel.types.iter().all(|needed| types.contains(needed)))
}

/// The calls, by their types, that a kernel of `before` is for and none of `after`.
fn lost(before: &[Kernel], old: &Signature, after: &[Kernel], new: &Signature) -> Vec<Types> {
    let mut lost = Vec::new();
    for kernel in before {
        let mut calls = vec![kernel.types.clone()];
        for attr in after.iter().flat_map(|kernel| &kernel.types).map(|(attr, _)| attr) {
            if calls[0].iter().any(|(name, _)| name == attr) {
                continue;
            }
            let dtypes = possible(attr, old, new);
            let with = |call: &Types| {
                let call = call.clone();
                dtypes
                    .clone()
                    .into_iter()
                    .map(move |dtype| [call.clone(), vec![(attr.clone(), dtype)]].concat())
            };
            calls = calls.iter().flat_map(with).take(MOST_CALLS).collect();
            if calls.is_empty() || calls.len() == MOST_CALLS {
                break;
            }
        }
        calls.retain(|call| !is_covered(call, after) && !lost.contains(call));
        lost.append(&mut calls);
    }
    lost
}

/// The dtypes that calls of the old definition have for a type attribute of the new one: its default where the old one
/// lacks it.
fn possible(attr: &str, old: &Signature, new: &Signature) -> Vec<DType> {
    if let Some(index) = old.attr_index(attr) {
        return dtypes(&old.attrs[index]);
    }
    match new.attr_index(attr).and_then(|index| new.attrs[index].default.as_ref()) {
        Some(AttrValue::Type(dtype)) => vec![*dtype],
        Some(AttrValue::Types(dtypes)) => dtypes.clone(),
        _ => Vec::new(),
    }
}

/// `T = int32; T = int64`, or "every dtype".
fn listed(calls: &[Types]) -> String {
    /// More than so many are counted.
    const SHOWN: usize = 6;
    let one = |types: &Types| {
        let named = types.iter().map(|(attr, dtype)| format!("{attr} = {dtype}"));
        if types.is_empty() { "every dtype".to_owned() } else { named.collect::<Vec<_>>().join(", ") }
    };
    let shown: Vec<String> = calls.iter().take(SHOWN).map(one).collect();
    let more = calls.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    shown.join("; ") + &more
}
