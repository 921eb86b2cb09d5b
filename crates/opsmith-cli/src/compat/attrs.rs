//! Attributes.

use std::ops::Bound;

use opsmith_core::def::{Allowed, AttrDef};
use opsmith_core::{AttrValue, DType, Signature};

use super::change::{Changes, Part};
use super::rules::Rule;

pub(super) fn compare(old: &Signature, new: &Signature, changes: &mut Changes<'_>) {
    let find = |signature: &Signature, name: &str| signature.attr_index(name);
    let mut renamed = Vec::new();
    for (at, attr) in old.attrs.iter().enumerate() {
        if let Some(same) = find(new, &attr.name) {
            compare_attr(attr, &new.attrs[same], changes);
            continue;
        }
        let part = Part::Attr(attr.name.clone());
        let other = new.attrs.get(at).filter(|other| find(old, &other.name).is_none());
        match other.filter(|other| spec(other, true) == spec(attr, true)) {
            Some(other) => {
                renamed.push(&other.name);
                changes.add(Rule::AttrRenamed, part, format!("is called `{}` now", other.name));
            }
            None => changes.add(Rule::AttrRemoved, part, format!("`{attr}` is gone")),
        }
    }
    compare_order(old, new, changes);
    for attr in new.attrs.iter().filter(|attr| find(old, &attr.name).is_none()) {
        if !renamed.contains(&&attr.name) {
            let rule = added(old, new, attr);
            changes.add(rule, Part::Attr(attr.name.clone()), format!("`{attr}` is new"));
        }
    }
}

fn compare_attr(old: &AttrDef, new: &AttrDef, changes: &mut Changes<'_>) {
    let part = || Part::Attr(new.name.clone());
    if old.ty != new.ty {
        changes.add(Rule::AttrType, part(), format!("was {}, is {}", old.ty, new.ty));
        return;
    }
    if !has_same_constraint(old, new) {
        let rule = if accepts_all(new, old) { Rule::AttrLoosened } else { Rule::AttrTightened };
        changes.add(rule, part(), format!("was `{}`, is `{}`", spec(old, false), spec(new, false)));
    }
    match (&old.default, &new.default) {
        (None, Some(value)) => changes.add(Rule::AttrDefaultAdded, part(), format!("is {value} by default")),
        (Some(value), None) => changes.add(
            Rule::AttrDefaultRemoved,
            part(),
            format!("the default was {value}, there is none now"),
        ),
        (Some(was), Some(is)) if was != is => {
            changes.add(Rule::AttrDefaultChanged, part(), format!("the default was {was}, is {is}"))
        }
        _ => {}
    }
}

/// What follows the name in the spec: `int >= 1`.
fn spec(attr: &AttrDef, with_default: bool) -> String {
    let default = attr.default.clone().filter(|_| with_default);
    let text = AttrDef { default, ..attr.clone() }.to_string();
    text[attr.name.len()..].trim_start_matches([':', ' ']).to_owned()
}

/// The dtypes that a type attribute, or the elements of a list of types, may have.
pub(super) fn dtypes(attr: &AttrDef) -> Vec<DType> {
    match &attr.allowed {
        Some(Allowed::Types(dtypes)) => dtypes.clone(),
        _ => DType::ALL.to_vec(),
    }
}

/// Sets do not depend on their order, and no set of dtypes is all of them.
fn has_same_constraint(old: &AttrDef, new: &AttrDef) -> bool {
    accepts_all(old, new) && accepts_all(new, old)
}

/// Whether `attr` accepts every value that `other`, of the same type, does.
fn accepts_all(attr: &AttrDef, other: &AttrDef) -> bool {
    let least = attr.min_len.unwrap_or(0) <= other.min_len.unwrap_or(0);
    least
        && match &other.allowed {
            Some(Allowed::Ints(ints)) => ints.iter().all(|n| accepts_int(attr, *n)),
            Some(Allowed::Strings(texts)) => match &attr.allowed {
                Some(Allowed::Strings(allowed)) => texts.iter().all(|text| allowed.contains(text)),
                _ => true,
            },
            Some(Allowed::Types(dtypes)) => dtypes.iter().all(|dtype| self::dtypes(attr).contains(dtype)),
            None => accepts_range(attr, other),
        }
}

fn accepts_int(attr: &AttrDef, n: i64) -> bool {
    let end = || Bound::Included(AttrValue::Int(n));
    match &attr.allowed {
        Some(Allowed::Ints(allowed)) => allowed.contains(&n),
        _ => attr.bounds_include(&AttrDef { min: end(), max: end(), ..attr.clone() }),
    }
}

/// Whether `attr` accepts what `other` does, which has bounds at most.
fn accepts_range(attr: &AttrDef, other: &AttrDef) -> bool {
    match &attr.allowed {
        Some(Allowed::Types(allowed)) => allowed.len() == DType::ALL.len(),
        Some(_) => false,
        None => attr.bounds_include(other),
    }
}

/// The attributes that callers give, in the order of a call by position.
fn positional(signature: &Signature) -> impl Iterator<Item = &AttrDef> {
    let given = |defaulted: bool| {
        signature.attrs.iter().filter(move |attr| !attr.inferred && attr.default.is_some() == defaulted)
    };
    given(false).chain(given(true))
}

/// Looks at the order of what both have.
fn compare_order(old: &Signature, new: &Signature, changes: &mut Changes<'_>) {
    let common = |signature, other: &Signature| {
        let names = positional(signature).map(|attr| attr.name.clone());
        names.filter(|name| other.attr_index(name).is_some()).collect::<Vec<_>>()
    };
    let (before, after) = (common(old, new), common(new, old));
    if let Some((was, _)) = before.iter().zip(&after).find(|(was, is)| was != is) {
        let detail = format!("the order was {}, is {}", before.join(", "), after.join(", "));
        changes.add(Rule::AttrOrder, Part::Attr(was.clone()), detail);
    }
}

/// How to judge an attribute that the old definition lacks.
fn added(old: &Signature, new: &Signature, attr: &AttrDef) -> Rule {
    let mut behind = positional(new).skip_while(|other| other.name != attr.name);
    if attr.default.is_none() {
        Rule::AttrAddedRequired
    } else if !attr.inferred && behind.any(|other| old.attr_index(&other.name).is_some()) {
        Rule::AttrAddedBefore
    } else {
        Rule::AttrAdded
    }
}
