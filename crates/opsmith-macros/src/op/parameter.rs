//! Parameters of the function: what each stands for in the op.

use opsmith_core::DType;
use syn::spanned::Spanned;
use syn::{Expr, FnArg, Ident, Lit, Meta, Pat, PatType, Path, PathSegment, Type};

use super::attribute::Attribute;
use super::generics::{TypeParam, last_segment, type_arguments};
use crate::dtypes;

/// A parameter of the function.
#[derive(Debug)]
pub(crate) struct Parameter {
    /// Its name in the op: the parameter's, less underscores in front.
    pub(crate) name: String,
    pub(crate) ident: Ident,
    pub(crate) ty: Type,
    pub(crate) doc: String,
    pub(crate) role: Role,
}

/// What a parameter stands for.
#[derive(Debug)]
pub(crate) enum Role {
    Compute,
    Input(Tensor),
    Output(Tensor),
    Attr(Box<Attribute>),
}

/// A tensor argument.
#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) element: Element,
    /// The number of dims; `None` for `ArrayViewD`.
    pub(crate) rank: Option<usize>,
    pub(crate) optional: bool,
    /// Whether it is any number of tensors, and how the function takes them.
    pub(crate) list: Option<List>,
    /// Whether it is an output that the function makes, as it finds its shape: `&mut Array1<T>`.
    pub(crate) found: bool,
    pub(crate) saved: bool,
    /// Whether the CUDA kernel reads it in host memory.
    pub(crate) host: bool,
}

/// How a function takes a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    /// `Vec<ArrayView1<T>>`.
    Vec,
    /// `&[ArrayView1<T>]`.
    Slice,
    /// `&mut [ArrayViewMut1<T>]`.
    SliceMut,
}

/// The type of a tensor's elements.
#[derive(Debug, PartialEq)]
pub(crate) enum Element {
    Fixed(DType),
    Param(Ident),
}

impl Parameter {
    /// Reads a parameter, and takes away those of its attributes that are for `#[op]`.
    pub(crate) fn new(argument: &mut FnArg, position: usize, params: &[TypeParam]) -> syn::Result<Parameter> {
        let Written { marks, ident, name, ty } = Written::new(argument)?;
        let mut role = role(&ty, &name, marks.attr, marks.saved.as_ref(), params)?;
        match (&mut role, &marks.host) {
            (Role::Input(tensor), Some(_)) => tensor.host = true,
            (_, Some(host)) => {
                let message =
                    "#[host] keeps an input in host memory for the CUDA kernel; this is not an input";
                return Err(syn::Error::new_spanned(host, message));
            }
            _ => {}
        }
        if matches!(role, Role::Compute) && position != 0 {
            return Err(syn::Error::new_spanned(&ty, "`&Compute` must be the first parameter"));
        }
        Ok(Parameter { name, ident, ty, doc: marks.doc, role })
    }

    /// The tensor, for an input or an output.
    pub(crate) fn tensor(&self) -> Option<&Tensor> {
        match &self.role {
            Role::Input(tensor) | Role::Output(tensor) => Some(tensor),
            _ => None,
        }
    }
}

/// A parameter as it is written, whatever it stands for.
pub(crate) struct Written {
    pub(crate) marks: Marks,
    pub(crate) ident: Ident,
    /// Its name in the op: the parameter's, less underscores in front.
    pub(crate) name: String,
    pub(crate) ty: Type,
}

impl Written {
    /// Reads a parameter, and takes away those of its attributes that are for the macro.
    pub(crate) fn new(argument: &mut FnArg) -> syn::Result<Written> {
        let FnArg::Typed(typed) = argument else {
            return Err(syn::Error::new_spanned(argument, "an op is a free function, not a method"));
        };
        let marks = Marks::take(typed)?;
        let Pat::Ident(pattern) = &*typed.pat else {
            return Err(syn::Error::new_spanned(&typed.pat, "an op's parameter is a plain name"));
        };
        let ident = pattern.ident.clone();
        let text = ident.to_string();
        let name = text.trim_start_matches("r#").trim_start_matches('_').to_owned();
        if name.is_empty() {
            return Err(syn::Error::new(ident.span(), "this parameter needs a name, which callers use"));
        }
        Ok(Written { marks, ident, name, ty: (*typed.ty).clone() })
    }
}

/// The attributes on a parameter that are for the macro.
pub(crate) struct Marks {
    pub(crate) attr: Option<Meta>,
    pub(crate) saved: Option<Path>,
    pub(crate) host: Option<Path>,
    pub(crate) doc: String,
}

impl Marks {
    /// Takes them away from the parameter.
    pub(crate) fn take(typed: &mut PatType) -> syn::Result<Marks> {
        let mut marks = Marks { attr: None, saved: None, host: None, doc: String::new() };
        let mut others = Vec::new();
        for attribute in std::mem::take(&mut typed.attrs) {
            let path = attribute.path();
            if path.is_ident("attr") {
                if marks.attr.is_some() {
                    return Err(syn::Error::new_spanned(path, "#[attr] is given twice"));
                }
                marks.attr = Some(attribute.meta);
            } else if path.is_ident("saved") {
                attribute.meta.require_path_only()?;
                marks.saved = Some(path.clone());
            } else if path.is_ident("host") {
                attribute.meta.require_path_only()?;
                marks.host = Some(path.clone());
            } else if let Some(line) = doc_line(&attribute.meta) {
                marks.doc.push_str(&line);
                marks.doc.push('\n');
            } else {
                others.push(attribute);
            }
        }
        typed.attrs = others;
        Ok(marks)
    }
}

/// The line of a documentation comment.
pub(crate) fn doc_line(meta: &Meta) -> Option<String> {
    let Meta::NameValue(pair) = meta else { return None };
    let Expr::Lit(literal) = &pair.value else { return None };
    match &literal.lit {
        Lit::Str(line) if pair.path.is_ident("doc") => Some(line.value()),
        _ => None,
    }
}

fn role(
    ty: &Type,
    name: &str,
    attr: Option<Meta>,
    saved: Option<&Path>,
    params: &[TypeParam],
) -> syn::Result<Role> {
    let tensor = view(ty)?;
    if let (Some(saved), None | Some(View { mutable: false, .. })) = (saved, &tensor) {
        return Err(syn::Error::new_spanned(saved, "#[saved] belongs on an output, an `ArrayViewMutN`"));
    }
    if let Some(meta) = attr {
        if tensor.is_some() {
            let message = "an array is an input or an output of the op, not an attribute";
            return Err(syn::Error::new_spanned(meta, message));
        }
        return Attribute::new(name, ty, &meta).map(|attribute| Role::Attr(attribute.into()));
    }
    if is_compute(ty) {
        return Ok(Role::Compute);
    }
    let Some(View { mutable, optional, list, found, rank, element }) = tensor else {
        let message = "this type is neither an array view (ArrayView0 to ArrayView6, ArrayViewD, the same with \
                       Mut for outputs, any of them in an Option, lists as &[ArrayView1<T>] or \
                       Vec<ArrayViewMut1<T>>, &mut Array1<T> for an output whose shape is found) nor `&Compute`; for what \
                       is not a tensor, write #[attr] before the parameter";
        return Err(syn::Error::new_spanned(ty, message));
    };
    if list.is_some() && optional && !mutable {
        return Err(syn::Error::new_spanned(ty, "a list of inputs cannot be in an Option"));
    }
    let element = element_of(element, params)?;
    let tensor = Tensor { element, rank, optional, list, found, saved: saved.is_some(), host: false };
    Ok(if mutable { Role::Output(tensor) } else { Role::Input(tensor) })
}

fn is_compute(ty: &Type) -> bool {
    let Type::Reference(reference) = ty else { return false };
    reference.mutability.is_none()
        && last_segment(&reference.elem).is_some_and(|last| last.ident == "Compute")
}

/// An array view, or a list of them, as a type says it.
struct View<'a> {
    mutable: bool,
    optional: bool,
    list: Option<List>,
    found: bool,
    rank: Option<usize>,
    element: &'a Type,
}

/// `ty` as an array view or a list of them, `None` for any other type.
fn view(ty: &Type) -> syn::Result<Option<View<'_>>> {
    if let Type::Reference(reference) = ty {
        let Type::Slice(slice) = &*reference.elem else {
            return if reference.mutability.is_some() { found(&reference.elem) } else { Ok(None) };
        };
        let list = if reference.mutability.is_some() { List::SliceMut } else { List::Slice };
        return list_of(&slice.elem, ty, list);
    }
    let Some(last) = last_segment(ty) else { return Ok(None) };
    if last.ident == "Option" {
        let inner = type_arguments(last).next().map(view).transpose()?.flatten();
        return Ok(inner.map(|view| View { optional: true, ..view }));
    }
    if last.ident == "Vec" {
        let Some(element) = type_arguments(last).next() else { return Ok(None) };
        return list_of(element, ty, List::Vec);
    }
    let name = last.ident.to_string();
    let (mutable, dims) = match (name.strip_prefix("ArrayViewMut"), name.strip_prefix("ArrayView")) {
        (Some(dims), _) => (true, dims),
        (None, Some(dims)) => (false, dims),
        (None, None) => return Ok(None),
    };
    let (rank, element) = array(last, dims, "ArrayView")?;
    Ok(Some(View { mutable, optional: false, list: None, found: false, rank, element }))
}

/// `Array1<T>` as an output that the function makes; `None` for any other type.
fn found(ty: &Type) -> syn::Result<Option<View<'_>>> {
    let Some(last) = last_segment(ty) else { return Ok(None) };
    let name = last.ident.to_string();
    let Some(dims) = name.strip_prefix("Array").filter(|dims| dims.len() == 1) else { return Ok(None) };
    let (rank, element) = array(last, dims, "Array")?;
    Ok(Some(View { mutable: true, optional: false, list: None, found: true, rank, element }))
}

/// The rank and the type of the elements of an array's type, whose name is `kind` and `dims`.
fn array<'a>(last: &'a PathSegment, dims: &str, kind: &str) -> syn::Result<(Option<usize>, &'a Type)> {
    let rank = match dims {
        "D" => None,
        "0" | "1" | "2" | "3" | "4" | "5" | "6" => dims.parse().ok(),
        _ => {
            let message = format!("say the number of dims: {kind}0 to {kind}6, or {kind}D for any number");
            return Err(syn::Error::new(last.ident.span(), message));
        }
    };
    let Some(element) = type_arguments(last).next() else {
        let message = format!("say the type of the elements: {}<T>", last.ident);
        return Err(syn::Error::new(last.span(), message));
    };
    Ok((rank, element))
}

/// A list whose elements are of type `element`, written as `ty`; `None` where they are no array views.
fn list_of<'a>(element: &'a Type, ty: &Type, list: List) -> syn::Result<Option<View<'a>>> {
    let Some(view) = view(element)? else { return Ok(None) };
    let message = match (view.list.is_some() || view.optional || view.found, list, view.mutable) {
        (true, ..) => "a list holds array views, neither lists nor Options: &[ArrayView1<T>]",
        (_, List::Slice, true) => "outputs are written to: &mut [ArrayViewMut1<T>], or Vec<ArrayViewMut1<T>>",
        (_, List::SliceMut, false) => "inputs are only read: &[ArrayView1<T>]",
        _ => return Ok(Some(View { list: Some(list), ..view })),
    };
    Err(syn::Error::new_spanned(ty, message))
}

fn element_of(ty: &Type, params: &[TypeParam]) -> syn::Result<Element> {
    if let Type::Path(path) = ty
        && let Some(param) = params.iter().find(|param| path.path.is_ident(&param.name))
    {
        return Ok(Element::Param(param.name.clone()));
    }
    dtypes::of_type(ty).map(Element::Fixed).ok_or_else(|| {
        let message = "no dtype has elements of this type: name a type parameter of the function, or a type \
            such as f32, i64 or bool";
        syn::Error::new_spanned(ty, message)
    })
}
