//! Whether a rule fits an op.

use super::{Argument, Axis, Item, Parallel, View};
use crate::Signature;
use crate::attr::{AttrBase, AttrType};
use crate::def::ArgDef;

impl Parallel {
    /// Why it does not fit is told in words.
    pub(super) fn check(&self, op: &Signature) -> Result<(), String> {
        if op.stateful {
            return Err("it is stateful, so calls on parts would not give what one call gives".into());
        }
        if let Some(input) = op.inputs.iter().find(|input| input.is_ref) {
            return Err(format!(
                "it changes its input `{}` in place, which cannot be done in parts",
                input.name
            ));
        }
        let sides = [("inputs", &self.inputs, &op.inputs), ("outputs", &self.outputs, &op.outputs)];
        for (kind, own, defs) in sides {
            if own.len() != defs.len() {
                let (own, defs) = (own.len(), defs.len());
                return Err(format!("the op has {defs} {kind}, but `{self}` has {own}"));
            }
            own.iter().zip(defs).try_for_each(|(argument, def)| argument.check(op, def))?;
        }
        let of_inputs: Vec<Axis<'_>> = self.inputs.iter().flat_map(Argument::axes).collect();
        if of_inputs.is_empty() {
            return Err(format!("`{self}` has no free axis; leave the rule out"));
        }
        for (output, def) in self.outputs.iter().zip(&op.outputs) {
            check_output(output, def, &of_inputs)?;
        }
        match self.inputs.iter().zip(&op.inputs).find(|(input, _)| input.is_sum) {
            Some((_, def)) => Err(format!("`+` is for outputs, and `{}` is an input", def.name)),
            None => Ok(()),
        }
    }
}

fn check_output(output: &Argument, def: &ArgDef, of_inputs: &[Axis<'_>]) -> Result<(), String> {
    let (own, name): (Vec<Axis<'_>>, _) = (output.axes().collect(), &def.name);
    if let Some(axis) = own.iter().find(|axis| !of_inputs.contains(axis)) {
        return Err(format!("`{axis}` is an axis of the output `{name}`, but of no input"));
    }
    if let Some(axis) = of_inputs.iter().find(|axis| !output.is_sum && !own.contains(axis)) {
        return Err(format!(
            "`{axis}` is not a dim of the output `{name}`, which is {output}; if that is the sum over the \
             parts, write `+{axis}`, or `+{output}` in a rule"
        ));
    }
    let unknown = output.dots.as_ref().is_some_and(|dots| dots.axes.is_none()) && !output.front.is_empty();
    if unknown {
        return Err(format!("the dims before `_...` of the output `{name}` cannot be determined"));
    }
    Ok(())
}

impl Argument {
    fn check(&self, op: &Signature, def: &ArgDef) -> Result<(), String> {
        let axes: Vec<Axis<'_>> = self.axes().collect();
        let twice = axes.iter().enumerate().find(|(at, axis)| axes[..*at].contains(axis));
        if let Some((_, axis)) = twice {
            let name = &def.name;
            return Err(format!("`{axis}` occurs twice in `{name}`, which is {self}, so it cannot be cut"));
        }
        let bool_attr = |name: &str| check_attr(op, name, &[(AttrBase::Bool, false)]);
        let int = (AttrBase::Int, false);
        let positions = |name: &str| check_attr(op, name, &[int, (AttrBase::Int, true)]);
        for item in self.items() {
            if let Item::HeldMany(attr) = item {
                positions(attr)?;
            }
        }
        self.swapped.as_deref().map_or(Ok(()), bool_attr)?;
        match self.dots.as_ref().map(|dots| &dots.view) {
            Some(View::But(at)) => positions(at),
            Some(View::Less { at, unless }) => {
                positions(at)?;
                unless.as_deref().map_or(Ok(()), bool_attr)
            }
            Some(View::By(order)) => check_attr(op, order, &[(AttrBase::Int, true)]),
            Some(View::With { at, .. }) => check_attr(op, at, &[int]),
            Some(View::Whole) | None => Ok(()),
        }
    }
}

fn check_attr(op: &Signature, name: &str, types: &[(AttrBase, bool)]) -> Result<(), String> {
    let types: Vec<AttrType> = types.iter().map(|&(base, list)| AttrType { base, list }).collect();
    if op.attr_index(name).is_some_and(|index| types.contains(&op.attrs[index].ty)) {
        return Ok(());
    }
    let types: Vec<String> = types.iter().map(ToString::to_string).collect();
    Err(format!("`{name}` is not an attribute of type {}", types.join(" or ")))
}
