//! From the C ABI's structures to the core's: everything a caller passes is checked here.

use std::sync::Arc;

use opsmith_core::abi::{
    OPSMITH_ABI_VERSION, OPSMITH_ATTR_BOOL, OPSMITH_ATTR_FLOAT, OPSMITH_ATTR_INT, OPSMITH_ATTR_SHAPE,
    OPSMITH_ATTR_STRING, OPSMITH_ATTR_TENSOR, OPSMITH_ATTR_TYPE, OPSMITH_DEVICE_CPU, OPSMITH_DEVICE_CUDA,
    OpsmithAttr, OpsmithServices, OpsmithShape, OpsmithStr, OpsmithTensor,
};
use opsmith_core::attr::{PartialShape, TensorValue, list};
use opsmith_core::tensor::{MAX_RANK, StrRef, checked_num_elements, row_major_strides};
use opsmith_core::{AttrValue, DType, Device, DeviceKind, Error, Result, TensorView, bail, ensure, memory};

/// Text that the caller passes.
///
/// # Safety
/// `data` must be readable for `len` bytes for `'a`.
pub(super) unsafe fn text<'a>(text: OpsmithStr) -> Result<&'a str> {
    ensure!(
        !text.data.is_null() || text.len == 0,
        InvalidArgument,
        "text is null, but its length is {}",
        text.len
    );
    // SAFETY: promised by the caller.
    let bytes = unsafe { text.as_bytes() };
    std::str::from_utf8(bytes).map_err(|_| Error::invalid_argument("text is not UTF-8"))
}

/// A structure behind a pointer, once its size is known to cover all of it.
///
/// # Safety
/// `pointer` must be null or point to a structure that begins with its own size, valid for `'a`.
#[inline]
pub(super) unsafe fn structure<'a, T>(pointer: *const T, what: &str) -> Result<&'a T> {
    ensure!(!pointer.is_null(), InvalidArgument, "{what} is null");
    // SAFETY: every structure of the ABI begins with its size.
    let size = unsafe { *pointer.cast::<usize>() };
    ensure!(
        size >= size_of::<T>(),
        InvalidArgument,
        "{what} says it has {size} bytes; version {OPSMITH_ABI_VERSION} of the ABI has {}",
        size_of::<T>()
    );
    // SAFETY: it is at least as large as `T`.
    Ok(unsafe { &*pointer })
}

/// The caller's services. Of a caller that was built before some were added, those are absent.
///
/// # Safety
/// As for [`structure`].
#[inline]
pub(super) unsafe fn services(pointer: *const OpsmithServices) -> Result<OpsmithServices> {
    /// How large it was at first.
    const FIRST: usize = std::mem::offset_of!(OpsmithServices, stream);
    ensure!(!pointer.is_null(), InvalidArgument, "the call's services are null");
    // SAFETY: every structure of the ABI begins with its size.
    let size = unsafe { *pointer.cast::<usize>() };
    ensure!(
        size >= FIRST,
        InvalidArgument,
        "the call's services say they have {size} bytes; version {OPSMITH_ABI_VERSION} of the ABI has {FIRST}"
    );
    let mut services = std::mem::MaybeUninit::<OpsmithServices>::zeroed();
    // SAFETY: the caller's structure has `size` bytes, and all fields but the size may be null.
    unsafe {
        // Whole fields, each of which has a pointer's size: half a function's address is none.
        let bytes = size.min(size_of::<OpsmithServices>()) / size_of::<usize>() * size_of::<usize>();
        services.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(pointer.cast(), bytes);
        Ok(services.assume_init())
    }
}

/// Whether the caller's table goes as far as `stream`: null is a stream too, the default one.
#[inline]
pub(super) fn has_stream(services: &OpsmithServices) -> bool {
    services.size >= std::mem::offset_of!(OpsmithServices, allocate_temp)
}

/// A slice that the caller passes; an empty one may be null.
///
/// # Safety
/// `data` must be readable for `len` elements for `'a`, unless `len` is 0.
#[inline]
pub(super) unsafe fn slice<'a, T>(data: *const T, len: usize, what: &str) -> Result<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    ensure!(!data.is_null(), InvalidArgument, "{what} is null, but its length is {len}");
    // SAFETY: promised by the caller.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// The dims of a tensor.
///
/// # Safety
/// The tensor's `shape` must be readable for `rank` elements for `'a`.
#[inline]
pub(super) unsafe fn dims<'a>(tensor: &OpsmithTensor) -> Result<&'a [usize]> {
    let Some(rank) = usize::try_from(tensor.rank).ok().filter(|rank| *rank <= MAX_RANK) else {
        bail!(InvalidArgument, "a tensor has rank {}; it may be 0 to {MAX_RANK}", tensor.rank);
    };
    // SAFETY: promised by the caller.
    let shape = unsafe { slice(tensor.shape, rank, "a tensor's shape") }?;
    if let Some(dim) = shape.iter().find(|dim| **dim < 0) {
        bail!(InvalidArgument, "a tensor has a dim of {dim}");
    }
    // SAFETY: no dim is negative, so each has the same bits as a `usize` (64 bits, asserted below).
    let shape = unsafe { std::slice::from_raw_parts(shape.as_ptr().cast::<usize>(), rank) };
    ensure!(
        checked_num_elements(shape).is_some(),
        InvalidArgument,
        "a tensor has shape {shape:?}, more elements than memory can have"
    );
    Ok(shape)
}

const _: () = assert!(size_of::<usize>() == 8, "Opsmith needs a 64-bit target");

/// A view of a tensor; `dense` are the strides to take where the caller left them out.
///
/// # Safety
/// For `'a` the tensor must be readable as its fields say.
#[inline]
pub(super) unsafe fn view<'a>(
    tensor: &OpsmithTensor,
    shape: &'a [usize],
    dense: &'a [isize],
) -> Result<TensorView<'a>> {
    let dtype = dtype(tensor.dtype)?;
    let kind = match tensor.device_kind {
        OPSMITH_DEVICE_CPU => DeviceKind::Cpu,
        OPSMITH_DEVICE_CUDA => DeviceKind::Cuda,
        other => bail!(InvalidArgument, "a tensor is on a device of unknown kind {other}"),
    };
    let strides = match tensor.strides.is_null() {
        true => dense,
        // SAFETY: promised by the caller; an `isize` is an `i64` here.
        false => unsafe { slice(tensor.strides.cast::<isize>(), shape.len(), "a tensor's strides") }?,
    };
    let empty = shape.contains(&0);
    ensure!(!tensor.data.is_null() || empty, InvalidArgument, "a tensor of shape {shape:?} has no data");
    let device = Device { kind, index: tensor.device_index };
    // SAFETY: promised by the caller.
    Ok(unsafe { TensorView::from_raw_parts(tensor.data.cast(), dtype, device, shape, strides) })
}

#[inline]
pub(super) fn dtype(number: i32) -> Result<DType> {
    u8::try_from(number)
        .ok()
        .and_then(DType::from_u8)
        .ok_or_else(|| Error::invalid_argument(format!("{number} is not the number of a dtype")))
}

/// The value of an attribute.
///
/// # Safety
/// `values` must be readable as `kind`, `is_list` and `len` say.
pub(super) unsafe fn attr(attr: &OpsmithAttr) -> Result<AttrValue> {
    ensure!(attr.is_list != 0 || attr.len == 1, InvalidArgument, "a single value has length {}", attr.len);
    // SAFETY: promised by the caller, for each element type below.
    unsafe {
        Ok(match (attr.kind, attr.is_list != 0) {
            (OPSMITH_ATTR_INT, false) => AttrValue::Int(values::<i64>(attr)?[0]),
            (OPSMITH_ATTR_INT, true) => AttrValue::Ints(each(values::<i64>(attr)?, |&n| Ok(n))?),
            (OPSMITH_ATTR_FLOAT, false) => AttrValue::Float(values::<f64>(attr)?[0]),
            (OPSMITH_ATTR_FLOAT, true) => AttrValue::Floats(each(values::<f64>(attr)?, |&x| Ok(x))?),
            (OPSMITH_ATTR_BOOL, false) => AttrValue::Bool(values::<u8>(attr)?[0] != 0),
            (OPSMITH_ATTR_BOOL, true) => AttrValue::Bools(each(values::<u8>(attr)?, |&byte| Ok(byte != 0))?),
            (OPSMITH_ATTR_TYPE, false) => AttrValue::Type(dtype(values::<i32>(attr)?[0])?),
            (OPSMITH_ATTR_TYPE, true) => {
                AttrValue::Types(each(values::<i32>(attr)?, |&number| dtype(number))?)
            }
            (OPSMITH_ATTR_STRING, false) => AttrValue::String(string(&values::<OpsmithStr>(attr)?[0])?),
            (OPSMITH_ATTR_STRING, true) => {
                AttrValue::Strings(each(values::<OpsmithStr>(attr)?, |text| string(text))?)
            }
            (OPSMITH_ATTR_SHAPE, false) => AttrValue::Shape(shape(&values::<OpsmithShape>(attr)?[0])?),
            (OPSMITH_ATTR_SHAPE, true) => {
                AttrValue::Shapes(each(values::<OpsmithShape>(attr)?, |value| shape(value))?)
            }
            (OPSMITH_ATTR_TENSOR, false) => {
                AttrValue::Tensor(tensor(values::<*const OpsmithTensor>(attr)?[0], TENSOR)?)
            }
            (OPSMITH_ATTR_TENSOR, true) => {
                AttrValue::Tensors(each(values::<*const OpsmithTensor>(attr)?, |&value| {
                    tensor(value, TENSOR)
                })?)
            }
            (kind, _) => bail!(InvalidArgument, "an attribute has unknown kind {kind}"),
        })
    }
}

/// # Safety
/// `values` must be readable for `len` elements of type `T`.
unsafe fn values<'a, T>(attr: &OpsmithAttr) -> Result<&'a [T]> {
    // SAFETY: promised by the caller.
    unsafe { slice(attr.values.cast::<T>(), attr.len, "the list of an attribute's values") }
}

fn each<T, R>(values: &[T], read: impl Fn(&T) -> Result<R>) -> Result<Vec<R>> {
    list(values.len(), values.iter().map(read))
}

/// # Safety
/// The text must be readable.
unsafe fn string(value: &OpsmithStr) -> Result<Arc<str>> {
    // SAFETY: promised by the caller.
    opsmith_core::attr::text(unsafe { text(*value) }?.as_bytes())
}

/// # Safety
/// The dims must be readable.
unsafe fn shape(value: &OpsmithShape) -> Result<PartialShape> {
    let Ok(rank) = usize::try_from(value.rank) else { return Ok(None) };
    ensure!(rank <= MAX_RANK, InvalidArgument, "a shape has at most {MAX_RANK} dims, got {rank}");
    // SAFETY: promised by the caller.
    let dims = unsafe { slice(value.dims, rank, "a shape's dims") }?;
    Ok(Some(dims.iter().map(|&dim| u64::try_from(dim).ok()).collect()))
}

const TENSOR: &str = "a tensor attribute";

/// A copy of a tensor in host memory; `what` it is called.
///
/// # Safety
/// The pointer must be null or point to a tensor that is readable as its fields say.
pub(super) unsafe fn tensor(pointer: *const OpsmithTensor, what: &str) -> Result<Arc<TensorValue>> {
    // SAFETY: promised by the caller.
    let (tensor, shape) = unsafe {
        let tensor = structure(pointer, what)?;
        (tensor, dims(tensor)?)
    };
    let too_large =
        || Error::invalid_argument(format!("{what} of shape {shape:?} is larger than memory can be"));
    let dtype = dtype(tensor.dtype)?;
    let num_bytes = checked_num_elements(shape).and_then(|count| count.checked_mul(dtype.size()));
    let num_bytes = num_bytes.ok_or_else(too_large)?;
    let dense = row_major_strides(shape);
    // SAFETY: as above.
    let view = unsafe { view(tensor, shape, &dense) }?;
    ensure!(view.is_contiguous(), InvalidArgument, "{what} must be contiguous");
    ensure!(view.device().kind == DeviceKind::Cpu, InvalidArgument, "{what} must be in host memory");
    let (bytes, strings) = match dtype {
        DType::String => {
            let text = view.strings()?.into_iter().map(|text| memory::copied(text, "text"));
            (Vec::new(), memory::try_collected(text, "the elements of text")?)
        }
        _ => {
            // SAFETY: a contiguous tensor has this many readable bytes.
            let bytes = unsafe { slice(view.data_ptr(), num_bytes, "a tensor's data") };
            (memory::copied(bytes?, "a tensor")?, Vec::new())
        }
    };
    let mut value = TensorValue { dtype, shape: shape.to_vec(), bytes, strings };
    value.keep_truths();
    Ok(Arc::new(value))
}

// A `string` element of the ABI is read as the core's.
const _: () = assert!(size_of::<StrRef>() == size_of::<OpsmithStr>());
