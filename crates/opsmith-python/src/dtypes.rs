//! Between NumPy's dtypes and ours.

use numpy::npyffi::{NPY_TYPES, PY_ARRAY_API, PyArray_Descr};
use opsmith_core::{DType, Error, Result};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// The dtype of the package `ml_dtypes`, where it is there; it gets its number when it is imported.
static BFLOAT16: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();

/// The first number of a dtype that is registered at run time.
const FIRST_USER_TYPE: i32 = 256;

/// Our dtype for the number of one of NumPy's that lies in memory as ours does; `None` for text, objects, records,
/// dates and extended precision.
pub(crate) fn from_number(py: Python<'_>, number: i32) -> Option<DType> {
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
        return NUMBERS.get(usize::try_from(number).ok()?).copied().flatten();
    }
    let bfloat16 = bfloat16(py)?;
    // SAFETY: a dtype object begins with these fields.
    let its_number = unsafe { (*bfloat16.as_ptr().cast::<PyArray_Descr>()).fields.type_num };
    (its_number == number).then_some(DType::BFloat16)
}

/// A new reference to NumPy's dtype for ours.
///
/// # Errors
/// `Unimplemented` for a dtype that NumPy lacks.
pub(crate) fn descriptor(py: Python<'_>, dtype: DType) -> Result<*mut PyArray_Descr> {
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
            let missing = || Error::unimplemented("NumPy has bfloat16 only with the package `ml_dtypes`");
            return Ok(bfloat16(py).ok_or_else(missing)?.into_ptr().cast());
        }
        _ => return Err(Error::unimplemented(format!("NumPy has no dtype {dtype}"))),
    };
    // SAFETY: the number is one of NumPy's own, for which this cannot fail.
    Ok(unsafe { PY_ARRAY_API.PyArray_DescrFromType(py, number as i32) })
}

fn bfloat16(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    let import = || -> PyResult<Py<PyAny>> {
        let scalar = py.import("ml_dtypes")?.getattr("bfloat16")?;
        Ok(py.import("numpy")?.getattr("dtype")?.call1((scalar,))?.unbind())
    };
    BFLOAT16.get_or_init(py, || import().ok()).as_ref().map(|dtype| dtype.bind(py).clone())
}
