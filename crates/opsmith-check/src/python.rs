//! A case as a line of Python that makes the call.

use opsmith_core::attr::TensorValue;
use opsmith_core::{AttrValue, DType};

use crate::case::Case;
use crate::layout::Layout;
use crate::subject::Subject;
use crate::values::{Values, numbers};

/// The words that the wrappers write with a `_` behind them.
const RESERVED: [&str; 36] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def",
    "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is",
    "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield", "name",
];

/// A tensor with more elements is written as a formula where it is one.
const LONG: usize = 40;

/// The line.
pub(crate) fn line(subject: &Subject, case: &Case) -> String {
    let mut position = 0;
    let mut tensor = |tensor: &Option<std::sync::Arc<TensorValue>>| {
        let layout = case.layout(position);
        position += 1;
        tensor.as_ref().map_or("None".to_owned(), |value| laid_out(layout, value, position - 1))
    };
    let defs = &subject.signature.inputs;
    let mut arguments = Vec::new();
    for (input, list) in case.inputs.iter().enumerate() {
        let tensors: Vec<String> = list.iter().map(&mut tensor).collect();
        let is_list = defs.get(input).is_some_and(|def| def.count.is_list()) || tensors.len() != 1;
        arguments.push(if is_list { format!("[{}]", tensors.join(", ")) } else { tensors.concat() });
    }
    for (name, value) in &case.attrs {
        arguments.push(format!("{}={}", python_name(name), attribute(value)));
    }
    let uses = |dtype: DType| case.tensors().any(|tensor| tensor.dtype == dtype);
    let more = if uses(DType::BFloat16) { ", ml_dtypes" } else { "" };
    let (library, op) = (subject.library.python(), python_name(&subject.signature.snake_name()));
    let arguments = arguments.join(", ");
    format!("import numpy as np, opsmith{more}; print({library}.{op}({arguments}))")
}

/// A name as the wrappers write it.
fn python_name(name: &str) -> String {
    format!("{name}{}", if RESERVED.contains(&name) { "_" } else { "" })
}

/// The tensor as NumPy has it lie in memory in this way.
fn laid_out(layout: Layout, value: &TensorValue, position: usize) -> String {
    let value = layout.value(value);
    let array = array(&value, position);
    let rank = value.shape.len();
    match layout {
        Layout::Transposed if rank > 1 => format!("np.asfortranarray({array})"),
        Layout::Sliced if rank > 0 => {
            let repeated = (0..rank).fold(array, |array, axis| format!("np.repeat({array}, 2, {axis})"));
            format!("{repeated}[{}]", vec!["::2"; rank].join(", "))
        }
        Layout::Reversed if rank > 0 => format!("np.flip(np.flip({array}).copy())"),
        Layout::Broadcast if rank > 0 => format!("np.broadcast_to({array}[:1], {})", tuple(&value.shape)),
        Layout::Unaligned if value.dtype != DType::String => format!(
            "np.frombuffer(b'\\0' + {array}.tobytes(), {}, offset=1).reshape({})",
            dtype(value.dtype),
            tuple(&value.shape)
        ),
        _ => array,
    }
}

fn array(value: &TensorValue, position: usize) -> String {
    let elements: usize = value.shape.iter().product();
    let dtype_name = dtype(value.dtype);
    let is_real = !matches!(value.dtype, DType::Complex64 | DType::Complex128 | DType::String);
    if elements > LONG && is_real && *value == Values::Formula.tensor(value.dtype, &value.shape, position) {
        let salt = 11 * position;
        let steps = format!("(np.arange({elements}) * 37 + {salt})");
        let numbers = if crate::values::is_float(value.dtype) {
            format!("({steps} % 97 / 8 - 6)")
        } else {
            format!("({steps} % 5)")
        };
        return format!("{numbers}.reshape({}).astype({dtype_name})", tuple(&value.shape));
    }
    if elements == 0 {
        return format!("np.zeros({}, {dtype_name})", tuple(&value.shape));
    }
    format!("np.array({}, {dtype_name})", nested(&texts(value), &value.shape))
}

/// Each element in Python's words.
fn texts(value: &TensorValue) -> Vec<String> {
    if value.dtype == DType::String {
        let text = |bytes: &Vec<u8>| format!("{:?}", String::from_utf8_lossy(bytes));
        return value.strings.iter().map(text).collect();
    }
    let numbers = numbers(value);
    match value.dtype {
        DType::Complex64 | DType::Complex128 => numbers
            .chunks_exact(2)
            .map(|pair| format!("complex({}, {})", float(pair[0]), float(pair[1])))
            .collect(),
        DType::Bool => numbers.iter().map(|x| (if *x > 0.0 { "True" } else { "False" }).to_owned()).collect(),
        // A float would lose the last digits of a large integer.
        DType::Int64 => integers(value, i64::from_ne_bytes),
        DType::UInt64 => integers(value, u64::from_ne_bytes),
        dtype if crate::values::is_float(dtype) => numbers.iter().map(|x| shortest(dtype, *x)).collect(),
        _ => numbers.iter().map(|x| format!("{x:.0}")).collect(),
    }
}

fn integers<T: ToString>(value: &TensorValue, read: impl Fn([u8; 8]) -> T) -> Vec<String> {
    value.bytes.as_chunks::<8>().0.iter().map(|bytes| read(*bytes).to_string()).collect()
}

/// The shortest decimal that the dtype reads as the number.
fn shortest(dtype: DType, x: f64) -> String {
    let short = format!("{:?}", x as f32);
    if dtype != DType::Float64 && x.is_finite() { short } else { float(x) }
}

fn float(x: f64) -> String {
    match x {
        x if x.is_nan() => "np.nan".to_owned(),
        f64::INFINITY => "np.inf".to_owned(),
        f64::NEG_INFINITY => "-np.inf".to_owned(),
        x => format!("{x:?}"),
    }
}

/// `[[1, 2], [3, 4]]`
fn nested(texts: &[String], shape: &[usize]) -> String {
    match shape {
        [] => texts.concat(),
        [_, rest @ ..] => {
            let size = rest.iter().product::<usize>().max(1);
            let rows: Vec<String> = texts.chunks(size).map(|row| nested(row, rest)).collect();
            format!("[{}]", rows.join(", "))
        }
    }
}

fn tuple(shape: &[usize]) -> String {
    let dims: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let comma = if dims.len() == 1 { "," } else { "" };
    format!("({}{comma})", dims.join(", "))
}

fn dtype(dtype: DType) -> String {
    match dtype {
        DType::BFloat16 => "ml_dtypes.bfloat16".to_owned(),
        DType::String => "str".to_owned(),
        dtype => format!("'{dtype}'"),
    }
}

fn attribute(value: &AttrValue) -> String {
    fn list<T>(elements: &[T], show: impl Fn(&T) -> String) -> String {
        format!("[{}]", elements.iter().map(show).collect::<Vec<_>>().join(", "))
    }
    let truth = |truth: &bool| (if *truth { "True" } else { "False" }).to_owned();
    let number = |x: &f64| if x.is_finite() { float(*x) } else { format!("float('{x}')") };
    let dim = |dim: &Option<u64>| dim.map_or("None".to_owned(), |dim| dim.to_string());
    let shape =
        |dims: &Option<Vec<Option<u64>>>| dims.as_ref().map_or("None".to_owned(), |dims| list(dims, dim));
    match value {
        AttrValue::String(text) => format!("{text:?}"),
        AttrValue::Int(n) => n.to_string(),
        AttrValue::Float(x) => number(x),
        AttrValue::Bool(value) => truth(value),
        AttrValue::Type(value) => dtype(*value),
        AttrValue::Shape(dims) => shape(dims),
        AttrValue::Tensor(value) => array(value, 0),
        AttrValue::Strings(texts) => list(texts, |text| format!("{text:?}")),
        AttrValue::Ints(ints) => list(ints, ToString::to_string),
        AttrValue::Floats(floats) => list(floats, number),
        AttrValue::Bools(truths) => list(truths, truth),
        AttrValue::Types(types) => list(types, |value| dtype(*value)),
        AttrValue::Shapes(shapes) => list(shapes, shape),
        AttrValue::Tensors(tensors) => list(tensors, |value| array(value, 0)),
    }
}
