//! `#[pointwise]`: the function is applied to every element.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Ident, Type};

use super::expand::{expand as expand_one_body, plain_body};
use super::parameter::Number;
use super::{Family, read};

const FAMILY: Family = Family {
    name: "pointwise",
    bound: "Scalar",
    numbers: "`S`, the function's type parameter",
    number: plain_number,
    has_parts: false,
    own_options: &[],
    output_names: &["y", "z", "output"],
};

/// `S`, where `S` is the type parameter.
pub(crate) fn plain_number(generic: &Ident, ty: &Type) -> Option<Number> {
    match ty {
        Type::Path(path) if path.path.is_ident(generic) => Some(Number::Each),
        _ => None,
    }
}

/// The function, the op's marker type, and the definitions and kernels.
pub(crate) fn expand(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let (body, _, function) = read(&FAMILY, options, item)?;
    let plain = plain_body(&body, &function.sig.ident);
    let ident = &function.sig.ident;
    let trace = quote! {
        impl ::opsmith::__private::kernels::pointwise::Pointwise for #ident {
            fn trace(&self) -> ::opsmith::__private::body::Graph {
                ::opsmith::__private::body::trace(self)
            }
        }
    };
    Ok(expand_one_body(&body, &function, "pointwise", &quote!(#plain #trace)))
}
