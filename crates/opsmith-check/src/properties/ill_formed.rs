//! Calls that the definition forbids: each must end in an error that names what is wrong.

use std::sync::Arc;

use opsmith_core::attr::TensorValue;
use opsmith_core::def::{ArgDef, ArgType};
use opsmith_core::{AttrValue, DType};

use super::Setting;
use crate::attrs;
use crate::case::Case;
use crate::lab::{FILL, Lab, Outcome, Trouble, is_panic};
use crate::subject::Subject;
use crate::values::Values;

/// A call that is wrong in one way.
struct Wrong {
    what: String,
    case: Case,
    /// Whether only shape inference can say if it is wrong.
    asks_inference: bool,
}

impl Wrong {
    fn new(what: impl Into<String>, case: Case) -> Wrong {
        Wrong { what: what.into(), case, asks_inference: false }
    }
}

/// Each wrong variant of a call that is accepted is refused. Gives how many there are.
pub(super) fn is_refused(lab: &mut Lab<'_>, setting: &Setting<'_, '_>, case: &Case) -> Result<u32, Trouble> {
    let subject = setting.subject;
    lab.accepted(subject, case)?;
    let mut tried = 0;
    let variants = [inputs(subject, case), dtypes(subject, case), shapes(case), attributes(subject, case)];
    for Wrong { what, case, asks_inference } in variants.into_iter().flatten() {
        let is_wrong = !asks_inference || lab.infer(case.infer(subject, &case.shapes()), &case)?.is_err();
        tried += 1;
        match lab.call(case.call(subject, FILL))? {
            Outcome::Refused(refusal) if is_panic(&refusal) => {
                return Err(Trouble::fail(format!("{what}: an internal error: {}", refusal.message), &case));
            }
            Outcome::Died(death) => {
                return Err(Trouble::fail(format!("{what}: the call {}", death.how), &case));
            }
            Outcome::Given(_) if is_wrong => {
                let message = if asks_inference {
                    format!("{what}: the call succeeds, though shape inference refuses it")
                } else {
                    format!("{what}: the call succeeds")
                };
                return Err(Trouble::fail(message, &case));
            }
            Outcome::Given(_) | Outcome::Refused(_) => {}
        }
    }
    Ok(tried)
}

/// Inputs that are missing, too many, or too short lists.
fn inputs(subject: &Subject, case: &Case) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    let changed = |change: &dyn Fn(&mut Case)| {
        let mut case = case.clone();
        change(&mut case);
        case
    };
    for (input, def) in subject.signature.inputs.iter().enumerate() {
        let name = &def.name;
        match Subject::length_attr(def) {
            None if !def.optional => {
                let absent = changed(&|case| case.inputs[input] = vec![None]);
                wrong.push(Wrong::new(format!("`{name}` is missing"), absent));
            }
            Some(attr) if subject.least_length(attr) > 0 => {
                let empty = changed(&|case| case.inputs[input] = vec![]);
                wrong.push(Wrong::new(format!("`{name}` is an empty list"), empty));
            }
            _ => {}
        }
        if let ([Some(tensor)], None) = (&case.inputs[input][..], Subject::length_attr(def)) {
            let twice = changed(&|case| case.inputs[input] = vec![Some(tensor.clone()); 2]);
            wrong.push(Wrong::new(format!("`{name}` is a list"), twice));
        }
    }
    if !case.inputs.is_empty() {
        let fewer = changed(&|case| drop(case.inputs.pop()));
        wrong.push(Wrong::new("the last input is not given", fewer));
    }
    let scalar = Arc::new(Values::Counting.tensor(DType::Float32, &[], 0));
    let more = changed(&|case| case.inputs.push(vec![Some(scalar.clone())]));
    wrong.push(Wrong::new("one input too many", more));
    wrong
}

/// Tensors of a dtype that the definition does not allow, or that does not go with another's.
fn dtypes(subject: &Subject, case: &Case) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    for (input, def) in subject.signature.inputs.iter().enumerate() {
        let Some(Some(tensor)) = case.inputs[input].first() else { continue };
        for dtype in wrong_dtypes(subject, case, def, tensor) {
            let value = Values::Counting.tensor(dtype, &tensor.shape, 0);
            let what = format!("`{}` is {dtype}", def.name);
            wrong.push(Wrong::new(what, case.with(input, 0, value)));
        }
    }
    wrong
}

fn wrong_dtypes(subject: &Subject, case: &Case, def: &ArgDef, tensor: &TensorValue) -> Vec<DType> {
    let allowed = |attr: usize| match &subject.signature.attrs[attr].allowed {
        Some(opsmith_core::def::Allowed::Types(types)) => types.clone(),
        _ => DType::ALL.to_vec(),
    };
    let outside = |allowed: &[DType]| DType::ALL.into_iter().find(|dtype| !allowed.contains(dtype));
    match def.dtype {
        ArgType::Fixed(dtype) => outside(&[dtype]).into_iter().collect(),
        ArgType::List(attr) => outside(&allowed(attr)).into_iter().collect(),
        ArgType::Attr(attr) => {
            let allowed = allowed(attr);
            let defs = subject.signature.inputs.iter().zip(&case.inputs);
            let of_attr = defs.filter(|(def, _)| def.dtype == ArgType::Attr(attr));
            let sharing = of_attr.map(|(_, list)| list.iter().flatten().count()).sum::<usize>();
            let other = allowed.iter().copied().find(|dtype| *dtype != tensor.dtype);
            outside(&allowed).into_iter().chain(other.filter(|_| sharing > 1)).collect()
        }
    }
}

/// Ranks and dims other than those that were accepted; inference says which are wrong.
fn shapes(case: &Case) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    for (input, list) in case.inputs.iter().enumerate() {
        for (element, tensor) in list.iter().enumerate() {
            let Some(tensor) = tensor else { continue };
            let mut try_shape = |what: String, shape: Vec<usize>| {
                let value = Values::Counting.tensor(tensor.dtype, &shape, input);
                let case = case.with(input, element, value);
                wrong.push(Wrong { what, case, asks_inference: true });
            };
            let shape = &tensor.shape;
            let words =
                |changed: &[usize]| format!("input {input} has shape {changed:?} instead of {shape:?}");
            let longer = [&[2], &shape[..]].concat();
            try_shape(words(&longer), longer);
            if let [_, shorter @ ..] = &shape[..] {
                try_shape(words(shorter), shorter.to_vec());
            }
            for dim in 0..shape.len() {
                let mut other = shape.clone();
                other[dim] += 1;
                try_shape(words(&other), other.clone());
                other[dim] = 0;
                try_shape(words(&other), other.clone());
            }
        }
    }
    wrong
}

/// Attributes that are unknown, missing, of another type or outside their bounds.
fn attributes(subject: &Subject, case: &Case) -> Vec<Wrong> {
    let with = |name: &str, value: Option<AttrValue>| {
        let mut case = case.clone();
        case.attrs.retain(|(other, _)| other != name);
        case.attrs.extend(value.map(|value| (name.to_owned(), value)));
        case
    };
    let unknown = with("no_such_attribute", Some(AttrValue::Int(1)));
    let mut wrong = vec![Wrong::new("an attribute that there is not", unknown)];
    for def in subject.signature.attrs.iter().filter(|def| !def.inferred) {
        let name = &def.name;
        if def.default.is_none() {
            wrong.push(Wrong::new(format!("attribute `{name}` is missing"), with(name, None)));
        }
        for (what, value) in attrs::forbidden(def) {
            let what = format!("attribute `{name}` has {what}, {value}");
            wrong.push(Wrong::new(what, with(name, Some(value))));
        }
    }
    wrong
}
