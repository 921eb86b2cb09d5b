//! Unification of calls with definitions.

use crate::attr::{AttrValue, MAX_TEXT};
use crate::def::ArgDTypes::{Absent, List, One};
use crate::def::{ArgDTypes, Resolved, Signature, SignatureBuilder};
use crate::{Code, DType, Result};

fn pairwise() -> Signature {
    SignatureBuilder::new("PairwiseManhattanDistance")
        .attr("T: {float, double}")
        .input("x: T")
        .input("y: T")
        .output("z: T")
        .build()
        .unwrap()
}

/// An op with lists of both kinds and attributes of several types.
fn lists() -> Signature {
    SignatureBuilder::new("Lists")
        .attr("N: int >= 2")
        .attr("T: numbertype = DT_INT32")
        .attr("Ts: list({int32, float}) >= 1")
        .attr("a: int >= 1 <= 9 = 1")
        .attr("f: float >= 0 = 0.5")
        .attr("g: float > 0 < 1 = 0.5")
        .attr("names: list({'x', 'y'}) = []")
        .attr("out: type = DT_BOOL")
        .input("xs: N * T")
        .input("ys: N * string")
        .input("mixed: Ts")
        .output("zs: N * T")
        .output("mixed_out: Ts")
        .output("one: out")
        .build()
        .unwrap()
}

const STRINGS: ArgDTypes<'_> = List(&[DType::String, DType::String]);
const FLOATS: ArgDTypes<'_> = List(&[DType::Float32, DType::Float32]);
const MIXED: ArgDTypes<'_> = List(&[DType::Int32, DType::Float32, DType::Int32]);

/// Resolves a call of [`lists`] with these attributes by name.
fn call(inputs: &[ArgDTypes<'_>], attrs: &[(&str, AttrValue)]) -> Result<Resolved> {
    let op = lists();
    let mut given = vec![None; op.attrs.len()];
    for (name, value) in attrs {
        given[op.attr_index(name).unwrap()] = Some(value.clone());
    }
    op.resolve(inputs, &given)
}

fn refused<T: std::fmt::Debug>(result: Result<T>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    error.message().to_owned()
}

#[test]
fn a_dtype_is_inferred() {
    let resolved = pairwise().resolve(&[One(DType::Float64), One(DType::Float64)], &[None]).unwrap();
    assert_eq!(resolved.attrs, [AttrValue::Type(DType::Float64)]);
    assert_eq!(resolved.output_dtypes, [[DType::Float64]]);
}

#[test]
fn inputs_that_disagree_are_refused() {
    let resolve = |x, y| refused(pairwise().resolve(&[x, y], &[None]));
    let op = "PairwiseManhattanDistance";
    for (x, y, expected) in [
        (
            One(DType::Float32),
            One(DType::Float64),
            "inputs `x` and `y` must have one dtype, got float32 and float64; cast one of them",
        ),
        (
            One(DType::Int32),
            One(DType::Int32),
            "input `x` is int32, but must be one of float32, float64; cast it",
        ),
        (One(DType::Float32), Absent, "input `y` is missing"),
        (List(&[]), One(DType::Float32), "input `x` must be one tensor, got a list of 0"),
    ] {
        assert_eq!(resolve(x, y), format!("{op}: {expected}"));
    }
    let one = pairwise().resolve(&[One(DType::Float32)], &[None]);
    assert_eq!(refused(one), format!("{op}: takes 2 inputs (x, y), got 1"));
    let none = pairwise().resolve(&[One(DType::Float32), One(DType::Float32)], &[]);
    assert_eq!(refused(none), format!("{op}: has 1 attribute, got 0"));
}

#[test]
fn a_given_attribute_may_repeat_what_the_inputs_say() {
    let inputs = [One(DType::Float32), One(DType::Float32)];
    let given = |dtype| pairwise().resolve(&inputs, &[Some(AttrValue::Type(dtype))]);
    assert_eq!(given(DType::Float32).unwrap().output_dtypes, [[DType::Float32]]);
    assert_eq!(
        refused(given(DType::Float64)),
        "PairwiseManhattanDistance: input `x` is float32, but T was given as float64"
    );
}

#[test]
fn lists_counts_and_defaults() {
    let resolved =
        call(&[FLOATS, STRINGS, MIXED], &[("f", AttrValue::Int(2)), ("names", AttrValue::Ints(vec![]))]);
    let types = [DType::Int32, DType::Float32, DType::Int32];
    let resolved = resolved.unwrap();
    assert_eq!(
        resolved.attrs,
        [
            AttrValue::Int(2),
            AttrValue::Type(DType::Float32),
            AttrValue::Types(types.to_vec()),
            AttrValue::Int(1),
            AttrValue::Float(2.0),
            AttrValue::Float(0.5),
            AttrValue::Strings(vec![]),
            AttrValue::Type(DType::Bool),
        ]
    );
    assert_eq!(resolved.output_dtypes, [&[DType::Float32; 2][..], &types, &[DType::Bool]]);
}

#[test]
fn lists_that_disagree_are_refused() {
    let two = &[DType::Float32, DType::Float64];
    let three = List(&[DType::String; 3]);
    let wrong = List(&[DType::Int32, DType::Bool]);
    for (inputs, expected) in [
        (
            [List(two), STRINGS, MIXED],
            "inputs `xs[0]` and `xs[1]` must have one dtype, got float32 and float64; cast one of them",
        ),
        ([FLOATS, three, MIXED], "input `ys` has 3 tensors, but input `xs` set N to 2"),
        ([FLOATS, FLOATS, MIXED], "input `ys[0]` is float32, but must be string"),
        ([List(&[DType::Int8]), STRINGS, MIXED], "input `xs` has 1 tensor, but N must be at least 2"),
        ([FLOATS, STRINGS, List(&[])], "input `mixed` has dtypes [], but Ts must have at least 1 element"),
        (
            [FLOATS, STRINGS, wrong],
            "input `mixed` has dtypes [int32, bool], but Ts must have elements among int32, float32",
        ),
        ([One(DType::Int8), STRINGS, MIXED], "input `xs` must be a list of tensors, got one tensor"),
    ] {
        assert_eq!(refused(call(&inputs, &[])), format!("Lists: {expected}"));
    }
}

#[test]
fn attributes_that_break_a_constraint_are_refused() {
    for (name, value, expected) in [
        ("a", AttrValue::Int(0), "must be at least 1, got 0"),
        ("a", AttrValue::Int(10), "must be at most 9, got 10"),
        ("a", AttrValue::String("1".into()), "is an int, got a string"),
        ("a", AttrValue::Ints(vec![1]), "is an int, got a list(int)"),
        ("f", AttrValue::Float(-0.5), "must be at least 0.0, got -0.5"),
        ("f", AttrValue::Float(f64::NAN), "must be at least 0.0, got nan"),
        ("g", AttrValue::Float(0.0), "must be above 0.0, got 0.0"),
        ("g", AttrValue::Int(1), "must be below 1.0, got 1.0"),
        ("g", AttrValue::Float(f64::NAN), "must be above 0.0, got nan"),
        (
            "names",
            AttrValue::Strings(vec!["x".into(), "z".into()]),
            "must have elements among 'x', 'y', got 'z'",
        ),
        ("names", AttrValue::String("x".into()), "is a list(string), got a string"),
        (
            "names",
            AttrValue::Strings(vec!["x".into(), "y".repeat(MAX_TEXT + 1).into()]),
            "must have at most 1048576 bytes, got 1048577",
        ),
        (
            "T",
            AttrValue::Type(DType::String),
            "must be one of float32, float64, int32, uint8, int16, int8, complex64, \
            int64, qint8, quint8, qint32, bfloat16, uint16, complex128, float16, uint32, uint64, got string",
        ),
    ] {
        let message = refused(call(&[FLOATS, STRINGS, MIXED], &[(name, value)]));
        assert_eq!(message, format!("Lists: attribute `{name}` {expected}"));
    }
    let op = SignatureBuilder::new("Text").attr("mode: string").build().unwrap();
    let long = AttrValue::String("y".repeat(MAX_TEXT + 1).into());
    let message = refused(op.resolve(&[], &[Some(long)]));
    assert_eq!(message, "Text: attribute `mode` must have at most 1048576 bytes, got 1048577");
}

#[test]
fn what_no_input_tells_comes_from_the_default_or_is_an_error() {
    let op = SignatureBuilder::new("Grad")
        .attr("T: {float, double} = DT_DOUBLE")
        .attr("S: type")
        .attr("k: int")
        .input("x: T")
        .input("y: S")
        .output("z: T")
        .optional("x")
        .optional("y")
        .build()
        .unwrap();
    let k = || Some(AttrValue::Int(3));
    let resolved = op.resolve(&[Absent, One(DType::Bool)], &[None, None, k()]).unwrap();
    assert_eq!(resolved.attrs[..2], [AttrValue::Type(DType::Float64), AttrValue::Type(DType::Bool)]);
    assert_eq!(
        refused(op.resolve(&[Absent, Absent], &[None, None, k()])),
        "Grad: attribute `S` cannot be inferred, because no tensor that decides it was given; pass `S`"
    );
    assert!(op.resolve(&[Absent, Absent], &[None, Some(AttrValue::Type(DType::Int8)), k()]).is_ok());
    assert_eq!(
        refused(op.resolve(&[Absent, One(DType::Bool)], &[None, None, None])),
        "Grad: attribute `k`, an int, is missing and has no default"
    );
}

#[test]
fn a_count_that_no_input_tells_cannot_exhaust_memory() {
    let op = SignatureBuilder::new("Split")
        .attr("n: int")
        .input("x: float")
        .output("z: n * float")
        .build()
        .unwrap();
    let split = |n| op.resolve(&[One(DType::Float32)], &[Some(AttrValue::Int(n))]);
    assert_eq!(split(3).unwrap().output_dtypes, [[DType::Float32; 3]]);
    assert_eq!(
        refused(split(i64::MAX)),
        "Split: attribute `n` must be at most 65536, got 9223372036854775807"
    );
    assert_eq!(refused(split(0)), "Split: attribute `n` must be at least 1, got 0");
}

#[test]
fn unknown_attributes_are_named_with_those_that_exist() {
    let error = |name| lists().unknown_attr(name).message().to_owned();
    assert_eq!(error("b"), "Lists: has no attribute `b`; it has: a, f, g, names, out");
    assert_eq!(
        error("nmaes"),
        "Lists: has no attribute `nmaes`; it has: a, f, g, names, out; did you mean `names`?"
    );
    assert_eq!(
        pairwise().unknown_attr("p").message(),
        "PairwiseManhattanDistance: has no attribute `p`; it has: none"
    );
}
