//! `kernels!(ZeroOut<T> for T in Float)`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Ident, Token, Type};

use crate::dtypes::DTypeSet;

/// The parsed call: a kernel, and the dtypes of each of its type parameters.
pub(crate) struct Kernels {
    kernel: Type,
    parameters: Vec<(Ident, DTypeSet)>,
}

impl Parse for Kernels {
    fn parse(input: ParseStream<'_>) -> syn::Result<Kernels> {
        let kernel = input.parse()?;
        let mut parameters: Vec<(Ident, DTypeSet)> = Vec::new();
        input.parse::<Token![for]>()?;
        loop {
            let name: Ident = input.parse()?;
            if parameters.iter().any(|(other, _)| *other == name) {
                return Err(syn::Error::new(name.span(), format!("`{name}` is given twice")));
            }
            input.parse::<Token![in]>()?;
            parameters.push((name, input.parse()?));
            if input.is_empty() {
                return Ok(Kernels { kernel, parameters });
            }
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                return Ok(Kernels { kernel, parameters });
            }
        }
    }
}

/// One registration for each combination of dtypes, in which the names are aliases of the types.
pub(crate) fn expand(Kernels { kernel, parameters }: &Kernels) -> TokenStream {
    let names: Vec<&Ident> = parameters.iter().map(|(name, _)| name).collect();
    let labels = names.iter().map(|name| name.to_string());
    let row = quote! {
        ::opsmith::KernelDef::row::<#kernel>(
            &[#((#labels, <#names as ::opsmith::Element>::DTYPE)),*]
        )
    };
    let rows = parameters.iter().rev().fold(vec![row], |rows, (name, set)| {
        let typed = |rust_type: TokenStream| {
            rows.iter().map(|row| quote!({ type #name = #rust_type; #row })).collect::<Vec<TokenStream>>()
        };
        set.rust_types().flat_map(typed).collect()
    });
    quote!(::opsmith::__private::KernelRow::register(const { &[#(#rows),*] }))
}
