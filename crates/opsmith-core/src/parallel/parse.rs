//! From the text of a rule to its parts.

use super::{Argument, Dots, Item, Parallel, View};
use crate::shape::SignatureError;
use crate::shape::parse::Cursor;

type Parsed<T> = Result<T, SignatureError>;

pub(super) fn parse(text: &str) -> Parsed<Parallel> {
    let mut cursor = Cursor::new(text);
    let inputs = arguments(&mut cursor)?;
    cursor.expect("->")?;
    let outputs = arguments(&mut cursor)?;
    if !cursor.is_at_end() {
        return Err(cursor.unexpected("`,` or the end"));
    }
    Ok(Parallel { inputs, outputs })
}

fn arguments(cursor: &mut Cursor<'_>) -> Parsed<Vec<Argument>> {
    let mut arguments = Vec::new();
    if cursor.peek("(") || cursor.peek("+") {
        arguments.push(argument(cursor)?);
        while cursor.eat(",") {
            arguments.push(argument(cursor)?);
        }
    }
    Ok(arguments)
}

fn argument(cursor: &mut Cursor<'_>) -> Parsed<Argument> {
    let mut argument = Argument { is_sum: cursor.eat("+"), ..Argument::default() };
    cursor.expect("(")?;
    let mut first = true;
    while !cursor.eat(")") {
        if cursor.eat(";") {
            argument.swapped = Some(cursor.name("an attribute")?.text);
            cursor.expect(")")?;
            break;
        }
        if !first {
            cursor.expect(",")?;
        }
        first = false;
        item(cursor, &mut argument)?;
    }
    Ok(argument)
}

fn item(cursor: &mut Cursor<'_>, argument: &mut Argument) -> Parsed<()> {
    let start = cursor.offset();
    let name = match cursor.peek("...") {
        true => String::new(),
        false => cursor.name("a name, `_`, `...` or `)`")?.text,
    };
    let is_held = name == "_";
    if cursor.eat("...") {
        if argument.dots.is_some() {
            let message = "an argument may have `...` only once: otherwise it is not known how many dims each \
                stands for";
            return Err(SignatureError::new(start, cursor.last_end() - start, message));
        }
        let axes = (!is_held).then_some(name);
        let view = if is_held { View::Whole } else { view(cursor)? };
        argument.dots = Some(Dots { axes, view });
        return Ok(());
    }
    let item = match is_held {
        true if cursor.eat("*") => Item::HeldMany(cursor.name("an attribute")?.text),
        true => Item::Held,
        false => Item::Axis(name),
    };
    let side = if argument.dots.is_some() { &mut argument.back } else { &mut argument.front };
    side.push(item);
    Ok(())
}

fn view(cursor: &mut Cursor<'_>) -> Parsed<View> {
    let attr = |cursor: &mut Cursor<'_>| cursor.name("an attribute").map(|name| name.text);
    Ok(if cursor.eat("but ") {
        View::But(attr(cursor)?)
    } else if cursor.eat("less ") {
        let at = attr(cursor)?;
        View::Less { at, unless: if cursor.eat("unless ") { Some(attr(cursor)?) } else { None } }
    } else if cursor.eat("by ") {
        View::By(attr(cursor)?)
    } else if cursor.eat("with ") {
        let others = cursor.name("a name")?.text;
        cursor.expect("...")?;
        cursor.expect("at ")?;
        View::With { others, at: attr(cursor)? }
    } else {
        View::Whole
    })
}
