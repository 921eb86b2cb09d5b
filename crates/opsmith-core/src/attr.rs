//! Attribute values: the arguments of an op that are not tensors.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::{DType, Result, ensure, memory};

/// The most elements of a list: of an attribute's, and of tensors.
pub const MAX_LIST: usize = 1 << 16;

/// The most bytes of an attribute that is text.
pub const MAX_TEXT: usize = 1 << 20;

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

/// What two values are compared by.
trait Exact {
    fn is_same(&self, other: &Self) -> bool;

    fn hash_into<H: Hasher>(&self, state: &mut H);
}

impl Exact for f64 {
    fn is_same(&self, other: &f64) -> bool {
        self.to_bits() == other.to_bits()
    }

    fn hash_into<H: Hasher>(&self, state: &mut H) {
        self.to_bits().hash(state);
    }
}

macro_rules! exact {
    ($($value:ty),*) => {
        $(
            impl Exact for $value {
                fn is_same(&self, other: &$value) -> bool {
                    self == other
                }

                fn hash_into<H: Hasher>(&self, state: &mut H) {
                    self.hash(state);
                }
            }
        )*
    };
}

exact!(Arc<str>, i64, bool, DType, PartialShape, Arc<TensorValue>);

/// What is made of all kinds of attributes, of each the type of a value and of a list of them. A new kind is added to the list
/// below, and to what then no longer compiles.
macro_rules! kinds {
    ($($(#[$doc:meta])* $base:ident, $list:ident: $word:literal, $value:ty;)*) => {
        /// The type of one attribute value, `list(…)` aside.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum AttrBase {
            $($(#[$doc])* $base,)*
        }

        /// The value of an attribute.
        ///
        /// Two values are equal when they lead to the same kernel: floats compare by their bits, so that NaN equals
        /// itself and `-0.0` differs from `0.0`.
        #[derive(Debug, Clone)]
        pub enum AttrValue {
            $(
                #[doc = concat!("A `", $word, "`.")]
                $base($value),
                #[doc = concat!("A `list(", $word, ")`.")]
                $list(Vec<$value>),
            )*
        }

        impl AttrBase {
            /// Every one, in the order of their numbers in the C ABI.
            pub const ALL: &[AttrBase] = &[$(AttrBase::$base),*];

            /// The word for it in the definition language.
            pub fn name(self) -> &'static str {
                match self {
                    $(AttrBase::$base => $word,)*
                }
            }

            /// The list of those elements that are of this type.
            pub fn list(self, elements: impl IntoIterator<Item = AttrValue>) -> AttrValue {
                let elements = elements.into_iter();
                match self {
                    $(AttrBase::$base => AttrValue::$list(
                        elements.filter_map(|element| match element {
                            AttrValue::$base(value) => Some(value),
                            _ => None,
                        }).collect(),
                    ),)*
                }
            }
        }

        impl AttrValue {
            /// The type of this value.
            pub fn attr_type(&self) -> AttrType {
                let (base, list) = match self {
                    $(
                        AttrValue::$base(_) => (AttrBase::$base, false),
                        AttrValue::$list(_) => (AttrBase::$base, true),
                    )*
                };
                AttrType { base, list }
            }

            /// The number of elements of a list; none for a value that is not one.
            pub fn length(&self) -> Option<usize> {
                match self {
                    $(
                        AttrValue::$base(_) => None,
                        AttrValue::$list(list) => Some(list.len()),
                    )*
                }
            }
        }

        impl PartialEq for AttrValue {
            fn eq(&self, other: &AttrValue) -> bool {
                match (self, other) {
                    $(
                        (AttrValue::$base(a), AttrValue::$base(b)) => a.is_same(b),
                        (AttrValue::$list(a), AttrValue::$list(b)) => {
                            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_same(b))
                        }
                    )*
                    // Of different types.
                    _ => false,
                }
            }
        }

        impl Hash for AttrValue {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.attr_type().hash(state);
                match self {
                    $(
                        AttrValue::$base(value) => value.hash_into(state),
                        AttrValue::$list(list) => list.iter().for_each(|value| value.hash_into(state)),
                    )*
                }
            }
        }
    };
}

kinds! {
    /// UTF-8 text.
    String, Strings: "string", Arc<str>;
    /// A signed 64-bit integer.
    Int, Ints: "int", i64;
    /// A float, kept in 64 bits.
    Float, Floats: "float", f64;
    /// True or false.
    Bool, Bools: "bool", bool;
    /// A dtype.
    Type, Types: "type", DType;
    /// A shape whose rank or dims may be unknown.
    Shape, Shapes: "shape", PartialShape;
    /// A constant tensor.
    Tensor, Tensors: "tensor", Arc<TensorValue>;
}

impl Eq for AttrValue {}

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
