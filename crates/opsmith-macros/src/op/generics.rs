//! Type parameters: each is a dtype attribute, its bound the set of dtypes it may be.

use opsmith_core::DType;
use syn::{
    GenericArgument, GenericParam, Generics, Ident, Path, PathArguments, PathSegment, Type, TypeParamBound,
    WherePredicate,
};

use crate::dtypes::{self, BOUND_NAMES};

/// A type parameter of the function.
#[derive(Debug)]
pub(crate) struct TypeParam {
    pub(crate) name: Ident,
    pub(crate) dtypes: Vec<DType>,
}

/// The function's type parameters with their dtypes, narrowed by the lists of `dtypes(…)`.
pub(crate) fn type_params(generics: &Generics, lists: &[(Ident, Vec<DType>)]) -> syn::Result<Vec<TypeParam>> {
    let mut params = Vec::new();
    for param in &generics.params {
        let GenericParam::Type(param) = param else {
            let message = "an op's function is generic over dtypes only: leave lifetimes out of its types, and \
                           take constants as attributes";
            return Err(syn::Error::new_spanned(param, message));
        };
        let bounds = || param.bounds.iter().chain(where_bounds(generics, &param.ident));
        let list = lists.iter().find(|(name, _)| *name == param.ident).map(|(_, list)| list);
        let dtypes = dtypes_of(&param.ident, bounds().filter_map(trait_path), list)?;
        params.push(TypeParam { name: param.ident.clone(), dtypes });
    }
    match lists.iter().find(|(name, _)| params.iter().all(|param| param.name != *name)) {
        Some((name, _)) => Err(syn::Error::new(name.span(), format!("`{name}` is not a type parameter"))),
        None => Ok(params),
    }
}

fn dtypes_of<'a>(
    name: &Ident,
    mut bounds: impl Iterator<Item = &'a Path>,
    list: Option<&Vec<DType>>,
) -> syn::Result<Vec<DType>> {
    let bound = bounds.find_map(|path| Some((path, dtypes::of_bound(path)?)));
    match (bound, list) {
        (Some((_, all)), None) => Ok(all.to_vec()),
        (Some((path, all)), Some(list)) => match list.iter().find(|dtype| !all.contains(dtype)) {
            Some(stranger) => {
                let bound = path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
                Err(syn::Error::new(name.span(), format!("`{name}: {bound}` cannot be {stranger}")))
            }
            None => Ok(list.clone()),
        },
        (None, Some(list)) => Ok(list.clone()),
        (None, None) => {
            let message = format!(
                "the bounds of `{name}` do not say which dtypes it may be: bound it by {BOUND_NAMES}, or list \
                 them: dtypes({name} = [f32, f64])"
            );
            Err(syn::Error::new(name.span(), message))
        }
    }
}

/// The bounds of a type parameter after `where`.
pub(crate) fn where_bounds<'a>(
    generics: &'a Generics,
    name: &Ident,
) -> impl Iterator<Item = &'a TypeParamBound> {
    let predicates = generics.where_clause.iter().flat_map(|clause| &clause.predicates);
    predicates
        .filter_map(move |predicate| match predicate {
            WherePredicate::Type(bound) => match &bound.bounded_ty {
                Type::Path(path) if path.path.is_ident(name) => Some(&bound.bounds),
                _ => None,
            },
            _ => None,
        })
        .flatten()
}

fn trait_path(bound: &TypeParamBound) -> Option<&Path> {
    match bound {
        TypeParamBound::Trait(bound) => Some(&bound.path),
        _ => None,
    }
}

/// The last segment of a path.
pub(crate) fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match ty {
        Type::Path(path) if path.qself.is_none() => path.path.segments.last(),
        _ => None,
    }
}

/// The types among a segment's arguments.
pub(crate) fn type_arguments(segment: &PathSegment) -> impl Iterator<Item = &Type> {
    let arguments = match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => Some(&arguments.args),
        _ => None,
    };
    arguments.into_iter().flatten().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}
