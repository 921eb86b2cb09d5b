//! NumPy arrays as tensors: their fields read directly, with no copy where the layout allows.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use numpy::npyffi::{
    NPY_ARRAY_ALIGNED, NPY_ARRAY_CARRAY, NPY_ARRAY_ENSUREARRAY, NPY_ARRAY_FORCECAST, NPY_ARRAY_WRITEABLE,
    NpyTypes, PY_ARRAY_API, PyArrayObject, get_type_object, npy_intp,
};
use opsmith_core::tensor::Extents;
use opsmith_core::{DType, Device, TensorView};
use pyo3::ffi;
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::dtypes;

/// `numpy.ndarray`; null until NumPy was first needed, which is after somebody imported it or passed a Python list.
static NDARRAY: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(null_mut());

/// Where a tensor's elements are: the fields of an array, copied because Python may change them while an op runs.
pub(crate) struct Elements {
    data: *const u8,
    dtype: DType,
    writable: bool,
    rank: usize,
    /// The dims, then the strides in elements.
    extents: SmallVec<[isize; 8]>,
}

impl Elements {
    /// The elements of a tensor that is not to be written.
    pub(crate) fn of(tensor: &TensorView<'_>) -> Elements {
        let dims = tensor.shape().iter().map(|&dim| dim as isize);
        Elements {
            data: tensor.data_ptr(),
            dtype: tensor.dtype(),
            writable: false,
            rank: tensor.rank(),
            extents: dims.chain(tensor.strides().iter().copied()).collect(),
        }
    }

    /// The type of the elements.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.extents[..self.rank].contains(&0)
    }

    /// Whether the array may be written.
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// The elements as an op sees them.
    ///
    /// # Safety
    /// The memory that the elements are in must be kept alive for as long as the view.
    pub(crate) unsafe fn view(&self) -> TensorView<'_> {
        let (dims, strides) = self.extents.split_at(self.rank);
        // SAFETY: dims are not negative, so they have the same bits as a `usize`.
        let shape = unsafe { std::slice::from_raw_parts(dims.as_ptr().cast::<usize>(), self.rank) };
        // SAFETY: shape and strides come from one array; the rest is promised by the caller.
        unsafe { TensorView::from_raw_parts(self.data, self.dtype, Device::CPU, shape, strides) }
    }
}

/// What came of looking at an object as an array.
pub(crate) enum Look {
    /// An array that an op can read where it lies.
    Ready(Elements),
    /// An array that has to be copied or converted first.
    Convert,
    /// Not exactly a `numpy.ndarray`.
    Other,
}

/// Imports NumPy; further calls do nothing.
///
/// # Errors
/// What the import raised.
pub(crate) fn need_numpy(py: Python<'_>) -> PyResult<()> {
    if NDARRAY.load(Ordering::Relaxed).is_null() {
        // A fork waits for this lock: a child that is forked while NumPy is imported could never import it.
        let loading = py.import("opsmith._forks")?.getattr("LOADING")?;
        loading.call_method0("acquire")?;
        let imported = py.import("numpy").and_then(|numpy| {
            // What PyO3 keeps for NumPy's truth values.
            numpy.getattr("True_")?.extract::<bool>()?;
            // SAFETY: NumPy is imported; its type lives for good.
            let ndarray = unsafe { get_type_object(py, NpyTypes::PyArray_Type) };
            NDARRAY.store(ndarray, Ordering::Relaxed);
            Ok(())
        });
        loading.call_method0("release")?;
        return imported;
    }
    Ok(())
}

/// Looks at `object`. Cheap: no attribute is looked up and nothing is imported.
#[inline]
pub(crate) fn look(py: Python<'_>, object: &Borrowed<'_, '_, PyAny>) -> Look {
    if !is_exactly_array(object) {
        return Look::Other;
    }
    // SAFETY: the object is exactly a `numpy.ndarray`, whose fields these are.
    let array = unsafe { &(*object.as_ptr().cast::<PyArrayObject>()).fields };
    // SAFETY: an array has a dtype.
    let descriptor = unsafe { &(*array.descr).fields };
    let is_native = descriptor.byteorder != b'>' as std::ffi::c_char;
    // Who converts it asks again, and passes the error on.
    let Ok(Some(dtype)) = dtypes::from_number(py, descriptor.type_num) else { return Look::Convert };
    if !is_native || array.flags & NPY_ARRAY_ALIGNED == 0 {
        return Look::Convert;
    }
    let rank = array.nd as usize;
    let mut extents: SmallVec<[isize; 8]> = SmallVec::new();
    for axis in 0..rank {
        // SAFETY: an array has as many dims as it has axes.
        extents.push(unsafe { *array.dimensions.add(axis) });
    }
    // Sizes of elements are powers of two.
    let (shift, rest) = (dtype.size().trailing_zeros(), dtype.size() as isize - 1);
    for axis in 0..rank {
        // SAFETY: an array has as many strides as it has axes.
        let stride = unsafe { *array.strides.add(axis) };
        // A view of a record array may have strides that are not whole elements.
        if stride & rest != 0 && extents[axis] > 1 {
            return Look::Convert;
        }
        extents.push(stride >> shift);
    }
    let writable = array.flags & NPY_ARRAY_WRITEABLE != 0;
    Look::Ready(Elements { data: array.data.cast_const().cast(), dtype, writable, rank, extents })
}

/// Whether `object` is an array, of whatever subclass. NumPy must have been needed before.
pub(crate) fn is_array(object: &Bound<'_, PyAny>) -> bool {
    let ndarray = NDARRAY.load(Ordering::Relaxed);
    // SAFETY: both are valid; the type is not null once NumPy was needed.
    !ndarray.is_null() && unsafe { ffi::PyObject_TypeCheck(object.as_ptr(), ndarray) != 0 }
}

/// Whether `object` is an array, of no subclass.
pub(crate) fn is_exactly_array(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: every object has a type.
    unsafe { ffi::Py_TYPE(object.as_ptr()) == NDARRAY.load(Ordering::Relaxed) }
}

/// Whether `object` is one of NumPy's scalars.
pub(crate) fn is_scalar(object: &Bound<'_, PyAny>) -> bool {
    let is_there = !NDARRAY.load(Ordering::Relaxed).is_null();
    // SAFETY: NumPy is imported; both are valid.
    let is_it = || unsafe {
        let kind = get_type_object(object.py(), NpyTypes::PyGenericArrType_Type);
        ffi::PyObject_TypeCheck(object.as_ptr(), kind) != 0
    };
    is_there && is_it()
}

/// What `numpy.asarray` makes of an object. NumPy must have been needed before.
///
/// # Errors
/// What NumPy raised.
pub(crate) fn from_any<'py>(object: &Bound<'py, PyAny>, dtype: Option<DType>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let descriptor = dtype.map_or(Ok(null_mut()), |dtype| dtypes::descriptor(py, dtype))?;
    let flags = NPY_ARRAY_FORCECAST | NPY_ARRAY_ENSUREARRAY;
    // SAFETY: the object is alive; the call takes the reference to the descriptor, which may be null.
    unsafe {
        let array = PY_ARRAY_API.PyArray_FromAny(py, object.as_ptr(), descriptor, 0, 0, flags, null_mut());
        Bound::from_owned_ptr_or_err(py, array)
    }
}

/// A dense array over memory that it does not own yet.
///
/// # Safety
/// `data` must be room for a dense array of this dtype and shape, which stays until the array has an owner or is gone.
pub(crate) unsafe fn unowned<'py>(
    py: Python<'py>,
    data: *mut u8,
    dtype: DType,
    shape: &mut [usize],
) -> PyResult<Bound<'py, PyAny>> {
    let descriptor = dtypes::descriptor(py, dtype)?;
    // SAFETY: the call takes the reference to the descriptor and copies the dims; the rest is promised by the caller.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            get_type_object(py, NpyTypes::PyArray_Type),
            descriptor,
            shape.len() as i32,
            shape.as_mut_ptr().cast::<npy_intp>(),
            null_mut(),
            data.cast(),
            NPY_ARRAY_CARRAY,
            null_mut(),
        );
        Bound::from_owned_ptr_or_err(py, array)
    }
}

/// Gives an array the owner of its memory.
///
/// # Safety
/// `owner` must be a new reference to an object that keeps the memory of `array`, which has no owner yet.
pub(crate) unsafe fn own(array: &Bound<'_, PyAny>, owner: *mut ffi::PyObject) -> PyResult<()> {
    let py = array.py();
    // SAFETY: `array` is an array; the call takes the reference to the owner, also when it fails.
    match unsafe { PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast::<PyArrayObject>(), owner) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(py)),
    }
}

/// A dense array over memory that `owner` keeps.
///
/// # Safety
/// `data` must be room for a dense array of this dtype and shape that nobody else uses and that `owner` keeps.
pub(crate) unsafe fn over<'py>(
    py: Python<'py>,
    data: *mut u8,
    dtype: DType,
    mut shape: Extents,
    owner: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: promised by the caller; the reference to the owner is given away.
    unsafe {
        let array = unowned(py, data, dtype, &mut shape)?;
        own(&array, owner.into_ptr())?;
        Ok(array)
    }
}
