//! Integer expressions over named symbols, kept in one normal form so that equal ones compare equal.
//!
//! An expression is a polynomial: a sum of terms, each an integer coefficient times a product of atoms. An atom is a
//! symbol, a floor division, a minimum or a maximum. Terms and factors are sorted, like terms are combined and
//! products of sums are multiplied out, so `a + b` is `b + a` and `(n + m) - m` is `n`.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::{Error, Result, bail, ensure};

/// More terms than any real shape needs; a product that would have more is refused rather than left to grow.
const MAX_TERMS: usize = 1024;

/// An integer expression over named symbols. A symbol stands for the size of a dim, so it is never negative; an
/// expression may be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expr(Arc<[Term]>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Term {
    /// Sorted; none for the constant term. First in the struct, so that terms sort by it.
    factors: Vec<Atom>,
    /// Never zero.
    coefficient: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Atom {
    Symbol(Arc<str>),
    FloorDiv(Expr, Expr),
    /// Sorted, two or more, none provably at least another.
    Min(Vec<Expr>),
    /// Sorted, two or more, none provably at most another.
    Max(Vec<Expr>),
}

/// How an expression is computed from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Add,
    Sub,
    Mul,
    FloorDiv,
    Min,
    Max,
}

impl Operation {
    pub(super) const ALL: [Operation; 6] =
        [Operation::Add, Operation::Sub, Operation::Mul, Operation::FloorDiv, Operation::Min, Operation::Max];

    fn tag(self) -> &'static str {
        match self {
            Operation::Add => "+",
            Operation::Sub => "-",
            Operation::Mul => "*",
            Operation::FloorDiv => "//",
            Operation::Min => "min",
            Operation::Max => "max",
        }
    }

    pub(super) fn apply(self, left: &Expr, right: &Expr) -> Result<Expr> {
        match self {
            Operation::Add => left.plus(right),
            Operation::Sub => left.minus(right),
            Operation::Mul => left.times(right),
            Operation::FloorDiv => left.floor_div(right),
            Operation::Min => Ok(left.minimum(right)),
            Operation::Max => Ok(left.maximum(right)),
        }
    }
}

/// What an expression is written as, from its parts up.
pub(super) trait Writer {
    type Written;

    fn number(&mut self, number: i64) -> Self::Written;

    fn symbol(&mut self, name: &Arc<str>) -> Self::Written;

    /// Two operands or more.
    fn computed(&mut self, operation: Operation, operands: Vec<Self::Written>) -> Self::Written;
}

fn overflow() -> Error {
    Error::invalid_argument("the size of a dim overflows 64 bits")
}

/// Puts an item into its place. Lists here have a few items, and a sort of each type would be kilobytes of code.
fn insert_sorted<T: Ord>(items: &mut Vec<T>, item: T) {
    items.insert(items.partition_point(|own| *own <= item), item);
}

impl Term {
    fn times(&self, other: &Term) -> Result<Term> {
        let coefficient = self.coefficient.checked_mul(other.coefficient).ok_or_else(overflow)?;
        let mut factors = self.factors.clone();
        for factor in &other.factors {
            insert_sorted(&mut factors, factor.clone());
        }
        Ok(Term { factors, coefficient })
    }

    /// This term divided by `divisor`, if that leaves no remainder whatever the symbols are.
    fn divided_by(&self, divisor: &Term) -> Option<Term> {
        if self.coefficient % divisor.coefficient != 0 {
            return None;
        }
        let mut factors = self.factors.clone();
        for factor in &divisor.factors {
            factors.remove(factors.iter().position(|own| own == factor)?);
        }
        Some(Term { factors, coefficient: self.coefficient / divisor.coefficient })
    }
}

impl Expr {
    /// The expression that is always `value`.
    pub fn constant(value: i64) -> Expr {
        let terms = if value == 0 { vec![] } else { vec![Term { factors: vec![], coefficient: value }] };
        Expr(terms.into())
    }

    /// The symbol of this name.
    pub fn symbol(name: &str) -> Expr {
        Expr::atom(Atom::Symbol(name.into()))
    }

    fn atom(atom: Atom) -> Expr {
        Expr([Term { factors: vec![atom], coefficient: 1 }].into())
    }

    fn from_terms(terms: Vec<Term>) -> Result<Expr> {
        ensure!(terms.len() <= MAX_TERMS, ResourceExhausted, "a dim has more than {MAX_TERMS} terms");
        let mut sum: Vec<Term> = Vec::with_capacity(terms.len());
        for term in terms {
            match sum.binary_search_by(|own| own.factors.cmp(&term.factors)) {
                Ok(at) => {
                    let own = &mut sum[at];
                    own.coefficient = own.coefficient.checked_add(term.coefficient).ok_or_else(overflow)?;
                }
                Err(at) => sum.insert(at, term),
            }
        }
        sum.retain(|term| term.coefficient != 0);
        Ok(Expr(sum.into()))
    }

    /// The value, where it does not depend on any symbol.
    pub fn as_constant(&self) -> Option<i64> {
        match &self.0[..] {
            [] => Some(0),
            [term] if term.factors.is_empty() => Some(term.coefficient),
            _ => None,
        }
    }

    fn as_atom(&self) -> Option<&Atom> {
        match &self.0[..] {
            [Term { factors, coefficient: 1 }] if factors.len() == 1 => Some(&factors[0]),
            _ => None,
        }
    }

    /// `self + other`. Errors when a coefficient overflows.
    pub fn plus(&self, other: &Expr) -> Result<Expr> {
        Expr::from_terms([&self.0[..], &other.0].concat())
    }

    /// `self - other`. Errors when a coefficient overflows.
    pub fn minus(&self, other: &Expr) -> Result<Expr> {
        self.plus(&other.times(&Expr::constant(-1))?)
    }

    /// `self * other`. Errors when a coefficient overflows.
    pub fn times(&self, other: &Expr) -> Result<Expr> {
        let count = self.0.len().saturating_mul(other.0.len());
        ensure!(count <= MAX_TERMS, ResourceExhausted, "a dim has more than {MAX_TERMS} terms");
        let products = self.0.iter().flat_map(|a| other.0.iter().map(move |b| a.times(b)));
        Expr::from_terms(products.collect::<Result<_>>()?)
    }

    /// `self // divisor`, rounded down. The divisor is taken to be positive; errors when it is known not to be.
    pub fn floor_div(&self, divisor: &Expr) -> Result<Expr> {
        let constant = divisor.as_constant();
        if let Some(value) = constant {
            ensure!(value > 0, InvalidArgument, "the divisor must be positive, got {value}");
        }
        if self == divisor {
            return Ok(Expr::constant(1));
        }
        // floor((d·q + r) / d) = q + floor(r / d), so whole multiples of a one-term divisor come out. A constant
        // stays inside: `(n + 3) // 2` reads better than `(n + 1) // 2 + 1`.
        let (mut quotient, mut rest) = (vec![], vec![]);
        for term in self.0.iter() {
            let whole = match &divisor.0[..] {
                [only] if only.coefficient > 0 && !term.factors.is_empty() => term.divided_by(only),
                _ => None,
            };
            match whole {
                Some(term) => quotient.push(term),
                None => rest.push(term.clone()),
            }
        }
        let rest = Expr::from_terms(rest)?;
        let rest = match (rest.as_constant(), constant) {
            (Some(0), _) => rest,
            (Some(value), Some(divisor)) => Expr::constant(value.div_euclid(divisor)),
            _ => Expr::atom(Atom::FloorDiv(rest, divisor.clone())),
        };
        Expr::from_terms(quotient)?.plus(&rest)
    }

    /// The smaller of the two.
    pub fn minimum(&self, other: &Expr) -> Expr {
        let items = |expr: &Expr| match expr.as_atom() {
            Some(Atom::Min(items)) => items.clone(),
            _ => vec![expr.clone()],
        };
        Expr::extremum(items(self), items(other), |a, b| b.is_at_least(a), Atom::Min)
    }

    /// The larger of the two.
    pub fn maximum(&self, other: &Expr) -> Expr {
        let items = |expr: &Expr| match expr.as_atom() {
            Some(Atom::Max(items)) => items.clone(),
            _ => vec![expr.clone()],
        };
        Expr::extremum(items(self), items(other), |a, b| a.is_at_least(b), Atom::Max)
    }

    /// The items of both lists less those that another one `beats`, as one atom, or the one item that is left.
    fn extremum(
        mut kept: Vec<Expr>,
        more: Vec<Expr>,
        beats: fn(&Expr, &Expr) -> bool,
        atom: fn(Vec<Expr>) -> Atom,
    ) -> Expr {
        for item in more {
            if !kept.iter().any(|own| beats(own, &item)) {
                kept.retain(|own| !beats(&item, own));
                insert_sorted(&mut kept, item);
            }
        }
        if kept.len() == 1 { kept.swap_remove(0) } else { Expr::atom(atom(kept)) }
    }

    /// Whether this is at least `other` for all sizes of the dims; `false` where that is not evident.
    pub fn is_at_least(&self, other: &Expr) -> bool {
        self.minus(other).ok().and_then(|difference| difference.lower_bound()).is_some_and(|bound| bound >= 0)
    }

    /// A value that this expression never falls below, where one is evident.
    fn lower_bound(&self) -> Option<i64> {
        let mut sum = 0i64;
        for term in self.0.iter() {
            let mut bound = term.coefficient;
            for factor in &term.factors {
                let least = factor.lower_bound().filter(|&least| least >= 0 && bound >= 0)?;
                bound = bound.checked_mul(least)?;
            }
            sum = sum.checked_add(bound)?;
        }
        Some(sum)
    }

    /// The expression with symbols replaced by what `lookup` gives for their names; the others stay.
    ///
    /// Errors on overflow, and when a divisor becomes zero or negative.
    pub fn substitute(&self, lookup: &dyn Fn(&str) -> Option<Expr>) -> Result<Expr> {
        let mut sum = Expr::constant(0);
        for term in self.0.iter() {
            let mut product = Expr::constant(term.coefficient);
            for factor in &term.factors {
                product = product.times(&factor.substitute(lookup)?)?;
            }
            sum = sum.plus(&product)?;
        }
        Ok(sum)
    }

    /// Terms with a positive coefficient and, with their signs turned, those with a negative one; constants last.
    fn signed_terms(&self) -> (Vec<Term>, Vec<Term>) {
        let (constant, others): (Vec<&Term>, Vec<&Term>) =
            self.0.iter().partition(|term| term.factors.is_empty());
        let (mut plus, mut minus) = (vec![], vec![]);
        for term in others.into_iter().chain(constant) {
            match term.coefficient.checked_neg() {
                Some(coefficient) if coefficient > 0 => {
                    minus.push(Term { factors: term.factors.clone(), coefficient });
                }
                _ => plus.push(term.clone()),
            }
        }
        (plus, minus)
    }

    pub(super) fn write<W: Writer>(&self, writer: &mut W) -> W::Written {
        let sum = |terms: &[Term], writer: &mut W| match terms {
            [] => writer.number(0),
            [only] => only.write(writer),
            _ => {
                let terms = terms.iter().map(|term| term.write(writer)).collect();
                writer.computed(Operation::Add, terms)
            }
        };
        let (plus, minus) = self.signed_terms();
        let plus = sum(&plus, writer);
        if minus.is_empty() {
            return plus;
        }
        let minus = sum(&minus, writer);
        writer.computed(Operation::Sub, vec![plus, minus])
    }

    /// The expression in the form that [`Dim::to_json`](super::Dim::to_json) describes.
    pub fn to_json(&self) -> Value {
        self.write(&mut Json)
    }

    /// Reads what [`to_json`](Self::to_json) writes. Errors name the part that is not of that form.
    pub fn from_json(value: &Value) -> Result<Expr> {
        match value {
            Value::Number(number) if number.is_i64() => {
                Ok(Expr::constant(number.as_i64().expect("the guard says so")))
            }
            Value::String(name) => Ok(Expr::symbol(name)),
            Value::Array(items) => Expr::from_tagged(items)
                .ok_or_else(|| Error::invalid_argument(format!("`{value}` is not an expression")))?,
            _ => bail!(InvalidArgument, "`{value}` is not an expression"),
        }
    }

    fn from_tagged(items: &[Value]) -> Option<Result<Expr>> {
        let (tag, operands) = items.split_first()?;
        let tag = tag.as_str()?;
        let operation = Operation::ALL.into_iter().find(|operation| operation.tag() == tag)?;
        let mut operands = operands.iter().map(Expr::from_json);
        let first = operands.next()?;
        Some(first.and_then(|first| operands.try_fold(first, |left, right| operation.apply(&left, &right?))))
    }
}

impl Atom {
    fn lower_bound(&self) -> Option<i64> {
        match self {
            Atom::Symbol(_) => Some(0),
            Atom::FloorDiv(dividend, _) => dividend.lower_bound().filter(|&bound| bound >= 0).map(|_| 0),
            Atom::Min(items) => items.iter().map(Expr::lower_bound).min().flatten(),
            Atom::Max(items) => items.iter().filter_map(Expr::lower_bound).max(),
        }
    }

    fn substitute(&self, lookup: &dyn Fn(&str) -> Option<Expr>) -> Result<Expr> {
        let all = |items: &[Expr], combine: fn(&Expr, &Expr) -> Expr| -> Result<Expr> {
            let mut items = items.iter().map(|item| item.substitute(lookup));
            let first = items.next().expect("a minimum or maximum has items")?;
            items.try_fold(first, |left, right| Ok(combine(&left, &right?)))
        };
        match self {
            Atom::Symbol(name) => Ok(lookup(name).unwrap_or_else(|| Expr::atom(self.clone()))),
            Atom::FloorDiv(dividend, divisor) => {
                dividend.substitute(lookup)?.floor_div(&divisor.substitute(lookup)?)
            }
            Atom::Min(items) => all(items, Expr::minimum),
            Atom::Max(items) => all(items, Expr::maximum),
        }
    }

    fn write<W: Writer>(&self, writer: &mut W) -> W::Written {
        let (operation, operands) = match self {
            Atom::Symbol(name) => return writer.symbol(name),
            Atom::FloorDiv(dividend, divisor) => {
                let operands = vec![dividend.write(writer), divisor.write(writer)];
                return writer.computed(Operation::FloorDiv, operands);
            }
            Atom::Min(items) => (Operation::Min, items),
            Atom::Max(items) => (Operation::Max, items),
        };
        let operands = operands.iter().map(|item| item.write(writer)).collect();
        writer.computed(operation, operands)
    }
}

impl Term {
    fn write<W: Writer>(&self, writer: &mut W) -> W::Written {
        match (self.coefficient, &self.factors[..]) {
            (coefficient, []) => writer.number(coefficient),
            (1, [factor]) => factor.write(writer),
            (coefficient, factors) => {
                let mut operands = Vec::with_capacity(factors.len() + 1);
                if coefficient != 1 {
                    operands.push(writer.number(coefficient));
                }
                operands.extend(factors.iter().map(|factor| factor.write(writer)));
                writer.computed(Operation::Mul, operands)
            }
        }
    }
}

/// Writes expressions as JSON.
struct Json;

impl Writer for Json {
    type Written = Value;

    fn number(&mut self, number: i64) -> Value {
        json!(number)
    }

    fn symbol(&mut self, name: &Arc<str>) -> Value {
        json!(&**name)
    }

    fn computed(&mut self, operation: Operation, operands: Vec<Value>) -> Value {
        std::iter::once(json!(operation.tag())).chain(operands).collect()
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plus, minus) = self.signed_terms();
        for (i, term) in plus.iter().enumerate() {
            write!(f, "{}{term}", if i == 0 { "" } else { " + " })?;
        }
        for (i, term) in minus.iter().enumerate() {
            match &term.factors[..] {
                _ if i > 0 || !plus.is_empty() => write!(f, " - {term}")?,
                // The sign would bind to the dividend.
                [Atom::FloorDiv(..)] if term.coefficient == 1 => write!(f, "-({term})")?,
                _ => write!(f, "-{term}")?,
            }
        }
        if self.0.is_empty() { f.write_str("0") } else { Ok(()) }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.factors.is_empty() {
            return write!(f, "{}", self.coefficient);
        }
        if self.coefficient != 1 {
            write!(f, "{} * ", self.coefficient)?;
        }
        let alone = self.coefficient == 1 && self.factors.len() == 1;
        for (i, factor) in self.factors.iter().enumerate() {
            let separator = if i == 0 { "" } else { " * " };
            match factor {
                Atom::FloorDiv(..) if !alone => write!(f, "{separator}({factor})")?,
                _ => write!(f, "{separator}{factor}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operand = |expr: &Expr| match (expr.as_constant(), expr.as_atom()) {
            (Some(0..), _) | (_, Some(Atom::Symbol(_) | Atom::Min(_) | Atom::Max(_))) => expr.to_string(),
            _ => format!("({expr})"),
        };
        let list = |items: &[Expr]| items.iter().map(Expr::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Atom::Symbol(name) => f.write_str(name),
            Atom::FloorDiv(dividend, divisor) => write!(f, "{} // {}", operand(dividend), operand(divisor)),
            Atom::Min(items) => write!(f, "min({})", list(items)),
            Atom::Max(items) => write!(f, "max({})", list(items)),
        }
    }
}
