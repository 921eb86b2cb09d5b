//! Memory that the kernels of products take themselves, for copies of factors. They end the process where there is none, so it is
//! made sure beforehand that there is some.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use gemm_common::cache::{CACHE_INFO, KernelParams, kernel_params};
use gemm_common::gemm::L2_SLAB;
use opsmith_core::{Result, memory};

/// The bytes that products which run have been promised. So many were there when the last of them began: other products on other
/// threads do not take them away.
static PROMISED: AtomicUsize = AtomicUsize::new(0);

/// Copies of fewer bytes are as any small allocation.
const SMALL: usize = 1 << 16;

thread_local! {
    /// Whether the thread has the buffer that the kernels keep for it.
    static HAS_BUFFER: Cell<bool> = const { Cell::new(false) };
}

/// A promise that a product has the memory that it takes.
pub(super) struct Room(usize);

impl Room {
    /// For a product of these sizes, of numbers of `size` bytes, whose columns are dense, on this thread.
    ///
    /// # Errors
    /// `ResourceExhausted` without memory.
    pub(super) fn new((rows, inner, columns): (usize, usize, usize), size: usize) -> Result<Room> {
        // A buffer as large as the second cache, which each thread keeps.
        let buffer = if HAS_BUFFER.get() { 0 } else { CACHE_INFO[1].cache_bytes };
        let bytes = copies((rows, inner, columns), size) + buffer;
        if bytes < SMALL {
            return Ok(Room(0));
        }
        let room = Room(bytes);
        let all = PROMISED.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let mut there = Vec::<u8>::new();
        memory::reserve(&mut there, all, "copies of the factors of a product")?;
        // What nobody looks at would not be allocated at all.
        drop(std::hint::black_box(there));
        if buffer > 0 {
            L2_SLAB.with(|_| HAS_BUFFER.set(true));
        }
        Ok(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        PROMISED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// At most how many bytes are copied at a time: those for the largest of the tiles that processors have.
fn copies((rows, inner, columns): (usize, usize, usize), size: usize) -> usize {
    let of_tile = |(high, wide): (usize, usize)| {
        let KernelParams { kc, nc, .. } = kernel_params(rows, columns, inner, high, wide, size);
        // Small matrices are not cut by the caches, and without a third cache the right factor is cut after 128 tiles.
        let depth = if rows.max(columns) <= 64 { inner.min(512) } else { kc };
        let right = if nc == 0 { 128 * wide } else { nc.max(columns.min(64).next_multiple_of(wide)) };
        let left = rows.next_multiple_of(high).min(2 * 8 * high);
        depth * (left + right) * size
    };
    [(192 / size, 8), (96 / size, 4), (32 / size, 4)].into_iter().map(of_tile).max().unwrap_or(0)
}
