//! `#[reduce]`: the function computes by rows, with folds.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Expr, Ident, Type};

use super::expand::{call, expand as expand_one_body};
use super::options::Options;
use super::parameter::{Number, Role};
use super::{Family, OneBody, read};

const FAMILY: Family = Family {
    name: "reduce",
    bound: "Rows",
    numbers: "`R::Each`, one for each position of a row, or `R::One`, one for each row, of the type parameter `R`",
    number: row_number,
    has_parts: false,
    own_options: &["axes"],
    output_names: &["y", "z", "output"],
};

/// `R::Each` or `R::One`, where `R` is the type parameter.
fn row_number(generic: &Ident, ty: &Type) -> Option<Number> {
    let Type::Path(path) = ty else { return None };
    let segments: Vec<&Ident> = path.path.segments.iter().map(|segment| &segment.ident).collect();
    match segments[..] {
        [first, second] if first == generic && second == "Each" => Some(Number::Each),
        [first, second] if first == generic && second == "One" => Some(Number::One),
        _ => None,
    }
}

/// The function, the op's marker type, and the definitions and kernels.
pub(crate) fn expand(options: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let (mut body, mut options, function) = read(&FAMILY, options, item)?;
    let any_axes = any_axes(options.take("axes"), &body)?;
    check(&body, &options, &function.sig.ident)?;
    let own: &[(&str, &str)] = match any_axes {
        true => &[
            ("axes", "The dims that are a row, negative ones from the end; all of them if it is empty."),
            ("keep_dims", "Whether the dims of a row stay, as dims of 1."),
        ],
        false => &[("axes", "How many of the last dims are a row.")],
    };
    for (name, text) in own {
        if body.doc.entries.iter().all(|(known, _)| known != name) {
            body.doc.entries.push(((*name).to_owned(), (*text).to_owned()));
        }
    }
    let reduction = reduction(&body, &function.sig.ident, any_axes);
    Ok(expand_one_body(&body, &function, "reduce", &reduction))
}

/// `axes = any`: any dims can be a row.
fn any_axes(option: Option<Expr>, body: &OneBody) -> syn::Result<bool> {
    let Some(expr) = option else { return Ok(false) };
    if !matches!(&expr, Expr::Path(path) if path.path.is_ident("any")) {
        let message =
            "`axes` can only be `any`: any dims can then be a row; without it a row is the last dims";
        return Err(syn::Error::new_spanned(expr, message));
    }
    // Broadcasting goes by the order of the dims, of which a row then has any.
    if body.inputs().count() != 1 {
        return Err(syn::Error::new_spanned(expr, "`axes = any` is for a function of one input"));
    }
    Ok(true)
}

fn check(body: &OneBody, options: &Options, function: &Ident) -> syn::Result<()> {
    const AXES: &str = "the op has an attribute `axes`, which selects the dims of a row; use another name";
    let mut inputs = body.inputs().map(|parameter| &parameter.role);
    if !inputs.any(|role| matches!(role, Role::Input(Number::Each))) {
        let message = "an op of #[reduce] has at least one input of type `R::Each`, which has the rows";
        return Err(syn::Error::new(function.span(), message));
    }
    for parameter in &body.parameters {
        let message = match (&parameter.role, parameter.name.as_str()) {
            (Role::NumberAttr(_), _) if row_number(&body.generic, &parameter.ty) == Some(Number::Each) => {
                "an attribute is one number: `R::One`, or a plain type"
            }
            (_, "axes") => AXES,
            _ => continue,
        };
        return Err(syn::Error::new(parameter.ident.span(), message));
    }
    match options.outputs.iter().flatten().find(|output| *output == "axes") {
        Some(output) => Err(syn::Error::new(output.span(), AXES)),
        None => Ok(()),
    }
}

/// How often each argument is there, and how the function is traced.
fn reduction(body: &OneBody, ident: &Ident, any_axes: bool) -> TokenStream {
    let kind = |number: Number| match number {
        Number::Each => quote!(::opsmith::__private::body::Axes::FIRST),
        Number::One | Number::Index | Number::Mask => quote!(::opsmith::__private::body::Axes::NONE),
    };
    let inputs: Vec<TokenStream> = body
        .inputs()
        .map(|parameter| match parameter.role {
            Role::Input(number) => kind(number),
            _ => kind(Number::Each),
        })
        .collect();
    let outputs: Vec<TokenStream> = body.outputs.iter().map(|output| kind(output.number)).collect();
    let input_names = body.inputs().map(|parameter| &parameter.name);
    let output_names = body.outputs.iter().map(|output| &output.name);
    let places = 0..inputs.len();
    let numbers: Vec<TokenStream> = places.map(|place| quote!(numbers[#place])).collect();
    let traced = quote!(::opsmith::__private::body::Traced);
    let call = call(body, ident, &traced, &quote!(::opsmith::__private::body::Expr), &numbers);
    quote! {
        impl ::opsmith::__private::kernels::reduce::Reduction for #ident {
            const ANY_AXES: bool = #any_axes;
            const INPUT_AXES: &'static [::opsmith::__private::body::Axes] = &[#(#inputs),*];
            const OUTPUT_AXES: &'static [::opsmith::__private::body::Axes] = &[#(#outputs),*];

            fn trace(&self) -> ::opsmith::__private::body::Graph {
                ::opsmith::__private::body::trace_rows(
                    &[#((#input_names, #inputs)),*],
                    &[#((#output_names, #outputs)),*],
                    |numbers| ::std::vec::Vec::from(#call),
                )
            }
        }
    }
}
