//! Vectors of floats, and the choice between instruction sets at run time.
//!
//! A kernel is written once, as an `#[inline(always)]` body over a [`Vector`]. The macro
//! [`multiversioned!`] compiles it for each instruction set and picks one per call, so a distributed
//! binary needs no `-C target-cpu`. Every operation rounds alike on every instruction set.

use std::ops::{Add, Mul, Sub};

/// A float type the kernels are compiled for: `f32` or `f64`.
pub(crate) trait Kernel:
    Copy + Send + Sync + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + 'static
{
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// How much larger than a distance the sum of the magnitudes behind it may be (see `forward`).
    const CONDITION: Self;
    /// Absolute value.
    fn magnitude(self) -> Self;
    /// The larger of two numbers; either one where one is NaN.
    fn larger(self, other: Self) -> Self;
    /// −1, 0 or 1; NaN for NaN, as NumPy has it.
    fn sign(self) -> Self;
    /// The vector of the baseline instruction set (SSE2, NEON, …).
    type Plain: Vector<Elem = Self>;
    /// The vector of AVX2 with FMA.
    #[cfg(target_arch = "x86_64")]
    type Avx2: Vector<Elem = Self>;
    /// The vector of AVX-512.
    #[cfg(target_arch = "x86_64")]
    type Avx512: Vector<Elem = Self>;
}

/// The most lanes any [`Vector`] has.
pub(crate) const MAX_LANES: usize = 16;

/// A register full of floats.
///
/// # Safety
/// Every method may only be called where the processor has the instruction set of the type, and
/// pointers must be valid for the lanes read or written. No alignment is required.
pub(crate) unsafe trait Vector: Copy {
    /// The type of one lane.
    type Elem: Kernel;
    /// The number of lanes, at most [`MAX_LANES`].
    const LANES: usize;
    /// All lanes equal.
    unsafe fn splat(value: Self::Elem) -> Self;
    /// `LANES` values from memory.
    unsafe fn load(from: *const Self::Elem) -> Self;
    /// `LANES` values to memory.
    unsafe fn store(self, to: *mut Self::Elem);
    /// `self + other`.
    unsafe fn add(self, other: Self) -> Self;
    /// `self - other`.
    unsafe fn sub(self, other: Self) -> Self;
    /// `self + a * b`; `a` holds signs, so that fusing the two operations changes nothing.
    unsafe fn add_signed(self, a: Self, b: Self) -> Self;
    /// `self - a * b`, likewise.
    unsafe fn sub_signed(self, a: Self, b: Self) -> Self;
    /// `self + term` with `one` being 1. Where there is a fused operation the multipliers do it: on some processors
    /// (AMD's from Zen on) they are others than the adders, which take maxima and differences too.
    unsafe fn add_by_multiplier(self, one: Self, term: Self) -> Self;
    /// The larger per lane; either one where one is NaN.
    unsafe fn max(self, other: Self) -> Self;
    /// Absolute value.
    unsafe fn abs(self) -> Self;
    /// −1, 0 or 1; NaN for NaN.
    unsafe fn sign(self) -> Self;
    /// Whether `self * CONDITION >= other` in every lane; false where a lane is NaN.
    unsafe fn outweighs(self, other: Self) -> bool;

    /// `len <= LANES` values from memory, then zeros.
    #[inline(always)]
    unsafe fn load_partial(from: *const Self::Elem, len: usize) -> Self {
        let mut lanes = [Self::Elem::ZERO; MAX_LANES];
        // SAFETY: the caller vouches for `len` values and the instruction set; `lanes` holds any vector.
        unsafe {
            if len == Self::LANES {
                return Self::load(from);
            }
            std::ptr::copy_nonoverlapping(from, lanes.as_mut_ptr(), len);
            Self::load(lanes.as_ptr())
        }
    }

    /// The first `len <= LANES` values to memory.
    #[inline(always)]
    unsafe fn store_partial(self, to: *mut Self::Elem, len: usize) {
        let mut lanes = [Self::Elem::ZERO; MAX_LANES];
        // SAFETY: as in `load_partial`.
        unsafe {
            if len == Self::LANES {
                return self.store(to);
            }
            self.store(lanes.as_mut_ptr());
            std::ptr::copy_nonoverlapping(lanes.as_ptr(), to, len);
        }
    }

    /// The sum of the lanes, halves first.
    #[inline(always)]
    unsafe fn sum(self) -> Self::Elem {
        let mut lanes = [Self::Elem::ZERO; MAX_LANES];
        // SAFETY: `lanes` holds any vector; the caller vouches for the instruction set.
        unsafe { self.store(lanes.as_mut_ptr()) };
        let mut half = Self::LANES / 2;
        while half > 0 {
            for lane in 0..half {
                lanes[lane] = lanes[lane] + lanes[lane + half];
            }
            half /= 2;
        }
        lanes[0]
    }
}

/// A vector in plain Rust, which the compiler maps to the registers of the baseline.
#[derive(Clone, Copy)]
pub(crate) struct Plain<T, const N: usize>([T; N]);

// SAFETY: needs no instruction set beyond the baseline.
unsafe impl<T: Kernel, const N: usize> Vector for Plain<T, N> {
    type Elem = T;
    const LANES: usize = N;
    #[inline(always)]
    unsafe fn splat(value: T) -> Self {
        Self([value; N])
    }
    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: the caller vouches for `N` values.
        Self(unsafe { from.cast::<[T; N]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: the caller vouches for room for `N` values.
        unsafe { to.cast::<[T; N]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|l| self.0[l] + other.0[l]))
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        Self(std::array::from_fn(|l| self.0[l] - other.0[l]))
    }
    #[inline(always)]
    unsafe fn add_signed(self, a: Self, b: Self) -> Self {
        Self(std::array::from_fn(|l| self.0[l] + a.0[l] * b.0[l]))
    }
    #[inline(always)]
    unsafe fn sub_signed(self, a: Self, b: Self) -> Self {
        Self(std::array::from_fn(|l| self.0[l] - a.0[l] * b.0[l]))
    }
    #[inline(always)]
    unsafe fn add_by_multiplier(self, _one: Self, term: Self) -> Self {
        // SAFETY: plain vectors need no instruction set.
        unsafe { self.add(term) }
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        Self(std::array::from_fn(|l| self.0[l].larger(other.0[l])))
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        Self(std::array::from_fn(|l| self.0[l].magnitude()))
    }
    #[inline(always)]
    unsafe fn sign(self) -> Self {
        Self(std::array::from_fn(|l| self.0[l].sign()))
    }
    #[inline(always)]
    unsafe fn outweighs(self, other: Self) -> bool {
        (0..N).fold(true, |all, l| all & (self.0[l] * T::CONDITION >= other.0[l]))
    }
}

macro_rules! kernel_float {
    ($float:ident, $plain:literal, $avx2:ident, $avx512:ident) => {
        impl Kernel for $float {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const CONDITION: Self = 8.0;
            #[inline(always)]
            fn magnitude(self) -> Self {
                self.abs()
            }
            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                if self > other { self } else { other }
            }
            #[inline(always)]
            fn sign(self) -> Self {
                if self > 0.0 {
                    1.0
                } else if self < 0.0 {
                    -1.0
                } else {
                    self
                }
            }
            type Plain = Plain<$float, $plain>;
            #[cfg(target_arch = "x86_64")]
            type Avx2 = std::arch::x86_64::$avx2;
            #[cfg(target_arch = "x86_64")]
            type Avx512 = std::arch::x86_64::$avx512;
        }
    };
}

kernel_float!(f32, 4, __m256, __m512);
kernel_float!(f64, 2, __m256d, __m512d);

/// The instruction sets that kernels are compiled for, from the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// What every processor of the architecture has.
    Plain,
    /// AVX2 with FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 foundation, AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// The best level of this processor. The standard library remembers what it asked the processor.
#[inline]
pub(crate) fn level() -> Level {
    #[cfg(target_arch = "x86_64")]
    let best = match is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        true if is_x86_feature_detected!("avx512f") => Level::Avx512,
        true => Level::Avx2,
        false => Level::Plain,
    };
    #[cfg(not(target_arch = "x86_64"))]
    let best = Level::Plain;
    #[cfg(test)]
    let best = tests::limited(best);
    best
}

/// Compiles a generic body for each instruction set and gives a function that picks one.
///
/// The body's constants are the register tile, rows and vectors: larger where there are 32 registers.
macro_rules! multiversioned {
    ($(#[$doc:meta])* unsafe fn $name:ident($($arg:ident: $ty:ty),* $(,)?) = $body:ident) => {
        $(#[$doc])*
        unsafe fn $name<T: Kernel>($($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx2,fma")]
            unsafe fn avx512<T: Kernel>($($arg: $ty),*) {
                // SAFETY: AVX-512 is enabled here; the rest is the caller's promise.
                unsafe { $body::<T::Avx512, 6, 4>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2<T: Kernel>($($arg: $ty),*) {
                // SAFETY: AVX2 and FMA are enabled here; the rest is the caller's promise.
                unsafe { $body::<T::Avx2, 4, 2>($($arg),*) }
            }
            // SAFETY: the processor has the level's instruction set; the rest is the caller's promise.
            unsafe {
                match crate::kernels::simd::level() {
                    crate::kernels::simd::Level::Plain => $body::<T::Plain, 4, 2>($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    crate::kernels::simd::Level::Avx2 => avx2::<T>($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    crate::kernels::simd::Level::Avx512 => avx512::<T>($($arg),*),
                }
            }
        }
    };
}
pub(crate) use multiversioned;

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static LIMIT: Cell<Option<Level>> = const { Cell::new(None) };
    }

    /// The lower of a level and the limit of this thread.
    pub(super) fn limited(best: Level) -> Level {
        LIMIT.get().map_or(best, |limit| limit.min(best))
    }

    /// Runs `test` once per level that this processor has; only calls on the same thread are limited.
    pub(crate) fn each_level(test: impl Fn(Level)) {
        let mut levels = vec![Level::Plain];
        #[cfg(target_arch = "x86_64")]
        levels.extend([Level::Avx2, Level::Avx512]);
        for limit in levels.into_iter().filter(|&l| l <= level()) {
            LIMIT.set(Some(limit));
            test(limit);
            LIMIT.set(None);
        }
    }

    /// Writes what a vector makes of −inf, −2, −0, 0, a denormal, 1, inf and NaN, lane by lane.
    unsafe fn signs<T: Kernel>(values: &[T], out: &mut [T]) {
        multiversioned! {
            /// # Safety
            /// Both slices are of one length.
            unsafe fn run(values: &[T], out: &mut [T]) = body
        }
        #[inline(always)]
        unsafe fn body<V: Vector, const MR: usize, const NV: usize>(values: &[V::Elem], out: &mut [V::Elem]) {
            for i in 0..values.len() {
                // SAFETY: reads and writes one element each.
                unsafe { V::load_partial(&values[i], 1).sign().store_partial(&mut out[i], 1) }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { run::<T>(values, out) }
    }

    #[test]
    fn sign_is_numpys_on_every_instruction_set() {
        each_level(|level| {
            let values = [f32::NEG_INFINITY, -2.0, -0.0, 0.0, 1e-45, 1.0, f32::INFINITY, f32::NAN];
            let mut out = [9.0; 8];
            // SAFETY: the slices are of one length.
            unsafe { signs(&values, &mut out) };
            assert_eq!(out[..7], [-1.0, -1.0, 0.0, 0.0, 1.0, 1.0, 1.0], "{level:?}");
            assert!(out[7].is_nan(), "{level:?}");
            let mut out = [9.0; 3];
            // SAFETY: as above.
            unsafe { signs(&[-5e-324, 1.0, f64::NAN], &mut out) };
            assert_eq!(out[..2], [-1.0, 1.0], "{level:?}");
            assert!(out[2].is_nan(), "{level:?}");
        });
    }
}
