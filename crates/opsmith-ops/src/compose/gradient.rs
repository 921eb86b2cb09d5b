//! The derived gradient of a composition: a composition too.

use std::marker::PhantomData;

use opsmith::attr::TensorValue;
use opsmith::dtype::sets;
use opsmith::prelude::*;
use opsmith_core::def::{Allowed, ArgDef, ArgType, Signature};
use opsmith_core::family::{Family, op_name};

use super::infer;
use super::program::by_argument;
use super::reverse::Backward;
use super::trace::{Composer, Value, dtypes_of};
use super::{Composition, define};

/// The gradient of the composition `C`.
pub(super) struct GradientOf<C>(PhantomData<C>);

impl<C: Composition> OpDefinition for GradientOf<C> {
    fn def() -> OpDef {
        match C::def().signature() {
            Ok(forward) => statement::<C>(&forward),
            Err(error) => OpDef::new("Gradient").fault(error),
        }
    }
}

/// An argument is a number if it may be a float: those have gradients.
fn is_number(signature: &Signature, arg: &ArgDef) -> bool {
    let is_float = |dtype: &DType| sets::ANY_FLOAT.contains(dtype);
    let allows_floats = |attr: usize| match &signature.attrs[attr].allowed {
        Some(Allowed::Types(dtypes)) => dtypes.iter().any(is_float),
        _ => true,
    };
    match arg.dtype {
        ArgType::Fixed(dtype) => is_float(&dtype),
        ArgType::Attr(attr) | ArgType::List(attr) => allows_floats(attr),
    }
}

/// The names of the arguments of an op and of its gradient.
fn names(forward: &Signature) -> (Family, Family) {
    let all = |args: &[ArgDef]| args.iter().map(|arg| arg.name.clone()).collect::<Vec<_>>();
    let mut family = Family::new(&all(&forward.inputs), &all(&forward.outputs))
        .with_numbers(|input| is_number(forward, &forward.inputs[input]));
    for (output, def) in family.outputs.iter_mut().zip(&forward.outputs) {
        output.is_number = !def.saved && is_number(forward, def);
    }
    let gradient = family.gradient();
    (family, gradient)
}

/// The spec of an argument like this one, of another name.
fn renamed(signature: &Signature, arg: &ArgDef, name: &str) -> String {
    let spec = signature.arg_spec(arg);
    let ty = spec.split_once(':').map_or("", |(_, ty)| ty);
    format!("{name}:{ty}")
}

fn statement<C: Composition>(forward: &Signature) -> OpDef {
    let (family, gradient) = names(forward);
    let mut def = OpDef::new(&op_name(&forward.name, 1));
    for attr in &forward.attrs {
        def = def.attr(&attr.to_string());
    }
    for arg in &forward.inputs {
        def = def.input(&forward.arg_spec(arg));
        def = if arg.optional { def.optional(&arg.name) } else { def };
    }
    let outputs = family.outputs.iter().zip(&forward.outputs).filter(|(output, _)| output.is_number);
    for ((_, arg), named) in outputs.zip(&gradient.inputs[forward.inputs.len()..]) {
        def = def.input(&renamed(forward, arg, &named.name));
    }
    let inputs = family.inputs.iter().zip(&forward.inputs).filter(|(input, _)| input.is_number);
    for ((_, arg), named) in inputs.zip(&gradient.outputs) {
        def = def.output(&renamed(forward, arg, &named.name)).optional(&named.name);
    }
    let def = def.doc(&format!("The gradient of `{}`, derived.", forward.name));
    let inputs = family.inputs.iter().zip(&forward.inputs).filter(|(input, _)| input.is_number);
    let inputs: Vec<String> = inputs.map(|(_, arg)| arg.name.clone()).collect();
    define::<GradientOf<C>>(def).shape_fn(move |c| {
        // What does not fit is found by the steps; each gradient has the shape of its input.
        infer::outputs::<GradientOf<C>>(c)?;
        let mut output = 0;
        for name in &inputs {
            for input in c.input_range(name)? {
                if c.has_input(input) {
                    let shape = c.input(input)?;
                    c.set_output(output, shape)?;
                }
                output += 1;
            }
        }
        Ok(())
    })
}

impl<C: Composition> Composition for GradientOf<C> {
    const GRADIENT_OPS: &'static [fn() -> OpDef] = C::GRADIENT_OPS;
    const ORDERS: usize = C::ORDERS.saturating_sub(1);

    fn compose(c: &Composer<'_>) -> Result<Vec<Value>> {
        let forward = C::def().signature()?;
        let outputs = by_argument(c, &forward, &C::compose(c)?)?;
        let (family, gradient) = names(&forward);
        let mut xs = Vec::new();
        for (_, arg) in family.inputs.iter().zip(&forward.inputs).filter(|(input, _)| input.is_number) {
            xs.push((arg, c.input_list(&arg.name)?));
        }
        let mut backward = Backward::new(c, xs.iter().flat_map(|(_, values)| values));
        let numbers = family.outputs.iter().zip(outputs).filter(|(output, _)| output.is_number);
        for ((_, values), arriving) in numbers.zip(&gradient.inputs[forward.inputs.len()..]) {
            for (value, arriving) in values.into_iter().zip(c.input_list(&arriving.name)?) {
                backward.arrived(value, arriving)?;
            }
        }
        backward.run(&forward)?;
        let mut given = Vec::new();
        for (def, values) in xs {
            if values.is_empty() && !def.count.is_list() {
                // The input is absent, and so nobody wants its gradient.
                let dtype = dtypes_of(def, c.all_attrs())?[0];
                let bytes = vec![0; dtype.size()];
                given.push(c.constant(TensorValue { dtype, shape: vec![], bytes, strings: vec![] }));
            }
            for value in values {
                given.push(backward.gradient(value)?);
            }
        }
        Ok(given)
    }
}
