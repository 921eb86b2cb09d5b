//! `#[pointwise]`: the function is applied to every element.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Ident, Type};

use super::expand::{expand as expand_one_body, plain_body};
use super::parameter::Number;
use super::{Family, OneBody, read};

const FAMILY: Family = Family {
    name: "pointwise",
    bound: "Scalar",
    numbers: "`S`, the function's type parameter",
    number: plain_number,
    own_options: &[],
    settles: true,
    output_names: &["y", "z", "output"],
};

/// How many derivatives are computed at a time where there are more inputs.
const DERIVATIVES: usize = 8;

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
    let blocks = blocks(&body, &function.sig.ident);
    Ok(expand_one_body(&body, &function, "pointwise", &quote!(#plain #blocks)))
}

/// The compiled forms, whose sizes are known here.
fn blocks(body: &OneBody, ident: &Ident) -> TokenStream {
    let (inputs, outputs) = (body.inputs().count(), body.outputs.len());
    let (all, derivatives) = (inputs + outputs, inputs.min(DERIVATIVES));
    let gradient = if body.orders == 0 {
        quote!(::core::option::Option::None)
    } else {
        quote! {
            ::core::option::Option::Some(::std::boxed::Box::new(
                ::opsmith::__private::body::Compiled::<_, #all, #inputs>(
                    ::opsmith::__private::body::Gradient::<_, #inputs, #outputs, #derivatives>(self),
                ),
            ))
        }
    };
    quote! {
        impl ::opsmith::__private::kernels::pointwise::Pointwise for #ident {
            fn forward(self) -> ::std::boxed::Box<dyn ::opsmith::__private::body::Blocks> {
                ::std::boxed::Box::new(::opsmith::__private::body::Compiled::<_, #inputs, #outputs>(self))
            }

            fn gradient(
                self,
            ) -> ::core::option::Option<::std::boxed::Box<dyn ::opsmith::__private::body::Blocks>> {
                #gradient
            }

            fn trace(&self) -> ::opsmith::__private::body::Graph {
                ::opsmith::__private::body::trace(self)
            }
        }
    }
}
