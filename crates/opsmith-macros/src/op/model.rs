//! The model of an op: what the function and its options say, apart from how it is expanded.

use std::ops::Bound;

use opsmith_core::SignatureBuilder;
use opsmith_core::attr::{AttrBase, AttrType, AttrValue};
use opsmith_core::def::AttrDef;
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::{Ident, ItemFn, LitStr, ReturnType, Safety, Type};

use super::attribute::dtype_attr;
use super::doc::Doc;
use super::generics::{TypeParam, last_segment, type_arguments, type_params};
use super::options::{Gradient, Options, Policy};
use super::parameter::{Element, Parameter, Role, Tensor};

/// An op as its author wrote it.
pub(crate) struct Op {
    /// CamelCase.
    pub(crate) name: String,
    /// Where the name comes from.
    pub(crate) name_span: Span,
    pub(crate) doc: Doc,
    pub(crate) type_params: Vec<TypeParam>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) shape: LitStr,
    pub(crate) gradient: Gradient,
    pub(crate) stateful: bool,
    pub(crate) strided: bool,
    /// The file with the CUDA kernels.
    pub(crate) cuda: Option<LitStr>,
    /// Where it says that the CUDA kernel may be recorded and replayed.
    pub(crate) capturable: Option<Span>,
    pub(crate) autocast: Option<Policy>,
    pub(crate) parallel: Option<LitStr>,
    /// The type that the function returns, where it is a `Result`.
    pub(crate) result: Option<Type>,
}

impl Op {
    /// Reads the function, and takes away the attributes on its parameters that are for `#[op]`.
    pub(crate) fn new(options: Options, function: &mut ItemFn) -> syn::Result<Op> {
        check_qualifiers(function)?;
        let type_params = type_params(&function.sig.generics, &options.dtypes)?;
        let arguments = function.sig.inputs.iter_mut().enumerate();
        let parameters = arguments
            .map(|(position, argument)| Parameter::new(argument, position, &type_params))
            .collect::<syn::Result<Vec<_>>>()?;
        let (name, name_span) = match &options.name {
            Some(name) => (name.value(), name.span()),
            None => (camel_case(&function.sig.ident), function.sig.ident.span()),
        };
        let is_name = |name: &str| {
            parameters.iter().any(|parameter| parameter.name == name)
                || type_params.iter().any(|param| param.name == name)
        };
        let mut doc = Doc::new(&function.attrs, is_name);
        let own = parameters.iter().filter(|parameter| !parameter.doc.is_empty());
        doc.entries.extend(own.map(|parameter| (parameter.name.clone(), one_line(&parameter.doc))));
        Ok(Op {
            name,
            name_span,
            doc,
            type_params,
            parameters,
            shape: options.shape,
            gradient: options.gradient,
            stateful: options.stateful,
            strided: options.strided,
            cuda: options.cuda,
            capturable: options.capturable,
            autocast: options.autocast,
            parallel: options.parallel,
            result: result_type(&function.sig.output)?,
        })
    }

    /// The inputs, in order.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = (&Parameter, &Tensor)> {
        self.parameters.iter().filter_map(|parameter| match &parameter.role {
            Role::Input(tensor) => Some((parameter, tensor)),
            _ => None,
        })
    }

    /// The outputs, in order.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (&Parameter, &Tensor)> {
        self.parameters.iter().filter_map(|parameter| match &parameter.role {
            Role::Output(tensor) => Some((parameter, tensor)),
            _ => None,
        })
    }

    /// The attributes, in order: those of parameters, then the lengths of lists, then the dtypes.
    pub(crate) fn attrs(&self) -> Vec<AttrDef> {
        let own = self.parameters.iter().filter_map(|parameter| match &parameter.role {
            Role::Attr(attribute) => Some(attribute.def.clone()),
            _ => None,
        });
        let dtypes = self.type_params.iter().map(|param| dtype_attr(param.name.to_string(), &param.dtypes));
        own.chain(self.counts()).chain(dtypes).collect()
    }

    /// The documentation as the definition takes it: the op's, then a line for each argument.
    pub(crate) fn doc_text(&self) -> String {
        doc_text(&self.doc)
    }

    /// The definition, as the library will build it again.
    pub(crate) fn signature(&self) -> SignatureBuilder {
        let mut builder = SignatureBuilder::new(&self.name).doc(self.doc_text());
        for attr in self.attrs() {
            builder = builder.attr(attr.to_string());
        }
        for (parameter, tensor) in self.inputs() {
            builder = builder.input(self.spec(parameter, tensor));
        }
        for (parameter, tensor) in self.outputs() {
            builder = builder.output(self.spec(parameter, tensor));
        }
        builder
    }

    /// The spec of an argument: `x: T`, of a list `x: N * T`.
    pub(crate) fn spec(&self, parameter: &Parameter, tensor: &Tensor) -> String {
        let count =
            if tensor.list.is_some() { format!("{} * ", self.count_name(parameter)) } else { String::new() };
        match &tensor.element {
            Element::Fixed(dtype) => format!("{}: {count}{dtype}", parameter.name),
            Element::Param(param) => format!("{}: {count}{param}", parameter.name),
        }
    }

    /// The inputs that are lists.
    fn input_lists(&self) -> impl Iterator<Item = &Parameter> {
        self.inputs().filter(|(_, tensor)| tensor.list.is_some()).map(|(parameter, _)| parameter)
    }

    /// The input that is as long as this list: itself, for an output `x_grad` the input `x`, or the only one that is a list.
    pub(crate) fn length_of(&self, list: &Parameter) -> Option<&Parameter> {
        let own = list.name.strip_suffix("_grad").unwrap_or(&list.name);
        let mut lists = self.input_lists();
        let named = self.input_lists().find(|input| input.name == list.name || input.name == own);
        named.or_else(|| lists.next().filter(|_| lists.next().is_none()))
    }

    /// The attribute that is the length of a list.
    fn count_name(&self, list: &Parameter) -> String {
        match (self.length_of(list), self.input_lists().count()) {
            (Some(input), 2..) => format!("N_{}", input.name),
            _ => "N".to_owned(),
        }
    }

    /// The definitions of the lengths of lists, which the lists that callers give decide.
    pub(crate) fn counts(&self) -> impl Iterator<Item = AttrDef> {
        self.input_lists().map(|list| AttrDef {
            min: Bound::Included(AttrValue::Int(1)),
            ..AttrDef::new(self.count_name(list), AttrType { base: AttrBase::Int, list: false })
        })
    }
}

/// Documentation as a definition takes it: the op's, then a line for each argument.
pub(crate) fn doc_text(doc: &Doc) -> String {
    let entries: String = doc.entries.iter().map(|(name, text)| format!("\n{name}: {text}")).collect();
    if entries.is_empty() { doc.text.clone() } else { format!("{}\n{entries}", doc.text) }
}

/// That the function is a plain one.
pub(crate) fn check_qualifiers(function: &ItemFn) -> syn::Result<()> {
    let signature = &function.sig;
    if let Some(keyword) = &signature.asyncness {
        return Err(syn::Error::new(keyword.span(), "an op computes when it is called: it cannot be async"));
    }
    if let Safety::Unsafe(keyword) = &signature.safety {
        return Err(syn::Error::new(
            keyword.span(),
            "an op cannot be unsafe: frameworks call it and know no preconditions",
        ));
    }
    if let Some(abi) = &signature.abi {
        return Err(syn::Error::new_spanned(
            abi,
            "an op cannot have another ABI: frameworks call it through the library",
        ));
    }
    match &signature.variadic {
        Some(variadic) => {
            Err(syn::Error::new_spanned(variadic, "an op cannot be variadic: name each argument"))
        }
        None => Ok(()),
    }
}

/// The `Result` that the function returns, `None` when it returns nothing.
fn result_type(output: &ReturnType) -> syn::Result<Option<Type>> {
    let ReturnType::Type(_, ty) = output else { return Ok(None) };
    if is_unit(ty) {
        return Ok(None);
    }
    let value =
        last_segment(ty).filter(|last| last.ident == "Result").and_then(|last| type_arguments(last).next());
    match value {
        Some(value) if is_unit(value) => Ok(Some((**ty).clone())),
        _ => {
            let message = "an op's function returns nothing or `Result<()>`; outputs are parameters of type \
                           ArrayViewMutN";
            Err(syn::Error::new_spanned(ty, message))
        }
    }
}

fn is_unit(ty: &Type) -> bool {
    matches!(ty, Type::Tuple(tuple) if tuple.elems.is_empty())
}

/// `pairwise_distance` → `PairwiseDistance`; what is CamelCase stays so.
pub(crate) fn camel_case(ident: &Ident) -> String {
    let text = ident.to_string();
    let mut camel = String::with_capacity(text.len());
    for word in text.trim_start_matches("r#").split('_') {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.extend(letters);
    }
    camel
}

/// The text with its lines joined.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn op(options: Options, mut function: ItemFn) -> Op {
        Op::new(options, &mut function).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn names_become_camel_case() {
        for (name, camel) in
            [("zero_out", "ZeroOut"), ("zero_out2", "ZeroOut2"), ("r#move", "Move"), ("MatMul", "MatMul")]
        {
            assert_eq!(camel_case(&syn::parse_str(name).unwrap()), camel);
        }
    }

    #[test]
    fn a_function_becomes_a_definition() {
        let op = op(
            parse_quote!(shape = "(n),(m),()->(n),(m)", dtypes(S = [i32, i64])),
            parse_quote! {
                /// Does it all.
                ///
                /// x: The input.
                fn all_kinds<T: Float, S, R: Integer>(
                    cx: &Compute,
                    x: ArrayView1<T>,
                    #[attr(default = 2, min = 1, max = 9)] a: i64,
                    rows: Option<ArrayView1<S>>,
                    _scale: ArrayView0<f64>,
                    /// Every
                    /// value.
                    z: ArrayViewMut1<T>,
                    #[saved] w: Option<ArrayViewMut1<R>>,
                    #[attr(one_of = ["it's", "b"], default = "b")] mode: &str,
                    #[attr(min_len = 1)] sizes: &[i64],
                    #[attr] count: usize,
                ) -> Result<()>
                where
                    S: Integer,
                {}
            },
        );
        let signature = op.signature().build().unwrap();
        let attrs: Vec<String> = signature.attrs.iter().map(ToString::to_string).collect();
        assert_eq!(op.name, "AllKinds");
        assert_eq!(
            attrs[..4],
            [
                "a: int >= 1 <= 9 = 2",
                "mode: {'it\\'s', 'b'} = 'b'",
                "sizes: list(int) >= 1",
                "count: int >= 0"
            ]
        );
        assert_eq!(attrs[4..6], ["T: {float32, float64}", "S: {int32, int64}"]);
        assert!(!signature.attrs[6].inferred, "R is in no input");
        let inputs: Vec<String> = op.inputs().map(|(parameter, tensor)| op.spec(parameter, tensor)).collect();
        assert_eq!(inputs, ["x: T", "rows: S", "scale: float64"]);
        assert_eq!(signature.inputs[0].doc, "The input.");
        assert_eq!(signature.outputs[0].doc, "Every value.");
        assert_eq!(signature.doc, "Does it all.");
        let flags: Vec<_> = op.outputs().map(|(_, tensor)| (tensor.optional, tensor.saved)).collect();
        assert_eq!(flags, [(false, false), (true, true)]);
        assert!(op.result.is_some());
    }
}
