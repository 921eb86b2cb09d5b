//! The shapes that a composition gives: those of its steps, one after the other.

use std::sync::Arc;

use opsmith::attr::TensorValue;
use opsmith::prelude::*;
use opsmith::{AttrValue, Shape};
use opsmith_core::shape::Relation;

use super::Composition;
use super::entered::{checks, enter};
use super::program::trace;
use super::trace::{Origin, Step};

/// What is known of a value.
struct Known {
    shape: Shape,
    value: Option<Arc<TensorValue>>,
}

/// The shape function of the composition `C`.
pub(super) fn outputs<C: Composition>(c: &mut InferenceContext<'_>) -> Result<()> {
    if checks() {
        return Ok(());
    }
    let signature = c.signature();
    let _entered = enter(&signature.name)?;
    let attrs =
        signature.attrs.iter().map(|attr| c.attr(&attr.name).cloned()).collect::<Result<Vec<AttrValue>>>()?;
    let mut present = 0;
    for (arg, def) in signature.inputs.iter().enumerate() {
        let is_there = def.count.is_list() || c.input_range(&def.name)?.all(|input| c.has_input(input));
        present |= u64::from(is_there) << arg;
    }
    let traced = trace::<C>(signature, &attrs, present)?;
    let mut known = traced.origins.iter().map(|origin| known(c, origin)).collect::<Result<Vec<_>>>()?;
    for step in &traced.steps {
        infer(c, step, &mut known)?;
    }
    for (output, value) in traced.outputs.iter().flatten().enumerate() {
        let shape = known[value.index].as_ref().map_or_else(Shape::unknown, |known| known.shape.clone());
        c.set_output(output, shape)?;
    }
    Ok(())
}

fn known(c: &InferenceContext<'_>, origin: &Origin) -> Result<Option<Known>> {
    Ok(match origin {
        Origin::Input(arg, element) => {
            let input = c.input_range(&c.signature().inputs[*arg].name)?.start + element;
            Some(Known { shape: c.input(input)?, value: c.input_value(input).cloned().map(Arc::new) })
        }
        Origin::Constant(value) => {
            Some(Known { shape: Shape::known(&value.shape), value: Some(value.clone()) })
        }
        Origin::Step => None,
    })
}

/// Infers the shapes of one step's outputs.
fn infer(c: &mut InferenceContext<'_>, step: &Step, known: &mut [Option<Known>]) -> Result<()> {
    let signature = step.op.signature();
    let attrs: Vec<AttrValue> = step.attrs.iter().flatten().cloned().collect();
    let shape = |index: usize| known[index].as_ref().map_or_else(Shape::unknown, |known| known.shape.clone());
    let argument = |(values, def): (&Vec<Option<super::Value>>, &opsmith_core::def::ArgDef)| match values[..]
    {
        [None] if !def.count.is_list() => None,
        _ => Some(values.iter().flatten().map(|value| shape(value.index)).collect()),
    };
    let shapes = step.inputs.iter().zip(&signature.inputs).map(argument).collect();
    let values = step.inputs.iter().flatten();
    let values: Vec<Option<Arc<TensorValue>>> =
        values.map(|value| known[(*value)?.index].as_ref()?.value.clone()).collect();
    let mut inner = InferenceContext::new(signature, &attrs, shapes)?
        .with_input_values(values.iter().map(Option::as_deref).collect());
    step.op.infer_shapes(&mut inner)?;
    let (shapes, constraints) = inner.into_parts();
    for constraint in constraints {
        let message = format!("{}: {}", signature.name, constraint.message);
        match constraint.relation {
            Relation::Equal => c.assume_equal(&constraint.left, &constraint.right, message)?,
            Relation::AtLeast => c.assume_at_least(&constraint.left, &constraint.right, message)?,
        }
    }
    let dims = dims(step, known);
    for (value, shape) in step.outputs.iter().flatten().zip(shapes) {
        known[value.index] = Some(Known { shape, value: dims.clone() });
    }
    Ok(())
}

/// What the op `Shape` gives, where every dim is known.
fn dims(step: &Step, known: &[Option<Known>]) -> Option<Arc<TensorValue>> {
    if step.op.signature().name != "Shape" {
        return None;
    }
    let dims = known[step.reads().next()?.index].as_ref()?.shape.to_known()?;
    let dtype = step.outputs[0][0].dtype();
    let bytes = dims.iter().flat_map(|&dim| match dtype {
        DType::Int32 => (dim as i32).to_ne_bytes().to_vec(),
        _ => (dim as i64).to_ne_bytes().to_vec(),
    });
    Some(Arc::new(TensorValue {
        dtype,
        shape: vec![dims.len()],
        bytes: bytes.collect(),
        strings: Vec::new(),
    }))
}
