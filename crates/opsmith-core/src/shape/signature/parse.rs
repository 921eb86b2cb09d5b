//! From the text of a shape signature to its compiled form.

use super::{ArgShape, Computed, Item, ShapeSignature};
use crate::shape::SignatureError;
use crate::shape::parse::{Ast, BinaryOp, Cursor, Name};

type Parsed<T> = Result<T, SignatureError>;

/// One argument as written.
struct RawArg {
    start: usize,
    end: usize,
    /// Where its `...` stands, if it has one.
    batch: Option<usize>,
    dims: Vec<RawDim>,
}

struct RawDim {
    start: usize,
    end: usize,
    /// None for `?`.
    value: Option<Ast<Name>>,
}

/// `attrs` are the names of the op's int attributes.
pub(super) fn parse(text: &str, attrs: &[&str]) -> Parsed<ShapeSignature> {
    let mut cursor = Cursor::new(text);
    let inputs = args(&mut cursor)?;
    if !cursor.eat("->") {
        return Err(cursor.unexpected(if inputs.is_empty() { "`(` or `->`" } else { "`,` or `->`" }));
    }
    if let Some(dim) = inputs.iter().flat_map(|arg| &arg.dims).find(|dim| dim.value.is_none()) {
        let message = "only a dim of an output can be `?`; give the dim of an input a name";
        return Err(SignatureError::new(dim.start, 1, message));
    }
    let outputs = args(&mut cursor)?;
    if !cursor.is_at_end() {
        return Err(cursor.unexpected(if outputs.is_empty() { "`(`" } else { "`,` or the end" }));
    }
    let batched = inputs.iter().any(|arg| arg.batch.is_some());
    if let Some(offset) = outputs.iter().find_map(|arg| arg.batch.filter(|_| !batched)) {
        return Err(SignatureError::new(offset, 3, "an output has `...` but no input does"));
    }
    Compiler::new(text, attrs, &inputs).compile(inputs, outputs)
}

fn args(cursor: &mut Cursor<'_>) -> Parsed<Vec<RawArg>> {
    let mut args = vec![];
    if cursor.peek("(") {
        args.push(arg(cursor)?);
        while cursor.eat(",") {
            args.push(arg(cursor)?);
        }
    }
    Ok(args)
}

fn arg(cursor: &mut Cursor<'_>) -> Parsed<RawArg> {
    let start = cursor.offset();
    cursor.expect("(")?;
    let mut arg = RawArg { start, end: start, batch: None, dims: vec![] };
    let mut first = true;
    while !cursor.eat(")") {
        if !first && !cursor.eat(",") {
            return Err(cursor.unexpected("`,` or `)`"));
        }
        let start = cursor.offset();
        if cursor.eat("...") {
            if !first {
                return Err(SignatureError::new(start, 3, "`...` can only come first"));
            }
            arg.batch = Some(start);
        } else {
            let value = if cursor.eat("?") { None } else { Some(cursor.expr()?) };
            arg.dims.push(RawDim { start, end: cursor.last_end(), value });
        }
        first = false;
    }
    arg.end = cursor.last_end();
    Ok(arg)
}

/// The factors of a product, from left to right.
fn factors<N>(value: &Ast<N>) -> Vec<&Ast<N>> {
    match value {
        Ast::Binary(BinaryOp::Mul, operands) => {
            [&operands.0, &operands.1].into_iter().flat_map(factors).collect()
        }
        value => vec![value],
    }
}

/// The dim of which an input's dim is a multiple: the only factor that is neither a number nor an attribute.
fn multiple_of<'a>(value: &'a Ast<Name>, attrs: &[&str]) -> Option<&'a Name> {
    let is_known = |factor: &&Ast<Name>| match factor {
        Ast::Int(_) => true,
        Ast::Name(name) => attrs.contains(&&*name.text),
        Ast::Binary(..) => false,
    };
    let mut others = factors(value).into_iter().filter(|factor| !is_known(factor));
    match (others.next(), others.next()) {
        (Some(Ast::Name(name)), None) => Some(name),
        _ => None,
    }
}

struct Compiler<'a> {
    text: &'a str,
    dims: Vec<String>,
    /// How many of the dims stand alone; the others are known by a multiple of them.
    alone: usize,
    attrs: Vec<Name>,
}

impl<'a> Compiler<'a> {
    fn new(text: &'a str, attrs: &[&str], inputs: &[RawArg]) -> Compiler<'a> {
        let values = || inputs.iter().flat_map(|arg| &arg.dims).filter_map(|dim| dim.value.as_ref());
        let alone = values().filter_map(|value| if let Ast::Name(name) = value { Some(name) } else { None });
        let mut dims: Vec<String> = vec![];
        for name in alone {
            if !dims.contains(&name.text) {
                dims.push(name.text.clone());
            }
        }
        let alone = dims.len();
        for name in values().filter_map(|value| multiple_of(value, attrs)) {
            if !dims.contains(&name.text) {
                dims.push(name.text.clone());
            }
        }
        Compiler { text, dims, alone, attrs: vec![] }
    }

    fn compile(mut self, inputs: Vec<RawArg>, outputs: Vec<RawArg>) -> Parsed<ShapeSignature> {
        let inputs = inputs.into_iter().map(|arg| self.arg(arg)).collect::<Parsed<_>>()?;
        let outputs = outputs.into_iter().map(|arg| self.arg(arg)).collect::<Parsed<_>>()?;
        Ok(ShapeSignature { text: self.text.to_owned(), inputs, outputs, dims: self.dims, attrs: self.attrs })
    }

    fn arg(&mut self, arg: RawArg) -> Parsed<ArgShape> {
        let dims = arg.dims.into_iter().map(|dim| self.dim(dim)).collect::<Parsed<_>>()?;
        Ok(ArgShape { text: self.text[arg.start..arg.end].to_owned(), batch: arg.batch.is_some(), dims })
    }

    fn dim(&mut self, dim: RawDim) -> Parsed<Item> {
        let Some(value) = dim.value else { return Ok(Item::Unknown) };
        let mut is_constant = true;
        value.visit_names(&mut |_| is_constant = false);
        if is_constant {
            let size = value.to_int(&|_| 0).and_then(|size| u64::try_from(size).ok());
            let message = "a dim must be from 0 to 2^63 - 1";
            return size
                .map(Item::Fixed)
                .ok_or_else(|| SignatureError::new(dim.start, dim.end - dim.start, message));
        }
        let value = value.map(&mut |name| Ok(self.slot(name)))?;
        Ok(match value {
            Ast::Name(slot) if slot < self.dims.len() => Item::Slot(slot),
            value => {
                let gives = self.gives(&value);
                Item::Computed(Computed { text: self.text[dim.start..dim.end].to_owned(), value, gives })
            }
        })
    }

    /// The dim that is known by this multiple of it, with the other factors.
    fn gives(&self, value: &Ast<usize>) -> Option<(usize, Ast<usize>)> {
        let is_given = |factor: &&Ast<usize>| matches!(factor, Ast::Name(slot) if (self.alone..self.dims.len()).contains(slot));
        let (given, rest): (Vec<_>, Vec<_>) = factors(value).into_iter().partition(is_given);
        let [Ast::Name(slot)] = given[..] else { return None };
        let product = |one, other| Ast::Binary(BinaryOp::Mul, Box::new((one, other)));
        rest.into_iter().cloned().reduce(product).map(|factor| (*slot, factor))
    }

    fn slot(&mut self, name: Name) -> usize {
        if let Some(slot) = self.dims.iter().position(|dim| *dim == name.text) {
            return slot;
        }
        let known = self.attrs.iter().position(|attr| attr.text == name.text);
        self.dims.len()
            + known.unwrap_or_else(|| {
                self.attrs.push(name);
                self.attrs.len() - 1
            })
    }
}
