//! Reverse mode over the steps of a composition: for each step on the way, from the last to the first, a call of its gradient op.
//!
//! A library does not link the engine, whose reverse mode is over its graphs.

use std::collections::HashMap;

use opsmith::dtype::sets;
use opsmith::prelude::*;
use opsmith::{AttrValue, Op};
use opsmith_core::def::Signature;
use opsmith_core::{Gradient, GradientInput, GradientWiring};

use super::trace::{Composer, Step, Value};
use crate::arithmetic::Add;
use crate::values::ZerosLike;

/// Where gradients have flowed to.
pub(super) struct Backward<'c, 'a> {
    composer: &'c Composer<'a>,
    /// Whether a value depends on one that gradients are wanted of, or is one; by its position.
    depends: Vec<bool>,
    flowed: HashMap<usize, Value>,
}

impl<'c, 'a> Backward<'c, 'a> {
    /// A walk to the values `xs`.
    pub(super) fn new<'x>(
        composer: &'c Composer<'a>,
        xs: impl Iterator<Item = &'x Value>,
    ) -> Backward<'c, 'a> {
        let mut backward = Backward { composer, depends: Vec::new(), flowed: HashMap::new() };
        xs.for_each(|x| backward.mark(*x));
        for index in 0..composer.num_steps() {
            let step = composer.step(index);
            if step.reads().any(|value| backward.depends(value)) {
                step.outputs.iter().flatten().for_each(|value| backward.mark(*value));
            }
        }
        backward
    }

    /// Along floats only: an index or a whole number has no slope.
    fn mark(&mut self, value: Value) {
        if sets::ANY_FLOAT.contains(&value.dtype()) {
            self.depends.resize(self.depends.len().max(value.index + 1), false);
            self.depends[value.index] = true;
        }
    }

    fn depends(&self, value: Value) -> bool {
        self.depends.get(value.index).copied().unwrap_or_default()
    }

    /// Notes that a gradient has flowed into a value.
    pub(super) fn arrived(&mut self, value: Value, gradient: Value) -> Result<()> {
        let total = match self.flowed.get(&value.index) {
            Some(total) => self.composer.apply::<Add>(&[*total, gradient])?,
            None => gradient,
        };
        self.flowed.insert(value.index, total);
        Ok(())
    }

    /// What has flowed into a value; zeros where nothing has.
    pub(super) fn gradient(&self, value: Value) -> Result<Value> {
        match self.flowed.get(&value.index) {
            Some(total) => Ok(*total),
            None => self.composer.apply::<ZerosLike>(&[value]),
        }
    }

    /// Lets what has arrived flow through all steps.
    pub(super) fn run(&mut self, composed: &Signature) -> Result<()> {
        for index in (0..self.composer.num_steps()).rev() {
            let step = self.composer.step(index);
            let is_reached =
                step.outputs.iter().flatten().any(|value| self.flowed.contains_key(&value.index));
            if is_reached && step.reads().any(|value| self.depends(value)) {
                let name = &step.op.signature().name;
                self.through(&step, composed).map_err(|error| error.with_op(name))?;
            }
        }
        Ok(())
    }

    fn through(&mut self, step: &Step, composed: &Signature) -> Result<()> {
        let name = match step.op.gradient() {
            Gradient::NotDifferentiable => return Ok(()),
            Gradient::Op(name) => name,
            Gradient::Undeclared => {
                bail!(
                    Unimplemented,
                    "declares no gradient; the derived gradient of {} needs it",
                    composed.name
                )
            }
        };
        let Some(op) = self.composer.gradient_op(name)? else {
            let text = format!("its gradient op {name} does not come with it; name it in `GRADIENT_OPS`");
            return Err(Error::not_found(text));
        };
        let wiring = GradientWiring::new(step.op.signature(), op.signature())?;
        let inputs =
            wiring.inputs.iter().map(|source| self.input(step, *source)).collect::<Result<Vec<_>>>()?;
        let gradients = self.composer.add(op.clone(), inputs, &attrs(step, &op))?;
        for (&input, gradients) in wiring.outputs.iter().zip(gradients) {
            for (value, gradient) in step.inputs[input].iter().zip(gradients) {
                if let Some(value) = value.filter(|value| self.depends(*value)) {
                    self.arrived(value, gradient)?;
                }
            }
        }
        Ok(())
    }

    /// The tensors of an input of a gradient op.
    fn input(&self, step: &Step, source: GradientInput) -> Result<Vec<Option<Value>>> {
        match source {
            GradientInput::Input(input) => Ok(step.inputs[input].clone()),
            GradientInput::Output(output) => Ok(step.outputs[output].iter().copied().map(Some).collect()),
            GradientInput::OutputGradient(output) => {
                step.outputs[output].iter().map(|value| self.gradient(*value).map(Some)).collect()
            }
        }
    }
}

/// The attributes of a gradient op: those of the op, where it has one of the name and inputs do not decide it.
fn attrs(step: &Step, gradient: &Op) -> Vec<Option<AttrValue>> {
    let own = step.op.signature();
    let attr = |attr: &opsmith_core::def::AttrDef| match attr.inferred {
        true => None,
        false => own.attr_index(&attr.name).and_then(|index| step.attrs[index].clone()),
    };
    gradient.signature().attrs.iter().map(attr).collect()
}
