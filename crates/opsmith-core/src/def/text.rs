//! Pieces of text: numbers, strings and shapes as definitions and messages write them.

use std::fmt::{self, Debug, Display, Formatter, Write};

use crate::attr::PartialShape;

/// A float with as many digits as tell it apart: `0.1`, `1.0`, `inf`, `nan`.
pub(super) struct Float<T>(pub(super) T);

impl<T: num_traits::Float + Debug> Display for Float<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_nan() { f.write_str("nan") } else { write!(f, "{:?}", self.0) }
    }
}

/// A string in single quotes, what is not printable escaped as in C.
pub(super) struct Quoted<'a>(pub(super) &'a [u8]);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let octal = |f: &mut Formatter<'_>, bytes: &[u8]| -> fmt::Result {
            bytes.iter().try_for_each(|byte| write!(f, "\\{byte:03o}"))
        };
        f.write_char('\'')?;
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\\' | '\'' => write!(f, "\\{c}")?,
                    '\n' => f.write_str("\\n")?,
                    '\t' => f.write_str("\\t")?,
                    _ if c.is_control() => octal(f, c.encode_utf8(&mut [0; 4]).as_bytes())?,
                    _ => f.write_char(c)?,
                }
            }
            octal(f, chunk.invalid())?;
        }
        f.write_char('\'')
    }
}

/// A shape as protocol buffers write it: `{ dim { size: 2 } dim { size: -1 } }`.
pub(super) struct Shape<'a>(pub(super) &'a PartialShape);

impl Display for Shape<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(dims) = self.0 else { return f.write_str("{ unknown_rank: true }") };
        f.write_str("{")?;
        for dim in dims {
            match dim {
                Some(size) => write!(f, " dim {{ size: {size} }}")?,
                None => f.write_str(" dim { size: -1 }")?,
            }
        }
        f.write_str(" }")
    }
}

/// `1 tensor`, `2 tensors`.
pub(super) fn counted(count: usize, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

/// `a, b, c`.
pub(super) fn joined(items: impl IntoIterator<Item: Display>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}
