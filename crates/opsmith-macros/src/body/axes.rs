//! What the signature of a `#[body]` says: the axes of each argument, their sizes, and the parts of dims.

use std::collections::BTreeMap;

use opsmith_core::attr::AttrBase;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Ident, LitStr, Result, Type};

use super::OneBody;
use super::parameter::Parameter;
use crate::op::attribute::Attribute;
use crate::op::check::parse_shapes;

/// The most axes; `Axis::MOST`.
const MOST_AXES: usize = 16;
/// The most parts of a dim; as many arguments frameworks take.
const MOST_PARTS: usize = 64;

/// What the signature says.
pub(super) struct Axes {
    pub(super) names: Vec<String>,
    /// What each is as long as, where the signature says it: a number, or an attribute.
    pub(super) sizes: Vec<Option<String>>,
    /// Of each dim the axes of its parts, mostly of one.
    pub(super) inputs: Vec<Vec<Vec<usize>>>,
    pub(super) outputs: Vec<Vec<usize>>,
}

impl Axes {
    pub(super) fn read(text: &LitStr) -> Result<Axes> {
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
        if let Some(axis) = inputs.iter().chain(&outputs).find_map(|dims| twice(dims)) {
            let name = &names[axis];
            return Err(fault(format!(
                "an argument cannot have the axis `{name}` twice; give one of the dims another name and, if it \
                 is a whole dim, the same size: `other = {name}`"
            )));
        }
        let one = |dims: Vec<Vec<usize>>| {
            dims.into_iter().map(|parts| <[usize; 1]>::try_from(parts).map(|[axis]| axis)).collect()
        };
        let outputs: core::result::Result<Vec<Vec<usize>>, _> = outputs.into_iter().map(one).collect();
        let Ok(outputs) = outputs else {
            return Err(fault(
                "a dim of an output must be one axis, not a sum: make each part an output".to_owned(),
            ));
        };
        if let Some(name) = said.keys().find(|name| !names.contains(name)) {
            return Err(fault(format!(
                "`{name}` is not an axis; only an axis that is a whole dim can have a size"
            )));
        }
        if names.len() > MOST_AXES {
            return Err(fault(format!("a body has at most {MOST_AXES} axes; these are {}", names.len())));
        }
        let sizes: Vec<Option<String>> = names.iter().map(|name| said.get(name).cloned()).collect();
        let axes = Axes { names, sizes, inputs, outputs };
        axes.unsized_axis().map_or(Ok(()), |message| Err(fault(message)))?;
        Ok(axes)
    }

    /// What is wrong if an axis has no size.
    fn unsized_axis(&self) -> Option<String> {
        let Axes { names, sizes, inputs, outputs } = self;
        let is_in_none = |axis: usize| !inputs.iter().flatten().flatten().any(|other| *other == axis);
        if let Some(&axis) =
            outputs.iter().flatten().find(|axis| sizes[**axis].is_none() && is_in_none(**axis))
        {
            let name = &names[axis];
            return Some(format!(
                "no input has the axis `{name}` of this output, so it needs a size: `{name} = 3`, or `{name} = \
                 attribute`"
            ));
        }
        let mut parts = inputs.iter().flatten().filter(|parts| parts.len() > 1).flatten();
        let is_given =
            |axis: usize| inputs.iter().flatten().any(|parts| parts.iter().all(|part| *part == axis));
        parts.find(|axis| sizes[**axis].is_none() && !is_given(**axis)).map(|axis| {
            format!(
                "the axis `{0}` occurs only in sums with other axes, which do not give its size: an input must have \
                 it or a multiple of it as a whole dim, or an output as `{0} = 3` or `{0} = attribute`",
                names[*axis]
            )
        })
    }

    /// Whether there is a parenthesis for each argument, and an array of as many numbers as there are parts.
    pub(super) fn check(&self, body: &OneBody, text: &LitStr) -> Result<()> {
        let counts = [
            ("inputs", body.inputs().count(), self.inputs.len()),
            ("outputs", body.outputs.len(), self.outputs.len()),
        ];
        match counts.into_iter().find(|(_, own, said)| own != said) {
            Some((what, own, said)) => {
                let what = if own == 1 { what.trim_end_matches('s') } else { what };
                let message = format!(
                    "the function has {own} {what}, but the signature has {said}; attributes do not count"
                );
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
    pub(super) fn shapes(&self) -> Vec<String> {
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
    pub(super) fn own_sizes(
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
                        "the size of the axis `{name}` must be a number, an int attribute of the function or \
                         another axis with a size, not `{size}`"
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
                        "a dim of a body must be a sum of axes and of multiples of axes: `{term}` is neither"
                    ));
                }
            },
        };
        if !(1..=MOST_PARTS).contains(&count) {
            return Err(format!("an argument can have 1 to {MOST_PARTS} parts: `{term}`"));
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
        return Err(format!("a dim of a body must be an axis with a name, not `{dim}`"));
    }
    Ok(names.iter().position(|name| name == dim).unwrap_or_else(|| {
        names.push(dim.to_owned());
        names.len() - 1
    }))
}

/// An axis that an argument of these dims has twice.
fn twice(dims: &[Vec<usize>]) -> Option<usize> {
    let is_before = |dim: usize, axis: &usize| dims[..dim].iter().flatten().any(|other| other == axis);
    let mut all = dims.iter().enumerate().flat_map(|(dim, parts)| parts.iter().map(move |axis| (dim, axis)));
    all.find(|(dim, axis)| is_before(*dim, axis)).map(|(_, axis)| *axis)
}
