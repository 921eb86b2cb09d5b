//! Elements as the pool compares them.

use std::cmp::Ordering;

use opsmith::dtype::{bf16, f16};
use opsmith::prelude::*;

/// A dtype that has medians.
pub(crate) trait Pooled: RealNumber + Element {
    /// What an element is compared as: numbers of as many bits that an instruction compares.
    type Key: Copy + Send + Sync;
    /// No key is smaller.
    const LEAST: Self::Key;
    /// No key is larger.
    const GREATEST: Self::Key;

    /// The element's key, if it is not NaN; for NaN any.
    fn key(self) -> Self::Key;
    /// The element of a key.
    fn of_key(key: Self::Key) -> Self;
    /// Whether it is no number.
    fn is_nan(self) -> bool;
    /// Whether it is equal to another, or both are NaN.
    fn same(self, other: Self) -> bool;
    /// The smaller of two keys.
    fn lower(a: Self::Key, b: Self::Key) -> Self::Key;
    /// The larger of two keys, the other one of those that `lower` gives.
    fn upper(a: Self::Key, b: Self::Key) -> Self::Key;
    /// Brings elements to keys, and those that are NaN to `nans`; all slices are of one length.
    #[inline(always)]
    fn take(elements: &[Self], keys: &mut [Self::Key], nans: &mut [Self]) {
        for ((key, nan), &element) in keys.iter_mut().zip(nans).zip(elements) {
            *key = element.key();
            *nan = if element.is_nan() { element } else { *nan };
        }
    }
    /// The order of two keys that are not of NaN.
    fn order(a: &Self::Key, b: &Self::Key) -> Ordering;
}

/// A dtype of which there are gradients.
pub(crate) trait Differentiable: Pooled {
    /// What gradients are added up in.
    type Sum: Copy + Default + Send + Sync + std::ops::AddAssign;
    /// The number, to be added.
    fn widened(self) -> Self::Sum;
    /// The sum, rounded.
    fn narrowed(sum: Self::Sum) -> Self;
}

macro_rules! comparisons {
    () => {
        // Selections and not `min`, whose treatment of NaN costs instructions.
        #[inline(always)]
        fn lower(a: Self::Key, b: Self::Key) -> Self::Key {
            if a < b { a } else { b }
        }
        #[inline(always)]
        fn upper(a: Self::Key, b: Self::Key) -> Self::Key {
            if a < b { b } else { a }
        }
        fn order(a: &Self::Key, b: &Self::Key) -> Ordering {
            a.partial_cmp(b).unwrap_or(Ordering::Equal)
        }
    };
}

macro_rules! floats {
    ($($float:ident)*) => {$(
        impl Pooled for $float {
            type Key = $float;
            const LEAST: $float = $float::NEG_INFINITY;
            const GREATEST: $float = $float::INFINITY;

            #[inline(always)]
            fn key(self) -> $float {
                self
            }
            #[inline(always)]
            fn of_key(key: $float) -> $float {
                key
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self != self
            }
            #[inline(always)]
            fn same(self, other: $float) -> bool {
                (self == other) | ((self != self) & (other != other))
            }
            comparisons!();
        }

        impl Differentiable for $float {
            type Sum = $float;
            #[inline(always)]
            fn widened(self) -> $float {
                self
            }
            #[inline(always)]
            fn narrowed(sum: $float) -> $float {
                sum
            }
        }
    )*};
}

floats! { f32 f64 }

macro_rules! halves {
    ($($half:ident)*) => {$(
        impl Pooled for $half {
            /// The bits, so turned that they are in the order of the numbers.
            type Key = i16;
            const LEAST: i16 = i16::MIN;
            const GREATEST: i16 = i16::MAX;

            #[inline(always)]
            fn key(self) -> i16 {
                turned(self.to_bits() as i16)
            }
            #[inline(always)]
            fn of_key(key: i16) -> $half {
                $half::from_bits(turned(key) as u16)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self.to_bits() & 0x7FFF > $half::INFINITY.to_bits()
            }
            #[inline(always)]
            fn same(self, other: $half) -> bool {
                let (a, b) = (self.to_bits(), other.to_bits());
                let numbers = !Pooled::is_nan(self) & ((a == b) | ((a | b) & 0x7FFF == 0));
                numbers | (Pooled::is_nan(self) & Pooled::is_nan(other))
            }
            comparisons!();
        }

        impl Differentiable for $half {
            type Sum = f32;
            fn widened(self) -> f32 {
                self.to_f32()
            }
            fn narrowed(sum: f32) -> $half {
                $half::from_f32(sum)
            }
        }
    )*};
}

halves! { f16 bf16 }

/// Inverts all bits but the sign of what is negative; its own inverse.
#[inline(always)]
fn turned(bits: i16) -> i16 {
    bits ^ (bits >> 15 & 0x7FFF)
}

macro_rules! integers {
    ($($integer:ident)*) => {$(
        impl Pooled for $integer {
            type Key = $integer;
            const LEAST: $integer = $integer::MIN;
            const GREATEST: $integer = $integer::MAX;

            #[inline(always)]
            fn key(self) -> $integer {
                self
            }
            #[inline(always)]
            fn of_key(key: $integer) -> $integer {
                key
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
            #[inline(always)]
            fn same(self, other: $integer) -> bool {
                self == other
            }
            #[inline(always)]
            fn take(elements: &[$integer], keys: &mut [$integer], _nans: &mut [$integer]) {
                keys.copy_from_slice(elements);
            }
            comparisons!();
        }
    )*};
}

integers! { i8 i16 i32 i64 u8 u16 u32 u64 }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_halves_are_in_their_order() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).filter(|x| !Pooled::is_nan(*x)).collect();
        for pair in all
            .windows(2)
            .chain([[f16::NEG_INFINITY, f16::MIN].as_slice(), &[f16::from_f32(-1e-7), f16::ZERO]])
        {
            let (a, b) = (pair[0], pair[1]);
            assert_eq!(a.key() < b.key(), a < b || (a == b && a.is_sign_negative() && b.is_sign_positive()));
            assert_eq!(f16::of_key(a.key()).to_bits(), a.to_bits());
        }
        assert!(Pooled::is_nan(bf16::NAN) && !Pooled::is_nan(bf16::NEG_INFINITY));
        assert!(
            f16::NAN.same(f16::from_bits(0xFE01))
                && f16::ZERO.same(f16::NEG_ZERO)
                && !f16::NAN.same(f16::ONE)
        );
    }
}
