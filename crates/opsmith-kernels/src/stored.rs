//! Elements as they lie in memory, and as numbers in blocks.

use half::{bf16, f16};
use opsmith_body::code::Held;
use opsmith_body::{BLOCK, Block, Element as Float, Isa, Kernel, Level, Temporary, dispatch_at};
use opsmith_core::Element;

use crate::product::Native;

/// A float that bodies are computed with.
pub(crate) trait Wide: Float + Element + Temporary + Native {
    /// As a double.
    fn double(self) -> f64;
    /// The nearest to a double.
    fn of_double(double: f64) -> Self;
}

impl Wide for f32 {
    #[inline(always)]
    fn double(self) -> f64 {
        f64::from(self)
    }
    fn of_double(double: f64) -> Self {
        double as f32
    }
}

impl Wide for f64 {
    #[inline(always)]
    fn double(self) -> f64 {
        self
    }
    fn of_double(double: f64) -> Self {
        double
    }
}

/// A float of a tensor: `f32` and `f64` are computed with as they are, `f16` and `bf16` as `f32`.
pub(crate) trait Stored: Float + Element {
    /// What it is computed with.
    type Wide: Wide + Stored<Wide = Self::Wide>;
    /// How machine code reads it.
    const HELD: Held;
    /// The block of numbers, `from` itself where it is one.
    ///
    /// # Safety
    /// There must be [`BLOCK`] elements at `from`.
    unsafe fn widen(
        level: Level,
        from: *const Self,
        room: &mut Block<Self::Wide>,
    ) -> *const [Self::Wide; BLOCK];
    /// Puts a few elements, at most [`BLOCK`], at the beginning of a block.
    fn widen_few(level: Level, from: &[Self], to: &mut Block<Self::Wide>);
    /// Stores the first numbers of a block, as many as `to` has room for.
    fn narrow(level: Level, from: &[Self::Wide; BLOCK], to: &mut [Self]);
}

macro_rules! stored_as_it_is {
    ($($float:ty)*) => {$(
        impl Stored for $float {
            type Wide = Self;
            const HELD: Held = Held::Same;

            unsafe fn widen(_: Level, from: *const Self, _: &mut Block<Self>) -> *const [Self; BLOCK] {
                from.cast()
            }

            fn widen_few(_: Level, from: &[Self], to: &mut Block<Self>) {
                to.0[..from.len()].copy_from_slice(from);
            }

            fn narrow(_: Level, from: &[Self; BLOCK], to: &mut [Self]) {
                to.copy_from_slice(&from[..to.len()]);
            }
        }
    )*};
}

macro_rules! stored_as_half {
    ($($half:ty, $held:expr;)*) => {$(
        impl Stored for $half {
            type Wide = f32;
            const HELD: Held = $held;

            unsafe fn widen(level: Level, from: *const Self, room: &mut Block<f32>) -> *const [f32; BLOCK] {
                // SAFETY: promised by the caller.
                dispatch_at(level, Widen { from: unsafe { &*from.cast::<[Self; BLOCK]>() }, to: room });
                &room.0
            }

            fn widen_few(level: Level, from: &[Self], to: &mut Block<f32>) {
                let mut block = Block::<Self>::default();
                block.0[..from.len()].copy_from_slice(from);
                dispatch_at(level, Widen { from: &block.0, to });
            }

            fn narrow(level: Level, from: &[f32; BLOCK], to: &mut [Self]) {
                dispatch_at(level, Narrow { from, to });
            }
        }

        impl Kernel for Widen<'_, $half> {
            type Output = ();

            #[inline(always)]
            fn run<I: Isa>(self) {
                for (to, from) in self.to.0.iter_mut().zip(self.from) {
                    *to = from.load::<I>().get();
                }
            }
        }

        impl Kernel for Narrow<'_, $half> {
            type Output = ();

            #[inline(always)]
            fn run<I: Isa>(self) {
                for (to, from) in self.to.iter_mut().zip(self.from) {
                    *to = <$half>::store(from.load::<I>());
                }
            }
        }
    )*};
}

struct Widen<'a, T> {
    from: &'a [T; BLOCK],
    to: &'a mut Block<f32>,
}

struct Narrow<'a, T> {
    from: &'a [f32; BLOCK],
    to: &'a mut [T],
}

stored_as_it_is!(f32 f64);
stored_as_half! { f16, Held::Half; bf16, Held::BFloat; }
