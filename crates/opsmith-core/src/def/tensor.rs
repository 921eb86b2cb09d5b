//! Constant tensors, written as protocol buffers' text format writes `TensorProto`.

use std::fmt;
use std::ops::Range;

use super::fault::Fault;
use super::lexer::{Cursor, Kind, Token, parse_bool, parse_float, parse_int};
use super::message::{dtype, message, shape, unknown_field};
use super::text::{Float, Quoted, Shape, counted};
use crate::DType;
use crate::attr::TensorValue;

/// The most bytes a tensor in a definition may hold: a broadcast value must not exhaust memory.
const MOST_BYTES: usize = 16 << 20;

const VALUE_FIELDS: [&str; 11] = [
    "half_val",
    "float_val",
    "double_val",
    "int_val",
    "string_val",
    "scomplex_val",
    "int64_val",
    "bool_val",
    "dcomplex_val",
    "uint32_val",
    "uint64_val",
];

/// The field that holds the elements of a tensor of this dtype.
fn value_field(dtype: DType) -> &'static str {
    match dtype {
        DType::Float16 | DType::BFloat16 => "half_val",
        DType::Float32 => "float_val",
        DType::Float64 => "double_val",
        DType::String => "string_val",
        DType::Complex64 => "scomplex_val",
        DType::Complex128 => "dcomplex_val",
        DType::Int64 => "int64_val",
        DType::Bool => "bool_val",
        DType::UInt32 => "uint32_val",
        DType::UInt64 => "uint64_val",
        DType::Int32 | DType::Int16 | DType::Int8 | DType::UInt16 | DType::UInt8 => "int_val",
        DType::QInt8 | DType::QUInt8 | DType::QInt16 | DType::QUInt16 | DType::QInt32 => "int_val",
    }
}

/// How many written values make an element: the real and the imaginary part, or one.
fn parts(dtype: DType) -> usize {
    if matches!(dtype, DType::Complex64 | DType::Complex128) { 2 } else { 1 }
}

/// A value as it is written, and the name of its field.
struct Written {
    field: Range<usize>,
    value: Token,
}

/// Takes `{ dtype: … tensor_shape { … } …_val: … }`.
///
/// As in TensorFlow a missing shape is that of a scalar, and where values are missing the last one, or zero,
/// fills the rest.
pub(super) fn parse(cursor: &mut Cursor) -> Result<TensorValue, Fault> {
    let start = cursor.peek().span.start;
    let mut element = None;
    let mut dims = Some(Vec::new());
    let mut values = Vec::new();
    message(cursor, "a tensor", |cursor, name, span| {
        match name {
            "dtype" => element = Some(dtype(cursor)?),
            "tensor_shape" => dims = shape(cursor)?.and_then(|dims| dims.into_iter().collect()),
            _ if VALUE_FIELDS.contains(&name) => {
                let value = cursor.take();
                if matches!(value.kind, Kind::End | Kind::Sign) {
                    return Err(Fault::new("expected a value", value.span));
                }
                values.push(Written { field: span, value });
            }
            _ => {
                let known = [&["dtype", "tensor_shape"], &VALUE_FIELDS[..]].concat();
                return Err(unknown_field("a tensor", name, span, &known));
            }
        }
        Ok(())
    })?;
    let whole = start..cursor.previous_end();
    let dtype = element.ok_or_else(|| Fault::new("a tensor needs a `dtype`", whole.clone()))?;
    let dims = dims.ok_or_else(|| Fault::new("a tensor needs a shape that is fully known", whole.clone()))?;
    fill(cursor.text, dtype, &dims, &values, whole)
}

/// The tensor that the values make.
fn fill(
    text: &str,
    dtype: DType,
    dims: &[u64],
    values: &[Written],
    whole: Range<usize>,
) -> Result<TensorValue, Fault> {
    let shape: Option<Vec<usize>> = dims.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    // Without the dims that are zero, so that no product overflows whatever the order.
    let volume = dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim.max(1)));
    let (Some(shape), Some(_)) = (shape, volume.filter(|&n| n <= (MOST_BYTES / dtype.size()) as u64)) else {
        return Err(Fault::new(format!("a tensor in a definition holds at most {MOST_BYTES} bytes"), whole));
    };
    let count: usize = shape.iter().product();
    if !values.len().is_multiple_of(parts(dtype)) {
        return Err(Fault::new(format!("each element of {dtype} takes {} values", parts(dtype)), whole));
    }
    if values.len() > count * parts(dtype) {
        let message =
            format!("{} for a tensor of {}", counted(values.len(), "value"), counted(count, "element"));
        return Err(Fault::new(message, whole));
    }
    let mut tensor = TensorValue { dtype, shape, bytes: Vec::new(), strings: Vec::new() };
    for Written { field, value } in values {
        let name = &text[field.clone()];
        if name != value_field(dtype) {
            let message = format!("a tensor of {dtype} takes `{}`, not `{name}`", value_field(dtype));
            return Err(Fault::new(message, field.clone()));
        }
        push(text, value, &mut tensor)?;
    }
    if dtype == DType::String {
        let last = tensor.strings.last().cloned().unwrap_or_default();
        tensor.strings.resize(count, last);
    } else {
        let size = dtype.size();
        let last = tensor.bytes.rchunks_exact(size).next().map_or(vec![0; size], <[u8]>::to_vec);
        while tensor.bytes.len() < count * size {
            tensor.bytes.extend_from_slice(&last);
        }
    }
    Ok(tensor)
}

/// Adds one written value to the tensor's contents.
fn push(text: &str, value: &Token, tensor: &mut TensorValue) -> Result<(), Fault> {
    macro_rules! int {
        ($rust:ty) => {
            tensor.bytes.extend_from_slice(&parse_int::<$rust>(text, &value.span)?.to_ne_bytes())
        };
    }
    macro_rules! float {
        ($rust:ty) => {
            tensor.bytes.extend_from_slice(&parse_float::<$rust>(text, &value.span)?.to_ne_bytes())
        };
    }
    match tensor.dtype {
        DType::Float32 | DType::Complex64 => float!(f32),
        DType::Float64 | DType::Complex128 => float!(f64),
        DType::Int8 | DType::QInt8 => int!(i8),
        DType::Int16 | DType::QInt16 => int!(i16),
        DType::Int32 | DType::QInt32 => int!(i32),
        DType::Int64 => int!(i64),
        DType::UInt8 | DType::QUInt8 => int!(u8),
        DType::UInt16 | DType::QUInt16 | DType::Float16 | DType::BFloat16 => int!(u16),
        DType::UInt32 => int!(u32),
        DType::UInt64 => int!(u64),
        DType::Bool => tensor.bytes.push(u8::from(parse_bool(text, &value.span)?)),
        DType::String => match &value.kind {
            Kind::Text(content) => tensor.strings.push(content.clone()),
            _ => return Err(Fault::new("expected a string in quotes", value.span.clone())),
        },
    }
    Ok(())
}

/// A tensor as [`parse`] takes it: every value, or one that stands for all.
pub(super) struct Printed<'a>(pub(super) &'a TensorValue);

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TensorValue { dtype, shape, .. } = self.0;
        write!(f, "{{ dtype: {}", dtype.proto_name())?;
        if !shape.is_empty() {
            let dims = shape.iter().map(|&dim| Some(dim as u64)).collect();
            write!(f, " tensor_shape {}", Shape(&Some(dims)))?;
        }
        let values = written(self.0);
        let each = parts(*dtype);
        let all_same = values.chunks(each).all(|element| element == &values[..each]);
        let shown = if all_same { values.len().min(each) } else { values.len() };
        for value in &values[..shown] {
            write!(f, " {}: {value}", value_field(*dtype))?;
        }
        f.write_str(" }")
    }
}

/// The values of a tensor, each as it is written: reals, parts of complex numbers, quoted strings.
fn written(tensor: &TensorValue) -> Vec<String> {
    macro_rules! each {
        ($rust:ty, $show:expr) => {{
            let (chunks, _) = tensor.bytes.as_chunks::<{ size_of::<$rust>() }>();
            chunks.iter().map(|bytes| $show(<$rust>::from_ne_bytes(*bytes))).collect()
        }};
        ($rust:ty) => {
            each!($rust, |value: $rust| value.to_string())
        };
    }
    match tensor.dtype {
        DType::Float32 | DType::Complex64 => each!(f32, |value| Float(value).to_string()),
        DType::Float64 | DType::Complex128 => each!(f64, |value| Float(value).to_string()),
        DType::Int8 | DType::QInt8 => each!(i8),
        DType::Int16 | DType::QInt16 => each!(i16),
        DType::Int32 | DType::QInt32 => each!(i32),
        DType::Int64 => each!(i64),
        DType::UInt8 | DType::QUInt8 => each!(u8),
        DType::UInt16 | DType::QUInt16 | DType::Float16 | DType::BFloat16 => each!(u16),
        DType::UInt32 => each!(u32),
        DType::UInt64 => each!(u64),
        DType::Bool => each!(u8, |byte| (byte != 0).to_string()),
        DType::String => tensor.strings.iter().map(|bytes| Quoted(bytes).to_string()).collect(),
    }
}
