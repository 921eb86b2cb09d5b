//! `library! { name = "distances", ops = [a, b] }`.

use opsmith_core::MAX_COMPANIONS;
use opsmith_core::def::snake_case;
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Expr, Ident, LitStr, Path, Token, bracketed};

/// The parsed call.
pub(crate) struct Library {
    name: LitStr,
    version: Option<Expr>,
    has_namespace: bool,
    ops: Vec<Path>,
}

impl Parse for Library {
    fn parse(input: ParseStream<'_>) -> syn::Result<Library> {
        let (mut name, mut version, mut namespace, mut ops) = (None, None, None, None);
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            let again = match key.to_string().as_str() {
                "name" => name.replace(library_name(input)?).is_some(),
                "version" => version.replace(input.parse::<Expr>()?).is_some(),
                "namespace" => namespace.replace(no_namespace(input)?).is_some(),
                "ops" => ops.replace(op_list(input)?).is_some(),
                _ => {
                    let message = format!(
                        "`{key}` is not an option of library!; there are name, version, namespace and ops"
                    );
                    return Err(syn::Error::new(key.span(), message));
                }
            };
            if again {
                return Err(syn::Error::new(key.span(), format!("`{key}` is given twice")));
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let name = name.ok_or_else(|| missing("a library needs its name: name = \"distances\""))?;
        let ops = ops.ok_or_else(|| missing("a library needs its ops: ops = [pairwise_distance]"))?;
        Ok(Library { name, version, has_namespace: namespace.is_none(), ops })
    }
}

fn missing(message: &str) -> syn::Error {
    syn::Error::new(Span::call_site(), message)
}

fn library_name(input: ParseStream<'_>) -> syn::Result<LitStr> {
    let name: LitStr = input.parse()?;
    let text = name.value();
    let is_name = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_name {
        return Ok(name);
    }
    let message =
        "a library's name is in snake_case: lower-case letters, digits and underscores, a letter first";
    Err(syn::Error::new(name.span(), message))
}

/// `""`: the namespace is the library's name, or there is none.
fn no_namespace(input: ParseStream<'_>) -> syn::Result<()> {
    let text: LitStr = input.parse()?;
    if text.value().is_empty() {
        return Ok(());
    }
    let message =
        "the namespace is the library's name; namespace = \"\" says that there is none in TensorFlow";
    Err(syn::Error::new(text.span(), message))
}

fn op_list(input: ParseStream<'_>) -> syn::Result<Vec<Path>> {
    let content;
    bracketed!(content in input);
    let mut ops: Vec<Path> = Vec::new();
    for op in Punctuated::<Path, Token![,]>::parse_terminated(&content)? {
        if ops.contains(&op) {
            return Err(syn::Error::new_spanned(&op, "this op is listed twice"));
        }
        ops.push(op);
    }
    Ok(ops)
}

/// The library as a static, with what every host looks for in a shared object: the C ABI's table, the functions
/// that PyTorch calls, and one that runs when the object is opened.
pub(crate) fn expand(Library { name, version, has_namespace, ops }: &Library) -> TokenStream {
    let version = match version {
        Some(version) => quote!(#version),
        None => quote!(::core::env!("CARGO_PKG_VERSION")),
    };
    let defs: Vec<_> =
        ops.iter().map(|op| quote_spanned!(op.span()=> <#op as ::opsmith::OpDefinition>::def)).collect();
    let companions =
        ops.iter().map(|op| quote_spanned!(op.span()=> <#op as ::opsmith::OpDefinition>::COMPANIONS));
    let without_namespace = (!has_namespace).then(|| quote!(.without_namespace()));
    // How many ops there are is known only when the macro's code is compiled: functions are named for as many as there may
    // be, and those of ops that there are not are never made.
    let positions: Vec<usize> = (0..(ops.len() * (1 + MAX_COMPANIONS)).max(1)).collect();
    let handlers = jax_symbols(ops).into_iter().enumerate().map(|(index, symbol)| quote!(#index #symbol));
    let doc = format!(" The library `{}`, checked, for Rust callers.", name.value());
    quote! {
        #[doc = #doc]
        ///
        /// # Errors
        /// What is wrong with its definitions.
        pub fn library() -> ::opsmith::Result<&'static ::opsmith::Library> {
            <__OpsmithLibrary as ::opsmith::__private::host::Root>::library().get()
        }

        struct __OpsmithLibrary;

        const _: () = {
            use ::opsmith::__private::{
                OpsmithLibrary, host, jax_handlers, with_tensorflow_functions, with_torch_kernels,
            };

            const COMPANIONS: &[&[fn() -> ::opsmith::OpDef]] = &[#(#companions),*];
            const COUNT: usize = host::family::count(&[#(#defs),*], COMPANIONS);
            static OPS: [fn() -> ::opsmith::OpDef; COUNT] = host::family::gather(&[#(#defs),*], COMPANIONS);

            static LIBRARY: host::StaticLibrary = with_tensorflow_functions!(
                with_torch_kernels!(
                    host::StaticLibrary::new(#name, #version, &OPS) #without_namespace,
                    __OpsmithLibrary,
                    COUNT,
                    #(#positions),*
                ),
                __OpsmithLibrary,
                COUNT,
                #(#positions),*
            );

            // SAFETY: it is a static, so always the same.
            unsafe impl host::Root for __OpsmithLibrary {
                fn library() -> &'static host::StaticLibrary {
                    &LIBRARY
                }
            }

            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals)]
            pub static opsmith_library_v1: OpsmithLibrary = host::capi::table::<__OpsmithLibrary>(#name, #version);

            jax_handlers!(__OpsmithLibrary, COUNT, [#(#positions),*], #(#handlers),*);

            #[used]
            #[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
            #[cfg_attr(not(target_os = "macos"), unsafe(link_section = ".init_array"))]
            static START: extern "C" fn() = start;

            extern "C" fn start() {
                host::start(&LIBRARY);
            }
        };
    }
}

/// The names of the functions that JAX calls: `pairwise_distance_jax`, after what the list of ops calls each. Of ops that it
/// calls alike, the later ones have their position in the name.
fn jax_symbols(ops: &[Path]) -> Vec<Ident> {
    let mut names: Vec<String> = Vec::new();
    for (index, op) in ops.iter().enumerate() {
        let last = op.segments.last().map(|segment| segment.ident.unraw().to_string()).unwrap_or_default();
        let name = format!("{}_jax", snake_case(&last));
        names.push(if names.contains(&name) { format!("{name}_{index}") } else { name });
    }
    names.iter().map(|name| Ident::new(name, Span::call_site())).collect()
}
