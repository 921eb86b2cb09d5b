//! Attributes that choose what a body computes: texts of a set, and bools. The body is compiled for each combination, so
//! that no loop over elements looks at them.

use opsmith_core::attr::AttrBase;
use proc_macro2::TokenStream;
use quote::quote;
use syn::Ident;

use super::model::OneBody;
use super::parameter::{Parameter, Role};

/// Of how many combinations a body is compiled at most; attributes that would make more are looked at in the loop.
const MOST: usize = 16;

/// `Body::settled` of a plain body, and what it needs beside the implementation; nothing where nothing is chosen.
pub(super) fn settled(body: &OneBody, function: &Ident) -> (TokenStream, TokenStream) {
    let choices = choices(body);
    if choices.is_empty() {
        return (quote!(), quote!());
    }
    let (inputs, outputs) = (body.inputs().count(), body.outputs.len());
    let total = choices.iter().map(|choice| choice.values.len()).product::<usize>();
    let fields: Vec<&Ident> = choices.iter().map(|choice| choice.field).collect();
    let combinations: Vec<Vec<&TokenStream>> = (0..total).map(|which| combination(&choices, which)).collect();
    let arms = combinations
        .iter()
        .enumerate()
        .map(|(which, values)| quote!((#(#values,)*) => then.call(&__Settled::<#which>(self))));
    let message = format!("a text of the body `{function}` is none of those that the attribute may be");
    let other = choices.iter().any(|choice| choice.is_text).then(|| quote!(_ => ::core::panic!(#message),));
    let columns = (0..choices.len()).map(|choice| combinations.iter().map(move |values| values[choice]));
    let assigned = fields
        .iter()
        .zip(columns)
        .map(|(field, column)| quote!(body.#field = const { [#(#column),*][WHICH] };));
    let method = quote! {
        #[inline(always)]
        fn settled<__W: ::opsmith::__private::body::WithBody<#inputs, #outputs>>(&self, then: __W) -> __W::Output {
            match (#(self.#fields,)*) {
                #(#arms,)*
                #other
            }
        }
    };
    let beside = quote! {
        /// The body with a combination of its choices as constants.
        struct __Settled<'a, const WHICH: usize>(&'a #function);

        impl<const WHICH: usize> ::opsmith::__private::body::Body<#inputs, #outputs> for __Settled<'_, WHICH> {
            #[inline(always)]
            fn eval<__S: ::opsmith::Scalar>(&self, inputs: [__S; #inputs]) -> [__S; #outputs] {
                let mut body = *self.0;
                #(#assigned)*
                ::opsmith::__private::body::Body::eval(&body, inputs)
            }
        }
    };
    (method, beside)
}

/// An attribute that has few values.
struct Choice<'a> {
    field: &'a Ident,
    values: Vec<TokenStream>,
    is_text: bool,
}

/// As many of the attributes that choose as there may be combinations, in order.
fn choices(body: &OneBody) -> Vec<Choice<'_>> {
    let mut total = 1;
    let all = body.parameters.iter().filter_map(choice);
    all.filter(|choice| {
        let fits = total * choice.values.len() <= MOST;
        total *= if fits { choice.values.len() } else { 1 };
        fits
    })
    .collect()
}

fn choice(parameter: &Parameter) -> Option<Choice<'_>> {
    let Role::Attr(attribute) = &parameter.role else { return None };
    let (values, is_text) = match attribute.choices() {
        Some(texts) => (texts.iter().map(|text| quote!(#text)).collect(), true),
        None if attribute.def.ty.base == AttrBase::Bool => (vec![quote!(false), quote!(true)], false),
        None => return None,
    };
    Some(Choice { field: &parameter.ident, values, is_text })
}

/// The values of combination `which`, of which the last attribute's change first.
fn combination<'a>(choices: &'a [Choice<'_>], which: usize) -> Vec<&'a TokenStream> {
    let mut rest = which;
    let mut values: Vec<&TokenStream> = choices
        .iter()
        .rev()
        .map(|choice| {
            let value = &choice.values[rest % choice.values.len()];
            rest /= choice.values.len();
            value
        })
        .collect();
    values.reverse();
    values
}
