//! How an op looks in ONNX: its arguments, the dtypes it is registered for, and why it cannot be had.

use std::ffi::c_int;

use opsmith_core::def::{Allowed, ArgCount, ArgDef, ArgType};
use opsmith_core::{DType, DeviceKind, KernelDef, Op, Signature};

use super::api::UNDEFINED;

/// `OrtCustomOpInputOutputCharacteristic`.
pub(super) const REQUIRED: c_int = 0;
pub(super) const OPTIONAL: c_int = 1;
pub(super) const VARIADIC: c_int = 2;

/// The most dtypes, or combinations of them, that an op is registered for.
const MOST_VARIANTS: usize = 1024;

/// An op as ONNX Runtime knows it.
pub(super) struct Spec {
    /// What each input is: required, optional or a list.
    pub(super) inputs: Vec<c_int>,
    /// The same of each output.
    pub(super) outputs: Vec<c_int>,
    /// Whether the tensors of the list that is the last input are all of one dtype, and of the last output.
    pub(super) same: [bool; 2],
    /// Whether kernels for cards have each input in host memory; empty where no card can be told to run the op.
    pub(super) in_host_memory: Vec<bool>,
    /// The dtypes that it is registered for.
    pub(super) variants: Vec<Variant>,
}

/// A combination of dtypes: ONNX's number of that of each argument, or [`UNDEFINED`].
#[derive(Debug, PartialEq)]
pub(super) struct Variant {
    pub(super) inputs: Vec<c_int>,
    pub(super) outputs: Vec<c_int>,
    /// Whether cards have kernels for it, whatever dtypes a node's attributes add.
    pub(super) on_card: bool,
}

impl Spec {
    /// The op as ONNX Runtime is to know it.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) fn new(op: &Op) -> Result<Spec, String> {
        let signature = op.signature();
        if let Some(changed) = signature.inputs.iter().find(|arg| arg.is_ref) {
            return Err(format!(
                "it changes `{}` in place, and no tensor of ONNX can be changed",
                changed.name
            ));
        }
        let args = || signature.inputs.iter().chain(&signature.outputs);
        for arg in args() {
            if let ArgType::Fixed(dtype) = arg.dtype
                && dtype.to_onnx().is_none()
            {
                return Err(format!(
                    "its argument `{}` is {dtype}, which ONNX Runtime does not have",
                    arg.name
                ));
            }
        }
        let (inputs, outputs) = (kinds(&signature.inputs), kinds(&signature.outputs));
        let free = if is_packed(&signature.inputs) { Vec::new() } else { free(signature) };
        let choices: Vec<Vec<DType>> = free.iter().map(|attr| candidates(signature, *attr)).collect();
        if choices.iter().map(Vec::len).product::<usize>() > MOST_VARIANTS {
            return Err(format!("it has more than {MOST_VARIANTS} combinations of dtypes"));
        }
        let fits = |chosen: &Vec<DType>| has_kernel(op, DeviceKind::Cpu, &free, chosen);
        let chosen = combinations(&choices).into_iter().filter(fits);
        let in_host_memory = in_host_memory(op);
        let variants: Vec<Variant> = chosen
            .map(|chosen| {
                let codes = |args: &[ArgDef], packed| match packed {
                    true => vec![UNDEFINED],
                    false => args.iter().map(|arg| code(arg, &free, &chosen)).collect(),
                };
                Variant {
                    inputs: codes(&signature.inputs, is_packed(&signature.inputs)),
                    outputs: codes(&signature.outputs, is_packed(&signature.outputs)),
                    on_card: in_host_memory.is_some() && runs_on_card(op, &free, &chosen),
                }
            })
            .collect();
        if variants.is_empty() {
            return Err("none of its kernels for the CPU is for dtypes that ONNX Runtime has".to_owned());
        }
        let is_same = |codes: &[c_int]| codes.last() != Some(&UNDEFINED);
        let same = [is_same(&variants[0].inputs), is_same(&variants[0].outputs)];
        Ok(Spec { inputs, outputs, same, in_host_memory: in_host_memory.unwrap_or_default(), variants })
    }
}

/// Whether the arguments are one list of tensors of any dtypes in ONNX, where only the last may be a list.
fn is_packed(args: &[ArgDef]) -> bool {
    args.iter().rev().skip(1).any(|arg| arg.count.is_list())
}

fn kinds(args: &[ArgDef]) -> Vec<c_int> {
    if is_packed(args) {
        return vec![VARIADIC];
    }
    let kind = |arg: &ArgDef| match () {
        () if arg.count.is_list() => VARIADIC,
        () if arg.optional || arg.saved => OPTIONAL,
        () => REQUIRED,
    };
    args.iter().map(kind).collect()
}

/// The `type` attributes that inputs decide.
fn free(signature: &Signature) -> Vec<usize> {
    let mut free = Vec::new();
    for arg in &signature.inputs {
        if let (ArgType::Attr(attr), ArgCount::One | ArgCount::Attr(_)) = (arg.dtype, arg.count)
            && !free.contains(&attr)
        {
            free.push(attr);
        }
    }
    free
}

/// The dtypes that a `type` attribute may have in ONNX.
fn candidates(signature: &Signature, attr: usize) -> Vec<DType> {
    let allowed = match &signature.attrs[attr].allowed {
        Some(Allowed::Types(dtypes)) => &dtypes[..],
        _ => &DType::ALL,
    };
    allowed.iter().copied().filter(|dtype| dtype.to_onnx().is_some()).collect()
}

fn combinations(choices: &[Vec<DType>]) -> Vec<Vec<DType>> {
    choices.iter().fold(vec![Vec::new()], |begun, choices| {
        let extended = |chosen: &Vec<DType>| {
            let chosen = chosen.clone();
            choices.iter().map(move |dtype| chosen.iter().copied().chain([*dtype]).collect())
        };
        begun.iter().flat_map(extended).collect()
    })
}

fn has_kernel(op: &Op, device: DeviceKind, free: &[usize], chosen: &[DType]) -> bool {
    let fits = |kernel: &KernelDef| {
        kernel.constraints().iter().all(|(name, dtype)| {
            let place = free.iter().position(|attr| op.signature().attrs[*attr].name == *name);
            place.is_none_or(|place| chosen[place] == *dtype)
        })
    };
    op.kernels().iter().any(|kernel| kernel.device() == device && fits(kernel))
}

/// Which inputs the kernels for cards have in host memory. Nothing where ONNX Runtime cannot be told: there is no such kernel, they differ,
/// or one of the inputs is a list, of whose tensors it asks about the first only.
fn in_host_memory(op: &Op) -> Option<Vec<bool>> {
    let inputs = &op.signature().inputs;
    let is_kept = |kernel: &KernelDef| -> Vec<bool> {
        inputs.iter().map(|arg| kernel.host_memory_arguments().contains(&arg.name.as_str())).collect()
    };
    let mut kernels = op.kernels().iter().filter(|kernel| kernel.device() == DeviceKind::Cuda).map(is_kept);
    let kept = kernels.next()?;
    let mut listed = inputs.iter().zip(&kept).filter(|(arg, _)| is_packed(inputs) || arg.count.is_list());
    (kernels.all(|other| other == kept) && listed.all(|(_, kept)| !kept)).then_some(kept)
}

/// Whether cards have a kernel for these dtypes wherever the CPU has one: ONNX Runtime gives a node to a card before the dtypes are known
/// that its attributes add.
fn runs_on_card(op: &Op, free: &[usize], chosen: &[DType]) -> bool {
    let signature = op.signature();
    let asks = |kernel: &KernelDef, name: &str| kernel.constraints().iter().any(|(asked, _)| *asked == name);
    let adds = |attr: &usize| {
        let name = &signature.attrs[*attr].name;
        !free.contains(attr) && op.kernels().iter().any(|kernel| asks(kernel, name))
    };
    let added: Vec<usize> = (0..signature.attrs.len()).filter(adds).collect();
    let choices: Vec<Vec<DType>> = added.iter().map(|attr| candidates(signature, *attr)).collect();
    if choices.iter().map(Vec::len).product::<usize>() > MOST_VARIANTS {
        return false;
    }
    let free = [free, &added[..]].concat();
    combinations(&choices).iter().all(|more| {
        let chosen = [chosen, &more[..]].concat();
        let is_text = chosen.contains(&DType::String);
        !has_kernel(op, DeviceKind::Cpu, &free, &chosen)
            || !is_text && has_kernel(op, DeviceKind::Cuda, &free, &chosen)
    })
}

fn code(arg: &ArgDef, free: &[usize], chosen: &[DType]) -> c_int {
    let dtype = match arg.dtype {
        ArgType::Fixed(dtype) => Some(dtype),
        ArgType::Attr(attr) => free.iter().position(|free| *free == attr).map(|place| chosen[place]),
        ArgType::List(_) => None,
    };
    dtype.and_then(DType::to_onnx).unwrap_or(UNDEFINED)
}

/// How many tensors each input of the definition holds, of `total` in a node, where `known` has the value of an attribute that
/// counts them, as far as the node gives one. An optional input at the end may be left out.
///
/// # Errors
/// What does not add up, or what the node has to say.
pub(super) fn counts(
    signature: &Signature,
    known: impl Fn(usize) -> Option<usize>,
    total: usize,
) -> Result<Vec<usize>, String> {
    let counter = |arg: &ArgDef| match arg.count {
        ArgCount::One => None,
        ArgCount::Attr(attr) | ArgCount::Types(attr) => Some(attr),
    };
    let (mut rest, mut open, mut times) = (total, None, 0);
    for arg in &signature.inputs {
        match counter(arg).map(|attr| (attr, known(attr))) {
            None => rest = rest.saturating_sub(1),
            Some((_, Some(count))) => rest = rest.saturating_sub(count),
            Some((attr, None)) if open.is_none_or(|other| other == attr) => {
                open = Some(attr);
                times += 1;
            }
            Some((attr, None)) => {
                let name = &signature.attrs[attr].name;
                return Err(format!(
                    "the node must say by `{name}` how many tensors input `{}` has",
                    arg.name
                ));
            }
        }
    }
    if times > 0 && !rest.is_multiple_of(times) {
        return Err(format!("has {total} inputs, of which {rest} are not {times} lists of one length"));
    }
    let own = |arg: &ArgDef| match counter(arg) {
        None => 1,
        Some(attr) => known(attr).unwrap_or_else(|| rest / times),
    };
    let counts: Vec<usize> = signature.inputs.iter().map(own).collect();
    let most = counts.iter().fold(0, |sum: usize, count| sum.saturating_add(*count));
    let optional = signature.inputs.iter().rev().take_while(|arg| arg.optional).count();
    if total > most || total + optional < most {
        let least = most - optional;
        let expected = if optional == 0 { most.to_string() } else { format!("{least} to {most}") };
        return Err(format!("takes {expected} tensors, got {total}"));
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use opsmith_core::{KernelDef, OpDef};

    use super::super::tests::Nothing;
    use super::*;

    fn spec(def: OpDef) -> Result<Spec, String> {
        Spec::new(&def.build().expect("a definition that is well formed"))
    }

    fn kernel() -> KernelDef {
        KernelDef::cpu::<Nothing>()
    }

    #[test]
    fn an_op_is_registered_for_each_dtype_that_has_a_kernel() {
        let def = OpDef::new("A").attr("T: {float, double, complex64}").input("x: T").output("y: T");
        let spec = spec(def.kernel(kernel())).unwrap();
        let codes: Vec<_> =
            spec.variants.iter().map(|variant| (variant.inputs[0], variant.outputs[0])).collect();
        assert_eq!(codes, [(1, 1), (11, 11)]);
    }

    fn on_card() -> KernelDef {
        KernelDef::cuda::<Nothing>()
    }

    #[test]
    fn a_card_has_the_dtypes_of_its_kernels_and_host_memory() {
        let def = OpDef::new("F").attr("T: {float, double, string}").input("x: T").input("size: int64");
        let def = def.output("y: T").kernel(kernel());
        let spec = |def: OpDef| self::spec(def).unwrap();
        let cards = |spec: &Spec| -> Vec<bool> { spec.variants.iter().map(|one| one.on_card).collect() };
        assert_eq!(cards(&spec(def.clone())), [false; 3]);
        let float = spec(def.clone().kernel(on_card().type_constraint::<f32>("T").host_memory("size")));
        assert_eq!(cards(&float), [true, false, false]);
        assert_eq!(float.in_host_memory, [false, true]);
        // There is no text on a card.
        let all = spec(def.clone().kernel(on_card()));
        assert_eq!((cards(&all), all.in_host_memory), (vec![true, true, false], vec![false, false]));
        let differ = def.kernel(on_card().type_constraint::<f32>("T").host_memory("size"));
        let differ = spec(differ.kernel(on_card().type_constraint::<f64>("T")));
        assert_eq!((cards(&differ), differ.in_host_memory), (vec![false; 3], vec![]));
    }

    #[test]
    fn what_a_card_cannot_be_told_of_stays_on_the_cpu() {
        let is_there = |def: OpDef| {
            let spec = spec(def.kernel(kernel())).unwrap();
            spec.variants.iter().any(|one| one.on_card)
        };
        let listed = || OpDef::new("G").attr("N: int >= 1").input("x: N * float").input("y: float");
        assert!(is_there(listed().kernel(on_card())));
        assert!(!is_there(listed().kernel(on_card().host_memory("y"))));
        let last = || OpDef::new("H").attr("N: int >= 1").input("x: float").input("y: N * float");
        assert!(is_there(last().kernel(on_card().host_memory("x"))));
        assert!(!is_there(last().kernel(on_card().host_memory("y"))));
        // The dtype that a node's attribute says is not known when a device is chosen.
        let made = || OpDef::new("I").attr("T: {float, double}").output("y: T");
        assert!(is_there(made().kernel(on_card())));
        assert!(!is_there(made().kernel(on_card().type_constraint::<f32>("T"))));
        let both = made().kernel(on_card().type_constraint::<f32>("T"));
        assert!(is_there(both.kernel(on_card().type_constraint::<f64>("T"))));
    }

    #[test]
    fn a_list_that_is_not_last_makes_all_inputs_one() {
        let def =
            OpDef::new("B").attr("N: int >= 1").input("x: N * float").input("y: int32").output("z: float");
        let spec = spec(def.kernel(kernel())).unwrap();
        assert_eq!((&spec.inputs[..], spec.same[0]), (&[VARIADIC][..], false));
        assert_eq!(spec.variants, [Variant { inputs: vec![UNDEFINED], outputs: vec![1], on_card: false }]);
    }

    #[test]
    fn what_onnx_has_not_is_left_out() {
        let why = |def: OpDef| spec(def.kernel(kernel())).err().unwrap();
        assert!(why(OpDef::new("C").input("x: Ref(float)")).contains("changes `x` in place"));
        assert!(why(OpDef::new("C").input("x: complex64")).contains("`x` is complex64"));
        assert!(spec(OpDef::new("C").input("x: float")).err().unwrap().contains("none of its kernels"));
    }

    #[test]
    fn counts_follow_from_the_number_of_inputs() {
        let def = OpDef::new("D").attr("N: int").attr("M: int").input("x: N * float").input("y: float");
        let op = def.input("z: N * float").build().unwrap();
        let none = |_| None;
        assert_eq!(counts(op.signature(), none, 5), Ok(vec![2, 1, 2]));
        assert!(counts(op.signature(), none, 6).unwrap_err().contains("not 2 lists"));
        assert!(counts(op.signature(), |_| Some(3), 5).unwrap_err().contains("takes 7 tensors, got 5"));
        let def = OpDef::new("E").input("x: float").input("y: float").optional("y");
        let op = def.build().unwrap();
        assert_eq!(counts(op.signature(), none, 1), Ok(vec![1, 1]));
        assert!(counts(op.signature(), none, 3).unwrap_err().contains("takes 1 to 2 tensors, got 3"));
    }
}
