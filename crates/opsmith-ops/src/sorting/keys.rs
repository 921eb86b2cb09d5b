//! Keys of numbers, by which they are sorted.

use opsmith::dtype::{bf16, f16};
use opsmith::memory;
use opsmith::prelude::*;

/// A number as an integer of the same order: so numbers of all dtypes are sorted by two functions.
pub(super) trait Ordered: Element {
    /// Whether the integer has at most 32 bits.
    const IS_SHORT: bool = size_of::<Self>() <= 4;

    /// The integer; that of NaN is the largest.
    fn key(self) -> u64;
}

macro_rules! ordered {
    ($($ty:ty: |$x:ident| $key:expr;)*) => {$(
        impl Ordered for $ty {
            #[inline(always)]
            fn key(self) -> u64 {
                let $x = self;
                $key
            }
        }
    )*};
}

/// The sign bit turns what is signed into what is not.
#[inline(always)]
fn short(x: i32) -> u64 {
    (x.cast_unsigned() ^ (1 << 31)).into()
}

#[inline(always)]
fn short_float(x: f32) -> u64 {
    // Adding 0 makes one of both zeros.
    let bits = (x + 0.0).to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    (if x.is_nan() { u32::MAX } else { ordered }).into()
}

fn float(x: f64) -> u64 {
    let bits = (x + 0.0).to_bits();
    let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    if x.is_nan() { u64::MAX } else { ordered }
}

ordered! {
    f16: |x| short_float(x.to_f32());
    bf16: |x| short_float(x.to_f32());
    f32: |x| short_float(x);
    f64: |x| float(x);
    i8: |x| short(x.into());
    i16: |x| short(x.into());
    i32: |x| short(x);
    i64: |x| x.cast_unsigned() ^ (1 << 63);
    u8: |x| x.into();
    u16: |x| x.into();
    u32: |x| x.into();
    u64: |x| x;
    bool: |x| x.into();
}

/// A key and the position of its number, in the order of keys, then of positions.
pub(super) trait Keyed: Ord + Copy + Send + Sync {
    fn new(key: u64, at: usize) -> Self;
    /// With the keys in the opposite order.
    fn turned(self) -> Self;
    fn at(self) -> usize;
}

impl Keyed for (u64, usize) {
    fn new(key: u64, at: usize) -> Self {
        (key, at)
    }

    fn turned(self) -> Self {
        (!self.0, self.1)
    }

    fn at(self) -> usize {
        self.1
    }
}

/// Both in one integer, which is compared and moved at once: short keys of rows whose positions have 32 bits.
impl Keyed for u64 {
    fn new(key: u64, at: usize) -> Self {
        key << 32 | at as u64
    }

    fn turned(self) -> Self {
        self ^ (u64::from(u32::MAX) << 32)
    }

    fn at(self) -> usize {
        (self & u64::from(u32::MAX)) as usize
    }
}

/// Those of a row of so many numbers.
pub(super) fn keys<'a, T: Ordered, K: Keyed>(
    numbers: impl IntoIterator<Item = &'a T>,
    length: usize,
    keys: &mut Vec<K>,
) -> Result<()> {
    keys.clear();
    memory::reserve(keys, length, "the keys of a row that is sorted")?;
    keys.extend(numbers.into_iter().zip(0..).map(|(number, at)| K::new(number.key(), at)));
    Ok(())
}
