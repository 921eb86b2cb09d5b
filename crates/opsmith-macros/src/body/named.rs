//! `#[body("(i,k),(j,k)->(i,j)")]`: the function computes with numbers that lie on named axes.

use std::collections::BTreeSet;
use std::fmt::Display;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::parse::{ParseStream, Parser};
use syn::visit_mut::{
    VisitMut, visit_expr_call_mut, visit_expr_index_mut, visit_expr_method_call_mut, visit_pat_ident_mut,
};
use syn::{
    Error, Expr, ExprCall, ExprIndex, ExprMethodCall, Ident, ItemFn, LitStr, PatIdent, Result, Token, Type,
};

use super::axes::Axes;
use super::expand::{call, expand as expand_one_body};
use super::options::Options;
use super::parameter::{Number, Parameter, Role};
use super::{Family, OneBody, read};

const FAMILY: Family = Family {
    name: "body",
    bound: "Indexed",
    numbers: "`S`, the function's type parameter, or its positions `S::Index` or truth values `S::Mask`",
    number,
    has_parts: true,
    own_options: &[],
    output_names: &["z", "y", "output"],
};

/// The methods that take an axis.
const OF_NUMBERS: [&str; 12] =
    ["sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "log_sum_exp", "count", "any", "all", "at"];
/// Those that take two.
const OF_TWO: [&str; 2] = ["smallest", "largest"];
/// The functions of the type parameter that do.
const OF_THE_TYPE: [&str; 2] = ["index", "count"];

/// `S`, `S::Index` or `S::Mask`, where `S` is the type parameter.
fn number(generic: &Ident, ty: &Type) -> Option<Number> {
    let Type::Path(path) = ty else { return None };
    let segments: Vec<&Ident> = path.path.segments.iter().map(|segment| &segment.ident).collect();
    match segments[..] {
        [only] if only == generic => Some(Number::Each),
        [first, second] if first == generic && second == "Index" => Some(Number::Index),
        [first, second] if first == generic && second == "Mask" => Some(Number::Mask),
        _ => None,
    }
}

/// The function, the op's marker type, and the definitions and kernels.
pub(crate) fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let (signature, options) = signature.parse2(options)?;
    let function: ItemFn = syn::parse2(item).map_err(|error| {
        Error::new(
            error.span(),
            format!("#[body] is for a function, and this cannot be read as one: {error}"),
        )
    })?;
    let axes = Axes::read(&signature)?;
    let (mut body, options, mut function) = read(&FAMILY, options, quote!(#function))?;
    axes.check(&body, &signature)?;
    check(&mut body, &options, &function)?;
    Named::new(&axes, &body, &function).replace_all(&mut function)?;
    lend(&body, &axes, &mut function);
    body.show_shapes(&axes.shapes());
    let family = axes_body(&body, &axes, &function.sig.ident);
    Ok(expand_one_body(&body, &function, "body", &family))
}

/// The text of the signature, and the options after it.
fn signature(input: ParseStream<'_>) -> Result<(LitStr, TokenStream)> {
    const MISSING: &str = "name the axes of the arguments: #[body(\"(i,k),(j,k)->(i,j)\")]";
    if input.is_empty() {
        return Err(Error::new(input.span(), MISSING));
    }
    let text: LitStr = input.parse().map_err(|error| Error::new(error.span(), MISSING))?;
    if !input.is_empty() {
        input.parse::<Token![,]>()?;
    }
    Ok((text, input.parse()?))
}

/// Positions and truth values are not differentiated, and are in an op of their own. The dtype of an op is that of its numbers.
fn check(body: &mut OneBody, options: &Options, function: &ItemFn) -> Result<()> {
    let place = function.sig.ident.span();
    let is_number = |number: Number| number == Number::Each;
    for parameter in &body.parameters {
        if matches!(parameter.role, Role::NumberAttr(_))
            && number(&body.generic, &parameter.ty).is_some_and(|number| !is_number(number))
        {
            let message = "an attribute is a number, `S`, or of a plain type such as i64 or bool";
            return Err(Error::new(parameter.ident.span(), message));
        }
    }
    if !body.input_numbers().any(is_number) {
        let message = "an op of #[body] has at least one input of type `S`, whose dtype it has";
        return Err(Error::new(place, message));
    }
    let others = body.outputs.iter().filter(|output| !is_number(output.number)).count();
    if others == 0 {
        return Ok(());
    }
    if others < body.outputs.len() {
        let message = "positions and masks have no gradient, so an op cannot return them beside numbers: write \
            two functions";
        return Err(Error::new(place, message));
    }
    if body.outputs.iter().any(|output| output.number != body.outputs[0].number) {
        let message = "the results of an op are all positions or all masks: write two functions";
        return Err(Error::new(place, message));
    }
    if let Some(orders) = options.orders.as_ref().filter(|orders| orders.base10_digits() != "0") {
        return Err(Error::new(orders.span(), "positions and masks have no gradient"));
    }
    body.orders = 0;
    Ok(())
}

/// Puts the axis itself where its name stands as an argument of what takes one.
struct Named<'a> {
    axes: &'a [String],
    /// The inputs that are one number each.
    numbers: Vec<&'a Ident>,
    /// The inputs that are positions.
    positions: Vec<&'a Ident>,
    /// The names that the function gives to values, which may be axes.
    locals: Locals,
    fault: Option<Error>,
}

/// Names of values, wherever a pattern gives them.
#[derive(Default)]
struct Locals(BTreeSet<String>);

impl VisitMut for Locals {
    fn visit_pat_ident_mut(&mut self, pattern: &mut PatIdent) {
        self.0.insert(pattern.ident.to_string());
        visit_pat_ident_mut(self, pattern);
    }
}

impl<'a> Named<'a> {
    fn new(axes: &'a Axes, body: &'a OneBody, function: &ItemFn) -> Self {
        let mut locals = Locals::default();
        locals.visit_item_fn_mut(&mut function.clone());
        let inputs = |kind: Number| {
            let is_it = move |parameter: &&Parameter| number(&body.generic, &parameter.ty) == Some(kind);
            body.parameters.iter().filter(is_it).map(|parameter| &parameter.ident).collect()
        };
        let mut bound = Locals::default();
        bound.visit_block_mut(&mut function.block.clone());
        let (mut numbers, positions): (Vec<&Ident>, _) = (inputs(Number::Each), inputs(Number::Index));
        // A name that is given again may be an array's.
        numbers.retain(|ident| !bound.0.contains(&ident.to_string()));
        Named { axes: &axes.names, numbers, positions, locals, fault: None }
    }

    fn replace_all(mut self, function: &mut ItemFn) -> Result<()> {
        self.visit_block_mut(&mut function.block);
        self.fault.map_or(Ok(()), Err)
    }

    /// Replaces an argument that is the name of an axis. Another name is one of a value, if `is_axis` says that it can be nothing else.
    fn replace(&mut self, argument: Option<&mut Expr>, is_axis: bool) {
        let Some(argument) = argument else { return };
        let Some(ident) = name_of(argument) else { return };
        let is_value = |name: &str| self.locals.0.contains(name) || name.starts_with(char::is_uppercase);
        if let Some(position) = self.axes.iter().position(|name| ident == name) {
            let place = ident.span();
            *argument = syn::parse_quote_spanned!(place=> ::opsmith::Axis::new(#position));
        } else if is_axis && !is_value(&ident.to_string()) {
            let message =
                format!("`{ident}` is not an axis of the signature, which has {}", self.axes.join(", "));
            self.refuse(Error::new(ident.span(), message));
        }
    }

    /// A number is taken from a position that is known before the op is called.
    fn check_at(&mut self, call: &ExprMethodCall) {
        let (Some(Expr::Path(axis)), Some(position)) = (call.args.first(), call.args.get(1)) else { return };
        let Some(ident) = name_of(position).filter(|ident| self.positions.contains(ident)) else { return };
        let axis = axis.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        let message = format!(
            "`at` takes a constant position; for one that an input gives, write {}",
            taken("x", &axis, ident)
        );
        self.refuse(Error::new(ident.span(), message));
    }

    /// A fold is along one axis, and the largest along one is no larger of two numbers.
    fn check_fold(&mut self, call: &ExprMethodCall) {
        let is_axis = |ident: &&Ident| {
            let name = ident.to_string();
            self.axes.contains(&name) && !self.locals.0.contains(&name)
        };
        let axes: Vec<&Ident> = call.args.iter().filter_map(name_of).filter(is_axis).collect();
        let method = call.method.to_string();
        let message = match (method.as_str(), &axes[..]) {
            ("max" | "min", [axis]) if call.args.len() == 1 => {
                format!("`{method}` takes another number; along an axis write `a{method}({axis})`")
            }
            (name, [_, _, ..])
                if name != "at" && OF_NUMBERS.contains(&method.as_str()) && axes.len() == call.args.len() =>
            {
                let each: String = axes.iter().map(|axis| format!(".{method}({axis})")).collect();
                format!("`{method}` takes one axis; for several write `{each}`")
            }
            _ => return,
        };
        self.refuse(Error::new(call.method.span(), message));
    }

    /// Nothing is taken from a number by an index.
    fn check_index(&mut self, index: &ExprIndex) {
        let Some(number) = name_of(&index.expr).filter(|ident| self.numbers.contains(ident)) else { return };
        let at = name_of(&index.index).map_or("at".to_owned(), Ident::to_string);
        let message = format!(
            "`{number}` is one number here, not an array; for the one at a position `{at}` along an axis `k`, write {}",
            taken(number, "k", &at)
        );
        self.refuse(Error::new(number.span(), message));
    }

    fn refuse(&mut self, error: Error) {
        match &mut self.fault {
            Some(fault) => fault.combine(error),
            None => self.fault = Some(error),
        }
    }
}

/// How the number at a position is written.
fn taken(number: impl Display, axis: &str, position: impl Display) -> String {
    format!("`S::select(S::index({axis}).eq({position}), {number}, S::of(0.0)).sum({axis})`")
}

/// The name that an expression is, if it is no more.
fn name_of(expression: &Expr) -> Option<&Ident> {
    match expression {
        Expr::Path(path) => path.path.get_ident(),
        _ => None,
    }
}

impl VisitMut for Named<'_> {
    fn visit_expr_method_call_mut(&mut self, call: &mut ExprMethodCall) {
        visit_expr_method_call_mut(self, call);
        if call.method == "at" {
            self.check_at(call);
        }
        self.check_fold(call);
        let is_one_of = |names: &[&str]| names.iter().any(|name| call.method == name);
        let axes = if is_one_of(&OF_TWO) { 2 } else { usize::from(is_one_of(&OF_NUMBERS)) };
        // Iterators have methods of these names, which take functions.
        let is_axis = !is_one_of(&["any", "all"]);
        for argument in call.args.iter_mut().take(axes) {
            self.replace(Some(argument), is_axis);
        }
    }

    fn visit_expr_index_mut(&mut self, index: &mut ExprIndex) {
        visit_expr_index_mut(self, index);
        self.check_index(index);
    }

    fn visit_expr_call_mut(&mut self, call: &mut ExprCall) {
        visit_expr_call_mut(self, call);
        let Expr::Path(path) = &*call.func else { return };
        let last = path.path.segments.last().map(|segment| segment.ident.to_string());
        match last.as_deref() {
            Some(name) if path.path.segments.len() > 1 && OF_THE_TYPE.contains(&name) => {
                self.replace(call.args.first_mut(), true);
            }
            _ => {}
        }
    }
}

/// Lets functions that take an axis be called with its name, where that is no argument's. An attribute that is a size is used.
fn lend(body: &OneBody, axes: &Axes, function: &mut ItemFn) {
    let is_size = |parameter: &&Parameter| axes.sizes.iter().flatten().any(|size| *size == parameter.name);
    let used = body.parameters.iter().filter(is_size).map(|parameter| &parameter.ident);
    let used: Vec<syn::Stmt> = used.map(|ident| syn::parse_quote!(let _ = &#ident;)).collect();
    let free =
        axes.names.iter().enumerate().filter(|(_, name)| body.parameters.iter().all(|own| own.ident != name));
    let lent: Vec<syn::Stmt> = free
        .map(|(position, name)| {
            let ident = Ident::new(name, function.sig.ident.span());
            syn::parse_quote!(#[allow(unused_variables, non_snake_case)] let #ident = ::opsmith::Axis::new(#position);)
        })
        .collect();
    function.block.stmts.splice(0..0, used.into_iter().chain(lent));
}

/// The name and the axes of each part of an argument.
fn parts(name: &str, dims: &[Vec<usize>]) -> Vec<(String, TokenStream)> {
    let all = dims.iter().fold(vec![(name.to_owned(), Vec::new())], |all, parts| {
        let of = |(name, axes): &(String, Vec<usize>)| {
            let part = |(place, axis): (usize, &usize)| {
                let name = if parts.len() == 1 { name.clone() } else { format!("{name}[{place}]") };
                (name, [&axes[..], &[*axis]].concat())
            };
            parts.iter().enumerate().map(part).collect::<Vec<_>>()
        };
        all.iter().flat_map(of).collect()
    });
    all.into_iter().map(|(name, axes)| (name, quote!(&[#(#axes),*]))).collect()
}

/// Nested arrays of these lengths, of what is given one after another.
fn array(lengths: &[usize], next: &mut impl FnMut() -> TokenStream) -> TokenStream {
    let Some((length, inner)) = lengths.split_first() else { return next() };
    let elements: Vec<TokenStream> = (0..*length).map(|_| array(inner, next)).collect();
    quote!([#(#elements),*])
}

/// The axes of each argument, and how the function is traced.
fn axes_body(body: &OneBody, axes: &Axes, ident: &Ident) -> TokenStream {
    let names = &axes.names;
    let dims = |dims: &Vec<Vec<usize>>| quote!(&[#(&[#(#dims),*]),*]);
    let inputs: Vec<TokenStream> = axes.inputs.iter().map(dims).collect();
    let outputs: Vec<TokenStream> = axes.outputs.iter().map(|axes| quote!(&[#(#axes),*])).collect();
    let named = body.inputs().zip(&axes.inputs);
    let (part_names, part_axes): (Vec<String>, Vec<TokenStream>) =
        named.flat_map(|(parameter, dims)| parts(&parameter.name, dims)).unzip();
    let output_names = body.outputs.iter().map(|output| &output.name);
    let private = quote!(::opsmith::__private::body);
    let mut place = 0_usize;
    let numbers = body.inputs().zip(body.input_numbers()).map(|(parameter, number)| {
        array(&parameter.parts, &mut || {
            let here = place;
            place += 1;
            match number {
                Number::Index => quote!(#private::IndexExpr::new(numbers[#here])),
                Number::Mask => quote!(#private::MaskExpr::new(numbers[#here])),
                Number::Each | Number::One => quote!(numbers[#here]),
            }
        })
    });
    let numbers: Vec<TokenStream> = numbers.collect();
    let expr = quote!(#private::Expr);
    let call = call(body, ident, &expr, &expr, &numbers);
    let given: Vec<Ident> = (0..body.outputs.len()).map(|output| format_ident!("__output{output}")).collect();
    let results = given.iter().zip(&body.outputs).map(|(given, output)| match output.number {
        Number::Index => quote!(::opsmith::Index::number(#given)),
        Number::Mask => quote!(#given.number()),
        Number::Each | Number::One => quote!(#given),
    });
    let result = quote!({
        let [#(#given),*] = #call;
        ::std::vec::Vec::from([#(#results),*])
    });
    let at = format_ident!("__at");
    let (sizes, traced_sizes) = axes.own_sizes(body).unwrap_or_default();
    quote! {
        impl ::opsmith::__private::kernels::body::AxesBody for #ident {
            const AXES: &'static [&'static str] = &[#(#names),*];
            const INPUTS: &'static [&'static [&'static [usize]]] = &[#(#inputs),*];
            const OUTPUTS: &'static [&'static [usize]] = &[#(#outputs),*];
            const SIZES: &'static [::opsmith::__private::kernels::body::AxisSize] = &[#(#sizes),*];

            fn trace(&self) -> ::opsmith::__private::body::Graph {
                let #at = ::opsmith::__private::body::Axes::at;
                ::opsmith::__private::body::trace_sized(
                    Self::AXES,
                    &[#(#traced_sizes),*],
                    &[#((#part_names, #at(#part_axes))),*],
                    &[#((#output_names, #at(#outputs))),*],
                    |numbers| #result,
                )
            }
        }
    }
}
