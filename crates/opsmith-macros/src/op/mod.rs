//! `#[op]`: parse the options and the function, build the model of the op, expand it.

pub(crate) mod attribute;
pub(crate) mod check;
mod cuda;
pub(crate) mod doc;
mod expand;
pub(crate) mod generics;
mod kernel;
pub(crate) mod model;
mod numbers;
pub(crate) mod options;
pub(crate) mod parameter;
mod settled;
mod value;

use proc_macro2::TokenStream;
use syn::ItemFn;

use model::Op;

/// The function, the marker type of the op beside it, and the op's definition and kernels.
pub(crate) fn expand(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let options = syn::parse2(options)?;
    let mut function: ItemFn = syn::parse2(item).map_err(|error| {
        syn::Error::new(
            error.span(),
            format!("#[op] is for a function, and this cannot be read as one: {error}"),
        )
    })?;
    let op = Op::new(options, &mut function)?;
    check::check(&op)?;
    numbers::check(&op.parameters, &function)?;
    Ok(expand::expand(&op, &function))
}
