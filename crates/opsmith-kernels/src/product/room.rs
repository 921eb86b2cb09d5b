//! Memory that the kernels of products take themselves, for copies of factors. They end the process where there is none, so it is
//! made sure beforehand that there is some.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use gemm_common::cache::CACHE_INFO;
use gemm_common::gemm::L2_SLAB;
use gemm_f32::microkernel as single;
use gemm_f64::microkernel as double;
use opsmith_core::{Result, fork, memory};

/// The bytes that products which run have been promised, and above them in which process: a forked child has none of its parent's
/// other threads. So many were there when the last of them began: other products on other threads do not take them away.
static PROMISED: AtomicU64 = AtomicU64::new(0);

/// Where the process stands in [`PROMISED`].
const PROCESS: u32 = 48;

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
    pub(super) fn new(sizes: (usize, usize, usize), size: usize) -> Result<Room> {
        // A buffer as large as the second cache, which each thread keeps.
        let buffer = if HAS_BUFFER.get() { 0 } else { CACHE_INFO[1].cache_bytes };
        let bytes = copies(sizes, size) + buffer;
        if bytes < SMALL {
            return Ok(Room(0));
        }
        let room = Room(bytes);
        let all = promise(bytes);
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
        if self.0 > 0 {
            change_promised(|promised| promised.saturating_sub(self.0 as u64));
        }
    }
}

/// Promises so many bytes more, and gives all that are promised in this process.
fn promise(bytes: usize) -> usize {
    change_promised(|promised| promised + bytes as u64) as usize
}

fn change_promised(change: impl Fn(u64) -> u64) -> u64 {
    let process = fork::generation() << PROCESS;
    let bytes =
        |promised: u64| if promised >> PROCESS == process >> PROCESS { promised - process } else { 0 };
    let changed = |promised| Some(process | change(bytes(promised)));
    // It always succeeds.
    let before = PROMISED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    change(bytes(before.unwrap_or_else(|promised| promised)))
}

/// At most how many bytes are copied at a time. The kernels cut matrices by the caches: a part of the left factor is at most
/// sixteen tiles high, one of the right factor fits the third cache, where there is one, and how deep both are is a matter of the
/// first.
fn copies((rows, inner, columns): (usize, usize, usize), size: usize) -> usize {
    let (high, wide) = tile(size);
    let first = CACHE_INFO[0].cache_bytes.max(32 << 10);
    let depth = inner.min((2 * first / (high * size)).max(512));
    let left = rows.next_multiple_of(high).min((2 * 8 * high).max(64 + high));
    // Without a third cache, it is cut after 128 tiles.
    let most = CACHE_INFO[2].cache_bytes.max(depth * 128 * wide * size);
    depth * left * size + (depth * size).saturating_mul(columns.next_multiple_of(wide)).min(most)
}

/// The rows and columns of the register tile of the kernels for numbers of this size, on this processor.
fn tile(size: usize) -> (usize, usize) {
    macro_rules! tile {
        ($level:ident, $vector:expr) => {
            match size {
                4 => ($vector / 4 * single::$level::f32::MR_DIV_N, single::$level::f32::NR),
                _ => ($vector / 8 * double::$level::f64::MR_DIV_N, double::$level::f64::NR),
            }
        };
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        return tile!(avx512f, 64);
    } else if is_x86_feature_detected!("fma") {
        return tile!(fma, 32);
    }
    #[cfg(target_arch = "aarch64")]
    return tile!(neon, 16);
    #[cfg(not(target_arch = "aarch64"))]
    tile!(scalar, size)
}

#[cfg(test)]
mod tests {
    use std::alloc::{GlobalAlloc, Layout, System};

    use super::*;

    /// Counts what each thread has allocated, and the most that it had.
    struct Counting;

    thread_local! {
        static LIVE: Cell<isize> = const { Cell::new(0) };
        static MOST: Cell<isize> = const { Cell::new(0) };
    }

    fn count(bytes: isize) {
        LIVE.set(LIVE.get() + bytes);
        MOST.set(MOST.get().max(LIVE.get()));
    }

    // SAFETY: it is the system's allocator, which is only watched.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            count(layout.size() as isize);
            // SAFETY: promised by the caller.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
            count(-(layout.size() as isize));
            // SAFETY: promised by the caller.
            unsafe { System.dealloc(data, layout) }
        }
    }

    #[global_allocator]
    static COUNTING: Counting = Counting;

    /// The most bytes that a product of zeros takes.
    macro_rules! taken {
        ($float:ty, $gemm:path, $sizes:expr, $by_rows:expr) => {{
            let (rows, inner, columns): (usize, usize, usize) = $sizes;
            let numbers = |count| vec![<$float>::default(); count];
            let (a, b, mut c) = (numbers(rows * inner), numbers(inner * columns), numbers(rows * columns));
            // Of each factor, the strides of the columns and the rows.
            let strides = |rows: usize, columns: usize| match $by_rows {
                true => (1, columns as isize),
                false => (rows as isize, 1),
            };
            let ((csa, rsa), (csb, rsb)) = (strides(rows, inner), strides(inner, columns));
            let before = LIVE.get();
            MOST.set(before);
            // SAFETY: the pointers and strides are those of three matrices of these sizes.
            unsafe {
                $gemm()(
                    rows,
                    columns,
                    inner,
                    c.as_mut_ptr(),
                    rows as isize,
                    1,
                    false,
                    a.as_ptr(),
                    csa,
                    rsa,
                    b.as_ptr(),
                    csb,
                    rsb,
                    0.0,
                    1.0,
                    false,
                    false,
                    false,
                    gemm_common::Parallelism::None,
                );
            }
            (MOST.get() - before) as usize
        }};
    }

    #[test]
    fn a_product_takes_no_more_than_it_is_promised() {
        L2_SLAB.with(|_| ());
        let small = [(17, 64, 17), (64, 600, 64), (3, 600, 130)];
        let large =
            [(65, 1500, 70), (130, 600, 65), (1000, 64, 17), (17, 64, 1000), (300, 64, 300), (1, 600, 1000)];
        for sizes in small.into_iter().chain(large) {
            for by_rows in [true, false] {
                let single = taken!(f32, gemm_f32::gemm::f32::get_gemm_fn, sizes, by_rows);
                let double = taken!(f64, gemm_f64::gemm::f64::get_gemm_fn, sizes, by_rows);
                // Beside the copies, a few bytes for how far they are.
                for (taken, size) in [(single, 4), (double, 8)] {
                    let promised = copies(sizes, size) + SMALL / 16;
                    assert!(taken <= promised, "{sizes:?} of {size} bytes: {taken} > {promised}");
                }
            }
        }
        let sizes = (300, 512, 100);
        let taken = taken!(f32, gemm_f32::gemm::f32::get_gemm_fn, sizes, true);
        assert!(copies(sizes, 4) < 4 * taken, "{taken} are taken");
    }

    #[test]
    fn small_products_are_promised_nothing_and_a_child_has_no_promises_of_its_parents() {
        L2_SLAB.with(|_| HAS_BUFFER.set(true));
        assert_eq!(Room::new((32, 32, 32), 8).unwrap().0, 0);
        let room = Room::new((700, 700, 700), 8).unwrap();
        assert!(promise(0) >= room.0 && room.0 >= SMALL);
        let mut status = 0;
        // SAFETY: the child ends without a return from here, and allocates nothing.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit((promise(0) != 0 || promise(5) != 5) as i32);
            }
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
        }
        assert_eq!(status, 0);
    }
}
