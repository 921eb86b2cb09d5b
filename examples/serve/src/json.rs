//! Tensors as nested lists of JSON: `{"inputs": {"x": [[1.5, 2]]}}` and `{"outputs": {"y": [[3.5]]}}`.
//!
//! A number is read once, as the nearest of its dtype; what is not finite is `"nan"`, `"inf"` or `"-inf"`.

use std::borrow::Cow;
use std::io;

use half::{bf16, f16};
use opsmith_core::tensor::MAX_RANK;
use opsmith_core::{DType, Element, Error, Result, bail, ensure, memory};
use opsmith_runtime::Tensor;

use crate::model::{Argument, all_of, position, short};
use crate::scalar::{Scalar, is_of_json};

/// A text of JSON, read from front to back.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

/// The elements of nested lists, and how many each list has.
struct Nested<T> {
    elements: Vec<T>,
    /// The length of the lists of each depth, as far as one has ended.
    dims: Vec<Option<usize>>,
    /// How deep elements are.
    depth: Option<usize>,
}

/// Calls a generic function for the dtype of a number.
macro_rules! of_numbers {
    ($dtype:expr, $name:ident($($arg:expr),*)) => {
        match $dtype {
            DType::Float32 => $name::<f32>($($arg),*),
            DType::Float64 => $name::<f64>($($arg),*),
            DType::Float16 => $name::<f16>($($arg),*),
            DType::BFloat16 => $name::<bf16>($($arg),*),
            DType::Int8 => $name::<i8>($($arg),*),
            DType::Int16 => $name::<i16>($($arg),*),
            DType::Int32 => $name::<i32>($($arg),*),
            DType::Int64 => $name::<i64>($($arg),*),
            DType::UInt8 => $name::<u8>($($arg),*),
            DType::UInt16 => $name::<u16>($($arg),*),
            DType::UInt32 => $name::<u32>($($arg),*),
            DType::UInt64 => $name::<u64>($($arg),*),
            DType::Bool => $name::<bool>($($arg),*),
            other => Err(Error::unimplemented(format!("{other} cannot be sent as JSON: send safetensors"))),
        }
    };
}

/// Reads the inputs of a request, in the model's order.
///
/// # Errors
/// `InvalidArgument` for what is not JSON or does not fit the inputs, `ResourceExhausted` without memory.
pub(crate) fn read(body: &[u8], inputs: &[Argument]) -> Result<Vec<Tensor>> {
    let text = std::str::from_utf8(body)
        .map_err(|error| Error::invalid_argument(format!("the request is not UTF-8: {error}")))?;
    let mut reader = Reader { text, at: 0 };
    let mut found: Vec<Option<Tensor>> = vec![None; inputs.len()];
    reader.object(&mut |reader, key| {
        ensure!(
            key == "inputs",
            InvalidArgument,
            "expected the key `inputs` and no other, got `{}`",
            short(key)
        );
        reader.object(&mut |reader, name| {
            let at = position(inputs, name)?;
            ensure!(found[at].is_none(), InvalidArgument, "input `{name}` is there twice");
            let value = reader.tensor(&inputs[at]);
            found[at] = Some(value.map_err(|error| error.with_argument("input", name))?);
            Ok(())
        })
    })?;
    reader.skip();
    ensure!(reader.at == text.len(), InvalidArgument, "something follows the object, at byte {}", reader.at);
    all_of(found, inputs)
}

/// The error for a token that is not of the dtype.
fn unread(dtype: DType, token: &str) -> Error {
    use DType::{BFloat16, Float16, Float32, Float64};
    let is_float = matches!(dtype, BFloat16 | Float16 | Float32 | Float64);
    let number = token.parse::<f64>().ok();
    let is_integer = token.strip_prefix('-').unwrap_or(token).bytes().all(|byte| byte.is_ascii_digit());
    let why = match number {
        // Python writes `NaN` and `Infinity`.
        Some(number) if is_float && token.ends_with(|sign: char| sign.is_ascii_alphabetic()) => {
            format!(": JSON has no such number, write \"{}\" in quotes", number.to_string().to_lowercase())
        }
        Some(_)
            if is_of_json(token)
                && (is_float || is_integer && !matches!(dtype, DType::Bool | DType::String)) =>
        {
            format!(", which is out of the range of {dtype}")
        }
        _ => String::new(),
    };
    Error::invalid_argument(format!("expected {dtype}, got {}{why}", short(token)))
}

impl<'a> Reader<'a> {
    fn skip(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
    }

    /// The next sign, which stays.
    fn next(&mut self) -> Option<u8> {
        self.skip();
        self.text.as_bytes().get(self.at).copied()
    }

    /// Takes a sign if it is next.
    fn takes(&mut self, sign: u8) -> bool {
        let is_next = self.next() == Some(sign);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, sign: u8) -> Result<()> {
        match self.takes(sign) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("`{}`", char::from(sign)))),
        }
    }

    fn unexpected(&self, expected: &str) -> Error {
        let got = match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some(sign) => format!("`{sign}`"),
            None => "the end".to_owned(),
        };
        Error::invalid_argument(format!("expected {expected} at byte {}, got {got}", self.at))
    }

    /// A text, a number or a word, as it is written.
    fn token(&mut self) -> Result<&'a str> {
        self.skip();
        let rest = &self.text.as_bytes()[self.at..];
        let length = match rest.first() {
            Some(b'"') => {
                let mut is_escaped = false;
                let end = rest[1..].iter().position(|&byte| {
                    let is_end = byte == b'"' && !is_escaped;
                    is_escaped = byte == b'\\' && !is_escaped;
                    is_end
                });
                end.map_or(0, |end| end + 2)
            }
            _ => rest
                .iter()
                .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
                .count(),
        };
        if length == 0 {
            return Err(self.unexpected("a value"));
        }
        // Ends before or behind an ASCII sign.
        let token = &self.text[self.at..self.at + length];
        self.at += length;
        Ok(token)
    }

    fn string(&mut self) -> Result<Cow<'a, str>> {
        if self.next() != Some(b'"') {
            return Err(self.unexpected("a text in quotes"));
        }
        let token = self.token()?;
        let inner = &token[1..token.len() - 1];
        if inner.bytes().all(|byte| byte != b'\\' && byte >= b' ') {
            return Ok(inner.into());
        }
        let text: String = serde_json::from_str(token)
            .map_err(|_| Error::invalid_argument(format!("{} is no text of JSON", short(token))))?;
        Ok(text.into())
    }

    fn object(&mut self, entry: &mut dyn FnMut(&mut Self, &str) -> Result<()>) -> Result<()> {
        self.expect(b'{')?;
        if self.takes(b'}') {
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            entry(self, &key)?;
            if !self.takes(b',') {
                return self.expect(b'}');
            }
        }
    }

    fn tensor(&mut self, argument: &Argument) -> Result<Tensor> {
        fn of<T: Scalar + Element>(reader: &mut Reader<'_>, argument: &Argument) -> Result<Tensor> {
            let nested = reader.nested::<T>(argument.dtype)?;
            Tensor::from_slice(&nested.elements, &nested.shape(argument))
        }
        if argument.dtype == DType::String {
            let nested = self.nested::<String>(argument.dtype)?;
            return Tensor::from_strings(&nested.elements, &nested.shape(argument));
        }
        of_numbers!(argument.dtype, of(self, argument))
    }

    fn nested<T: Scalar>(&mut self, dtype: DType) -> Result<Nested<T>> {
        let mut nested = Nested { elements: Vec::new(), dims: Vec::new(), depth: None };
        self.list(dtype, 0, &mut nested)?;
        Ok(nested)
    }

    /// Reads what is at this depth: a list, or an element.
    fn list<T: Scalar>(&mut self, dtype: DType, depth: usize, into: &mut Nested<T>) -> Result<()> {
        if !self.takes(b'[') {
            if self.next().is_none() {
                return Err(self.unexpected("a list or an element"));
            }
            ensure!(
                *into.depth.get_or_insert(depth) == depth && into.dims.len() <= depth,
                InvalidArgument,
                "lists of different depths, at byte {}",
                self.at
            );
            let token = self.token()?;
            let value = Some(token).filter(|token| is_of_json(token)).and_then(T::read).ok_or_else(|| {
                match self.at == self.text.len() {
                    true => Error::invalid_argument(format!(
                        "the request ends at byte {}, within an input",
                        self.at
                    )),
                    false => unread(dtype, token),
                }
            })?;
            memory::reserve(&mut into.elements, 1, "the elements of a tensor")?;
            into.elements.push(value);
            return Ok(());
        }
        ensure!(depth < MAX_RANK, InvalidArgument, "lists more than {MAX_RANK} deep");
        ensure!(
            into.depth.is_none_or(|elements| depth < elements),
            InvalidArgument,
            "lists of different depths, at byte {}",
            self.at
        );
        if into.dims.len() <= depth {
            into.dims.push(None);
        }
        let mut count = 0;
        if !self.takes(b']') {
            loop {
                self.list(dtype, depth + 1, into)?;
                count += 1;
                if !self.takes(b',') {
                    break self.expect(b']')?;
                }
            }
        }
        match into.dims[depth] {
            Some(other) if other != count => {
                bail!(
                    InvalidArgument,
                    "lists of {other} and {count} elements beside each other, at byte {}",
                    self.at
                )
            }
            _ => into.dims[depth] = Some(count),
        }
        Ok(())
    }
}

impl<T> Nested<T> {
    /// The dims. An empty list does not say what is in it: that is as the model says, and 0 where it does not.
    fn shape(&self, argument: &Argument) -> Vec<usize> {
        let mut shape: Vec<usize> = self.dims.iter().map(|dim| dim.unwrap_or(0)).collect();
        if self.elements.is_empty() {
            let rest = argument.shape.dims().unwrap_or_default().iter().skip(shape.len());
            shape.extend(rest.map(|dim| dim.value().unwrap_or(0) as usize));
        }
        shape
    }
}

/// Memory that grows while there is some.
struct Growing(Vec<u8>);

impl io::Write for Growing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        memory::reserve(&mut self.0, bytes.len(), "an answer")
            .map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error.message()))?;
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An element as JSON has it.
trait Written: Element {
    fn write(self, out: &mut Growing) -> io::Result<()>;
}

macro_rules! written {
    ($($($ty:ty),* => $value:ident: $write:expr;)*) => {
        $($(impl Written for $ty {
            fn write(self, out: &mut Growing) -> io::Result<()> {
                let $value = self;
                #[allow(clippy::redundant_closure_call)]
                $write(out)
            }
        })*)*
    };
}

written! {
    i8, i16, i32, i64, u8, u16, u32, u64, bool => value: |out| Ok(serde_json::to_writer(out, &value)?);
    f32, f64 => value: |out: &mut Growing| match value {
        value if value.is_finite() => Ok(serde_json::to_writer(out, &value)?),
        value => io::Write::write_all(out, infinite(value.is_nan(), value > 0.0)),
    };
    f16, bf16 => value: |out| value.to_f32().write(out);
}

fn infinite(is_nan: bool, is_positive: bool) -> &'static [u8] {
    match (is_nan, is_positive) {
        (true, _) => b"\"nan\"",
        (_, true) => b"\"inf\"",
        (_, false) => b"\"-inf\"",
    }
}

/// Writes the outputs of a model.
///
/// # Errors
/// `Unimplemented` for a dtype that JSON lacks, `ResourceExhausted` without memory.
pub(crate) fn write(outputs: &[Argument], tensors: &[Tensor]) -> Result<Vec<u8>> {
    let mut out = Growing(Vec::new());
    let failed = |error: io::Error| Error::resource_exhausted(error.to_string());
    let put = |out: &mut Growing, bytes: &[u8]| io::Write::write_all(out, bytes).map_err(failed);
    put(&mut out, b"{\"outputs\":{")?;
    for (index, (output, tensor)) in outputs.iter().zip(tensors).enumerate() {
        put(&mut out, if index > 0 { b"," } else { b"" })?;
        serde_json::to_writer(&mut out, &output.name).map_err(|error| failed(error.into()))?;
        put(&mut out, b":")?;
        write_tensor(&mut out, tensor).map_err(|error| error.with_argument("output", &output.name))?;
    }
    put(&mut out, b"}}")?;
    Ok(out.0)
}

fn write_tensor(out: &mut Growing, tensor: &Tensor) -> Result<()> {
    fn of<T: Written>(out: &mut Growing, tensor: &Tensor) -> Result<()> {
        lists(out, tensor.shape(), tensor.as_view().as_slice::<T>()?, &mut |out, element| element.write(out))
    }
    let tensor = tensor.to_contiguous()?;
    if tensor.dtype() == DType::String {
        let texts = tensor.strings()?.into_iter().map(std::str::from_utf8).collect::<Result<Vec<_>, _>>();
        let texts = texts.map_err(|error| {
            Error::unimplemented(format!("a text that is not UTF-8 cannot be sent: {error}"))
        })?;
        return lists(out, tensor.shape(), &texts, &mut |out, text| Ok(serde_json::to_writer(out, &text)?));
    }
    of_numbers!(tensor.dtype(), of(out, &tensor))
}

/// Nested lists of these dims.
fn lists<T: Clone>(
    out: &mut Growing,
    shape: &[usize],
    elements: &[T],
    write: &mut dyn FnMut(&mut Growing, T) -> io::Result<()>,
) -> Result<()> {
    fn nested<T: Clone>(
        out: &mut Growing,
        shape: &[usize],
        elements: &[T],
        write: &mut dyn FnMut(&mut Growing, T) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some((&count, inner)) = shape.split_first() else { return write(out, elements[0].clone()) };
        io::Write::write_all(out, b"[")?;
        let size = elements.len() / count.max(1);
        for index in 0..count {
            if index > 0 {
                io::Write::write_all(out, b",")?;
            }
            nested(out, inner, &elements[index * size..(index + 1) * size], write)?;
        }
        io::Write::write_all(out, b"]")
    }
    // Lists of no elements are written as far as they are in lists: those of 2^60 empty ones are not.
    let ends = shape.iter().position(|dim| *dim == 0).map_or(shape.len(), |at| at + 1);
    let mut outer = shape[..ends].iter().filter(|dim| **dim > 0);
    let lists = outer.try_fold(1_usize, |count, dim| count.checked_mul(*dim));
    ensure!(
        !elements.is_empty() || lists.is_some_and(|lists| lists <= 1 << 20),
        Unimplemented,
        "a tensor of shape {shape:?} cannot be sent as JSON: send safetensors"
    );
    nested(out, &shape[..ends], elements, write).map_err(|error| Error::resource_exhausted(error.to_string()))
}

#[cfg(test)]
mod tests {
    use opsmith_core::{Code, Shape};

    use super::*;

    fn argument(dtype: DType) -> [Argument; 1] {
        [Argument { name: "x".to_owned(), dtype, shape: Shape::parse("[?]").unwrap() }]
    }

    fn number(dtype: DType, token: &str) -> Result<Tensor> {
        let tensors = read(format!("{{\"inputs\": {{\"x\": [{token}]}}}}").as_bytes(), &argument(dtype))?;
        Ok(tensors[0].clone())
    }

    #[test]
    fn a_number_is_rounded_once() {
        // Just over the middle between 1 and the next number, where the nearest of 64 bits is.
        let token = "1.00000005960464477539062500000001";
        let expected = 1.0 + f32::EPSILON;
        assert_eq!(number(DType::Float32, token).unwrap().to_vec::<f32>().unwrap(), [expected]);
        let half = number(DType::Float16, "1.00048828125000000000000000000001").unwrap();
        assert_eq!(half.to_vec::<f16>().unwrap(), [f16::from_f32(1.0 + 1.0 / 1024.0)]);
        let infinite = number(DType::Float32, r#""-inf", "inf", -0.5e+1, 0"#).unwrap();
        let expected = [f32::NEG_INFINITY, f32::INFINITY, -5.0, 0.0];
        assert_eq!(infinite.to_vec::<f32>().unwrap(), expected);
        assert!(number(DType::Float32, r#""nan""#).unwrap().to_vec::<f32>().unwrap()[0].is_nan());
    }

    #[test]
    fn numbers_that_json_lacks_are_refused() {
        for token in ["+1", "01", "-01", "1.", ".5", "-", "-.5", "1.e3", "1e", "inf", "nan", "-inf", "1e99"] {
            for dtype in [DType::Float32, DType::Float16, DType::Int32] {
                let error = number(dtype, token).unwrap_err();
                assert!(error.message().contains(&format!("got {token}")), "{token}: {}", error.message());
            }
        }
    }

    #[test]
    fn text_that_is_not_utf_8_is_an_error() {
        let written =
            |bytes: &[u8]| write(&argument(DType::String), &[Tensor::from_strings(&[bytes], &[1])?]);
        assert_eq!(written("é".as_bytes()).unwrap(), "{\"outputs\":{\"x\":[\"é\"]}}".as_bytes());
        let error = written(b"\xff").unwrap_err();
        assert_eq!((error.code(), error.argument()), (Code::Unimplemented, Some("x")));
    }
}
