//! The macros that authors of operators use, through the crate `opsmith`, which documents them.
//!
//! Each is parsed into a model, checked there with the parsers of `opsmith-core`, and expanded from it. What is
//! wrong is a [`syn::Error`] at the place that is wrong.

mod body;
mod dispatch;
mod dtypes;
mod kernels;
mod library;
mod library_of;
mod numbers;
mod op;
mod stub;

use proc_macro::TokenStream;
use proc_macro2::TokenStream as TokenStream2;
use syn::parse_macro_input;

/// The expansion of a function with its options; of one that is wrong, the error and a stub of the op.
fn expand(
    macro_: impl FnOnce(TokenStream2, TokenStream2) -> syn::Result<TokenStream2>,
    options: TokenStream,
    item: TokenStream,
) -> TokenStream {
    let item = TokenStream2::from(item);
    macro_(options.into(), item.clone()).unwrap_or_else(|error| stub::failed(&error, item)).into()
}

/// Makes a function an op. See `opsmith::op`.
#[proc_macro_attribute]
pub fn op(options: TokenStream, item: TokenStream) -> TokenStream {
    expand(op::expand, options, item)
}

/// Makes a function of numbers on named axes an op. See `opsmith::body`.
#[proc_macro_attribute]
pub fn body(options: TokenStream, item: TokenStream) -> TokenStream {
    expand(body::named, options, item)
}

/// Makes a function of numbers an op that is applied to every element. See `opsmith::pointwise`.
#[proc_macro_attribute]
pub fn pointwise(options: TokenStream, item: TokenStream) -> TokenStream {
    expand(body::pointwise, options, item)
}

/// Makes a function of two numbers an op on all pairs of rows. See `opsmith::pairwise`.
#[proc_macro_attribute]
pub fn pairwise(options: TokenStream, item: TokenStream) -> TokenStream {
    expand(body::pairwise, options, item)
}

/// Makes a function of the numbers of rows an op, with folds. See `opsmith::reduce`.
#[proc_macro_attribute]
pub fn reduce(options: TokenStream, item: TokenStream) -> TokenStream {
    expand(body::reduce, options, item)
}

/// Makes ops a loadable library. See `opsmith::library`.
#[proc_macro]
pub fn library(input: TokenStream) -> TokenStream {
    library::expand(&parse_macro_input!(input)).into()
}

/// Makes all ops in files a loadable library. See `opsmith::library_of`.
#[proc_macro]
pub fn library_of(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input);
    library_of::expand(&input).unwrap_or_else(|error| error.into_compile_error()).into()
}

/// Turns a dtype into a type. See `opsmith::dispatch`.
#[proc_macro]
pub fn dispatch(input: TokenStream) -> TokenStream {
    dispatch::expand(&parse_macro_input!(input)).into()
}

/// Registers a generic kernel for each of its dtypes. See `opsmith::kernels`.
#[proc_macro]
pub fn kernels(input: TokenStream) -> TokenStream {
    kernels::expand(&parse_macro_input!(input)).into()
}
