//! One-body functions, `#[pointwise]` and its relatives: parse the options and the function, build the model, expand it.
//!
//! The model and most of the expansion are the same for all families; a family adds how its function becomes a body and
//! which kernels it has.

mod axes;
mod expand;
mod model;
mod named;
pub(crate) mod numbers;
mod options;
mod pairwise;
mod parameter;
mod pointwise;
mod reduce;

use proc_macro2::TokenStream;
use syn::parse::{ParseStream, Parser};
use syn::{Ident, ItemFn, Type};

pub(crate) use model::OneBody;
pub(crate) use named::expand as named;
use options::Options;
pub(crate) use pairwise::expand as pairwise;
use parameter::Number;
pub(crate) use parameter::{Parameter, Role};
pub(crate) use pointwise::expand as pointwise;
pub(crate) use reduce::expand as reduce;

/// What is particular to a family of one-body functions.
pub(crate) struct Family {
    /// The macro's name.
    pub(crate) name: &'static str,
    /// The trait that bounds the function's type parameter.
    pub(crate) bound: &'static str,
    /// The types of numbers as authors write them, for messages.
    pub(crate) numbers: &'static str,
    /// Which number a type is, given the type parameter; nothing for other types.
    pub(crate) number: fn(&Ident, &Type) -> Option<Number>,
    /// Whether an argument may be an array of numbers, its parts.
    pub(crate) has_parts: bool,
    /// The options that only this family has, each `key = expression`.
    pub(crate) own_options: &'static [&'static str],
    /// The names that a single output may have by itself, the first that is free.
    pub(crate) output_names: &'static [&'static str],
}

/// Reads a function with its options. What is left of the function has no attributes that are for the macro; what is
/// left of the options is the family's own.
pub(crate) fn read(
    family: &Family,
    options: TokenStream,
    item: TokenStream,
) -> syn::Result<(OneBody, Options, ItemFn)> {
    let options = (|input: ParseStream<'_>| Options::read(family, input)).parse2(options)?;
    let mut function: ItemFn = syn::parse2(item).map_err(|error| {
        syn::Error::new(
            error.span(),
            format!("#[{}] is for a function, and this cannot be read as one: {error}", family.name),
        )
    })?;
    let body = OneBody::new(family, &options, &mut function)?;
    Ok((body, options, function))
}
