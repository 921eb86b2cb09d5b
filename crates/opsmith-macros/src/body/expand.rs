//! From the model of a one-body function to code: what is the same for all families.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::{Attribute, Ident, ItemFn};

use super::model::{OneBody, ResultKind};
use super::parameter::{Number, Role};
use crate::dtypes::rust_type;
use crate::op::attribute::arguments;
use crate::op::options::Policy;

/// The function; the op's marker type, whose fields are the attributes, so that it is the body as well; what the family
/// adds for it; and the definitions of the op and its gradients, by `kernels::<module>::def`.
pub(crate) fn expand(body: &OneBody, function: &ItemFn, module: &str, family: &TokenStream) -> TokenStream {
    let cfgs: Vec<&Attribute> = function.attrs.iter().filter(|attr| attr.path().is_ident("cfg")).collect();
    let inline = (!function.attrs.iter().any(|attr| attr.path().is_ident("inline")))
        .then(|| quote!(#[inline(always)]));
    let ident = &function.sig.ident;
    let marker = marker(body, function);
    let one_body = one_body(body, ident);
    let module = format_ident!("{module}");
    let def = quote!(::opsmith::__private::kernels::#module::def);
    let orders = 1..=body.orders;
    let autocast = body.autocast.map(Policy::declaration);
    let arguments = arguments(
        &body.name,
        body.inputs().map(|parameter| &parameter.name),
        body.outputs.iter().map(|output| &output.name),
        &body.attrs().cloned().collect::<Vec<_>>(),
        |_| false,
    );
    quote! {
        #[allow(clippy::too_many_arguments)]
        #inline
        #function

        #(#cfgs)*
        #marker

        #(#cfgs)*
        const _: () = {
            #one_body
            #family

            impl ::opsmith::OpDefinition for #ident {
                const COMPANIONS: &'static [fn() -> ::opsmith::OpDef] = &[#(#def::<#ident, #orders>),*];

                #arguments

                fn def() -> ::opsmith::OpDef {
                    #def::<#ident, 0>()#autocast
                }
            }
        };
    }
}

/// A type of the function's name, with braces so that the name as a value stays the function's.
fn marker(body: &OneBody, function: &ItemFn) -> TokenStream {
    let (vis, ident) = (&function.vis, &function.sig.ident);
    let doc = format!(
        " The op `{}`: the function [`{ident}`](fn@{ident}) for every framework, and a body for `Compute::map`.",
        body.name
    );
    let fields = body.parameters.iter().filter_map(|parameter| {
        let attribute = parameter.attribute()?;
        let kept = attribute.choices().map_or_else(|| attribute.kept.clone(), |_| quote!(&'static str));
        let (field, name) = (&parameter.ident, &parameter.name);
        let doc = match parameter.doc.trim() {
            "" => format!(" The attribute `{name}`."),
            doc => format!(" {doc}"),
        };
        Some(quote!(#[doc = #doc] #vis #field: #kept))
    });
    quote! {
        #[doc = #doc]
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        #vis struct #ident {
            #(#fields,)*
        }
    }
}

/// The facts of the body, and how it is made from an instance's attributes.
fn one_body(body: &OneBody, ident: &Ident) -> TokenStream {
    let read = body.parameters.iter().filter_map(|parameter| {
        let attribute = parameter.attribute()?;
        let (field, name, kept) = (&parameter.ident, &parameter.name, &attribute.kept);
        Some(match attribute.choices() {
            Some(texts) => {
                quote!(#field: ::opsmith::__private::kernels::choice(construction, #name, &[#(#texts),*])?)
            }
            None => quote!(#field: construction.attr::<#kept>(#name)?),
        })
    });
    let (name, doc, orders) = (&body.name, body.doc_text(), body.orders);
    let kinds = |numbers: Vec<Number>| -> Vec<TokenStream> {
        let kinds = numbers.into_iter().map(|number| format_ident!("{}", number.kind()));
        kinds.map(|kind| quote!(::opsmith::__private::body::Kind::#kind)).collect()
    };
    let input_kinds = kinds(body.input_numbers().collect());
    let output_kinds = kinds(body.outputs.iter().map(|output| output.number).collect());
    let attrs = body.attrs().map(ToString::to_string);
    let inputs = body.inputs().map(|parameter| &parameter.name);
    let outputs = body.outputs.iter().map(|output| &output.name);
    let parts = body.inputs().map(|parameter| parameter.parts.iter().product::<usize>());
    let types = body.dtypes.iter().filter_map(|dtype| rust_type(*dtype));
    quote! {
        impl ::opsmith::__private::kernels::OneBody for #ident {
            const FACTS: ::opsmith::__private::kernels::Facts = ::opsmith::__private::kernels::Facts {
                name: #name,
                place: ::core::concat!(::core::file!(), ":", ::core::line!()),
                doc: #doc,
                attrs: &[#(#attrs),*],
                inputs: &[#(#inputs),*],
                outputs: &[#(#outputs),*],
                dtypes: &[#(<#types as ::opsmith::Element>::DTYPE),*],
                orders: #orders,
                input_kinds: &[#(#input_kinds),*],
                output_kinds: &[#(#output_kinds),*],
                parts: &[#(#parts),*],
            };

            fn new(construction: &::opsmith::OpKernelConstruction<'_>) -> ::opsmith::Result<Self> {
                let _ = construction;
                ::core::result::Result::Ok(#ident { #(#read,)* })
            }
        }
    }
}

/// The body as an `opsmith_body::Body`: for functions whose inputs are plain numbers.
pub(crate) fn plain_body(body: &OneBody, function: &Ident) -> TokenStream {
    let (inputs, outputs) = (body.inputs().count(), body.outputs.len());
    let numbers: Vec<Ident> = (0..inputs).map(|position| format_ident!("input{position}")).collect();
    let number = quote!(__S);
    let call = call(body, function, &number, &number, &numbers);
    let checks = body.parameters.iter().filter_map(|parameter| {
        let texts = parameter.attribute()?.choices()?;
        let (field, message) = (
            &parameter.ident,
            format!("a text of the body `{function}` is none of those that the attribute may be"),
        );
        Some(quote!(::core::assert!([#(#texts),*].contains(&self.#field), #message);))
    });
    quote! {
        impl ::opsmith::__private::body::Body<#inputs, #outputs> for #function {
            #[inline(always)]
            fn eval<__S: ::opsmith::Scalar>(&self, [#(#numbers),*]: [__S; #inputs]) -> [__S; #outputs] {
                #(#checks)*
                #call
            }
        }
    }
}

/// A call of the function, with a type argument and what attributes become, whose value is an array of the outputs.
pub(crate) fn call(
    body: &OneBody,
    function: &Ident,
    generic: &TokenStream,
    number: &TokenStream,
    inputs: &[impl ToTokens],
) -> TokenStream {
    let mut inputs = inputs.iter();
    let arguments = body.parameters.iter().map(|parameter| {
        let (ident, name) = (&parameter.ident, &parameter.name);
        match &parameter.role {
            Role::Input(_) => {
                let input = inputs.next();
                quote!(#input)
            }
            Role::NumberAttr(_) => quote!(<#number as ::opsmith::Scalar>::attr(#name, self.#ident)),
            Role::Attr(_) => quote!(self.#ident),
        }
    });
    let call = quote!(#function::<#generic>(#(#arguments),*));
    match body.result {
        ResultKind::One => quote!([#call]),
        ResultKind::Array => call,
        ResultKind::Tuple => {
            let outputs: Vec<Ident> =
                (0..body.outputs.len()).map(|position| format_ident!("output{position}")).collect();
            quote!({
                let (#(#outputs,)*) = #call;
                [#(#outputs),*]
            })
        }
    }
}
