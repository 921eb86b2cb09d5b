//! Tests of shapes, and what they share.

mod context;
mod dim;
mod functions;
mod signature;

use super::{Dim, InferenceContext, Shape};
use crate::attr::AttrValue;
use crate::{Result, Signature, SignatureBuilder};

/// A definition whose inputs and outputs are single float tensors of these names, parted by spaces; a name that ends
/// in `?` is optional, and one that ends in `*` a list of `N`.
fn op(name: &str, inputs: &str, outputs: &str, attrs: &[&str]) -> Signature {
    let spec = |text: &str| match text.strip_suffix('*') {
        Some(name) => format!("{name}: N * float"),
        None => format!("{}: float", text.trim_end_matches('?')),
    };
    let mut builder = attrs.iter().fold(SignatureBuilder::new(name), |builder, attr| builder.attr(*attr));
    for input in inputs.split_whitespace() {
        builder = builder.input(spec(input));
        if let Some(name) = input.strip_suffix('?') {
            builder = builder.optional(name);
        }
    }
    builder = outputs.split_whitespace().fold(builder, |builder, output| builder.output(spec(output)));
    builder.build().unwrap()
}

fn shape(text: &str) -> Shape {
    Shape::parse(text).unwrap()
}

fn dim(text: &str) -> Dim {
    Dim::parse(text).unwrap()
}

/// The context of a call with one tensor for each input, `;` between their shapes.
fn context<'a>(op: &'a Signature, attrs: &'a [AttrValue], inputs: &str) -> Result<InferenceContext<'a>> {
    let inputs = inputs.split(';').filter(|text| !text.is_empty()).map(|text| Some(vec![shape(text)]));
    InferenceContext::new(op, attrs, inputs.collect())
}
