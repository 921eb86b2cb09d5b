//! Reading the text forms of dims: one small parser for shapes, shape signatures and tests.

use std::fmt;

use super::Expr;
use crate::{Error, Result};

/// What is wrong in the text of a shape or of a shape signature, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureError {
    /// The byte at which the offending part begins.
    pub offset: usize,
    /// The length of the offending part in bytes; 0 at the end of the text.
    pub len: usize,
    /// What is wrong with it.
    pub message: String,
}

impl SignatureError {
    pub(crate) fn new(offset: usize, len: usize, message: impl Into<String>) -> SignatureError {
        SignatureError { offset, len, message: message.into() }
    }

    /// The error for a person: the message, the text, and a caret under the place.
    pub fn render(&self, text: &str) -> String {
        let column = text.get(..self.offset).map_or(0, |before| before.chars().count());
        let carets =
            text.get(self.offset..self.offset + self.len).map_or(1, |part| part.chars().count().max(1));
        format!("{}\n  {text}\n  {}{}", self.message, " ".repeat(column), "^".repeat(carets))
    }

    pub(crate) fn into_error(self, text: &str) -> Error {
        Error::invalid_argument(self.render(text))
    }
}

impl fmt::Display for SignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.message, self.offset)
    }
}

impl std::error::Error for SignatureError {}

type Parsed<T> = std::result::Result<T, SignatureError>;

/// An operation of two integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BinaryOp {
    Add,
    Sub,
    Mul,
    FloorDiv,
    Min,
    Max,
}

/// Arithmetic as written, its names of type `N`: text at first, slots of a signature later.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ast<N> {
    Int(i64),
    Name(N),
    Binary(BinaryOp, Box<(Ast<N>, Ast<N>)>),
}

/// A name in the text and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) offset: usize,
}

impl<N> Ast<N> {
    /// The same arithmetic with other names.
    pub(crate) fn map<M, E>(self, name: &mut dyn FnMut(N) -> Result<M, E>) -> Result<Ast<M>, E> {
        Ok(match self {
            Ast::Int(value) => Ast::Int(value),
            Ast::Name(own) => Ast::Name(name(own)?),
            Ast::Binary(op, operands) => {
                let (left, right) = *operands;
                Ast::Binary(op, Box::new((left.map(name)?, right.map(name)?)))
            }
        })
    }

    /// The value as an expression; `None` where `lookup` knows none for a name.
    pub(crate) fn to_expr(&self, lookup: &dyn Fn(&N) -> Option<Expr>) -> Result<Option<Expr>> {
        let (op, operands) = match self {
            Ast::Int(value) => return Ok(Some(Expr::constant(*value))),
            Ast::Name(name) => return Ok(lookup(name)),
            Ast::Binary(op, operands) => (op, operands),
        };
        let (Some(left), Some(right)) = (operands.0.to_expr(lookup)?, operands.1.to_expr(lookup)?) else {
            return Ok(None);
        };
        Ok(Some(match op {
            BinaryOp::Add => left.plus(&right)?,
            BinaryOp::Sub => left.minus(&right)?,
            BinaryOp::Mul => left.times(&right)?,
            BinaryOp::FloorDiv => left.floor_div(&right)?,
            BinaryOp::Min => left.minimum(&right),
            BinaryOp::Max => left.maximum(&right),
        }))
    }

    /// The value in plain integers; `None` on overflow and on division by what is not positive.
    pub(crate) fn to_int(&self, lookup: &dyn Fn(&N) -> i64) -> Option<i64> {
        let (op, operands) = match self {
            Ast::Int(value) => return Some(*value),
            Ast::Name(name) => return Some(lookup(name)),
            Ast::Binary(op, operands) => (op, operands),
        };
        let (left, right) = (operands.0.to_int(lookup)?, operands.1.to_int(lookup)?);
        match op {
            BinaryOp::Add => left.checked_add(right),
            BinaryOp::Sub => left.checked_sub(right),
            BinaryOp::Mul => left.checked_mul(right),
            BinaryOp::FloorDiv => (right > 0).then(|| left.div_euclid(right)),
            BinaryOp::Min => Some(left.min(right)),
            BinaryOp::Max => Some(left.max(right)),
        }
    }

    pub(crate) fn visit_names(&self, visit: &mut dyn FnMut(&N)) {
        match self {
            Ast::Int(_) => {}
            Ast::Name(name) => visit(name),
            Ast::Binary(_, operands) => {
                operands.0.visit_names(visit);
                operands.1.visit_names(visit);
            }
        }
    }
}

/// The deepest nesting of parentheses; text may come from elsewhere, and must not exhaust the stack.
const MAX_DEPTH: usize = 64;

/// The most operations, each of which may be inside of the next.
const MAX_OPERATIONS: usize = 1024;

/// A place in a text that is being read.
pub(crate) struct Cursor<'a> {
    text: &'a str,
    offset: usize,
    depth: usize,
    operations: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Cursor<'a> {
        Cursor { text, offset: 0, depth: 0, operations: 0 }
    }

    /// The offset of the next character that is not white space.
    pub(crate) fn offset(&mut self) -> usize {
        let rest = &self.text[self.offset..];
        self.offset += rest.len() - rest.trim_start().len();
        self.offset
    }

    /// The offset after the last character that was read, white space aside.
    pub(crate) fn last_end(&self) -> usize {
        self.text[..self.offset].trim_end().len()
    }

    fn rest(&mut self) -> &'a str {
        let offset = self.offset();
        &self.text[offset..]
    }

    pub(crate) fn is_at_end(&mut self) -> bool {
        self.rest().is_empty()
    }

    pub(crate) fn peek(&mut self, token: &str) -> bool {
        self.rest().starts_with(token)
    }

    /// Steps over `token` if it is next.
    pub(crate) fn eat(&mut self, token: &str) -> bool {
        let found = self.peek(token);
        self.offset += if found { token.len() } else { 0 };
        found
    }

    pub(crate) fn expect(&mut self, token: &str) -> Parsed<()> {
        if self.eat(token) { Ok(()) } else { Err(self.unexpected(&format!("`{token}`"))) }
    }

    /// The error that says what was expected here, and what is here instead.
    pub(crate) fn unexpected(&mut self, expected: &str) -> SignatureError {
        let offset = self.offset();
        match self.rest().chars().next() {
            Some(found) => {
                SignatureError::new(offset, found.len_utf8(), format!("expected {expected}, found `{found}`"))
            }
            None => SignatureError::new(offset, 0, format!("expected {expected}, found the end")),
        }
    }

    fn take_while(&mut self, accept: fn(char) -> bool) -> (usize, &'a str) {
        let offset = self.offset();
        let rest = self.rest();
        let len = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        self.offset += len;
        (offset, &rest[..len])
    }

    /// A sum or difference of products.
    pub(crate) fn expr(&mut self) -> Parsed<Ast<Name>> {
        let mut left = self.product()?;
        loop {
            let op = if self.peek("->") {
                return Ok(left);
            } else if self.eat("+") {
                BinaryOp::Add
            } else if self.eat("-") {
                BinaryOp::Sub
            } else {
                return Ok(left);
            };
            let right = self.product()?;
            left = self.binary(op, left, right)?;
        }
    }

    fn product(&mut self) -> Parsed<Ast<Name>> {
        let mut left = self.primary()?;
        loop {
            let op = if self.eat("*") {
                BinaryOp::Mul
            } else if self.eat("//") {
                BinaryOp::FloorDiv
            } else {
                return Ok(left);
            };
            let right = self.primary()?;
            left = self.binary(op, left, right)?;
        }
    }

    fn primary(&mut self) -> Parsed<Ast<Name>> {
        if self.peek("(") {
            return self.nested(|cursor| cursor.expr());
        }
        let mut signs = 0;
        while self.eat("-") {
            signs += 1;
        }
        if signs > 0 {
            let operand = self.primary()?;
            return if signs % 2 == 0 {
                Ok(operand)
            } else {
                self.binary(BinaryOp::Sub, Ast::Int(0), operand)
            };
        }
        let (offset, digits) = self.take_while(|c| c.is_ascii_digit());
        if !digits.is_empty() {
            return match digits.parse() {
                Ok(value) => Ok(Ast::Int(value)),
                Err(_) => Err(SignatureError::new(offset, digits.len(), "the number overflows 64 bits")),
            };
        }
        let name = self.name("a number or a name")?;
        match &name.text[..] {
            "min" if self.peek("(") => self.call(BinaryOp::Min),
            "max" if self.peek("(") => self.call(BinaryOp::Max),
            _ => Ok(Ast::Name(name)),
        }
    }

    fn binary(&mut self, op: BinaryOp, left: Ast<Name>, right: Ast<Name>) -> Parsed<Ast<Name>> {
        self.operations += 1;
        if self.operations > MAX_OPERATIONS {
            let message = format!("there are more than {MAX_OPERATIONS} operations");
            return Err(SignatureError::new(self.last_end(), 0, message));
        }
        Ok(Ast::Binary(op, Box::new((left, right))))
    }

    fn nested(&mut self, inside: impl FnOnce(&mut Self) -> Parsed<Ast<Name>>) -> Parsed<Ast<Name>> {
        let offset = self.offset();
        self.expect("(")?;
        if self.depth == MAX_DEPTH {
            return Err(SignatureError::new(offset, 1, "the expression is nested too deeply"));
        }
        self.depth += 1;
        let ast = inside(self)?;
        self.depth -= 1;
        self.expect(")")?;
        Ok(ast)
    }

    fn call(&mut self, op: BinaryOp) -> Parsed<Ast<Name>> {
        self.nested(|cursor| {
            let mut left = cursor.expr()?;
            while cursor.eat(",") {
                let right = cursor.expr()?;
                left = cursor.binary(op, left, right)?;
            }
            Ok(left)
        })
    }

    /// A name: a letter or underscore, then letters, digits and underscores.
    pub(crate) fn name(&mut self, expected: &str) -> Parsed<Name> {
        if !self.rest().starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return Err(self.unexpected(expected));
        }
        let (offset, text) = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        Ok(Name { text: text.to_owned(), offset })
    }
}
