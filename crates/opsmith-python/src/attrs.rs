//! Attributes of a call: Python's values as the definition's types.

use std::sync::Arc;

use opsmith_core::attr::{AttrBase, AttrType, MAX_LIST, MAX_TEXT, PartialShape, TensorValue};
use opsmith_core::def::AttrDef;
use opsmith_core::tensor::MAX_RANK;
use opsmith_core::{AttrValue, DType, Error, Signature, memory};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyString, PyTuple, PyType};
use smallvec::SmallVec;

use crate::errors::{caused, to_python, unless_refused};
use crate::python_values::{describe, text_to_bytes};

/// The attributes given, by name.
pub(crate) type Given<'a> = SmallVec<[(&'a str, AttrValue); 2]>;

/// What to do with an array in place of a number; `opsmith/_attributes.py` says the same for the frameworks.
const ARRAY: &str =
    "; an attribute has no gradient: what is learnt, or is an array, has to be an input of the op";

/// Why a value will not do: what was expected.
type Refused = Option<String>;

/// Reads the attributes of a call: a tuple in the definition's order of those that inputs do not decide, or a dictionary
/// by name. `None` in place of a value asks for the default; where there is none it is a shape of unknown rank.
///
/// # Errors
/// `InvalidArgumentError` that names op and attribute, for one that the op does not have or a value of the wrong type.
pub(crate) fn read<'a>(
    signature: &'a Signature,
    visible: &[usize],
    attrs: &Bound<'_, PyAny>,
) -> PyResult<Given<'a>> {
    let py = attrs.py();
    let wrong = |text: String| Error::invalid_argument(text).with_op(&signature.name);
    let refuse = |text: String| to_python(py, &wrong(text));
    let mut given = Given::new();
    if let Ok(attrs) = attrs.cast::<PyTuple>() {
        if attrs.len() > visible.len() {
            return Err(refuse(format!("has {} attributes, got {}", visible.len(), attrs.len())));
        }
        for (&index, value) in visible.iter().zip(attrs.iter_borrowed()) {
            let attr = &signature.attrs[index];
            if !asks_for_default(attr, &value) {
                given.push(read_one(signature, attr, &value)?);
            }
        }
    } else if let Ok(attrs) = attrs.cast::<PyDict>() {
        for (name, value) in attrs {
            let name = name.extract::<String>();
            let name = name.map_err(|error| caused(py, wrong("names of attributes".to_owned()), error))?;
            let index = signature.attr_index(&name);
            let index = index.ok_or_else(|| to_python(py, &signature.unknown_attr(&name)))?;
            let attr = &signature.attrs[index];
            if !asks_for_default(attr, &value) {
                given.push(read_one(signature, attr, &value)?);
            }
        }
    } else {
        return Err(refuse(format!("attributes must be a tuple or a dict, got {}", describe(attrs)?)));
    }
    Ok(given)
}

/// Whether the value is `None`, and does not stand for a shape of unknown rank that has to be given.
fn asks_for_default(attr: &AttrDef, value: &Bound<'_, PyAny>) -> bool {
    let is_shape = attr.ty == AttrType { base: AttrBase::Shape, list: false };
    value.is_none() && (attr.default.is_some() || !is_shape)
}

fn read_one<'a>(
    signature: &Signature,
    attr: &'a AttrDef,
    value: &Bound<'_, PyAny>,
) -> PyResult<(&'a str, AttrValue)> {
    match convert(attr.ty, value)? {
        Ok(value) => Ok((&attr.name, value)),
        Err(refused) => {
            let expected = refused.unwrap_or_else(|| format!("be {}", attr.ty));
            let (name, got, py) = (&attr.name, describe(value)?, value.py());
            let is_number = matches!(attr.ty.base, AttrBase::Int | AttrBase::Float | AttrBase::Bool);
            let is_array = is_number && unless_refused(py, value.hasattr("ndim"))? == Some(true);
            let advice = if is_array && !attr.ty.list { ARRAY } else { "" };
            let text = format!("attribute `{name}` must {expected}, got {got}{advice}");
            let error = Error::invalid_argument(text).naming(name).with_op(&signature.name);
            Err(to_python(py, &error))
        }
    }
}

fn convert(ty: AttrType, value: &Bound<'_, PyAny>) -> PyResult<Result<AttrValue, Refused>> {
    if ty.list {
        return list(ty.base, value);
    }
    Ok(match ty.base {
        AttrBase::String => string(value)?.map(AttrValue::String),
        AttrBase::Int => int(value)?.map(AttrValue::Int),
        AttrBase::Float => float(value)?.map(AttrValue::Float),
        AttrBase::Bool => boolean(value)?.map(AttrValue::Bool),
        AttrBase::Type => dtype(value)?.map(AttrValue::Type),
        AttrBase::Shape => shape(value)?.map(AttrValue::Shape),
        AttrBase::Tensor => tensor(value)?.map(AttrValue::Tensor),
    })
}

fn list(base: AttrBase, value: &Bound<'_, PyAny>) -> PyResult<Result<AttrValue, Refused>> {
    let is_text = value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>();
    if is_text {
        return Ok(Err(None));
    }
    let Some(elements) = unless_refused(value.py(), value.try_iter())? else { return Ok(Err(None)) };
    macro_rules! each {
        ($read:ident, $variant:ident) => {{
            let mut values = Vec::new();
            for element in elements {
                // An iterator may have no end.
                if values.len() == MAX_LIST {
                    return Ok(Err(Some(format!("have at most {MAX_LIST} elements"))));
                }
                memory::reserve(&mut values, 1, "a list").map_err(|error| to_python(value.py(), &error))?;
                let Some(element) = unless_refused(value.py(), element)? else { return Ok(Err(None)) };
                match $read(&element)? {
                    Ok(value) => values.push(value),
                    Err(refused) => return Ok(Err(refused)),
                }
            }
            Ok(Ok(AttrValue::$variant(values)))
        }};
    }
    match base {
        AttrBase::String => each!(string, Strings),
        AttrBase::Int => each!(int, Ints),
        AttrBase::Float => each!(float, Floats),
        AttrBase::Bool => each!(boolean, Bools),
        AttrBase::Type => each!(dtype, Types),
        AttrBase::Shape => each!(shape, Shapes),
        AttrBase::Tensor => each!(tensor, Tensors),
    }
}

fn string(value: &Bound<'_, PyAny>) -> PyResult<Result<Arc<str>, Refused>> {
    let not_utf8 = || Some("be UTF-8 text".to_owned());
    let Some(bytes) = text_to_bytes(value)? else {
        return Ok(Err(if value.is_instance_of::<PyString>() { not_utf8() } else { None }));
    };
    if bytes.len() > MAX_TEXT {
        return Ok(Err(Some(format!("have at most {MAX_TEXT} bytes"))));
    }
    Ok(std::str::from_utf8(&bytes).map(Arc::from).map_err(|_| not_utf8()))
}

fn int(value: &Bound<'_, PyAny>) -> PyResult<Result<i64, Refused>> {
    if value.is_instance_of::<PyBool>() || value.is_instance_of::<PyFloat>() {
        return Ok(Err(None));
    }
    let index = match value.is_exact_instance_of::<PyInt>() {
        true => value.clone(),
        false => match unless_refused(value.py(), value.call_method0("__index__"))? {
            Some(index) => index,
            None => return Ok(Err(None)),
        },
    };
    let index = unless_refused(value.py(), index.extract())?;
    Ok(index.ok_or_else(|| Some("fit in 64 bits".to_owned())))
}

fn float(value: &Bound<'_, PyAny>) -> PyResult<Result<f64, Refused>> {
    let is_number = value.is_instance_of::<PyFloat>()
        || !(value.is_instance_of::<PyBool>() || value.is_instance_of::<PyString>())
            && value.hasattr("__float__")?;
    let number = if is_number { unless_refused(value.py(), value.extract())? } else { None };
    Ok(number.ok_or(None))
}

fn boolean(value: &Bound<'_, PyAny>) -> PyResult<Result<bool, Refused>> {
    // Python's own, and NumPy's scalar.
    Ok(unless_refused(value.py(), value.extract())?.ok_or(None))
}

fn dtype(value: &Bound<'_, PyAny>) -> PyResult<Result<DType, Refused>> {
    let unknown = || Some("be a dtype, as in 'float32'".to_owned());
    Ok(dtype_name(value)?.and_then(|name| DType::parse(&name)).ok_or_else(unknown))
}

/// The name of what stands for a dtype: a name, a dtype of NumPy, PyTorch or TensorFlow, or a scalar type.
fn dtype_name(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = value.py();
    let text = unless_refused(py, value.str().and_then(|text| text.extract::<String>()))?;
    if value.is_instance_of::<PyString>() {
        return Ok(text);
    }
    let text = text.unwrap_or_default();
    if let Some(name) = text.strip_prefix("torch.") {
        return Ok(Some(name.to_owned()));
    }
    let numpy = py.import("numpy")?;
    let named = if value.is_instance_of::<PyType>() {
        numpy.call_method1("dtype", (value,))
    } else {
        Ok(value.clone())
    };
    let Some(named) = unless_refused(py, named)? else { return Ok(None) };
    let kind = named.getattr("kind").and_then(|kind| kind.extract::<char>());
    if matches!(unless_refused(py, kind)?, Some('U' | 'S' | 'O' | 'T')) {
        return Ok(Some(DType::String.name().to_owned()));
    }
    unless_refused(py, named.getattr("name").and_then(|name| name.extract()))
}

fn shape(value: &Bound<'_, PyAny>) -> PyResult<Result<PartialShape, Refused>> {
    if value.is_none() {
        return Ok(Ok(None));
    }
    let refused = || Some("be a shape: a list of sizes, None for an unknown one".to_owned());
    let Some(elements) = unless_refused(value.py(), value.try_iter())? else { return Ok(Err(refused())) };
    let mut dims = Vec::new();
    for element in elements {
        let Some(element) = unless_refused(value.py(), element)? else { return Ok(Err(refused())) };
        if dims.len() == MAX_RANK {
            return Ok(Err(Some(format!("be a shape of at most {MAX_RANK} dims"))));
        }
        if element.is_none() {
            dims.push(None);
            continue;
        }
        match int(&element)? {
            Ok(-1) => dims.push(None),
            Ok(dim) if dim >= 0 => dims.push(Some(dim as u64)),
            _ => return Ok(Err(refused())),
        }
    }
    Ok(Ok(Some(dims)))
}

fn tensor(value: &Bound<'_, PyAny>) -> PyResult<Result<Arc<TensorValue>, Refused>> {
    let py = value.py();
    let refused = || Some("be a tensor: an array, a number or a list".to_owned());
    let failed = |error| to_python(py, &error);
    let numpy = py.import("numpy")?;
    let array = unless_refused(py, numpy.call_method1("asarray", (value,)))?;
    let Some(array) = array else { return Ok(Err(refused())) };
    let dtype = array.getattr("dtype")?;
    let shape: Vec<usize> = array.getattr("shape")?.extract()?;
    let kind: char = dtype.getattr("kind")?.extract()?;
    if matches!(kind, 'U' | 'S' | 'O' | 'T') {
        let elements =
            numpy.call_method1("asarray", (value, "O"))?.call_method0("ravel")?.call_method0("tolist")?;
        let mut strings = Vec::new();
        for element in elements.try_iter()? {
            let Some(text) = text_to_bytes(&element?)? else { return Ok(Err(refused())) };
            memory::reserve(&mut strings, 1, "a tensor of text").map_err(failed)?;
            strings.push(text);
        }
        return Ok(Ok(Arc::new(TensorValue { dtype: DType::String, shape, bytes: Vec::new(), strings })));
    }
    let Some(name) = crate::dtypes::from_number(py, dtype.getattr("num")?.extract()?)? else {
        return Ok(Err(refused()));
    };
    let native = array.call_method1("astype", (dtype.call_method1("newbyteorder", ("=",))?,))?;
    let bytes = native.call_method0("tobytes")?.cast_into::<PyBytes>()?;
    let bytes = memory::copied(bytes.as_bytes(), "a tensor").map_err(failed)?;
    Ok(Ok(Arc::new(TensorValue { dtype: name, shape, bytes, strings: Vec::new() })))
}
