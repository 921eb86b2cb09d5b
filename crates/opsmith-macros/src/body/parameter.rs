//! Parameters and results of a one-body function.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::{Expr, FnArg, Ident, Lit, ReturnType, Type};

use super::Family;
use crate::op::attribute::{Attribute, Passing};
use crate::op::parameter::Written;

/// Which numbers a tensor argument has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Number {
    /// One for each element.
    Each,
    /// One for each row, in a reduction.
    One,
    /// A position along an axis, in a body over axes.
    Index,
    /// A truth value, in a body over axes.
    Mask,
}

impl Number {
    /// The variant of `Kind`.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Each | Self::One => "Number",
            Self::Index => "Index",
            Self::Mask => "Mask",
        }
    }

    /// The dtype in the definition language.
    pub(crate) fn dtype(self) -> &'static str {
        match self {
            Self::Each | Self::One => "T",
            Self::Index => "int64",
            Self::Mask => "bool",
        }
    }
}

/// A parameter of the function.
#[derive(Debug)]
pub(crate) struct Parameter {
    /// Its name in the op: the parameter's, less underscores in front.
    pub(crate) name: String,
    pub(crate) ident: Ident,
    pub(crate) ty: Type,
    pub(crate) doc: String,
    pub(crate) role: Role,
    /// The lengths of the array of numbers that it is, the outermost first; none of a number.
    pub(crate) parts: Vec<usize>,
}

/// What a parameter stands for.
#[derive(Debug)]
pub(crate) enum Role {
    /// An input of the op.
    Input(Number),
    /// A float attribute that is a number in the body: a named parameter in formulas and CUDA source.
    NumberAttr(Attribute),
    /// An attribute of a plain type: a constant of an instance.
    Attr(Attribute),
}

impl Parameter {
    /// Reads a parameter, and takes away those of its attributes that are for the macro.
    pub(crate) fn new(family: &Family, generic: &Ident, argument: &mut FnArg) -> syn::Result<Parameter> {
        let Written { marks, ident, name, ty } = Written::new(argument)?;
        if let Some(saved) = marks.saved {
            return Err(syn::Error::new_spanned(saved, "#[saved] is for outputs of #[op]"));
        }
        if let Some(host) = marks.host {
            return Err(syn::Error::new_spanned(host, "#[host] is for inputs of #[op]"));
        }
        let (parts, element) = arrays(&ty);
        let number = (family.number)(generic, element).filter(|_| parts.is_empty() || family.has_parts);
        let role = match (number, marks.attr) {
            (Some(number), None) => Role::Input(number),
            (Some(_), Some(_)) if !parts.is_empty() => {
                return Err(syn::Error::new_spanned(&ty, "an attribute is one number, not an array"));
            }
            (Some(_), Some(meta)) => {
                let float: Type = syn::parse_quote_spanned!(ty.span()=> f64);
                Role::NumberAttr(Attribute::new(&name, &float, &meta)?)
            }
            (None, Some(meta)) => Role::Attr(plain(Attribute::new(&name, &ty, &meta)?, &ty)?),
            (None, None) => {
                let is_of_bodies = matches!(&ty, Type::Path(path)
                    if path.path.segments.last().is_some_and(|last| last.ident == "Mask" || last.ident == "Index"));
                let is_float =
                    matches!(&ty, Type::Path(path) if path.path.is_ident("f64") || path.path.is_ident("f32"));
                let hint = match (is_of_bodies, is_float) {
                    (true, _) => "masks and positions are inputs of #[body(…)]".to_owned(),
                    (_, true) => {
                        let one = if family.name == "reduce" { "::One" } else { "" };
                        format!(
                            "for a number that is fixed for the call, write `#[attr] {name}: {generic}{one}`"
                        )
                    }
                    _ => "for what is not a tensor, write #[attr] before the parameter".to_owned(),
                };
                let message = format!("an input of #[{}] is of type {}; {hint}", family.name, family.numbers);
                return Err(syn::Error::new_spanned(&ty, message));
            }
        };
        let parts = if number.is_some() { parts } else { Vec::new() };
        Ok(Parameter { name, ident, ty, doc: marks.doc, role, parts })
    }

    /// The attribute, if it is one.
    pub(crate) fn attribute(&self) -> Option<&Attribute> {
        match &self.role {
            Role::Input(_) => None,
            Role::NumberAttr(attribute) | Role::Attr(attribute) => Some(attribute),
        }
    }
}

/// The lengths of nested arrays, the outermost first, and what their elements are.
fn arrays(ty: &Type) -> (Vec<usize>, &Type) {
    let (mut lengths, mut element) = (Vec::new(), ty);
    while let Type::Array(array) = element
        && let Some(length) = length(&array.len)
    {
        lengths.push(length);
        element = &array.elem;
    }
    (lengths, element)
}

/// The length of an array that is written as a number, at least 1.
fn length(length: &Expr) -> Option<usize> {
    match length {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(length) => length.base10_parse::<usize>().ok().filter(|&length| length > 0),
            _ => None,
        },
        _ => None,
    }
}

/// Text is one of a set; other text, and lists, are no attributes of a body.
fn plain(attribute: Attribute, ty: &Type) -> syn::Result<Attribute> {
    let is_text = matches!(ty, Type::Reference(_)) && !attribute.def.ty.list;
    if attribute.passing == Passing::Copy || (is_text && attribute.choices().is_some()) {
        return Ok(attribute);
    }
    let message = match is_text {
        true => "a string attribute of a body needs the set of its values: #[attr(one_of = [\"a\", \"b\"])]",
        false => {
            "an attribute of a body is a number, a bool or one of several strings: i64, i32, u64, u32, usize, \
             f64, f32, bool or, with `one_of`, &str"
        }
    };
    Err(syn::Error::new_spanned(ty, message))
}

/// The numbers that the function returns: one, or a tuple or array of them.
pub(crate) fn results(
    family: &Family,
    generic: &Ident,
    output: &ReturnType,
    function: Span,
) -> syn::Result<Vec<Number>> {
    let message = format!(
        "a function of #[{}] returns {}, or a tuple or an array of them: its outputs",
        family.name, family.numbers
    );
    let ReturnType::Type(_, ty) = output else { return Err(syn::Error::new(function, message)) };
    let number =
        |ty: &Type| (family.number)(generic, ty).ok_or_else(|| syn::Error::new_spanned(ty, message.clone()));
    match &**ty {
        Type::Tuple(tuple) if !tuple.elems.is_empty() => tuple.elems.iter().map(number).collect(),
        Type::Array(array) => {
            let element = number(&array.elem)?;
            let length = length(&array.len).ok_or_else(|| {
                syn::Error::new_spanned(
                    &array.len,
                    "the number of outputs must be written as a number, at least 1",
                )
            })?;
            Ok(vec![element; length])
        }
        one => Ok(vec![number(one)?]),
    }
}
