//! What stands for an op whose macro has found a mistake, so that the mistake is the only message: without the op, rustc
//! would go on with every place that names it.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, FnArg, ItemFn};

/// The error, and the op's type. Not the function, whose signature may be what is wrong.
pub(crate) fn failed(error: &syn::Error, item: TokenStream) -> TokenStream {
    let error = error.to_compile_error();
    let Ok(function) = syn::parse2::<ItemFn>(item) else { return error };
    if function.sig.inputs.iter().any(|argument| matches!(argument, FnArg::Receiver(_))) {
        // Where a method is, there can be no type.
        return error;
    }
    let (vis, ident) = (&function.vis, &function.sig.ident);
    let cfgs: Vec<&Attribute> = function.attrs.iter().filter(|attr| attr.path().is_ident("cfg")).collect();
    quote! {
        #error

        #(#cfgs)*
        #[allow(non_camel_case_types, dead_code, missing_docs)]
        #vis struct #ident {}

        #(#cfgs)*
        impl ::opsmith::OpDefinition for #ident {
            fn def() -> ::opsmith::OpDef {
                ::core::unimplemented!()
            }
        }
    }
}
