//! The CUDA kernel of an op: what stands in a file, launched by the function `<name>_cuda` beside the op's own.

use opsmith_core::DType;
use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::{Ident, ItemFn, LitStr};

use super::kernel::{kernel_type, passed, view_types};
use super::model::Op;
use super::parameter::Role;

/// The name of the kernel's type.
const KERNEL: &str = "__CudaKernel";

/// The kernel's type; nothing where the op has no CUDA kernel.
pub(crate) fn kernel(op: &Op, function: &ItemFn) -> TokenStream {
    let Some(file) = &op.cuda else { return quote!() };
    let launch = format_ident!("{}_cuda", function.sig.ident, span = file.span());
    let body = compute(op, &launch, file);
    let kernel = kernel_type(op, function, KERNEL, Some(quote!(+ ::opsmith::cuda::CudaElement)), &body, None);
    quote! {
        static __SOURCE: ::opsmith::cuda::Source =
            ::opsmith::cuda::Source::new(#file, ::core::include_str!(#file)).beside(::core::file!());

        #kernel
    }
}

/// Takes views of all arguments and calls the launch function, which has the parameters of the op's own but for the
/// first: what the call is.
fn compute(op: &Op, launch: &Ident, file: &LitStr) -> TokenStream {
    let (mut inputs, mut outputs) = (0usize.., 0usize..);
    let mut arguments = Vec::new();
    for parameter in &op.parameters {
        arguments.push(match &parameter.role {
            Role::Compute => continue,
            Role::Attr(attribute) => passed(&parameter.ident, attribute),
            Role::Input(tensor) => {
                let (index, (element, dim)) = (inputs.next().unwrap_or_default(), view_types(tensor));
                match (tensor.host, tensor.optional) {
                    (true, false) => quote!(context.view::<#element, #dim>(#index)?),
                    (true, true) => quote!(context.optional_view::<#element, #dim>(#index)?),
                    (false, false) => quote!(call.input::<#element>(#index)?),
                    (false, true) => quote!(call.optional_input::<#element>(#index)?),
                }
            }
            Role::Output(tensor) => {
                let (index, (element, _)) = (outputs.next().unwrap_or_default(), view_types(tensor));
                let make = quote!(call.output::<#element>(#index, &shapes.output_shape(#index))?);
                match tensor.optional {
                    false => make,
                    true => quote!(if context.output_wanted(#index)? {
                        ::core::option::Option::Some(#make)
                    } else {
                        ::core::option::Option::None
                    }),
                }
            }
        });
    }
    let params = op.type_params.iter().map(|param| &param.name);
    let call = quote_spanned!(file.span()=> #launch::<#(#params),*>(&call #(, #arguments)*));
    quote! {
        let context: &::opsmith::OpKernelContext<'_> = context;
        let shapes = context.bind_shapes()?;
        let _ = &shapes;
        let call = ::opsmith::cuda::CudaCall::new(context, &__SOURCE);
        let outcome: ::opsmith::Result<()> = #call;
        outcome
    }
}

/// The registration of the kernel for dtypes, none for those that CUDA kernels have no elements of.
pub(crate) fn registration(op: &Op, dtypes: &[DType], types: &[TokenStream]) -> Option<TokenStream> {
    let kernel = format_ident!("{KERNEL}");
    let has_elements = |dtype: &DType| {
        use DType::{BFloat16, Bool, Float16, Float32, Float64, Int8, Int16, Int32, Int64};
        use DType::{UInt8, UInt16, UInt32, UInt64};
        matches!(
            dtype,
            BFloat16
                | Bool
                | Float16
                | Float32
                | Float64
                | Int8
                | Int16
                | Int32
                | Int64
                | UInt8
                | UInt16
                | UInt32
                | UInt64
        )
    };
    if op.cuda.is_none() || !dtypes.iter().all(has_elements) {
        return None;
    }
    let names = op.type_params.iter().map(|param| param.name.to_string());
    let capturable = op.capturable.map(|_| quote!(.capturable()));
    let host = op.inputs().filter(|(_, tensor)| tensor.host).map(|(parameter, _)| parameter.name.as_str());
    Some(quote! {
        ::opsmith::KernelDef::cuda::<#kernel<#(#types),*>>()
            #(.type_constraint::<#types>(#names))*
            #(.host_memory(#host))*
            #capturable
    })
}
