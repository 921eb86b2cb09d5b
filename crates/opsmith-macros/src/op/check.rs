//! Whether an op is well formed: its names, its shape signature, and whether the two fit its function.

use std::ops::Range;

use opsmith_core::attr::{AttrBase, AttrType};
use opsmith_core::shape::{ArgShape, ShapeSignature, SignatureError};
use opsmith_core::{Parallel, Signature, SignatureBuilder};
use proc_macro2::{Literal, Span};
use syn::{Error, LitStr, Result};

use super::model::Op;
use super::options::Policy;
use super::parameter::{Parameter, Tensor};

/// Finds what is wrong with an op, as far as the macro can see it.
pub(crate) fn check(op: &Op) -> Result<()> {
    check_names(op)?;
    if let (None, Some((parameter, _))) = (&op.cuda, op.inputs().find(|(_, tensor)| tensor.host)) {
        let message =
            format!("`{}` is #[host], but the op has no CUDA kernel: cuda = \"file.cu\"", parameter.name);
        return Err(Error::new(parameter.ident.span(), message));
    }
    if let (None, Some(place)) = (&op.cuda, op.capturable) {
        let message = "`capturable` describes a CUDA kernel, but the op has none: cuda = \"file.cu\"";
        return Err(Error::new(place, message));
    }
    check_lists(op)?;
    if let (Some(_), Some((parameter, _))) = (&op.cuda, op.outputs().find(|(_, tensor)| tensor.found)) {
        let message =
            "a CUDA kernel of #[op] cannot decide the shape of an output; write the op with `OpDef`";
        return Err(Error::new_spanned(&parameter.ty, message));
    }
    let shapes = parse_shapes(&op.shape)?;
    let inputs: Vec<_> = op.inputs().collect();
    let outputs: Vec<_> = op.outputs().collect();
    check_shapes(&op.shape, "input", &inputs, shapes.inputs())?;
    check_shapes(&op.shape, "output", &outputs, shapes.outputs())?;
    // The rest the library will check; here it is told at compile time.
    let signature = op.signature().build().map_err(|error| Error::new(op.name_span, error.message()))?;
    if let Some(Policy { policy, place }) = op.autocast {
        policy
            .check(&signature)
            .map_err(|error| Error::new(place, error.with_op(&signature.name).message()))?;
    }
    let shapes = shapes.of_op(&signature).map_err(|error| fault(&op.shape, &error))?;
    check_attr_names(op, &signature, &shapes)?;
    shapes.check(&signature).map_err(|error| Error::new(op.shape.span(), error.message()))?;
    let Some(parallel) = &op.parallel else { return Ok(()) };
    let read = Parallel::new(&parallel.value(), &signature, Some(&shapes));
    read.map(drop).map_err(|error| Error::new(parallel.span(), error.message()))
}

/// That a CUDA kernel has no lists, and that the length of each output that is one is known.
fn check_lists(op: &Op) -> Result<()> {
    let is_list = |parameter: &&Parameter| parameter.tensor().is_some_and(|tensor| tensor.list.is_some());
    for list in op.parameters.iter().filter(is_list) {
        let name = &list.name;
        let message = if op.cuda.is_some() {
            format!(
                "`{name}` is a list, and a CUDA kernel of #[op] takes no lists; write the op with `OpDef`"
            )
        } else if op.length_of(list).is_none() {
            format!(
                "the length of the list `{name}` is not known: an output list is as long as the input `<input>` \
                 if its name is `<input>_grad`, or else as the only input that is a list"
            )
        } else {
            continue;
        };
        return Err(Error::new_spanned(&list.ty, message));
    }
    Ok(())
}

fn check_names(op: &Op) -> Result<()> {
    SignatureBuilder::new(&op.name)
        .build()
        .map_err(|error| Error::new(op.name_span, error.message().lines().next().unwrap_or_default()))?;
    for (position, parameter) in op.parameters.iter().enumerate() {
        let same = |other: &Parameter| other.name == parameter.name;
        if op.parameters[..position].iter().any(same) {
            let message = format!("two arguments have the name `{}`", parameter.name);
            return Err(Error::new(parameter.ident.span(), message));
        }
    }
    Ok(())
}

pub(crate) fn parse_shapes(literal: &LitStr) -> Result<ShapeSignature> {
    let text = literal.value();
    ShapeSignature::parse(&text).map_err(|error| fault(literal, &error))
}

/// The error at its place in the literal, where the compiler can point there, and with a caret of its own.
fn fault(literal: &LitStr, error: &SignatureError) -> Error {
    let place = error.offset..error.offset + error.len.max(1);
    let span = subspan(literal, place).unwrap_or_else(|| literal.span());
    Error::new(span, error.render(&literal.value()))
}

/// The span of a part of the literal's text. Stable Rust gives none.
fn subspan(literal: &LitStr, place: Range<usize>) -> Option<Span> {
    let token: Literal = literal.token();
    let quoted = token.to_string() == format!("\"{}\"", literal.value());
    if quoted { token.subspan(place.start + 1..place.end + 1) } else { None }
}

fn check_shapes(
    literal: &LitStr,
    kind: &str,
    arguments: &[(&Parameter, &Tensor)],
    shapes: &[ArgShape],
) -> Result<()> {
    if arguments.len() != shapes.len() {
        let names: Vec<_> = arguments.iter().map(|(parameter, _)| format!("`{}`", parameter.name)).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let message = format!(
            "the shape signature has {} {kind}s, but the function has {} ({names})",
            shapes.len(),
            arguments.len()
        );
        return Err(Error::new(literal.span(), message));
    }
    for ((parameter, tensor), shape) in arguments.iter().zip(shapes) {
        check_rank(parameter, tensor, shape)?;
        check_found(parameter, tensor, shape)?;
    }
    Ok(())
}

/// That an output whose shape the function finds is one in the shape signature, too.
fn check_found(parameter: &Parameter, tensor: &Tensor, shape: &ArgShape) -> Result<()> {
    let name = &parameter.name;
    let message = match (tensor.found, shape.has_unknown()) {
        (false, true) => format!(
            "`{name}` is {shape} in the shape signature, so the function makes it: take &mut Array{}<…>, and assign to it",
            shape.core_rank()
        ),
        (true, false) => format!(
            "`{name}` is {shape} in the shape signature, so its memory is there before the function runs: take an \
             ArrayViewMut, or write `?` for a dim that the function finds"
        ),
        _ => return Ok(()),
    };
    Err(Error::new_spanned(&parameter.ty, message))
}

fn check_rank(parameter: &Parameter, tensor: &Tensor, shape: &ArgShape) -> Result<()> {
    let name = &parameter.name;
    let message = match tensor.rank {
        None => return Ok(()),
        Some(_) if shape.has_batch_dims() => {
            format!(
                "`{name}` is {shape} in the shape signature: with batch dims its rank varies, so take {}D",
                if tensor.found { "Array" } else { "ArrayView" }
            )
        }
        Some(rank) if rank != shape.core_rank() => format!(
            "`{name}` has {} in the shape signature, {shape}, but {} here",
            dims(shape.core_rank()),
            dims(rank)
        ),
        Some(_) => return Ok(()),
    };
    Err(Error::new_spanned(&parameter.ty, message))
}

fn dims(count: usize) -> String {
    if count == 1 { "1 dim".to_owned() } else { format!("{count} dims") }
}

/// A name in the signature that no input gives must be an attribute.
fn check_attr_names(op: &Op, signature: &Signature, shapes: &ShapeSignature) -> Result<()> {
    let int = AttrType { base: AttrBase::Int, list: false };
    let is_int = |name| signature.attr_index(name).is_some_and(|index| signature.attrs[index].ty == int);
    match shapes.attr_names().find(|(name, _)| !is_int(name)) {
        Some((name, offset)) => {
            let message = format!("`{name}` is neither a dim of an input nor an int attribute");
            Err(fault(&op.shape, &SignatureError { offset, len: name.len(), message }))
        }
        None => Ok(()),
    }
}
