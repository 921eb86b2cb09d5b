//! `library! { name = "distances", ops = [a, b] }`.

use opsmith_core::MAX_COMPANIONS;
use opsmith_core::def::snake_case;
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Expr, Ident, LitBool, LitStr, Path, Token, bracketed};

/// The parsed call.
pub(crate) struct Library {
    name: LitStr,
    version: Option<Expr>,
    has_namespace: bool,
    is_embedded: bool,
    ops: Vec<Path>,
}

impl Parse for Library {
    fn parse(input: ParseStream<'_>) -> syn::Result<Library> {
        let (mut name, mut version, mut namespace, mut embedded, mut ops) = (None, None, None, None, None);
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            let again = match key.to_string().as_str() {
                "name" => name.replace(in_this_build(library_name(input)?)).is_some(),
                "version" => version.replace(input.parse::<Expr>()?).is_some(),
                "namespace" => namespace.replace(no_namespace(input)?).is_some(),
                "embedded" => embedded.replace(input.parse::<LitBool>()?.value).is_some(),
                "ops" => ops.replace(op_list(input)?).is_some(),
                _ => {
                    let message = format!(
                        "`{key}` is not an option of library!; the options are name, version, namespace, \
                         embedded and ops"
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
        let is_embedded = embedded.unwrap_or_default();
        Ok(Library { name, version, has_namespace: namespace.is_none(), is_embedded, ops })
    }
}

/// The library's name, or the one that a just-in-time build of the crate's root wants.
fn in_this_build(name: LitStr) -> LitStr {
    match std::env::var("OPSMITH_JIT_LIBRARY") {
        Ok(wanted) => LitStr::new(&wanted, name.span()),
        Err(_) => name,
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
        "the namespace is the library's name; only namespace = \"\" is possible, for none in TensorFlow";
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

/// The library as a static and what gives it out: to a program that it is part of, or to the frameworks that open it.
pub(crate) fn expand(library: &Library) -> TokenStream {
    let Library { name, version, has_namespace, is_embedded, ops } = library;
    let version = match version {
        Some(version) => quote!(#version),
        None => quote!(::core::env!("CARGO_PKG_VERSION")),
    };
    let defs = ops.iter().map(|op| quote_spanned!(op.span()=> <#op as ::opsmith::OpDefinition>::def));
    let companions =
        ops.iter().map(|op| quote_spanned!(op.span()=> <#op as ::opsmith::OpDefinition>::COMPANIONS));
    let without_namespace = (!has_namespace).then(|| quote!(.without_namespace()));
    let plain = quote!(frameworks::StaticLibrary::new(#name, #version, &OPS) #without_namespace);
    let (library, given_out, table) = match is_embedded {
        true => (plain, quote!(), Some(table(name, &version))),
        false => {
            let (library, given_out) = for_frameworks(plain, ops, name, &version);
            (library, given_out, None)
        }
    };
    let doc = format!(" The library `{}`, checked, for Rust callers.", name.value());
    quote! {
        #[doc = #doc]
        ///
        /// # Errors
        /// What is wrong with its definitions.
        pub fn library() -> ::opsmith::Result<&'static ::opsmith::Library> {
            <__OpsmithLibrary as ::opsmith::__private::frameworks::Root>::library().get()
        }

        #table

        struct __OpsmithLibrary;

        const _: () = {
            use ::opsmith::__private::frameworks;

            const LISTED: &[fn() -> ::opsmith::OpDef] = &[#(#defs),*];
            const COMPANIONS: &[&[fn() -> ::opsmith::OpDef]] = &[#(#companions),*];
            const COUNT: usize = frameworks::family::count(LISTED, COMPANIONS);
            static OPS: [fn() -> ::opsmith::OpDef; COUNT] = frameworks::family::gather(LISTED, COMPANIONS);
            static LIBRARY: frameworks::StaticLibrary = #library;

            // SAFETY: it is a static, so always the same.
            unsafe impl frameworks::Root for __OpsmithLibrary {
                fn library() -> &'static frameworks::StaticLibrary {
                    &LIBRARY
                }
            }

            #given_out
        };
    }
}

/// The library with the functions that frameworks call, and what they look for in a shared object: the C ABI's table, the
/// functions of JAX, that of ONNX Runtime, and one that runs when the object is opened.
fn for_frameworks(
    plain: TokenStream,
    ops: &[Path],
    name: &LitStr,
    version: &TokenStream,
) -> (TokenStream, TokenStream) {
    // How many ops there are is known only when the macro's code is compiled: functions are named for as many as there may
    // be, and those of ops that there are not are never made.
    let positions: Vec<usize> = (0..(ops.len() * (1 + MAX_COMPANIONS)).max(1)).collect();
    let on_jax = for_jax(ops, &positions);
    let library = quote! {
        #plain
            .with_torch_kernels(&const {
                frameworks::family::first::<_, _, COUNT>([
                    #(frameworks::torch::kernel::<__OpsmithLibrary, #positions> as frameworks::torch::Kernel),*
                ])
            })
            .with_tensorflow_functions(&const {
                frameworks::family::first::<_, _, COUNT>([
                    #(frameworks::tensorflow::functions::<__OpsmithLibrary, #positions>()),*
                ])
            })
    };
    let given_out = quote! {
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals)]
        pub static opsmith_library_v1: ::opsmith::OpsmithLibrary =
            frameworks::capi::table::<__OpsmithLibrary>(#name, #version);

        #on_jax

        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        unsafe extern "C" fn RegisterCustomOps(
            options: *mut frameworks::onnx::SessionOptions,
            base: *const frameworks::onnx::ApiBase,
        ) -> *mut frameworks::onnx::Status {
            // SAFETY: passed on from ONNX Runtime.
            unsafe { frameworks::onnx::register(&LIBRARY, options, base) }
        }

        #[used]
        #[unsafe(link_section = ".init_array")]
        static START: extern "C" fn() = start;

        extern "C" fn start() {
            frameworks::start(&LIBRARY);
        }
    };
    (library, given_out)
}

/// What JAX calls: a function of its own name for each op that is listed, and two that have those of all ops.
fn for_jax(ops: &[Path], positions: &[usize]) -> TokenStream {
    let symbols = jax_symbols(ops);
    // A handler has one address, by whichever way JAX comes to it, or the second way is an error there.
    let handlers_of = |generic: &str, ending: &str| {
        let generic = format_ident!("{generic}");
        let handlers = positions.iter().map(|position| match symbols.get(*position) {
            Some(symbol) => {
                let symbol = format_ident!("{symbol}{ending}");
                quote!(#symbol as frameworks::jax::Handler)
            }
            None => {
                quote!(frameworks::jax::#generic::<__OpsmithLibrary, #position> as frameworks::jax::Handler)
            }
        });
        quote!(frameworks::family::first([#(#handlers),*]))
    };
    let (on_cpu, on_card) = (handlers_of("handler", ""), handlers_of("cuda_handler", "_cuda"));
    let handlers = symbols.iter().enumerate().map(|(index, symbol)| {
        let on_cuda = format_ident!("{symbol}_cuda");
        let one = |symbol: &Ident, kind: TokenStream| {
            quote! {
                #[unsafe(no_mangle)]
                unsafe extern "C" fn #symbol(frame: *mut frameworks::jax::CallFrame) -> *mut frameworks::jax::ErrorHandle {
                    let library = <__OpsmithLibrary as frameworks::Root>::library();
                    // SAFETY: passed on from XLA.
                    unsafe { frameworks::jax::handle(library, #index, ::opsmith::DeviceKind::#kind, frame) }
                }
            }
        };
        let (on_cpu, on_card) = (one(symbol, quote!(Cpu)), one(&on_cuda, quote!(Cuda)));
        quote!(#on_cpu #on_card)
    });
    quote! {
        static HANDLERS: [frameworks::jax::Handler; COUNT] = #on_cpu;

        #[unsafe(no_mangle)]
        extern "C" fn opsmith_jax_handler(op: usize) -> ::core::option::Option<frameworks::jax::Handler> {
            HANDLERS.get(op).copied()
        }

        static CUDA_HANDLERS: [frameworks::jax::Handler; COUNT] = #on_card;

        #[unsafe(no_mangle)]
        extern "C" fn opsmith_jax_cuda_handler(op: usize) -> ::core::option::Option<frameworks::jax::Handler> {
            CUDA_HANDLERS.get(op).copied()
        }

        #(#handlers)*
    }
}

/// The function that gives the C ABI's table to the program that the library is part of.
fn table(name: &LitStr, version: &TokenStream) -> TokenStream {
    let doc = format!(" The library `{}` as callers of the C ABI see one.", name.value());
    quote! {
        #[doc = #doc]
        pub fn table() -> &'static ::opsmith::OpsmithLibrary {
            static TABLE: ::opsmith::OpsmithLibrary =
                ::opsmith::__private::frameworks::capi::table::<__OpsmithLibrary>(#name, #version);
            &TABLE
        }
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
