//! Straight lines of vector operations: what an inner loop computes for some numbers side by side.

use rustc_hash::FxHashMap;

use crate::float::Turn;

/// A vector of a line: the number of the operation that gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Value(pub(crate) u32);

/// An operation on vectors. What a comparison gives has all bits of a number set where it is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// What the line is given, by position.
    Input(u32),
    /// A number everywhere, by the bits of its `f64`.
    Constant(u64),
    /// A pattern of bits in each number; of a float32 the low 32 of them.
    Bits(u64),
    Add(Value, Value),
    Sub(Value, Value),
    Mul(Value, Value),
    Div(Value, Value),
    /// The product of the first two and the third, added with one rounding.
    Fma(Value, Value, Value),
    /// The same with the third taken away, and with the product taken away from the third.
    Fms(Value, Value, Value),
    Fnma(Value, Value, Value),
    /// The product of the second and the third, and the last, added with one rounding where the mask, the first, is true; the last elsewhere.
    FmaWhere(Value, Value, Value, Value),
    Sqrt(Value),
    Floor(Value),
    /// The larger and the smaller; the second if one is NaN or both are zero.
    Max(Value, Value),
    Min(Value, Value),
    /// Where a number is NaN.
    IsNan(Value),
    /// Where it is neither 0 nor NaN.
    IsNotZero(Value),
    /// The first so many numbers of the first, and the others of the second.
    FirstOf(u8, Value, Value),
    /// Comparisons, false where a number is NaN.
    Lt(Value, Value),
    Le(Value, Value),
    Eq(Value, Value),
    /// All bits by themselves.
    And(Value, Value),
    Or(Value, Value),
    Xor(Value, Value),
    /// The bits of the second that the first does not have.
    AndNot(Value, Value),
    /// The second where the mask, the first, is true, else the third.
    Select(Value, Value, Value),
    /// Two quarters of the first and two of the second, or a half of each where vectors have 32 bytes.
    Quarters(Value, Value, u8),
    /// With the numbers in its quarters, or halves, changed about.
    Permuted(Value, u8),
    /// As integers of the width of a number, which wrap around.
    AddInt(Value, Value),
    /// Shifted left, and right with zeros coming in.
    ShiftLeft(Value, u8),
    ShiftRight(Value, u8),
    /// The first times 2 to the power of the second, an integer, with one rounding; where a line [scales](Line::scales).
    Scale(Value, Value),
    /// Of eight numbers, by their bits, that which the low three bits say; of float32.
    OfEight(Value, [u32; 8]),
    /// Where the mask, the first, is true, an angle of the same sine as the last, or its cosine; the second elsewhere. A function that is
    /// called where the mask is true of any.
    Angle(Turn, Value, Value, Value),
}

impl Op {
    /// The vectors that it reads.
    pub(crate) fn operands(self) -> impl Iterator<Item = Value> {
        let operands = match self {
            Self::Input(_) | Self::Constant(_) | Self::Bits(_) => [None; 4],
            Self::Sqrt(a)
            | Self::Floor(a)
            | Self::IsNan(a)
            | Self::IsNotZero(a)
            | Self::Permuted(a, _)
            | Self::OfEight(a, _)
            | Self::ShiftLeft(a, _)
            | Self::ShiftRight(a, _) => [Some(a), None, None, None],
            Self::Add(a, b)
            | Self::Sub(a, b)
            | Self::Mul(a, b)
            | Self::Div(a, b)
            | Self::Max(a, b)
            | Self::Min(a, b)
            | Self::FirstOf(_, a, b)
            | Self::Quarters(a, b, _)
            | Self::Lt(a, b)
            | Self::Le(a, b)
            | Self::Eq(a, b)
            | Self::And(a, b)
            | Self::Or(a, b)
            | Self::Xor(a, b)
            | Self::AndNot(a, b)
            | Self::AddInt(a, b)
            | Self::Scale(a, b) => [Some(a), Some(b), None, None],
            Self::Fma(a, b, c)
            | Self::Fms(a, b, c)
            | Self::Fnma(a, b, c)
            | Self::Select(a, b, c)
            | Self::Angle(_, a, b, c) => [Some(a), Some(b), Some(c), None],
            Self::FmaWhere(mask, a, b, c) => [Some(mask), Some(a), Some(b), Some(c)],
        };
        operands.into_iter().flatten()
    }
}

/// Operations, each on earlier ones; none is there twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    /// Whether there is an instruction for [`Op::Scale`].
    pub(crate) scales: bool,
    ops: Vec<Op>,
    known: FxHashMap<Op, Value>,
}

impl Line {
    /// The vector that an operation gives.
    pub(crate) fn push(&mut self, op: Op) -> Value {
        let op = self.simpler(op);
        *self.known.entry(op).or_insert_with(|| {
            self.ops.push(op);
            Value(self.ops.len() as u32 - 1)
        })
    }

    /// The smaller or the larger of two, where a comparison chooses between what it compares; whether a magnitude is larger than 0
    /// without making that; and a product for a division by a power of two, which is as exact.
    fn simpler(&mut self, op: Op) -> Op {
        match op {
            Op::Div(a, b) => match self.op(b) {
                Op::Constant(bits) => match inverse(f64::from_bits(bits)) {
                    Some(inverse) => Op::Mul(a, self.number(inverse)),
                    None => op,
                },
                _ => op,
            },
            Op::Select(mask, yes, no) => match self.op(mask) {
                Op::Lt(a, b) if (yes, no) == (a, b) => Op::Min(a, b),
                Op::Lt(a, b) if (yes, no) == (b, a) => Op::Max(b, a),
                _ => op,
            },
            Op::Fma(a, b, c) => match [a, b, c].map(|operand| self.negated(operand)) {
                [Some(a), None, None] => Op::Fnma(a, b, c),
                [None, Some(b), None] => Op::Fnma(a, b, c),
                [None, None, Some(c)] => Op::Fms(a, b, c),
                _ => op,
            },
            Op::Lt(zero, magnitude) if self.op(zero) == Op::Constant(0) => match self.op(magnitude) {
                Op::AndNot(sign, a) if is_sign(self.op(sign)) => Op::IsNotZero(a),
                _ => op,
            },
            _ => op,
        }
    }

    /// The vector whose negative it is.
    fn negated(&self, value: Value) -> Option<Value> {
        match self.op(value) {
            Op::Xor(a, sign) if is_sign(self.op(sign)) => Some(a),
            _ => None,
        }
    }

    /// Whether a vector is known to have all bits of a number set, or none.
    pub(crate) fn is_mask(&self, value: Value) -> bool {
        match self.op(value) {
            Op::Lt(..) | Op::Le(..) | Op::Eq(..) | Op::IsNan(_) | Op::IsNotZero(_) => true,
            Op::And(a, b) | Op::Or(a, b) => self.is_mask(a) && self.is_mask(b),
            Op::Xor(a, b) => self.is_mask(a) && self.op(b) == Op::Bits(u64::MAX),
            _ => false,
        }
    }

    pub(crate) fn op(&self, value: Value) -> Op {
        self.ops[value.0 as usize]
    }

    pub(crate) fn number(&mut self, number: f64) -> Value {
        self.push(Op::Constant(number.to_bits()))
    }

    pub(crate) fn ops(&self) -> &[Op] {
        &self.ops
    }
}

/// One over a power of two of which both are far from what a float32 cannot have.
fn inverse(number: f64) -> Option<f64> {
    let is_power = number.to_bits() << 12 == 0;
    (is_power && (1e-30..1e30).contains(&number.abs())).then(|| 1.0 / number)
}

/// Whether of each number the sign alone is set.
pub(crate) fn is_sign(op: Op) -> bool {
    matches!(op, Op::Bits(0x8000_0000 | 0x8000_0000_0000_0000))
}
