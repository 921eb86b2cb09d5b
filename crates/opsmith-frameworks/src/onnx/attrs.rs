//! A node's attributes, of ONNX's types.
//!
//! A float has 32 bits in ONNX; one that needs more is a tensor of float64, by the attribute's name with `_float64` behind it. A flag
//! is an int, a dtype its name, a shape ints, −1 for a dim that is not known. Texts may be a tensor. Lists of shapes and tensors are
//! text in the definition language.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use opsmith_core::attr::{AttrBase, TensorValue, list, text};
use opsmith_core::def::AttrDef;
use opsmith_core::{AttrValue, DType, Error, Result, Signature, bail};

use super::api::{Api, KernelInfo, OpAttr, Outcome, ShapeContext};
use super::tensor::Tensor;
use crate::single;

/// From this release on lists of text can be read.
const TEXTS: u32 = 25;

/// What a node gives for an attribute.
enum NodeAttr {
    Missing,
    Int(i64),
    Float(f32),
    Text(Vec<u8>),
    Tensor(TensorValue),
    /// A tensor by the name that float64 has.
    Doubles(TensorValue),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Texts(Vec<Vec<u8>>),
    /// A list without elements, or something that this place cannot read.
    Empty,
}

impl NodeAttr {
    fn name(&self) -> String {
        match self {
            NodeAttr::Missing => "nothing".to_owned(),
            NodeAttr::Int(value) => format!("the int {value}"),
            NodeAttr::Float(value) => format!("the float {value}"),
            NodeAttr::Text(text) => format!("the text {:?}", String::from_utf8_lossy(text)),
            NodeAttr::Tensor(value) | NodeAttr::Doubles(value) => {
                format!("a tensor of {} of shape {:?}", value.dtype, value.shape)
            }
            NodeAttr::Ints(list) => format!("{} ints", list.len()),
            NodeAttr::Floats(list) => format!("{} floats", list.len()),
            NodeAttr::Texts(list) => format!("{} texts", list.len()),
            NodeAttr::Empty => "an empty list".to_owned(),
        }
    }
}

/// What a node gives for an attribute: of a float by its own name or, with 64 bits, by the other one.
fn given(source: &OfKernel, def: &AttrDef) -> Result<NodeAttr> {
    let c_string = |name: &str| CString::new(name).map_err(|_| Error::internal("a name has a NUL"));
    match given_as(source, &c_string(&def.name)?)? {
        NodeAttr::Missing if def.ty.base == AttrBase::Float => {
            match given_as(source, &c_string(&format!("{}_float64", def.name))?)? {
                NodeAttr::Tensor(tensor) => Ok(NodeAttr::Doubles(tensor)),
                other => Ok(other),
            }
        }
        given => Ok(given),
    }
}

fn given_as(source: &OfKernel, name: &CStr) -> Result<NodeAttr> {
    let scalar = || {
        let int = source.int(name).map(NodeAttr::Int);
        int.or_else(|| source.float(name).map(NodeAttr::Float))
            .or_else(|| source.text(name).map(NodeAttr::Text))
    };
    if let Some(scalar) = scalar() {
        return Ok(scalar);
    }
    if let Some(tensor) = source.tensor(name)? {
        return Ok(NodeAttr::Tensor(tensor));
    }
    let (ints, floats, texts) = (source.ints(name), source.floats(name), source.texts(name));
    let is_there = ints.is_some() || floats.is_some() || texts.is_some();
    Ok(match (ints.unwrap_or_default(), floats.unwrap_or_default(), texts.unwrap_or_default()) {
        (ints, ..) if !ints.is_empty() => NodeAttr::Ints(ints),
        (_, floats, _) if !floats.is_empty() => NodeAttr::Floats(floats),
        (_, _, texts) if !texts.is_empty() => NodeAttr::Texts(texts),
        _ if is_there => NodeAttr::Empty,
        _ => NodeAttr::Missing,
    })
}

/// The attributes of a node, in the definition's order, `None` where it has none.
///
/// # Errors
/// `InvalidArgument` for one of another type: it names the op, the attribute, what was expected and what came.
pub(super) fn read(signature: &Signature, source: &OfKernel) -> Result<Vec<Option<AttrValue>>> {
    let minor = source.api.minor;
    let read = |def: &AttrDef| {
        let named = |error: Error| error.with_argument("attribute", &def.name).with_op(&signature.name);
        given(source, def).and_then(|given| value(def, given, minor)).map_err(named)
    };
    signature.attrs.iter().map(read).collect()
}

/// As [`read`] where shapes are inferred: what cannot be read there counts as unknown, `true` in the second list. One of another type
/// is told when the kernel is made.
pub(super) fn read_known(signature: &Signature, source: &OfShapes) -> (Vec<Option<AttrValue>>, Vec<bool>) {
    let read = |def: &AttrDef| {
        let given = source.given(def);
        let read = given.map(|given| value(def, given, source.api.minor));
        read.map_or((None, true), |value| value.map_or((None, true), |value| (value, false)))
    };
    signature.attrs.iter().map(read).unzip()
}

fn value(def: &AttrDef, given: NodeAttr, minor: u32) -> Result<Option<AttrValue>> {
    let value = match (&given, def.ty.list) {
        (NodeAttr::Missing, _) => return Ok(None),
        (_, false) => scalar(def, &given)?,
        (_, true) => listed(def, &given, minor)?,
    };
    match value {
        Some(value) => Ok(Some(value)),
        None => bail!(InvalidArgument, "must be {}, got {}", def.ty, given.name()),
    }
}

fn scalar(def: &AttrDef, given: &NodeAttr) -> Result<Option<AttrValue>> {
    Ok(Some(match (def.ty.base, given) {
        (AttrBase::String, NodeAttr::Text(bytes)) => AttrValue::String(text(bytes)?),
        (AttrBase::Type | AttrBase::Shape, NodeAttr::Text(bytes)) => def.parse_value(&text(bytes)?)?,
        // An int serves for a float.
        (AttrBase::Int | AttrBase::Float, NodeAttr::Int(value)) => AttrValue::Int(*value),
        (AttrBase::Bool, NodeAttr::Int(value @ 0..=1)) => AttrValue::Bool(*value == 1),
        (AttrBase::Float, NodeAttr::Float(value)) => {
            single::restored(def, AttrValue::Float(single::shortest(*value)))
        }
        (AttrBase::Float, NodeAttr::Doubles(tensor)) => match doubles(tensor).as_deref() {
            Some([value]) => AttrValue::Float(*value),
            _ => return Ok(None),
        },
        (AttrBase::Shape, NodeAttr::Ints(dims)) if dims.iter().all(|dim| *dim >= -1) => {
            AttrValue::Shape(Some(dims.iter().map(|dim| u64::try_from(*dim).ok()).collect()))
        }
        (AttrBase::Shape, NodeAttr::Empty) => AttrValue::Shape(Some(Vec::new())),
        (AttrBase::Tensor, NodeAttr::Tensor(tensor)) => AttrValue::Tensor(Arc::new(tensor.clone())),
        _ => return Ok(None),
    }))
}

fn listed(def: &AttrDef, given: &NodeAttr, minor: u32) -> Result<Option<AttrValue>> {
    let texts = match given {
        NodeAttr::Texts(texts) => Some(&texts[..]),
        NodeAttr::Tensor(tensor) if tensor.dtype == DType::String && tensor.shape.len() == 1 => {
            Some(&tensor.strings[..])
        }
        NodeAttr::Empty if minor < TEXTS && matches!(def.ty.base, AttrBase::String | AttrBase::Type) => {
            bail!(
                FailedPrecondition,
                "is a list of texts, which ONNX Runtime 1.{minor} does not show, or has no elements; give a tensor of strings, or use \
             1.{TEXTS} or later"
            )
        }
        NodeAttr::Empty => Some(&[][..]),
        _ => None,
    };
    Ok(Some(match (def.ty.base, given, texts) {
        (AttrBase::String, _, Some(texts)) => {
            AttrValue::Strings(list(texts.len(), texts.iter().map(|bytes| text(bytes)))?)
        }
        (AttrBase::Type, _, Some(texts)) => {
            let dtypes = texts.iter().map(|bytes| text(bytes)?.parse());
            AttrValue::Types(list(texts.len(), dtypes)?)
        }
        (AttrBase::Shape | AttrBase::Tensor, NodeAttr::Text(bytes), _) => def.parse_value(&text(bytes)?)?,
        (AttrBase::Int | AttrBase::Float, NodeAttr::Ints(ints), _) => AttrValue::Ints(ints.clone()),
        (AttrBase::Bool, NodeAttr::Ints(ints), _) if ints.iter().all(|int| (0..=1).contains(int)) => {
            AttrValue::Bools(ints.iter().map(|int| *int == 1).collect())
        }
        (AttrBase::Float, NodeAttr::Floats(floats), _) => {
            let floats = floats.iter().map(|value| single::shortest(*value)).collect();
            single::restored(def, AttrValue::Floats(floats))
        }
        (AttrBase::Float, NodeAttr::Doubles(tensor), _) if tensor.shape.len() == 1 => match doubles(tensor) {
            Some(values) => AttrValue::Floats(values),
            None => return Ok(None),
        },
        (base, NodeAttr::Empty, _) => match base {
            AttrBase::Int => AttrValue::Ints(Vec::new()),
            AttrBase::Float => AttrValue::Floats(Vec::new()),
            AttrBase::Bool => AttrValue::Bools(Vec::new()),
            AttrBase::Shape => AttrValue::Shapes(Vec::new()),
            AttrBase::Tensor => AttrValue::Tensors(Vec::new()),
            AttrBase::String | AttrBase::Type => return Ok(None),
        },
        _ => return Ok(None),
    }))
}

/// The numbers of a tensor of float64.
fn doubles(tensor: &TensorValue) -> Option<Vec<f64>> {
    let numbers = tensor.bytes.as_chunks().0.iter().map(|bytes| f64::from_ne_bytes(*bytes));
    (tensor.dtype == DType::Float64).then(|| numbers.collect())
}

/// The attributes of a node that a kernel is made for. What reads one gives nothing where there is none of its type, but a list may be
/// empty then.
pub(super) struct OfKernel {
    pub(super) api: Api,
    pub(super) info: *const KernelInfo,
}

impl OfKernel {
    /// A list whose getter first gives its length, then its elements.
    fn list<T: Copy + Default>(&self, get: impl Fn(*mut T, *mut usize) -> Outcome) -> Option<Vec<T>> {
        let mut length = 0;
        // SAFETY: without memory for it, the getter gives the length only; the outcome is used once.
        unsafe { self.api.succeeded(get(null_mut(), &mut length)) }.then_some(())?;
        let mut list = vec![T::default(); length];
        // SAFETY: there is memory for as many elements.
        let read = length == 0 || unsafe { self.api.succeeded(get(list.as_mut_ptr(), &mut length)) };
        read.then_some(list)
    }

    fn scalar<T: Default>(&self, get: impl Fn(*mut T) -> Outcome) -> Option<T> {
        let mut value = T::default();
        // SAFETY: the outcome is of a getter, and used once.
        unsafe { self.api.succeeded(get(&mut value)) }.then_some(value)
    }
}

// In what follows the node is lent by ONNX Runtime, names are C strings and values are locals.
impl OfKernel {
    fn int(&self, name: &CStr) -> Option<i64> {
        // SAFETY: as above.
        self.scalar(|value| unsafe { (self.api.attr_int())(self.info, name.as_ptr(), value) })
    }

    fn float(&self, name: &CStr) -> Option<f32> {
        // SAFETY: as above.
        self.scalar(|value| unsafe { (self.api.attr_float())(self.info, name.as_ptr(), value) })
    }

    fn text(&self, name: &CStr) -> Option<Vec<u8>> {
        let (get, info) = (self.api.attr_text(), self.info);
        // SAFETY: as above.
        let mut text =
            self.list(|data: *mut u8, size| unsafe { get(info, name.as_ptr(), data.cast(), size) })?;
        // The NUL at its end.
        text.pop();
        Some(text)
    }

    fn tensor(&self, name: &CStr) -> Result<Option<TensorValue>> {
        let api = self.api;
        let (mut allocator, mut value) = (null_mut(), null_mut());
        // SAFETY: as above; the allocator is ONNX Runtime's own, and the tensor is ours.
        unsafe {
            api.check((api.default_allocator())(&mut allocator))?;
            if !api.succeeded((api.attr_tensor())(self.info, name.as_ptr(), allocator, &mut value)) {
                return Ok(None);
            }
            let read = Tensor { api, value }.to_value();
            (api.release_value())(value);
            read.map(Some)
        }
    }

    fn ints(&self, name: &CStr) -> Option<Vec<i64>> {
        // SAFETY: as above.
        self.list(|data, size| unsafe { (self.api.attr_ints())(self.info, name.as_ptr(), data, size) })
    }

    fn floats(&self, name: &CStr) -> Option<Vec<f32>> {
        // SAFETY: as above.
        self.list(|data, size| unsafe { (self.api.attr_floats())(self.info, name.as_ptr(), data, size) })
    }

    fn texts(&self, name: &CStr) -> Option<Vec<Vec<u8>>> {
        if self.api.minor < TEXTS {
            return None;
        }
        let api = self.api;
        let (mut allocator, mut texts, mut count) = (null_mut(), null_mut(), 0);
        // SAFETY: as above; the array and its texts, C strings, are ours, in memory of the allocator.
        unsafe {
            api.check((api.default_allocator())(&mut allocator)).ok()?;
            let get = api.attr_texts();
            if !api.succeeded(get(self.info, name.as_ptr(), allocator, &mut texts, &mut count)) {
                return None;
            }
            let copied = (0..count).map(|i| CStr::from_ptr(*texts.add(i)).to_bytes().to_vec()).collect();
            (0..count).for_each(|i| _ = api.succeeded((api.free())(allocator, (*texts.add(i)).cast())));
            if !texts.is_null() {
                api.succeeded((api.free())(allocator, texts.cast()));
            }
            Some(copied)
        }
    }
}

/// The attributes of a node whose shapes are inferred. Tensors cannot be read there, and the getter does not tell types apart.
pub(super) struct OfShapes {
    pub(super) api: Api,
    pub(super) context: *const ShapeContext,
}

/// `OrtOpAttrType`.
const INT: c_int = 1;
const INTS: c_int = 2;
const FLOAT: c_int = 3;
const FLOATS: c_int = 4;
const TEXT: c_int = 5;

/// The release from which on a text is read without a NUL.
const TEXT_ALONE: u32 = 24;

impl OfShapes {
    /// What the node gives for an attribute, if that can be read.
    fn given(&self, def: &AttrDef) -> Option<NodeAttr> {
        let Some(attr) = self.attr(&def.name) else {
            let exact = format!("{}_float64", def.name);
            let is_exact = def.ty.base == AttrBase::Float && self.attr(&exact).is_some();
            return (!is_exact).then_some(NodeAttr::Missing);
        };
        Some(match (def.ty.base, def.ty.list) {
            (AttrBase::Int | AttrBase::Bool, false) => NodeAttr::Int(*self.read(attr, INT)?.first()?),
            (AttrBase::Float, false) => NodeAttr::Float(*self.read(attr, FLOAT)?.first()?),
            (AttrBase::String | AttrBase::Type, false) => NodeAttr::Text(self.text(attr)?),
            (AttrBase::Int | AttrBase::Bool, true) => self.ints(attr)?,
            // A text is read as no ints, and ints as no floats.
            (AttrBase::Shape, false) => match (self.ints(attr)?, self.text(attr)) {
                (NodeAttr::Empty, Some(text)) if !text.is_empty() => NodeAttr::Text(text),
                (ints, _) => ints,
            },
            (AttrBase::Float, true) => match self.read(attr, FLOATS)? {
                floats if floats.is_empty() => self.ints(attr)?,
                floats => NodeAttr::Floats(floats),
            },
            _ => return None,
        })
    }

    fn ints(&self, attr: *const OpAttr) -> Option<NodeAttr> {
        let ints = self.read(attr, INTS)?;
        Some(if ints.is_empty() { NodeAttr::Empty } else { NodeAttr::Ints(ints) })
    }

    fn text(&self, attr: *const OpAttr) -> Option<Vec<u8>> {
        let mut text = self.read(attr, TEXT)?;
        // Older releases give the NUL at its end too.
        if self.api.minor < TEXT_ALONE {
            text.pop();
        }
        Some(text)
    }

    fn attr(&self, name: &str) -> Option<*const OpAttr> {
        let name = CString::new(name).ok()?;
        let mut attr = null();
        // SAFETY: the context is lent by ONNX Runtime, the name is a C string, and what comes back is lent too.
        let found =
            unsafe { self.api.succeeded((self.api.shapes_attr())(self.context, name.as_ptr(), &mut attr)) };
        (found && !attr.is_null()).then_some(attr)
    }

    /// The value of an attribute, as many numbers as it has.
    fn read<T: Copy + Default>(&self, attr: *const OpAttr, kind: c_int) -> Option<Vec<T>> {
        let get = |data: *mut T, length: usize, bytes: &mut usize| {
            // SAFETY: the attribute is lent, and there is memory for as many bytes as are said.
            unsafe {
                let size = length * size_of::<T>();
                self.api.succeeded((self.api.read_attr())(attr, kind, data.cast::<c_void>(), size, bytes))
            }
        };
        // Where the memory is too small, the getter says how much it takes.
        let (mut one, mut bytes) = ([T::default()], 0);
        if get(one.as_mut_ptr(), 1, &mut bytes) {
            return Some(one[..(bytes / size_of::<T>()).min(1)].to_vec());
        }
        let mut values = vec![T::default(); bytes / size_of::<T>()];
        (!values.is_empty() && get(values.as_mut_ptr(), values.len(), &mut bytes)).then_some(values)
    }
}
