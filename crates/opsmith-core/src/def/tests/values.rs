//! Spellings of types, constraints and values beyond those of TensorFlow's guide, and how they are printed.

use std::ops::Bound::{Excluded, Included};

use serde_json::json;

use super::attr;
use crate::DType;
use crate::attr::{AttrValue, TensorValue};
use crate::def::{Allowed, Signature, SignatureBuilder};

/// The default of an attribute of this type.
fn default(ty: &str, text: &str) -> AttrValue {
    attr(&format!("a: {ty} = {text}")).unwrap().default.unwrap()
}

fn tensor(text: &str) -> TensorValue {
    let AttrValue::Tensor(tensor) = default("tensor", text) else { panic!("not a tensor") };
    (*tensor).clone()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_ne_bytes()).collect()
}

#[test]
fn bounds_and_sets_of_integers() {
    let range = attr("a: int >= 1 <= 9 = 9").unwrap();
    assert_eq!((range.min, range.max), (Included(AttrValue::Int(1)), Included(AttrValue::Int(9))));
    let negative = attr("a: int>=-5=-5").unwrap();
    assert_eq!((negative.min, negative.default), (Included(AttrValue::Int(-5)), Some(AttrValue::Int(-5))));
    let share = attr("a: float >= 0 <= 1").unwrap();
    assert_eq!((share.min, share.max), (Included(AttrValue::Float(0.0)), Included(AttrValue::Float(1.0))));
    let open = attr("a: float > 0 < 1 = 0.5").unwrap();
    assert_eq!((open.min, open.max), (Excluded(AttrValue::Float(0.0)), Excluded(AttrValue::Float(1.0))));
    let power = attr("a: {1, 2, 4} = 2").unwrap();
    assert_eq!(power.allowed, Some(Allowed::Ints(vec![1, 2, 4])));
    let many = attr("a: list({1, 2}) >= 2 = [1, 1]").unwrap();
    assert_eq!((many.min_len, many.default), (Some(2), Some(AttrValue::Ints(vec![1, 1]))));
}

#[test]
fn scalars_and_lists() {
    assert_eq!(default("float", "3"), AttrValue::Float(3.0));
    assert_eq!(default("float", "-1.5e-3f"), AttrValue::Float(-1.5e-3));
    assert_eq!(default("float", "inf"), AttrValue::Float(f64::INFINITY));
    assert_eq!(
        default("list(float)", "[-inf, nan, .5]"),
        AttrValue::Floats(vec![f64::NEG_INFINITY, f64::NAN, 0.5])
    );
    assert_eq!(default("int", "-9223372036854775808"), AttrValue::Int(i64::MIN));
    assert_eq!(default("list(bool)", "[true, False]"), AttrValue::Bools(vec![true, false]));
    assert_eq!(default("type", "float"), default("type", "DT_FLOAT"));
    let types = AttrValue::Types(vec![DType::Float16, DType::BFloat16]);
    assert_eq!(default("list(type)", "[half, bfloat16]"), types);
    let text = AttrValue::String("it's \"A\"\n\u{e9}\u{e9}\\".into());
    assert_eq!(default("string", r#""it's \"\x41\"\n\303\251é\\""#), text);
    assert_eq!(default("list(string)", "['a', \"b\"]"), AttrValue::Strings(vec!["a".into(), "b".into()]));
}

#[test]
fn shapes() {
    assert_eq!(default("shape", "{ }"), AttrValue::Shape(Some(vec![])));
    assert_eq!(default("shape", "{ unknown_rank: true }"), AttrValue::Shape(None));
    assert_eq!(
        default("shape", "{ dim: [{ size: 2 }, { size: -1 name: 'n' }] }"),
        default("shape", "{ dim { size: 2 }, dim { size: -1; } }")
    );
    assert_eq!(
        default("list(shape)", "[{ dim { size: 2 } }, { unknown_rank: true }]"),
        AttrValue::Shapes(vec![Some(vec![Some(2)]), None])
    );
}

#[test]
fn tensors() {
    let same = tensor("{ dtype: DT_FLOAT tensor_shape { dim { size: 2 } dim { size: 2 } } float_val: 1.5 }");
    assert_eq!((same.shape, same.bytes), (vec![2, 2], floats(&[1.5; 4])));
    let filled = tensor("{ float_val: [1, 2] tensor_shape { dim { size: 3 } } dtype: float }");
    assert_eq!(filled.bytes, floats(&[1.0, 2.0, 2.0]));
    let zeros = tensor("{ dtype: DT_INT64 tensor_shape { dim { size: 3 } } }");
    assert_eq!(zeros.bytes, [0; 24]);
    let complex = tensor("{ dtype: DT_COMPLEX64 scomplex_val: 1 scomplex_val: -2 }");
    assert_eq!((complex.shape, complex.bytes), (vec![], floats(&[1.0, -2.0])));
    let texts =
        tensor(r"{ dtype: DT_STRING tensor_shape { dim { size: 2 } } string_val: 'a\377' string_val: 'b' }");
    assert_eq!(texts.strings, [b"a\xff".to_vec(), b"b".to_vec()]);
    let bools = tensor("{ dtype: DT_BOOL tensor_shape { dim { size: 2 } } bool_val: true bool_val: false }");
    assert_eq!(bools.bytes, [1, 0]);
    let empty = tensor("{ dtype: DT_DOUBLE tensor_shape { dim { size: 0 } dim { size: 9 } } }");
    assert_eq!((empty.shape, empty.bytes), (vec![0, 9], vec![]));
}

#[test]
fn specs_are_printed_in_one_spelling() {
    for (written, printed, for_tensorflow) in [
        ("a:int>=1<=9=2", "a: int >= 1 <= 9 = 2", "a: int >= 1 = 2"),
        ("a: float >= 0 = 1", "a: float >= 0.0 = 1.0", "a: float = 1.0"),
        ("a:float>0<inf=1", "a: float > 0.0 < inf = 1.0", "a: float = 1.0"),
        ("a: {1,2} = 1", "a: {1, 2} = 1", "a: int = 1"),
        ("T: {float, half} = float", "T: {float32, float16} = DT_FLOAT", "T: {float32, float16} = DT_FLOAT"),
        ("T: numerictype", "T: numbertype", "T: numbertype"),
        ("T: list({realnumbertype}) >= 2", "T: list(realnumbertype) >= 2", "T: list(realnumbertype) >= 2"),
        ("s: {\"it's\"} = \"it's\"", r"s: {'it\'s'} = 'it\'s'", r"s: {'it\'s'} = 'it\'s'"),
        ("s: shape = {dim{size:-1}}", "s: shape = { dim { size: -1 } }", "s: shape = { dim { size: -1 } }"),
        (
            "t: tensor = {dtype: int32 tensor_shape{dim{size:2}} int_val:[7,7]}",
            "t: tensor = { dtype: DT_INT32 tensor_shape { dim { size: 2 } } int_val: 7 }",
            "t: tensor = { dtype: DT_INT32 tensor_shape { dim { size: 2 } } int_val: 7 }",
        ),
    ] {
        let attr = attr(written).unwrap();
        assert_eq!(attr.to_string(), printed);
        assert_eq!(attr.to_tensorflow_spec(), for_tensorflow);
    }
}

/// An op with every kind of argument.
fn op() -> Signature {
    SignatureBuilder::new("Op")
        .attr("T: {float, int32}")
        .attr("N: int")
        .attr("Ts: list(type) >= 0 = []")
        .attr("scale: float >= 0 = inf")
        .attr("start: tensor = { dtype: DT_COMPLEX64 scomplex_val: 1 scomplex_val: 2 }")
        .input("x: T")
        .input("xs: Ref(N * T)")
        .input("more: Ts")
        .output("z: half")
        .optional("x")
        .saved("z")
        .stateful()
        .doc(
            "Does it all.

            x: A matrix.
            scale: By how much,
              if at all.",
        )
        .build()
        .unwrap()
}

#[test]
fn a_definition_prints_for_a_person() {
    assert_eq!(
        op().to_string(),
        "Op (stateful)
    attr T: {float32, int32}
    attr N: int >= 1
    attr Ts: list(type) >= 0 = []
    attr scale: float >= 0.0 = inf
    attr start: tensor = { dtype: DT_COMPLEX64 scomplex_val: 1.0 scomplex_val: 2.0 }
    input x: T (optional)
    input xs: Ref(N * T)
    input more: Ts
    output z: float16 (saved)"
    );
}

#[test]
fn a_definition_as_json() {
    let json = op().to_json();
    assert_eq!(json["doc"], "Does it all.");
    assert_eq!(
        (&json["name"], &json["snake_name"], &json["stateful"]),
        (&json!("Op"), &json!("op"), &json!(true))
    );
    assert_eq!(
        json["inputs"][0],
        json!({
            "name": "x", "spec": "x: T", "type_attr": "T",
            "ref": false, "optional": true, "saved": false, "doc": "A matrix.",
        })
    );
    assert_eq!(
        json["inputs"][1],
        json!({
            "name": "xs", "spec": "xs: Ref(N * T)", "type_attr": "T", "number_attr": "N",
            "ref": true, "optional": false, "saved": false, "doc": "",
        })
    );
    assert_eq!(json["inputs"][2]["type_list_attr"], "Ts");
    assert_eq!(json["outputs"][0]["dtype"], "float16");
    assert_eq!(
        json["attrs"][0],
        json!({
            "name": "T", "spec": "T: {float32, int32}", "type": "type", "list": false,
            "allowed": ["float32", "int32"], "inferred": true, "doc": "",
        })
    );
    assert_eq!(
        json["attrs"][3],
        json!({
            "name": "scale", "spec": "scale: float >= 0.0 = inf", "type": "float", "list": false,
            "min": 0.0, "default": "inf", "inferred": false, "doc": "By how much, if at all.",
        })
    );
    assert_eq!(json["attrs"][2]["default"], json!([]));
    assert_eq!(
        json["attrs"][4]["default"],
        json!({ "dtype": "complex64", "shape": [], "values": [[1.0, 2.0]] })
    );
    assert_eq!(Signature::from_json(&json).unwrap(), op());
}

#[test]
fn json_that_is_no_definition_is_refused() {
    let mut json = op().to_json();
    json["inputs"][0]["spec"] = "x: U".into();
    let error = Signature::from_json(&json).unwrap_err();
    assert!(error.message().starts_with("Op: `U` is neither a dtype nor an attribute"), "{error}");
    json["inputs"] = 3.into();
    let error = Signature::from_json(&json).unwrap_err();
    assert!(error.message().starts_with("the JSON of a definition: invalid type"), "{error}");
    let error = Signature::from_json(&json!({})).unwrap_err();
    assert_eq!(error.message(), "the JSON of a definition: missing field `name`");
}
