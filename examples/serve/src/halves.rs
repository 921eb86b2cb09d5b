//! Numbers of 16 bits from text, rounded once: by way of 64 bits, text just beside the middle of two of them would become the middle.

use std::cmp::Ordering;
use std::num::ParseFloatError;

use half::{bf16, f16};

/// A float of 16 bits.
pub(crate) trait Half: Copy {
    /// The bits of the nearest, or of one beside it.
    fn near(value: f64) -> u16;
    fn of_bits(bits: u16) -> Self;
    fn value(self) -> f64;
}

macro_rules! halves {
    ($($ty:ident)*) => {
        $(impl Half for $ty {
            fn near(value: f64) -> u16 {
                $ty::from_f64(value).to_bits()
            }

            fn of_bits(bits: u16) -> Self {
                $ty::from_bits(bits)
            }

            fn value(self) -> f64 {
                self.to_f64()
            }
        })*
    };
}

halves! { f16 bf16 }

const SIGN: u16 = 0x8000;

/// The nearest number to a decimal one; of two that are as near, the even one.
pub(crate) fn nearest<T: Half>(text: &str) -> Result<T, ParseFloatError> {
    let value: f64 = text.parse()?;
    if !value.is_finite() {
        return Ok(T::of_bits(T::near(value)));
    }
    let size = value.abs();
    let of = |bits: u16| T::of_bits(bits).value();
    let near = T::near(size);
    let lower = if of(near) > size { near - 1 } else { near };
    let upper = lower + 1;
    // The step to infinity is as wide as the one before.
    let step = if of(upper).is_finite() { of(upper) - of(lower) } else { of(lower) - of(lower - 1) };
    // It is exact, and so is the comparison unless they are equal.
    let middle = of(lower) + step / 2.0;
    let order = size.total_cmp(&middle).then_with(|| digits(text).cmp(&digits(&format!("{middle:.150}"))));
    let bits = match order {
        Ordering::Less => lower,
        Ordering::Greater => upper,
        Ordering::Equal => upper & !1,
    };
    Ok(T::of_bits(if value.is_sign_negative() { bits | SIGN } else { bits }))
}

/// Where the digits of a decimal number begin, and the digits without zeros around them: in this order numbers are.
fn digits(text: &str) -> (i64, String) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let mantissa = mantissa.trim_start_matches(['-', '+']);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let significant = all.trim_start_matches('0');
    let begin = whole.len() as i64 - (all.len() - significant.len()) as i64;
    // An exponent that does not fit is of a number that is 0 or infinite.
    let begin = begin.saturating_add(exponent.parse().unwrap_or(0));
    (begin, significant.trim_end_matches('0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(text: &str) -> f64 {
        nearest::<f16>(text).unwrap().to_f64()
    }

    #[test]
    fn text_beside_the_middle_goes_to_its_own_side() {
        let (one, next) = (1.0, 1.0 + 2f64.powi(-10));
        // The middle is 1 + 2⁻¹¹; 64 bits have nothing between it and the others.
        assert_eq!(half("1.00048828125"), one);
        assert_eq!(half("1.00048828125000000000000000000001"), next);
        assert_eq!(half("1.00048828124999999999999999999999"), one);
        assert_eq!(half("-100048828125000000000000000000001e-32"), -next);
        // 32 bits have nothing between the middle and this.
        assert_eq!(half("1.00048828126"), next);
        // The middle above an odd number goes up.
        assert_eq!(half("1.00146484375"), 1.0 + 2f64.powi(-9));
        assert_eq!(half("1.00146484374999999999999999999999"), next);
        let bfloat = |text| nearest::<bf16>(text).unwrap().to_f64();
        assert_eq!(bfloat("1.00390625"), 1.0);
        assert_eq!(bfloat("0.0100390625000000000000000000000001E2"), 1.0078125);
    }

    #[test]
    fn the_least_and_the_largest_are_kept() {
        let least = 2f64.powi(-24);
        assert_eq!(half("2.98023223876953125e-8"), 0.0);
        assert_eq!(half("2.980232238769531250000000001e-8"), least);
        assert!(nearest::<f16>("-0.0").unwrap().to_f64().is_sign_negative());
        assert_eq!(half("65519.9999999999999999999999"), 65504.0);
        assert_eq!(half("65520"), f64::INFINITY);
        assert!(half("nan").is_nan());
        assert_eq!((half("-inf"), half("0e99999999999999999999")), (f64::NEG_INFINITY, 0.0));
    }

    #[test]
    fn every_number_comes_back() {
        for bits in 0..=u16::MAX {
            for value in [f16::from_bits(bits).to_f64(), bf16::from_bits(bits).to_f64()] {
                if value.is_nan() {
                    continue;
                }
                let text = format!("{value:e}");
                let same = |found: f64| found.to_bits() == value.to_bits();
                let is_half = f16::from_f64(value).to_f64() == value;
                assert!(!is_half || same(half(&text)), "{text}");
                let is_bfloat = bf16::from_f64(value).to_f64() == value;
                assert!(!is_bfloat || same(nearest::<bf16>(&text).unwrap().to_f64()), "{text}");
            }
        }
    }
}
