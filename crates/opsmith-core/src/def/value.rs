//! Default values: `7`, `'foo'`, `DT_INT32`, `[2, 3]`, `{ dim { size: 1 } }`, `{ dtype: DT_INT32 int_val: 5 }`.
//!
//! Shapes and tensors are written as protocol buffers' text format writes `TensorShapeProto` and `TensorProto`.

use std::sync::Arc;

use super::fault::Fault;
use super::lexer::Cursor;
use super::message::{boolean, dtype, list, shape, string};
use super::tensor;
use crate::attr::{AttrBase, AttrType, AttrValue};

/// Takes a value of this type.
pub(super) fn value(cursor: &mut Cursor, ty: AttrType) -> Result<AttrValue, Fault> {
    Ok(match (ty.base, ty.list) {
        (AttrBase::String, false) => AttrValue::String(string(cursor)?),
        (AttrBase::Int, false) => AttrValue::Int(cursor.int("an integer")?.0),
        (AttrBase::Float, false) => AttrValue::Float(cursor.float("a number")?.0),
        (AttrBase::Bool, false) => AttrValue::Bool(boolean(cursor)?),
        (AttrBase::Type, false) => AttrValue::Type(dtype(cursor)?),
        (AttrBase::Shape, false) => AttrValue::Shape(shape(cursor)?),
        (AttrBase::Tensor, false) => AttrValue::Tensor(Arc::new(tensor::parse(cursor)?)),
        (AttrBase::String, true) => AttrValue::Strings(list(cursor, string)?),
        (AttrBase::Int, true) => AttrValue::Ints(list(cursor, |cursor| Ok(cursor.int("an integer")?.0))?),
        (AttrBase::Float, true) => AttrValue::Floats(list(cursor, |cursor| Ok(cursor.float("a number")?.0))?),
        (AttrBase::Bool, true) => AttrValue::Bools(list(cursor, boolean)?),
        (AttrBase::Type, true) => AttrValue::Types(list(cursor, dtype)?),
        (AttrBase::Shape, true) => AttrValue::Shapes(list(cursor, shape)?),
        (AttrBase::Tensor, true) => AttrValue::Tensors(list(cursor, |c| Ok(Arc::new(tensor::parse(c)?)))?),
    })
}
