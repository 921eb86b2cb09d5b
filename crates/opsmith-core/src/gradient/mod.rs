//! Gradients: what an op declares, and how a gradient op is wired to it by the names of its arguments.

mod fit;

pub use fit::{Arguments, check_gradient};

use fit::Attribute;

use crate::{Error, Result, Signature};

/// What an op declares of its gradient.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Gradient {
    /// Nothing: differentiating through the op is an error that names it.
    #[default]
    Undeclared,
    /// The outputs do not depend on the inputs in a differentiable way: zeros flow back.
    NotDifferentiable,
    /// The op of this name, in the same library, computes it.
    Op(String),
}

/// Where an input of a gradient op comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GradientInput {
    /// The forward op's input at this position.
    Input(usize),
    /// The forward op's output at this position.
    Output(usize),
    /// The gradient with respect to the forward op's output at this position.
    OutputGradient(usize),
}

/// How a gradient op is wired to its forward op.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GradientWiring {
    /// The gradient op's name.
    pub op: String,
    /// For each input of the gradient op, where it comes from.
    pub inputs: Vec<GradientInput>,
    /// For each output of the gradient op, the forward op's input whose gradient it is.
    pub outputs: Vec<usize>,
}

impl GradientWiring {
    /// Matches the arguments of `gradient` with those of `forward` by name: inputs are inputs or outputs of the
    /// forward op or `<output>_grad`, outputs are `<input>_grad`. Where the forward op has an input of such a name, the gradient
    /// is `<output>_grad_2` or `<input>_grad_2`.
    ///
    /// # Errors
    /// `InvalidArgument` for an argument that is none of these, and for a required attribute of the gradient op
    /// that the forward op lacks.
    pub fn new(forward: &Signature, gradient: &Signature) -> Result<GradientWiring> {
        let forward_inputs: Vec<&str> = forward.inputs.iter().map(|arg| arg.name.as_str()).collect();
        let forward_outputs: Vec<&str> = forward.outputs.iter().map(|arg| arg.name.as_str()).collect();
        let inputs = gradient.inputs.iter().map(|arg| {
            fit::source(&forward_inputs, &forward_outputs, &arg.name).ok_or_else(|| {
                Error::invalid_argument(format!(
                    "input `{}` of its gradient op {} is neither an input ({}) nor an output ({}) nor \
                     `<output>_grad`",
                    arg.name,
                    gradient.name,
                    names(&forward_inputs),
                    names(&forward_outputs)
                ))
                .with_op(&forward.name)
            })
        });
        let outputs = gradient.outputs.iter().map(|arg| {
            fit::target(&forward_inputs, &arg.name).ok_or_else(|| {
                Error::invalid_argument(format!(
                    "output `{}` of its gradient op {} is not `<input>_grad` for any of its inputs: {}",
                    arg.name,
                    gradient.name,
                    names(&forward_inputs)
                ))
                .with_op(&forward.name)
            })
        });
        let wiring = GradientWiring {
            op: gradient.name.clone(),
            inputs: inputs.collect::<Result<_>>()?,
            outputs: outputs.collect::<Result<_>>()?,
        };
        check_attributes(forward, gradient)?;
        Ok(wiring)
    }
}

fn check_attributes(forward: &Signature, gradient: &Signature) -> Result<()> {
    let types = |signature: &Signature| -> Vec<String> {
        signature.attrs.iter().map(|attr| attr.ty.to_string()).collect()
    };
    let (forward_types, gradient_types) = (types(forward), types(gradient));
    let attrs: Vec<Attribute<'_>> = attributes(forward, &forward_types).collect();
    for attr in attributes(gradient, &gradient_types) {
        if let Some(text) = fit::misfit(&forward.name, &attrs, &gradient.name, attr) {
            return Err(Error::invalid_argument(text.as_str().to_owned()).with_op(&forward.name));
        }
    }
    Ok(())
}

fn attributes<'a>(signature: &'a Signature, types: &'a [String]) -> impl Iterator<Item = Attribute<'a>> {
    let with_types = signature.attrs.iter().zip(types);
    with_types.map(|(attr, ty)| (attr.name.as_str(), ty.as_str(), attr.inferred || attr.default.is_some()))
}

fn names(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
