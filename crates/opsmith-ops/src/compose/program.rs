//! The steps of a composition that a call needs, in order, with what becomes of each value.

use opsmith::AttrValue;
use opsmith::prelude::*;
use opsmith_core::def::Signature;

use super::Composition;
use super::trace::{Composer, Origin, Step, Trace, Value, dtypes_of};
use crate::values::Identity;

/// A composition that has been traced.
pub(super) struct Traced {
    pub(super) origins: Vec<Origin>,
    pub(super) steps: Vec<Step>,
    /// The values of the outputs, each that of another step, by argument.
    pub(super) outputs: Vec<Vec<Value>>,
}

/// Traces a composition, and checks what it gives.
pub(super) fn trace<C: Composition>(
    signature: &Signature,
    attrs: &[AttrValue],
    present: u64,
) -> Result<Traced> {
    let traced = || {
        let composer = Composer::new::<C>(signature, attrs, present)?;
        let given = C::compose(&composer)?;
        let outputs = by_argument(&composer, signature, &given)?;
        let outputs = each_of_a_step(&composer, outputs)?;
        let Trace { origins, steps } = composer.into_trace();
        Ok(Traced { origins, steps, outputs })
    };
    traced().map_err(|error: Error| error.with_op(&signature.name))
}

/// What a composition gives for each output of `signature`.
pub(super) fn by_argument(
    composer: &Composer<'_>,
    signature: &Signature,
    given: &[Value],
) -> Result<Vec<Vec<Value>>> {
    let expected = signature
        .outputs
        .iter()
        .map(|def| dtypes_of(def, composer.all_attrs()))
        .collect::<Result<Vec<_>>>()?;
    let count = expected.iter().map(Vec::len).sum::<usize>();
    ensure!(
        given.len() == count,
        Internal,
        "its composition must give {count} tensors, one for each output, got {}",
        given.len()
    );
    let mut given = given.iter().copied();
    let mut outputs = Vec::with_capacity(expected.len());
    for (def, dtypes) in signature.outputs.iter().zip(expected) {
        let values: Vec<Value> = given.by_ref().take(dtypes.len()).collect();
        for (value, dtype) in values.iter().zip(dtypes) {
            let name = &def.name;
            ensure!(composer.is_own(*value), Internal for name, "output `{name}` is a value of another composition");
            ensure!(
                value.dtype() == dtype,
                Internal for name,
                "its composition gives {} for output `{name}`, which is {dtype}",
                value.dtype()
            );
        }
        outputs.push(values);
    }
    Ok(outputs)
}

/// The same outputs, each made by a step and none twice: inputs and constants are copied.
fn each_of_a_step(composer: &Composer<'_>, outputs: Vec<Vec<Value>>) -> Result<Vec<Vec<Value>>> {
    let mut seen = Vec::new();
    let mut own = |value: Value| {
        let value = match composer.is_step(value) && !seen.contains(&value) {
            true => value,
            false => composer.apply::<Identity>(&[value])?,
        };
        seen.push(value);
        Ok(value)
    };
    outputs.into_iter().map(|values| values.into_iter().map(&mut own).collect()).collect()
}

/// One step, as a call takes it.
pub(super) struct Taken {
    pub(super) step: Step,
    pub(super) counts: Vec<usize>,
    /// Bit `i` is set where output `i` is read.
    pub(super) wanted: u64,
    /// The values that no later step reads.
    pub(super) last: Vec<usize>,
}

/// The steps of a call for which some outputs are wanted.
pub(super) struct Program {
    pub(super) origins: Vec<Origin>,
    pub(super) steps: Vec<Taken>,
    /// For each value the output that it is, and the element of a list.
    pub(super) destinations: Vec<Option<(usize, usize)>>,
}

impl Program {
    /// The steps that the outputs need of which the bit in `wanted` is set.
    pub(super) fn new(traced: Traced, wanted: u64) -> Program {
        let Traced { origins, steps, outputs } = traced;
        let mut destinations = vec![None; origins.len()];
        let mut is_read = vec![false; origins.len()];
        for (arg, values) in outputs.iter().enumerate().filter(|(arg, _)| wanted >> arg & 1 == 1) {
            for (element, value) in values.iter().enumerate() {
                destinations[value.index] = Some((arg, element));
                is_read[value.index] = true;
            }
        }
        let mut taken = Vec::new();
        let mut is_last = vec![true; origins.len()];
        for step in steps.into_iter().rev() {
            let wanted = step.outputs.iter().enumerate().fold(0, |wanted, (arg, values)| {
                wanted | u64::from(values.iter().any(|value| is_read[value.index])) << arg
            });
            if wanted == 0 {
                continue;
            }
            let mut last = Vec::new();
            let made = step.outputs.iter().flatten().filter(|value| !is_read[value.index]);
            last.extend(made.map(|value| value.index));
            for value in step.reads() {
                is_read[value.index] = true;
                if std::mem::replace(&mut is_last[value.index], false) && destinations[value.index].is_none()
                {
                    last.push(value.index);
                }
            }
            taken.push(Taken { counts: step.inputs.iter().map(Vec::len).collect(), step, wanted, last });
        }
        taken.reverse();
        Program { origins, steps: taken, destinations }
    }
}
