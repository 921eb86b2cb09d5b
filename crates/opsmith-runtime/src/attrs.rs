//! Tensors and attribute values in the form of the C ABI.

use std::ffi::c_void;

use opsmith_core::abi::*;
use opsmith_core::attr::{AttrBase, AttrValue, PartialShape, TensorValue};
use opsmith_core::tensor::{StrRef, row_major_strides};
use opsmith_core::{Device, Result, TensorView, memory};
use smallvec::SmallVec;

/// An attribute of a call: its name and value.
pub(crate) type Named<'a> = (&'a str, &'a AttrValue);

/// What the ABI wants laid out differently from an [`AttrValue`].
enum Storage {
    /// The value lies as the ABI wants it.
    InPlace,
    Types(SmallVec<[i32; 1]>),
    Strings(SmallVec<[OpsmithStr; 1]>),
    Shapes(Vec<OpsmithShape>, #[expect(dead_code, reason = "what the shapes point to")] Vec<Vec<i64>>),
    Tensors(
        #[expect(dead_code, reason = "what is pointed to")] Vec<TensorStorage>,
        Vec<*const OpsmithTensor>,
    ),
}

/// A constant tensor with what it points to.
pub(crate) struct TensorStorage {
    tensor: Box<OpsmithTensor>,
    _strides: Box<[isize]>,
    _strings: Box<[StrRef]>,
}

impl TensorStorage {
    /// The tensor in the ABI's form.
    pub(crate) fn abi(&self) -> *const OpsmithTensor {
        &raw const *self.tensor
    }
}

/// Calls `body` with the attributes in the ABI's form, which are valid until it returns.
///
/// # Errors
/// `ResourceExhausted` without memory, and what `body` says.
pub(crate) fn with_abi_attrs<R>(
    attrs: &[Named<'_>],
    body: impl FnOnce(&[*const OpsmithAttr]) -> Result<R>,
) -> Result<R> {
    if attrs.is_empty() {
        return body(&[]);
    }
    let storage = attrs.iter().map(|(_, value)| store(value)).collect::<Result<SmallVec<[Storage; 4]>>>()?;
    let abi: SmallVec<[OpsmithAttr; 4]> =
        attrs.iter().zip(&storage).map(|((name, value), storage)| to_abi(name, value, storage)).collect();
    let pointers: SmallVec<[*const OpsmithAttr; 4]> = abi.iter().map(std::ptr::from_ref).collect();
    body(&pointers)
}

fn store(value: &AttrValue) -> Result<Storage> {
    Ok(match value {
        AttrValue::Type(dtype) => Storage::Types(SmallVec::from_elem(*dtype as i32, 1)),
        AttrValue::Types(dtypes) => Storage::Types(dtypes.iter().map(|dtype| *dtype as i32).collect()),
        AttrValue::String(text) => Storage::Strings(SmallVec::from_elem(OpsmithStr::new(text), 1)),
        AttrValue::Strings(texts) => {
            Storage::Strings(texts.iter().map(|text| OpsmithStr::new(text)).collect())
        }
        AttrValue::Shape(shape) => store_shapes(std::slice::from_ref(shape)),
        AttrValue::Shapes(shapes) => store_shapes(shapes),
        AttrValue::Tensor(tensor) => store_tensors(std::slice::from_ref(tensor))?,
        AttrValue::Tensors(tensors) => store_tensors(tensors)?,
        AttrValue::Int(_)
        | AttrValue::Float(_)
        | AttrValue::Bool(_)
        | AttrValue::Ints(_)
        | AttrValue::Floats(_)
        | AttrValue::Bools(_) => Storage::InPlace,
    })
}

fn store_shapes(shapes: &[PartialShape]) -> Storage {
    let dim = |dim: &Option<u64>| dim.map_or(-1, |dim| dim as i64);
    let dims: Vec<Vec<i64>> = shapes.iter().map(|shape| shape.iter().flatten().map(dim).collect()).collect();
    let abi = shapes.iter().zip(&dims).map(|(shape, dims)| OpsmithShape {
        rank: shape.as_ref().map_or(-1, |dims| dims.len() as i64),
        dims: dims.as_ptr(),
    });
    Storage::Shapes(abi.collect(), dims)
}

fn store_tensors(tensors: &[std::sync::Arc<TensorValue>]) -> Result<Storage> {
    let stored: Vec<TensorStorage> =
        tensors.iter().map(|tensor| store_tensor(tensor)).collect::<Result<_>>()?;
    let pointers = stored.iter().map(TensorStorage::abi).collect();
    Ok(Storage::Tensors(stored, pointers))
}

pub(crate) fn store_tensor(value: &TensorValue) -> Result<TensorStorage> {
    let strides: Box<[isize]> = row_major_strides(&value.shape).into_vec().into();
    let strings = value.strings.iter().map(|bytes| StrRef { data: bytes.as_ptr(), len: bytes.len() });
    let strings = memory::collected(strings, "a tensor of text")?.into_boxed_slice();
    let data = if strings.is_empty() { value.bytes.as_ptr() } else { strings.as_ptr().cast() };
    // SAFETY: only turned into the ABI's form, which the library reads while `value` and what is boxed here live.
    let view = unsafe { TensorView::from_raw_parts(data, value.dtype, Device::CPU, &value.shape, &strides) };
    Ok(TensorStorage { tensor: Box::new(to_abi_tensor(&view)), _strides: strides, _strings: strings })
}

/// The ABI's form of a tensor; it points to the view's shape and strides.
pub(crate) fn to_abi_tensor(tensor: &TensorView<'_>) -> OpsmithTensor {
    OpsmithTensor {
        size: size_of::<OpsmithTensor>(),
        data: tensor.data_ptr().cast_mut().cast(),
        dtype: tensor.dtype() as i32,
        device_kind: tensor.device().kind as i32,
        device_index: tensor.device().index,
        rank: tensor.rank() as i32,
        shape: tensor.shape().as_ptr().cast(),
        strides: tensor.strides().as_ptr().cast(),
    }
}

fn to_abi(name: &str, value: &AttrValue, storage: &Storage) -> OpsmithAttr {
    let ty = value.attr_type();
    let (values, len): (*const c_void, usize) = match (storage, value) {
        (Storage::Types(types), _) => (types.as_ptr().cast(), types.len()),
        (Storage::Strings(texts), _) => (texts.as_ptr().cast(), texts.len()),
        (Storage::Shapes(shapes, _), _) => (shapes.as_ptr().cast(), shapes.len()),
        (Storage::Tensors(_, pointers), _) => (pointers.as_ptr().cast(), pointers.len()),
        (Storage::InPlace, AttrValue::Int(value)) => (std::ptr::from_ref(value).cast(), 1),
        (Storage::InPlace, AttrValue::Float(value)) => (std::ptr::from_ref(value).cast(), 1),
        (Storage::InPlace, AttrValue::Bool(value)) => (std::ptr::from_ref(value).cast(), 1),
        (Storage::InPlace, AttrValue::Ints(values)) => (values.as_ptr().cast(), values.len()),
        (Storage::InPlace, AttrValue::Floats(values)) => (values.as_ptr().cast(), values.len()),
        (Storage::InPlace, AttrValue::Bools(values)) => (values.as_ptr().cast(), values.len()),
        (Storage::InPlace, _) => unreachable!("`store` stores every other kind of value"),
    };
    OpsmithAttr {
        size: size_of::<OpsmithAttr>(),
        name: OpsmithStr::new(name),
        kind: kind(ty.base),
        is_list: ty.list.into(),
        len,
        values,
    }
}

fn kind(base: AttrBase) -> i32 {
    match base {
        AttrBase::String => OPSMITH_ATTR_STRING,
        AttrBase::Int => OPSMITH_ATTR_INT,
        AttrBase::Float => OPSMITH_ATTR_FLOAT,
        AttrBase::Bool => OPSMITH_ATTR_BOOL,
        AttrBase::Type => OPSMITH_ATTR_TYPE,
        AttrBase::Shape => OPSMITH_ATTR_SHAPE,
        AttrBase::Tensor => OPSMITH_ATTR_TENSOR,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use opsmith_core::DType;

    use super::*;

    /// What `read` finds in the ABI's form of `value`.
    fn encoded<R>(value: &AttrValue, read: impl FnOnce(&OpsmithAttr) -> R) -> R {
        // SAFETY: the pointers are valid inside the closure.
        with_abi_attrs(&[("a", value)], |attrs| Ok(read(unsafe { &*attrs[0] }))).unwrap()
    }

    #[test]
    fn scalars_and_lists_point_to_their_elements() {
        encoded(&AttrValue::Int(-3), |attr| {
            assert_eq!((attr.kind, attr.is_list, attr.len), (OPSMITH_ATTR_INT, 0, 1));
            // SAFETY: an int attribute points to one `i64`.
            assert_eq!(unsafe { *attr.values.cast::<i64>() }, -3);
        });
        encoded(&AttrValue::Strings(vec!["apple".into(), "".into()]), |attr| {
            assert_eq!((attr.kind, attr.is_list, attr.len), (OPSMITH_ATTR_STRING, 1, 2));
            // SAFETY: a list of strings points to as many `OpsmithStr`.
            assert_eq!(unsafe { (*attr.values.cast::<OpsmithStr>()).as_bytes() }, b"apple");
        });
        encoded(&AttrValue::Types(vec![DType::Bool, DType::Float16]), |attr| {
            // SAFETY: a list of types points to as many `i32`.
            assert_eq!(unsafe { std::slice::from_raw_parts(attr.values.cast::<i32>(), attr.len) }, [10, 19]);
        });
    }

    #[test]
    fn shapes_mark_what_is_unknown() {
        encoded(&AttrValue::Shapes(vec![None, Some(vec![Some(2), None])]), |attr| {
            // SAFETY: a list of shapes points to as many `OpsmithShape`.
            let shapes = unsafe { std::slice::from_raw_parts(attr.values.cast::<OpsmithShape>(), attr.len) };
            assert_eq!((shapes[0].rank, shapes[1].rank), (-1, 2));
            // SAFETY: a known rank says how many dims there are.
            assert_eq!(unsafe { std::slice::from_raw_parts(shapes[1].dims, 2) }, [2, -1]);
        });
    }

    #[test]
    fn tensors_are_dense() {
        let value = TensorValue {
            dtype: DType::Int32,
            shape: vec![2],
            bytes: [5i32, 6].map(i32::to_ne_bytes).concat(),
            strings: vec![],
        };
        encoded(&AttrValue::Tensor(Arc::new(value)), |attr| {
            // SAFETY: a tensor attribute points to a pointer to an `OpsmithTensor`.
            let tensor = unsafe { &**attr.values.cast::<*const OpsmithTensor>() };
            assert_eq!((tensor.dtype, tensor.rank), (3, 1));
            // SAFETY: one dim, and the bytes of two `i32` (alignment of bytes is not promised).
            assert_eq!(unsafe { (*tensor.shape, tensor.data.cast::<i32>().add(1).read_unaligned()) }, (2, 6));
        });
    }
}
