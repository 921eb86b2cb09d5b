//! Parameters with `#[attr(…)]`: their types, constraints and defaults.

use std::ops::Bound;

use opsmith_core::attr::{AttrBase, AttrType, AttrValue};
use opsmith_core::def::{Allowed, AttrDef};
use opsmith_core::{DType, SignatureBuilder};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Expr, Ident, Meta, Token, Type};

use super::generics::{last_segment, type_arguments};
use super::options::unknown;
use super::value;

/// The options of `#[attr(…)]`, as messages list them; the author's guide has a table of them.
pub(super) const OPTIONS: [&str; 7] = ["default", "min", "above", "max", "below", "min_len", "one_of"];

/// An attribute of the op.
#[derive(Debug)]
pub(crate) struct Attribute {
    /// Its definition, which is known to be well formed.
    pub(crate) def: AttrDef,
    /// The type in which the kernel keeps it.
    pub(crate) kept: TokenStream,
    pub(crate) passing: Passing,
}

/// How the kept value is passed to the function.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Passing {
    Copy,
    Clone,
    Borrow,
}

impl Attribute {
    /// The attribute that a parameter of this name and type with this `#[attr(…)]` stands for.
    pub(crate) fn new(name: &str, ty: &Type, meta: &Meta) -> syn::Result<Attribute> {
        let RustType { ty, unsigned, kept, passing } = rust_type(ty)?;
        let options = match meta {
            Meta::Path(_) => AttrOptions::default(),
            _ => meta.require_list()?.parse_args()?,
        };
        let mut def = AttrDef {
            name: name.to_owned(),
            ty,
            allowed: options.allowed(ty)?,
            min: bound(&options.min, &options.above, ty)?,
            max: bound(&options.max, &options.below, ty)?,
            min_len: options.min_len(ty)?,
            default: None,
            inferred: false,
            doc: String::new(),
        };
        if unsigned && def.min == Bound::Unbounded && def.allowed.is_none() {
            def.min = Bound::Included(AttrValue::Int(0));
        }
        checked(&def, meta)?;
        if let Some(default) = &options.default {
            def.default = Some(value::of(default, ty)?);
            checked(&def, default)?;
        }
        Ok(Attribute { def, kept, passing })
    }

    /// The texts that it may be, if it is one text of a set.
    pub(crate) fn choices(&self) -> Option<&[String]> {
        match &self.def.allowed {
            Some(Allowed::Strings(texts)) if !self.def.ty.list => Some(texts),
            _ => None,
        }
    }
}

/// Checks the definition by itself, as the library will, and points at `place` if it is not well formed.
fn checked(def: &AttrDef, place: impl ToTokens) -> syn::Result<()> {
    let alone = SignatureBuilder::new("Op").attr(def.to_string()).build();
    alone
        .map(|_| ())
        .map_err(|error| syn::Error::new_spanned(place, error.text().lines().next().unwrap_or_default()))
}

/// What the type of a parameter says of an attribute.
struct RustType {
    ty: AttrType,
    unsigned: bool,
    kept: TokenStream,
    passing: Passing,
}

fn rust_type(ty: &Type) -> syn::Result<RustType> {
    let known = match ty {
        Type::Reference(reference) => match &*reference.elem {
            Type::Slice(slice) => scalar(&slice.elem).map(|element| list(element, Passing::Borrow)),
            text => last_segment(text)
                .filter(|last| last.ident == "str")
                .and_then(|_| scalar(&syn::parse_quote!(String)))
                .map(|text| RustType { passing: Passing::Borrow, ..text }),
        },
        _ => match last_segment(ty) {
            Some(last) if last.ident == "Vec" => {
                type_arguments(last).next().and_then(scalar).map(|element| list(element, Passing::Clone))
            }
            _ => scalar(ty),
        },
    };
    known.ok_or_else(|| {
        let message = "an attribute's type is i64, i32, u64, u32, usize, f64, f32, bool, String, &str or DType, or \
                       a list as Vec<T> or &[T] of i64, usize, f64, f32, bool, String or DType";
        syn::Error::new_spanned(ty, message)
    })
}

fn scalar(ty: &Type) -> Option<RustType> {
    let name = last_segment(ty)?.ident.to_string();
    let (base, unsigned) = match name.as_str() {
        "i64" | "i32" => (AttrBase::Int, false),
        "u64" | "u32" | "usize" => (AttrBase::Int, true),
        "f64" | "f32" => (AttrBase::Float, false),
        "bool" => (AttrBase::Bool, false),
        "String" => (AttrBase::String, false),
        "DType" => (AttrBase::Type, false),
        _ => return None,
    };
    let ident = Ident::new(&name, Span::call_site());
    let (kept, passing) = match base {
        AttrBase::String => (quote!(::std::string::String), Passing::Clone),
        AttrBase::Type => (quote!(::opsmith::DType), Passing::Copy),
        _ => (quote!(::core::primitive::#ident), Passing::Copy),
    };
    Some(RustType { ty: AttrType { base, list: false }, unsigned, kept, passing })
}

fn list(element: RustType, passing: Passing) -> RustType {
    let kept = element.kept;
    let ty = AttrType { list: true, ..element.ty };
    RustType { ty, unsigned: false, kept: quote!(::std::vec::Vec<#kept>), passing }
}

/// What `min` and `above` say, or `max` and `below`: the first includes the number, the second does not.
fn bound(included: &Option<Expr>, excluded: &Option<Expr>, ty: AttrType) -> syn::Result<Bound<AttrValue>> {
    let (expr, is_excluded) = match (included, excluded) {
        (None, None) => return Ok(Bound::Unbounded),
        (Some(_), Some(excluded)) => {
            let message = "an attribute has `min` or `above`, and `max` or `below`, not both";
            return Err(syn::Error::new_spanned(excluded, message));
        }
        (Some(included), None) => (included, false),
        (None, Some(excluded)) => (excluded, true),
    };
    let fault = match (ty.list, ty.base) {
        (false, AttrBase::Float) => None,
        (false, AttrBase::Int) if !is_excluded => None,
        (false, AttrBase::Int) => {
            Some("`above` and `below` bound floats; an int has `min` and `max`".to_owned())
        }
        _ => Some(format!("`min`, `above`, `max` and `below` bound numbers; this attribute is of type {ty}")),
    };
    if let Some(message) = fault {
        return Err(syn::Error::new_spanned(expr, message));
    }
    let end = value::of(expr, ty)?;
    Ok(if is_excluded { Bound::Excluded(end) } else { Bound::Included(end) })
}

/// The options of `#[attr(…)]`.
#[derive(Default)]
struct AttrOptions {
    default: Option<Expr>,
    min: Option<Expr>,
    above: Option<Expr>,
    max: Option<Expr>,
    below: Option<Expr>,
    min_len: Option<Expr>,
    one_of: Option<Expr>,
}

impl Parse for AttrOptions {
    fn parse(input: ParseStream<'_>) -> syn::Result<AttrOptions> {
        let mut options = AttrOptions::default();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            let slot = match key.to_string().as_str() {
                "default" => &mut options.default,
                "min" => &mut options.min,
                "above" => &mut options.above,
                "max" => &mut options.max,
                "below" => &mut options.below,
                "min_len" => &mut options.min_len,
                "one_of" => &mut options.one_of,
                _ => return Err(unknown(&key, "attr", &OPTIONS)),
            };
            input.parse::<Token![=]>()?;
            if slot.replace(input.parse()?).is_some() {
                return Err(syn::Error::new(key.span(), format!("the option `{key}` is given twice")));
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

impl AttrOptions {
    fn min_len(&self, ty: AttrType) -> syn::Result<Option<usize>> {
        let Some(expr) = &self.min_len else { return Ok(None) };
        if !ty.list {
            let message = format!("`min_len` is for lists; this attribute is of type {ty}");
            return Err(syn::Error::new_spanned(expr, message));
        }
        let length = value::int(expr)?;
        usize::try_from(length).map(Some).map_err(|_| syn::Error::new_spanned(expr, "a length is at least 0"))
    }

    fn allowed(&self, ty: AttrType) -> syn::Result<Option<Allowed>> {
        let Some(expr) = &self.one_of else { return Ok(None) };
        let members = value::of(expr, AttrType { list: true, ..ty })?;
        let allowed = match members {
            AttrValue::Ints(ints) => Allowed::Ints(ints),
            AttrValue::Strings(texts) => Allowed::Strings(texts.iter().map(ToString::to_string).collect()),
            AttrValue::Types(dtypes) => Allowed::Types(dtypes),
            _ => {
                let message = format!("`one_of` is for int, string and type; this attribute is of type {ty}");
                return Err(syn::Error::new_spanned(expr, message));
            }
        };
        let none = match &allowed {
            Allowed::Ints(ints) => ints.is_empty(),
            Allowed::Strings(texts) => texts.is_empty(),
            Allowed::Types(dtypes) => dtypes.is_empty(),
        };
        if none {
            return Err(syn::Error::new_spanned(expr, "`one_of` lists at least one value"));
        }
        if [&self.min, &self.above, &self.max, &self.below].into_iter().any(Option::is_some) {
            return Err(syn::Error::new_spanned(
                expr,
                "an attribute has bounds or a set of values, not both",
            ));
        }
        Ok(Some(allowed))
    }
}

/// What other ops are told of an op while it is compiled, as an item of `OpDefinition`.
pub(crate) fn arguments<'a>(
    op: &str,
    inputs: impl Iterator<Item = &'a String>,
    outputs: impl Iterator<Item = &'a String>,
    attrs: &[AttrDef],
    inferred: impl Fn(&AttrDef) -> bool,
) -> TokenStream {
    let attrs = attrs.iter().map(|attr| {
        let (name, ty) = (&attr.name, attr.ty.to_string());
        let may_be_left_out = attr.default.is_some() || inferred(attr);
        quote!((#name, #ty, #may_be_left_out))
    });
    quote! {
        const ARGUMENTS: ::core::option::Option<::opsmith::__private::Arguments> =
            ::core::option::Option::Some(::opsmith::__private::Arguments {
                op: #op,
                inputs: &[#(#inputs),*],
                outputs: &[#(#outputs),*],
                attrs: &[#(#attrs),*],
            });
    }
}

/// The definition of the dtype attribute that a type parameter stands for.
pub(crate) fn dtype_attr(name: String, dtypes: &[DType]) -> AttrDef {
    AttrDef {
        allowed: Some(Allowed::Types(dtypes.to_vec())),
        ..AttrDef::new(name, AttrType { base: AttrBase::Type, list: false })
    }
}
