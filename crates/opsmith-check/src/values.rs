//! The elements of generated tensors, and whether two tensors hold the same.

use std::sync::Arc;

use half::{bf16, f16};
use opsmith_core::attr::TensorValue;
use opsmith_core::dtype::ToHalf;
use opsmith_core::space::coordinates;
use opsmith_core::{DType, Result, memory};

/// What memory is taken for, in errors.
const WHAT: &str = "a generated input";
/// As many numbers of a large tensor are made at once.
const PIECE: usize = 1 << 12;

/// Which numbers a generated tensor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    /// 1, 2, 3 and so on, an eighth of that in floats.
    Counting,
    /// Between 0 and 1, neither included, in floats; 0 or 1 in integers.
    Fractions(u64),
    /// Between -2 and 2 in floats, with three decimals; small ones in integers.
    Small(u64),
    /// Multiples of a half from -1 to 1 in floats, so that 0 and equal numbers are frequent; small ones in integers.
    Coarse(u64),
    /// NaN, infinities, signed zeros, the largest and the smallest numbers among others.
    Extreme(u64),
    /// What a line of Python can make however many there are: multiples of an eighth from -6 to 6.
    Formula,
}

/// Well mixed bits that depend on all of `seed` and `index` (splitmix64).
pub(crate) fn mix(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Values {
    /// A tensor, the one at `position` among a call's: a small one.
    pub(crate) fn tensor(self, dtype: DType, shape: &[usize], position: usize) -> TensorValue {
        let salt = position as u64;
        let elements: usize = shape.iter().product();
        if dtype == DType::String {
            let strings = (0..elements).map(|i| self.text(salt, i).into_bytes()).collect();
            return TensorValue { dtype, shape: shape.to_vec(), bytes: vec![], strings };
        }
        let numbers: Vec<f64> = (0..elements * parts(dtype)).map(|i| self.number(dtype, salt, i)).collect();
        from_numbers(dtype, shape, &numbers)
    }

    /// The same tensor, which may be large.
    ///
    /// # Errors
    /// `ResourceExhausted` when the memory cannot be had.
    pub(crate) fn large_tensor(self, dtype: DType, shape: &[usize], position: usize) -> Result<TensorValue> {
        let mut value = TensorValue { dtype, shape: shape.to_vec(), bytes: vec![], strings: vec![] };
        let salt = position as u64;
        let elements = shape.iter().fold(1usize, |product, dim| product.saturating_mul(*dim));
        if dtype == DType::String {
            let text = |i| memory::copied(self.text(salt, i).as_bytes(), WHAT);
            value.strings = memory::try_collected((0..elements).map(text), WHAT)?;
            return Ok(value);
        }
        memory::reserve(&mut value.bytes, elements.saturating_mul(dtype.size()), WHAT)?;
        let all = elements * parts(dtype);
        for first in (0..all).step_by(PIECE) {
            let piece = first..all.min(first + PIECE);
            let numbers: Vec<f64> = piece.map(|i| self.number(dtype, salt, i)).collect();
            value.bytes.extend_from_slice(&from_numbers(dtype, &[], &numbers).bytes);
        }
        Ok(value)
    }

    fn number(self, dtype: DType, salt: u64, i: usize) -> f64 {
        let is_float = is_float(dtype) || matches!(dtype, DType::Complex64 | DType::Complex128);
        let bits = |seed: u64| mix(seed ^ salt.wrapping_mul(0x0123_4567_89AB_CDEF), i as u64);
        match self {
            Values::Counting if is_float => (i + 1) as f64 / 8.0,
            Values::Counting => ((i + salt as usize) % 4) as f64,
            Values::Fractions(seed) if is_float => (1 + bits(seed) % 998) as f64 / 1000.0,
            Values::Fractions(seed) => (bits(seed) % 2) as f64,
            Values::Small(seed) if is_float => (bits(seed) % 4001) as f64 / 1000.0 - 2.0,
            Values::Coarse(seed) if is_float => (bits(seed) % 5) as f64 / 2.0 - 1.0,
            Values::Small(seed) | Values::Coarse(seed) => {
                (bits(seed) % 5) as f64 - f64::from(u8::from(bits(seed) & (1 << 40) != 0))
            }
            Values::Extreme(seed) if is_float => {
                const EXTREMES: [f64; 10] = [
                    f64::NAN,
                    f64::INFINITY,
                    f64::NEG_INFINITY,
                    0.0,
                    -0.0,
                    f64::MAX,
                    f64::MIN,
                    f64::MIN_POSITIVE,
                    1e-300,
                    1.0,
                ];
                EXTREMES[(bits(seed) % 10) as usize]
            }
            Values::Extreme(seed) => [f64::MIN, f64::MAX, -1.0, 0.0, 1.0][(bits(seed) % 5) as usize],
            Values::Formula if is_float => ((i * 37 + 11 * salt as usize) % 97) as f64 / 8.0 - 6.0,
            Values::Formula => ((i * 37 + 11 * salt as usize) % 5) as f64,
        }
    }

    fn text(self, salt: u64, i: usize) -> String {
        const TEXTS: [&str; 6] = ["1", "", "2.5", "zwölf", "a\0b", "a text of more than sixteen bytes"];
        match self {
            Values::Counting | Values::Formula => (i + 1).to_string(),
            Values::Fractions(seed) | Values::Small(seed) | Values::Coarse(seed) | Values::Extreme(seed) => {
                TEXTS[(mix(seed ^ salt, i as u64) % 6) as usize].to_owned()
            }
        }
    }
}

/// How many numbers an element has.
fn parts(dtype: DType) -> usize {
    if matches!(dtype, DType::Complex64 | DType::Complex128) { 2 } else { 1 }
}

/// Whether the elements are real floats.
pub(crate) fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::Float16 | DType::BFloat16 | DType::Float32 | DType::Float64)
}

/// A tensor of the numbers, each as near as the dtype comes. A complex one has two for each element.
pub(crate) fn from_numbers(dtype: DType, shape: &[usize], numbers: &[f64]) -> TensorValue {
    macro_rules! each {
        ($convert:expr) => {
            numbers.iter().flat_map(|number| $convert(*number).to_ne_bytes()).collect()
        };
    }
    let bytes = match dtype {
        DType::Float16 => each!(f64::to_f16),
        DType::BFloat16 => each!(f64::to_bf16),
        DType::Float32 | DType::Complex64 => each!(|x| x as f32),
        DType::Float64 | DType::Complex128 => each!(|x: f64| x),
        DType::Int8 | DType::QInt8 => each!(|x| x as i8),
        DType::Int16 | DType::QInt16 => each!(|x| x as i16),
        DType::Int32 | DType::QInt32 => each!(|x| x as i32),
        DType::Int64 => each!(|x| x as i64),
        DType::UInt8 | DType::QUInt8 => each!(|x| x as u8),
        DType::UInt16 | DType::QUInt16 => each!(|x| x as u16),
        DType::UInt32 => each!(|x| x as u32),
        DType::UInt64 => each!(|x| x as u64),
        DType::Bool => each!(|x: f64| u8::from(x > 0.5)),
        _ => vec![],
    };
    TensorValue { dtype, shape: shape.to_vec(), bytes, strings: vec![] }
}

/// The elements as numbers; of a complex tensor, two for each.
pub(crate) fn numbers(value: &TensorValue) -> Vec<f64> {
    macro_rules! each {
        ($rust:ty, $convert:expr) => {{
            let (chunks, _) = value.bytes.as_chunks::<{ size_of::<$rust>() }>();
            chunks.iter().map(|bytes| $convert(<$rust>::from_ne_bytes(*bytes))).collect()
        }};
    }
    match value.dtype {
        DType::Float16 => each!(f16, f16::to_f64),
        DType::BFloat16 => each!(bf16, bf16::to_f64),
        DType::Float32 | DType::Complex64 => each!(f32, f64::from),
        DType::Float64 | DType::Complex128 => each!(f64, |x| x),
        DType::Int8 | DType::QInt8 => each!(i8, f64::from),
        DType::Int16 | DType::QInt16 => each!(i16, f64::from),
        DType::Int32 | DType::QInt32 => each!(i32, f64::from),
        DType::Int64 => each!(i64, |x| x as f64),
        DType::UInt8 | DType::QUInt8 | DType::Bool => each!(u8, f64::from),
        DType::UInt16 | DType::QUInt16 => each!(u16, f64::from),
        DType::UInt32 => each!(u32, f64::from),
        DType::UInt64 => each!(u64, |x| x as f64),
        _ => vec![],
    }
}

/// How far two numbers may be apart: `absolute + relative · |b|`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tolerance {
    pub(crate) relative: f64,
    pub(crate) absolute: f64,
}

impl Tolerance {
    /// What rounding leaves of sums that were made in another order.
    pub(crate) fn of_rounding(dtype: DType) -> Tolerance {
        let unit = match dtype {
            DType::Float64 | DType::Complex128 => 1e-11,
            DType::Float32 | DType::Complex64 => 1e-5,
            DType::Float16 => 1e-2,
            DType::BFloat16 => 5e-2,
            _ => 0.0,
        };
        Tolerance { relative: unit, absolute: unit }
    }

    fn is_within(self, a: f64, b: f64) -> bool {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= self.absolute + self.relative * b.abs()
    }
}

/// Where two lists of tensors with these names differ by more than `tolerance` says for their dtype, in words; `None`
/// where nowhere.
pub(crate) fn difference(
    names: &[String],
    got: &[Arc<TensorValue>],
    expected: &[Arc<TensorValue>],
    tolerance: impl Fn(DType) -> Tolerance,
) -> Option<String> {
    if got.len() != expected.len() {
        return Some(format!("{} tensors instead of {}", got.len(), expected.len()));
    }
    let pairs = names.iter().zip(got.iter().zip(expected));
    pairs.map(|(name, (a, b))| one_difference(name, a, b, tolerance(b.dtype))).find_map(|found| found)
}

fn one_difference(
    output: &str,
    got: &TensorValue,
    expected: &TensorValue,
    tolerance: Tolerance,
) -> Option<String> {
    if got.dtype != expected.dtype {
        return Some(format!("`{output}` is {} instead of {}", got.dtype, expected.dtype));
    }
    if got.shape != expected.shape {
        return Some(format!("`{output}` has shape {:?} instead of {:?}", got.shape, expected.shape));
    }
    let at = |element: usize| index_of(element, &expected.shape);
    if got.dtype == DType::String {
        let element = (0..got.strings.len()).find(|&i| got.strings[i] != expected.strings[i])?;
        let text = |value: &TensorValue| String::from_utf8_lossy(&value.strings[element]).into_owned();
        let (a, b) = (text(got), text(expected));
        return Some(format!("`{output}`{} is {a:?} instead of {b:?}", at(element)));
    }
    if got.bytes == expected.bytes {
        return None;
    }
    let (a, b) = (numbers(got), numbers(expected));
    // A sum that cancels is as exact as its largest terms.
    let largest = b.iter().filter(|x| x.is_finite()).fold(1f64, |largest, x| largest.max(x.abs()));
    let tolerance = Tolerance { absolute: tolerance.absolute * largest, ..tolerance };
    let place = (0..a.len()).find(|&i| !tolerance.is_within(a[i], b[i]))?;
    let parts = a.len() / expected.shape.iter().product::<usize>().max(1);
    Some(format!("`{output}`{} is {} instead of {}", at(place / parts.max(1)), a[place], b[place]))
}

/// `[1, 2]`: the index of an element in row-major order; nothing for a scalar.
pub(crate) fn index_of(element: usize, shape: &[usize]) -> String {
    if shape.is_empty() { String::new() } else { format!("{:?}", coordinates(shape, element)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_every_dtype() {
        for dtype in DType::ALL.into_iter().filter(|dtype| *dtype != DType::String) {
            let numbers_in = [0.0, 1.0, 1.0, 0.0];
            let is_complex = dtype.size() == 16 || dtype == DType::Complex64;
            let shape = [if is_complex { 2 } else { 4 }];
            let value = from_numbers(dtype, &shape, &numbers_in);
            assert_eq!(numbers(&value), numbers_in, "{dtype}");
            assert_eq!(value.bytes.len(), shape[0] * dtype.size());
        }
    }

    #[test]
    fn large_tensors_are_those_of_small_calls_and_may_not_fit_into_memory() {
        for dtype in [DType::Float32, DType::Bool, DType::Complex128, DType::String] {
            for values in [Values::Fractions(1), Values::Counting] {
                let large = values.large_tensor(dtype, &[3, PIECE], 2).unwrap();
                assert_eq!(large, values.tensor(dtype, &[3, PIECE], 2), "{dtype}");
            }
            let error = Values::Counting.large_tensor(dtype, &[1 << 40, 1 << 10], 0).unwrap_err();
            assert!(error.message().contains("for a generated input"), "{error}");
        }
    }

    #[test]
    fn what_differs_is_told_with_its_place() {
        let value = |numbers: &[f64]| Arc::new(from_numbers(DType::Float64, &[2, 2], numbers));
        let (a, b) = ([value(&[1.0, f64::NAN, 3.0, 4.0])], [value(&[1.0, f64::NAN, 3.0, 5.0])]);
        let exact = Tolerance { relative: 0.0, absolute: 0.0 };
        let names = ["z".to_owned()];
        assert_eq!(difference(&names, &a, &a, |_| exact), None);
        let found = difference(&names, &a, &b, |_| exact);
        assert_eq!(found.as_deref(), Some("`z`[1, 1] is 4 instead of 5"));
    }
}
