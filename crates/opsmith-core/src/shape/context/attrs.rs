//! Attributes and constant inputs, as a shape function reads them.

use super::InferenceContext;
use crate::attr::{AttrValue, TensorValue};
use crate::def::did_you_mean;
use crate::shape::{Dim, Shape};
use crate::tensor::MAX_RANK;
use crate::{Code, DType, Error, Result};

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident: $variant:ident as $ty:ty, $value:ident => $result:expr;)*) => {
        $(
            $(#[$doc])*
            /// Errors when the op has no attribute of this name, or one of another type.
            pub fn $name(&self, name: &str) -> Result<$ty> {
                match self.attr(name)? {
                    AttrValue::$variant($value) => Ok($result),
                    other => Err(self.wrong_type(name, other, stringify!($variant))),
                }
            }
        )*
    };
}

impl<'a> InferenceContext<'a> {
    /// The value of the attribute of this name. Errors when the op has none, or the caller cannot tell it.
    pub fn attr(&self, name: &str) -> Result<&'a AttrValue> {
        let index = self.signature.attr_index(name);
        if index.and_then(|i| self.unknown_attrs.get(i)) == Some(&true) {
            let text = format!("attribute `{name}` is not known when shapes are inferred");
            return Err(Error::new(Code::Unavailable, text).with_op(&self.signature.name).naming(name));
        }
        index.and_then(|i| self.attrs.get(i)).ok_or_else(|| {
            let hint = did_you_mean(name, self.signature.attrs.iter().map(|attr| attr.name.as_str()));
            Error::not_found(format!("has no attribute `{name}`{hint}")).with_op(&self.signature.name)
        })
    }

    fn wrong_type(&self, name: &str, value: &AttrValue, wanted: &str) -> Error {
        let ty = value.attr_type();
        Error::internal(format!("attribute `{name}` has type {ty}, but its shape function reads {wanted}"))
            .with_op(&self.signature.name)
            .naming(name)
    }

    getters! {
        /// The `int` attribute of this name.
        get_int: Int as i64, value => *value;
        /// The `float` attribute of this name.
        get_float: Float as f64, value => *value;
        /// The `bool` attribute of this name.
        get_bool: Bool as bool, value => *value;
        /// The `string` attribute of this name.
        get_string: String as &'a str, value => value;
        /// The `type` attribute of this name.
        get_type: Type as DType, value => *value;
        /// The `shape` attribute of this name.
        get_shape: Shape as Shape, value => Shape::from(value);
        /// The `tensor` attribute of this name.
        get_tensor: Tensor as &'a TensorValue, value => value;
        /// The `list(int)` attribute of this name.
        get_ints: Ints as &'a [i64], value => value;
        /// The `list(float)` attribute of this name.
        get_floats: Floats as &'a [f64], value => value;
        /// The `list(bool)` attribute of this name.
        get_bools: Bools as &'a [bool], value => value;
        /// The `list(string)` attribute of this name.
        get_strings: Strings as Vec<&'a str>, value => value.iter().map(|text| &**text).collect();
        /// The `list(type)` attribute of this name.
        get_types: Types as &'a [DType], value => value;
        /// The `list(shape)` attribute of this name.
        get_shapes: Shapes as Vec<Shape>, value => value.iter().map(Shape::from).collect();
    }

    /// The `int` attribute of this name as the size of a dim. Errors as [`get_int`](Self::get_int) does, and when it
    /// is negative.
    pub fn get_dim(&self, name: &str) -> Result<Dim> {
        let value = self.get_int(name)?;
        u64::try_from(value).map(Dim::Known).map_err(|_| {
            self.error(format!("attribute `{name}` is the size of a dim and must be at least 0, got {value}"))
                .naming(name)
        })
    }

    /// The shape that input `i`, a vector of int32 or int64, holds: its value where that is known (-1 is an unknown
    /// dim), else an unknown shape, of known rank where the vector's length is known.
    ///
    /// Errors when the input is not a vector of int32 or int64, is longer than a shape can be, or holds a number below -1.
    pub fn shape_from_input(&self, i: usize) -> Result<Shape> {
        let shape = self.with_rank(self.input(i)?, 1)?;
        let length = self.dim(&shape, 0)?.value();
        if let Some(length) = length.filter(|length| *length > MAX_RANK as u64) {
            let label = self.input_label(i);
            let text = format!("{label} is a shape, which has at most {MAX_RANK} dims, got {length}");
            return Err(self.error_of_input(Some(i), text));
        }
        let Some(value) = self.input_value(i) else {
            return Ok(length.map_or_else(Shape::unknown, |length| Shape::unknown_of_rank(length as usize)));
        };
        let sizes = integers(value).ok_or_else(|| {
            let label = self.input_label(i);
            self.error_of_input(
                Some(i),
                format_args!("{label} must hold int32 or int64, got {}", value.dtype),
            )
        })?;
        let dim = |size: i64| match size {
            -1 => Ok(Dim::Unknown),
            _ => u64::try_from(size).map(Dim::Known).map_err(|_| {
                let label = self.input_label(i);
                self.error_of_input(
                    Some(i),
                    format_args!("{label} is a shape, but {size} is not the size of a dim"),
                )
            }),
        };
        Ok(Shape::from(sizes.into_iter().map(dim).collect::<Result<Vec<_>>>()?))
    }
}

fn integers(value: &TensorValue) -> Option<Vec<i64>> {
    match value.dtype {
        DType::Int32 => {
            Some(value.bytes.as_chunks().0.iter().map(|&bytes| i32::from_ne_bytes(bytes).into()).collect())
        }
        DType::Int64 => {
            Some(value.bytes.as_chunks().0.iter().map(|&bytes| i64::from_ne_bytes(bytes)).collect())
        }
        _ => None,
    }
}
