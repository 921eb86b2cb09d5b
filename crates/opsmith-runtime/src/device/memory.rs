//! Memory of a device that is used again: asking the driver takes long, and giving back waits for the device.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use opsmith_core::fork::{Mutex, Turn};
use opsmith_core::{Code, Device, Error, Result, ensure};
use opsmith_cuda::CardMemory;

use crate::pool::MemoryUse;

/// Blocks are of multiples of this many bytes.
const STEP: usize = 512;

/// From this many bytes on, of multiples of it: few sizes are kept, and each serves many tensors.
const LARGE_STEP: usize = 1 << 20;

/// A block serves a tensor if at most so much of the block, one part in eight, would not be used.
const SPARE: usize = 8;

/// The memory of a device, as the driver gives it, and what copies to it and from it.
///
/// # Safety
/// Memory that it gives is aligned to 256 bytes, of the size that was asked for, nobody else's until it is freed, and may be used
/// by kernels on the stream.
pub(crate) unsafe trait RawMemory: Send + Sync {
    /// The stream that all work is put on.
    fn stream(&self) -> *mut c_void;

    /// So many bytes, at least one.
    fn allocate(&self, bytes: usize) -> Result<NonNull<u8>>;

    /// Gives memory back, when the work that is on the stream is done.
    ///
    /// # Safety
    /// It came from here, and nobody uses it any more.
    unsafe fn free(&self, data: NonNull<u8>);

    /// Puts a copy from host memory on the stream.
    ///
    /// # Safety
    /// `from` is readable and stays as it is until `wait` returns, and `to` is memory from here, for so many bytes.
    unsafe fn copy_in(&self, to: NonNull<u8>, from: *const u8, bytes: usize) -> Result<()>;

    /// Puts a copy to host memory on the stream.
    ///
    /// # Safety
    /// `to` is writable and nobody else's until `wait` returns, and `from` is memory from here, for so many bytes.
    unsafe fn copy_out(&self, to: *mut u8, from: NonNull<u8>, bytes: usize) -> Result<()>;

    /// Waits for all that is on the stream.
    fn wait(&self) -> Result<()>;
}

// SAFETY: it is what the driver promises of its memory.
unsafe impl RawMemory for CardMemory {
    fn stream(&self) -> *mut c_void {
        CardMemory::stream(self)
    }

    fn allocate(&self, bytes: usize) -> Result<NonNull<u8>> {
        CardMemory::allocate(self, bytes)
    }

    unsafe fn free(&self, data: NonNull<u8>) {
        // SAFETY: promised by the caller.
        unsafe { CardMemory::free(self, data) };
    }

    unsafe fn copy_in(&self, to: NonNull<u8>, from: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { CardMemory::copy_in(self, to, from, bytes) }
    }

    unsafe fn copy_out(&self, to: *mut u8, from: NonNull<u8>, bytes: usize) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { CardMemory::copy_out(self, to, from, bytes) }
    }

    fn wait(&self) -> Result<()> {
        CardMemory::wait(self)
    }
}

/// Gives out blocks, and keeps what comes back by its size. All work is on one stream, so a block may serve again while the work
/// that used it before is not done: what comes then comes after it.
pub(crate) struct Allocator {
    device: Device,
    raw: Box<dyn RawMemory>,
    kept: Mutex<Kept>,
    copied: Mutex<Copied>,
    copying: Turn,
}

/// Host memory that is copied to the device, and kept meanwhile.
pub(crate) type HostBytes = Box<dyn AsRef<[u8]> + Send>;

/// What is being copied to the device: it stays as it is until the device was waited for, since nobody writes to memory that is
/// shared.
#[derive(Default)]
struct Copied {
    from: Vec<HostBytes>,
    bytes: usize,
}

/// So many bytes are kept for copies at most before they are waited for.
const MOST_COPIED: usize = 64 << 20;

/// An address on a device.
struct Address(NonNull<u8>);

// SAFETY: it is a number to whoever is not on the device.
unsafe impl Send for Address {}

#[derive(Default)]
struct Kept {
    by_size: BTreeMap<usize, Vec<Address>>,
    live: usize,
    peak: usize,
}

/// A block of a device's memory, which goes back when it is dropped.
pub(crate) struct Block {
    data: NonNull<u8>,
    size: usize,
    allocator: Arc<Allocator>,
}

// SAFETY: a block gives nothing but its address.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

/// The size of the block for so many bytes; none where that is no number.
fn rounded(bytes: usize) -> Option<usize> {
    let step = if bytes < LARGE_STEP { STEP } else { LARGE_STEP };
    bytes.max(1).checked_next_multiple_of(step)
}

impl Allocator {
    pub(crate) fn new(device: Device, raw: Box<dyn RawMemory>) -> Arc<Allocator> {
        Arc::new(Allocator {
            device,
            raw,
            kept: Mutex::default(),
            copied: Mutex::default(),
            copying: Turn::new(),
        })
    }

    pub(crate) fn device(&self) -> Device {
        self.device
    }

    pub(crate) fn raw(&self) -> &dyn RawMemory {
        &*self.raw
    }

    /// Puts a copy to a block on the stream. It waits only where much would be kept for copies; memory that is not the engine's
    /// own may change once this has returned, unless [`wait`](Self::wait) is called.
    ///
    /// # Errors
    /// `Internal` for more bytes than the block has; what the driver says.
    pub(crate) fn copy_in(&self, to: &Block, from: HostBytes) -> Result<()> {
        let bytes = (*from).as_ref();
        let (data, bytes) = (bytes.as_ptr(), bytes.len());
        ensure!(bytes <= to.size, Internal, "{bytes} bytes do not fit into a block of {}", to.size);
        let kept = {
            // Held while the copy is put on the stream: who waits then has it on the stream, or leaves the tensor here.
            let _turn = self.copying.take();
            let kept = {
                let copied = &mut *self.copied.lock();
                copied.from.push(from);
                copied.bytes += bytes;
                copied.bytes
            };
            // SAFETY: the source is kept until the stream was waited for, and the block is large enough.
            unsafe { self.raw.copy_in(to.data, data, bytes) }?;
            kept
        };
        if kept > MOST_COPIED { self.wait() } else { Ok(()) }
    }

    /// Waits for all that is on the stream.
    pub(crate) fn wait(&self) -> Result<()> {
        // What comes to be copied from now on is not waited for.
        let copied = {
            let _turn = self.copying.take();
            std::mem::take(&mut *self.copied.lock())
        };
        let waited = self.raw.wait();
        drop(copied);
        waited
    }

    /// A block of at least so many bytes. When the device has no more, what is kept goes back to it first.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Block> {
        let size = rounded(bytes).ok_or_else(|| {
            Error::resource_exhausted(format!("{bytes} bytes are more than a device can have"))
        })?;
        let found = self.kept.lock().take(size);
        if let Some((size, data)) = found {
            return Ok(self.block(data, size));
        }
        let data = match self.raw.allocate(size) {
            Err(error) if error.code() == Code::ResourceExhausted && self.release() => {
                self.raw.allocate(size)?
            }
            result => result?,
        };
        Ok(self.block(data, size))
    }

    fn block(self: &Arc<Self>, data: NonNull<u8>, size: usize) -> Block {
        let mut kept = self.kept.lock();
        kept.live += size;
        kept.peak = kept.peak.max(kept.live);
        Block { data, size, allocator: self.clone() }
    }

    /// Gives what is kept back to the device; whether that was anything.
    pub(crate) fn release(&self) -> bool {
        let kept = std::mem::take(&mut self.kept.lock().by_size);
        let mut found = false;
        for Address(data) in kept.into_values().flatten() {
            found = true;
            // SAFETY: it came from there, and no block has it.
            unsafe { self.raw.free(data) };
        }
        found
    }

    pub(crate) fn memory_use(&self) -> MemoryUse {
        let kept = self.kept.lock();
        MemoryUse { live: kept.live, peak: kept.peak }
    }
}

impl Kept {
    /// The smallest block that fits and is not much too large.
    fn take(&mut self, size: usize) -> Option<(usize, NonNull<u8>)> {
        let (&found, list) = self.by_size.range_mut(size..=size.saturating_add(size / SPARE)).next()?;
        let data = list.pop();
        if list.is_empty() {
            self.by_size.remove(&found);
        }
        data.map(|Address(data)| (found, data))
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        self.release();
    }
}

impl Block {
    pub(crate) fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    /// The device that it is of.
    pub(crate) fn device(&self) -> Device {
        self.allocator.device
    }

    pub(crate) fn data(&self) -> NonNull<u8> {
        self.data
    }

    /// How many bytes it has.
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut kept = self.allocator.kept.lock();
        kept.live -= self.size;
        kept.by_size.entry(self.size).or_default().push(Address(self.data));
    }
}
