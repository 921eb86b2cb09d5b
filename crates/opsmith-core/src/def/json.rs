//! Definitions as JSON, for Python wrappers, `inspect` and `compat`.

use std::ops::Bound;

use half::{bf16, f16};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::build::SignatureBuilder;
use super::model::{Allowed, ArgCount, ArgDef, ArgType, AttrDef, Signature};
use crate::attr::{AttrValue, PartialShape, TensorValue};
use crate::{DType, Error, Result};

impl Signature {
    /// The definition as JSON.
    ///
    /// ```json
    /// {
    ///   "name": "ZeroOut", "snake_name": "zero_out", "doc": "…", "stateful": false,
    ///   "inputs": [{"name": "to_zero", "spec": "to_zero: T", "type_attr": "T",
    ///               "ref": false, "optional": false, "saved": false, "doc": "…"}],
    ///   "outputs": […],
    ///   "attrs": [{"name": "preserve_index", "spec": "preserve_index: int >= 0 = 0", "type": "int", "list": false,
    ///              "min": 0, "default": 0, "inferred": false, "doc": "…"}]
    /// }
    /// ```
    ///
    /// An argument has exactly one of `dtype` (the name of a fixed dtype), `type_attr` and `type_list_attr` (the
    /// name of the attribute that gives the dtype, or one for each tensor), and `number_attr` if it is a list
    /// `N * …`. An attribute has `allowed`, `min` or `above`, `max` or `below`, `min_len` and `default` only where
    /// the definition gives them; `above` and `below` do not belong to the values.
    ///
    /// Values: numbers, strings and truth values as in JSON, but `"nan"`, `"inf"` and `"-inf"`; a dtype is its
    /// name; a shape is a list of dims, null where unknown, or null if the rank is unknown; a tensor is an object
    /// of `dtype`, `shape` and `values`, the elements in row-major order: real numbers or truth values,
    /// `[real, imaginary]`, or strings, in which U+FFFD stands for bytes that are not UTF-8.
    ///
    /// [`from_json`](Signature::from_json) reads only `name`, `stateful`, `doc`, and of arguments and attributes
    /// `name`, `spec`, `optional`, `saved` and `doc`: the specs say the rest.
    pub fn to_json(&self) -> Value {
        let args = |args: &[ArgDef]| args.iter().map(|arg| self.arg_json(arg)).collect::<Vec<_>>();
        json!({
            "name": self.name,
            "snake_name": self.snake_name(),
            "doc": self.doc,
            "stateful": self.stateful,
            "inputs": args(&self.inputs),
            "outputs": args(&self.outputs),
            "attrs": self.attrs.iter().map(attr_json).collect::<Vec<_>>(),
        })
    }

    /// The definition that [`to_json`](Signature::to_json) wrote.
    ///
    /// # Errors
    /// `InvalidArgument` if a field is missing or of another type, or if the definition is not well formed.
    pub fn from_json(json: &Value) -> Result<Signature> {
        let written = WrittenSignature::deserialize(json)
            .map_err(|error| Error::invalid_argument(format!("the JSON of a definition: {error}")))?;
        let mut builder = SignatureBuilder::new(written.name);
        builder.doc = written.doc;
        builder.stateful = written.stateful;
        for attr in written.attrs {
            builder = builder.attr(attr.spec).describe(attr.name, attr.doc);
        }
        builder.inputs = written.inputs.iter().map(|arg| arg.spec.clone()).collect();
        builder.outputs = written.outputs.iter().map(|arg| arg.spec.clone()).collect();
        for arg in written.inputs.into_iter().chain(written.outputs) {
            builder.optional.extend(arg.optional.then(|| arg.name.clone()));
            builder.saved.extend(arg.saved.then(|| arg.name.clone()));
            builder = builder.describe(arg.name, arg.doc);
        }
        builder.build()
    }

    fn arg_json(&self, arg: &ArgDef) -> Value {
        let mut json = json!({
            "name": arg.name,
            "spec": self.arg_spec(arg),
            "ref": arg.is_ref,
            "optional": arg.optional,
            "saved": arg.saved,
            "doc": arg.doc,
        });
        match arg.dtype {
            ArgType::Fixed(dtype) => json["dtype"] = dtype.name().into(),
            ArgType::Attr(attr) => json["type_attr"] = self.attrs[attr].name.as_str().into(),
            ArgType::List(attr) => json["type_list_attr"] = self.attrs[attr].name.as_str().into(),
        }
        if let ArgCount::Attr(attr) = arg.count {
            json["number_attr"] = self.attrs[attr].name.as_str().into();
        }
        json
    }
}

/// What reading takes of a definition.
#[derive(Deserialize)]
struct WrittenSignature {
    name: String,
    doc: String,
    stateful: bool,
    inputs: Vec<Written>,
    outputs: Vec<Written>,
    attrs: Vec<Written>,
}

/// What reading takes of an argument or attribute.
#[derive(Deserialize)]
struct Written {
    name: String,
    spec: String,
    #[serde(default)]
    optional: bool,
    #[serde(default)]
    saved: bool,
    doc: String,
}

fn attr_json(attr: &AttrDef) -> Value {
    let mut json = json!({
        "name": attr.name,
        "spec": attr.to_string(),
        "type": attr.ty.base.name(),
        "list": attr.ty.list,
        "inferred": attr.inferred,
        "doc": attr.doc,
    });
    let allowed = attr.allowed.as_ref().map(|allowed| match allowed {
        Allowed::Strings(texts) => json!(texts),
        Allowed::Ints(ints) => json!(ints),
        Allowed::Types(types) => types.iter().map(|dtype| dtype.name()).collect(),
    });
    let included = |bound: &Bound<AttrValue>| match bound {
        Bound::Included(end) => Some(end.to_json()),
        _ => None,
    };
    let excluded = |bound: &Bound<AttrValue>| match bound {
        Bound::Excluded(end) => Some(end.to_json()),
        _ => None,
    };
    let fields = [
        ("allowed", allowed),
        ("min", included(&attr.min)),
        ("above", excluded(&attr.min)),
        ("max", included(&attr.max)),
        ("below", excluded(&attr.max)),
        ("min_len", attr.min_len.map(Value::from)),
        ("default", attr.default.as_ref().map(AttrValue::to_json)),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            json[name] = value;
        }
    }
    json
}

impl AttrValue {
    /// The value as JSON, as it is written in a definition's.
    pub fn to_json(&self) -> Value {
        match self {
            AttrValue::String(text) => json!(**text),
            AttrValue::Int(n) => json!(n),
            AttrValue::Float(x) => float_json(*x),
            AttrValue::Bool(truth) => json!(truth),
            AttrValue::Type(dtype) => json!(dtype.name()),
            AttrValue::Shape(shape) => shape_json(shape),
            AttrValue::Tensor(tensor) => tensor_json(tensor),
            AttrValue::Strings(list) => list.iter().map(|text| json!(**text)).collect(),
            AttrValue::Ints(list) => json!(list),
            AttrValue::Floats(list) => list.iter().map(|x| float_json(*x)).collect(),
            AttrValue::Bools(list) => json!(list),
            AttrValue::Types(list) => list.iter().map(|dtype| dtype.name()).collect(),
            AttrValue::Shapes(list) => list.iter().map(shape_json).collect(),
            AttrValue::Tensors(list) => list.iter().map(|tensor| tensor_json(tensor)).collect(),
        }
    }
}

/// A number, or the name of one that JSON cannot hold.
fn float_json(x: f64) -> Value {
    if x.is_finite() { json!(x) } else { json!(super::text::Float(x).to_string()) }
}

fn shape_json(shape: &PartialShape) -> Value {
    json!(shape)
}

fn tensor_json(tensor: &TensorValue) -> Value {
    let mut json = Map::new();
    json.insert("dtype".into(), tensor.dtype.name().into());
    json.insert("shape".into(), tensor.shape.clone().into());
    json.insert("values".into(), elements_json(tensor));
    json.into()
}

/// The elements of a tensor, flat.
fn elements_json(tensor: &TensorValue) -> Value {
    macro_rules! each {
        ($rust:ty, $show:expr) => {{
            let (chunks, _) = tensor.bytes.as_chunks::<{ size_of::<$rust>() }>();
            chunks.iter().map(|bytes| $show(<$rust>::from_ne_bytes(*bytes))).collect::<Vec<Value>>()
        }};
    }
    let pairs = |reals: Vec<Value>| reals.chunks_exact(2).map(|pair| json!(pair)).collect();
    match tensor.dtype {
        DType::Float16 => each!(f16, |x: f16| float_json(x.to_f64())).into(),
        DType::BFloat16 => each!(bf16, |x: bf16| float_json(x.to_f64())).into(),
        DType::Float32 => each!(f32, |x: f32| float_json(x.into())).into(),
        DType::Float64 => each!(f64, float_json).into(),
        DType::Complex64 => pairs(each!(f32, |x: f32| float_json(x.into()))),
        DType::Complex128 => pairs(each!(f64, float_json)),
        DType::Int8 | DType::QInt8 => each!(i8, Value::from).into(),
        DType::Int16 | DType::QInt16 => each!(i16, Value::from).into(),
        DType::Int32 | DType::QInt32 => each!(i32, Value::from).into(),
        DType::Int64 => each!(i64, Value::from).into(),
        DType::UInt8 | DType::QUInt8 => each!(u8, Value::from).into(),
        DType::UInt16 | DType::QUInt16 => each!(u16, Value::from).into(),
        DType::UInt32 => each!(u32, Value::from).into(),
        DType::UInt64 => each!(u64, Value::from).into(),
        DType::Bool => each!(u8, |byte| Value::from(byte != 0)).into(),
        DType::String => {
            tensor.strings.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
        }
    }
}
