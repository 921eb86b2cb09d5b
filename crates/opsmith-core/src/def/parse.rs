//! The specs of attributes and arguments: `preserve_index: int = 0`, `values: N * T`.

use std::ops::{Bound, Range};

use super::fault::Fault;
use super::lexer::{Cursor, Kind};
use super::message::{dtype, string, unknown_dtype};
use super::model::{Allowed, AttrDef};
use super::suggest::did_you_mean;
use super::value::value;
use crate::attr::{AttrBase, AttrType, AttrValue};
use crate::dtype::sets;
use crate::{DType, Error};

/// An attribute's spec. What other parts of the definition decide is not in it yet: whether the attribute is
/// inferred, and the least count that its use implies.
pub(super) struct ParsedAttr {
    pub(super) def: AttrDef,
    pub(super) name_span: Range<usize>,
    /// Where the default value stands; empty if there is none.
    pub(super) default_span: Range<usize>,
}

/// An argument's spec, whose names are not looked up yet.
pub(super) struct ParsedArg {
    pub(super) name: String,
    pub(super) name_span: Range<usize>,
    pub(super) is_ref: bool,
    /// Where `N` of `N * T` stands.
    pub(super) count: Option<Range<usize>>,
    /// Where the dtype or the attribute that gives it stands.
    pub(super) dtype: Range<usize>,
}

/// Parses `name: type constraint = default`.
pub(super) fn attr(text: &str) -> Result<ParsedAttr, Fault> {
    let mut cursor = Cursor::new(text)?;
    let (name, name_span) = spec_name(&mut cursor, "an attribute")?;
    let is_list = cursor.peek_text() == "list";
    if is_list {
        cursor.take();
        cursor.expect("(", "after `list`")?;
    }
    let (base, allowed) = type_or_set(&mut cursor)?;
    if is_list {
        cursor.expect(")", "after the type of the list's elements")?;
    }
    let ty = AttrType { base, list: is_list };
    let mut def = AttrDef::new(name, ty);
    def.allowed = allowed;
    bounds(&mut cursor, &mut def)?;
    let mut default_span = 0..0;
    if cursor.eat("=") {
        let start = cursor.peek().span.start;
        def.default = Some(value(&mut cursor, ty)?);
        default_span = start..cursor.previous_end();
    }
    cursor.finish()?;
    Ok(ParsedAttr { def, name_span, default_span })
}

impl AttrDef {
    /// The value that a text stands for, written as a default is in a definition: `[2, 3]`, `'foo'`, `DT_INT32`.
    ///
    /// # Errors
    /// `InvalidArgument` with a caret under what is not of the attribute's type; the constraints are not checked.
    pub fn parse_value(&self, text: &str) -> Result<AttrValue, Error> {
        let parse = || -> Result<AttrValue, Fault> {
            let mut cursor = Cursor::new(text)?;
            let found = value(&mut cursor, self.ty)?;
            cursor.finish()?;
            Ok(found)
        };
        parse().map_err(|fault| fault.error(text).within(format_args!("cannot be read as {}", self.ty)))
    }
}

/// Parses `name: T`, `name: N * T`, `name: Ref(T)` or `name: Ref(N * T)`.
pub(super) fn arg(text: &str) -> Result<ParsedArg, Fault> {
    let mut cursor = Cursor::new(text)?;
    let (name, name_span) = spec_name(&mut cursor, "an argument")?;
    let (_, mut first) = cursor.name("a dtype, an attribute or `Ref(…)`")?;
    let is_ref = &text[first.clone()] == "Ref" && cursor.eat("(");
    if is_ref {
        first = cursor.name("a dtype or an attribute")?.1;
    }
    let (count, dtype) = if cursor.eat("*") {
        let (_, dtype) = cursor.name("a dtype or an attribute after `*`")?;
        (Some(first), dtype)
    } else {
        (None, first)
    };
    if is_ref {
        cursor.expect(")", "after what `Ref` holds")?;
    }
    cursor.finish()?;
    Ok(ParsedArg { name: name.to_owned(), name_span, is_ref, count, dtype })
}

/// The name and the colon that every spec begins with.
fn spec_name<'a>(cursor: &mut Cursor<'a>, what: &str) -> Result<(&'a str, Range<usize>), Fault> {
    let (name, span) = cursor.name(&format!("the name of {what}"))?;
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(Fault::new("a name begins with a letter", span));
    }
    cursor.expect(":", "after the name")?;
    Ok((name, span))
}

/// A type, or a set of values that implies it.
fn type_or_set(cursor: &mut Cursor) -> Result<(AttrBase, Option<Allowed>), Fault> {
    if cursor.peek_text() == "{" {
        let allowed = set(cursor)?;
        let base = match &allowed {
            Allowed::Strings(_) => AttrBase::String,
            Allowed::Ints(_) => AttrBase::Int,
            Allowed::Types(_) => AttrBase::Type,
        };
        return Ok((base, Some(allowed)));
    }
    let (name, span) = cursor.name("a type or a set of values")?;
    let base = match (AttrBase::ALL.iter().find(|base| base.name() == name), type_set(name)) {
        (Some(base), _) => *base,
        (None, Some(types)) => return Ok((AttrBase::Type, Some(Allowed::Types(types.to_vec())))),
        (None, None) => return Err(unknown_type(name, span)),
    };
    Ok((base, None))
}

fn unknown_type(name: &str, span: Range<usize>) -> Fault {
    if name == "list" {
        return Fault::new("a list cannot hold lists", span);
    }
    let message = match DType::parse(name) {
        Some(_) => {
            format!("`{name}` is a dtype, not the type of an attribute; a set of dtypes stands in braces")
        }
        None => {
            let names = AttrBase::ALL.iter().map(|base| base.name());
            let known = names.chain(["list", "numbertype", "realnumbertype", "quantizedtype"]);
            format!("`{name}` is not a type{}", did_you_mean(name, known))
        }
    };
    Fault::new(message, span)
}

/// The dtypes that a word of the language stands for.
fn type_set(name: &str) -> Option<&'static [DType]> {
    match name {
        "numbertype" | "numerictype" => Some(sets::NUMBER_TYPE),
        "realnumbertype" | "realnumerictype" => Some(sets::REAL_NUMBER),
        "quantizedtype" => Some(sets::QUANTIZED),
        _ => None,
    }
}

/// `{'apple', 'orange'}`, `{1, 2, 4}` or `{numbertype, bool}`.
fn set(cursor: &mut Cursor) -> Result<Allowed, Fault> {
    cursor.expect("{", "before a set of values")?;
    let allowed = match cursor.peek().kind {
        Kind::Text(_) => Allowed::Strings(members(cursor, |cursor| Ok(vec![string(cursor)?.to_string()]))?),
        Kind::Number => Allowed::Ints(members(cursor, |cursor| Ok(vec![cursor.int("an integer")?.0]))?),
        Kind::Name => Allowed::Types(members(cursor, dtypes)?),
        _ => return Err(cursor.expected("a dtype, a string or an integer in the set")),
    };
    Ok(allowed)
}

/// The members of a set up to its closing brace, each once. One written item may stand for several.
fn members<'a, T: PartialEq>(
    cursor: &mut Cursor<'a>,
    item: impl Fn(&mut Cursor<'a>) -> Result<Vec<T>, Fault>,
) -> Result<Vec<T>, Fault> {
    let mut members = Vec::new();
    loop {
        for member in item(cursor)? {
            if !members.contains(&member) {
                members.push(member);
            }
        }
        if cursor.eat("}") {
            return Ok(members);
        }
        cursor.expect(",", "or `}` in the set")?;
    }
}

/// A dtype, or the word for a set of them.
fn dtypes(cursor: &mut Cursor) -> Result<Vec<DType>, Fault> {
    if let Some(types) = type_set(cursor.peek_text()) {
        cursor.take();
        return Ok(types.to_vec());
    }
    if cursor.peek().kind != Kind::Name {
        return Err(cursor.expected("a dtype"));
    }
    match DType::parse(cursor.peek_text()) {
        Some(_) => Ok(vec![dtype(cursor)?]),
        None => {
            let known = ["numbertype", "numerictype", "realnumbertype", "quantizedtype"];
            Err(unknown_dtype(cursor.peek_text(), cursor.peek().span.clone(), &known))
        }
    }
}

/// `>= n` or `> n`, and `<= n` or `< n`: the bounds of a number, or the least length of a list.
fn bounds(cursor: &mut Cursor, def: &mut AttrDef) -> Result<(), Fault> {
    let sign = cursor.peek().span.clone();
    if def.ty.list {
        if cursor.eat(">=") {
            let (length, span) = cursor.int("the least length of the list")?;
            let length = usize::try_from(length)
                .map_err(|_| Fault::new("the least length of a list is at least 0", span))?;
            def.min_len = Some(length);
        }
        return Ok(());
    }
    let is_number = matches!(def.ty.base, AttrBase::Int | AttrBase::Float) && def.allowed.is_none();
    if !is_number && [">=", ">", "<=", "<"].contains(&cursor.peek_text()) {
        let what = if def.allowed.is_some() { "a set" } else { def.ty.base.name() };
        return Err(Fault::new(format!("a bound does not apply to {what}"), sign));
    }
    def.min = bound(cursor, def.ty, [">=", ">"])?;
    def.max = bound(cursor, def.ty, ["<=", "<"])?;
    if def.bounds_are_empty() {
        return Err(Fault::new("no value is within these bounds", sign.start..cursor.previous_end()));
    }
    Ok(())
}

/// A bound, if one of the signs is next: the first includes the number that follows it, the second does not.
fn bound(cursor: &mut Cursor, ty: AttrType, signs: [&str; 2]) -> Result<Bound<AttrValue>, Fault> {
    let sign = cursor.peek().span.clone();
    let is_excluded = cursor.eat(signs[1]);
    if !is_excluded && !cursor.eat(signs[0]) {
        return Ok(Bound::Unbounded);
    }
    if is_excluded && ty.base == AttrBase::Int {
        let message =
            format!("`{}` bounds floats; of an int write `{}` and its last number", signs[1], signs[0]);
        return Err(Fault::new(message, sign));
    }
    let span = cursor.peek().span.clone();
    match value(cursor, ty)? {
        AttrValue::Float(bound) if bound.is_nan() => Err(Fault::new("a bound cannot be NaN", span)),
        bound if is_excluded => Ok(Bound::Excluded(bound)),
        bound => Ok(Bound::Included(bound)),
    }
}
