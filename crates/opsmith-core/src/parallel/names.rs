//! A rule from the names of dims of a shape signature.

use super::{Argument, Dots, Item, Parallel, View};
use crate::Signature;
use crate::shape::{ArgShape, ShapeSignature};

/// Why it cannot be is told in words.
pub(super) fn read(
    text: &str,
    signature: &Signature,
    shapes: Option<&ShapeSignature>,
) -> Result<Parallel, String> {
    let Some(shapes) = shapes else {
        return Err(format!(
            "`{text}` names dims, but the op has no shape signature; give a rule, `(..., n) -> (..., n)`"
        ));
    };
    let mut given: Vec<(&str, bool)> = Vec::new();
    for name in text.split(',').map(str::trim) {
        let (name, is_sum) = name.strip_prefix('+').map_or((name, false), |name| (name.trim_start(), true));
        check_name(name, signature, shapes)?;
        if given.iter().any(|(other, _)| *other == name) {
            return Err(format!("`{name}` is given twice"));
        }
        given.push((name, is_sum));
    }
    let has = |name: &str| given.iter().any(|(given, _)| *given == name);
    let argument = |shape: &ArgShape| {
        let axes = has("...").then(String::new);
        let item = |name: Option<&str>| match name.filter(|name| has(name)) {
            Some(name) => Item::Axis(name.to_owned()),
            None => Item::Held,
        };
        Argument {
            dots: shape.has_batch_dims().then_some(Dots { axes, view: View::Whole }),
            back: shape.names(shapes.dim_names()).map(item).collect(),
            ..Argument::default()
        }
    };
    let output = |shape: &ArgShape| {
        let argument = argument(shape);
        let lacks = |name: &str| argument.axes().all(|axis| axis.name != name.trim_matches('.'));
        let is_sum = given.iter().any(|(name, is_sum)| *is_sum && lacks(name));
        Argument { is_sum, ..argument }
    };
    Ok(Parallel {
        inputs: shapes.inputs().iter().map(argument).collect(),
        outputs: shapes.outputs().iter().map(output).collect(),
    })
}

/// That there is such a dim, by which tensors can be cut.
fn check_name(name: &str, signature: &Signature, shapes: &ShapeSignature) -> Result<(), String> {
    let dots = shapes.inputs().iter().any(ArgShape::has_batch_dims).then_some("...");
    let known: Vec<&str> = dots.into_iter().chain(shapes.dim_names().iter().map(String::as_str)).collect();
    if !known.contains(&name) {
        let has = match known[..] {
            [] => "whose inputs have no dims with names".to_owned(),
            _ => format!("which has {}", known.join(", ")),
        };
        let what = if signature.attr_index(name).is_some() { "is an attribute and" } else { "is" };
        return Err(format!(
            "`{name}` {what} not a dim of an input in its shape signature `{shapes}`, {has}"
        ));
    }
    if let Some(dim) = shapes.computed_from(name) {
        return Err(format!("`{name}` is not free: `{dim}` of its shape signature `{shapes}` depends on it"));
    }
    if let Some(output) = shapes.outputs().iter().find(|output| output.has_unknown()) {
        return Err(format!(
            "`{name}` is not free: the kernel decides the size of the output {output}, so its parts may not fit \
             together"
        ));
    }
    Ok(())
}
