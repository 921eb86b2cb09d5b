//! Expressions as messages show them.

use quote::ToTokens;
use syn::{BinOp, Expr, Lit, UnOp};

/// The most characters of an expression that a message repeats.
const LONGEST: usize = 32;

/// A number that is written out, or arithmetic of such numbers.
#[derive(Clone)]
pub(crate) struct Literal {
    /// As it was written, less suffixes and what parentheses are around all of it.
    pub(crate) text: String,
    /// The same of floats.
    pub(crate) float: String,
    pub(crate) is_int: bool,
    /// Whether it is arithmetic, which is put in parentheses beside an operator.
    pub(crate) is_arithmetic: bool,
}

impl Literal {
    pub(crate) fn of(expr: &Expr) -> Option<Literal> {
        match expr {
            Expr::Paren(inner) => Literal::of(&inner.expr),
            Expr::Group(inner) => Literal::of(&inner.expr),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => {
                let inner = Literal::of(&unary.expr)?.operand();
                let (text, float) = (format!("-{}", inner.text), format!("-{}", inner.float));
                Some(Literal { text, float, ..inner })
            }
            Expr::Binary(binary) if is_arithmetic(&binary.op) => {
                let side = |side: &Expr| {
                    let literal = Literal::of(side)?;
                    // Arithmetic has parentheses here where the author wrote them.
                    Some(if matches!(side, Expr::Binary(_)) { literal } else { literal.operand() })
                };
                let (left, right) = (side(&binary.left)?, side(&binary.right)?);
                let join = |left, right| format!("{left} {} {right}", binary.op.to_token_stream());
                Some(Literal {
                    text: join(left.text, right.text),
                    float: join(left.float, right.float),
                    is_int: left.is_int && right.is_int,
                    is_arithmetic: true,
                })
            }
            Expr::Lit(literal) => {
                let (text, is_int) = match &literal.lit {
                    Lit::Int(int) => (int.base10_digits().to_owned(), true),
                    Lit::Float(float) => (float.base10_digits().to_owned(), false),
                    _ => return None,
                };
                let is_plain = text.chars().all(|c| c.is_ascii_digit());
                let float = if is_plain { format!("{text}.0") } else { text.clone() };
                Some(Literal { text, float, is_int, is_arithmetic: false })
            }
            _ => None,
        }
    }

    /// As it stands beside an operator.
    pub(crate) fn operand(self) -> Literal {
        match self.is_arithmetic {
            true => Literal {
                text: format!("({})", self.text),
                float: format!("({})", self.float),
                is_arithmetic: false,
                ..self
            },
            false => self,
        }
    }
}

/// Whether it is `+`, `-`, `*` or `/`.
pub(crate) fn is_arithmetic(op: &BinOp) -> bool {
    matches!(op, BinOp::Add(_) | BinOp::Sub(_) | BinOp::Mul(_) | BinOp::Div(_))
}

/// `+` of `+=`, and so on.
pub(crate) fn assigned(op: &BinOp) -> Option<&'static str> {
    Some(match op {
        BinOp::AddAssign(_) => "+",
        BinOp::SubAssign(_) => "-",
        BinOp::MulAssign(_) => "*",
        BinOp::DivAssign(_) => "/",
        _ => return None,
    })
}

/// The method that compares as an operator does.
pub(crate) fn comparison(op: &BinOp) -> Option<&'static str> {
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
pub(crate) fn of(expr: &Expr) -> String {
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
pub(crate) fn receiver(expr: &Expr) -> String {
    match expr {
        Expr::Binary(_) | Expr::Unary(_) | Expr::Reference(_) | Expr::Cast(_) => format!("({})", of(expr)),
        _ => of(expr),
    }
}
