//! `#[body("(i,k),(j,k)->(i,j)")]`: the function computes with numbers that lie on named axes.

use std::collections::{BTreeMap, BTreeSet};

use opsmith_core::attr::AttrBase;
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::parse::{ParseStream, Parser};
use syn::visit_mut::{VisitMut, visit_expr_call_mut, visit_expr_method_call_mut, visit_pat_ident_mut};
use syn::{
    Error, Expr, ExprCall, ExprMethodCall, GenericParam, Ident, ItemFn, LitStr, PatIdent, Result, Token,
    Type, TypeParamBound,
};

use super::expand::{call, expand as expand_one_body};
use super::options::Options;
use super::parameter::{Number, Parameter, Role};
use super::{Family, OneBody, read};
use crate::op::attribute::Attribute;
use crate::op::check::parse_shapes;

const FAMILY: Family = Family {
    name: "body",
    bound: "Indexed",
    numbers: "`S`, the function's type parameter, or its positions `S::Index` or truth values `S::Mask`",
    number,
    has_parts: true,
    own_options: &[],
    output_names: &["z", "y", "output"],
};

/// The most axes; `Axis::MOST`.
const MOST_AXES: usize = 16;
/// The most parts of a dim; as many arguments hosts take.
const MOST_PARTS: usize = 64;
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
    let mut function: ItemFn = syn::parse2(item)
        .map_err(|error| Error::new(error.span(), format!("#[body] belongs on a function: {error}")))?;
    let axes = Axes::read(&signature)?;
    bound(&mut function);
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
    const MISSING: &str = "say which axes the arguments lie on: #[body(\"(i,k),(j,k)->(i,j)\")]";
    if input.is_empty() {
        return Err(Error::new(input.span(), MISSING));
    }
    let text: LitStr = input.parse().map_err(|error| Error::new(error.span(), MISSING))?;
    if !input.is_empty() {
        input.parse::<Token![,]>()?;
    }
    Ok((text, input.parse()?))
}

/// `S: Scalar` stands for `S: Indexed`, whose folds the function may use.
fn bound(function: &mut ItemFn) {
    for param in &mut function.sig.generics.params {
        let GenericParam::Type(param) = param else { continue };
        for bound in &mut param.bounds {
            if let TypeParamBound::Trait(path) = bound
                && path.path.is_ident("Scalar")
            {
                let place = path.path.segments[0].ident.span();
                path.path = syn::parse_quote_spanned!(place=> ::opsmith::Indexed);
            }
        }
    }
}

/// What the signature says.
struct Axes {
    names: Vec<String>,
    /// What each is as long as, where the signature says it: a number, or an attribute.
    sizes: Vec<Option<String>>,
    /// Of each dim the axes of its parts, mostly of one.
    inputs: Vec<Vec<Vec<usize>>>,
    outputs: Vec<Vec<usize>>,
}

impl Axes {
    fn read(text: &LitStr) -> Result<Axes> {
        let fault = |message: String| Error::new(text.span(), message);
        let value = text.value();
        let (value, said) = sized(&value).map_err(fault)?;
        // Its own parser says best what is wrong with a signature.
        parse_shapes(&LitStr::new(&value, text.span()))?;
        let (inputs, outputs) = value.split_once("->").unwrap_or((&value, ""));
        let mut names: Vec<String> = Vec::new();
        let mut side = |text: &str| -> Result<Vec<Vec<Vec<usize>>>> {
            let of = |dims: &str| {
                let dims = dims.split(',').map(str::trim).filter(|dim| !dim.is_empty() && *dim != "...");
                dims.map(|dim| sum(&mut names, dim).map_err(fault)).collect()
            };
            arguments(text).into_iter().map(of).collect()
        };
        let inputs = side(inputs)?;
        let outputs = side(outputs)?;
        let twice = |dims: &Vec<Vec<usize>>| {
            let is_before =
                |dim: usize, axis: &usize| dims[..dim].iter().flatten().any(|other| other == axis);
            let mut all =
                dims.iter().enumerate().flat_map(|(dim, parts)| parts.iter().map(move |axis| (dim, axis)));
            all.find(|(dim, axis)| is_before(*dim, axis)).map(|(_, axis)| *axis)
        };
        if let Some(axis) = inputs.iter().chain(&outputs).find_map(twice) {
            let name = &names[axis];
            return Err(fault(format!(
                "an argument has the axis `{name}` twice; give one of the dims a name of its own, of the same size where it stands alone: `other = {name}`"
            )));
        }
        let one = |dims: Vec<Vec<usize>>| {
            dims.into_iter().map(|parts| <[usize; 1]>::try_from(parts).map(|[axis]| axis)).collect()
        };
        let outputs: core::result::Result<Vec<Vec<usize>>, _> = outputs.into_iter().map(one).collect();
        let Ok(outputs) = outputs else {
            return Err(fault(
                "a dim of an output is one axis, and no sum: give each part as an output".to_owned(),
            ));
        };
        if let Some(name) = said.keys().find(|name| !names.contains(name)) {
            return Err(fault(format!(
                "`{name}` is no axis, and only an axis that is a whole dim is given a size"
            )));
        }
        if names.len() > MOST_AXES {
            return Err(fault(format!("a body has at most {MOST_AXES} axes; these are {}", names.len())));
        }
        let sizes: Vec<Option<String>> = names.iter().map(|name| said.get(name).cloned()).collect();
        for &axis in outputs.iter().flatten() {
            if sizes[axis].is_none() && !inputs.iter().flatten().flatten().any(|other| *other == axis) {
                let name = &names[axis];
                return Err(fault(format!(
                    "the axis `{name}` of an output is none of an input, and has no size: `{name} = 3`, or `{name} = attribute`"
                )));
            }
        }
        let mut parts = inputs.iter().flatten().filter(|parts| parts.len() > 1).flatten();
        let is_alone = |axis: usize| inputs.iter().flatten().any(|parts| *parts == [axis]);
        if let Some(axis) = parts.find(|axis| sizes[**axis].is_none() && !is_alone(**axis)) {
            return Err(fault(format!(
                "the axis `{0}` is only in sums of parts, which do not say its size: an input has to have it as a whole dim, or an output as `{0} = 3`",
                names[*axis]
            )));
        }
        Ok(Axes { names, sizes, inputs, outputs })
    }

    /// Whether there is a parenthesis for each argument, and an array of as many numbers as there are parts.
    fn check(&self, body: &OneBody, text: &LitStr) -> Result<()> {
        let counts = [
            ("inputs", body.inputs().count(), self.inputs.len()),
            ("outputs", body.outputs.len(), self.outputs.len()),
        ];
        match counts.into_iter().find(|(_, own, said)| own != said) {
            Some((what, own, said)) => {
                let what = if own == 1 { what.trim_end_matches('s') } else { what };
                let message = format!("the function has {own} {what}, and the signature {said}");
                return Err(Error::new(text.span(), message));
            }
            None => self.own_sizes(body).map_err(|message| Error::new(text.span(), message))?,
        };
        for (parameter, dims) in body.inputs().zip(&self.inputs) {
            let parts: Vec<usize> = dims.iter().map(Vec::len).filter(|count| *count != 1).collect();
            if parameter.parts != parts {
                let number = number_type(&parameter.ty);
                let wanted =
                    parts.iter().rev().fold(number, |element, count| format!("[{element}; {count}]"));
                let message = format!(
                    "`{}` has the dims ({}), so it is of type `{wanted}`",
                    parameter.name,
                    self.dims(dims).join(", ")
                );
                return Err(Error::new_spanned(&parameter.ty, message));
            }
        }
        Ok(())
    }

    /// The dims of an argument for a reader.
    fn dims(&self, dims: &[Vec<usize>]) -> Vec<String> {
        let term = |equal: &[usize]| match (equal.len(), &self.names[equal[0]]) {
            (1, name) => name.clone(),
            (count, name) => format!("{count} * {name}"),
        };
        let dim = |parts: &Vec<usize>| match (
            &parts[..],
            parts.first().and_then(|axis| self.sizes[*axis].as_ref()),
        ) {
            (&[axis], Some(size)) => format!("{} = {size}", self.names[axis]),
            _ => parts.chunk_by(|one, next| one == next).map(term).collect::<Vec<_>>().join(" + "),
        };
        dims.iter().map(dim).collect()
    }

    /// The shape of each argument for a reader, inputs first.
    fn shapes(&self) -> Vec<String> {
        let shape = |dims: &Vec<Vec<usize>>| {
            let dims = self.dims(dims).into_iter().map(|dim| format!(", {dim}"));
            format!("(...{})", dims.collect::<String>())
        };
        let outputs = self.outputs.iter().map(|axes| axes.iter().map(|axis| vec![*axis]).collect());
        let outputs: Vec<Vec<Vec<usize>>> = outputs.collect();
        self.inputs.iter().chain(&outputs).map(shape).collect()
    }

    /// Whether an axis is said to be as long as another.
    fn is_as_other(&self, axis: usize) -> bool {
        self.sizes[axis].as_ref().is_some_and(|size| self.names.contains(size))
    }

    /// The sizes as the kernel has them, and as the function is traced with them.
    fn own_sizes(
        &self,
        body: &OneBody,
    ) -> core::result::Result<(Vec<TokenStream>, Vec<TokenStream>), String> {
        let kind = quote!(::opsmith::__private::kernels::body::AxisSize);
        let size = |(name, size): (&String, &Option<String>)| {
            let Some(size) = size else {
                return Ok((quote!(#kind::Given), quote!(::core::option::Option::None)));
            };
            if let Ok(number) = size.parse::<usize>() {
                return Ok((quote!(#kind::Fixed(#number)), quote!(::core::option::Option::Some(#number))));
            }
            let is_it = |parameter: &&Parameter| {
                let is_int =
                    |attribute: &Attribute| attribute.def.ty.base == AttrBase::Int && !attribute.def.ty.list;
                parameter.name == *size && parameter.attribute().is_some_and(is_int)
            };
            let Some(parameter) = body.parameters.iter().find(is_it) else {
                let other = self.names.iter().position(|other| other == size && other != name);
                return match other.filter(|other| !self.is_as_other(*other)) {
                    Some(other) => Ok((quote!(#kind::Axis(#other)), quote!(::core::option::Option::None))),
                    None => Err(format!(
                        "the size of the axis `{name}` is a number, an int attribute of the function or another axis with a size, and `{size}` is \
                         none of these"
                    )),
                };
            };
            let field = &parameter.ident;
            let traced = quote!(::core::convert::TryInto::<usize>::try_into(self.#field).ok());
            Ok((quote!(#kind::Attr(#size)), traced))
        };
        let both =
            self.names.iter().zip(&self.sizes).map(size).collect::<core::result::Result<Vec<_>, _>>()?;
        Ok(both.into_iter().unzip())
    }
}

/// A signature without the sizes of axes, and these, by the axes' names.
fn sized(text: &str) -> core::result::Result<(String, BTreeMap<String, String>), String> {
    let (mut rest, mut plain, mut sizes) = (text, String::new(), BTreeMap::new());
    while let Some(equals) = rest.find('=') {
        let end = rest[equals..].find([',', ')']).map_or(rest.len(), |end| equals + end);
        let begin = rest[..equals].rfind([',', '(']).map_or(0, |begin| begin + 1);
        let (name, size) = (rest[begin..equals].trim(), rest[equals + 1..end].trim());
        plain += &rest[..equals];
        match sizes.insert(name.to_owned(), size.to_owned()) {
            Some(other) if other != size => {
                return Err(format!("the axis `{name}` has two sizes, {other} and {size}"));
            }
            _ => {}
        }
        rest = &rest[end..];
    }
    Ok((plain + rest, sizes))
}

/// What stands between the parentheses of each argument.
fn arguments(text: &str) -> Vec<&str> {
    let (mut all, mut depth, mut begin) = (Vec::new(), 0_usize, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => {
                depth += 1;
                begin = if depth == 1 { at + 1 } else { begin };
            }
            ')' => {
                depth = depth.saturating_sub(1);
                all.extend((depth == 0).then(|| &text[begin..at]));
            }
            _ => {}
        }
    }
    all
}

/// The axes of the parts of a dim: one, or those of a sum of axes and of numbers times axes.
fn sum(names: &mut Vec<String>, dim: &str) -> core::result::Result<Vec<usize>, String> {
    let mut parts = Vec::new();
    for term in dim.split('+').map(str::trim) {
        let (count, axis) = match term.split_once('*').map(|(one, other)| (one.trim(), other.trim())) {
            None => (1, term),
            Some((one, other)) => match (one.parse::<usize>(), other.parse::<usize>()) {
                (Ok(count), _) => (count, other),
                (_, Ok(count)) => (count, one),
                _ => {
                    return Err(format!(
                        "a dim of a body is a sum of axes and of numbers times axes: `{term}` is neither"
                    ));
                }
            },
        };
        if !(1..=MOST_PARTS).contains(&count) {
            return Err(format!("an argument has from 1 to {MOST_PARTS} parts: `{term}`"));
        }
        let axis = position(names, axis)?;
        parts.extend(std::iter::repeat_n(axis, count));
    }
    Ok(parts)
}

/// The type of the numbers in an array of them.
fn number_type(ty: &Type) -> String {
    match ty {
        Type::Array(array) => number_type(&array.elem),
        ty => quote!(#ty).to_string().replace(' ', ""),
    }
}

/// The position of an axis among the names.
fn position(names: &mut Vec<String>, dim: &str) -> core::result::Result<usize, String> {
    if syn::parse_str::<Ident>(dim).is_err() {
        return Err(format!("a dim of a body is an axis, which has a name: `{dim}` is none"));
    }
    Ok(names.iter().position(|name| name == dim).unwrap_or_else(|| {
        names.push(dim.to_owned());
        names.len() - 1
    }))
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
        let message = "positions and truth values have no gradient, so an op gives either them or numbers: write two functions";
        return Err(Error::new(place, message));
    }
    if let Some(orders) = options.orders.as_ref().filter(|orders| orders.base10_digits() != "0") {
        return Err(Error::new(orders.span(), "positions and truth values have no gradient"));
    }
    body.orders = 0;
    Ok(())
}

/// Puts the axis itself where its name stands as an argument of what takes one.
struct Named<'a> {
    axes: &'a [String],
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
        let is_position =
            |parameter: &&Parameter| number(&body.generic, &parameter.ty) == Some(Number::Index);
        let positions = body.parameters.iter().filter(is_position).map(|parameter| &parameter.ident);
        Named { axes: &axes.names, positions: positions.collect(), locals, fault: None }
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
                format!("`{ident}` is no axis of the signature; these are {}", self.axes.join(", "));
            self.refuse(Error::new(ident.span(), message));
        }
    }

    /// A number is taken from a position that is known before the op is called.
    fn check_at(&mut self, call: &ExprMethodCall) {
        let (Some(Expr::Path(axis)), Some(position)) = (call.args.first(), call.args.get(1)) else { return };
        let Some(ident) = name_of(position).filter(|ident| self.positions.contains(ident)) else { return };
        let axis = axis.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        let message = format!(
            "`at` takes a position that is the same for every call; of one that an input gives, write \
             `S::select(S::index({axis}).eq({ident}), x, S::of(0.0)).sum({axis})`"
        );
        self.refuse(Error::new(ident.span(), message));
    }

    fn refuse(&mut self, error: Error) {
        match &mut self.fault {
            Some(fault) => fault.combine(error),
            None => self.fault = Some(error),
        }
    }
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
        let is_one_of = |names: &[&str]| names.iter().any(|name| call.method == name);
        let axes = if is_one_of(&OF_TWO) { 2 } else { usize::from(is_one_of(&OF_NUMBERS)) };
        // Iterators have methods of these names, which take functions.
        let is_axis = !is_one_of(&["any", "all"]);
        for argument in call.args.iter_mut().take(axes) {
            self.replace(Some(argument), is_axis);
        }
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
