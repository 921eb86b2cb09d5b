//! Dtypes as Rust code names them: element types, bounds that stand for sets, and lists.

use opsmith_core::DType;
use opsmith_core::dtype::sets;
use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Ident, Path, PathArguments, Token, Type, bracketed};

/// The bounds that stand for a set of dtypes, by the names of their traits.
const BOUNDS: [(&str, &[DType]); 5] = [
    ("Float", sets::FLOAT),
    ("AnyFloat", sets::ANY_FLOAT),
    ("Integer", sets::INTEGER),
    ("RealNumber", sets::REAL_NUMBER),
    ("Number", sets::NUMBER),
];

/// The names of those bounds, for messages.
pub(crate) const BOUND_NAMES: &str = "Float, AnyFloat, Integer, RealNumber or Number";

/// The dtypes that the bound `path` stands for, by its last segment.
pub(crate) fn of_bound(path: &Path) -> Option<&'static [DType]> {
    let name = &path.segments.last()?.ident;
    BOUNDS.iter().find(|(bound, _)| name == bound).map(|(_, dtypes)| *dtypes)
}

/// The dtype whose elements have the Rust type `ty`: `i64`, `bool`, `Complex<f32>`.
pub(crate) fn of_type(ty: &Type) -> Option<DType> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    let name = last.ident.to_string();
    match &last.arguments {
        PathArguments::None => DType::ALL.into_iter().find(|dtype| rust_name(*dtype) == Some(&name)),
        PathArguments::AngleBracketed(arguments) if name == "Complex" => {
            let part = quote!(#arguments).to_string().replace([' ', '<', '>', ':'], "");
            match part.as_str() {
                "f32" => Some(DType::Complex64),
                "f64" => Some(DType::Complex128),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The name of the element type, where it is a name.
fn rust_name(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Float32 => "f32",
        DType::Float64 => "f64",
        DType::Float16 => "f16",
        DType::BFloat16 => "bf16",
        DType::Int8 => "i8",
        DType::Int16 => "i16",
        DType::Int32 => "i32",
        DType::Int64 => "i64",
        DType::UInt8 => "u8",
        DType::UInt16 => "u16",
        DType::UInt32 => "u32",
        DType::UInt64 => "u64",
        DType::Bool => "bool",
        DType::QInt8 => "QInt8",
        DType::QUInt8 => "QUInt8",
        DType::QInt16 => "QInt16",
        DType::QUInt16 => "QUInt16",
        DType::QInt32 => "QInt32",
        _ => return None,
    })
}

/// The element type of `dtype`, as a path that resolves anywhere. `None` for `string`, which has none.
pub(crate) fn rust_type(dtype: DType) -> Option<TokenStream> {
    match dtype {
        DType::Complex64 => return Some(quote!(::opsmith::dtype::Complex<f32>)),
        DType::Complex128 => return Some(quote!(::opsmith::dtype::Complex<f64>)),
        _ => {}
    }
    let name = rust_name(dtype)?;
    let ident = Ident::new(name, proc_macro2::Span::call_site());
    Some(match dtype {
        DType::Float16
        | DType::BFloat16
        | DType::QInt8
        | DType::QUInt8
        | DType::QInt16
        | DType::QUInt16
        | DType::QInt32 => quote!(::opsmith::dtype::#ident),
        _ => quote!(::core::primitive::#ident),
    })
}

/// A dtype in a macro's argument, in any usual spelling: `f32`, `float32`, `float`.
pub(crate) fn of_ident(ident: &Ident) -> syn::Result<DType> {
    DType::parse(&ident.to_string())
        .ok_or_else(|| syn::Error::new(ident.span(), format!("`{ident}` is not a dtype, such as f32 or i64")))
}

/// Dtypes in a macro's argument that all have an element type: `[f32, i32]`.
pub(crate) fn parse_list(input: ParseStream<'_>) -> syn::Result<Vec<DType>> {
    let content;
    let brackets = bracketed!(content in input);
    let idents = Punctuated::<Ident, Token![,]>::parse_terminated(&content)?;
    if idents.is_empty() {
        return Err(syn::Error::new(brackets.span.join(), "expected at least one dtype"));
    }
    let mut dtypes = Vec::new();
    for ident in &idents {
        let dtype = of_ident(ident)?;
        if rust_type(dtype).is_none() {
            return Err(syn::Error::new(
                ident.span(),
                format!("elements of dtype {dtype} have no Rust type"),
            ));
        }
        if dtypes.contains(&dtype) {
            return Err(syn::Error::new(ident.span(), format!("{dtype} is listed twice")));
        }
        dtypes.push(dtype);
    }
    Ok(dtypes)
}

/// A set of dtypes in a macro's argument: a bound's name or a list.
pub(crate) struct DTypeSet(pub(crate) Vec<DType>);

impl Parse for DTypeSet {
    fn parse(input: ParseStream<'_>) -> syn::Result<DTypeSet> {
        if input.peek(syn::token::Bracket) {
            return parse_list(input).map(DTypeSet);
        }
        let path: Path = input.parse()?;
        match of_bound(&path) {
            Some(dtypes) => Ok(DTypeSet(dtypes.to_vec())),
            None => Err(syn::Error::new_spanned(
                &path,
                format!("expected {BOUND_NAMES}, or a list such as [f32, i32]"),
            )),
        }
    }
}

impl DTypeSet {
    /// The element types.
    pub(crate) fn rust_types(&self) -> impl Iterator<Item = TokenStream> {
        self.0.iter().filter_map(|dtype| rust_type(*dtype))
    }
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    #[test]
    fn element_types_and_dtypes_correspond() {
        for dtype in DType::ALL {
            let Some(tokens) = rust_type(dtype) else {
                assert_eq!(dtype, DType::String);
                continue;
            };
            assert_eq!(of_type(&parse_quote!(#tokens)), Some(dtype));
        }
        assert_eq!(of_type(&parse_quote!(Complex::<f64>)), Some(DType::Complex128));
        assert_eq!(of_type(&parse_quote!(usize)), None);
        assert_eq!(of_type(&parse_quote!(Complex<i32>)), None);
    }

    #[test]
    fn sets_are_named_or_listed() {
        let set: DTypeSet = parse_quote!(opsmith::Float);
        assert_eq!(set.0, [DType::Float32, DType::Float64]);
        let set: DTypeSet = parse_quote!([f16, int64]);
        assert_eq!(set.0, [DType::Float16, DType::Int64]);
        for (text, message) in [
            ("Floats", "expected Float, AnyFloat"),
            ("[]", "at least one dtype"),
            ("[f32, float]", "float32 is listed twice"),
            ("[string]", "dtype string have no Rust type"),
            ("[f33]", "`f33` is not a dtype"),
        ] {
            let error = syn::parse_str::<DTypeSet>(text).err().unwrap();
            assert!(error.to_string().contains(message), "{text}: {error}");
        }
    }
}
