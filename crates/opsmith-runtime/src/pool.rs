//! Memory that a session uses again: what one run gave back serves the next.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use opsmith_core::Result;
use opsmith_core::fork::Mutex;

use crate::memory::Memory;

/// Blocks of at least as many bytes are kept by their size, as long as no more is kept than was in use: the global allocator
/// takes large ones from the system anew each time, which costs a page fault every 4 KiB.
const LARGE: usize = 32 << 10;

/// Smaller blocks are rounded up to a power of two, from this size on, and some of each size are kept: aligned memory costs
/// the global allocator more than a small op does.
const SMALLEST: usize = 64;
const NUM_SMALL: usize = (LARGE / SMALLEST).ilog2() as usize;
const MOST_SMALL: usize = 64;

/// Blocks of memory that tensors gave back. Of large ones it never holds more than was in use at one time.
#[derive(Default)]
pub(crate) struct MemoryPool {
    kept: Mutex<Kept>,
    live: AtomicUsize,
    peak: AtomicUsize,
}

#[derive(Default)]
struct Kept {
    /// Small blocks, by the power of two that their size is.
    small: [Vec<Memory>; NUM_SMALL],
    by_size: HashMap<usize, Vec<Memory>>,
    /// How many bytes the large ones have.
    bytes: usize,
}

/// Which list of small blocks one of this size is in, and the size of those; none for a large one.
fn small_list(bytes: usize) -> Option<(usize, usize)> {
    let size = bytes.max(SMALLEST).next_power_of_two();
    (size < LARGE).then(|| ((size / SMALLEST).ilog2() as usize, size))
}

/// How much memory the tensors of a session take, in bytes: of small tensors what their blocks have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// What is in use now.
    pub live: usize,
    /// The most that was in use at one time.
    pub peak: usize,
}

impl MemoryPool {
    /// A block of `bytes` uninitialised bytes.
    pub(crate) fn take(&self, bytes: usize) -> Result<Memory> {
        let small = small_list(bytes);
        let bytes = small.map_or(bytes, |(_, size)| size);
        let live = self.live.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let peak = self.peak.load(Ordering::Relaxed).max(live);
        let found = match small {
            Some((list, _)) => self.kept.lock().small[list].pop(),
            None => self.find(bytes, peak.saturating_sub(live)),
        };
        let memory = found.map_or_else(|| Memory::new(bytes), Ok).inspect_err(|_| {
            self.live.fetch_sub(bytes, Ordering::Relaxed);
        })?;
        self.peak.fetch_max(live, Ordering::Relaxed);
        Ok(memory)
    }

    /// A kept block of this size; where there is none, others are freed until `room` bytes are left.
    fn find(&self, bytes: usize, room: usize) -> Option<Memory> {
        let mut kept = self.kept.lock();
        let found = kept.by_size.get_mut(&bytes).and_then(Vec::pop);
        match &found {
            Some(memory) => kept.bytes -= memory.size(),
            None => kept.shrink(room),
        }
        found
    }

    /// Takes a block back.
    pub(crate) fn give_back(&self, memory: Memory) {
        self.live.fetch_sub(memory.size(), Ordering::Relaxed);
        let mut kept = self.kept.lock();
        if let Some((list, _)) = small_list(memory.size()) {
            if kept.small[list].len() < MOST_SMALL {
                kept.small[list].push(memory);
            } else {
                drop(kept);
                memory.free();
            }
            return;
        }
        kept.bytes += memory.size();
        kept.by_size.entry(memory.size()).or_default().push(memory);
    }

    /// How much is in use, and was.
    pub(crate) fn memory_use(&self) -> MemoryUse {
        MemoryUse { live: self.live.load(Ordering::Relaxed), peak: self.peak.load(Ordering::Relaxed) }
    }

    /// Forgets how much was in use before.
    pub(crate) fn reset_peak(&self) {
        self.peak.store(self.live.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Kept {
    /// Frees blocks until they take at most `room` bytes.
    fn shrink(&mut self, room: usize) {
        while self.bytes > room {
            let Some(&size) = self.by_size.keys().next() else { return };
            for memory in self.by_size.remove(&size).unwrap_or_default() {
                self.bytes -= memory.size();
                memory.free();
            }
        }
    }
}

impl Drop for MemoryPool {
    fn drop(&mut self) {
        let mut kept = self.kept.lock();
        kept.shrink(0);
        kept.small.iter_mut().flat_map(|list| list.drain(..)).for_each(Memory::free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_used_again_and_no_more_is_kept_than_was_in_use() {
        let pool = MemoryPool::default();
        let (large, small) = (1 << 20, 100);
        let first = pool.take(large).unwrap();
        let second = pool.take(small).unwrap();
        pool.give_back(first);
        pool.give_back(second);
        assert_eq!(pool.memory_use(), MemoryUse { live: 0, peak: large + 128 });
        assert_eq!(pool.kept.lock().bytes, large);
        let again = pool.take(large).unwrap();
        assert_eq!(pool.kept.lock().bytes, 0);
        pool.give_back(again);
        // Of another size: what is kept makes room for it.
        let other = pool.take(large - 4096).unwrap();
        assert_eq!(pool.kept.lock().bytes, 0);
        pool.give_back(other);
        pool.reset_peak();
        assert_eq!(pool.memory_use().peak, 0);
    }
}
