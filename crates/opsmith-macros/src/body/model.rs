//! The model of a one-body function: what the function and its options say, apart from how it is expanded.

use opsmith_core::def::AttrDef;
use opsmith_core::family::{Family as Gradients, FamilyArgument, Like, op_name};
use opsmith_core::{Autocast, DType, SignatureBuilder};
use proc_macro2::Span;
use syn::{GenericParam, Ident, ItemFn, ReturnType, TypeParamBound};

use super::options::Options;
use super::parameter::{Number, Parameter, Role, results};
use super::{Family, numbers};
use crate::op::attribute::dtype_attr;
use crate::op::doc::Doc;
use crate::op::model::{camel_case, check_qualifiers, doc_text, one_line};
use crate::op::options::Policy;

/// The most arguments that frameworks take.
const MAX_ARGUMENTS: usize = 64;
/// Of how many orders there are gradient ops unless the author says otherwise, and at most.
const ORDERS: usize = 3;
const MAX_ORDERS: usize = 4;

/// A function that is the arithmetic of an op.
pub(crate) struct OneBody {
    /// CamelCase.
    pub(crate) name: String,
    pub(crate) doc: Doc,
    /// The function's type parameter.
    pub(crate) generic: Ident,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) outputs: Vec<Output>,
    /// Whether the function returns a tuple, an array or one number.
    pub(crate) result: ResultKind,
    pub(crate) dtypes: Vec<DType>,
    /// Of how many orders there are gradient ops.
    pub(crate) orders: usize,
    /// What PyTorch's autocast does with the inputs.
    pub(crate) autocast: Option<Policy>,
}

/// An output of the op.
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) number: Number,
}

/// How the function returns its outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultKind {
    One,
    Tuple,
    Array,
}

impl OneBody {
    /// Reads the function, and takes away the attributes on its parameters that are for the macro.
    pub(crate) fn new(family: &Family, options: &Options, function: &mut ItemFn) -> syn::Result<OneBody> {
        check_qualifiers(function)?;
        let place = function.sig.ident.span();
        let generic = type_parameter(family, function)?;
        let arguments = function.sig.inputs.iter_mut();
        let parameters = arguments
            .map(|argument| Parameter::new(family, &generic, argument))
            .collect::<syn::Result<Vec<_>>>()?;
        check_names(&parameters)?;
        numbers::check(&generic, family.bound == "Rows", &parameters, &function.block)?;
        if !parameters.iter().any(|parameter| matches!(parameter.role, Role::Input(_))) {
            let message =
                format!("an op of #[{}] has at least one input, of type {}", family.name, family.numbers);
            return Err(syn::Error::new(place, message));
        }
        let numbers = results(family, &generic, &function.sig.output, place)?;
        let outputs = outputs(family, options, &parameters, numbers, place)?;
        let (name, name_span) = match &options.name {
            Some(name) => (name.value(), name.span()),
            None => (camel_case(&function.sig.ident), place),
        };
        let is_name = |name: &str| {
            parameters.iter().any(|parameter| parameter.name == name)
                || outputs.iter().any(|output| output.name == name)
        };
        let mut doc = Doc::new(&function.attrs, is_name);
        let own = parameters.iter().filter(|parameter| !parameter.doc.is_empty());
        doc.entries.extend(own.map(|parameter| (parameter.name.clone(), one_line(&parameter.doc))));
        let mut body = OneBody {
            name,
            doc,
            generic,
            parameters,
            outputs,
            result: result_kind(&function.sig.output),
            dtypes: options.dtypes.clone(),
            orders: 0,
            autocast: None,
        };
        body.autocast = options.autocast.or_else(|| body.usual_autocast(place));
        body.orders = body.possible_orders(options)?;
        body.check(name_span)?;
        Ok(body)
    }

    /// Inputs have to agree: where they may differ under autocast, they become the widest among them.
    fn usual_autocast(&self, place: Span) -> Option<Policy> {
        let is_cast = |dtype: &&DType| matches!(dtype, DType::Float16 | DType::BFloat16 | DType::Float32);
        let numbers = self.input_numbers().filter(|number| number.dtype() == "T").count();
        let may_differ = numbers > 1 && self.dtypes.iter().filter(is_cast).count() > 1;
        may_differ.then_some(Policy { policy: Autocast::Widest, place })
    }

    /// The inputs, in order.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(|parameter| matches!(parameter.role, Role::Input(_)))
    }

    /// What the inputs are.
    pub(crate) fn input_numbers(&self) -> impl Iterator<Item = Number> {
        self.parameters.iter().filter_map(|parameter| match parameter.role {
            Role::Input(number) => Some(number),
            _ => None,
        })
    }

    /// The definitions of the attributes that callers give, in order.
    pub(crate) fn attrs(&self) -> impl Iterator<Item = &AttrDef> {
        self.parameters.iter().filter_map(|parameter| parameter.attribute().map(|attribute| &attribute.def))
    }

    /// The definition of the dtype attribute.
    pub(crate) fn dtype_attr(&self) -> AttrDef {
        dtype_attr("T".to_owned(), &self.dtypes)
    }

    /// Puts the shape of each argument, inputs first, before what its documentation says.
    pub(crate) fn show_shapes(&mut self, shapes: &[String]) {
        let names = self.inputs().map(|parameter| parameter.name.clone());
        let names: Vec<String> = names.chain(self.outputs.iter().map(|output| output.name.clone())).collect();
        for (name, shape) in names.into_iter().zip(shapes) {
            match self.doc.entries.iter_mut().find(|(own, _)| *own == name) {
                Some((_, text)) => *text = format!("Shape {shape}. {text}"),
                None => self.doc.entries.push((name, format!("Shape {shape}."))),
            }
        }
    }

    /// The documentation as the definition takes it.
    pub(crate) fn doc_text(&self) -> String {
        doc_text(&self.doc)
    }

    /// The op and its gradients.
    fn gradients(&self) -> Gradients {
        let inputs: Vec<&str> = self.inputs().map(|parameter| parameter.name.as_str()).collect();
        let outputs: Vec<&str> = self.outputs.iter().map(|output| output.name.as_str()).collect();
        let numbers: Vec<Number> = self.input_numbers().collect();
        Gradients::new(&inputs, &outputs).with_numbers(|input| numbers[input].dtype() == "T")
    }

    /// How many arguments a graph has for these, each of whose parts is one.
    fn count(&self, arguments: &[FamilyArgument]) -> usize {
        let parts: Vec<usize> = self.inputs().map(|input| input.parts.iter().product()).collect();
        let of = |argument: &FamilyArgument| match argument.like {
            Like::Input(input) => parts[input],
            Like::Output(_) => 1,
        };
        arguments.iter().map(of).fold(0, usize::saturating_add)
    }

    /// The orders that are asked for; unless they are, as many of the usual ones as frameworks can take.
    fn possible_orders(&self, options: &Options) -> syn::Result<usize> {
        if self.outputs.iter().any(|output| output.number.dtype() != "T") {
            return Ok(0);
        }
        let fits = |order: usize| {
            let family = self.gradients().order(order);
            [&family.inputs, &family.outputs].into_iter().all(|own| self.count(own) <= MAX_ARGUMENTS)
        };
        let Some(orders) = &options.orders else {
            return Ok((0..=ORDERS).rev().find(|&order| fits(order)).unwrap_or(0));
        };
        let count = orders.base10_parse().ok().filter(|count| *count <= MAX_ORDERS);
        let count = count.ok_or_else(|| {
            let message = format!("`orders` must be a number from 0 to {MAX_ORDERS}");
            syn::Error::new(orders.span(), message)
        })?;
        if !fits(count) {
            let message = format!(
                "the gradient of order {count} would have more than {MAX_ARGUMENTS} inputs or outputs"
            );
            return Err(syn::Error::new(orders.span(), message));
        }
        Ok(count)
    }

    /// Tells at compile time what the library would find wrong with the definitions.
    fn check(&self, place: Span) -> syn::Result<()> {
        for order in 0..=self.orders {
            let family = self.gradients().order(order);
            if [&family.inputs, &family.outputs].into_iter().any(|own| self.count(own) > MAX_ARGUMENTS) {
                let message = format!(
                    "an op has at most {MAX_ARGUMENTS} inputs and as many outputs, each part counted"
                );
                return Err(syn::Error::new(place, message));
            }
            let mut builder = SignatureBuilder::new(op_name(&self.name, order));
            for attr in self.attrs().chain([&self.dtype_attr()]) {
                builder = builder.attr(attr.to_string());
            }
            let numbers: Vec<Number> = self.input_numbers().collect();
            for input in &family.inputs {
                let dtype = match input.like {
                    Like::Input(place) if !input.is_number => numbers[place].dtype(),
                    _ => "T",
                };
                builder = builder.input(format!("{}: {dtype}", input.name));
            }
            for output in &family.outputs {
                builder = builder.output(format!("{}: T", output.name));
            }
            let signature = builder.build().map_err(|error| syn::Error::new(place, error.message()))?;
            if let (0, Some(Policy { policy, place })) = (order, self.autocast) {
                policy
                    .check(&signature)
                    .map_err(|error| syn::Error::new(place, error.with_op(&signature.name).message()))?;
            }
        }
        Ok(())
    }
}

/// The one type parameter, which the family's trait bounds.
fn type_parameter(family: &Family, function: &ItemFn) -> syn::Result<Ident> {
    let Family { name, bound, .. } = family;
    let letter = &bound[..1];
    let wanted = format!(
        "a function of #[{name}] is generic over one type, the numbers: `fn {}<{letter}: {bound}>`",
        function.sig.ident
    );
    let params = &function.sig.generics.params;
    let (Some(GenericParam::Type(param)), 1) = (params.first(), params.len()) else {
        return Err(match params.is_empty() {
            true => syn::Error::new(function.sig.ident.span(), wanted),
            false => syn::Error::new_spanned(params, wanted),
        });
    };
    let is_bound = |one: &TypeParamBound| matches!(one, TypeParamBound::Trait(path) if path.path.segments.last().is_some_and(|last| last.ident == bound));
    if param.bounds.iter().any(is_bound) && function.sig.generics.where_clause.is_none() {
        return Ok(param.ident.clone());
    }
    let message = format!("`{}` must have the bound `{bound}`, without a `where` clause", param.ident);
    Err(syn::Error::new_spanned(param, message))
}

fn check_names(parameters: &[Parameter]) -> syn::Result<()> {
    for (position, parameter) in parameters.iter().enumerate() {
        if parameters[..position].iter().any(|other| other.name == parameter.name) {
            let message = format!("two arguments have the name `{}`", parameter.name);
            return Err(syn::Error::new(parameter.ident.span(), message));
        }
    }
    Ok(())
}

/// The outputs with their names.
fn outputs(
    family: &Family,
    options: &Options,
    parameters: &[Parameter],
    numbers: Vec<Number>,
    place: Span,
) -> syn::Result<Vec<Output>> {
    let is_free = |name: &str| parameters.iter().all(|parameter| parameter.name != name);
    let names: Vec<String> = match &options.outputs {
        Some(idents) => {
            if idents.len() != numbers.len() {
                let place = idents.first().map_or(place, Ident::span);
                let message = format!(
                    "{} of outputs for a function that returns {}",
                    count(idents.len(), "name"),
                    count(numbers.len(), "number")
                );
                return Err(syn::Error::new(place, message));
            }
            for (position, ident) in idents.iter().enumerate() {
                if !is_free(&ident.to_string()) || idents[..position].contains(ident) {
                    let message = format!("two arguments have the name `{ident}`");
                    return Err(syn::Error::new(ident.span(), message));
                }
            }
            idents.iter().map(ToString::to_string).collect()
        }
        None if numbers.len() == 1 => {
            let free = family.output_names.iter().find(|name| is_free(name));
            let free = free.ok_or_else(|| syn::Error::new(place, "name the output: output = result"))?;
            vec![(*free).to_owned()]
        }
        None => {
            let signature = if family.name == "body" { "\"…\", " } else { "" };
            let message =
                format!("name the outputs: #[{}({signature}outputs = [first, second])]", family.name);
            return Err(syn::Error::new(place, message));
        }
    };
    Ok(names.into_iter().zip(numbers).map(|(name, number)| Output { name, number }).collect())
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn result_kind(output: &ReturnType) -> ResultKind {
    match output {
        ReturnType::Type(_, ty) if matches!(**ty, syn::Type::Tuple(_)) => ResultKind::Tuple,
        ReturnType::Type(_, ty) if matches!(**ty, syn::Type::Array(_)) => ResultKind::Array,
        _ => ResultKind::One,
    }
}
