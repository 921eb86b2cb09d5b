//! Between NumPy's dtypes and ours.

use std::sync::OnceLock;

use numpy::npyffi::{NPY_TYPES, PY_ARRAY_API, PyArray_Descr};
use opsmith_core::fork::set_or_get;
use opsmith_core::{DType, Error};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

use crate::errors::to_python;

/// The dtype of the package `ml_dtypes`, where it is there; it gets its number when it is imported. No
/// thread waits for another one that imports it: in a forked child it would for ever.
static BFLOAT16: OnceLock<Option<Py<PyAny>>> = OnceLock::new();

/// The first number of a dtype that is registered at run time.
const FIRST_USER_TYPE: i32 = 256;

/// Our dtype for the number of one of NumPy's that lies in memory as ours does; `None` for text, objects, records,
/// dates and extended precision.
///
/// # Errors
/// What the import of `ml_dtypes` raised, but that there is none.
#[inline]
pub(crate) fn from_number(py: Python<'_>, number: i32) -> PyResult<Option<DType>> {
    const NUMBERS: [Option<DType>; 24] = {
        use DType::*;
        let mut numbers = [None; 24];
        numbers[NPY_TYPES::NPY_BOOL as usize] = Some(Bool);
        numbers[NPY_TYPES::NPY_BYTE as usize] = Some(Int8);
        numbers[NPY_TYPES::NPY_UBYTE as usize] = Some(UInt8);
        numbers[NPY_TYPES::NPY_SHORT as usize] = Some(Int16);
        numbers[NPY_TYPES::NPY_USHORT as usize] = Some(UInt16);
        numbers[NPY_TYPES::NPY_INT as usize] = Some(Int32);
        numbers[NPY_TYPES::NPY_UINT as usize] = Some(UInt32);
        numbers[NPY_TYPES::NPY_LONG as usize] = Some(Int64);
        numbers[NPY_TYPES::NPY_ULONG as usize] = Some(UInt64);
        numbers[NPY_TYPES::NPY_LONGLONG as usize] = Some(Int64);
        numbers[NPY_TYPES::NPY_ULONGLONG as usize] = Some(UInt64);
        numbers[NPY_TYPES::NPY_FLOAT as usize] = Some(Float32);
        numbers[NPY_TYPES::NPY_DOUBLE as usize] = Some(Float64);
        numbers[NPY_TYPES::NPY_CFLOAT as usize] = Some(Complex64);
        numbers[NPY_TYPES::NPY_CDOUBLE as usize] = Some(Complex128);
        numbers[NPY_TYPES::NPY_HALF as usize] = Some(Float16);
        numbers
    };
    const _: () = assert!(size_of::<std::ffi::c_long>() == 8);
    if number < FIRST_USER_TYPE {
        return Ok(usize::try_from(number).ok().and_then(|number| *NUMBERS.get(number)?));
    }
    let Some(bfloat16) = bfloat16(py)? else { return Ok(None) };
    // SAFETY: a dtype object begins with these fields.
    let its_number = unsafe { (*bfloat16.as_ptr().cast::<PyArray_Descr>()).fields.type_num };
    Ok((its_number == number).then_some(DType::BFloat16))
}

/// A new reference to NumPy's dtype for ours.
///
/// # Errors
/// `UnimplementedError` for a dtype that NumPy lacks.
pub(crate) fn descriptor(py: Python<'_>, dtype: DType) -> PyResult<*mut PyArray_Descr> {
    let unimplemented = |message: String| to_python(py, &Error::unimplemented(message));
    let number = match dtype {
        DType::Bool => NPY_TYPES::NPY_BOOL,
        DType::Int8 => NPY_TYPES::NPY_BYTE,
        DType::UInt8 => NPY_TYPES::NPY_UBYTE,
        DType::Int16 => NPY_TYPES::NPY_SHORT,
        DType::UInt16 => NPY_TYPES::NPY_USHORT,
        DType::Int32 => NPY_TYPES::NPY_INT,
        DType::UInt32 => NPY_TYPES::NPY_UINT,
        DType::Int64 => NPY_TYPES::NPY_LONG,
        DType::UInt64 => NPY_TYPES::NPY_ULONG,
        DType::Float16 => NPY_TYPES::NPY_HALF,
        DType::Float32 => NPY_TYPES::NPY_FLOAT,
        DType::Float64 => NPY_TYPES::NPY_DOUBLE,
        DType::Complex64 => NPY_TYPES::NPY_CFLOAT,
        DType::Complex128 => NPY_TYPES::NPY_CDOUBLE,
        DType::BFloat16 => {
            let missing = || unimplemented("NumPy has bfloat16 only with the package `ml_dtypes`".to_owned());
            return Ok(bfloat16(py)?.ok_or_else(missing)?.into_ptr().cast());
        }
        _ => return Err(unimplemented(format!("NumPy has no dtype {dtype}"))),
    };
    // SAFETY: the number is one of NumPy's own, for which this cannot fail.
    Ok(unsafe { PY_ARRAY_API.PyArray_DescrFromType(py, number as i32) })
}

fn bfloat16(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    let import = || -> PyResult<Py<PyAny>> {
        let scalar = py.import("ml_dtypes")?.getattr("bfloat16")?;
        Ok(py.import("numpy")?.getattr("dtype")?.call1((scalar,))?.unbind())
    };
    let known = match BFLOAT16.get() {
        Some(known) => known,
        None => {
            let found = match import() {
                Ok(dtype) => Some(dtype),
                Err(error) if error.is_instance_of::<PyImportError>(py) => None,
                Err(error) => return Err(error),
            };
            set_or_get(&BFLOAT16, found)
        }
    };
    Ok(known.as_ref().map(|dtype| dtype.bind(py).clone()))
}
