//! Gradients of single ops: calls the gradient op that an op is wired to.

use opsmith_core::{AttrValue, Error, Gradient, GradientInput, Result};

use crate::call::Arg;
use crate::library::Op;
use crate::tensor::Tensor;

impl Op {
    /// The gradients with respect to this op's inputs, from those with respect to its outputs: calls the gradient op that
    /// the definition names. `inputs` and `attrs` are those of the forward call, `outputs` what it gave, and
    /// `output_gradients` has a tensor for each of them; bit `i` of `wanted` asks for the gradient of input `i`.
    ///
    /// Gives, for each input of the definition, its gradients: one for each tensor of the input, none where the op
    /// declares none or it was not wanted. All are empty for an op that is not differentiable.
    ///
    /// # Errors
    /// `Unimplemented` for an op that declares no gradient, `InvalidArgument` where a number of tensors is wrong, and
    /// whatever the gradient op says.
    pub fn gradient(
        &self,
        inputs: &[Arg<'_>],
        outputs: &[Arg<'_>],
        output_gradients: &[Arg<'_>],
        attrs: &[(&str, AttrValue)],
        wanted: u64,
    ) -> Result<Vec<Vec<Tensor>>> {
        let mut gradients = vec![Vec::new(); self.signature().inputs.len()];
        let Some(wiring) = &self.info().wiring else {
            match self.declared_gradient() {
                Gradient::NotDifferentiable => return Ok(gradients),
                _ => {
                    let error = Error::unimplemented("no gradient is declared for it");
                    return Err(error.with_op(&self.signature().name));
                }
            }
        };
        for (what, expected, given) in [
            ("inputs", self.signature().inputs.len(), inputs.len()),
            ("outputs", self.signature().outputs.len(), outputs.len()),
            ("outputs", self.signature().outputs.len(), output_gradients.len()),
        ] {
            if given != expected {
                return Err(self.refusal(format!("has {expected} {what}, got {given}")));
            }
        }
        let op = self.library().op(&wiring.op)?;
        let arg = |input: &GradientInput| match *input {
            GradientInput::Input(at) => inputs[at],
            GradientInput::Output(at) => outputs[at],
            GradientInput::OutputGradient(at) => output_gradients[at],
        };
        let args: Vec<Arg<'_>> = wiring.inputs.iter().map(arg).collect();
        let known = |(name, _): &&(&str, AttrValue)| op.signature().attr_index(name).is_some();
        let attrs: Vec<(&str, AttrValue)> = attrs.iter().filter(known).cloned().collect();
        let is_wanted = |input: usize| input >= 64 || wanted >> input & 1 == 1;
        let mask =
            wiring.outputs.iter().enumerate().fold(0, |mask, (at, &input)| {
                if is_wanted(input) && at < 64 { mask | 1 << at } else { mask }
            });
        let mut flat = op.call_wanted(&args, &attrs, mask)?.into_iter();
        for &input in &wiring.outputs {
            let count = match inputs[input] {
                Arg::List(tensors) => tensors.len(),
                Arg::Tensor(_) | Arg::Absent => 1,
            };
            // Taken whether wanted or not: the next input's gradients come after these.
            let given: Vec<Tensor> = flat.by_ref().take(count).flatten().collect();
            if is_wanted(input) {
                gradients[input] = given;
            }
        }
        Ok(gradients)
    }
}
