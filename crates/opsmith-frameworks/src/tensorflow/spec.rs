//! How an op looks in TensorFlow: its name, the specs of its attributes and arguments, and why it cannot be had.

use opsmith_core::attr::AttrValue;
use opsmith_core::def::{Allowed, ArgDef, ArgType, AttrDef};
use opsmith_core::{DType, DeviceKind, KernelDef, Op, Signature};

/// An op as TensorFlow knows it.
pub(super) struct Binding {
    /// `Distances>PairwiseManhattanDistance`.
    pub(super) name: String,
    /// The name of each attribute of the definition.
    pub(super) attrs: Vec<String>,
    /// For each input the attribute that says whether an optional one is there.
    pub(super) presence: Vec<Option<String>>,
    /// The attribute that says which outputs are wanted, where that can be said: a bit for each.
    pub(super) wanted: Option<String>,
    /// The attribute specs.
    pub(super) attr_specs: Vec<String>,
    /// The input specs.
    pub(super) input_specs: Vec<String>,
    /// The output specs.
    pub(super) output_specs: Vec<String>,
    /// Why TensorFlow cannot have the op.
    pub(super) unsupported: Option<String>,
}

impl Binding {
    /// The op as TensorFlow is to know it, in this namespace.
    pub(super) fn new(op: &Op, namespace: &str) -> Binding {
        let signature = op.signature();
        let mut names = Names(Vec::new());
        // Arguments first: their names must be as short as they are.
        let inputs: Vec<String> = signature.inputs.iter().map(|arg| names.take(&arg.name)).collect();
        let outputs: Vec<String> = signature.outputs.iter().map(|arg| names.take(&arg.name)).collect();
        let attrs: Vec<String> = signature.attrs.iter().map(|attr| names.take(&attr.name)).collect();
        let mut attr_specs: Vec<String> = signature
            .attrs
            .iter()
            .zip(&attrs)
            .map(|(attr, name)| attr_spec(narrowed(attr, op.kernels()), name))
            .collect();
        let presence: Vec<Option<String>> = signature
            .inputs
            .iter()
            .map(|arg| arg.optional.then(|| names.take(&format!("{}_count", arg.name))))
            .collect();
        attr_specs.extend(presence.iter().flatten().map(|name| format!("{name}: int >= 0")));
        let has_optional_outputs = signature.outputs.iter().any(|output| output.optional);
        let wanted = has_optional_outputs.then(|| names.take("wanted"));
        attr_specs.extend(wanted.iter().map(|name| format!("{name}: int = -1")));
        let spec = |arg: &ArgDef, name: &String, presence: Option<&String>| {
            let dtype = match arg.dtype {
                ArgType::Fixed(dtype) => dtype.name(),
                ArgType::Attr(attr) | ArgType::List(attr) => &attrs[attr],
            };
            match (arg.count, presence) {
                (opsmith_core::def::ArgCount::Attr(count), _) => {
                    format!("{name}: {} * {dtype}", attrs[count])
                }
                (_, Some(count)) => format!("{name}: {count} * {dtype}"),
                _ => format!("{name}: {dtype}"),
            }
        };
        let named_inputs = signature.inputs.iter().zip(&inputs).zip(&presence);
        Binding {
            name: if namespace.is_empty() {
                signature.name.clone()
            } else {
                format!("{namespace}>{}", signature.name)
            },
            input_specs: named_inputs.map(|((arg, name), count)| spec(arg, name, count.as_ref())).collect(),
            output_specs: signature
                .outputs
                .iter()
                .zip(&outputs)
                .map(|(arg, name)| spec(arg, name, None))
                .collect(),
            unsupported: unsupported(signature),
            attrs,
            presence,
            wanted,
            attr_specs,
        }
    }
}

/// `zero_out` → `ZeroOut`.
pub(super) fn camel_case(name: &str) -> String {
    let words = name.split('_').filter(|word| !word.is_empty());
    words.map(|word| format!("{}{}", word[..1].to_ascii_uppercase(), &word[1..])).collect()
}

/// The attribute without the dtypes that no kernel is for: TensorFlow then says which there are. With a default that no
/// kernel is for it stays as it is.
fn narrowed(attr: &AttrDef, kernels: &[KernelDef]) -> AttrDef {
    let constraint = |kernel: &KernelDef| {
        kernel.constraints().iter().find(|(name, _)| *name == attr.name).map(|(_, dtype)| *dtype)
    };
    let mut narrowed = attr.clone();
    // Only kernels of the CPU are registered.
    let on_cpu = kernels.iter().filter(|kernel| kernel.device() == DeviceKind::Cpu);
    let Some(dtypes) = on_cpu.map(constraint).collect::<Option<Vec<DType>>>() else {
        return narrowed;
    };
    let default_is_served = match &attr.default {
        Some(AttrValue::Type(dtype)) => dtypes.contains(dtype),
        Some(AttrValue::Types(list)) => list.iter().all(|dtype| dtypes.contains(dtype)),
        _ => true,
    };
    if default_is_served && !dtypes.is_empty() {
        let served = DType::ALL.into_iter().filter(|dtype| dtypes.contains(dtype));
        narrowed.allowed = Some(Allowed::Types(served.collect()));
    }
    narrowed
}

/// The spec as TensorFlow reads it. A float has 32 bits there, and the wrappers that it generates for Python cannot
/// write one that is not finite: an attribute with such a default has none.
fn attr_spec(mut attr: AttrDef, name: &str) -> String {
    name.clone_into(&mut attr.name);
    let single = |x: &mut f64| {
        *x = f64::from(*x as f32);
        x.is_finite()
    };
    let is_finite = match &mut attr.default {
        Some(AttrValue::Float(x)) => single(x),
        Some(AttrValue::Floats(list)) => list.iter_mut().all(single),
        _ => true,
    };
    if !is_finite {
        attr.default = None;
    }
    attr.to_tensorflow_spec()
}

/// What the wrappers that TensorFlow generates use themselves, with no regard for their parameters.
const USED: [&str; 9] =
    ["collections", "ctx", "dict", "isinstance", "len", "list", "pywrap_tfe", "tld", "tuple"];

/// The names given out so far: no two may be equal.
struct Names(Vec<String>);

impl Names {
    fn take(&mut self, name: &str) -> String {
        let mut name = crate::names::python_name(name);
        while self.0.contains(&name) || USED.contains(&&*name) {
            name.push('_');
        }
        self.0.push(name.clone());
        name
    }
}

/// Why TensorFlow cannot have an op, if it cannot.
pub(super) fn unsupported(signature: &Signature) -> Option<String> {
    if let Some(changed) = signature.inputs.iter().find(|arg| arg.is_ref) {
        let name = &changed.name;
        return Some(format!("it changes `{name}` in place, and no tensor of TensorFlow can be changed"));
    }
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    let odd = signature.inputs.iter().chain(&signature.outputs).find(|arg| !is_name(&arg.name))?;
    Some(format!("its argument `{}` is not snake_case, as TensorFlow wants it", odd.name))
}

#[cfg(test)]
mod tests {
    use opsmith_core::OpDef;

    use super::*;

    fn binding(def: OpDef) -> Binding {
        Binding::new(&def.build().expect("a definition that is well formed"), "Tests")
    }

    #[test]
    fn names_that_wrappers_cannot_have_get_an_underscore() {
        let binding = binding(
            OpDef::new("A")
                .attr("name: string = 'x'")
                .attr("from: int")
                .input("in: float")
                .input("ctx: float"),
        );
        assert_eq!(binding.name, "Tests>A");
        assert_eq!(binding.attr_specs, ["name_: string = 'x'", "from_: int"]);
        assert_eq!(binding.input_specs, ["in_: float32", "ctx_: float32"]);
        assert_eq!(camel_case("zero_out_2d"), "ZeroOut2d");
    }

    #[test]
    fn optional_inputs_are_lists_and_optional_outputs_a_mask() {
        let def =
            OpDef::new("B").input("x: float").input("bias: float").output("y: float").output("z: float");
        let binding = binding(def.optional("bias").optional("z"));
        assert_eq!(binding.attr_specs, ["bias_count: int >= 0", "wanted: int = -1"]);
        assert_eq!(binding.input_specs, ["x: float32", "bias: bias_count * float32"]);
        assert_eq!(binding.output_specs, ["y: float32", "z: float32"]);
    }

    #[test]
    fn floats_have_32_bits_and_no_infinite_defaults() {
        let def =
            OpDef::new("C").attr("a: float = 0.1").attr("b: float = inf").attr("c: float >= 0 = 1e-300");
        let binding = binding(def.attr("d: list(float) = [0.5, 1e300]"));
        assert_eq!(
            binding.attr_specs,
            ["a: float = 0.10000000149011612", "b: float", "c: float = 0.0", "d: list(float)"]
        );
    }

    #[test]
    fn a_change_in_place_is_refused() {
        let why = binding(OpDef::new("D").input("x: Ref(float)")).unsupported.unwrap();
        assert!(why.contains("changes `x` in place"), "{why}");
        let why = binding(OpDef::new("E").input("X: float")).unsupported.unwrap();
        assert!(why.contains("`X`"), "{why}");
    }
}
