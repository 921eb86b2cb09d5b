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
    /// The dtypes that it is registered for.
    pub(super) variants: Vec<Variant>,
}

/// ONNX's number of the dtype of each argument, or [`UNDEFINED`].
#[derive(Debug, PartialEq)]
pub(super) struct Variant {
    pub(super) inputs: Vec<c_int>,
    pub(super) outputs: Vec<c_int>,
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
        let chosen = combinations(&choices).into_iter().filter(|chosen| has_kernel(op, &free, chosen));
        let variants: Vec<Variant> = chosen
            .map(|chosen| {
                let codes = |args: &[ArgDef], packed| match packed {
                    true => vec![UNDEFINED],
                    false => args.iter().map(|arg| code(arg, &free, &chosen)).collect(),
                };
                Variant {
                    inputs: codes(&signature.inputs, is_packed(&signature.inputs)),
                    outputs: codes(&signature.outputs, is_packed(&signature.outputs)),
                }
            })
            .collect();
        if variants.is_empty() {
            return Err("none of its kernels for the CPU is for dtypes that ONNX Runtime has".to_owned());
        }
        let is_same = |codes: &[c_int]| codes.last() != Some(&UNDEFINED);
        let same = [is_same(&variants[0].inputs), is_same(&variants[0].outputs)];
        Ok(Spec { inputs, outputs, same, variants })
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

fn has_kernel(op: &Op, free: &[usize], chosen: &[DType]) -> bool {
    let fits = |kernel: &KernelDef| {
        kernel.constraints().iter().all(|(name, dtype)| {
            let place = free.iter().position(|attr| op.signature().attrs[*attr].name == *name);
            place.is_none_or(|place| chosen[place] == *dtype)
        })
    };
    op.kernels().iter().any(|kernel| kernel.device() == DeviceKind::Cpu && fits(kernel))
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

    use super::*;

    fn spec(def: OpDef) -> Result<Spec, String> {
        Spec::new(&def.build().expect("a definition that is well formed"))
    }

    struct Nothing;

    impl opsmith_core::OpKernel for Nothing {
        fn new(_: &mut opsmith_core::OpKernelConstruction<'_>) -> opsmith_core::Result<Self> {
            Ok(Nothing)
        }

        fn compute(&self, _: &mut opsmith_core::OpKernelContext<'_>) -> opsmith_core::Result<()> {
            Ok(())
        }
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

    #[test]
    fn a_list_that_is_not_last_makes_all_inputs_one() {
        let def =
            OpDef::new("B").attr("N: int >= 1").input("x: N * float").input("y: int32").output("z: float");
        let spec = spec(def.kernel(kernel())).unwrap();
        assert_eq!((&spec.inputs[..], spec.same[0]), (&[VARIADIC][..], false));
        assert_eq!(spec.variants, [Variant { inputs: vec![UNDEFINED], outputs: vec![1] }]);
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
