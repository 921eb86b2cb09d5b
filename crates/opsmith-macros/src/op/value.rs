//! Values of attributes as Rust literals: `-1`, `0.5`, `"same"`, `f32`, `[1, 2]`.

use std::sync::Arc;

use opsmith_core::DType;
use opsmith_core::attr::{AttrBase, AttrType, AttrValue};
use syn::{Expr, ExprUnary, Lit, UnOp};

use crate::dtypes;

/// The value of type `ty` that `expr` writes.
pub(crate) fn of(expr: &Expr, ty: AttrType) -> syn::Result<AttrValue> {
    Ok(match (ty.base, ty.list) {
        (AttrBase::Int, false) => AttrValue::Int(int(expr)?),
        (AttrBase::Float, false) => AttrValue::Float(float(expr)?),
        (AttrBase::Bool, false) => AttrValue::Bool(boolean(expr)?),
        (AttrBase::String, false) => AttrValue::String(string(expr)?),
        (AttrBase::Type, false) => AttrValue::Type(dtype(expr)?),
        (AttrBase::Int, true) => AttrValue::Ints(list(expr, int)?),
        (AttrBase::Float, true) => AttrValue::Floats(list(expr, float)?),
        (AttrBase::Bool, true) => AttrValue::Bools(list(expr, boolean)?),
        (AttrBase::String, true) => AttrValue::Strings(list(expr, string)?),
        (AttrBase::Type, true) => AttrValue::Types(list(expr, dtype)?),
        (AttrBase::Shape | AttrBase::Tensor, _) => {
            return Err(syn::Error::new_spanned(expr, format!("a {ty} cannot be written here")));
        }
    })
}

/// An integer of 64 bits.
pub(crate) fn int(expr: &Expr) -> syn::Result<i64> {
    let (negative, number) = sign(expr);
    match literal(number) {
        // The least value has no positive counterpart, so the sign belongs to the text.
        Some(Lit::Int(digits)) => {
            let minus = if negative { "-" } else { "" };
            format!("{minus}{}", digits.base10_digits())
                .parse()
                .map_err(|_| syn::Error::new_spanned(expr, "this integer overflows 64 bits"))
        }
        _ => Err(syn::Error::new_spanned(expr, "expected an integer")),
    }
}

fn float(expr: &Expr) -> syn::Result<f64> {
    let (negative, number) = sign(expr);
    let infinity = matches!(number, Expr::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "INFINITY"));
    let value = match literal(number) {
        Some(Lit::Float(digits)) => digits.base10_parse()?,
        Some(Lit::Int(digits)) => digits.base10_parse::<i64>()? as f64,
        _ if infinity => f64::INFINITY,
        _ => return Err(syn::Error::new_spanned(expr, "expected a number")),
    };
    Ok(if negative { -value } else { value })
}

fn boolean(expr: &Expr) -> syn::Result<bool> {
    match literal(expr) {
        Some(Lit::Bool(value)) => Ok(value.value),
        _ => Err(syn::Error::new_spanned(expr, "expected `true` or `false`")),
    }
}

fn string(expr: &Expr) -> syn::Result<Arc<str>> {
    match literal(expr) {
        Some(Lit::Str(value)) => Ok(value.value().into()),
        _ => Err(syn::Error::new_spanned(expr, "expected a string in quotes")),
    }
}

fn dtype(expr: &Expr) -> syn::Result<DType> {
    match expr {
        Expr::Path(path) if path.path.get_ident().is_some() => dtypes::of_ident(path.path.require_ident()?),
        _ => Err(syn::Error::new_spanned(expr, "expected a dtype, such as f32")),
    }
}

fn list<T>(expr: &Expr, item: fn(&Expr) -> syn::Result<T>) -> syn::Result<Vec<T>> {
    match expr {
        Expr::Array(array) => array.elems.iter().map(item).collect(),
        _ => Err(syn::Error::new_spanned(expr, "expected a list: [a, b]")),
    }
}

fn sign(expr: &Expr) -> (bool, &Expr) {
    match expr {
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => (true, expr),
        _ => (false, expr),
    }
}

fn literal(expr: &Expr) -> Option<&Lit> {
    match expr {
        Expr::Lit(literal) => Some(&literal.lit),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn read(base: AttrBase, list: bool, expr: Expr) -> Result<AttrValue, String> {
        of(&expr, AttrType { base, list }).map_err(|error| error.to_string())
    }

    #[test]
    fn literals_become_values_of_the_attributes_type() {
        assert_eq!(
            read(AttrBase::Int, false, parse_quote!(-9_223_372_036_854_775_808)),
            Ok(AttrValue::Int(i64::MIN))
        );
        assert_eq!(read(AttrBase::Float, false, parse_quote!(-2)), Ok(AttrValue::Float(-2.0)));
        assert_eq!(
            read(AttrBase::Float, true, parse_quote!([1e-3, -f64::INFINITY])),
            Ok(AttrValue::Floats(vec![1e-3, f64::NEG_INFINITY]))
        );
        assert_eq!(
            read(AttrBase::Type, true, parse_quote!([f32, int64])),
            Ok(AttrValue::Types(vec![DType::Float32, DType::Int64]))
        );
        assert_eq!(read(AttrBase::String, false, parse_quote!("a'b")), Ok(AttrValue::String("a'b".into())));
    }

    #[test]
    fn values_of_another_type_are_refused() {
        let cases: [(AttrBase, bool, Expr, &str); 6] = [
            (AttrBase::Int, false, parse_quote!(1.5), "expected an integer"),
            (AttrBase::Int, false, parse_quote!(9223372036854775808), "overflows"),
            (AttrBase::Float, false, parse_quote!("x"), "expected a number"),
            (AttrBase::Bool, false, parse_quote!(1), "expected `true` or `false`"),
            (AttrBase::String, true, parse_quote!("x"), "expected a list"),
            (AttrBase::Type, false, parse_quote!(f33), "`f33` is not a dtype"),
        ];
        for (base, list, expr, message) in cases {
            let error = read(base, list, expr).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
