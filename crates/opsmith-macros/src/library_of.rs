//! `library_of! { name = "distances", files = ["/home/me/ops.rs"] }`: a library of all ops in files, which need say
//! nothing but the ops.
//!
//! Each file becomes a module that has the prelude in scope and includes it, so that the compiler's messages have the
//! file's own name and lines. The files are parsed here as well, to find the ops.

use std::collections::HashSet;
use std::fs;

use opsmith_core::def::{did_you_mean, snake_case};
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Ident, Item, LitStr, Path, Token, Type, Visibility, bracketed};

/// The attributes that make a function an op.
const OP_MACROS: [&str; 5] = ["op", "body", "pointwise", "pairwise", "reduce"];

/// The parsed call.
pub(crate) struct LibraryOf {
    name: LitStr,
    version: LitStr,
    files: Vec<LitStr>,
    cuda: Vec<LitStr>,
}

impl Parse for LibraryOf {
    fn parse(input: ParseStream<'_>) -> syn::Result<LibraryOf> {
        let name = option(input, "name")?.parse()?;
        input.parse::<Token![,]>()?;
        let version = option(input, "version")?.parse()?;
        input.parse::<Token![,]>()?;
        let files = list(option(input, "files")?)?;
        input.parse::<Token![,]>()?;
        let cuda = list(option(input, "cuda")?)?;
        input.parse::<Option<Token![,]>>()?;
        Ok(LibraryOf { name, version, files, cuda })
    }
}

/// What follows `key =`.
fn option<'a>(input: ParseStream<'a>, key: &str) -> syn::Result<ParseStream<'a>> {
    let found: Ident = input.parse()?;
    if found != key {
        return Err(syn::Error::new(found.span(), format!("expected `{key}`")));
    }
    input.parse::<Token![=]>()?;
    Ok(input)
}

fn list(input: ParseStream<'_>) -> syn::Result<Vec<LitStr>> {
    let content;
    bracketed!(content in input);
    Ok(Punctuated::<LitStr, Token![,]>::parse_terminated(&content)?.into_iter().collect())
}

/// An op in a file: the modules it is in, and its name.
struct Found {
    path: Vec<Ident>,
    is_reachable: bool,
}

/// The files as modules, and the library of their ops.
pub(crate) fn expand(LibraryOf { name, version, files, cuda }: &LibraryOf) -> syn::Result<TokenStream> {
    let mut modules: Vec<Ident> = Vec::new();
    let mut sources = Vec::new();
    let mut ops: Vec<Path> = Vec::new();
    let mut is_readable = true;
    for file in files {
        let module = module_name(&file.value(), &modules);
        // What cannot be parsed is left to the compiler, whose message has the place.
        let parsed = read(file)?;
        is_readable &= parsed.is_some();
        let mut found = parsed.map(|items| ops_in(&items)).unwrap_or_default();
        // That a name is there twice is told by the compiler, at both places.
        let mut seen = HashSet::new();
        found.retain(|op| seen.insert(op.path.clone()));
        if let Some(hidden) = found.iter().find(|op| !op.is_reachable) {
            let op = path_text(&hidden.path);
            let message = format!("{}: the op `{op}` is private in its module: make it `pub`", file.value());
            return Err(syn::Error::new(file.span(), message));
        }
        let wrappers = found.iter().map(|op| wrapper(&op.path));
        sources.push(quote! {
            mod #module {
                #[allow(unused_imports)]
                use ::opsmith::prelude::*;

                include!(#file);

                #[doc(hidden)]
                #[allow(non_camel_case_types)]
                pub(super) mod __ops {
                    #(#wrappers)*
                }
            }
        });
        ops.extend(found.iter().filter_map(|op| op.path.last()).map(|op| {
            let path: Path = syn::parse_quote!(#module::__ops::#op);
            path
        }));
        modules.push(module);
    }
    if is_readable && ops.is_empty() {
        return Err(no_ops(files)?);
    }
    let library = is_readable
        .then(|| quote!(::opsmith::library! { name = #name, version = #version, ops = [#(#ops),*] }));
    Ok(quote! {
        #(#sources)*

        /// The CUDA sources that came with the ops.
        #[allow(dead_code)]
        pub(crate) const CUDA_SOURCES: &[&str] = &[#(include_str!(#cuda)),*];

        #library
    })
}

fn no_ops(files: &[LitStr]) -> syn::Result<syn::Error> {
    let names: Vec<String> = files.iter().map(LitStr::value).collect();
    let mut near = String::new();
    for file in files {
        if near.is_empty() {
            near = read(file)?.iter().flatten().find_map(near_macro).unwrap_or_default();
        }
    }
    let message = format!(
        "there is no op in {}: write #[op(…)], #[pointwise], #[reduce], #[pairwise] or #[body] above a function{near}",
        names.join(", ")
    );
    Ok(syn::Error::new(Span::call_site(), message))
}

/// `; did you mean …?` for a function's attribute that is nearly one of an op.
fn near_macro(item: &Item) -> Option<String> {
    let Item::Fn(function) = item else { return None };
    let near = |attribute: &Attribute| {
        let name = attribute.path().get_ident()?.to_string();
        Some(did_you_mean(&name, OP_MACROS)).filter(|near| !near.is_empty())
    };
    function.attrs.iter().find_map(near)
}

/// The items of a file; none where it is not Rust.
fn read(file: &LitStr) -> syn::Result<Option<Vec<Item>>> {
    let path = file.value();
    let text = fs::read_to_string(&path)
        .map_err(|error| syn::Error::new(file.span(), format!("{path}: cannot be read: {error}")))?;
    Ok(syn::parse_file(&text).ok().map(|file| file.items))
}

/// The ops among items and in the modules that are written out among them.
fn ops_in(items: &[Item]) -> Vec<Found> {
    let mut found = Vec::new();
    for item in items {
        match item {
            Item::Fn(function) if function.attrs.iter().any(is_op_macro) => {
                found.push(Found { path: vec![function.sig.ident.clone()], is_reachable: true });
            }
            Item::Impl(block) => {
                let of = block.trait_.as_ref().and_then(|implemented| implemented_for(&implemented.0, block));
                found.extend(of.map(|name| Found { path: vec![name], is_reachable: true }));
            }
            Item::Mod(module) => {
                let Some((_, items)) = &module.content else { continue };
                if module.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")) {
                    continue;
                }
                found.extend(ops_in(items).into_iter().map(|op| within(&module.ident, items, op)));
            }
            _ => {}
        }
    }
    found
}

/// The type that an implementation of `OpDefinition` is for.
fn implemented_for(implemented: &Path, block: &syn::ItemImpl) -> Option<Ident> {
    let is_definition = implemented.segments.last()?.ident == "OpDefinition";
    match &*block.self_ty {
        Type::Path(path) if is_definition => path.path.get_ident().cloned(),
        _ => None,
    }
}

/// An op of a module as it is found from outside of it.
fn within(module: &Ident, items: &[Item], op: Found) -> Found {
    let is_private = |item: &Item| {
        let (ident, visibility) = match item {
            Item::Fn(function) => (&function.sig.ident, &function.vis),
            Item::Struct(item) => (&item.ident, &item.vis),
            Item::Enum(item) => (&item.ident, &item.vis),
            Item::Mod(module) => (&module.ident, &module.vis),
            _ => return false,
        };
        op.path.first() == Some(ident) && matches!(visibility, Visibility::Inherited)
    };
    let is_reachable = op.is_reachable && !items.iter().any(is_private);
    let path = std::iter::once(module.clone()).chain(op.path).collect();
    Found { path, is_reachable }
}

fn is_op_macro(attribute: &Attribute) -> bool {
    let last = attribute.path().segments.last();
    last.is_some_and(|segment| OP_MACROS.iter().any(|name| segment.ident == name))
}

/// A type that stands for an op, of the op's name: the op itself may be private to its file.
fn wrapper(path: &[Ident]) -> TokenStream {
    let name = path.last();
    let op = quote!(super::#(#path)::*);
    quote! {
        pub(crate) struct #name;

        impl ::opsmith::OpDefinition for #name {
            const COMPANIONS: &'static [fn() -> ::opsmith::OpDef] =
                <#op as ::opsmith::OpDefinition>::COMPANIONS;

            fn def() -> ::opsmith::OpDef {
                <#op as ::opsmith::OpDefinition>::def()
            }
        }
    }
}

/// The module of a file: its name as an identifier that no other file has.
fn module_name(file: &str, taken: &[Ident]) -> Ident {
    let stem = std::path::Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
    let plain: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let plain = snake_case(&plain);
    let is_ident = syn::parse_str::<Ident>(&plain).is_ok();
    let name = if is_ident { plain } else { format!("ops_{plain}") };
    // A file later in the list that has the name of one before it gets its position behind it.
    match taken.iter().any(|ident| *ident == name) {
        true => format_ident!("{name}_{}", taken.len() + 1),
        false => format_ident!("{name}"),
    }
}

fn path_text(path: &[Ident]) -> String {
    path.iter().map(|ident| ident.unraw().to_string()).collect::<Vec<_>>().join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(String, bool)> {
        let items = syn::parse_file(text).unwrap().items;
        ops_in(&items).iter().map(|op| (path_text(&op.path), op.is_reachable)).collect()
    }

    #[test]
    fn ops_are_found_by_their_attributes_wherever_they_are() {
        let text = r##"
            // #[op] fn in_a_comment() {}
            const TEXT: &str = "#[op] fn in_a_text() {}";
            /// Documented.
            #[op(shape = "(n)->(n)")] #[inline] pub fn a() {}
            #[opsmith::pointwise] fn b() {}
            fn helper() {}
            impl OpDefinition for C { fn def() -> OpDef { todo!() } }
            impl Other for D {}
            mod inner { #[reduce] pub fn e() {} #[pairwise] fn f() {} #[body("(i)->(i)")] pub fn h() {} }
            #[cfg(test)] mod tests { #[op] fn g() {} }
        "##;
        let all = [
            ("a", true),
            ("b", true),
            ("C", true),
            ("inner::e", true),
            ("inner::f", false),
            ("inner::h", true),
        ];
        assert_eq!(found(text), all.map(|(name, is_reachable)| (name.to_owned(), is_reachable)));
    }

    #[test]
    fn the_nearest_macro_is_meant() {
        let near = |text: &str| near_macro(&syn::parse_str(text).unwrap());
        assert_eq!(near("/// It.\n#[pointwse] fn a() {}"), Some("; did you mean `pointwise`?".to_owned()));
        assert_eq!(near("#[inline] fn a() {}"), None);
    }

    #[test]
    fn each_file_is_a_module_of_its_own() {
        let mut taken = Vec::new();
        for (file, name) in [
            ("/a/distances.rs", "distances"),
            ("/b/distances.rs", "distances_2"),
            ("/c/Größe 2.rs", "gr__e_2"),
            ("/d/2d.rs", "ops_2d"),
            ("/e/fn.rs", "ops_fn"),
        ] {
            taken.push(module_name(file, &taken));
            assert_eq!(taken.last().unwrap(), name);
        }
    }
}
