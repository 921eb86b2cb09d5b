//! Attribute values from JSON, in the form that a definition's JSON gives defaults in.

use std::sync::Arc;

use serde_json::Value;

use super::AttrDef;
use crate::attr::{AttrBase, AttrValue, PartialShape, TensorValue};
use crate::dtype::ToHalf;
use crate::tensor::checked_num_elements;
use crate::{DType, Error, Result};

impl AttrDef {
    /// The value that JSON stands for, read as the attribute's type; or a text as [`parse_value`](Self::parse_value)
    /// takes it.
    ///
    /// # Errors
    /// `InvalidArgument` when the JSON is not of the attribute's type; the constraints are not checked.
    pub fn value_from_json(&self, json: &Value) -> Result<AttrValue> {
        let expected = || Error::invalid_argument(format!("expected {}, got {json}", self.ty));
        if let (Some(text), true) = (json.as_str(), self.ty.list || self.ty.base != AttrBase::String) {
            return self.parse_value(text);
        }
        if !self.ty.list {
            return one(self.ty.base, json).ok_or_else(expected);
        }
        let elements = json.as_array().ok_or_else(expected)?;
        many(self.ty.base, elements).ok_or_else(expected)
    }
}

fn one(base: AttrBase, json: &Value) -> Option<AttrValue> {
    Some(match base {
        AttrBase::String => AttrValue::String(string(json)?),
        AttrBase::Int => AttrValue::Int(json.as_i64()?),
        AttrBase::Float => AttrValue::Float(float(json)?),
        AttrBase::Bool => AttrValue::Bool(json.as_bool()?),
        AttrBase::Type => AttrValue::Type(dtype(json)?),
        AttrBase::Shape => AttrValue::Shape(shape(json)?),
        AttrBase::Tensor => AttrValue::Tensor(Arc::new(tensor(json)?)),
    })
}

fn many(base: AttrBase, elements: &[Value]) -> Option<AttrValue> {
    Some(match base {
        AttrBase::String => AttrValue::Strings(each(elements, string)?),
        AttrBase::Int => AttrValue::Ints(each(elements, Value::as_i64)?),
        AttrBase::Float => AttrValue::Floats(each(elements, float)?),
        AttrBase::Bool => AttrValue::Bools(each(elements, Value::as_bool)?),
        AttrBase::Type => AttrValue::Types(each(elements, dtype)?),
        AttrBase::Shape => AttrValue::Shapes(each(elements, shape)?),
        AttrBase::Tensor => AttrValue::Tensors(each(elements, |json| tensor(json).map(Arc::new))?),
    })
}

fn each<T>(elements: &[Value], read: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    elements.iter().map(read).collect()
}

fn string(json: &Value) -> Option<Arc<str>> {
    json.as_str().map(Arc::from)
}

impl TensorValue {
    /// Reads a tensor from the object of `dtype`, `shape` and `values` that a definition's JSON has for one.
    ///
    /// # Errors
    /// `InvalidArgument` when it is of another form.
    pub fn from_json(json: &Value) -> Result<TensorValue> {
        tensor(json).ok_or_else(|| Error::invalid_argument(format!("`{json}` is not a tensor")))
    }
}

fn tensor(json: &Value) -> Option<TensorValue> {
    let dtype = dtype(&json["dtype"])?;
    let dims = json["shape"].as_array()?.iter();
    let shape: Vec<usize> = dims.map(|dim| usize::try_from(dim.as_u64()?).ok()).collect::<Option<_>>()?;
    let values = json["values"].as_array()?;
    if checked_num_elements(&shape)? != values.len() {
        return None;
    }
    let mut tensor = TensorValue { dtype, shape, bytes: vec![], strings: vec![] };
    for value in values {
        if dtype == DType::String {
            tensor.strings.push(value.as_str()?.into());
        } else {
            tensor.bytes.extend(element(dtype, value)?);
        }
    }
    Some(tensor)
}

/// The bytes of one element.
fn element(dtype: DType, json: &Value) -> Option<Vec<u8>> {
    macro_rules! int {
        ($rust:ty) => {
            match json.as_u64() {
                Some(value) => <$rust>::try_from(value).ok()?.to_ne_bytes().into(),
                None => <$rust>::try_from(json.as_i64()?).ok()?.to_ne_bytes().into(),
            }
        };
    }
    let pair = |base: DType| {
        let [re, im] = json.as_array()?.as_slice() else { return None };
        Some([element(base, re)?, element(base, im)?].concat())
    };
    Some(match dtype {
        DType::Float16 => float(json)?.to_f16().to_ne_bytes().into(),
        DType::BFloat16 => float(json)?.to_bf16().to_ne_bytes().into(),
        DType::Float32 => (float(json)? as f32).to_ne_bytes().into(),
        DType::Float64 => float(json)?.to_ne_bytes().into(),
        DType::Complex64 => pair(DType::Float32)?,
        DType::Complex128 => pair(DType::Float64)?,
        DType::Int8 | DType::QInt8 => int!(i8),
        DType::Int16 | DType::QInt16 => int!(i16),
        DType::Int32 | DType::QInt32 => int!(i32),
        DType::Int64 => int!(i64),
        DType::UInt8 | DType::QUInt8 => int!(u8),
        DType::UInt16 | DType::QUInt16 => int!(u16),
        DType::UInt32 => int!(u32),
        DType::UInt64 => int!(u64),
        DType::Bool => vec![json.as_bool()?.into()],
        DType::String => return None,
    })
}

/// JSON has no infinities and no NaN: they come as text.
fn float(json: &Value) -> Option<f64> {
    match json.as_str() {
        Some("nan") => Some(f64::NAN),
        Some("inf") => Some(f64::INFINITY),
        Some("-inf") => Some(f64::NEG_INFINITY),
        _ => json.as_f64(),
    }
}

fn dtype(json: &Value) -> Option<DType> {
    DType::parse(json.as_str()?)
}

fn shape(json: &Value) -> Option<PartialShape> {
    if json.is_null() {
        return Some(None);
    }
    let dims = json.as_array()?.iter().map(|dim| match dim {
        Value::Null => Some(None),
        dim => dim.as_u64().map(Some),
    });
    dims.collect::<Option<Vec<_>>>().map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tensors_of_every_dtype_survive_json() {
        for dtype in DType::ALL {
            let (values, bytes) = match dtype {
                DType::String => (json!(["a", "ü"]), None),
                DType::Bool => (json!([true, false]), None),
                DType::Complex64 | DType::Complex128 => {
                    (json!([[1.5, -2.0], [0.0, "inf"]]), Some(2 * dtype.size()))
                }
                dtype if crate::dtype::sets::ANY_FLOAT.contains(&dtype) => {
                    (json!([1.5, "-inf"]), Some(2 * dtype.size()))
                }
                _ => (json!([1, 127]), Some(2 * dtype.size())),
            };
            let json = json!({ "dtype": dtype.name(), "shape": [2], "values": values });
            let tensor = TensorValue::from_json(&json).unwrap();
            assert!(bytes.is_none_or(|bytes| tensor.bytes.len() == bytes), "{dtype}");
            assert_eq!(AttrValue::Tensor(Arc::new(tensor)).to_json(), json);
        }
    }

    #[test]
    fn what_is_no_tensor_is_an_error() {
        for json in [
            json!({ "dtype": "int8", "shape": [1], "values": [128] }),
            json!({ "dtype": "int8", "shape": [2], "values": [1] }),
            json!({ "dtype": "bool", "shape": [], "values": [1] }),
            json!([1, 2]),
        ] {
            assert!(TensorValue::from_json(&json).unwrap_err().message().contains("is not a tensor"));
        }
    }
}
