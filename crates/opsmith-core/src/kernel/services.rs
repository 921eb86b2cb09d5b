//! What a kernel may ask of whoever called it: memory, threads, a stream.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;

use crate::{DType, Device, Error, Result};

/// The services that a caller lends to one call of a kernel.
///
/// A framework's module implements this over the framework's own allocator and thread pool, so that an op behaves there
/// as the framework's own ops do.
///
/// # Safety
/// Kernels write to the memory that a caller gives and believe its loops: a block must be as large and as aligned as the
/// method says, stay until the call ends, and be given out once; ranges must not overlap, and none be worked on after
/// `parallel_for` returns.
///
/// Who has a caller vouches for its calls: it goes to [`Plan::run`](crate::Plan::run) only with the op that gave the plan,
/// and with tensors for `Ref` inputs that the kernel may write and nobody else uses.
pub unsafe trait Services {
    /// Where outputs are made.
    fn device(&self) -> Device {
        Device::CPU
    }

    /// Makes the output at flat position `index`, dense and row-major, and returns its memory, uninitialised but
    /// for `string`, whose elements are empty. The caller keeps it; it is made at most once per call. The elements of the shape take at
    /// most `isize::MAX` bytes.
    ///
    /// The memory is aligned to the elements of `dtype`, and kernels rely on no more: a caller's tensors may lie anywhere. Where the caller
    /// chooses, 64 bytes, a cache line, is best. An output without elements needs no memory, but a pointer that is aligned and not
    /// null.
    ///
    /// # Errors
    /// `ResourceExhausted` when the memory cannot be had; `Unimplemented` for a dtype that the caller lacks.
    fn allocate_output(&self, index: usize, dtype: DType, shape: &[usize]) -> Result<*mut u8>;

    /// Makes the output at flat position `output` from the memory of the first of the inputs at the flat positions
    /// `inputs`, all of its dtype and shape, that nobody will read again, another input of this call included. Gives that
    /// input's position and the memory, which keeps its elements; its dims stay readable. `None` when the caller cannot tell
    /// or all will be read.
    fn forward_input(&self, _inputs: &[usize], _output: usize) -> Option<(usize, *mut u8)> {
        None
    }

    /// Scratch memory, aligned to 64 bytes, that the caller frees when the call ends: host memory, wherever the call runs.
    ///
    /// # Errors
    /// `ResourceExhausted` when the memory cannot be had.
    fn allocate_temp(&self, bytes: usize) -> Result<NonNull<u8>>;

    /// Scratch memory on the call's device where that is not the CPU, aligned to 256 bytes. The caller takes it back when the
    /// work that the call puts on its stream is done.
    ///
    /// # Errors
    /// `Unimplemented` where the caller lends none; `ResourceExhausted` when the memory cannot be had.
    fn allocate_device_temp(&self, _bytes: usize) -> Result<NonNull<u8>> {
        Err(Error::unimplemented("the caller provides no temporary memory on the device"))
    }

    /// Keeps a copy of `bytes` until the outputs have been read: the text of an element of a `string` output.
    ///
    /// # Errors
    /// `Unimplemented` where the caller has no string tensors.
    fn keep_string(&self, bytes: &[u8]) -> Result<NonNull<u8>>;

    /// How many threads [`parallel_for`](Self::parallel_for) uses at most, the calling one included.
    fn num_threads(&self) -> usize;

    /// Calls `body` on ranges that cover `0..total` without overlap, each of at least `grain` units but the last,
    /// on several threads, and returns when all are done. `body` never unwinds.
    fn parallel_for(&self, total: usize, grain: usize, body: &(dyn Fn(Range<usize>) + Sync));

    /// The stream that work on a card goes on; null on the CPU.
    fn stream(&self) -> *mut c_void {
        std::ptr::null_mut()
    }
}
