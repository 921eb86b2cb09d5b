//! The few protocol buffers that the C API hands over as bytes: a node, its attributes, shapes and tensors.

use std::sync::Arc;

use opsmith_core::attr::{AttrBase, AttrType, AttrValue, MAX_LIST, PartialShape, TensorValue};
use opsmith_core::tensor::checked_num_elements;
use opsmith_core::{DType, Error, Result, bail, ensure, memory};

/// The value of a field.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    /// An integer, or a truth value.
    Varint(u64),
    /// A message, text, or numbers one after the other.
    Bytes(&'a [u8]),
    /// A number of 4 or 8 bytes, little-endian.
    Fixed(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            Value::Bytes(bytes) | Value::Fixed(bytes) => bytes,
            Value::Varint(_) => &[],
        }
    }

    fn int(self) -> i64 {
        match self {
            Value::Varint(number) => number as i64,
            _ => 0,
        }
    }
}

/// The fields of a message in their order. What is malformed ends it.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn cut(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed(self.cut(8)?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.cut(length)?)
            }
            5 => Value::Fixed(self.cut(4)?),
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

/// The last value of the field `number`.
pub(super) fn field(message: &[u8], number: u64) -> Option<Value<'_>> {
    Fields(message).filter(|(field, _)| *field == number).last().map(|(_, value)| value)
}

/// The attributes of a `NodeDef`: name and `AttrValue`.
pub fn node_attrs(node: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    const ATTR: u64 = 5;
    let entries = Fields(node).filter(|(field, _)| *field == ATTR);
    entries.map(|(_, entry)| {
        let part = |number| field(entry.bytes(), number).map_or(&[][..], Value::bytes);
        (part(1), part(2))
    })
}

/// An `AttrValue` as a value of the type `ty`.
///
/// # Errors
/// `InvalidArgument` for text that is not UTF-8 and for dtypes that Opsmith does not have.
pub fn attr_value(ty: AttrType, message: &[u8]) -> Result<AttrValue> {
    const LIST: u64 = 1;
    // A value and the list of such values have the same field numbers.
    let (number, scalars) = match ty.base {
        AttrBase::String => (2, 0),
        AttrBase::Int => (3, 1),
        AttrBase::Float => (4, 4),
        AttrBase::Bool => (5, 1),
        AttrBase::Type => (6, 1),
        AttrBase::Shape => (7, 0),
        AttrBase::Tensor => (8, 0),
    };
    let holder = if ty.list { field(message, LIST).map_or(&[][..], Value::bytes) } else { message };
    let mut values = Vec::new();
    for (_, value) in Fields(holder).filter(|(field, _)| *field == number) {
        match value {
            Value::Bytes(packed) if scalars != 0 => unpack(packed, scalars, &mut values)?,
            value => values.push(value),
        }
        ensure!(values.len() <= MAX_LIST, InvalidArgument, "must have at most {MAX_LIST} elements");
    }
    if !ty.list && values.is_empty() {
        return Err(Error::invalid_argument(format!("is not of type {ty}")));
    }
    macro_rules! read {
        ($one:ident, $many:ident, $read:expr) => {{
            let mut read = values.into_iter().map($read).collect::<Result<Vec<_>>>()?;
            if ty.list { AttrValue::$many(read) } else { AttrValue::$one(read.swap_remove(0)) }
        }};
    }
    Ok(match ty.base {
        AttrBase::String => read!(String, Strings, |value| text(value.bytes())),
        AttrBase::Int => read!(Int, Ints, |value| Ok(value.int())),
        AttrBase::Float => read!(Float, Floats, |value| Ok(float(value))),
        AttrBase::Bool => read!(Bool, Bools, |value| Ok(value.int() != 0)),
        AttrBase::Type => read!(Type, Types, |value| dtype(value)),
        AttrBase::Shape => read!(Shape, Shapes, |value| Ok(shape(value.bytes()))),
        AttrBase::Tensor => read!(Tensor, Tensors, |value| tensor(value.bytes()).map(Arc::new)),
    })
}

/// Takes numbers that lie one after the other apart: varints for a size of 1, else `size` bytes each.
fn unpack<'a>(packed: &'a [u8], size: usize, values: &mut Vec<Value<'a>>) -> Result<()> {
    let mut rest = Fields(packed);
    while !rest.0.is_empty() {
        let next =
            if size == 1 { rest.varint().map(Value::Varint) } else { rest.cut(size).map(Value::Fixed) };
        let Some(value) = next else { break };
        memory::reserve(values, 1, "the numbers of an attribute")?;
        values.push(value);
    }
    Ok(())
}

fn text(bytes: &[u8]) -> Result<Arc<str>> {
    opsmith_core::attr::text(bytes)
}

fn float(value: Value<'_>) -> f64 {
    value.bytes().try_into().map_or(0.0, |bytes| crate::single::shortest(f32::from_le_bytes(bytes)))
}

fn dtype(value: Value<'_>) -> Result<DType> {
    let number = value.int();
    u8::try_from(number).ok().and_then(DType::from_u8).ok_or_else(|| {
        Error::invalid_argument(format!("is TensorFlow's dtype number {number}, which Opsmith does not have"))
    })
}

/// A `TensorShapeProto`.
fn shape(message: &[u8]) -> PartialShape {
    const DIM: u64 = 2;
    const UNKNOWN_RANK: u64 = 3;
    if field(message, UNKNOWN_RANK).is_some_and(|value| value.int() != 0) {
        return None;
    }
    let dims = Fields(message).filter(|(field, _)| *field == DIM);
    Some(
        dims.map(|(_, dim)| u64::try_from(field(dim.bytes(), 1).map_or(0, |value| value.int())).ok())
            .collect(),
    )
}

/// What the memory is for, in errors.
const TENSOR: &str = "the value of a tensor attribute";

/// A `TensorProto`.
fn tensor(message: &[u8]) -> Result<TensorValue> {
    const DTYPE: u64 = 1;
    const SHAPE: u64 = 2;
    const CONTENT: u64 = 4;
    const STRINGS: u64 = 8;
    let dtype = dtype(field(message, DTYPE).unwrap_or(Value::Varint(0)))?;
    let dims = shape(field(message, SHAPE).map_or(&[][..], Value::bytes)).unwrap_or_default();
    let dims: Vec<usize> = dims.into_iter().map(|dim| dim.unwrap_or(0) as usize).collect();
    let mut value = TensorValue { dtype, shape: dims, bytes: Vec::new(), strings: Vec::new() };
    let size = dtype.size();
    let count = checked_num_elements(&value.shape).filter(|count| count.checked_mul(size).is_some());
    let count = count.ok_or_else(|| Error::resource_exhausted("a tensor attribute is too large"))?;
    if dtype == DType::String {
        let strings = Fields(message).filter(|(field, _)| *field == STRINGS);
        let copy = |text: &[u8]| memory::copied(text, "text");
        value.strings = memory::try_collected(strings.map(|(_, text)| copy(text.bytes())), TENSOR)?;
        let last = copy(value.strings.last().map_or(&[][..], |text| text))?;
        let missing = count.saturating_sub(value.strings.len());
        memory::reserve(&mut value.strings, missing, TENSOR)?;
        for _ in 0..missing {
            value.strings.push(copy(&last)?);
        }
        value.strings.truncate(count);
        return Ok(value);
    }
    value.bytes = match field(message, CONTENT) {
        Some(content) if !content.bytes().is_empty() => memory::copied(content.bytes(), TENSOR)?,
        _ => listed_elements(message, dtype)?,
    };
    // The last of the values that are listed stands for all that follow; half of one is none.
    let listed = value.bytes.len() / size * size;
    value.bytes.truncate(listed);
    let last = if listed < size { vec![0; size] } else { value.bytes[listed - size..].to_vec() };
    value.bytes.truncate(count * size);
    let missing = count * size - value.bytes.len();
    memory::reserve(&mut value.bytes, missing, TENSOR)?;
    while value.bytes.len() < count * size {
        value.bytes.extend_from_slice(&last);
    }
    value.keep_truths();
    Ok(value)
}

/// The elements of a `TensorProto` that lists them in a field of their own type, as bytes.
fn listed_elements(message: &[u8], dtype: DType) -> Result<Vec<u8>> {
    let (number, scalars) = match dtype {
        DType::Float32 => (5, 4),
        DType::Float64 => (6, 8),
        DType::Complex64 => (9, 4),
        DType::Int64 => (10, 1),
        DType::Bool => (11, 1),
        DType::Complex128 => (12, 8),
        DType::Float16 | DType::BFloat16 => (13, 1),
        DType::UInt32 => (16, 1),
        DType::UInt64 => (17, 1),
        _ => (7, 1),
    };
    let mut values = Vec::new();
    for (_, value) in Fields(message).filter(|(field, _)| *field == number) {
        match value {
            Value::Bytes(packed) => unpack(packed, scalars, &mut values)?,
            value => values.push(value),
        }
    }
    let mut bytes = Vec::new();
    for value in values {
        memory::reserve(&mut bytes, dtype.size().max(scalars), TENSOR)?;
        match value {
            Value::Varint(number) if scalars == 1 => {
                bytes.extend_from_slice(&number.to_le_bytes()[..dtype.size()]);
            }
            Value::Fixed(number) if number.len() == scalars => bytes.extend_from_slice(number),
            _ => bail!(InvalidArgument, "is a {dtype} tensor whose numbers are not of {dtype}"),
        }
    }
    Ok(bytes)
}
