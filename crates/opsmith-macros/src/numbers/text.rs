//! Expressions as messages show them.

use quote::ToTokens;
use syn::{BinOp, Expr, Lit, UnOp};

/// The most characters of an expression that a message repeats.
const LONGEST: usize = 32;

/// A number that is written out, or arithmetic of such numbers.
pub(super) struct Literal {
    text: String,
    pub(super) is_int: bool,
}

impl Literal {
    pub(super) fn of(expr: &Expr) -> Option<Literal> {
        match expr {
            Expr::Paren(inner) => Literal::of(&inner.expr),
            Expr::Group(inner) => Literal::of(&inner.expr),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => {
                let Literal { text, is_int } = Literal::of(&unary.expr)?;
                Some(Literal { text: format!("-{text}"), is_int })
            }
            Expr::Binary(binary) if is_arithmetic(&binary.op) => {
                let (left, right) = (Literal::of(&binary.left)?, Literal::of(&binary.right)?);
                let text = format!("{} {} {}", left.text, binary.op.to_token_stream(), right.text);
                Some(Literal { text, is_int: left.is_int && right.is_int })
            }
            Expr::Lit(literal) => match &literal.lit {
                Lit::Int(int) => Some(Literal { text: int.base10_digits().to_owned(), is_int: true }),
                Lit::Float(float) => Some(Literal { text: float.base10_digits().to_owned(), is_int: false }),
                _ => None,
            },
            _ => None,
        }
    }

    /// As it was written, less a suffix.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// As a float.
    pub(super) fn float(&self) -> String {
        let is_plain = self.text.chars().all(|c| c.is_ascii_digit() || c == '-');
        if is_plain { format!("{}.0", self.text) } else { self.text.clone() }
    }
}

/// Whether it is `+`, `-`, `*` or `/`.
pub(super) fn is_arithmetic(op: &BinOp) -> bool {
    matches!(op, BinOp::Add(_) | BinOp::Sub(_) | BinOp::Mul(_) | BinOp::Div(_))
}

/// `+` of `+=`, and so on.
pub(super) fn assigned(op: &BinOp) -> Option<&'static str> {
    Some(match op {
        BinOp::AddAssign(_) => "+",
        BinOp::SubAssign(_) => "-",
        BinOp::MulAssign(_) => "*",
        BinOp::DivAssign(_) => "/",
        _ => return None,
    })
}

/// The method that compares as an operator does.
pub(super) fn comparison(op: &BinOp) -> Option<&'static str> {
    Some(match op {
        BinOp::Lt(_) => "lt",
        BinOp::Le(_) => "le",
        BinOp::Gt(_) => "gt",
        BinOp::Ge(_) => "ge",
        BinOp::Eq(_) => "eq",
        BinOp::Ne(_) => "ne",
        _ => return None,
    })
}

/// An expression, or dots for a long one.
pub(super) fn of(expr: &Expr) -> String {
    if let Expr::Unary(unary) = expr {
        return format!("{}{}", unary.op.to_token_stream(), receiver(&unary.expr));
    }
    let (mut text, mut last) = (String::new(), ' ');
    let tokens = expr.to_token_stream().to_string();
    let mut characters = tokens.chars().peekable();
    while let Some(character) = characters.next() {
        let next = characters.peek().copied().unwrap_or(' ');
        let follows_name = last.is_alphanumeric() || last == '_';
        let is_spare = character == ' '
            && (".([&:".contains(last)
                || ".,)]?:".contains(next)
                || (next == '(' || next == '[') && (follows_name || last == '>'));
        if !is_spare {
            text.push(character);
            last = character;
        }
    }
    if text.chars().count() > LONGEST { "…".to_owned() } else { text }
}

/// An expression before `.method()`.
pub(super) fn receiver(expr: &Expr) -> String {
    match expr {
        Expr::Binary(_) | Expr::Unary(_) | Expr::Reference(_) | Expr::Cast(_) => format!("({})", of(expr)),
        _ => of(expr),
    }
}
