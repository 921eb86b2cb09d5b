//! Attribute values that a definition allows, and some that it does not.

use std::ops::Bound;
use std::sync::Arc;

use opsmith_core::attr::{AttrBase, AttrType};
use opsmith_core::def::{Allowed, AttrDef};
use opsmith_core::{AttrValue, DType};
use proptest::prelude::*;

use crate::values::Values;

/// Values of the attribute; `None` stands for its default. Types are chosen with the kernel, not here.
pub(crate) fn strategy(def: &AttrDef) -> BoxedStrategy<Option<AttrValue>> {
    let has_default = def.default.is_some();
    if def.inferred || def.ty.base == AttrBase::Type || (has_default && def.ty.base == AttrBase::Tensor) {
        return Just(None).boxed();
    }
    let value = value(def).prop_map(Some);
    if has_default { prop_oneof![Just(None), value].boxed() } else { value.boxed() }
}

/// The least and the greatest value that a float may have, where it may have them.
pub(crate) fn ends(def: &AttrDef) -> Vec<AttrValue> {
    let end = |bound: &Bound<AttrValue>| match bound {
        Bound::Included(value @ AttrValue::Float(end)) if end.is_finite() => Some(value.clone()),
        _ => None,
    };
    let bounds = [&def.min, &def.max].into_iter();
    if def.ty.list { vec![] } else { bounds.filter_map(end).collect() }
}

/// The first attribute whose value, given or by default, is the least float that it may have; and that float.
pub(crate) fn at_its_least<'a>(defs: &'a [AttrDef], given: &[(String, AttrValue)]) -> Option<(&'a str, f64)> {
    defs.iter().find_map(|def| {
        let value = given.iter().find(|(name, _)| *name == def.name).map(|(_, value)| value);
        match (&def.min, value.or(def.default.as_ref())?) {
            (Bound::Included(AttrValue::Float(least)), AttrValue::Float(value)) if least == value => {
                Some((def.name.as_str(), *least))
            }
            _ => None,
        }
    })
}

/// A simple value that the attribute may have: none where there is a default, or the kernel's dtypes say it.
pub fn simplest(def: &AttrDef) -> Option<AttrValue> {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    strategy(def).new_tree(&mut runner).ok().and_then(|mut tree| {
        while tree.simplify() {}
        tree.current()
    })
}

/// Leaves an attribute this value only: the one that a text stands for, as in a definition, or a text without quotes.
///
/// # Errors
/// In words, why the text is no value of it.
pub(crate) fn fix(def: &mut AttrDef, text: &str) -> Result<(), String> {
    if def.inferred {
        return Err(format!("attribute `{}` follows from the inputs", def.name));
    }
    if def.ty.base == AttrBase::Type {
        return Err(format!(
            "attribute `{}` is a dtype, which follows from `--dtype` and the kernels",
            def.name
        ));
    }
    let is_text = def.ty.base == AttrBase::String && !def.ty.list && !text.starts_with(['\'', '"']);
    let value = if is_text { Ok(AttrValue::from(text)) } else { def.parse_value(text) };
    let value = value.map_err(|error| format!("attribute `{}`: {}", def.name, error.message()))?;
    def.check_value(&value).map_err(|error| error.message().to_owned())?;
    (def.min, def.max) = (Bound::Included(value.clone()), Bound::Included(value));
    def.default = None;
    Ok(())
}

fn value(def: &AttrDef) -> BoxedStrategy<AttrValue> {
    if let (Bound::Included(least), Bound::Included(most)) = (&def.min, &def.max)
        && least == most
    {
        return Just(least.clone()).boxed();
    }
    if !def.ty.list {
        return element(def);
    }
    let least = def.min_len.unwrap_or(0);
    let elements = proptest::collection::vec(element(def), least..=least + 3);
    let base = def.ty.base;
    elements.prop_map(move |elements| base.list(elements)).boxed()
}

fn element(def: &AttrDef) -> BoxedStrategy<AttrValue> {
    use proptest::sample::select;
    match (&def.allowed, def.ty.base) {
        (Some(Allowed::Strings(texts)), _) => select(texts.clone()).prop_map(AttrValue::from).boxed(),
        (Some(Allowed::Ints(ints)), _) => select(ints.clone()).prop_map(AttrValue::Int).boxed(),
        (_, AttrBase::Int) => {
            let bound = |bound: &Bound<AttrValue>| match bound {
                Bound::Included(AttrValue::Int(bound)) => Some(*bound),
                _ => None,
            };
            let (least, most) = (bound(&def.min), bound(&def.max));
            let least = least.unwrap_or_else(|| most.map_or(0, |most| most.min(0)));
            let most = most.unwrap_or(i64::MAX).min(least.saturating_add(4));
            (least..=most).prop_map(AttrValue::Int).boxed()
        }
        (_, AttrBase::Float) => select(def.floats_within()).prop_map(AttrValue::Float).boxed(),
        (_, AttrBase::Bool) => any::<bool>().prop_map(AttrValue::Bool).boxed(),
        (_, AttrBase::String) => {
            select(vec!["a", "", "zwölf", "of more than one word"]).prop_map(AttrValue::from).boxed()
        }
        (_, AttrBase::Type) => Just(AttrValue::Type(DType::Float32)).boxed(),
        (_, AttrBase::Shape) => proptest::collection::vec(1..=3u64, 0..=2)
            .prop_map(|dims| AttrValue::Shape(Some(dims.into_iter().map(Some).collect())))
            .boxed(),
        (_, AttrBase::Tensor) => (1..=3usize)
            .prop_map(|n| AttrValue::Tensor(Arc::new(Values::Counting.tensor(DType::Float32, &[n], 0))))
            .boxed(),
    }
}

/// Values that the attribute must not have, each with what is wrong with it.
pub(crate) fn forbidden(def: &AttrDef) -> Vec<(&'static str, AttrValue)> {
    let mut values = vec![("a value of another type", of_another_type(def.ty))];
    for (bound, outwards, what) in
        [(&def.min, -1, "a value below the least"), (&def.max, 1, "a value above the greatest")]
    {
        let outside = match bound {
            Bound::Included(AttrValue::Int(end)) => end.checked_add(outwards).map(AttrValue::Int),
            Bound::Included(AttrValue::Float(end)) => Some(AttrValue::Float(end + outwards as f64)),
            Bound::Excluded(end) => Some(end.clone()),
            _ => None,
        };
        values.extend(outside.map(|value| (what, value)));
    }
    match &def.allowed {
        Some(Allowed::Strings(texts)) => {
            values.push((
                "a text that is not allowed",
                one_or_list(def, format!("not {}", texts.concat()).into()),
            ));
        }
        Some(Allowed::Ints(ints)) => {
            let other = ints.iter().max().map_or(0, |most| most.saturating_add(1));
            values.push(("a number that is not allowed", one_or_list(def, AttrValue::Int(other))));
        }
        Some(Allowed::Types(types)) => {
            if let Some(other) = DType::ALL.into_iter().find(|dtype| !types.contains(dtype)) {
                values.push(("a dtype that is not allowed", one_or_list(def, AttrValue::Type(other))));
            }
        }
        None => {}
    }
    if let (true, Some(1..)) = (def.ty.list, def.min_len) {
        values.push(("a list that is too short", def.ty.base.list([])));
    }
    values
}

/// The value; a list of as many as there must be where the attribute is a list.
fn one_or_list(def: &AttrDef, value: AttrValue) -> AttrValue {
    if !def.ty.list {
        return value;
    }
    def.ty.base.list(vec![value; def.min_len.unwrap_or(0).max(1)])
}

fn of_another_type(ty: AttrType) -> AttrValue {
    match (ty.base, ty.list) {
        (AttrBase::String, false) => AttrValue::Int(1),
        (_, false) => AttrValue::from("text"),
        (AttrBase::String, true) => AttrValue::Ints(vec![1]),
        (_, true) => AttrValue::from(vec!["text".to_owned()]),
    }
}

#[cfg(test)]
mod tests {
    use opsmith_core::SignatureBuilder;
    use proptest::test_runner::TestRunner;

    use super::*;

    #[test]
    fn values_are_what_the_definition_allows_and_forbidden_ones_are_not() {
        let specs = [
            "a: int >= 2",
            "a: {'x', 'y'}",
            "a: list(int) >= 2",
            "a: float = 0.5",
            "a: float > 0 < 1",
            "a: float < -3",
            "a: {1, 4}",
        ];
        for spec in specs {
            let signature = SignatureBuilder::new("Op").attr(spec).build().unwrap();
            let resolves = |value: AttrValue| signature.resolve(&[], &[Some(value)]).is_ok();
            let strategy = strategy(&signature.attrs[0]);
            let mut runner = TestRunner::deterministic();
            for _ in 0..50 {
                if let Some(value) = strategy.new_tree(&mut runner).unwrap().current() {
                    assert!(resolves(value.clone()), "{spec}: {value}");
                }
            }
            for (what, value) in forbidden(&signature.attrs[0]) {
                assert!(!resolves(value.clone()), "{spec}: {what}: {value}");
            }
        }
    }
}
