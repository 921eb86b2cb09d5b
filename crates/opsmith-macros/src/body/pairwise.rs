//! `#[pairwise]`: the function is applied to the elements of every pair of rows, and its values are folded.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, Expr, Ident, Result};

use super::expand::{expand as expand_one_body, plain_body};
use super::pointwise::plain_number;
use super::{Family, OneBody, read};

const FAMILY: Family = Family {
    name: "pairwise",
    bound: "Scalar",
    numbers: "`S`, the function's type parameter",
    number: plain_number,
    own_options: &["fold", "finish"],
    output_names: &["z", "y", "output"],
};

/// The function, the op's marker type, and the definitions and kernels.
pub(crate) fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let (mut body, mut options, function) = read(&FAMILY, options, item)?;
    let ident = &function.sig.ident;
    check(&body, ident)?;
    body.show_shapes(&["(..., n, p)", "(..., m, p)", "(..., n, m)"].map(str::to_owned));
    let (fold, mean) = fold(options.take("fold"))?;
    let (finish, finish_type) = finish(options.take("finish"))?;
    let plain = plain_body(&body, ident);
    let names: Vec<&String> = body.inputs().map(|parameter| &parameter.name).collect();
    let (x, y, output) = (names[0], names[1], &body.outputs[0].name);
    let (private, given) =
        (quote!(::opsmith::__private), quote!(::opsmith::__private::kernels::body::AxisSize::Given));
    let family = quote! {
        #plain
        #finish

        impl #private::kernels::body::AxesBody for #ident {
            const AXES: &'static [&'static str] = &["n", "p", "m"];
            const INPUTS: &'static [&'static [usize]] = &[&[0, 1], &[2, 1]];
            const OUTPUTS: &'static [&'static [usize]] = &[&[0, 2]];
            const SIZES: &'static [#private::kernels::body::AxisSize] = &[#given, #given, #given];

            fn trace(&self) -> #private::body::Graph {
                let finish = <#finish_type as ::core::default::Default>::default();
                let fold = (#private::body::Fold::#fold, #mean);
                #private::body::trace_pairs(["n", "p", "m"], [#x, #y, #output], fold, self, &finish)
            }
        }

        impl #private::kernels::pairwise::Pairwise for #ident {
            const FOLD: #private::body::Fold = #private::body::Fold::#fold;
            const MEAN: bool = #mean;
            type Finish = #finish_type;
        }
    };
    Ok(expand_one_body(&body, &function, "pairwise", &family))
}

fn check(body: &OneBody, ident: &Ident) -> Result<()> {
    let inputs = body.inputs().count();
    if inputs != 2 {
        let message = format!(
            "a function of #[pairwise] has two inputs, an element of a row of each matrix; this one has {inputs}"
        );
        return Err(Error::new(ident.span(), message));
    }
    match body.outputs.len() {
        1 => Ok(()),
        count => {
            let message = format!(
                "a function of #[pairwise] gives one number, which is folded over a pair of rows; this one gives {count}"
            );
            Err(Error::new(ident.span(), message))
        }
    }
}

/// The variant of `Fold`, and whether the sum is divided by the number of terms.
fn fold(option: Option<Expr>) -> Result<(TokenStream, bool)> {
    let Some(expr) = option else { return Ok((quote!(Sum), false)) };
    let name = match &expr {
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
        _ => None,
    };
    match name.as_deref() {
        Some("sum") => Ok((quote!(Sum), false)),
        Some("mean") => Ok((quote!(Sum), true)),
        Some("max") => Ok((quote!(Max), false)),
        Some("min") => Ok((quote!(Min), false)),
        _ => Err(Error::new_spanned(expr, "a fold is sum, mean, max or min")),
    }
}

/// The body that is made of the function of a fold, and its type.
fn finish(option: Option<Expr>) -> Result<(TokenStream, TokenStream)> {
    let Some(function) = option else {
        return Ok((quote!(), quote!(::opsmith::__private::kernels::pairwise::Same)));
    };
    // It is called with numbers of every kind, so a closure, which has one, will not do.
    if !matches!(function, Expr::Path(_)) {
        let message = "`finish` names a generic function of one number: `Scalar::sqrt`, or one like \
                       `fn root<S: Scalar>(z: S) -> S`";
        return Err(Error::new_spanned(function, message));
    }
    let call = quote_spanned!(function.span()=> (#function)(fold));
    let body = quote! {
        #[doc(hidden)]
        #[derive(Clone, Copy, Debug, Default)]
        pub struct __Finish;

        impl ::opsmith::__private::body::Body<1, 1> for __Finish {
            #[inline(always)]
            fn eval<__S: ::opsmith::Scalar>(&self, [fold]: [__S; 1]) -> [__S; 1] {
                [#call]
            }
        }
    };
    Ok((body, quote!(__Finish)))
}
