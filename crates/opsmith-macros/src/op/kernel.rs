//! What the kernels of an op have in common, on every device.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Ident, ItemFn};

use super::attribute::{Attribute, Passing};
use super::model::Op;
use super::parameter::{Element, Role, Tensor};
use crate::dtypes::rust_type;

/// A type that implements `OpKernel`: the attributes, `body` for a call, and further methods. `bound` is one more on the dtypes.
pub(super) fn kernel_type(
    op: &Op,
    function: &ItemFn,
    name: &str,
    bound: Option<TokenStream>,
    body: &TokenStream,
    more: Option<TokenStream>,
) -> TokenStream {
    let kernel = format_ident!("{name}");
    let (impl_generics, type_generics, where_clause) = function.sig.generics.split_for_impl();
    let predicates = where_clause.map(|clause| &clause.predicates).into_iter().flatten();
    let params: Vec<&Ident> = op.type_params.iter().map(|param| &param.name).collect();
    let attrs: Vec<_> = op
        .parameters
        .iter()
        .filter_map(|parameter| match &parameter.role {
            Role::Attr(attribute) => Some((&parameter.ident, &parameter.name, &attribute.kept)),
            _ => None,
        })
        .collect();
    let fields = attrs.iter().map(|(ident, _, kept)| quote!(#ident: #kept));
    let read = attrs.iter().map(|(ident, name, kept)| quote!(#ident: construction.attr::<#kept>(#name)?));
    quote! {
        struct #kernel #type_generics {
            #(#fields,)*
            __types: ::core::marker::PhantomData<fn() -> (#(#params,)*)>,
        }

        impl #impl_generics ::opsmith::OpKernel for #kernel #type_generics
        where
            #(#predicates,)*
            #(#params: ::opsmith::Element #bound,)*
        {
            fn new(construction: &mut ::opsmith::OpKernelConstruction<'_>) -> ::opsmith::Result<Self> {
                let _ = &construction;
                ::core::result::Result::Ok(#kernel { #(#read,)* __types: ::core::marker::PhantomData })
            }

            fn compute(&self, context: &mut ::opsmith::OpKernelContext<'_>) -> ::opsmith::Result<()> {
                #body
            }

            #more
        }
    }
}

/// The kept value of an attribute, as it is passed to functions.
pub(super) fn passed(field: &Ident, attribute: &Attribute) -> TokenStream {
    match attribute.passing {
        Passing::Copy => quote!(self.#field),
        Passing::Clone => quote!(::core::clone::Clone::clone(&self.#field)),
        Passing::Borrow => quote!(&self.#field),
    }
}

/// The call of the function, whose error ends the kernel.
pub(super) fn call(op: &Op, function: &Ident, arguments: &[TokenStream]) -> TokenStream {
    let params = op.type_params.iter().map(|param| &param.name);
    let call = quote!(#function::<#(#params),*>(#(#arguments),*));
    match &op.result {
        Some(ty) => {
            let result = quote_spanned!(ty.span()=> result);
            quote! {
                let #result: #ty = #call;
                let outcome: ::opsmith::Result<()> = #result;
                outcome?;
            }
        }
        None => quote!(#call;),
    }
}

/// The types of a view's elements and dims.
pub(super) fn view_types(tensor: &Tensor) -> (TokenStream, TokenStream) {
    let element = match &tensor.element {
        Element::Param(param) => quote!(#param),
        Element::Fixed(dtype) => rust_type(*dtype).unwrap_or_default(),
    };
    let dim = match tensor.rank {
        Some(rank) => format_ident!("Ix{rank}"),
        None => format_ident!("IxDyn"),
    };
    (element, quote!(::opsmith::ndarray::#dim))
}
