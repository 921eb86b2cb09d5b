//! Attribute values from JSON, in the form that a definition's JSON gives defaults in.

use std::sync::Arc;

use serde_json::Value;

use super::AttrDef;
use crate::attr::{AttrBase, AttrValue, PartialShape};
use crate::{DType, Error, Result};

impl AttrDef {
    /// The value that JSON stands for, read as the attribute's type; or a text as [`parse_value`](Self::parse_value)
    /// takes it, which is the only way to give a tensor.
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
        AttrBase::Tensor => return None,
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
        AttrBase::Tensor => return None,
    })
}

fn each<T>(elements: &[Value], read: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    elements.iter().map(read).collect()
}

fn string(json: &Value) -> Option<Arc<str>> {
    json.as_str().map(Arc::from)
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
