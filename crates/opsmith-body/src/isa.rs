//! Instruction sets: what a kernel is compiled for, and the choice between them at run time.

use std::sync::atomic::{AtomicU8, Ordering};

/// An instruction set as a type, which numbers carry so that each is compiled for in its own way.
///
/// A multiplication fused with an addition is worth a factor of two and more, but where the processor lacks it
/// `mul_add` is a call of a library function. The same holds for rounding.
pub trait Isa: Copy + Send + Sync + 'static {
    /// Whether `a * b + c` is one operation.
    const FUSED: bool;
    /// Whether rounding to an integer is one operation.
    const ROUND: bool;
}

/// What every processor of the architecture has: SSE2 on x86-64, NEON on AArch64.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

/// AVX2 with FMA, on x86-64.
#[derive(Clone, Copy, Debug)]
pub struct Avx2;

/// AVX-512 F, DQ, BW and VL, on x86-64.
#[derive(Clone, Copy, Debug)]
pub struct Avx512;

impl Isa for Plain {
    const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));
    const ROUND: bool = cfg!(any(target_arch = "aarch64", target_feature = "sse4.1"));
}

impl Isa for Avx2 {
    const FUSED: bool = true;
    const ROUND: bool = true;
}

impl Isa for Avx512 {
    const FUSED: bool = true;
    const ROUND: bool = true;
}

/// The instruction sets that kernels are compiled for, from the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// [`Plain`].
    Plain,
    /// [`Avx2`].
    Avx2,
    /// [`Avx512`].
    Avx512,
}

impl Level {
    /// The best level of this processor.
    ///
    /// The environment variable `OPSMITH_ISA` (`plain`, `avx2`, `avx512`), read once, lowers it.
    pub fn best() -> Self {
        /// Its position and one more; 0 before it is known. All threads find the same, so none waits for another, which a
        /// forked child would do for ever.
        static BEST: AtomicU8 = AtomicU8::new(0);
        match BEST.load(Ordering::Relaxed) {
            0 => {
                let level = Self::of_processor().min(Self::limit());
                BEST.store(level as u8 + 1, Ordering::Relaxed);
                level
            }
            1 => Self::Plain,
            2 => Self::Avx2,
            _ => Self::Avx512,
        }
    }

    fn limit() -> Self {
        match std::env::var("OPSMITH_ISA").as_deref() {
            Ok("plain") => Self::Plain,
            Ok("avx2") => Self::Avx2,
            _ => Self::Avx512,
        }
    }

    /// The levels that this processor has and `OPSMITH_ISA` allows, from the least.
    pub fn available() -> impl Iterator<Item = Self> {
        [Self::Plain, Self::Avx2, Self::Avx512].into_iter().filter(|&level| level <= Self::best())
    }

    #[cfg(target_arch = "x86_64")]
    fn of_processor() -> Self {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl");
        match (avx2, avx512) {
            (true, true) => Self::Avx512,
            (true, false) => Self::Avx2,
            _ => Self::Plain,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn of_processor() -> Self {
        Self::Plain
    }
}

/// Code that is compiled for each instruction set.
///
/// Mark `run`, and what it calls, `#[inline(always)]`: only what is inlined into the function that enables the
/// instruction set is compiled for it.
pub trait Kernel {
    /// What `run` gives.
    type Output;
    /// The work, on numbers of the instruction set `I`.
    fn run<I: Isa>(self) -> Self::Output;
}

/// Runs a kernel on the best level of this processor.
#[inline]
pub fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    dispatch_at(Level::best(), kernel)
}

/// Runs a kernel on a level, or on the best one where the processor has less.
///
/// The features `only-avx2` and `only-avx512` leave out all levels but one, for libraries that run where they are built:
/// then any other is a panic.
#[inline]
pub fn dispatch_at<K: Kernel>(level: Level, kernel: K) -> K::Output {
    match level.min(Level::best()) {
        #[cfg(not(any(feature = "only-avx2", feature = "only-avx512")))]
        Level::Plain => kernel.run::<Plain>(),
        // SAFETY: the level is at most the processor's best.
        #[cfg(all(target_arch = "x86_64", not(feature = "only-avx512")))]
        Level::Avx2 => unsafe { run_avx2(kernel) },
        // SAFETY: as above.
        #[cfg(all(target_arch = "x86_64", not(feature = "only-avx2")))]
        Level::Avx512 => unsafe { run_avx512(kernel) },
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx2 | Level::Avx512 => unreachable!("no processor of this architecture has the level"),
        #[cfg(all(target_arch = "x86_64", any(feature = "only-avx2", feature = "only-avx512")))]
        other => left_out(other),
    }
}

#[cfg(all(target_arch = "x86_64", any(feature = "only-avx2", feature = "only-avx512")))]
#[cold]
fn left_out(level: Level) -> ! {
    panic!(
        "the library was built for one kind of processor, and has no kernel for {level:?}, which this one takes"
    );
}

#[cfg(all(target_arch = "x86_64", not(feature = "only-avx512")))]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx2>()
}

#[cfg(all(target_arch = "x86_64", not(feature = "only-avx2")))]
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx512>()
}
