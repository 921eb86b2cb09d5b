//! Conversions to the floats of 16 bits that round once.

use half::{bf16, f16};

/// Numbers that become floats of 16 bits.
///
/// The result is the nearest float, of two equally near the one whose last bit is 0. `f16::from_f64` and `bf16::from_f64` of the
/// crate `half` may give the other neighbour, since they round, or cut off, to another format on the way.
pub trait ToHalf: Copy {
    /// A `float32` that rounds to the same 16 bits as the number itself does.
    ///
    /// It is the number where that is a `float32`, else the neighbour whose last bit is 1 ("rounding to odd"): so it lies on the
    /// same side of each tie. Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding
    /// to odd", 2008.
    fn to_odd_f32(self) -> f32;

    /// The nearest `float16`.
    #[inline(always)]
    fn to_f16(self) -> f16 {
        f16::from_f32(self.to_odd_f32())
    }

    /// The nearest `bfloat16`.
    #[inline(always)]
    fn to_bf16(self) -> bf16 {
        bf16::from_f32(self.to_odd_f32())
    }
}

impl ToHalf for f64 {
    #[inline(always)]
    fn to_odd_f32(self) -> f32 {
        let nearest = self as f32;
        let back = f64::from(nearest);
        if back == self || self.is_nan() {
            return nearest;
        }
        let towards_zero = nearest.to_bits() - u32::from(back.abs() > self.abs());
        f32::from_bits(towards_zero | 1)
    }
}

impl ToHalf for u64 {
    #[inline(always)]
    fn to_odd_f32(self) -> f32 {
        // The 53 bits that a float64 holds, at most; the last one tells of what is cut off behind it.
        const CUT: u64 = (1 << 11) - 1;
        let odd = if self >> 53 == 0 { self } else { self & !CUT | u64::from(self & CUT != 0) << 11 };
        (odd as f64).to_odd_f32()
    }
}

impl ToHalf for i64 {
    #[inline(always)]
    fn to_odd_f32(self) -> f32 {
        self.unsigned_abs().to_odd_f32().copysign(self as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between each two neighbours: their middle goes to the even one, and what is next to it to the nearer one.
    fn check_ties(bits: std::ops::Range<u16>, value: fn(u16) -> f64, convert: fn(f64) -> u16) {
        for lower in bits {
            // The middle of the largest number and what would follow is where infinity begins.
            let step = value(lower) - value(lower.saturating_sub(1));
            let upper = if value(lower + 1).is_finite() { value(lower + 1) } else { value(lower) + step };
            let middle = (value(lower) + upper) / 2.0;
            let even = lower + lower % 2;
            for (number, expected) in
                [(middle, even), (middle.next_down(), lower), (middle.next_up(), lower + 1)]
            {
                assert_eq!(convert(number), expected, "{number:e}");
                assert_eq!(convert(-number), expected | 0x8000, "{:e}", -number);
            }
        }
    }

    #[test]
    fn floats_are_rounded_once() {
        check_ties(0..0x7C00, |bits| f16::from_bits(bits).to_f64(), |x| x.to_f16().to_bits());
        check_ties(0..0x7F80, |bits| bf16::from_bits(bits).to_f64(), |x| x.to_bf16().to_bits());
        assert!(f64::NAN.to_f16().is_nan() && f64::NAN.to_bf16().is_nan());
        assert_eq!(f64::MAX.to_bf16(), bf16::INFINITY);
        assert_eq!((-f64::MIN_POSITIVE).to_f16().to_bits(), 0x8000);
    }

    #[test]
    fn integers_are_rounded_once() {
        for shift in 9..56 {
            // Between 128 and 129 times a power of two, each a bfloat16 whose last bit is that of the factor.
            for factor in [128u64, 129] {
                let (lower, middle) = (factor << shift, (2 * factor + 1) << (shift - 1));
                let nearest = |number: u64| {
                    let signed = -i64::try_from(number).unwrap();
                    assert_eq!(signed.to_bf16(), -number.to_bf16());
                    number.to_bf16().to_f64() as u64
                };
                assert_eq!(nearest(middle - 1), lower);
                assert_eq!(nearest(middle), (factor + factor % 2) << shift);
                assert_eq!(nearest(middle + 1), (factor + 1) << shift);
            }
        }
        assert_eq!(u64::MAX.to_bf16().to_f64(), 2f64.powi(64));
        assert_eq!(i64::MIN.to_bf16().to_f64(), -2f64.powi(63));
        assert_eq!(0i64.to_f16().to_bits(), 0);
    }
}
