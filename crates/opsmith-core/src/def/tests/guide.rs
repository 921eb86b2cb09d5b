//! Every definition in TensorFlow's guide to creating an op parses and means what the guide says.

use std::ops::Bound;

use crate::attr::{AttrBase, AttrType, AttrValue};
use crate::def::{Allowed, ArgCount, ArgType, Signature, SignatureBuilder};
use crate::{DType, dtype::sets};

/// Builds a definition from lines `attr …`, `input …` and `output …`.
fn op(name: &str, lines: &[&str]) -> Signature {
    let mut builder = SignatureBuilder::new(name);
    for line in lines {
        builder = match line.split_once(' ').expect("a role and a spec") {
            ("attr", spec) => builder.attr(spec),
            ("input", spec) => builder.input(spec),
            ("output", spec) => builder.output(spec),
            (role, _) => panic!("no role {role}"),
        };
    }
    builder.build().unwrap()
}

fn inferred(signature: &Signature) -> Vec<&str> {
    signature.attrs.iter().filter(|attr| attr.inferred).map(|attr| attr.name.as_str()).collect()
}

#[test]
fn zero_out_in_all_versions() {
    let plain = op("ZeroOut", &["input to_zero: int32", "output zeroed: int32"]);
    assert_eq!(plain.inputs[0].dtype, ArgType::Fixed(DType::Int32));
    assert_eq!(plain.inputs[0].count, ArgCount::One);
    assert_eq!(plain.snake_name(), "zero_out");

    let attr = op("ZeroOut", &["attr preserve_index: int", "input to_zero: int32", "output zeroed: int32"]);
    assert_eq!(attr.attrs[0].ty, AttrType { base: AttrBase::Int, list: false });
    assert_eq!((&attr.attrs[0].min, &attr.attrs[0].default), (&Bound::Unbounded, &None));

    let polymorphic = op("ZeroOut", &["attr T: {float, int32}", "input to_zero: T", "output zeroed: T"]);
    assert_eq!(polymorphic.attrs[0].allowed, Some(Allowed::Types(vec![DType::Float32, DType::Int32])));
    assert_eq!(polymorphic.inputs[0].dtype, ArgType::Attr(0));
    assert_eq!(inferred(&polymorphic), ["T"]);

    let compatible =
        op("ZeroOut", &["attr T: {float, int32} = DT_INT32", "input to_zero: T", "output zeroed: T"]);
    assert_eq!(compatible.attrs[0].default, Some(AttrValue::Type(DType::Int32)));

    let real = op("ZeroOut", &["attr T: realnumbertype", "input to_zero: T", "output zeroed: T"]);
    assert_eq!(real.attrs[0].allowed, Some(Allowed::Types(sets::REAL_NUMBER.to_vec())));
}

#[test]
fn constraints() {
    let fruit = op("EnumExample", &["attr e: {'apple', 'orange'}"]);
    assert_eq!(fruit.attrs[0].allowed, Some(Allowed::Strings(vec!["apple".into(), "orange".into()])));
    assert_eq!(fruit.attrs[0].ty, AttrType { base: AttrBase::String, list: false });
    assert_eq!(op("EnumExample", &["attr e: {\"apple\", 'orange'}"]), fruit);

    let restricted = op("RestrictedTypeExample", &["attr t: {int32, float, bool}"]);
    let types = vec![DType::Int32, DType::Float32, DType::Bool];
    assert_eq!(restricted.attrs[0].allowed, Some(Allowed::Types(types)));

    let number = op("NumberType", &["attr t: numbertype"]);
    assert_eq!(number.attrs[0].allowed, Some(Allowed::Types(sets::NUMBER_TYPE.to_vec())));
    assert_eq!(op("NumberType", &["attr t: numerictype"]), number);
    let quantized = op("Quantized", &["attr t: quantizedtype"]);
    assert_eq!(quantized.attrs[0].allowed, Some(Allowed::Types(sets::QUANTIZED.to_vec())));

    let or_bool = op("NumberOrBooleanType", &["attr t: {numbertype, bool}"]);
    let types = [sets::NUMBER_TYPE, &[DType::Bool]].concat();
    assert_eq!(or_bool.attrs[0].allowed, Some(Allowed::Types(types)));

    let min = op("MinIntExample", &["attr a: int >= 2"]);
    assert_eq!(min.attrs[0].min, Bound::Included(AttrValue::Int(2)));

    let list = op("TypeListExample", &["attr a: list({int32, float}) >= 3"]);
    assert_eq!(list.attrs[0].ty, AttrType { base: AttrBase::Type, list: true });
    assert_eq!(list.attrs[0].allowed, Some(Allowed::Types(vec![DType::Int32, DType::Float32])));
    assert_eq!(list.attrs[0].min_len, Some(3));
}

#[test]
fn defaults() {
    let one = op("AttrDefaultExample", &["attr i: int = 0"]);
    assert_eq!(one.attrs[0].default, Some(AttrValue::Int(0)));

    let all = op(
        "AttrDefaultExampleForAllTypes",
        &[
            "attr s: string = 'foo'",
            "attr i: int = 0",
            "attr f: float = 1.0",
            "attr b: bool = true",
            "attr ty: type = DT_INT32",
            "attr sh: shape = { dim { size: 1 } dim { size: 2 } }",
            "attr te: tensor = { dtype: DT_INT32 int_val: 5 }",
            "attr l_empty: list(int) = []",
            "attr l_int: list(int) = [2, 3, 5, 7]",
        ],
    );
    let defaults: Vec<_> = all.attrs.iter().map(|attr| attr.default.clone().unwrap()).collect();
    let AttrValue::Tensor(five) = &defaults[6] else { panic!("not a tensor: {}", defaults[6]) };
    assert_eq!(
        (five.dtype, &five.shape[..], &five.bytes[..]),
        (DType::Int32, &[][..], &5i32.to_ne_bytes()[..])
    );
    assert_eq!(
        defaults[..6],
        [
            AttrValue::String("foo".into()),
            AttrValue::Int(0),
            AttrValue::Float(1.0),
            AttrValue::Bool(true),
            AttrValue::Type(DType::Int32),
            AttrValue::Shape(Some(vec![Some(1), Some(2)])),
        ]
    );
    assert_eq!(defaults[7..], [AttrValue::Ints(vec![]), AttrValue::Ints(vec![2, 3, 5, 7])]);
}

#[test]
fn polymorphism() {
    let output = op(
        "StringToNumber",
        &[
            "input string_tensor: string",
            "output output: out_type",
            "attr out_type: {float, int32} = DT_FLOAT",
        ],
    );
    assert_eq!(output.outputs[0].dtype, ArgType::Attr(0));
    assert!(inferred(&output).is_empty());

    let lists = op("PolymorphicListExample", &["attr T: list(type)", "input in: T", "output out: T"]);
    assert_eq!(lists.inputs[0].dtype, ArgType::List(0));
    assert_eq!(lists.outputs[0].count, ArgCount::Types(0));
    assert_eq!(lists.attrs[0].min_len, Some(1));

    let single = op("PolymorphicSingleInput", &["attr T: type", "input in: T"]);
    assert_eq!(single.attrs[0].allowed, None);

    let of_list =
        op("ListTypeRestrictionExample", &["attr T: list({float, double})", "input in: T", "output out: T"]);
    assert_eq!(of_list.attrs[0].allowed, Some(Allowed::Types(vec![DType::Float32, DType::Float64])));
}

#[test]
fn lists_of_tensors() {
    let ints = op("Int32ListExample", &["attr N: int", "input in: N * int32", "output out: int32"]);
    assert_eq!(ints.inputs[0].dtype, ArgType::Fixed(DType::Int32));
    assert_eq!(ints.inputs[0].count, ArgCount::Attr(0));
    assert_eq!(ints.attrs[0].min, Bound::Included(AttrValue::Int(1)));

    let same = op("SameListInputExample", &["attr N: int", "attr T: type", "input in: N * T"]);
    assert_eq!((same.inputs[0].dtype, same.inputs[0].count), (ArgType::Attr(1), ArgCount::Attr(0)));
    assert_eq!(inferred(&same), ["N", "T"]);

    let fixed = op("FixedListInputExample", &["input in: NumTensors * int32", "attr NumTensors: int"]);
    assert_eq!(inferred(&fixed), ["NumTensors"]);

    let two =
        op("MinLengthIntListExample", &["attr N: int >= 2", "input in: N * int32", "output out: int32"]);
    assert_eq!(two.attrs[0].min, Bound::Included(AttrValue::Int(2)));
    let none = op("EmptyListExample", &["attr N: int >= 0", "input in: N * int32"]);
    assert_eq!(none.attrs[0].min, Bound::Included(AttrValue::Int(0)));

    let minimum = op(
        "MinimumLengthPolymorphicListExample",
        &["attr T: list(type) >= 3", "input in: T", "output out: T"],
    );
    assert_eq!(minimum.attrs[0].min_len, Some(3));
    let same =
        op("SameListMinimum", &["attr N: int >= 1", "attr T: type", "input in: N * T", "output out: N * T"]);
    assert_eq!(same.outputs[0].count, ArgCount::Attr(0));
}

#[test]
fn compatible_changes_and_whole_examples() {
    let tuple = op(
        "BuildTupleWithCondition",
        &[
            "attr Tcond: {bool, int32}",
            "attr T: list(type)",
            "input cond: Tcond",
            "input components: T",
            "output tuple: T",
        ],
    );
    assert_eq!(tuple.inputs[1].count, ArgCount::Types(1));

    let widened = op("MyGeneralUnaryOp", &["input in: T", "output out: T", "attr T: numerictype = DT_FLOAT"]);
    assert_eq!(widened.attrs[0].default, Some(AttrValue::Type(DType::Float32)));
    let listed = op(
        "ListOp",
        &["attr N: int >= 0 = 1", "attr T: list(type) >= 0 = []", "input in: N * float", "input more: T"],
    );
    assert_eq!(listed.attrs[1].default, Some(AttrValue::Types(vec![])));

    let reference = op("Assign", &["input ref: Ref(T)", "input value: T", "attr T: type"]);
    assert!(reference.inputs[0].is_ref && !reference.inputs[1].is_ref);
    let references = op("AssignAll", &["input refs: Ref(N * T)", "attr T: type", "attr N: int"]);
    assert_eq!(references.inputs[0].count, ArgCount::Attr(1));
}
