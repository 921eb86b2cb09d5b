//! How an op looks in PyTorch: its schema text, and where each argument of the schema goes.
//!
//! Inputs come first, in the definition's order, then `tensor` attributes, then by keyword the attributes that must
//! be given and those that have a default, and last, for an op with optional outputs, `wanted`, a bit mask of the
//! outputs to compute. Attributes that the inputs decide do not appear.

use std::fmt::Write;

use opsmith_core::attr::{AttrBase, AttrType, AttrValue};
use opsmith_core::def::{Allowed, ArgDef, ArgType, AttrDef};
use opsmith_core::{DType, Parallel, Signature};

use crate::names::python_name;

/// Where an argument of the schema goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// A tensor: this input of the definition.
    Tensor(usize),
    /// A tensor or none: this input of the definition.
    OptionalTensor(usize),
    /// A list of tensors: this input of the definition.
    TensorList(usize),
    /// A value: this attribute of the definition.
    Attr {
        /// Its position in the definition.
        index: usize,
        /// Its type.
        ty: AttrType,
        /// Whether none stands for the default, or for an unknown rank.
        optional: bool,
    },
    /// The bit mask of wanted outputs.
    Wanted,
}

/// An op as PyTorch knows it.
#[derive(Debug)]
pub(super) struct Binding {
    /// The name after the namespace: `zero_out`.
    pub(super) name: String,
    /// `zero_out(Tensor to_zero, *, int preserve_index=0) -> Tensor`.
    pub(super) schema: String,
    /// Where the arguments go, in the schema's order.
    pub(super) slots: Vec<Slot>,
    /// Whether a call may carry a tensor, so that its device chooses the kernel.
    pub(super) may_have_tensors: bool,
    /// Whether a call may carry no tensor, so that nothing chooses the kernel.
    pub(super) may_lack_tensors: bool,
    /// Whether it changes an input in place.
    pub(super) changes_inputs: bool,
    /// Whether results have their dims in the order in which they lie in memory in an input.
    pub(super) keeps_order: bool,
    /// Whether lists or strings cross, which PyTorch before 2.10 does not pass.
    pub(super) uses_lists_or_strings: bool,
    /// Why PyTorch cannot have the op at all.
    pub(super) unsupported: Option<String>,
}

/// An argument of the schema while it is being written.
struct Parameter {
    ty: String,
    name: String,
    default: Option<String>,
    slot: Slot,
}

impl Binding {
    /// The op with this definition and these free axes as PyTorch is to know it.
    pub(super) fn new(signature: &Signature, parallel: Option<&Parallel>) -> Binding {
        let mut names = Names::default();
        let positional = positional(signature, &mut names);
        let keyword = keyword(signature, &mut names);
        let tensor_attrs = signature.attrs.iter().filter(|attr| is_tensor(attr));
        let required_tensor = signature.inputs.iter().any(|arg| !arg.optional && !arg.count.is_list())
            || tensor_attrs.clone().any(|attr| attr.default.is_none() && !attr.ty.list);
        let name = python_name(&signature.snake_name());
        let schema = text(&name, &positional, &keyword, signature);
        Binding {
            uses_lists_or_strings: schema.contains("[]") || schema.contains("str"),
            slots: positional.iter().chain(&keyword).map(|parameter| parameter.slot).collect(),
            may_have_tensors: !positional.is_empty(),
            may_lack_tensors: !required_tensor,
            changes_inputs: signature.inputs.iter().any(|arg| arg.is_ref),
            keeps_order: parallel.is_some_and(Parallel::may_permute_dims),
            unsupported: unsupported(signature),
            name,
            schema,
        }
    }
}

fn is_tensor(attr: &AttrDef) -> bool {
    attr.ty.base == AttrBase::Tensor
}

/// The inputs, and the `tensor` attributes: PyTorch's autograd wants every tensor to be positional.
fn positional(signature: &Signature, names: &mut Names) -> Vec<Parameter> {
    let mut refs = 0;
    let inputs = signature.inputs.iter().enumerate().map(|(index, arg)| {
        let alias = if arg.is_ref { alias(&mut refs) } else { String::new() };
        let (ty, slot) = match arg {
            _ if arg.count.is_list() => (format!("Tensor{alias}[]"), Slot::TensorList(index)),
            _ if arg.optional => (format!("Tensor{alias}?"), Slot::OptionalTensor(index)),
            _ => (format!("Tensor{alias}"), Slot::Tensor(index)),
        };
        Parameter { ty, name: names.take(&arg.name), default: None, slot }
    });
    let mut parameters: Vec<Parameter> = inputs.collect();
    parameters.extend(in_order(signature, is_tensor).map(|(index, attr)| {
        let list = if attr.ty.list { "[]" } else { "" };
        let optional = attr.default.is_some();
        let ty = format!("Tensor{list}{}", if optional { "?" } else { "" });
        Parameter {
            ty,
            name: names.take(&attr.name),
            default: None,
            slot: Slot::Attr { index, ty: attr.ty, optional },
        }
    }));
    // What may be absent can be left out only when nothing that must be given follows.
    for parameter in parameters.iter_mut().rev().take_while(|parameter| parameter.ty.ends_with('?')) {
        parameter.default = Some("None".to_owned());
    }
    parameters
}

/// The attributes that are passed by keyword, and `wanted`.
fn keyword(signature: &Signature, names: &mut Names) -> Vec<Parameter> {
    let attrs = in_order(signature, |attr| !is_tensor(attr));
    let mut parameters: Vec<Parameter> = attrs.map(|(index, attr)| attribute(index, attr, names)).collect();
    if signature.outputs.iter().any(|output| output.optional) {
        let name = names.take("wanted");
        parameters.push(Parameter {
            ty: "int".to_owned(),
            name,
            default: Some("-1".to_owned()),
            slot: Slot::Wanted,
        });
    }
    parameters
}

/// The attributes that callers give and `which` picks: first those that must be given.
fn in_order(signature: &Signature, which: fn(&AttrDef) -> bool) -> impl Iterator<Item = (usize, &AttrDef)> {
    let given = move |defaulted: bool| {
        signature
            .attrs
            .iter()
            .enumerate()
            .filter(move |(_, attr)| !attr.inferred && which(attr) && attr.default.is_some() == defaulted)
    };
    given(false).chain(given(true))
}

fn attribute(index: usize, attr: &AttrDef, names: &mut Names) -> Parameter {
    let ty = base_type(attr.ty);
    let default = attr.default.as_ref().map(default_text);
    // A required shape may be none, which is an unknown rank; a default that has no text is taken when none is given.
    let unknown_rank = attr.ty == (AttrType { base: AttrBase::Shape, list: false }) && attr.default.is_none();
    let optional = unknown_rank || matches!(default, Some(None));
    Parameter {
        ty: if optional { format!("{ty}?") } else { ty.to_owned() },
        name: names.take(&attr.name),
        default: default.map(|text| text.unwrap_or_else(|| "None".to_owned())),
        slot: Slot::Attr { index, ty: attr.ty, optional },
    }
}

fn base_type(ty: AttrType) -> &'static str {
    match (ty.base, ty.list) {
        (AttrBase::String, false) => "str",
        (AttrBase::String, true) => "str[]",
        (AttrBase::Int, false) => "int",
        (AttrBase::Int, true) | (AttrBase::Shape, false) => "int[]",
        (AttrBase::Float, false) => "float",
        (AttrBase::Float, true) => "float[]",
        (AttrBase::Bool, false) => "bool",
        (AttrBase::Bool, true) => "bool[]",
        (AttrBase::Type, false) => "ScalarType",
        (AttrBase::Type, true) => "ScalarType[]",
        (AttrBase::Shape, true) => "int[][]",
        (AttrBase::Tensor, false) => "Tensor",
        (AttrBase::Tensor, true) => "Tensor[]",
    }
}

/// A default as the schema language writes it, or `None` where it has no way that every release reads.
fn default_text(value: &AttrValue) -> Option<String> {
    match value {
        AttrValue::Int(n) => int_text(*n),
        AttrValue::Float(x) => float_text(*x),
        AttrValue::Bool(b) => Some(bool_text(*b).to_owned()),
        AttrValue::String(s) => {
            let plain = |c: char| c == ' ' || (c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\'));
            s.chars().all(plain).then(|| format!("\"{s}\""))
        }
        AttrValue::Ints(v) => list_text(v.iter().map(|&n| int_text(n))),
        AttrValue::Floats(v) => list_text(v.iter().map(|&x| float_text(x))),
        AttrValue::Bools(v) => list_text(v.iter().map(|&b| Some(bool_text(b).to_owned()))),
        AttrValue::Shape(Some(dims)) => list_text(dims.iter().map(|dim| match dim {
            Some(size) => int_text(i64::try_from(*size).ok()?),
            None => Some("-1".to_owned()),
        })),
        _ => None,
    }
}

fn int_text(n: i64) -> Option<String> {
    // The sign is read apart from the digits, which must fit by themselves.
    (n != i64::MIN).then(|| n.to_string())
}

fn float_text(x: f64) -> Option<String> {
    x.is_finite().then(|| format!("{x:?}"))
}

fn bool_text(b: bool) -> &'static str {
    if b { "True" } else { "False" }
}

fn list_text(elements: impl Iterator<Item = Option<String>>) -> Option<String> {
    Some(format!("[{}]", elements.collect::<Option<Vec<_>>>()?.join(", ")))
}

fn text(name: &str, positional: &[Parameter], keyword: &[Parameter], signature: &Signature) -> String {
    let write = |parameter: &Parameter| {
        let mut text = format!("{} {}", parameter.ty, parameter.name);
        if let Some(default) = &parameter.default {
            let _ = write!(text, "={default}");
        }
        text
    };
    let mut parameters: Vec<String> = positional.iter().map(write).collect();
    if !keyword.is_empty() {
        parameters.push("*".to_owned());
        parameters.extend(keyword.iter().map(write));
    }
    let output = |arg: &ArgDef| if arg.count.is_list() { "Tensor[]" } else { "Tensor" };
    let outputs: Vec<&str> = signature.outputs.iter().map(output).collect();
    let outputs =
        if let [one] = outputs.as_slice() { (*one).to_owned() } else { format!("({})", outputs.join(", ")) };
    format!("{name}({}) -> {outputs}", parameters.join(", "))
}

/// `(a!)`, `(b!)`, …: PyTorch's mark of an argument that is changed.
fn alias(count: &mut usize) -> String {
    let index = *count;
    *count += 1;
    let letter = char::from(b'a' + (index % 26) as u8);
    if index < 26 { format!("({letter}!)") } else { format!("({letter}{}!)", index / 26) }
}

/// The names given out so far: two that differ in the definition must differ in the schema.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    fn take(&mut self, name: &str) -> String {
        let mut name = python_name(name);
        while self.0.contains(&name) {
            name.push('_');
        }
        self.0.push(name.clone());
        name
    }
}

/// Why PyTorch cannot have an op, if it cannot: an input or output that is always of a dtype it lacks.
pub(super) fn unsupported(signature: &Signature) -> Option<String> {
    let lacking = |arg: &ArgDef| {
        let allowed: &[DType] = match &arg.dtype {
            ArgType::Fixed(dtype) => std::slice::from_ref(dtype),
            ArgType::Attr(index) | ArgType::List(index) => match &signature.attrs[*index].allowed {
                Some(Allowed::Types(types)) => types,
                _ => return None,
            },
        };
        let all_lacking = !allowed.is_empty() && allowed.iter().all(|dtype| !has_dtype(*dtype));
        all_lacking
            .then(|| format!("`{}` is {}, and PyTorch has no such plain tensors", arg.name, allowed[0]))
    };
    signature.inputs.iter().chain(&signature.outputs).filter(|arg| !arg.optional).find_map(lacking)
}

/// Whether PyTorch has plain tensors of a dtype.
fn has_dtype(dtype: DType) -> bool {
    dtype != DType::String && !opsmith_core::dtype::sets::QUANTIZED.contains(&dtype)
}

#[cfg(test)]
mod tests {
    use opsmith_core::SignatureBuilder;

    use super::*;

    fn binding(builder: SignatureBuilder) -> Binding {
        Binding::new(&builder.build().expect("a definition that is well formed"), None)
    }

    fn schema(builder: SignatureBuilder) -> String {
        binding(builder).schema
    }

    #[test]
    fn inputs_then_required_then_defaulted_attributes() {
        let op = SignatureBuilder::new("MedianPool")
            .attr("padding: {'SAME', 'VALID'} = 'SAME'")
            .attr("ksize: list(int)")
            .attr("T: {float, double}")
            .input("x: T")
            .output("y: T")
            .output("at: int64");
        let expected = "median_pool(Tensor x, *, int[] ksize, str padding=\"SAME\") -> (Tensor, Tensor)";
        assert_eq!(schema(op), expected);
    }

    #[test]
    fn a_type_that_no_input_decides_is_given() {
        let op = SignatureBuilder::new("Ones").attr("T: {float, int32}").attr("shape: shape").output("y: T");
        let binding = binding(op);
        assert_eq!(binding.schema, "ones(*, ScalarType T, int[]? shape) -> Tensor");
        assert!(binding.may_lack_tensors && !binding.may_have_tensors);
    }

    #[test]
    fn lists_options_and_references() {
        let op = SignatureBuilder::new("Mix")
            .attr("N: int >= 1")
            .attr("T: type")
            .attr("S: list(type)")
            .input("xs: N * T")
            .input("ys: S")
            .input("state: Ref(T)")
            .input("other: Ref(T)")
            .input("bias: T")
            .output("zs: N * T")
            .optional("bias");
        let expected = "mix(Tensor[] xs, Tensor[] ys, Tensor(a!) state, Tensor(b!) other, Tensor? bias=None) -> Tensor[]";
        assert_eq!(schema(op), expected);
    }

    #[test]
    fn only_trailing_options_can_be_left_out() {
        let op = SignatureBuilder::new("Pick").input("a: float").input("b: float").optional("a");
        assert_eq!(schema(op), "pick(Tensor? a, Tensor b) -> ()");
    }

    #[test]
    fn optional_outputs_are_asked_for_by_a_mask() {
        let op = SignatureBuilder::new("Both")
            .input("x: float")
            .output("a: float")
            .output("b: float")
            .optional("b");
        let binding = binding(op);
        assert_eq!(binding.schema, "both(Tensor x, *, int wanted=-1) -> (Tensor, Tensor)");
        assert_eq!(binding.slots, [Slot::Tensor(0), Slot::Wanted]);
    }

    #[test]
    fn defaults_that_have_no_text_become_none() {
        let op = SignatureBuilder::new("D")
            .attr("a: float = 0.5")
            .attr("b: float = inf")
            .attr("c: list(string) = ['x']")
            .attr("d: list(float) = [1, -2.5]")
            .attr("e: list(bool) = [true, false]")
            .attr("f: shape = { dim { size: 2 } dim { size: -1 } }")
            .attr("g: type = DT_FLOAT")
            .attr("h: string = 'it\\'s'")
            .attr("i: bool = true")
            .attr("j: list(int) = []")
            .attr("k: int = -9223372036854775808")
            .attr("l: list(shape) = []");
        let expected = "d(*, float a=0.5, float? b=None, str[]? c=None, float[] d=[1.0, -2.5], bool[] e=[True, False], \
                        int[] f=[2, -1], ScalarType? g=None, str? h=None, bool i=True, int[] j=[], int? k=None, \
                        int[][]? l=None) -> ()";
        assert_eq!(schema(op), expected);
    }

    #[test]
    fn tensor_attributes_are_positional() {
        let op = SignatureBuilder::new("Fill")
            .attr("value: tensor = { dtype: DT_INT32 int_val: 5 }")
            .attr("n: int")
            .input("x: float")
            .output("y: float");
        assert_eq!(schema(op), "fill(Tensor x, Tensor? value=None, *, int n) -> Tensor");
    }

    #[test]
    fn reserved_and_clashing_names_get_an_underscore() {
        let op = SignatureBuilder::new("Lambda")
            .attr("from: int")
            .attr("wanted: int = 0")
            .input("in: float")
            .output("y: float")
            .optional("y");
        let expected = "lambda_(Tensor in_, *, int from_, int wanted=0, int wanted_=-1) -> Tensor";
        assert_eq!(schema(op), expected);
    }

    #[test]
    fn dtypes_that_pytorch_lacks_disable_the_op() {
        let op = SignatureBuilder::new("StringToNumber").input("text: string").output("y: float");
        assert!(binding(op).unsupported.is_some_and(|why| why.contains("`text`") && why.contains("string")));
        let op = SignatureBuilder::new("Cast").attr("T: {float, string}").input("x: T").output("y: T");
        assert_eq!(binding(op).unsupported, None);
    }
}
