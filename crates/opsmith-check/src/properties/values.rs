//! What a call gives must depend on the values of its inputs alone.

use std::sync::Arc;

use opsmith_core::DType;
use opsmith_core::attr::TensorValue;

use super::Setting;
use crate::case::Case;
use crate::generate::of_author;
use crate::lab::{FILL, Lab, Outcome, Trouble, ask_one, is_panic};
use crate::layout::{Layout, positions};
use crate::values::{Tolerance, difference, from_numbers, numbers};
use crate::wire::Call;

/// Tensors that lie in memory in any way give what dense ones give.
pub(super) fn strided(lab: &mut Lab<'_>, setting: &Setting<'_, '_>, case: &Case) -> Result<(), Trouble> {
    let subject = setting.subject;
    let mut case = case.clone();
    let refs = subject.signature.inputs.iter().zip(&case.inputs);
    let refs: Vec<bool> = refs.flat_map(|(def, list)| list.iter().map(|_| def.is_ref)).collect();
    let flat = case.flat().count();
    case.layouts = (0..flat).map(|position| case.layout(position)).collect();
    for (layout, is_ref) in case.layouts.iter_mut().zip(refs) {
        if is_ref && matches!(layout, Layout::Broadcast | Layout::Unaligned) {
            // Nobody may write to memory that several elements share, and what is not aligned is refused.
            *layout = Layout::Sliced;
        }
    }
    if case.layouts.iter().all(|layout| *layout == Layout::Dense) {
        return Err(Trouble::Reject("all of its tensors are dense".into()));
    }
    let dense = case.dense();
    let expected = lab.accepted(subject, &dense)?;
    let call = case.call(subject, FILL);
    let got = match lab.call(call.clone())? {
        Outcome::Refused(refusal) => {
            let message = format!("dense tensors are taken, but these are an error: {}", refusal.message);
            return Err(Trouble::fail(message, &case));
        }
        outcome => outcome.accepted(&case)?,
    };
    if let Some(difference) =
        difference(&setting.names(&got.counts), &got.values, &expected.values, setting.of_rounding())
    {
        return Err(Trouble::fail(format!("{difference}, which dense tensors give"), &case));
    }
    changed_alike(&call, &got.changed, &dense.call(subject, FILL), &expected.changed)
        .map_or(Ok(()), |message| Err(Trouble::fail(message, &case)))
}

/// What a strided call made of the tensors that it changes, against what the dense one did.
fn changed_alike(call: &Call, got: &[Vec<u8>], dense: &Call, expected: &[Vec<u8>]) -> Option<String> {
    let changed =
        call.tensors.iter().zip(&dense.tensors).filter_map(|(a, b)| Some((a.as_ref()?, b.as_ref()?)));
    let changed = changed.filter(|(laid, _)| laid.changed);
    for (((laid, plain), got), expected) in changed.zip(got).zip(expected) {
        let size = plain.bytes / plain.shape.iter().product::<usize>().max(1);
        let at = positions(&laid.shape, &laid.strides, laid.offset);
        let mut outside = vec![true; got.len()];
        for (element, at) in at.into_iter().enumerate() {
            if got[at * size..][..size] != expected[element * size..][..size] {
                return Some(format!(
                    "element {element} of the tensor that is changed is not as in a dense one"
                ));
            }
            outside[at * size..][..size].fill(false);
        }
        let is_changed = |i: &usize| outside[*i] && got[*i] != laid.buffer[*i];
        if (0..got.len()).any(|i| is_changed(&i)) {
            return Some("memory between the elements of a tensor was changed".into());
        }
    }
    None
}

/// The same call gives the same bits, whatever was in the memory of its outputs before.
pub(super) fn determinism(lab: &mut Lab<'_>, setting: &Setting<'_, '_>, case: &Case) -> Result<(), Trouble> {
    let subject = setting.subject;
    let first = lab.accepted(subject, case)?;
    let second = lab.call(case.call(subject, 0x5A))?.accepted(case)?;
    let bits = |values: &[Arc<TensorValue>]| -> Vec<Vec<u8>> {
        values.iter().map(|value| value.bytes.clone()).collect()
    };
    let exact = |_| Tolerance { relative: 0.0, absolute: 0.0 };
    if let Some(difference) = difference(&setting.names(&first.counts), &first.values, &second.values, exact)
    {
        let message = format!("{difference} in another call: it is random, or not written at all");
        return Err(Trouble::fail(message, case));
    }
    if first.changed != second.changed || bits(&first.values) != bits(&second.values) {
        let message = "two calls differ in their bits: they are random, or not written at all";
        return Err(Trouble::fail(message, case));
    }
    Ok(())
}

/// 1, 2 and 16 threads give the same, but for the order of sums.
pub(super) fn threads(lab: &mut Lab<'_>, setting: &Setting<'_, '_>, case: &Case) -> Result<(), Trouble> {
    let call = case.call(setting.subject, FILL);
    let mut expected = None;
    for (threads, process) in &mut lab.threaded {
        let got = ask_one(process, call.clone())?.accepted(case)?;
        let Some(expected) = &expected else {
            expected = Some(got);
            continue;
        };
        let found =
            difference(&setting.names(&got.counts), &got.values, &expected.values, setting.of_rounding());
        if let Some(difference) = found {
            return Err(Trouble::fail(format!("with {threads} threads {difference} with one"), case));
        }
        if got.changed != expected.changed {
            let message = format!("{threads} threads change a tensor in another way than one");
            return Err(Trouble::fail(message, case));
        }
    }
    Ok(())
}

/// Whatever the numbers are, there is a result or an error.
pub(super) fn extremes(lab: &mut Lab<'_>, setting: &Setting<'_, '_>, case: &Case) -> Result<(), Trouble> {
    match lab.call(case.call(setting.subject, FILL))? {
        Outcome::Refused(refusal) if !is_panic(&refusal) => Ok(()),
        outcome => outcome.accepted(case).map(drop),
    }
}

/// The outputs are those of the author's function.
pub(super) fn reference(lab: &mut Lab<'_>, setting: &Setting<'_, '_>, case: &Case) -> Result<(), Trouble> {
    let got = lab.accepted(setting.subject, case)?;
    let mut author = setting.author.borrow_mut();
    let Some(reference) = author.reference.as_mut() else { return Ok(()) };
    let expected = reference(&case.inputs, &case.attrs).map_err(|error| of_author("`reference`", error))?;
    let Some(expected) = expected else {
        return Err(Trouble::Reject("`reference` has nothing for such tensors".into()));
    };
    // What an op saves for its gradient is nothing that its caller sees.
    let outputs = setting.subject.signature.outputs.iter().zip(&got.counts);
    let is_returned = outputs.flat_map(|(output, count)| std::iter::repeat_n(!output.saved, *count));
    let named = setting.names(&got.counts).into_iter().zip(&got.values).zip(is_returned);
    let (names, values): (Vec<String>, Vec<Arc<TensorValue>>) =
        named.filter(|(_, is_returned)| *is_returned).map(|((name, value), _)| (name, value.clone())).unzip();
    let expected: Vec<Arc<TensorValue>> =
        expected.into_iter().enumerate().map(|(i, value)| as_dtype_of(values.get(i), value)).collect();
    match difference(&names, &values, &expected, setting.of_other_arithmetic()) {
        Some(difference) => Err(Trouble::fail(format!("{difference}, which the reference gives"), case)),
        None => Ok(()),
    }
}

/// What a reference gave, rounded to the dtype of what it is compared with: many compute in float64.
fn as_dtype_of(got: Option<&Arc<TensorValue>>, expected: TensorValue) -> Arc<TensorValue> {
    let is_number = |dtype: DType| dtype != DType::String;
    Arc::new(match got {
        Some(got) if got.dtype != expected.dtype && is_number(got.dtype) && is_number(expected.dtype) => {
            from_numbers(got.dtype, &expected.shape, &numbers(&expected))
        }
        _ => expected,
    })
}
