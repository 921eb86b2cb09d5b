//! The caller of a test: own memory, own threads.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

use opsmith_core::kernel::Services;
use opsmith_core::tensor::{Strides, checked_num_elements, row_major_strides};

use crate::{DType, Device, Error, Result, TensorView};

/// How a caller aligns memory on the CPU.
const ALIGNMENT: usize = 64;
/// How a caller aligns memory on a card, as `cudaMalloc` does.
const DEVICE_ALIGNMENT: usize = 256;

/// Memory of our own.
pub(super) struct Block {
    data: NonNull<u8>,
    layout: Layout,
}

impl Block {
    /// `bytes` zero bytes.
    fn new(bytes: usize) -> Result<Block> {
        Block::aligned(bytes, ALIGNMENT)
    }

    fn aligned(bytes: usize, alignment: usize) -> Result<Block> {
        let too_much = || Error::resource_exhausted(format!("cannot allocate {bytes} bytes"));
        let layout = Layout::from_size_align(bytes.max(1), alignment).map_err(|_| too_much())?;
        // SAFETY: the size is not zero.
        let data = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(too_much)?;
        Ok(Block { data, layout })
    }

    fn fill(&mut self, byte: u8) {
        // SAFETY: the block is ours and this large.
        unsafe { self.data.as_ptr().write_bytes(byte, self.layout.size()) };
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.layout.size())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the memory came from the allocator with this layout and is freed once.
        unsafe { dealloc(self.data.as_ptr(), self.layout) };
    }
}

/// An output that a kernel made.
pub(super) struct Made {
    dtype: DType,
    pub(super) shape: Vec<usize>,
    strides: Strides,
    block: Block,
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

impl Made {
    /// Gives the tensor to `read`; the text of a `string` output must be there still.
    pub(super) fn read<R>(&self, read: impl FnOnce(TensorView<'_>) -> R) -> R {
        let data = self.block.data.as_ptr();
        // SAFETY: the block was made for this dtype and shape, row-major, and was filled with a valid pattern
        // before the kernel wrote to it; the texts of its strings live as long as it.
        read(unsafe { TensorView::from_raw_parts(data, self.dtype, Device::CPU, &self.shape, &self.strides) })
    }
}

/// Lends memory and threads to one call.
pub(super) struct TestServices {
    made: RefCell<Vec<Option<Made>>>,
    scratch: RefCell<Vec<Block>>,
    texts: RefCell<Vec<Block>>,
    threads: usize,
    device: Device,
}

impl TestServices {
    pub(super) fn new(outputs: usize, threads: usize, device: Device) -> TestServices {
        TestServices {
            made: RefCell::new((0..outputs).map(|_| None).collect()),
            scratch: RefCell::default(),
            texts: RefCell::default(),
            threads,
            device,
        }
    }

    /// Keeps temporary memory until the call ends.
    fn keep(&self, block: Block) -> Result<NonNull<u8>> {
        let data = block.data;
        self.scratch.borrow_mut().push(block);
        Ok(data)
    }

    /// The outputs that were made, and the text that the elements of `string` outputs point to.
    pub(super) fn into_made(self) -> (Vec<Option<Made>>, Vec<Block>) {
        (self.made.into_inner(), self.texts.into_inner())
    }
}

// SAFETY: every block is new, of the size asked for, and kept; the scope ends when all ranges are done.
unsafe impl Services for TestServices {
    fn device(&self) -> Device {
        self.device
    }

    fn allocate_device_temp(&self, bytes: usize) -> Result<NonNull<u8>> {
        self.keep(Block::aligned(bytes, DEVICE_ALIGNMENT)?)
    }

    fn allocate_output(&self, index: usize, dtype: DType, shape: &[usize]) -> Result<*mut u8> {
        let bytes = checked_num_elements(shape).and_then(|count| count.checked_mul(dtype.size()));
        let bytes =
            bytes.ok_or_else(|| Error::resource_exhausted(format!("shape {shape:?} is too large")))?;
        let mut block = Block::new(bytes)?;
        // Bits that are a NaN in every float; for these two dtypes they are no value at all.
        if !matches!(dtype, DType::Bool | DType::String) {
            block.fill(0xFF);
        }
        let data = block.data.as_ptr();
        let made = Made { dtype, shape: shape.to_vec(), strides: row_major_strides(shape), block };
        self.made.borrow_mut()[index] = Some(made);
        Ok(data)
    }

    fn allocate_temp(&self, bytes: usize) -> Result<NonNull<u8>> {
        self.keep(Block::new(bytes)?)
    }

    fn keep_string(&self, bytes: &[u8]) -> Result<NonNull<u8>> {
        let block = Block::new(bytes.len())?;
        // SAFETY: the block is new and has room for them.
        unsafe { block.data.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        let data = block.data;
        self.texts.borrow_mut().push(block);
        Ok(data)
    }

    fn num_threads(&self) -> usize {
        self.threads
    }

    fn parallel_for(&self, total: usize, grain: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
        let step = total.div_ceil(self.threads).max(grain).max(1);
        std::thread::scope(|scope| {
            for begin in (step..total).step_by(step) {
                scope.spawn(move || body(begin..total.min(begin + step)));
            }
            body(0..total.min(step));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_memory_is_aligned_as_frameworks_align_it() {
        let services = TestServices::new(0, 1, Device::CPU);
        for bytes in [0, 1, 300, 4096] {
            assert_eq!(services.allocate_device_temp(bytes).unwrap().as_ptr() as usize % 256, 0);
            assert_eq!(services.allocate_temp(bytes).unwrap().as_ptr() as usize % 64, 0);
        }
    }
}
