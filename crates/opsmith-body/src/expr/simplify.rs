//! Clean-up while a graph is recorded.
//!
//! Every rule is exact in IEEE arithmetic, signs of zeros, infinities and NaN included, with two exceptions that make
//! results more exact: functions of constants are computed in float64, whatever the graph is computed in, and a
//! square is a product. In particular `x * 0` and `x - x` stay (x may be infinite), and so does `x + 0` (x may be −0).

use crate::axes::Axis;
use crate::expr::node::{Binary, Compare, Fold, Id, Node, Unary};
use crate::expr::trace::Recorder;
use crate::float::F64;
use crate::isa::Plain;

impl Recorder {
    /// The number of a node that computes the same as this one, and is as simple as the rules make it.
    pub(crate) fn add(&mut self, node: Node) -> Id {
        match node {
            Node::Unary(op, a) => self.unary(op, a),
            Node::Binary(op, a, b) => self.binary(op, a, b),
            Node::Select(mask, yes, no) => self.select(mask, yes, no),
            Node::Compare(op, a, b) => self.compare(op, a, b),
            Node::Not(a) => match self.node(a) {
                Node::Not(inner) => inner,
                _ => self.intern(node),
            },
            Node::And(a, b) | Node::Or(a, b) if a == b => a,
            Node::And(a, b) => match (self.truth(a), self.truth(b)) {
                (Some(false), _) | (_, Some(true)) => a,
                (_, Some(false)) | (Some(true), _) => b,
                (None, None) => self.intern(Node::And(a.min(b), a.max(b))),
            },
            Node::Or(a, b) => match (self.truth(a), self.truth(b)) {
                (Some(true), _) | (_, Some(false)) => a,
                (_, Some(true)) | (Some(false), _) => b,
                (None, None) => self.intern(Node::Or(a.min(b), a.max(b))),
            },
            Node::Fold(op, axis, a) => self.fold(op, axis, a),
            Node::Detached(a) => match self.node(a) {
                Node::Detached(_)
                | Node::Constant(_)
                | Node::Attribute(_)
                | Node::Count(_)
                | Node::Index(_) => a,
                _ => self.intern(node),
            },
            Node::Input(_) | Node::Attribute(_) | Node::Constant(_) | Node::Count(_) | Node::Index(_) => {
                self.intern(node)
            }
        }
    }

    fn node(&self, id: Id) -> Node {
        self.nodes[id.index()]
    }

    fn constant_of(&self, id: Id) -> Option<f64> {
        self.node(id).constant()
    }

    fn constant(&mut self, value: f64) -> Id {
        self.intern(Node::Constant(value.to_bits()))
    }

    /// The operand of a negation.
    fn negated(&self, id: Id) -> Option<Id> {
        match self.node(id) {
            Node::Unary(Unary::Neg, inner) => Some(inner),
            _ => None,
        }
    }

    fn negate(&mut self, id: Id) -> Id {
        self.unary(Unary::Neg, id)
    }

    fn unary(&mut self, op: Unary, a: Id) -> Id {
        if let Some(x) = self.constant_of(a) {
            return self.constant(op.apply(F64::<Plain>::new(x)).get());
        }
        match (op, self.node(a)) {
            (Unary::Neg, Node::Unary(Unary::Neg, inner)) => inner,
            (Unary::Abs, Node::Unary(Unary::Neg, inner)) => self.unary(Unary::Abs, inner),
            (Unary::Abs, Node::Unary(Unary::Abs | Unary::Exp | Unary::Sigmoid | Unary::Softplus, _)) => a,
            (Unary::Floor, Node::Unary(Unary::Floor, _)) => a,
            _ => self.intern(Node::Unary(op, a)),
        }
    }

    fn binary(&mut self, op: Binary, a: Id, b: Id) -> Id {
        let constants = (self.constant_of(a), self.constant_of(b));
        if let (Some(x), Some(y)) = constants {
            return self.constant(op.apply(F64::<Plain>::new(x), F64::new(y)).get());
        }
        match op {
            Binary::Add => self.sum(a, b),
            Binary::Sub => self.difference(a, b),
            Binary::Mul => self.product(a, b),
            Binary::Div => self.quotient(a, b),
            Binary::Pow if constants.1 == Some(1.0) => a,
            Binary::Pow if constants.1 == Some(2.0) => self.product(a, a),
            Binary::Min | Binary::Max if a == b => a,
            Binary::Pow | Binary::Min | Binary::Max => self.intern(Node::Binary(op, a, b)),
        }
    }

    fn sum(&mut self, a: Id, b: Id) -> Id {
        match (self.negated(a), self.negated(b)) {
            (_, Some(b)) => self.difference(a, b),
            (Some(a), None) => self.difference(b, a),
            (None, None) => self.intern(Node::Binary(Binary::Add, a.min(b), a.max(b))),
        }
    }

    fn difference(&mut self, a: Id, b: Id) -> Id {
        // x − 0 is x for −0 too.
        if self.node(b) == Node::Constant(0) {
            return a;
        }
        match self.negated(b) {
            Some(b) => self.sum(a, b),
            None => self.intern(Node::Binary(Binary::Sub, a, b)),
        }
    }

    fn product(&mut self, a: Id, b: Id) -> Id {
        for (one, other) in [(a, b), (b, a)] {
            if self.constant_of(one) == Some(1.0) {
                return other;
            }
            if self.constant_of(one) == Some(-1.0) {
                return self.negate(other);
            }
            if let Some(inner) = self.negated(one) {
                let product = self.product(inner, other);
                return self.negate(product);
            }
        }
        self.intern(Node::Binary(Binary::Mul, a.min(b), a.max(b)))
    }

    fn quotient(&mut self, a: Id, b: Id) -> Id {
        if let Some(divisor) = self.constant_of(b) {
            // The reciprocal of a power of two is exact; half-way down the exponents it is so in float32 too.
            let power_of_two = divisor.to_bits() << 12 == 0 && (1e-30..1e30).contains(&divisor.abs());
            if power_of_two {
                let reciprocal = self.constant(1.0 / divisor);
                return self.product(a, reciprocal);
            }
        }
        for (inner, negative) in [(self.negated(a), true), (self.negated(b), false)] {
            if let Some(inner) = inner {
                let quotient = if negative { self.quotient(inner, b) } else { self.quotient(a, inner) };
                return self.negate(quotient);
            }
        }
        self.intern(Node::Binary(Binary::Div, a, b))
    }

    fn select(&mut self, mask: Id, yes: Id, no: Id) -> Id {
        match self.node(mask) {
            _ if yes == no => yes,
            Node::Not(inner) => self.select(inner, no, yes),
            _ => match self.truth(mask) {
                Some(true) => yes,
                Some(false) => no,
                None => self.intern(Node::Select(mask, yes, no)),
            },
        }
    }

    /// What a comparison of two constants gives.
    fn truth(&self, mask: Id) -> Option<bool> {
        let Node::Compare(op, a, b) = self.node(mask) else { return None };
        let (x, y) = (self.constant_of(a)?, self.constant_of(b)?);
        Some(match op {
            Compare::Lt => x < y,
            Compare::Le => x <= y,
            Compare::Eq => x == y,
        })
    }

    /// A number that does not lie on the axis is not folded: it is so often itself, its power, or the
    /// largest of them.
    fn fold(&mut self, op: Fold, axis: Axis, a: Id) -> Id {
        match (op, self.axes(a).has(axis)) {
            (Fold::Sum, false) => {
                let count = self.intern(Node::Count(axis));
                self.product(count, a)
            }
            (Fold::Product, false) => {
                let count = self.intern(Node::Count(axis));
                self.binary(Binary::Pow, a, count)
            }
            (Fold::Max | Fold::Min, false) => a,
            (_, true) => self.intern(Node::Fold(op, axis, a)),
        }
    }

    fn compare(&mut self, op: Compare, a: Id, b: Id) -> Id {
        let ordered = if op == Compare::Eq { (a.min(b), a.max(b)) } else { (a, b) };
        self.intern(Node::Compare(op, ordered.0, ordered.1))
    }
}
