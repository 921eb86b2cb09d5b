//! Attribute values: the arguments of an op that are not tensors.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::{DType, Result, ensure, memory};

/// The most elements of a list: of an attribute's, and of tensors.
pub const MAX_LIST: usize = 1 << 16;

/// The most bytes of an attribute that is text.
pub const MAX_TEXT: usize = 1 << 20;

/// The type of one attribute value, `list(…)` aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttrBase {
    /// UTF-8 text.
    String,
    /// A signed 64-bit integer.
    Int,
    /// A float, kept in 64 bits.
    Float,
    /// True or false.
    Bool,
    /// A dtype.
    Type,
    /// A shape whose rank or dims may be unknown.
    Shape,
    /// A constant tensor.
    Tensor,
}

impl AttrBase {
    /// The word for it in the definition language.
    pub fn name(self) -> &'static str {
        match self {
            AttrBase::String => "string",
            AttrBase::Int => "int",
            AttrBase::Float => "float",
            AttrBase::Bool => "bool",
            AttrBase::Type => "type",
            AttrBase::Shape => "shape",
            AttrBase::Tensor => "tensor",
        }
    }
}

/// The type of an attribute: a base type or a list of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttrType {
    /// The type of the value, or of each element.
    pub base: AttrBase,
    /// Whether it is a list.
    pub list: bool,
}

impl fmt::Display for AttrType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.list { write!(f, "list({})", self.base.name()) } else { f.write_str(self.base.name()) }
    }
}

/// The elements of a list of so many, as a framework gives them.
///
/// # Errors
/// `InvalidArgument` for a list that is longer than [`MAX_LIST`], and what an element's error is.
pub fn list<T>(length: usize, elements: impl Iterator<Item = Result<T>>) -> Result<Vec<T>> {
    ensure!(length <= MAX_LIST, InvalidArgument, "must have at most {MAX_LIST} elements, got {length}");
    memory::try_collected(elements, "a list")
}

/// Some text, as a framework gives it.
///
/// # Errors
/// `InvalidArgument` for more than [`MAX_TEXT`] bytes, and for what is not UTF-8.
pub fn text(bytes: &[u8]) -> Result<Arc<str>> {
    let length = bytes.len();
    ensure!(length <= MAX_TEXT, InvalidArgument, "must have at most {MAX_TEXT} bytes, got {length}");
    std::str::from_utf8(bytes)
        .map(Arc::from)
        .map_err(|_| crate::Error::invalid_argument("must be UTF-8 text"))
}

/// A shape in an attribute: `None` is an unknown rank, and an inner `None` an unknown dim.
pub type PartialShape = Option<Vec<Option<u64>>>;

/// A constant tensor in an attribute, row-major.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorValue {
    /// The type of the elements.
    pub dtype: DType,
    /// The dims.
    pub shape: Vec<usize>,
    /// The elements' bytes in native order; empty for `string`.
    pub bytes: Vec<u8>,
    /// The elements of a `string` tensor; empty for any other dtype.
    pub strings: Vec<Vec<u8>>,
}

impl TensorValue {
    /// Makes each truth value that a framework gives 0 or 1, as Rust's are.
    pub fn keep_truths(&mut self) {
        if self.dtype == DType::Bool {
            self.bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
    }
}

/// The value of an attribute.
///
/// Two values are equal when they lead to the same kernel: floats compare by their bits, so that NaN equals
/// itself and `-0.0` differs from `0.0`.
#[derive(Debug, Clone)]
pub enum AttrValue {
    /// A `string`.
    String(Arc<str>),
    /// An `int`.
    Int(i64),
    /// A `float`.
    Float(f64),
    /// A `bool`.
    Bool(bool),
    /// A `type`.
    Type(DType),
    /// A `shape`.
    Shape(PartialShape),
    /// A `tensor`.
    Tensor(Arc<TensorValue>),
    /// A `list(string)`.
    Strings(Vec<Arc<str>>),
    /// A `list(int)`.
    Ints(Vec<i64>),
    /// A `list(float)`.
    Floats(Vec<f64>),
    /// A `list(bool)`.
    Bools(Vec<bool>),
    /// A `list(type)`.
    Types(Vec<DType>),
    /// A `list(shape)`.
    Shapes(Vec<PartialShape>),
    /// A `list(tensor)`.
    Tensors(Vec<Arc<TensorValue>>),
}

impl AttrValue {
    /// The type of this value.
    pub fn attr_type(&self) -> AttrType {
        let (base, list) = match self {
            AttrValue::String(_) => (AttrBase::String, false),
            AttrValue::Int(_) => (AttrBase::Int, false),
            AttrValue::Float(_) => (AttrBase::Float, false),
            AttrValue::Bool(_) => (AttrBase::Bool, false),
            AttrValue::Type(_) => (AttrBase::Type, false),
            AttrValue::Shape(_) => (AttrBase::Shape, false),
            AttrValue::Tensor(_) => (AttrBase::Tensor, false),
            AttrValue::Strings(_) => (AttrBase::String, true),
            AttrValue::Ints(_) => (AttrBase::Int, true),
            AttrValue::Floats(_) => (AttrBase::Float, true),
            AttrValue::Bools(_) => (AttrBase::Bool, true),
            AttrValue::Types(_) => (AttrBase::Type, true),
            AttrValue::Shapes(_) => (AttrBase::Shape, true),
            AttrValue::Tensors(_) => (AttrBase::Tensor, true),
        };
        AttrType { base, list }
    }
}

impl PartialEq for AttrValue {
    fn eq(&self, other: &AttrValue) -> bool {
        match (self, other) {
            (AttrValue::String(a), AttrValue::String(b)) => a == b,
            (AttrValue::Int(a), AttrValue::Int(b)) => a == b,
            (AttrValue::Float(a), AttrValue::Float(b)) => a.to_bits() == b.to_bits(),
            (AttrValue::Bool(a), AttrValue::Bool(b)) => a == b,
            (AttrValue::Type(a), AttrValue::Type(b)) => a == b,
            (AttrValue::Shape(a), AttrValue::Shape(b)) => a == b,
            (AttrValue::Tensor(a), AttrValue::Tensor(b)) => a == b,
            (AttrValue::Strings(a), AttrValue::Strings(b)) => a == b,
            (AttrValue::Ints(a), AttrValue::Ints(b)) => a == b,
            (AttrValue::Floats(a), AttrValue::Floats(b)) => {
                a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits()))
            }
            (AttrValue::Bools(a), AttrValue::Bools(b)) => a == b,
            (AttrValue::Types(a), AttrValue::Types(b)) => a == b,
            (AttrValue::Shapes(a), AttrValue::Shapes(b)) => a == b,
            (AttrValue::Tensors(a), AttrValue::Tensors(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for AttrValue {}

impl Hash for AttrValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.attr_type().hash(state);
        match self {
            AttrValue::String(text) => text.hash(state),
            AttrValue::Int(n) => n.hash(state),
            AttrValue::Float(x) => x.to_bits().hash(state),
            AttrValue::Bool(truth) => truth.hash(state),
            AttrValue::Type(dtype) => dtype.hash(state),
            AttrValue::Shape(shape) => shape.hash(state),
            AttrValue::Tensor(value) => value.hash(state),
            AttrValue::Strings(list) => list.hash(state),
            AttrValue::Ints(list) => list.hash(state),
            AttrValue::Floats(list) => list.iter().for_each(|x| x.to_bits().hash(state)),
            AttrValue::Bools(list) => list.hash(state),
            AttrValue::Types(list) => list.hash(state),
            AttrValue::Shapes(list) => list.hash(state),
            AttrValue::Tensors(list) => list.hash(state),
        }
    }
}

macro_rules! from_rust {
    ($($rust:ty, $value:ident => $attr:expr;)*) => {
        $(
            impl From<$rust> for AttrValue {
                fn from($value: $rust) -> AttrValue {
                    $attr
                }
            }
        )*
    };
}

from_rust! {
    &str, text => AttrValue::String(text.into());
    String, text => AttrValue::String(text.into());
    i64, n => AttrValue::Int(n);
    i32, n => AttrValue::Int(n.into());
    f64, x => AttrValue::Float(x);
    f32, x => AttrValue::Float(x.into());
    bool, truth => AttrValue::Bool(truth);
    DType, dtype => AttrValue::Type(dtype);
    Vec<String>, texts => AttrValue::Strings(texts.into_iter().map(Into::into).collect());
    Vec<i64>, ints => AttrValue::Ints(ints);
    Vec<f64>, floats => AttrValue::Floats(floats);
    Vec<bool>, truths => AttrValue::Bools(truths);
    Vec<DType>, dtypes => AttrValue::Types(dtypes);
}
