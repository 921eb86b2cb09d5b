//! What a kernel sees while it is built: the op's name, its resolved attributes and dtypes.

use std::sync::Arc;

use crate::attr::{AttrValue, PartialShape, TensorValue};
use crate::{DType, DeviceKind, Error, Result, Signature};

/// The attributes and types that an instance of a kernel is built for.
pub struct OpKernelConstruction<'a> {
    signature: &'a Signature,
    attrs: &'a [AttrValue],
    device: DeviceKind,
}

impl<'a> OpKernelConstruction<'a> {
    /// The construction of a kernel of the op `signature` on `device`, with every attribute in its order.
    pub fn new(signature: &'a Signature, attrs: &'a [AttrValue], device: DeviceKind) -> Self {
        OpKernelConstruction { signature, attrs, device }
    }

    /// The op's definition.
    pub fn signature(&self) -> &'a Signature {
        self.signature
    }

    /// The kind of device that the kernel is for.
    pub fn device(&self) -> DeviceKind {
        self.device
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// `NotFound` when the op has no attribute of this name, `InvalidArgument` when its value is of another type
    /// or does not fit `V`.
    pub fn attr<V: FromAttr>(&self, name: &str) -> Result<V> {
        let index = self
            .signature
            .attr_index(name)
            .ok_or_else(|| Error::not_found(format!("has no attribute `{name}`")))?;
        V::from_attr(&self.attrs[index]).ok_or_else(|| {
            let value = &self.attrs[index];
            Error::invalid_argument(format!("attribute `{name}` must be {}, got {value}", V::EXPECTED))
                .naming(name)
        })
    }
}

/// A Rust type that an attribute's value can be read as.
pub trait FromAttr: Sized {
    /// What is expected, with an article, for messages.
    const EXPECTED: &'static str;

    /// The value, or `None` when it is of another type or out of range.
    fn from_attr(value: &AttrValue) -> Option<Self>;
}

macro_rules! from_attr {
    ($($rust:ty, $expected:literal, $pattern:pat => $value:expr;)*) => {
        $(
            impl FromAttr for $rust {
                const EXPECTED: &'static str = $expected;

                fn from_attr(value: &AttrValue) -> Option<Self> {
                    match value {
                        $pattern => $value,
                        _ => None,
                    }
                }
            }
        )*
    };
}

from_attr! {
    i64, "an int", AttrValue::Int(n) => Some(*n);
    i32, "an int of 32 bits", AttrValue::Int(n) => (*n).try_into().ok();
    u32, "a non-negative int of 32 bits", AttrValue::Int(n) => (*n).try_into().ok();
    u64, "a non-negative int", AttrValue::Int(n) => (*n).try_into().ok();
    usize, "a non-negative int", AttrValue::Int(n) => (*n).try_into().ok();
    f64, "a float", AttrValue::Float(x) => Some(*x);
    f32, "a float", AttrValue::Float(x) => Some(*x as f32);
    bool, "a bool", AttrValue::Bool(b) => Some(*b);
    String, "a string", AttrValue::String(s) => Some(s.to_string());
    Arc<str>, "a string", AttrValue::String(s) => Some(s.clone());
    DType, "a type", AttrValue::Type(t) => Some(*t);
    PartialShape, "a shape", AttrValue::Shape(s) => Some(s.clone());
    Arc<TensorValue>, "a tensor", AttrValue::Tensor(t) => Some(t.clone());
    Vec<i64>, "a list of ints", AttrValue::Ints(v) => Some(v.clone());
    Vec<usize>, "a list of non-negative ints", AttrValue::Ints(v) => v.iter().map(|&n| n.try_into().ok()).collect();
    Vec<f64>, "a list of floats", AttrValue::Floats(v) => Some(v.clone());
    Vec<f32>, "a list of floats", AttrValue::Floats(v) => Some(v.iter().map(|&x| x as f32).collect());
    Vec<bool>, "a list of bools", AttrValue::Bools(v) => Some(v.clone());
    Vec<String>, "a list of strings", AttrValue::Strings(v) => Some(v.iter().map(ToString::to_string).collect());
    Vec<DType>, "a list of types", AttrValue::Types(v) => Some(v.clone());
    Vec<PartialShape>, "a list of shapes", AttrValue::Shapes(v) => Some(v.clone());
    Vec<Arc<TensorValue>>, "a list of tensors", AttrValue::Tensors(v) => Some(v.clone());
}

impl FromAttr for AttrValue {
    const EXPECTED: &'static str = "a value";

    fn from_attr(value: &AttrValue) -> Option<Self> {
        Some(value.clone())
    }
}
