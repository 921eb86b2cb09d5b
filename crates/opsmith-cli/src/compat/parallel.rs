//! Free axes, compared by what they mean: those of calls of several ranks and attributes, whatever they are called.

use opsmith_core::{AttrValue, OutputAxis, Parallel};

use super::change::{Changes, Part};
use super::rules::Rule;
use super::shapes::has_same_arguments;
use crate::definitions::Op;

/// Inputs have up to so many dims, all of them as many.
const RANKS: usize = 6;

pub(super) fn compare(old: &Op, new: &Op, changes: &mut Changes<'_>) {
    if !has_same_arguments(&old.signature, &new.signature) {
        // What is wrong is reported there.
        return;
    }
    let words = |parallel: &Option<Parallel>| {
        parallel.as_ref().map_or("none".to_owned(), |parallel| format!("`{parallel}`"))
    };
    let detail = format!("was {}, is {}", words(&old.parallel), words(&new.parallel));
    if !has_all(old, old, new) {
        changes.add(Rule::ParallelRemoved, Part::Parallel, detail);
    } else if !has_all(old, new, old) {
        changes.add(Rule::ParallelAdded, Part::Parallel, detail);
    }
}

/// Whether the free axes of calls of `one` are free in `other`. `old` says which calls there are: inputs that only the new
/// definition has are lists that are empty.
fn has_all(old: &Op, one: &Op, other: &Op) -> bool {
    // Where nothing is known of the values of an attribute, defaults have to do.
    let mut samples = old.signature.attr_samples();
    samples.extend(samples.is_empty().then(Vec::new));
    let ranks = |rank: usize| vec![Some(rank); old.signature.inputs.len()];
    (0..=RANKS).all(|rank| {
        samples.iter().all(|attrs| {
            let theirs = axes(old, other, attrs, &ranks(rank));
            axes(old, one, attrs, &ranks(rank)).iter().all(|axis| theirs.contains(axis))
        })
    })
}

/// The dims of inputs and outputs for each free axis.
fn axes(
    old: &Op,
    op: &Op,
    attrs: &[AttrValue],
    ranks: &[Option<usize>],
) -> Vec<(Vec<Option<usize>>, Vec<OutputAxis>)> {
    let attr = |name: &str| {
        let given = old.signature.attr_index(name).and_then(|index| attrs.get(index));
        let own = op.signature.attr_index(name).map(|index| &op.signature.attrs[index]);
        given.cloned().or_else(|| own?.default.clone())
    };
    let axes = op.parallel.iter().flat_map(|parallel| parallel.free_axes(&attr, ranks));
    axes.map(|axis| (axis.inputs.into_iter().take(ranks.len()).collect(), axis.outputs)).collect()
}
