//! From the model of an op to code: the marker type, the kernel and the definition.

use opsmith_core::DType;
use opsmith_core::def::AttrDef;
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Ident, ItemFn};

use super::attribute::arguments;
use super::cuda;
use super::kernel::{call, kernel_type, passed, view_types};
use super::model::{Op, camel_case};
use super::options::{Gradient, Policy};
use super::parameter::{Element, List, Parameter, Role, Tensor};
use super::settled;
use crate::dtypes::rust_type;

/// The function as it is, the op's marker type, its kernel and its definition.
pub(crate) fn expand(op: &Op, function: &ItemFn) -> TokenStream {
    let cfgs: Vec<&Attribute> = function.attrs.iter().filter(|attr| attr.path().is_ident("cfg")).collect();
    let marker = marker(op, function);
    let compute = compute(op, &function.sig.ident);
    let settled = settled::methods(op, &function.sig.ident);
    let kernel = kernel_type(op, function, "__Kernel", None, &compute, settled);
    let cuda = cuda::kernel(op, function);
    let definition = definition(op, &function.sig.ident);
    quote! {
        #[allow(clippy::too_many_arguments)]
        #function

        #(#cfgs)*
        #marker

        #(#cfgs)*
        const _: () = {
            #kernel
            #cuda
            #definition
        };
    }
}

/// A type of the function's name, with braces so that the name as a value stays the function's.
fn marker(op: &Op, function: &ItemFn) -> TokenStream {
    let (vis, ident) = (&function.vis, &function.sig.ident);
    let doc = format!(" The op `{}`: the function [`{ident}`](fn@{ident}) for every framework.", op.name);
    quote! {
        #[doc = #doc]
        #[allow(non_camel_case_types)]
        #vis struct #ident {}
    }
}

/// Binds the dims once, takes views of all arguments and calls the function.
fn compute(op: &Op, function: &Ident) -> TokenStream {
    let (mut inputs, mut outputs) = (0usize.., 0usize..);
    let mut locals = Vec::new();
    let mut arguments = Vec::new();
    let mut gifts = Vec::new();
    for (position, parameter) in op.parameters.iter().enumerate() {
        let local = format_ident!("argument{position}", span = Span::mixed_site());
        let value = match &parameter.role {
            Role::Compute => quote!(&context.compute()),
            Role::Input(tensor) => input(parameter, tensor, inputs.next().unwrap_or_default()),
            Role::Output(tensor) => {
                let index = outputs.next().unwrap_or_default();
                gifts.extend(tensor.found.then(|| give(&local, tensor, index)));
                output(parameter, tensor, index)
            }
            Role::Attr(attribute) => {
                arguments.push(passed(&parameter.ident, attribute));
                continue;
            }
        };
        let list = parameter.tensor().and_then(|tensor| tensor.list);
        let found = parameter.tensor().filter(|tensor| tensor.found).map(|tensor| tensor.optional);
        let (mutable, passed) = match list {
            None if found == Some(true) => {
                (quote!(mut), quote_spanned!(parameter.ty.span()=> #local.as_mut()))
            }
            None if found == Some(false) => (quote!(mut), quote_spanned!(parameter.ty.span()=> &mut #local)),
            Some(List::Slice) => (quote!(), quote_spanned!(parameter.ty.span()=> &#local)),
            Some(List::SliceMut) if !parameter.tensor().is_some_and(|tensor| tensor.optional) => {
                (quote!(mut), quote_spanned!(parameter.ty.span()=> &mut #local))
            }
            Some(List::SliceMut) => {
                (quote!(mut), quote_spanned!(parameter.ty.span()=> #local.as_deref_mut()))
            }
            Some(List::Vec) | None => (quote!(), quote_spanned!(parameter.ty.span()=> #local)),
        };
        locals.push(quote!(let #mutable #local = #value;));
        arguments.push(passed);
    }
    let call = call(op, function, &arguments);
    quote! {
        let shapes = context.bind_shapes()?;
        let _ = &shapes;
        #(#locals)*
        #call
        #(#gifts)*
        ::core::result::Result::Ok(())
    }
}

fn input(parameter: &Parameter, tensor: &Tensor, index: usize) -> TokenStream {
    let (element, dim) = view_types(tensor);
    let method = match (tensor.list, tensor.optional) {
        (Some(_), _) => quote!(view_list),
        (None, true) => quote!(optional_view),
        (None, false) => quote!(view),
    };
    quote_spanned!(parameter.ty.span()=> context.#method::<#element, #dim>(#index)?)
}

fn output(parameter: &Parameter, tensor: &Tensor, index: usize) -> TokenStream {
    let (element, dim) = view_types(tensor);
    let method = if tensor.list.is_some() { quote!(output_view_list) } else { quote!(output_view) };
    let shape = quote!(&shapes.output_shape(#index));
    let make = if tensor.found {
        quote_spanned!(parameter.ty.span()=> ::opsmith::__private::no_elements::<#element, #dim>(#shape))
    } else {
        quote_spanned!(parameter.ty.span()=> context.#method::<#element, #dim>(#index, #shape)?)
    };
    if !tensor.optional {
        return make;
    }
    quote! {
        if context.output_wanted(#index)? {
            ::core::option::Option::Some(#make)
        } else {
            ::core::option::Option::None
        }
    }
}

/// Gives the caller an output that the function has made.
fn give(local: &Ident, tensor: &Tensor, index: usize) -> TokenStream {
    let given =
        |array: TokenStream| quote!(context.give_output(#index, &shapes.output_shape(#index), #array)?;);
    if tensor.optional {
        let give = given(quote!(array));
        return quote!(if let ::core::option::Option::Some(array) = &#local { #give });
    }
    given(quote!(&#local))
}

fn definition<'a>(op: &'a Op, marker: &Ident) -> TokenStream {
    let name = &op.name;
    let doc = op.doc_text();
    let attrs = op.attrs().into_iter().map(|attr| attr.to_string());
    let inputs = op.inputs().map(|(parameter, tensor)| op.spec(parameter, tensor));
    let outputs = op.outputs().map(|(parameter, tensor)| op.spec(parameter, tensor));
    let optional = marked(op, |tensor| tensor.optional);
    let saved = marked(op, |tensor| tensor.saved);
    let shape = &op.shape;
    let stateful = op.stateful.then(|| quote!(.stateful()));
    let autocast = op.autocast.map(Policy::declaration);
    let parallel = op.parallel.iter();
    let (gradient, gradient_check) = gradient(op, marker);
    let is_inferred = |attr: &AttrDef| {
        let is_param = |(_, tensor): (&Parameter, &Tensor)| matches!(&tensor.element, Element::Param(param) if *param == attr.name);
        op.inputs().any(is_param) || op.counts().any(|count| count.name == attr.name)
    };
    let name_of = |(parameter, _): (&'a Parameter, &'a Tensor)| &parameter.name;
    let arguments =
        arguments(name, op.inputs().map(name_of), op.outputs().map(name_of), &op.attrs(), is_inferred);
    let kernels = instances(op);
    quote! {
        #gradient_check

        impl ::opsmith::OpDefinition for #marker {
            #arguments

            fn def() -> ::opsmith::OpDef {
                ::opsmith::OpDef::new(#name)
                    .doc(#doc)
                    #(.attr(#attrs))*
                    #(.input(#inputs))*
                    #(.output(#outputs))*
                    #(.optional(#optional))*
                    #(.saved(#saved))*
                    .shape(#shape)
                    #stateful
                    #gradient
                    #autocast
                    #(.parallel(#parallel))*
                    #(.kernel(#kernels))*
            }
        }
    }
}

fn marked(op: &Op, flag: fn(&Tensor) -> bool) -> impl Iterator<Item = &str> {
    let tensors = op.parameters.iter().filter(move |parameter| parameter.tensor().is_some_and(flag));
    tensors.map(|parameter| parameter.name.as_str())
}

/// The call that declares the gradient, and the item by which the compiler checks that it is an op and fits this one.
fn gradient(op: &Op, marker: &Ident) -> (TokenStream, TokenStream) {
    match &op.gradient {
        Gradient::Undeclared => (quote!(), quote!()),
        Gradient::NotDifferentiable => (quote!(.not_differentiable()), quote!()),
        Gradient::Named(name) => (quote!(.gradient(#name)), quote!()),
        Gradient::Op(path) => {
            let name = path.segments.last().map(|last| camel_case(&last.ident)).unwrap_or_default();
            let check = quote_spanned! {path.span()=>
                const _: () = ::opsmith::__private::check_gradient(
                    &<#marker as ::opsmith::OpDefinition>::ARGUMENTS,
                    &<#path as ::opsmith::OpDefinition>::ARGUMENTS,
                );
            };
            (quote!(.gradient(#name)), check)
        }
    }
}

/// The registration of the kernel for each combination of dtypes.
fn instances(op: &Op) -> Vec<TokenStream> {
    let mut combinations: Vec<Vec<DType>> = vec![Vec::new()];
    for param in &op.type_params {
        combinations = combinations
            .iter()
            .flat_map(|chosen| param.dtypes.iter().map(|dtype| [chosen.as_slice(), &[*dtype]].concat()))
            .collect();
    }
    // Where a dtype lacks what the bounds ask for, the compiler says so at the type parameter.
    let place = op.type_params.first().map_or_else(Span::call_site, |param| param.name.span());
    let strided = op.strided.then(|| quote!(.strided()));
    combinations
        .iter()
        .flat_map(|dtypes| {
            let types: Vec<_> = dtypes.iter().filter_map(|dtype| rust_type(*dtype)).collect();
            let names = op.type_params.iter().map(|param| param.name.to_string());
            let cpu = quote_spanned! {place=>
                ::opsmith::KernelDef::cpu::<__Kernel<#(#types),*>>()#(.type_constraint::<#types>(#names))* #strided
            };
            [cpu].into_iter().chain(cuda::registration(op, dtypes, &types))
        })
        .collect()
}
