//! Calls of shapes that have been seen before: the function, without a look at them.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::Ident;
use syn::spanned::Spanned;

use super::kernel::{call, passed, view_types};
use super::model::Op;
use super::parameter::{Role, Tensor};

/// The methods of the kernel that settle calls and compute settled ones; none for ops with lists, with outputs whose shapes are found, or with state.
pub(super) fn methods(op: &Op, function: &Ident) -> Option<TokenStream> {
    let is_plain = |tensor: &Tensor| tensor.list.is_none() && !tensor.found;
    let all = || op.parameters.iter().filter_map(|parameter| parameter.tensor());
    if op.stateful || all().next().is_none() || !all().all(is_plain) {
        return None;
    }
    // Names that the author's own do not meet.
    let [compute, tensors] = ["compute", "tensors"].map(|name| Ident::new(name, Span::mixed_site()));
    let (mut inputs, mut outputs) = (0usize.., 0usize..);
    let mut locals = Vec::new();
    let mut arguments = Vec::new();
    for (position, parameter) in op.parameters.iter().enumerate() {
        let local = format_ident!("argument{position}", span = Span::mixed_site());
        let (place, index) = match &parameter.role {
            Role::Compute => {
                arguments.push(quote!(#compute));
                continue;
            }
            Role::Attr(attribute) => {
                arguments.push(passed(&parameter.ident, attribute));
                continue;
            }
            Role::Input(_) => (parameter.ty.span(), inputs.next().unwrap_or_default()),
            Role::Output(_) => (parameter.ty.span(), outputs.next().unwrap_or_default()),
        };
        let Some(tensor) = parameter.tensor() else { continue };
        let (element, dim) = view_types(tensor);
        let value = match (&parameter.role, tensor.optional) {
            (Role::Input(_), false) => quote_spanned!(place=> #tensors.view::<#element, #dim>(#index)?),
            (Role::Input(_), true) => {
                quote_spanned!(place=> #tensors.optional_view::<#element, #dim>(#index)?)
            }
            (_, false) => quote_spanned!(place=> #tensors.output_view::<#element, #dim>(#index)?),
            (_, true) => quote_spanned! {place=>
                match #tensors.output_wanted(#index) {
                    true => ::core::option::Option::Some(#tensors.output_view::<#element, #dim>(#index)?),
                    false => ::core::option::Option::None,
                }
            },
        };
        locals.push(quote!(let #local = #value;));
        arguments.push(quote_spanned!(place=> #local));
    }
    let call = call(op, function, &arguments);
    Some(quote! {
        fn settle(
            &self,
            context: &::opsmith::OpKernelContext<'_>,
        ) -> ::core::option::Option<::opsmith::__private::Settled> {
            ::core::option::Option::Some(context.settled())
        }

        fn compute_settled(
            &self,
            #compute: &::opsmith::Compute<'_>,
            #tensors: &::opsmith::__private::SettledTensors<'_>,
        ) -> ::opsmith::Result<()> {
            #(#locals)*
            #call
            ::core::result::Result::Ok(())
        }
    })
}
