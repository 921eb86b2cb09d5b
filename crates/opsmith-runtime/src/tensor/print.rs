//! Printing as NumPy prints: columns of one width, as many digits as tell the numbers apart and at most eight, the middle of
//! long dims left out, lines of 75 columns.

use std::fmt;

use half::{bf16, f16};
use ndarray::{ArrayD, ArrayViewD, Axis, IxDyn};
use num_complex::Complex;
use opsmith_core::{DType, Element, Error, Result, bail};

use super::Tensor;

/// Of more elements than these only some are shown: so many at the beginning and at the end of each dim.
const THRESHOLD: usize = 1000;
const EDGE: usize = 3;
/// Digits after the point, at most.
const PRECISION: usize = 8;
/// Columns of a line.
const WIDTH: usize = 75;

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Quantised numbers, and text with gaps, have no printed form of their own.
        let Ok(cells) = cells(self) else { return fmt::Debug::fmt(self, f) };
        if self.shape().is_empty() {
            return f.write_str(cells.first().map_or("", |cell| cell.trim()));
        }
        if self.num_elements() == 0 {
            return f.write_str("[]");
        }
        let dims: Vec<(usize, bool)> = self.shape().iter().map(|&dim| (dim, is_cut(self, dim))).collect();
        f.write_str(&bracketed(&dims, 1, WIDTH, &mut cells.into_iter()))
    }
}

/// Whether the middle of a dim of a tensor is left out.
fn is_cut(tensor: &Tensor, dim: usize) -> bool {
    tensor.num_elements() > THRESHOLD && dim > 2 * EDGE
}

/// The elements of the dims, in brackets, from column `indent` on, in lines of `width` columns.
fn bracketed(
    dims: &[(usize, bool)],
    indent: usize,
    width: usize,
    cells: &mut impl Iterator<Item = String>,
) -> String {
    let [(dim, is_cut), inner @ ..] = dims else { return cells.next().unwrap_or_default() };
    let count = if *is_cut { 2 * EDGE } else { *dim };
    let mut parts: Vec<String> = (0..count).map(|_| bracketed(inner, indent + 1, width - 1, cells)).collect();
    if *is_cut {
        parts.insert(EDGE, "...".into());
    }
    let margin = " ".repeat(indent);
    if !inner.is_empty() {
        return format!("[{}]", parts.join(&format!("{}{margin}", "\n".repeat(inner.len()))));
    }
    let (mut text, mut line) = (String::new(), String::new());
    for part in parts {
        // A line ends before the bracket that may follow.
        if !line.is_empty() && indent + line.len() + part.len() > width - 1 {
            text += line.trim_end();
            text += &format!("\n{margin}");
            line.clear();
        }
        line += &part;
        line.push(' ');
    }
    line.pop();
    format!("[{text}{line}]")
}

/// The elements that are shown, row-major, as text.
fn cells(tensor: &Tensor) -> Result<Vec<String>> {
    macro_rules! integers {
        ($rust:ty) => {
            aligned(shown::<$rust>(tensor)?.iter().map(ToString::to_string).collect())
        };
    }
    let is_scalar = tensor.shape().is_empty();
    Ok(match tensor.dtype() {
        DType::Float64 => floats(&shown::<f64>(tensor)?, is_scalar),
        DType::Float32 => floats(&shown::<f32>(tensor)?, is_scalar),
        DType::Float16 => floats(&shown::<f16>(tensor)?, is_scalar),
        DType::BFloat16 => floats(&shown::<bf16>(tensor)?, is_scalar),
        DType::Complex64 => complex(&shown::<Complex<f32>>(tensor)?, is_scalar),
        DType::Complex128 => complex(&shown::<Complex<f64>>(tensor)?, is_scalar),
        DType::Int8 => integers!(i8),
        DType::Int16 => integers!(i16),
        DType::Int32 => integers!(i32),
        DType::Int64 => integers!(i64),
        DType::UInt8 => integers!(u8),
        DType::UInt16 => integers!(u16),
        DType::UInt32 => integers!(u32),
        DType::UInt64 => integers!(u64),
        DType::Bool => {
            let name = |truth: &bool| if *truth { "True" } else { "False" }.to_owned();
            aligned(shown::<bool>(tensor)?.iter().map(name).collect())
        }
        DType::String => {
            let texts = ArrayD::from_shape_vec(tensor.shape(), tensor.strings()?)
                .map_err(|error| Error::internal(error.to_string()))?;
            let quoted = |text: &&[u8]| format!("'{}'", String::from_utf8_lossy(text));
            edges(tensor, texts.view()).iter().map(quoted).collect()
        }
        other => bail!(Unimplemented, "{other} cannot be printed"),
    })
}

/// The elements that are shown, row-major.
fn shown<T: Element>(tensor: &Tensor) -> Result<Vec<T>> {
    Ok(edges(tensor, tensor.view::<T, IxDyn>()?))
}

/// Those of the elements of a tensor that are shown, row-major.
fn edges<T: Clone>(tensor: &Tensor, elements: ArrayViewD<'_, T>) -> Vec<T> {
    let mut picked: Option<ArrayD<T>> = None;
    for (axis, &dim) in tensor.shape().iter().enumerate().filter(|(_, dim)| is_cut(tensor, **dim)) {
        let places: Vec<usize> = (0..EDGE).chain(dim - EDGE..dim).collect();
        picked = Some(match picked {
            None => elements.select(Axis(axis), &places),
            Some(picked) => picked.select(Axis(axis), &places),
        });
    }
    picked.map_or_else(|| elements.iter().cloned().collect(), |picked| picked.iter().cloned().collect())
}

fn aligned(texts: Vec<String>) -> Vec<String> {
    let width = texts.iter().map(String::len).max().unwrap_or(0);
    texts.into_iter().map(|text| format!("{text:>width$}")).collect()
}

/// A float: its value, and the fewest digits that no other float of its type has.
trait Float: Copy + fmt::Display + fmt::LowerExp {
    fn value(self) -> f64;
}

macro_rules! float {
    ($($rust:ty => |$x:ident| $value:expr),*) => {$(
        impl Float for $rust {
            fn value(self) -> f64 {
                let $x = self;
                $value
            }
        }
    )*};
}

float!(f64 => |x| x, f32 => |x| x.into(), f16 => |x| x.into(), bf16 => |x| x.into());

/// Floats in columns: the points below each other.
fn floats<T: Float>(numbers: &[T], is_scalar: bool) -> Vec<String> {
    if is_scalar {
        return numbers.iter().map(|&x| scalar(x)).collect();
    }
    column(numbers, false)
}

/// A float by itself, all its digits.
fn scalar<T: Float>(x: T) -> String {
    let (text, size) = (x.to_string(), x.value().abs());
    if !x.value().is_finite() {
        return special(x.value());
    }
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        return scientific(x, None);
    }
    if text.contains('.') { text } else { format!("{text}.0") }
}

fn column<T: Float>(numbers: &[T], always_signed: bool) -> Vec<String> {
    let sizes = numbers.iter().map(|x| x.value().abs()).filter(|size| size.is_finite() && *size != 0.0);
    let (least, most) =
        sizes.fold((f64::INFINITY, 0.0f64), |(least, most), size| (least.min(size), most.max(size)));
    let by_power = most >= 1e8 || (most > 0.0 && (least < 1e-4 || most / least > 1000.0));
    let digits = |x: &T| if by_power { mantissa_digits(*x) } else { 0 };
    let finite = numbers.iter().filter(|x| x.value().is_finite());
    let precision = finite.map(digits).max().unwrap_or(0);
    let texts: Vec<String> = numbers
        .iter()
        .map(|&x| {
            let text = match x.value() {
                value if !value.is_finite() => special(value),
                _ if by_power => scientific(x, Some(precision)),
                _ => positional(x),
            };
            if always_signed && !text.starts_with('-') { format!("+{text}") } else { text }
        })
        .collect();
    // What stands before the point, and from it on; what is no number is aligned to the right.
    let split = |text: &String| text.find('.').map_or((text.len(), 0), |at| (at, text.len() - at));
    let numeric = || texts.iter().filter(|text| text.contains('.'));
    let right = numeric().map(|text| split(text).1).max().unwrap_or(0);
    let left = numeric().map(|text| split(text).0).max().unwrap_or(0);
    let width = texts.iter().map(String::len).max().unwrap_or(0).max(left + right);
    let padded = |text: &String| match split(text) {
        (_, 0) => format!("{text:>width$}"),
        (before, after) => {
            format!("{}{text}{}", " ".repeat(width - right - before), " ".repeat(right - after))
        }
    };
    texts.iter().map(padded).collect()
}

fn special(value: f64) -> String {
    let name = if value.is_nan() { "nan" } else { "inf" };
    if value.is_sign_negative() && !value.is_nan() { format!("-{name}") } else { name.to_owned() }
}

/// `1.25`, with at most [`PRECISION`] digits after the point: `1.` for a whole number.
fn positional<T: Float>(x: T) -> String {
    let shortest = x.to_string();
    let digits = shortest.split_once('.').map_or(0, |(_, digits)| digits.len());
    if digits == 0 {
        return format!("{shortest}.");
    }
    if digits <= PRECISION {
        return shortest;
    }
    format!("{:.PRECISION$}", x.value()).trim_end_matches('0').to_owned()
}

/// How many digits the mantissa has after its point.
fn mantissa_digits<T: Float>(x: T) -> usize {
    let text = format!("{x:e}");
    let mantissa = text.split('e').next().unwrap_or_default();
    let digits = mantissa.split_once('.').map_or(0, |(_, digits)| digits.len());
    if digits <= PRECISION {
        return digits;
    }
    let text = format!("{:.PRECISION$e}", x.value());
    let mantissa = text.split('e').next().unwrap_or_default();
    mantissa.trim_end_matches('0').split_once('.').map_or(0, |(_, digits)| digits.len())
}

/// `1.25e-05`, with so many digits after the point; with those that it has where none is asked for.
fn scientific<T: Float>(x: T, precision: Option<usize>) -> String {
    let text = match precision {
        Some(precision) => format!("{:.precision$e}", x.value()),
        None => format!("{x:e}"),
    };
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, power) = power.strip_prefix('-').map_or(('+', power), |power| ('-', power));
    let point = if mantissa.contains('.') || precision.is_none() { "" } else { "." };
    format!("{mantissa}{point}e{sign}{power:0>2}")
}

/// Complex numbers: real parts in a column, imaginary ones with their sign in another.
fn complex<T: Float>(numbers: &[Complex<T>], is_scalar: bool) -> Vec<String> {
    let real: Vec<T> = numbers.iter().map(|number| number.re).collect();
    let imaginary: Vec<T> = numbers.iter().map(|number| number.im).collect();
    let real = if is_scalar { real.iter().map(|&x| scalar(x)).collect() } else { column(&real, false) };
    let imaginary = column(&imaginary, true);
    let joined = real.iter().zip(&imaginary).map(|(real, imaginary)| {
        let digits = imaginary.trim_end();
        format!("{real}{digits}j{}", " ".repeat(imaginary.len() - digits.len()))
    });
    joined.collect()
}

#[cfg(test)]
mod tests;
