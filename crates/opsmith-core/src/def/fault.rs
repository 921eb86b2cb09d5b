//! What is wrong with a text of the definition language, and where.

use std::ops::Range;

use crate::Error;

/// A fault in a text, at a range of its bytes that begins and ends between characters.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) message: String,
    pub(super) span: Range<usize>,
}

impl Fault {
    pub(super) fn new(message: impl Into<String>, span: Range<usize>) -> Fault {
        Fault { message: message.into(), span }
    }

    /// The error that names `op` and shows the line of `text` with a caret under the place.
    pub(super) fn render(&self, op: &str, text: &str) -> Error {
        self.error(text).with_op(op)
    }

    /// The same without an op.
    pub(super) fn error(&self, text: &str) -> Error {
        Error::invalid_argument(format!("{}\n{}", self.message, point_at(text, &self.span)))
    }
}

/// The line of `text` where `span` begins, indented, and under it a caret for each character of the span.
fn point_at(text: &str, span: &Range<usize>) -> String {
    let start = text[..span.start].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[span.start..].find('\n').map_or(text.len(), |length| span.start + length);
    let line: String = text[start..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let column = text[start..span.start].chars().count();
    let width = text[span.start..span.end.clamp(span.start, end)].chars().count().max(1);
    format!("    {}\n    {}{}", line.trim_end(), " ".repeat(column), "^".repeat(width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carets_stand_under_the_characters_of_the_span() {
        assert_eq!(point_at("a: flaot", &(3..8)), "    a: flaot\n       ^^^^^");
        assert_eq!(point_at("a:", &(2..2)), "    a:\n      ^");
        assert_eq!(point_at("é: x", &(4..5)), "    é: x\n       ^");
        assert_eq!(point_at("a:\n\tb c\n", &(4..5)), "     b c\n     ^");
    }
}
