//! Outputs as NumPy arrays: memory allocated here, aligned to 64 bytes, that the array owns through a capsule.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use opsmith_core::memory::prefer_large_pages;
use opsmith_core::tensor::{Extents, checked_num_elements};
use opsmith_core::{DType, Error, Result, memory};
use opsmith_runtime::OutputMemory;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;
use smallvec::SmallVec;

use crate::array;
use crate::python_values::text_from_bytes;

/// The name of the capsules that free outputs.
const CAPSULE: &CStr = c"opsmith.memory";

/// The alignment of outputs: a cache line, and the widest vector register.
const ALIGNMENT: usize = 64;

/// A block of memory that is freed by its address alone, as a capsule does it.
struct Block(NonNull<u8>);

// SAFETY: a block is plain memory that only its holder reaches.
unsafe impl Send for Block {}

impl Block {
    /// At least `bytes` bytes, aligned. `posix_memalign` would do, but takes several times as long for a small block: so
    /// the block is cut from a larger one, whose address is kept just before it.
    fn new(bytes: usize) -> Option<Block> {
        let whole = bytes.checked_add(ALIGNMENT + size_of::<*mut u8>())?;
        // SAFETY: any size may be asked for.
        let start: *mut u8 = unsafe { libc::malloc(whole) }.cast();
        if start.is_null() {
            return None;
        }
        let address = (start as usize + size_of::<*mut u8>()).next_multiple_of(ALIGNMENT);
        // SAFETY: `address` is at most `ALIGNMENT + 8` past the start, so `bytes` bytes follow it in the block; the
        // pointer's size before it is in the block too, and aligned because `address` is.
        unsafe {
            let data = start.add(address - start as usize);
            // Before the block's first page is written.
            prefer_large_pages(data, bytes);
            data.cast::<*mut u8>().sub(1).write(start);
            NonNull::new(data).map(Block)
        }
    }

    fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr()
    }

    fn into_raw(self) -> *mut c_void {
        let data = self.as_ptr();
        std::mem::forget(self);
        data.cast()
    }

    /// # Safety
    /// `data` must come from `into_raw`, and be given back once.
    unsafe fn from_raw(data: *mut c_void) -> Option<Block> {
        NonNull::new(data.cast()).map(Block)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `new` wrote the address of what it allocated just before the data; it is freed once.
        unsafe { libc::free(self.as_ptr().cast::<*mut c_void>().sub(1).read()) };
    }
}

/// An output that the op made.
struct Output {
    block: Block,
    dtype: DType,
    shape: Extents,
}

/// The memory of a call's outputs. It holds no Python object: an op runs without the interpreter's lock.
#[derive(Default)]
pub(crate) struct NumpyMemory {
    outputs: SmallVec<[Option<Output>; 2]>,
    strings: Vec<Vec<u8>>,
}

impl OutputMemory for NumpyMemory {
    fn allocate(&mut self, index: usize, dtype: DType, shape: &[usize]) -> Result<*mut u8> {
        let bytes = checked_num_elements(shape).and_then(|count| count.checked_mul(dtype.size()));
        let block = bytes.and_then(Block::new).ok_or_else(|| {
            Error::resource_exhausted(format!("cannot allocate a {dtype} array of shape {shape:?}"))
        })?;
        let data = block.as_ptr();
        if dtype == DType::String {
            // SAFETY: the block has this many bytes.
            unsafe { data.write_bytes(0, bytes.unwrap_or(0)) };
        }
        while self.outputs.len() <= index {
            self.outputs.push(None);
        }
        self.outputs[index] = Some(Output { block, dtype, shape: shape.into() });
        Ok(data)
    }

    fn keep_string(&mut self, bytes: &[u8]) -> Result<*const u8> {
        memory::reserve(&mut self.strings, 1, "text")?;
        self.strings.push(memory::copied(bytes, "text")?);
        Ok(self.strings[self.strings.len() - 1].as_ptr())
    }
}

impl NumpyMemory {
    /// The output at a flat position as an array; `None` where the op did not make it.
    pub(crate) fn take<'py>(&mut self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        match self.outputs.get_mut(index).and_then(Option::take) {
            None => Ok(py.None().into_bound(py)),
            Some(output) if output.dtype == DType::String => strings_to_array(py, &output),
            Some(output) => to_array(py, output),
        }
    }
}

/// The output as an array that owns its memory.
fn to_array(py: Python<'_>, output: Output) -> PyResult<Bound<'_, PyAny>> {
    let Output { block, dtype, mut shape } = output;
    // SAFETY: the block has room for a dense array of this dtype and shape, and the capsule frees it.
    unsafe {
        let array = array::unowned(py, block.as_ptr(), dtype, &mut shape)?;
        let capsule = ffi::PyCapsule_New(block.as_ptr().cast(), CAPSULE.as_ptr(), Some(free_capsule));
        if capsule.is_null() {
            return Err(PyErr::fetch(py));
        }
        block.into_raw();
        array::own(&array, capsule)?;
        Ok(array)
    }
}

/// Frees the memory that a capsule stands for.
unsafe extern "C" fn free_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this once, with the capsule that `to_array` made, whose pointer is a block's.
    drop(unsafe { Block::from_raw(ffi::PyCapsule_GetPointer(capsule, CAPSULE.as_ptr())) });
}

/// A `string` output as an array of `str` objects.
fn strings_to_array<'py>(py: Python<'py>, output: &Output) -> PyResult<Bound<'py, PyAny>> {
    let count = output.shape.iter().product();
    let data = output.block.as_ptr().cast::<opsmith_core::tensor::StrRef>();
    let texts = PyList::empty(py);
    for at in 0..count {
        // SAFETY: the block holds this many elements, zeroed when it was made; the op set them to text that is kept.
        let bytes = unsafe {
            let element = data.add(at).read();
            if element.len == 0 { &[] } else { std::slice::from_raw_parts(element.data, element.len) }
        };
        texts.append(text_from_bytes(py, bytes)?)?;
    }
    let numpy = py.import("numpy")?;
    let array = numpy.getattr("empty")?.call1((output.shape.to_vec(), "O"))?;
    array.getattr("reshape")?.call1((-1,))?.set_item(pyo3::types::PySlice::full(py), texts)?;
    Ok(array)
}
