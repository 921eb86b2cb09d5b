//! `#[pairwise]`: the function is applied to the elements of every pair of rows, and its values are folded.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, Expr, Ident, Result};

use super::expand::{expand as expand_one_body, plain_body};
use super::pointwise::plain_number;
use super::{Family, OneBody, Parameter, Role, read};

const FAMILY: Family = Family {
    name: "pairwise",
    bound: "Scalar",
    numbers: "`S`, the function's type parameter",
    number: plain_number,
    has_parts: false,
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
    let finish = Finish::new(options.take("finish"), &body)?;
    let finish = finish.body(&body, ident);
    let plain = plain_body(&body, ident);
    let names: Vec<&String> = body.inputs().map(|parameter| &parameter.name).collect();
    let (x, y, output) = (names[0], names[1], &body.outputs[0].name);
    let (private, given) =
        (quote!(::opsmith::__private), quote!(::opsmith::__private::kernels::body::AxisSize::Given));
    let family = quote! {
        #plain

        impl #private::kernels::body::AxesBody for #ident {
            const AXES: &'static [&'static str] = &["n", "p", "m"];
            const INPUTS: &'static [&'static [&'static [usize]]] = &[&[&[0], &[1]], &[&[2], &[1]]];
            const OUTPUTS: &'static [&'static [usize]] = &[&[0, 2]];
            const SIZES: &'static [#private::kernels::body::AxisSize] = &[#given, #given, #given];
            const SPREADS: bool = true;

            fn trace(&self) -> #private::body::Graph {
                let fold = (#private::body::Fold::#fold, #mean);
                let finish = #finish;
                #private::body::trace_pairs(["n", "p", "m"], [#x, #y, #output], fold, self, finish)
            }
        }
    };
    Ok(expand_one_body(&body, &function, "body", &family))
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
        _ => Err(Error::new_spanned(expr, "`fold` must be sum, mean, max or min")),
    }
}

/// What is made of a fold: a function, called with the fold and attributes.
struct Finish {
    function: Option<Expr>,
    attributes: Vec<Ident>,
}

impl Finish {
    /// `finish = root`, or `finish = root(p)` with attributes.
    fn new(option: Option<Expr>, body: &OneBody) -> Result<Finish> {
        let (function, arguments) = match option {
            Some(Expr::Call(call)) => (Some(*call.func), call.args.into_iter().collect()),
            other => (other, Vec::new()),
        };
        // It is called with numbers of every kind, so a closure, which has one, will not do.
        if let Some(function) = function.as_ref().filter(|function| !matches!(function, Expr::Path(_))) {
            let message = "`finish` names a generic function of one number: `Scalar::sqrt`, or one like \
                           `fn root<S: Scalar>(z: S) -> S`; with attributes of the op, `finish = root(p)` for \
                           `fn root<S: Scalar>(z: S, p: S) -> S`";
            return Err(Error::new_spanned(function, message));
        }
        let attribute = |argument: &Expr| {
            let is_it = |parameter: &&Parameter| {
                let ident = match argument {
                    Expr::Path(path) => path.path.get_ident(),
                    _ => None,
                };
                ident.is_some_and(|ident| *ident == parameter.ident || ident == &parameter.name)
            };
            let found = body.parameters.iter().filter(|own| own.attribute().is_some()).find(is_it);
            found.map(|parameter| parameter.ident.clone()).ok_or_else(|| {
                let message =
                    "`finish` is called with the fold, and with attributes of the function by their names";
                Error::new_spanned(argument, message)
            })
        };
        let attributes = arguments.iter().map(attribute).collect::<Result<_>>()?;
        Ok(Finish { function, attributes })
    }

    /// What is made of a fold, as a closure.
    fn body(&self, body: &OneBody, ident: &Ident) -> TokenStream {
        let Some(function) = &self.function else { return quote!(|fold| fold) };
        let arguments = self.attributes.iter().map(|own| {
            let parameter = body.parameters.iter().find(|parameter| parameter.ident == *own);
            match parameter.map(|parameter| (&parameter.role, &parameter.name)) {
                Some((Role::NumberAttr(_), name)) => {
                    quote!(<__S as ::opsmith::Scalar>::attr(#name, body.#own))
                }
                _ => quote!(body.#own),
            }
        });
        let call = quote_spanned!(function.span()=> (#function)(fold #(, #arguments)*));
        quote! {{
            fn finish<__S: ::opsmith::Scalar>(#[allow(unused_variables)] body: &#ident, fold: __S) -> __S {
                #call
            }
            |fold| finish(self, fold)
        }}
    }
}
