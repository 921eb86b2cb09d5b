//! A call's attributes. Numbers, flags, text and arrays of numbers are XLA's own; all else is text in the language in
//! which definitions write defaults: `[true, false]`, `{ dim { size: -1 } }`.

use std::ffi::c_void;
use std::sync::Arc;

use opsmith_core::attr::{self, AttrBase, AttrType, TensorValue, list};
use opsmith_core::def::{ArgDef, AttrDef};
use opsmith_core::{AttrValue, DType, Error, Result, Signature, bail};
use smallvec::SmallVec;

use super::ffi;

/// What a call carries beside tensors.
pub(super) struct Attributes {
    /// The attributes by the definition's indices, `None` where the call has none.
    pub(super) values: SmallVec<[Option<AttrValue>; 4]>,
    /// Bit `i` is set when output `i` of the definition is wanted.
    pub(super) wanted: u64,
    /// The inputs whose values are part of the program, by the definition's indices.
    pub(super) constants: SmallVec<[(usize, Arc<TensorValue>); 2]>,
    /// Bit `i` is set when input `i` of the definition is present.
    present: u64,
}

impl Attributes {
    /// Whether the caller gives the input at this position.
    pub(super) fn has(&self, input: usize) -> bool {
        self.present >> input & 1 == 1
    }

    /// Whether a buffer, or several of a list, come with the call for the input at this position.
    pub(super) fn has_buffer(&self, input: usize) -> bool {
        self.has(input) && !self.constants.iter().any(|(constant, _)| *constant == input)
    }

    /// Reads them.
    ///
    /// # Errors
    /// `InvalidArgument` for an attribute that the op does not have, or one of another type.
    ///
    /// # Safety
    /// They must come from XLA, and its call still run.
    pub(super) unsafe fn read(signature: &Signature, attrs: &ffi::Attrs) -> Result<Attributes> {
        let mut read = Attributes {
            values: SmallVec::new(),
            wanted: u64::MAX,
            constants: SmallVec::new(),
            present: u64::MAX,
        };
        read.values.resize_with(signature.attrs.len(), || None);
        for i in 0..attrs.size as usize {
            // SAFETY: XLA gives as many kinds, names and values as it says.
            let (kind, name, value) =
                unsafe { (*attrs.kinds.add(i), text(&**attrs.names.add(i))?, *attrs.values.add(i)) };
            let named = |error: Error| error.with_argument("attribute", name);
            // The definition's own names go before ours.
            let Some(index) = signature.attr_index(name) else {
                if let (ffi::STRING, Some(input)) = (kind, signature.input_index(name)) {
                    // SAFETY: the kind is that of the value.
                    let text = unsafe { text(&*value.cast()) }?;
                    let about = |error: Error| error.with_argument("input", name);
                    read.constants.push((input, constant(&signature.inputs[input], text).map_err(about)?));
                    continue;
                }
                let mask = match name {
                    "wanted" => &mut read.wanted,
                    "present" => &mut read.present,
                    _ => return Err(signature.unknown_attr(name)),
                };
                // SAFETY: the kind is that of the value.
                match unsafe { value_of(kind, value) }.map_err(named)? {
                    AttrValue::Int(bits) => *mask = bits as u64,
                    other => bail!(InvalidArgument for name, "attribute `{name}` is an int, got {other}"),
                }
                continue;
            };
            let def = &signature.attrs[index];
            // SAFETY: the kind is that of the value.
            let value = match unsafe { text_of(kind, value) } {
                Some(text) if def.ty != TEXT => text.and_then(|text| def.parse_value(text)),
                // SAFETY: as above.
                _ => unsafe { value_of(kind, value) }.and_then(|value| fit(def, value)),
            };
            read.values[index] = Some(value.map_err(named)?);
        }
        Ok(read)
    }
}

/// The type of an attribute that XLA's text is the value of; for others it stands for one.
const TEXT: AttrType = AttrType { base: AttrBase::String, list: false };

/// The value of an input that is part of the program, as a definition writes one.
fn constant(input: &ArgDef, text: &str) -> Result<Arc<TensorValue>> {
    if input.count.is_list() || input.is_ref {
        bail!(InvalidArgument, "is a list or changed in place, and so comes as an array, not as text");
    }
    let tensor = AttrDef::new(&input.name, AttrType { base: AttrBase::Tensor, list: false });
    match tensor.parse_value(text)? {
        AttrValue::Tensor(value) if value.dtype != DType::String => Ok(value),
        other => bail!(InvalidArgument, "expected a tensor of numbers as text, got {other}"),
    }
}

/// # Safety
/// The bytes must be readable, for `'a`.
unsafe fn text<'a>(span: &ffi::ByteSpan) -> Result<&'a str> {
    if span.len == 0 {
        return Ok("");
    }
    // SAFETY: promised by the caller.
    let bytes = unsafe { std::slice::from_raw_parts(span.data, span.len) };
    std::str::from_utf8(bytes).map_err(|_| Error::invalid_argument("a text is not UTF-8"))
}

/// The text, where the value is one.
///
/// # Safety
/// As [`value_of`].
unsafe fn text_of<'a>(kind: i32, value: *const c_void) -> Option<Result<&'a str>> {
    // SAFETY: promised by the caller.
    (kind == ffi::STRING).then(|| unsafe { text(&*value.cast()) })
}

/// The value as XLA has it: a scalar, a text or a list of numbers.
///
/// # Safety
/// `value` must be an attribute of XLA's of this kind.
unsafe fn value_of(kind: i32, value: *const c_void) -> Result<AttrValue> {
    // SAFETY: the kind tells the structure, and the structure what its pointers point to.
    unsafe {
        Ok(match kind {
            ffi::SCALAR => {
                let scalar = &*value.cast::<ffi::Scalar>();
                match numbers(scalar.dtype, scalar.value, 1)? {
                    AttrValue::Ints(one) => AttrValue::Int(one[0]),
                    AttrValue::Floats(one) => AttrValue::Float(one[0]),
                    AttrValue::Bools(one) => AttrValue::Bool(one[0]),
                    other => other,
                }
            }
            ffi::ARRAY => {
                let array = &*value.cast::<ffi::Array>();
                numbers(array.dtype, array.data, array.size)?
            }
            ffi::STRING => AttrValue::String(attr::text(text(&*value.cast())?.as_bytes())?),
            _ => bail!(InvalidArgument, "cannot be a dictionary: pass what XLA has no attribute for as text"),
        })
    }
}

/// # Safety
/// `data` must point to `len` elements of the dtype that XLA gives this number.
unsafe fn numbers(dtype: i32, data: *const c_void, len: usize) -> Result<AttrValue> {
    macro_rules! each {
        ($list:ident, $from:ty, $change:expr) => {{
            let elements = data.cast::<$from>();
            let read = |i| {
                // SAFETY: promised by the caller; the elements need not be aligned.
                $change(unsafe { elements.add(i).read_unaligned() })
            };
            AttrValue::$list(list(len, (0..len).map(read).map(Ok))?)
        }};
    }
    Ok(match ffi::dtype(dtype)? {
        DType::Bool => each!(Bools, u8, |byte| byte != 0),
        DType::UInt8 => each!(Ints, u8, i64::from),
        DType::Int32 => each!(Ints, i32, i64::from),
        DType::Int64 => each!(Ints, i64, |n| n),
        DType::Float32 => each!(Floats, f32, f64::from),
        DType::Float64 => each!(Floats, f64, |x| x),
        other => {
            bail!(InvalidArgument, "cannot be of dtype {other}; pass int32, int64, float32, float64 or uint8")
        }
    })
}

/// What a value stands for in an attribute. What does not fit stays as it is, for the definition to refuse.
fn fit(def: &AttrDef, value: AttrValue) -> Result<AttrValue> {
    Ok(match (def.ty, value) {
        (AttrType { base: AttrBase::Bool, list: true }, AttrValue::Ints(list)) => {
            AttrValue::Bools(list.into_iter().map(|n| n != 0).collect())
        }
        (AttrType { base: AttrBase::Shape, list: false }, AttrValue::Ints(dims)) => {
            AttrValue::Shape(Some(dims.into_iter().map(|dim| u64::try_from(dim).ok()).collect()))
        }
        (_, value) => value,
    })
}
