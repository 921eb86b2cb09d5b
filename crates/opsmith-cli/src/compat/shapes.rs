//! Shape signatures, compared by what they mean: the shapes of the old one, as symbols, go through the new one.
//!
//! The new one may take nothing for granted that the old one does not, and must give the same outputs. Renaming a dim
//! is no change then, a dim that need no longer be 3 is a loosening, and two that must be equal now are a tightening.

use std::ops::Bound;

use opsmith_core::attr::{AttrBase, TensorValue};
use opsmith_core::def::{Allowed, ArgCount, ArgDef, AttrDef};
use opsmith_core::shape::{ArgShape, Constraint};
use opsmith_core::{AttrValue, DType, InferenceContext, Shape, ShapeSignature, Signature};

use super::change::{Changes, Part};
use super::rules::Rule;
use crate::definitions::Op;

/// With so many batch dims it is tried, where there may be any number.
const BATCH_RANKS: [usize; 3] = [0, 1, 2];
/// With so many sets of attribute values it is tried.
const SAMPLES: i64 = 3;
/// As many tensors are in a list that says nothing of their number.
const LIST: i64 = 2;
/// Longer lists are not tried.
const MOST_TENSORS: usize = 1000;

pub(super) fn compare(old: &Op, new: &Op, changes: &mut Changes<'_>) {
    let (was, is) = match (&old.shape, &new.shape) {
        (None, None) => return,
        (Some(was), Some(is)) if was.to_string() == is.to_string() => return,
        (Some(was), Some(is)) => (was, is),
        (was, is) => {
            let words = |shape: &Option<ShapeSignature>| {
                shape.as_ref().map_or("a function".to_owned(), |shape| format!("`{shape}`"))
            };
            let detail = format!("was {}, is {}", words(was), words(is));
            return changes.add(Rule::ShapeNotComparable, Part::Shape, detail);
        }
    };
    let (forth, back) = ((&old.signature, was), (&new.signature, is));
    let difference = difference(forth, back);
    for (name, was, is) in &difference.outputs {
        changes.add(Rule::OutputShape, Part::Output(name.clone()), format!("was `{was}`, is `{is}`"));
    }
    if !has_same_arguments(&old.signature, &new.signature) {
        // What is wrong with the arguments is reported there.
        return;
    }
    let detail = format!("was `{was}`, is `{is}`");
    if difference.breaks {
        changes.add(Rule::ShapeChanged, Part::Shape, detail);
    } else if difference.outputs.is_empty() && self::difference(back, forth).is_one() {
        changes.add(Rule::ShapeLoosened, Part::Shape, detail);
    }
}

/// Whether the new definition has the old one's arguments, and beyond them only inputs behind them.
pub(super) fn has_same_arguments(old: &Signature, new: &Signature) -> bool {
    let names = |args: &[ArgDef]| args.iter().map(|arg| arg.name.clone()).collect::<Vec<_>>();
    names(&new.inputs).starts_with(&names(&old.inputs)) && names(&old.outputs) == names(&new.outputs)
}

/// What becomes of the calls that fit a definition in another one.
#[derive(Default)]
struct Difference {
    /// Some are refused, or give another shape under the same name of a dim; or none could be tried.
    breaks: bool,
    /// The outputs of both that get other shapes, with what the two signatures say of them.
    outputs: Vec<(String, ArgShape, ArgShape)>,
}

impl Difference {
    fn is_one(&self) -> bool {
        self.breaks || !self.outputs.is_empty()
    }
}

/// Puts the calls that fit `old` through `new`. Inputs are matched by name.
fn difference(old: (&Signature, &ShapeSignature), new: (&Signature, &ShapeSignature)) -> Difference {
    let (mut tried, mut difference) = (false, Difference::default());
    for (sample, rank, absent) in trials(old.1) {
        let attrs = sample_attrs(old.0, sample);
        let inputs = |signature: &Signature, attrs: &[AttrValue]| -> Option<Vec<_>> {
            let own = |arg: &ArgDef| match old.0.input_index(&arg.name) {
                _ if arg.optional && absent => Some(None),
                Some(at) => Some(Some(vec![symbolic(&old.1.inputs()[at], rank)?; count(arg, attrs)?])),
                // An input that only the new definition has: nothing is known of it, and a list is empty.
                None if arg.count.is_list() => Some(Some(Vec::new())),
                None => Some(Some(vec![Shape::unknown()])),
            };
            signature.inputs.iter().map(own).collect()
        };
        let Some((outputs, assumed)) = inputs(old.0, &attrs).and_then(|inputs| infer(old, &attrs, inputs))
        else {
            continue;
        };
        tried = true;
        let attrs = same_attrs(old.0, &attrs, new.0);
        let Some((others, needed)) = inputs(new.0, &attrs).and_then(|inputs| infer(new, &attrs, inputs))
        else {
            difference.breaks = true;
            continue;
        };
        difference.breaks |= needed.iter().any(|constraint| !assumed.contains(constraint));
        for (name, shapes) in &outputs {
            let Some((_, other)) = others.iter().find(|(other, _)| other == name) else { continue };
            let text = |(signature, shapes): (&Signature, &ShapeSignature)| {
                signature.output_index(name).map(|at| shapes.outputs()[at].clone())
            };
            let (Some(was), Some(is)) = (text(old), text(new)) else { continue };
            if shapes == other {
                continue;
            } else if was.to_string() == is.to_string() {
                difference.breaks = true;
            } else if !difference.outputs.iter().any(|(known, ..)| known == name) {
                difference.outputs.push((name.clone(), was, is));
            }
        }
    }
    difference.breaks |= !tried;
    difference
}

/// Which attribute values, how many batch dims, and whether optional inputs are absent.
fn trials(shapes: &ShapeSignature) -> impl Iterator<Item = (i64, usize, bool)> {
    let has_batch = shapes.inputs().iter().any(ArgShape::has_batch_dims);
    let ranks = if has_batch { &BATCH_RANKS[..] } else { &BATCH_RANKS[..1] };
    (0..SAMPLES).flat_map(move |sample| {
        ranks.iter().flat_map(move |&rank| [false, true].map(|absent| (sample, rank, absent)))
    })
}

/// The shape with a symbol for each name: `(...,n,3)` → `[batch0,n,3]`.
fn symbolic(shape: &ArgShape, batch_rank: usize) -> Option<Shape> {
    let text = shape.to_string();
    let dims = text.strip_prefix('(')?.strip_suffix(')')?;
    let dims = match dims.strip_prefix("...") {
        Some(rest) => {
            let batch = (0..batch_rank).map(|i| format!("batch{i}"));
            let rest = rest.trim_start().trim_start_matches(',');
            batch.chain((!rest.trim().is_empty()).then(|| rest.to_owned())).collect::<Vec<_>>().join(",")
        }
        None => dims.to_owned(),
    };
    Shape::parse(&format!("[{dims}]")).ok()
}

/// The shapes of the outputs, by name, and what was taken for granted, without the messages.
type Inferred = (Vec<(String, Vec<Shape>)>, Vec<Constraint>);

/// What inference gives; none where it refuses.
fn infer(
    (signature, shapes): (&Signature, &ShapeSignature),
    attrs: &[AttrValue],
    inputs: Vec<Option<Vec<Shape>>>,
) -> Option<Inferred> {
    let mut context = InferenceContext::new(signature, attrs, inputs).ok()?;
    (shapes.shape_fn())(&mut context).ok()?;
    let (outputs, constraints) = context.into_parts();
    let mut outputs = outputs.into_iter();
    let named = |arg: &ArgDef| Some((arg.name.clone(), outputs.by_ref().take(count(arg, attrs)?).collect()));
    let named = signature.outputs.iter().map(named).collect::<Option<_>>()?;
    let silent = |constraint: Constraint| Constraint { message: String::new(), ..constraint };
    Some((named, constraints.into_iter().map(silent).collect()))
}

/// How many tensors an argument holds; none where that is more than is worth trying.
fn count(arg: &ArgDef, attrs: &[AttrValue]) -> Option<usize> {
    let count = match arg.count {
        ArgCount::One => 1,
        ArgCount::Attr(index) => match attrs[index] {
            AttrValue::Int(count) => usize::try_from(count).ok()?,
            _ => return None,
        },
        ArgCount::Types(index) => match &attrs[index] {
            AttrValue::Types(dtypes) => dtypes.len(),
            _ => return None,
        },
    };
    (count <= MOST_TENSORS).then_some(count)
}

/// Values that the attributes may have; ints differ from one another and from sample to sample.
fn sample_attrs(signature: &Signature, sample: i64) -> Vec<AttrValue> {
    let counts = |index: usize| {
        let mut args = signature.inputs.iter().chain(&signature.outputs);
        args.any(|arg| arg.count == ArgCount::Attr(index))
    };
    let value = |(index, attr): (usize, &AttrDef)| match (attr.ty.list, attr.ty.base) {
        (false, AttrBase::Int) if counts(index) => int_within(attr, LIST),
        (false, AttrBase::Int) => int_within(attr, [2, 5, 11][sample as usize % 3] + 2 * index as i64),
        (true, AttrBase::Type) => {
            AttrValue::Types(vec![DType::Float32; attr.min_len.unwrap_or(1).min(MOST_TENSORS)])
        }
        _ => attr.default.clone().unwrap_or_else(|| any_value(attr)),
    };
    signature.attrs.iter().enumerate().map(value).collect()
}

fn int_within(attr: &AttrDef, wanted: i64) -> AttrValue {
    if let Some(Allowed::Ints(ints)) = &attr.allowed {
        let at = wanted.unsigned_abs() as usize % ints.len().max(1);
        return AttrValue::Int(ints.get(at).copied().unwrap_or(wanted));
    }
    let bound = |value: &Bound<AttrValue>, none: i64| match value {
        Bound::Included(AttrValue::Int(n)) => *n,
        _ => none,
    };
    let (min, max) = (bound(&attr.min, i64::MIN), bound(&attr.max, i64::MAX));
    AttrValue::Int(wanted.max(min).min(max))
}

/// No shape depends on it.
fn any_value(attr: &AttrDef) -> AttrValue {
    match (attr.ty.list, attr.ty.base) {
        (false, AttrBase::String) => "".into(),
        (false, AttrBase::Int) => 1i64.into(),
        (false, AttrBase::Float) => 1.0.into(),
        (false, AttrBase::Bool) => false.into(),
        (false, AttrBase::Type) => DType::Float32.into(),
        (false, AttrBase::Shape) => AttrValue::Shape(None),
        (false, AttrBase::Tensor) => {
            let empty = TensorValue { dtype: DType::Float32, shape: vec![0], bytes: vec![], strings: vec![] };
            AttrValue::Tensor(empty.into())
        }
        (true, base) => base.list([]),
    }
}

/// The attributes of a call of `old` as `new` sees them: by name, what `old` lacks at its default.
fn same_attrs(old: &Signature, values: &[AttrValue], new: &Signature) -> Vec<AttrValue> {
    let same = |attr: &AttrDef| {
        let known = old.attr_index(&attr.name).map(|index| values[index].clone());
        let known = known.filter(|value| value.attr_type() == attr.ty);
        known.or_else(|| attr.default.clone()).unwrap_or_else(|| any_value(attr))
    };
    new.attrs.iter().map(same).collect()
}
