//! `dispatch!(dtype, Float, |T| body)`.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Expr, Ident, Token};

use crate::dtypes::DTypeSet;

/// The parsed call.
pub(crate) struct Dispatch {
    dtype: Expr,
    set: DTypeSet,
    name: Ident,
    body: Expr,
}

impl Parse for Dispatch {
    fn parse(input: ParseStream<'_>) -> syn::Result<Dispatch> {
        let dtype = input.parse()?;
        input.parse::<Token![,]>()?;
        let set = input.parse()?;
        input.parse::<Token![,]>()?;
        input.parse::<Token![|]>()?;
        let name = input.parse()?;
        input.parse::<Token![|]>()?;
        let body = input.parse()?;
        input.parse::<Option<Token![,]>>()?;
        if !input.is_empty() {
            return Err(input.error("expected the end after the body"));
        }
        Ok(Dispatch { dtype, set, name, body })
    }
}

/// One arm for each dtype, in which the name is an alias of its type.
pub(crate) fn expand(Dispatch { dtype, set, name, body }: &Dispatch) -> TokenStream {
    let types: Vec<TokenStream> = set.rust_types().collect();
    // Not to be confused with a variable of the same name in the body.
    let found = Ident::new("found", Span::mixed_site());
    quote! {{
        let #found: ::opsmith::DType = #dtype;
        #(if #found == <#types as ::opsmith::Element>::DTYPE {
            type #name = #types;
            #body
        } else)* {
            ::core::result::Result::Err(::opsmith::__private::no_dispatch(
                #found,
                &[#(<#types as ::opsmith::Element>::DTYPE),*],
            ))
        }
    }}
}
