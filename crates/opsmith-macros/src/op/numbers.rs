//! Functions of `#[op]`: their arrays have elements of a type parameter, which no literal is of.

use quote::ToTokens;
use syn::{BinOp, Expr, GenericParam, Ident, ItemFn, Type, TypeParamBound, UnOp};

use super::generics::where_bounds;
use super::parameter::{Element, Parameter};
use crate::dtypes;
use crate::numbers::text::{self, Literal, assigned, comparison, is_arithmetic};
use crate::numbers::{self, Known, Names, Rules};

/// Bounds beside those that stand for dtypes by which no arithmetic with plain numbers comes.
const OTHERS: [&str; 6] = ["Copy", "Clone", "Debug", "Send", "Sync", "PartialOrd"];
/// Methods of arrays that give arrays of the same elements.
const ARRAYS: [&str; 10] =
    ["view", "view_mut", "t", "to_owned", "clone", "row", "column", "slice", "index_axis", "diag"];
/// Methods of arrays and iterators that give iterators over the same elements.
const ITERATORS: [&str; 9] =
    ["iter", "iter_mut", "into_iter", "copied", "cloned", "rev", "skip", "take", "step_by"];
/// Methods of floats that give such a float.
const FLOATS: [&str; 26] = [
    "abs", "sqrt", "cbrt", "exp", "exp2", "exp_m1", "ln", "ln_1p", "log2", "log10", "sin", "cos", "tan",
    "tanh", "sinh", "cosh", "floor", "ceil", "round", "recip", "signum", "powi", "powf", "max", "min",
    "mul_add",
];
/// Those of them that take floats.
const TAKING_FLOATS: [&str; 4] = ["powf", "max", "min", "mul_add"];
/// Functions of the type that give an element.
const CONSTANTS: [&str; 6] = ["zero", "one", "epsilon", "infinity", "neg_infinity", "nan"];

/// Checks the function of an op with these parameters.
pub(crate) fn check(parameters: &[Parameter], function: &ItemFn) -> syn::Result<()> {
    let rules = Elements { params: params(function) };
    let names = parameters.iter().filter_map(|parameter| {
        let tensor = parameter.tensor().filter(|tensor| !tensor.optional && tensor.list.is_none())?;
        let Element::Param(element) = &tensor.element else { return None };
        let position = rules.params.iter().position(|param| param.name == *element)?;
        Some((parameter.ident.to_string(), Some(Known::Array(position))))
    });
    numbers::check(&rules, names.collect(), &function.block)
}

/// A type parameter whose arithmetic is that of a dtype.
struct Param {
    name: Ident,
    /// Whether `T::from` makes one of a plain number.
    has_from: bool,
}

struct Elements {
    params: Vec<Param>,
}

/// The type parameters of which all bounds are known.
fn params(function: &ItemFn) -> Vec<Param> {
    let generics = &function.sig.generics;
    let types = generics.params.iter().filter_map(|param| match param {
        GenericParam::Type(param) => Some(param),
        _ => None,
    });
    let read = |param: &syn::TypeParam| {
        let mut bounds = param.bounds.iter().chain(where_bounds(generics, &param.ident));
        let mut dtype_bounds = Vec::new();
        let is_known = bounds.all(|bound| {
            let TypeParamBound::Trait(bound) = bound else { return true };
            let name = bound.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
            match dtypes::of_bound(&bound.path) {
                Some(_) => {
                    dtype_bounds.push(name);
                    true
                }
                None => OTHERS.contains(&name.as_str()),
            }
        });
        let has_from = dtype_bounds.iter().any(|name| name != "Number");
        (is_known && !dtype_bounds.is_empty()).then(|| Param { name: param.ident.clone(), has_from })
    };
    types.filter_map(read).collect()
}

impl Elements {
    /// The function of a type parameter that a path names: `T::zero`.
    fn path(&self, expr: &Expr) -> Option<(usize, String)> {
        let Expr::Path(path) = expr else { return None };
        let mut segments = path.path.segments.iter();
        let (first, last) = (segments.next()?, segments.next()?);
        let param = self.params.iter().position(|param| param.name == first.ident)?;
        Some((param, last.ident.to_string()))
    }

    /// How a literal is written as an element; none where the bounds of the type have no plain way.
    fn made(&self, literal: &Literal, param: usize) -> Option<String> {
        let Param { name, has_from } = &self.params[param];
        Some(match literal.text.trim_end_matches('.').trim_end_matches(".0") {
            "0" => format!("{name}::zero()"),
            "1" => format!("{name}::one()"),
            // Arithmetic of integers would round.
            _ if *has_from && literal.is_arithmetic => format!("{name}::from({}).unwrap()", literal.float),
            _ if *has_from => format!("{name}::from({}).unwrap()", literal.text),
            "2" => format!("({name}::one() + {name}::one())"),
            _ => return None,
        })
    }

    /// What is wrong with an operator between an element or an array of them and a literal, and what is right.
    fn binary(&self, left: &Expr, op: &BinOp, right: &Expr, names: &Names) -> Option<String> {
        let (literal, other, is_left) = match (Literal::of(left), Literal::of(right)) {
            (Some(literal), None) => (literal, right, true),
            (None, Some(literal)) => (literal, left, false),
            _ => return None,
        };
        let known = self.of(other, names)?;
        let (Known::Element(param) | Known::Array(param)) = known else { return None };
        let is_array = matches!(known, Known::Array(_));
        let gives = is_arithmetic(op) || (comparison(op).is_some() && !is_array);
        if !gives && (assigned(op).is_none() || is_left) {
            return None;
        }
        let Some(made) = self.made(&literal, param) else { return Some(self.message(&literal, param, None)) };
        let sign = op.to_token_stream();
        let cure = match (assigned(op), is_array) {
            (Some(sign), true) => format!("{}.mapv_inplace(|v| v {sign} {made})", bare(other)),
            (Some(_), false) => format!("{} {sign} {made}", text::of(other)),
            (None, _) => {
                let value = if is_array { "v".to_owned() } else { text::receiver(other) };
                let (left, right) = if is_left { (made, value) } else { (value, made) };
                let value = format!("{left} {sign} {right}");
                if is_array { format!("{}.mapv(|v| {value})", bare(other)) } else { value }
            }
        };
        Some(self.message(&literal, param, Some(cure)))
    }

    fn message(&self, literal: &Literal, param: usize, cure: Option<String>) -> String {
        let (name, text) = (&self.params[param].name, &literal.text);
        let cure = cure.map_or_else(
            || {
                format!(
                    "a `Number` has `{name}::zero()` and `{name}::one()`; bound by `Float` or `RealNumber`, `{name}` has \
                     `{name}::from` too"
                )
            },
            |cure| format!("write `{cure}`"),
        );
        format!("`{text}` is a plain number, not a `{name}`: {cure}")
    }

    /// A literal as the argument of a method that takes elements.
    fn argument(&self, call: &syn::ExprMethodCall, names: &Names) -> Option<syn::Error> {
        let method = call.method.to_string();
        let param = match self.of(&call.receiver, names)? {
            Known::Element(param) if TAKING_FLOATS.contains(&method.as_str()) => param,
            Known::Array(param) if method == "fill" => param,
            _ => return None,
        };
        let (place, literal) =
            call.args.iter().find_map(|argument| Some((argument, Literal::of(argument)?)))?;
        Some(syn::Error::new_spanned(place, self.message(&literal, param, self.made(&literal, param))))
    }
}

/// An expression without the `&` in front.
fn bare(expr: &Expr) -> String {
    match expr {
        Expr::Reference(reference) => bare(&reference.expr),
        Expr::Paren(inner) => bare(&inner.expr),
        other => text::receiver(other),
    }
}

impl Rules for Elements {
    fn known(&self, expr: &Expr, names: &Names) -> Option<Known> {
        match expr {
            Expr::Unary(unary) => match (&unary.op, self.of(&unary.expr, names)?) {
                (UnOp::Neg(_), known) => Some(known),
                (UnOp::Deref(_), known @ Known::Element(_)) => Some(known),
                _ => None,
            },
            Expr::Index(index) => match self.of(&index.expr, names)? {
                Known::Array(param) => Some(Known::Element(param)),
                _ => None,
            },
            Expr::Binary(binary) if is_arithmetic(&binary.op) => {
                match (self.of(&binary.left, names), self.of(&binary.right, names)) {
                    (Some(Known::Array(param)), _) | (_, Some(Known::Array(param))) => {
                        Some(Known::Array(param))
                    }
                    (Some(Known::Element(param)), Some(Known::Element(_))) => Some(Known::Element(param)),
                    _ => None,
                }
            }
            Expr::Call(call) => match self.path(&call.func)? {
                (param, name) if CONSTANTS.contains(&name.as_str()) => Some(Known::Element(param)),
                _ => None,
            },
            Expr::MethodCall(call) => {
                let method = call.method.to_string();
                let method = method.as_str();
                if let ("unwrap" | "unwrap_or", Expr::Call(made)) = (method, &*call.receiver) {
                    let (param, name) = self.path(&made.func)?;
                    return (name == "from").then_some(Known::Element(param));
                }
                match self.of(&call.receiver, names)? {
                    Known::Array(param) if ARRAYS.contains(&method) => Some(Known::Array(param)),
                    Known::Array(param) if method == "sum" => Some(Known::Element(param)),
                    Known::Array(param) | Known::Iter(param) if ITERATORS.contains(&method) => {
                        Some(Known::Iter(param))
                    }
                    Known::Element(param) if FLOATS.contains(&method) => Some(Known::Element(param)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn of_type(&self, ty: &Type) -> Option<Known> {
        let Type::Path(path) = ty else { return None };
        let position = self.params.iter().position(|param| path.path.is_ident(&param.name));
        position.map(Known::Element)
    }

    fn fault(&self, expr: &Expr, names: &Names) -> Option<syn::Error> {
        let message = match expr {
            Expr::Binary(binary) => self.binary(&binary.left, &binary.op, &binary.right, names)?,
            Expr::Assign(assign) => {
                let (Known::Element(param), literal) =
                    (self.of(&assign.left, names)?, Literal::of(&assign.right)?)
                else {
                    return None;
                };
                let made = self.made(&literal, param);
                let cure = made.map(|made| format!("{} = {made}", text::of(&assign.left)));
                self.message(&literal, param, cure)
            }
            Expr::MethodCall(call) => return self.argument(call, names),
            _ => return None,
        };
        Some(syn::Error::new_spanned(expr, message))
    }

    fn condition(&self, _: &str, _: &Expr, _: &Names) -> Option<syn::Error> {
        None
    }
}
