//! Inputs and outputs.
//!
//! An argument of the new definition is looked at as graphs of the old one see it: where its dtype or number comes from
//! an attribute that the old definition lacks, by that attribute's default.

use opsmith_core::attr::MAX_LIST;
use opsmith_core::def::{ArgCount, ArgDef, ArgType};
use opsmith_core::{AttrValue, DType, Signature};

use super::change::{Changes, Part};
use super::rules::Rule;

/// No list holds more tensors: an op refuses to make more, and a definition must not exhaust memory.
const MOST_TENSORS: i64 = MAX_LIST as i64;

/// Tensors of an argument as graphs of the old definition know them.
#[derive(Debug, PartialEq)]
struct Unit<'a> {
    dtype: UnitType<'a>,
    /// The attribute that counts them; one tensor without.
    count: Option<&'a str>,
}

/// Attributes by their names.
#[derive(Debug, Clone, Copy, PartialEq)]
enum UnitType<'a> {
    Fixed(DType),
    Attr(&'a str),
    List(&'a str),
}

/// Whether arguments are inputs or outputs: what is looked at, and which rules judge it.
struct Role {
    args: fn(&Signature) -> &[ArgDef],
    part: fn(String) -> Part,
    removed: Rule,
    renamed: Rule,
    order: Rule,
    ty: Rule,
    mixed_list: Rule,
    polymorphic: Rule,
    to_list: Rule,
}

const INPUTS: Role = Role {
    args: |signature| &signature.inputs,
    part: Part::Input,
    removed: Rule::InputRemoved,
    renamed: Rule::InputRenamed,
    order: Rule::InputOrder,
    ty: Rule::InputType,
    mixed_list: Rule::InputMixedList,
    polymorphic: Rule::InputPolymorphic,
    to_list: Rule::InputToList,
};

const OUTPUTS: Role = Role {
    args: |signature| &signature.outputs,
    part: Part::Output,
    removed: Rule::OutputRemoved,
    renamed: Rule::OutputRenamed,
    order: Rule::OutputOrder,
    ty: Rule::OutputType,
    mixed_list: Rule::OutputMixedList,
    polymorphic: Rule::OutputPolymorphic,
    to_list: Rule::OutputToList,
};

pub(super) fn compare(old: &Signature, new: &Signature, changes: &mut Changes<'_>) {
    let renamed = compare_role(&INPUTS, old, new, changes);
    for (at, arg) in new.inputs.iter().enumerate() {
        if old.input_index(&arg.name).is_none() && !renamed.contains(&arg.name.as_str()) {
            let rule = added_input(old, new, at);
            changes.add(rule, Part::Input(arg.name.clone()), format!("`{}` is new", new.arg_spec(arg)));
        }
    }
    let renamed = compare_role(&OUTPUTS, old, new, changes);
    for arg in &new.outputs {
        if old.output_index(&arg.name).is_none() && !renamed.contains(&arg.name.as_str()) {
            let detail = format!("`{}` is new", new.arg_spec(arg));
            changes.add(Rule::OutputAdded, Part::Output(arg.name.clone()), detail);
        }
    }
}

/// Compares what both have, and tells the names in `new` that are old arguments under other names.
fn compare_role<'a>(
    role: &Role,
    old: &Signature,
    new: &'a Signature,
    changes: &mut Changes<'_>,
) -> Vec<&'a str> {
    let (olds, news) = ((role.args)(old), (role.args)(new));
    let find = |args: &[ArgDef], name: &str| args.iter().position(|arg| arg.name == name);
    let mut renamed = Vec::new();
    for (at, arg) in olds.iter().enumerate() {
        let part = (role.part)(arg.name.clone());
        if let Some(same) = find(news, &arg.name) {
            compare_arg(role, (old, arg), (new, &news[same]), changes);
            continue;
        }
        let other = news.get(at).filter(|other| find(olds, &other.name).is_none());
        let other = other.filter(|other| units(old, other, new) == units(old, arg, old));
        match other {
            Some(other) => {
                renamed.push(other.name.as_str());
                changes.add(role.renamed, part, format!("is called `{}` now", other.name));
            }
            None => changes.add(role.removed, part, format!("`{}` is gone", old.arg_spec(arg))),
        }
    }
    let common = |args: &[ArgDef], others: &[ArgDef]| {
        let names = args.iter().map(|arg| arg.name.clone());
        names.filter(|name| find(others, name).is_some()).collect::<Vec<_>>()
    };
    let (before, after) = (common(olds, news), common(news, olds));
    if let Some((was, _)) = before.iter().zip(&after).find(|(was, is)| was != is) {
        let detail = format!("the order was {}, is {}", before.join(", "), after.join(", "));
        changes.add(role.order, (role.part)(was.clone()), detail);
    }
    renamed
}

fn compare_arg(
    role: &Role,
    old: (&Signature, &ArgDef),
    new: (&Signature, &ArgDef),
    changes: &mut Changes<'_>,
) {
    let ((old, was), (new, is)) = (old, new);
    let specs = format!("`{}` became `{}`", old.arg_spec(was), new.arg_spec(is));
    let part = || (role.part)(is.name.clone());
    let (before, after) = (units(old, was, old), units(old, is, new));
    let one_dtype = matches!(was.count, ArgCount::Attr(_)) && matches!(is.count, ArgCount::Types(_));
    let defaults = defaults(old, is, new);
    let rule = match before == after {
        true if is.count.is_list() && !was.count.is_list() => Some(role.to_list),
        true if defaults.is_empty() => None,
        true => Some(role.polymorphic),
        false if one_dtype => Some(role.mixed_list),
        false => Some(role.ty),
    };
    if let Some(rule) = rule {
        let by_default =
            if defaults.is_empty() { String::new() } else { format!(", by default {}", defaults.join(", ")) };
        changes.add(rule, part(), specs + &by_default);
    }
    compare_flags(was, is, &part, changes);
}

fn compare_flags(was: &ArgDef, is: &ArgDef, part: &dyn Fn() -> Part, changes: &mut Changes<'_>) {
    let is_input = matches!(part(), Part::Input(_));
    let optional = match (was.optional, is.optional, is_input) {
        (false, true, true) => Some((Rule::InputNowOptional, "may be absent now")),
        (true, false, true) => Some((Rule::InputNowRequired, "must be given now")),
        (false, true, false) => Some((Rule::OutputNowOptional, "need not be computed now")),
        (true, false, false) => Some((Rule::OutputNowRequired, "is always computed now")),
        _ => None,
    };
    let changed = match (was.is_ref, is.is_ref) {
        (false, true) => Some((Rule::InputNowChanged, "is changed in place now")),
        (true, false) => Some((Rule::InputNoLongerChanged, "is no longer changed in place")),
        _ => None,
    };
    let saved = match (was.saved, is.saved) {
        (false, true) => Some((Rule::OutputNowSaved, "serves the gradient only now")),
        (true, false) => Some((Rule::OutputNoLongerSaved, "serves not only the gradient now")),
        _ => None,
    };
    for (rule, detail) in [optional, changed, saved].into_iter().flatten() {
        changes.add(rule, part(), detail);
    }
}

/// How to judge the input at this position of the new definition, which the old one lacks.
fn added_input(old: &Signature, new: &Signature, at: usize) -> Rule {
    let input = &new.inputs[at];
    let is_last = new.inputs[at..].iter().all(|arg| old.input_index(&arg.name).is_none());
    match units(old, input, new) {
        _ if input.optional => Rule::InputOptionalAdded,
        Some(units) if units.is_empty() && is_last => Rule::InputListAdded,
        Some(units) if units.is_empty() => Rule::InputListInserted,
        _ => Rule::InputAdded,
    }
}

/// The tensors of `arg`, of the definition `new`, as graphs of `old` know them; none where that takes an attribute
/// which neither `old` has nor a default is for.
fn units<'a>(old: &Signature, arg: &ArgDef, new: &'a Signature) -> Option<Vec<Unit<'a>>> {
    let known = |index: usize| old.attr_index(&new.attrs[index].name).is_some();
    let default = |index: usize| new.attrs[index].default.as_ref();
    let dtype = match arg.dtype {
        ArgType::Fixed(dtype) => UnitType::Fixed(dtype),
        ArgType::Attr(index) if known(index) => UnitType::Attr(&new.attrs[index].name),
        ArgType::List(index) if known(index) => UnitType::List(&new.attrs[index].name),
        ArgType::Attr(index) | ArgType::List(index) => match default(index)? {
            AttrValue::Type(dtype) => UnitType::Fixed(*dtype),
            AttrValue::Types(dtypes) => {
                let unit = |dtype: &DType| Unit { dtype: UnitType::Fixed(*dtype), count: None };
                return Some(dtypes.iter().map(unit).collect());
            }
            _ => return None,
        },
    };
    match arg.count {
        ArgCount::Attr(index) if known(index) => {
            Some(vec![Unit { dtype, count: Some(&new.attrs[index].name) }])
        }
        ArgCount::Attr(index) => match default(index)? {
            AttrValue::Int(count @ 0..=MOST_TENSORS) => {
                Some((0..*count).map(|_| Unit { dtype, count: None }).collect())
            }
            _ => None,
        },
        ArgCount::One | ArgCount::Types(_) => Some(vec![Unit { dtype, count: None }]),
    }
}

/// The attributes that an argument of `new` depends on and `old` lacks, with their defaults: `N = 1`.
fn defaults(old: &Signature, arg: &ArgDef, new: &Signature) -> Vec<String> {
    let dtype = match arg.dtype {
        ArgType::Fixed(_) => None,
        ArgType::Attr(index) | ArgType::List(index) => Some(index),
    };
    let count = match arg.count {
        ArgCount::Attr(index) => Some(index),
        ArgCount::One | ArgCount::Types(_) => None,
    };
    let added = count.into_iter().chain(dtype).map(|index| &new.attrs[index]);
    let added = added.filter(|attr| old.attr_index(&attr.name).is_none());
    added.filter_map(|attr| Some(format!("{} = {}", attr.name, attr.default.as_ref()?))).collect()
}
