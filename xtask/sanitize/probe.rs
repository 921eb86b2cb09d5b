//! A program for `cargo xtask sanitize`: parts with a fault, which a sanitizer has to find, and parts without one.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock, RwLock, mpsc};
use std::thread;

static mut SHARED: u64 = 0;

/// Changes what all threads share.
fn touch() {
    // SAFETY: none; the sanitizer is to say whether somebody else does so at the same time.
    unsafe { SHARED += 1 };
}

fn on_threads(body: impl Fn(usize) + Send + Sync + 'static) {
    let body = Arc::new(body);
    let start = |at| {
        let body = body.clone();
        thread::spawn(move || body(at))
    };
    let threads: Vec<_> = (0..4).map(start).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("use_after_free") => {
            let numbers = vec![1u8; 8];
            let first = numbers.as_ptr();
            drop(numbers);
            // SAFETY: none; it is the fault.
            println!("{}", unsafe { *first });
        }
        Some("race") => on_threads(|_| touch()),
        Some("mutex") => {
            let mutex = Mutex::new(());
            on_threads(move |_| (0..20_000).for_each(|_| black_box(mutex.lock().map(|_guard| touch())).unwrap()));
        }
        Some("rwlock") => {
            let lock = RwLock::new(vec![0u64; 9]);
            on_threads(move |at| {
                for _ in 0..20_000 {
                    match at {
                        0 => lock.write().unwrap().iter_mut().for_each(|one| *one += 1),
                        _ => drop(black_box(lock.read().unwrap().iter().sum::<u64>())),
                    }
                }
            });
        }
        Some("once") => {
            static CELL: OnceLock<Vec<u8>> = OnceLock::new();
            on_threads(|_| drop(black_box(CELL.get_or_init(|| vec![1; 100]).clone())));
        }
        Some("scope") => {
            let mut all = [0u64; 4];
            thread::scope(|scope| {
                for one in &mut all {
                    scope.spawn(move || *one = 1);
                }
            });
            assert_eq!(all, [1; 4]);
        }
        Some("mpsc") => {
            let (sender, receiver) = mpsc::channel();
            let thread = thread::spawn(move || (0..20_000u64).for_each(|at| sender.send(vec![at]).unwrap()));
            assert_eq!(receiver.into_iter().map(|one| one[0]).sum::<u64>(), 199_990_000);
            thread.join().unwrap();
        }
        Some("arc") => {
            for _ in 0..100 {
                let shared = Arc::new(vec![AtomicU64::new(1)]);
                on_threads(move |_| drop(black_box(shared.clone()[0].fetch_add(1, Ordering::Relaxed))));
            }
        }
        Some("condvar") => {
            let (mutex, changed) = (Mutex::new(0), Condvar::new());
            on_threads(move |at| {
                for _ in 0..500 {
                    let mut turn = changed.wait_while(mutex.lock().unwrap(), |turn| *turn % 4 != at).unwrap();
                    touch();
                    *turn += 1;
                    changed.notify_all();
                }
            });
        }
        Some("barrier") => {
            let barrier = Barrier::new(4);
            on_threads(move |at| {
                for turn in 0..100 {
                    if turn % 4 == at {
                        touch();
                    }
                    barrier.wait();
                }
            });
        }
        _ => {}
    }
}
