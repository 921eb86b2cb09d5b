//! Lists, words and messages of protocol buffers' text format, of which values are made.

use std::ops::Range;
use std::sync::Arc;

use super::fault::Fault;
use super::lexer::{Cursor, Kind, parse_bool};
use super::suggest::did_you_mean;
use crate::DType;
use crate::attr::PartialShape;

/// `[` items separated by commas `]`.
pub(super) fn list<'a, T>(
    cursor: &mut Cursor<'a>,
    mut item: impl FnMut(&mut Cursor<'a>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    cursor.expect("[", "before the elements of a list")?;
    let mut items = Vec::new();
    if cursor.eat("]") {
        return Ok(items);
    }
    loop {
        items.push(item(cursor)?);
        if cursor.eat("]") {
            return Ok(items);
        }
        cursor.expect(",", "or `]` after an element")?;
    }
}

/// A quoted string that is UTF-8.
pub(super) fn string(cursor: &mut Cursor) -> Result<Arc<str>, Fault> {
    let token = cursor.peek().clone();
    let Kind::Text(content) = token.kind else {
        return Err(cursor.expected("a string in quotes"));
    };
    cursor.take();
    let text = String::from_utf8(content).map_err(|_| Fault::new("this string is not UTF-8", token.span))?;
    Ok(text.into())
}

pub(super) fn boolean(cursor: &mut Cursor) -> Result<bool, Fault> {
    if cursor.peek().kind == Kind::End {
        return Err(cursor.expected("`true` or `false`"));
    }
    parse_bool(cursor.text, &cursor.take().span)
}

pub(super) fn dtype(cursor: &mut Cursor) -> Result<DType, Fault> {
    let (name, span) = cursor.name("a dtype")?;
    DType::parse(name).ok_or_else(|| unknown_dtype(name, span, &[]))
}

/// The fault that `name` is not a dtype, nor any of the `others` that could stand there.
pub(super) fn unknown_dtype(name: &str, span: Range<usize>, others: &[&str]) -> Fault {
    let proto_names = DType::ALL.map(DType::proto_name);
    let names = DType::ALL.iter().map(|dtype| dtype.name()).chain(["float", "double", "half"]);
    let hint =
        did_you_mean(name, names.chain(proto_names.iter().map(String::as_str)).chain(others.iter().copied()));
    Fault::new(format!("`{name}` is not a dtype{hint}"), span)
}

/// Takes a message `{ field: value … }`, giving each field's name to `field`, which takes the value.
///
/// Before a message the colon may be left out, values of a repeated field may be listed in brackets, and a
/// comma or semicolon may follow a field.
pub(super) fn message<'a>(
    cursor: &mut Cursor<'a>,
    what: &str,
    mut field: impl FnMut(&mut Cursor<'a>, &'a str, Range<usize>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    cursor.expect("{", &format!("before {what}"))?;
    while !cursor.eat("}") {
        let (name, span) = cursor.name(&format!("a field of {what} or `}}`"))?;
        let colon = cursor.eat(":");
        if !colon && cursor.peek_text() != "{" {
            return Err(cursor.expected(&format!("`:` after `{name}`")));
        }
        if colon && cursor.peek_text() == "[" {
            list(cursor, |cursor| field(cursor, name, span.clone()))?;
        } else {
            field(cursor, name, span)?;
        }
        let _ = cursor.eat(",") || cursor.eat(";");
    }
    Ok(())
}

/// `{ dim { size: 1 } dim { size: -1 } }`, or `{ unknown_rank: true }`.
pub(super) fn shape(cursor: &mut Cursor) -> Result<PartialShape, Fault> {
    let start = cursor.peek().span.start;
    let mut dims = Vec::new();
    let mut unknown_rank = false;
    message(cursor, "a shape", |cursor, name, span| match name {
        "dim" => {
            dims.push(dim(cursor)?);
            Ok(())
        }
        "unknown_rank" => {
            unknown_rank = boolean(cursor)?;
            Ok(())
        }
        _ => Err(unknown_field("a shape", name, span, &["dim", "unknown_rank"])),
    })?;
    if unknown_rank && !dims.is_empty() {
        let span = start..cursor.previous_end();
        return Err(Fault::new("a shape of unknown rank has no dims", span));
    }
    Ok((!unknown_rank).then_some(dims))
}

/// `{ size: 3 }`; a size of -1 is unknown.
fn dim(cursor: &mut Cursor) -> Result<Option<u64>, Fault> {
    let mut size = Some(0);
    message(cursor, "a dim", |cursor, name, span| match name {
        "size" => {
            let (value, span) = cursor.int("the size of a dim")?;
            size = match value {
                -1 => None,
                _ => Some(u64::try_from(value).map_err(|_| {
                    let message =
                        format!("the size of a dim is at least 0, or -1 where unknown, got {value}");
                    Fault::new(message, span)
                })?),
            };
            Ok(())
        }
        "name" => string(cursor).map(drop),
        _ => Err(unknown_field("a dim", name, span, &["size", "name"])),
    })?;
    Ok(size)
}

/// The fault that a message has no field of this name.
pub(super) fn unknown_field(what: &str, name: &str, span: Range<usize>, known: &[&str]) -> Fault {
    let hint = did_you_mean(name, known.iter().copied());
    Fault::new(format!("{what} has no field `{name}`{hint}"), span)
}
