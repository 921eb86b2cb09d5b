//! Printing and parsing undo each other, and no text makes the parser panic.

use std::ops::Bound;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::attr;
use crate::DType;
use crate::attr::{AttrBase, AttrType, AttrValue, PartialShape, TensorValue};
use crate::def::{Allowed, AttrDef, Signature, SignatureBuilder};

fn shape() -> impl Strategy<Value = PartialShape> {
    option::weighted(0.9, vec(option::weighted(0.8, 0..=i64::MAX as u64), 0..4))
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>().prop_filter("NaN has one spelling", |x| !x.is_nan()), Just(f64::NAN)]
}

/// A tensor of any dtype and up to eight elements, often all the same.
fn tensor() -> impl Strategy<Value = Arc<TensorValue>> {
    let contents = (vec(vec(any::<u8>(), 16), 8), any::<bool>());
    (select(&DType::ALL[..]), vec(0..3usize, 0..4), contents).prop_map(|(dtype, shape, (rows, same))| {
        let rows = (0..shape.iter().product()).map(|i| rows[if same { 0 } else { i }].clone());
        let mut tensor = TensorValue { dtype, shape: shape.clone(), bytes: vec![], strings: vec![] };
        match dtype {
            DType::String => tensor.strings = rows.collect(),
            DType::Bool => tensor.bytes = rows.map(|row| row[0] & 1).collect(),
            _ => tensor.bytes = rows.flat_map(|row| row[..dtype.size()].to_vec()).collect(),
        }
        if matches!(dtype, DType::Float32 | DType::Complex64) {
            // Exponents below the highest: no NaN, whose payload has no spelling.
            tensor.bytes.chunks_exact_mut(4).for_each(|part| part[3] &= 0xbf);
        } else if matches!(dtype, DType::Float64 | DType::Complex128) {
            tensor.bytes.chunks_exact_mut(8).for_each(|part| part[7] &= 0xbf);
        }
        Arc::new(tensor)
    })
}

/// A value of this type; a list has up to four elements.
fn value(ty: AttrType) -> BoxedStrategy<AttrValue> {
    let text = || any::<String>().prop_map(Arc::<str>::from);
    let dtype = || select(&DType::ALL[..]);
    match (ty.base, ty.list) {
        (AttrBase::String, false) => text().prop_map(AttrValue::String).boxed(),
        (AttrBase::Int, false) => any::<i64>().prop_map(AttrValue::Int).boxed(),
        (AttrBase::Float, false) => float().prop_map(AttrValue::Float).boxed(),
        (AttrBase::Bool, false) => any::<bool>().prop_map(AttrValue::Bool).boxed(),
        (AttrBase::Type, false) => dtype().prop_map(AttrValue::Type).boxed(),
        (AttrBase::Shape, false) => shape().prop_map(AttrValue::Shape).boxed(),
        (AttrBase::Tensor, false) => tensor().prop_map(AttrValue::Tensor).boxed(),
        (AttrBase::String, true) => vec(text(), 0..4).prop_map(AttrValue::Strings).boxed(),
        (AttrBase::Int, true) => vec(any::<i64>(), 0..4).prop_map(AttrValue::Ints).boxed(),
        (AttrBase::Float, true) => vec(float(), 0..4).prop_map(AttrValue::Floats).boxed(),
        (AttrBase::Bool, true) => vec(any::<bool>(), 0..4).prop_map(AttrValue::Bools).boxed(),
        (AttrBase::Type, true) => vec(dtype(), 0..4).prop_map(AttrValue::Types).boxed(),
        (AttrBase::Shape, true) => vec(shape(), 0..4).prop_map(AttrValue::Shapes).boxed(),
        (AttrBase::Tensor, true) => vec(tensor(), 0..4).prop_map(AttrValue::Tensors).boxed(),
    }
}

fn allowed(base: AttrBase) -> BoxedStrategy<Option<Allowed>> {
    let texts = ["apple", "it's", "\u{e9}\n\\", ""].map(str::to_owned).to_vec();
    match base {
        AttrBase::String => option::of(subsequence(texts, 1..4).prop_map(Allowed::Strings)).boxed(),
        AttrBase::Int => option::of(subsequence(vec![-4, 1, 2, 4], 1..4).prop_map(Allowed::Ints)).boxed(),
        AttrBase::Type => {
            option::of(subsequence(DType::ALL.to_vec(), 1..21).prop_map(Allowed::Types)).boxed()
        }
        _ => Just(None).boxed(),
    }
}

/// An attribute called `attr`, with every kind of constraint and default; they need not agree.
fn loose_attr() -> impl Strategy<Value = AttrDef> {
    let bases = [
        AttrBase::String,
        AttrBase::Int,
        AttrBase::Float,
        AttrBase::Bool,
        AttrBase::Type,
        AttrBase::Shape,
        AttrBase::Tensor,
    ];
    (select(bases.to_vec()), any::<bool>()).prop_flat_map(|(base, list)| {
        let ty = AttrType { base, list };
        let bounded = !list && matches!(base, AttrBase::Int | AttrBase::Float);
        let bound = move || {
            (option::of(value(ty)), any::<bool>()).prop_map(move |(end, is_excluded)| {
                match end.filter(|_| bounded) {
                    Some(end) if is_excluded && base == AttrBase::Float => Bound::Excluded(end),
                    Some(end) => Bound::Included(end),
                    None => Bound::Unbounded,
                }
            })
        };
        let min_len = option::of(0..4usize).prop_map(move |length| length.filter(|_| list));
        (allowed(base), bound(), bound(), min_len, option::of(value(ty))).prop_map(
            move |(allowed, min, max, min_len, default)| {
                let (min, max) =
                    if allowed.is_some() { (Bound::Unbounded, Bound::Unbounded) } else { (min, max) };
                let (name, doc) = ("attr".to_owned(), String::new());
                AttrDef { name, ty, allowed, min, max, min_len, default, inferred: false, doc }
            },
        )
    })
}

/// Definitions that use lists, counts and references as the language allows.
fn signature() -> impl Strategy<Value = Signature> {
    let inputs = [
        "x: T",
        "fixed: quint8",
        "many: N * T",
        "ints: N * int32",
        "mixed: Types",
        "variable: Ref(T)",
        "variables: Ref(N * string)",
    ];
    let outputs = ["z: T", "zs: N * out_type", "mixed_out: Types", "saved_z: float"];
    let inputs = subsequence(inputs.to_vec(), 0..=7).prop_shuffle();
    let outputs = subsequence(outputs.to_vec(), 0..=4).prop_shuffle();
    let docs = vec("[a-zA-Z]{1,8}([ :\n]{1,2}[a-z.]{1,8}){0,6}", 3);
    (loose_attr(), inputs, outputs, docs, any::<bool>()).prop_map(|(attr, inputs, outputs, docs, marked)| {
        let loose = attr.to_string();
        let mut op = SignatureBuilder::new("Op").doc(&docs[0]).describe("N", &docs[1]).attr("N: int");
        // A default outside its own constraints is refused; the attribute is left out then.
        if super::attr(&loose).is_ok() {
            op = op.attr(loose).describe("attr", &docs[2]);
        }
        op = op.attr("T: numbertype").attr("Types: list({int32, float})").attr("out_type: type = DT_BOOL");
        op = inputs.iter().copied().fold(op, SignatureBuilder::input);
        op = outputs.iter().copied().fold(op, SignatureBuilder::output);
        if marked && inputs.contains(&"x: T") {
            op = op.optional("x").stateful();
        }
        if marked && outputs.contains(&"saved_z: float") {
            op = op.saved("saved_z");
        }
        op.build().unwrap()
    })
}

/// Specs to damage, one of each kind.
const SPECS: [&str; 9] = [
    "e: {'apple', \"orange\"} = 'apple'",
    "a: int >= -1 <= 9 = 3",
    "t: list({numbertype, bool}) >= 2 = [DT_INT32, float]",
    "s: shape = { dim { size: 1 } dim { size: -1 } }",
    "te: list(tensor) = [{ dtype: DT_HALF tensor_shape { dim { size: 3 } } half_val: [1, 2] }, { dtype: DT_BOOL }]",
    "x: Ref(N * T)",
    "text: string = '\\x41\\101\\u00e9\\n'",
    "f: list(float) = [1e-3, -inf, nan, .5, 2.f]",
    "i: {1, 2, 4} = 2",
];

/// Parses the text as everything that it could be.
fn parse_as_anything(text: &str) {
    let _ = SignatureBuilder::new("Op").attr(text).build();
    let _ = SignatureBuilder::new("Op").attr("T: type").attr("N: int").input(text).build();
    let _ = SignatureBuilder::new(text).doc(text).describe(text, text).optional(text).build();
}

proptest! {
    #[test]
    fn attributes_survive_their_text(attr_def in loose_attr()) {
        let text = attr_def.to_string();
        match attr(&text) {
            Ok(parsed) => {
                prop_assert_eq!(&parsed, &attr_def);
                let for_tensorflow = attr(&attr_def.to_tensorflow_spec()).unwrap();
                prop_assert_eq!(for_tensorflow.default, attr_def.default);
            }
            Err(error) => {
                let reasons = ["the default of `attr` must", "no value is within", "a bound cannot be NaN"];
                prop_assert!(reasons.iter().any(|reason| error.message().contains(reason)), "{error}");
            }
        }
    }

    #[test]
    fn definitions_survive_their_specs_and_their_json(signature in signature()) {
        prop_assert_eq!(&SignatureBuilder::from(&signature).build().unwrap(), &signature);
        let json = signature.to_json().to_string();
        let read = Signature::from_json(&serde_json::from_str(&json).unwrap()).unwrap();
        prop_assert_eq!(&read, &signature);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>()) {
        parse_as_anything(&text);
        parse_as_anything(&format!("a: {text}"));
    }

    #[test]
    fn no_damage_makes_the_parser_panic(
        spec in select(&SPECS[..]), at in any::<prop::sample::Index>(), cut in 0..4usize, patch in "[ -~\n\u{e9}]{0,3}"
    ) {
        let start = at.index(spec.len());
        let end = (start + cut).min(spec.len());
        parse_as_anything(&format!("{}{patch}{}", &spec[..start], &spec[end..]));
    }
}

#[test]
fn the_specs_to_damage_are_whole() {
    for spec in SPECS {
        let attr_or_arg = SignatureBuilder::new("Op").attr("T: type").attr("N: int");
        assert!(attr(spec).is_ok() || attr_or_arg.input(spec).build().is_ok(), "{spec}");
    }
}
