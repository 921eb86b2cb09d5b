//! Bodies: their numbers are generic over `Scalar`. A body selects and does not branch, for it is computed for many elements
//! at a time.

use quote::ToTokens;
use syn::{BinOp, Block, Expr, ExprCall, ExprLit, Ident, Lit, Stmt, Type, UnOp};

use super::parameter::Parameter;
use crate::numbers::text::{self, Literal, assigned, comparison, is_arithmetic};
use crate::numbers::{self, Known, Names, Rules};

/// The methods of `Scalar` that give a number, of the kind that they are called of.
pub(crate) const NUMBERS: [&str; 46] = [
    "exp",
    "log",
    "log1p",
    "expm1",
    "tanh",
    "sigmoid",
    "erf",
    "normal_cdf",
    "normal_pdf",
    "sin",
    "cos",
    "sqrt",
    "rsqrt",
    "pow",
    "abs",
    "sign",
    "floor",
    "min",
    "max",
    "minimum",
    "maximum",
    "mul_add",
    "detached",
    "elu",
    "gelu",
    "gelu_tanh",
    "softplus",
    "exp2",
    "log2",
    "log10",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "tan",
    "asin",
    "acos",
    "atan",
    "atan2",
    "ceil",
    "trunc",
    "round",
    "lgamma",
    "digamma",
    "trigamma",
];
/// What Rust or others call functions that a number of a body has by another name, or has not.
const OTHER_NAMES: [(&str, &str); 11] = [
    ("ln", "`log` is the natural logarithm"),
    ("ln_1p", "write `log1p`"),
    ("exp_m1", "write `expm1`"),
    ("powf", "`pow` takes a number of the body, `powi` an integer"),
    ("clamp", "write `max` and `min`"),
    ("clamp_min", "write `max`"),
    ("clamp_max", "write `min`"),
    ("relu", "write `max` with 0, first or second by the gradient that 0 is to have"),
    ("recip", "divide `S::of(1.0)` by it"),
    ("ln_gamma", "write `lgamma`"),
    ("round_ties_even", "write `round`, which takes the even one of two"),
];
/// Those that take a plain integer.
pub(crate) const INTEGERS: [&str; 1] = ["powi"];
/// The methods of `Each` that give one number for each row.
pub(crate) const FOLDS: [&str; 6] = ["sum", "prod", "amax", "amin", "count", "mean"];
/// Those of numbers over axes that give numbers and where they are.
const EXTREMES: [&str; 2] = ["smallest", "largest"];
/// Those that give a mask.
const COMPARISONS: [&str; 6] = ["lt", "le", "gt", "ge", "eq", "ne"];

/// Checks the function of a body with these parameters, whose type parameter `generic` is bounded by `Rows` or by `Scalar`.
pub(crate) fn check(
    generic: &Ident,
    has_rows: bool,
    parameters: &[Parameter],
    block: &Block,
) -> syn::Result<()> {
    let rules = Body { generic, has_rows };
    let names = parameters
        .iter()
        .map(|parameter| (parameter.ident.to_string(), rules.of_type(&parameter.ty)))
        .collect();
    numbers::check(&rules, names, block)
}

struct Body<'a> {
    generic: &'a Ident,
    has_rows: bool,
}

impl Body<'_> {
    /// What a path stands for that begins with the type parameter: `S::of`, `R::One::of`; and its last segment.
    fn path(&self, expr: &Expr) -> Option<(Known, String)> {
        let Expr::Path(path) = expr else { return None };
        let segments: Vec<String> =
            path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        match segments.as_slice() {
            [first, last] if self.generic == first => Some((Known::Each, last.clone())),
            [first, kind, last] if self.generic == first && kind == "Each" => {
                Some((Known::Each, last.clone()))
            }
            [first, kind, last] if self.generic == first && kind == "One" => Some((Known::One, last.clone())),
            _ => None,
        }
    }

    /// What a function of the type or a method of the number gives.
    fn result(of: Known, name: &str) -> Option<Known> {
        match name {
            "of" | "attr" | "select" => Some(of),
            "of_row" => Some(Known::Each),
            _ if NUMBERS.contains(&name) || INTEGERS.contains(&name) => Some(of),
            "log_sum_exp" | "at" | "saved" => Some(of),
            "index" | "argmax" | "argmin" => Some(Known::Position),
            _ if FOLDS.contains(&name) => Some(Known::One),
            _ if COMPARISONS.contains(&name) => Some(Known::Mask),
            _ => None,
        }
    }

    /// What a method gives.
    fn of_method(of: Known, name: &str) -> Option<Known> {
        match (of, name) {
            (Known::Each | Known::One, _) => Self::result(of, name),
            (Known::Position, "number") => Some(Known::Each),
            (Known::Position, _) => COMPARISONS.contains(&name).then_some(Known::Mask),
            (Known::Mask, "any" | "all") => Some(Known::Mask),
            (Known::Mask, "count") => Some(Known::One),
            _ => None,
        }
    }

    fn number(&self, expr: &Expr, names: &Names) -> Option<Known> {
        self.of(expr, names).filter(|known| matches!(known, Known::Each | Known::One))
    }

    fn is_position(&self, expr: &Expr, names: &Names) -> bool {
        self.of(expr, names) == Some(Known::Position)
    }

    fn is_mask(&self, expr: &Expr, names: &Names) -> bool {
        self.of(expr, names) == Some(Known::Mask)
    }

    fn is_plain(&self, expr: &Expr, names: &Names) -> bool {
        self.of(expr, names) == Some(Known::Plain)
    }

    /// The type of such a number as the function writes it.
    fn ty(&self, number: Known) -> String {
        match (self.has_rows, number) {
            (false, _) => self.generic.to_string(),
            (true, Known::One) => format!("{}::One", self.generic),
            (true, _) => format!("{}::Each", self.generic),
        }
    }

    /// How an expression is made a number of that kind, where it must be.
    fn made(&self, expr: &Expr, number: Known, names: &Names) -> Option<String> {
        let ty = self.ty(number);
        match Literal::of(expr) {
            Some(literal) => Some(format!("{ty}::of({})", literal.float)),
            None if self.is_plain(expr, names) => Some(format!("{ty}::of({})", text::of(expr))),
            None if self.has_rows && number == Known::Each && self.of(expr, names) == Some(Known::One) => {
                Some(format!("{ty}::of_row({})", text::of(expr)))
            }
            None => None,
        }
    }

    fn binary(&self, left: &Expr, op: &BinOp, right: &Expr, names: &Names) -> Option<String> {
        if matches!(op, BinOp::And(_) | BinOp::Or(_))
            && (self.is_mask(left, names) || self.is_mask(right, names))
        {
            let sign = if matches!(op, BinOp::And(_)) { "&" } else { "|" };
            return Some(format!("masks are combined by `{sign}`, for every element at once"));
        }
        if self.is_position(left, names) || self.is_position(right, names) {
            return self.positions(left, op, right, names);
        }
        let (of_left, of_right) = (self.number(left, names), self.number(right, names));
        let is_each = of_left == Some(Known::Each) || of_right == Some(Known::Each);
        let number = if is_each { Known::Each } else { of_left.or(of_right)? };
        let ty = self.ty(number);
        if let Some(method) = comparison(op) {
            let receiver = self.made(left, number, names).unwrap_or_else(|| text::receiver(left));
            return Some(format!(
                "numbers of a body are compared by methods, which give masks: `{receiver}.{method}({})`, and then \
                 `{ty}::select(mask, …, …)`",
                self.made(right, number, names).unwrap_or_else(|| text::of(right))
            ));
        }
        if let (Some(sign), Some(_)) = (assigned(op), of_left) {
            let constant = Literal::of(right).map(|constant| constant.operand().float);
            let (name, sum) = (text::of(left), constant.unwrap_or_else(|| text::receiver(right)));
            return Some(format!(
                "numbers of a body have no `{sign}=`: write `{name} = {name} {sign} {sum}`"
            ));
        }
        if !is_arithmetic(op) {
            return None;
        }
        let sign = op.to_token_stream().to_string();
        match (of_left, Literal::of(right), of_right) {
            (None, _, Some(_)) => Some(format!(
                "convert a constant on the left of a number with `of`: `{} {sign} {}`",
                self.made(left, number, names)?,
                text::receiver(right)
            )),
            (Some(_), Some(constant), _) if constant.is_int => Some(format!(
                "a constant beside a number must be a float: `{} {sign} {}`, or `{ty}::of({})`",
                text::receiver(left),
                constant.clone().operand().float,
                constant.float
            )),
            _ => None,
        }
    }

    /// Two of which one is a position.
    fn positions(&self, left: &Expr, op: &BinOp, right: &Expr, names: &Names) -> Option<String> {
        if let Some(method) = comparison(op) {
            let compared = self.compared_positions(left, method, right, names);
            return Some(format!(
                "positions of a body are compared by methods, which give masks: `{compared}`, and then `{}::select(mask, …, …)`",
                self.ty(Known::Each)
            ));
        }
        let position = if self.is_position(left, names) { left } else { right };
        is_arithmetic(op).then(|| {
            let position = text::receiver(position);
            format!("a position cannot be added or multiplied: `{position}.number()` converts it to a number")
        })
    }

    /// The comparison as it is written; beside a number, a position is one too.
    fn compared_positions(&self, left: &Expr, method: &str, right: &Expr, names: &Names) -> String {
        let is_number = |side: &Expr| Literal::of(side).is_some() || self.number(side, names).is_some();
        let has_number = is_number(left) || is_number(right);
        let side = |side: &Expr, plain: fn(&Expr) -> String| match self.is_position(side, names) {
            true if has_number => format!("{}.number()", text::receiver(side)),
            _ => self.made(side, Known::Each, names).unwrap_or_else(|| plain(side)),
        };
        format!("{}.{method}({})", side(left, text::receiver), side(right, text::of))
    }

    /// The comparison of a position and what is none.
    fn comparison_of(
        &self,
        position: &Expr,
        method: &str,
        other: &Expr,
        names: &Names,
    ) -> Option<syn::Error> {
        let is_number = Literal::of(other).is_some() || self.number(other, names).is_some();
        let is_compared = COMPARISONS.contains(&method) && is_number;
        is_compared.then(|| {
            let compared = self.compared_positions(position, method, other, names);
            syn::Error::new_spanned(
                other,
                format!("`{method}` of a position takes positions: write `{compared}`"),
            )
        })
    }

    /// Arguments of a function of numbers, one of which is a plain number.
    fn argument(&self, of: Known, name: &str, arguments: &[&Expr], names: &Names) -> Option<syn::Error> {
        let takes_numbers = NUMBERS.contains(&name) || COMPARISONS.contains(&name) || name == "select";
        if !takes_numbers {
            return None;
        }
        let is_plain = |argument: &Expr| Literal::of(argument).is_some() || self.is_plain(argument, names);
        let plain = arguments.iter().find(|argument| is_plain(argument))?;
        let made = self.made(plain, of, names)?;
        let message = format!("`{name}` takes numbers of the body: write `{made}`");
        Some(syn::Error::new_spanned(plain, message))
    }

    /// What is compared by methods: a number, or a position.
    fn comparable(&self, expr: &Expr, names: &Names) -> Option<Known> {
        self.of(expr, names).filter(|known| !matches!(known, Known::Mask | Known::Plain))
    }

    /// A comparison of numbers in an expression: one of them, and the method.
    fn compared(&self, expr: &Expr, names: &Names) -> Option<(String, String, Known)> {
        match expr {
            Expr::Paren(inner) => self.compared(&inner.expr, names),
            Expr::Unary(unary) => self.compared(&unary.expr, names),
            Expr::Binary(binary) => {
                let own = |side| Some((side, self.comparable(side, names)?));
                let number = own(&binary.left).or_else(|| own(&binary.right));
                match (comparison(&binary.op), number) {
                    (Some(method), Some((expr, known))) => {
                        Some((text::receiver(expr), method.to_owned(), known))
                    }
                    _ => self.compared(&binary.left, names).or_else(|| self.compared(&binary.right, names)),
                }
            }
            Expr::MethodCall(call) if COMPARISONS.iter().any(|name| call.method == name) => {
                let known = self.comparable(&call.receiver, names)?;
                Some((text::receiver(&call.receiver), call.method.to_string(), known))
            }
            _ => None,
        }
    }
}

impl Rules for Body<'_> {
    fn known(&self, expr: &Expr, names: &Names) -> Option<Known> {
        match expr {
            Expr::Unary(unary) => match unary.op {
                UnOp::Neg(_) => self.of(&unary.expr, names).filter(|known| *known != Known::Mask),
                UnOp::Not(_) => self.of(&unary.expr, names).filter(|known| *known == Known::Mask),
                _ => None,
            },
            Expr::Binary(binary) if is_arithmetic(&binary.op) => {
                // Each side once: a long sum is as deep as it has terms.
                let (left, right) = (self.of(&binary.left, names), self.of(&binary.right, names));
                let is_either = |known: &Known| [left, right].contains(&Some(*known));
                // What is not known may be a number of the body.
                let is_plain = left == right && left == Some(Known::Plain);
                [Known::Each, Known::One].into_iter().find(is_either).or(is_plain.then_some(Known::Plain))
            }
            Expr::Lit(ExprLit { lit: Lit::Float(_), .. }) => Some(Known::Plain),
            Expr::Binary(binary) if matches!(binary.op, BinOp::BitAnd(_) | BinOp::BitOr(_)) => {
                let is_mask = self.is_mask(&binary.left, names) || self.is_mask(&binary.right, names);
                is_mask.then_some(Known::Mask)
            }
            Expr::MethodCall(call) => {
                Self::of_method(self.of(&call.receiver, names)?, &call.method.to_string())
            }
            Expr::Call(ExprCall { func, .. }) => {
                let (of, name) = self.path(func)?;
                Self::result(of, &name)
            }
            Expr::Index(index) => numbers::within(self.of(&index.expr, names)?),
            // What one side is, both are.
            Expr::If(choice) => match choice.then_branch.stmts.as_slice() {
                [Stmt::Expr(value, None)] => self.of(value, names),
                _ => None,
            },
            _ => None,
        }
    }

    fn tuple(&self, expr: &Expr, names: &Names) -> Vec<Option<Known>> {
        match expr {
            Expr::Tuple(tuple) => tuple.elems.iter().map(|part| self.of(part, names)).collect(),
            Expr::MethodCall(call)
                if EXTREMES.iter().any(|name| call.method == name)
                    && self.number(&call.receiver, names).is_some() =>
            {
                vec![Some(Known::Each), Some(Known::Position)]
            }
            _ => Vec::new(),
        }
    }

    fn of_type(&self, ty: &Type) -> Option<Known> {
        if let Type::Array(array) = ty {
            return match self.of_type(&array.elem)? {
                Known::Each => Some(Known::Parts(1)),
                Known::Parts(depth) => Some(Known::Parts(depth + 1)),
                _ => None,
            };
        }
        let Type::Path(path) = ty else { return None };
        let segments: Vec<String> =
            path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        match segments.as_slice() {
            [only] if self.generic == only => Some(Known::Each),
            [only] if only == "f64" => Some(Known::Plain),
            [first, kind] if self.generic == first && kind == "Each" => Some(Known::Each),
            [first, kind] if self.generic == first && kind == "One" => Some(Known::One),
            [first, kind] if self.generic == first && kind == "Index" => Some(Known::Position),
            [first, kind] if self.generic == first && kind == "Mask" => Some(Known::Mask),
            _ => None,
        }
    }

    fn fault(&self, expr: &Expr, names: &Names) -> Option<syn::Error> {
        match expr {
            Expr::Binary(binary) => {
                let message = self.binary(&binary.left, &binary.op, &binary.right, names)?;
                Some(syn::Error::new_spanned(expr, message))
            }
            Expr::MethodCall(call) => {
                let arguments: Vec<&Expr> = call.args.iter().collect();
                let method = call.method.to_string();
                if let ([other], true) = (&arguments[..], self.is_position(&call.receiver, names)) {
                    return self.comparison_of(&call.receiver, &method, other, names);
                }
                if self.is_mask(&call.receiver, names)
                    && FOLDS.contains(&method.as_str())
                    && method != "count"
                {
                    let message = format!(
                        "a mask has no `{method}`: `count` is how often it is true, a number; `any` and `all` are masks"
                    );
                    return Some(syn::Error::new_spanned(&call.method, message));
                }
                let number = self.number(&call.receiver, names)?;
                if let Some((_, meant)) = OTHER_NAMES.iter().find(|(name, _)| method == *name) {
                    let message = format!("a number of a body has no `{method}`: {meant}");
                    return Some(syn::Error::new_spanned(&call.method, message));
                }
                self.argument(number, &method, &arguments, names)
            }
            Expr::Call(call) => {
                let (of, name) = self.path(&call.func)?;
                let arguments: Vec<&Expr> = call.args.iter().collect();
                self.argument(of, &name, &arguments, names)
            }
            _ => None,
        }
    }

    fn condition(&self, keyword: &str, condition: &Expr, names: &Names) -> Option<syn::Error> {
        let message = match self.compared(condition, names) {
            Some((number, method, known)) => format!(
                "`{number}` is {} of every element at once, so `{keyword}` cannot branch on it; compute both \
                 sides and take one: `{}::select({number}.{method}(…), …, …)`",
                if known == Known::Position { "a position" } else { "a number" },
                self.ty(known)
            ),
            None if self.is_mask(condition, names) => format!(
                "this is a mask with a value for every element, so `{keyword}` cannot branch on it; compute \
                 both sides and take one: `{}::select({}, …, …)`",
                self.ty(Known::Each),
                text::of(condition)
            ),
            None => return None,
        };
        Some(syn::Error::new_spanned(condition, message))
    }
}
