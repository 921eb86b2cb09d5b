//! Numbers that write down what is done with them: what is written over `Float` becomes a line of vector operations.
//!
//! Every elementary function is made of many of these operations, so they are not inlined: a library would have them a thousand times.

use std::cell::RefCell;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};

use crate::code::line::{Line, Op, Value};
use crate::float::Float;
use crate::float::{Real, Turn};
use crate::isa::{Avx2, Isa};
use crate::scalar::{Mask, Scalar};

#[cfg(test)]
mod tests;

/// A number of a body that is recorded.
pub(crate) type Number<const DOUBLE: bool> = Float<Recorded<DOUBLE>, Avx2>;

/// A line that is being recorded, and whether of float64.
struct Recording {
    line: Line,
    double: bool,
}

thread_local! {
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

/// Puts back what was recorded before, also after a panic.
struct Restore(Option<Recording>);

impl Drop for Restore {
    fn drop(&mut self) {
        RECORDING.set(self.0.take());
    }
}

/// What `what` gives, while what it does with recorded numbers is added to a line.
pub(crate) fn record<const DOUBLE: bool, R>(line: &mut Line, what: impl FnOnce() -> R) -> R {
    let recording = Recording { line: std::mem::take(line), double: DOUBLE };
    let restore = Restore(RECORDING.replace(Some(recording)));
    let result = what();
    *line = RECORDING.take().map(|recording| recording.line).unwrap_or_default();
    drop(restore);
    result
}

/// A number, from a vector of the line that is recorded.
pub(crate) fn number<const DOUBLE: bool>(value: Value) -> Number<DOUBLE> {
    match op(value) {
        Op::Constant(bits) => Float::new(Recorded::from_f64(f64::from_bits(bits))),
        _ => Float::new(Recorded::Vector(value)),
    }
}

/// The vector of a number, and of a mask.
pub(crate) fn value<const DOUBLE: bool>(number: Number<DOUBLE>) -> Value {
    number.get().value()
}

/// The vector that an operation gives in the line of this thread.
#[inline(never)]
pub(super) fn push(op: Op) -> Value {
    recorded(|line| line.push(op))
}

/// The operation that gives a vector of it.
pub(super) fn op(value: Value) -> Op {
    recorded(|line| line.op(value))
}

fn recorded<R>(what: impl FnOnce(&mut Line) -> R) -> R {
    RECORDING.with_borrow_mut(|recording| {
        what(&mut recording.as_mut().expect("numbers are recorded only within `record`").line)
    })
}

/// A float64 if `DOUBLE`, else a float32, whose value is not known before the line runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Recorded<const DOUBLE: bool> {
    /// A number of this precision, which is written down where it is used.
    Constant(f64),
    Vector(Value),
}

impl<const DOUBLE: bool> From<Value> for Recorded<DOUBLE> {
    fn from(value: Value) -> Self {
        Self::Vector(value)
    }
}

impl<const DOUBLE: bool> Recorded<DOUBLE> {
    /// The bit of the sign.
    const SIGN: u64 = if DOUBLE { 1 << 63 } else { 1 << 31 };

    /// Its vector.
    pub(crate) fn value(self) -> Value {
        match self {
            Self::Constant(constant) => push(Op::Constant(constant.to_bits())),
            Self::Vector(value) => value,
        }
    }

    /// What an operation gives.
    #[inline(never)]
    fn of(op: Op) -> Self {
        debug_assert!(
            RECORDING.with_borrow(|recording| recording.as_ref().is_none_or(|r| r.double == DOUBLE)),
            "a line is of one precision"
        );
        Self::Vector(push(op))
    }

    /// All numbers, if they are constants.
    fn constants<const N: usize>(numbers: [Self; N]) -> Option<[f64; N]> {
        let mut constants = [0.0; N];
        for (constant, number) in constants.iter_mut().zip(numbers) {
            let Self::Constant(known) = number else { return None };
            *constant = known;
        }
        Some(constants)
    }

    /// Whether all its bits are known to be zero.
    fn is_zero(self) -> bool {
        matches!(self, Self::Constant(constant) if constant.to_bits() == 0)
    }

    #[inline(never)]
    fn compare(self, other: Self, known: fn(&f64, &f64) -> bool, op: fn(Value, Value) -> Op) -> RecordedMask {
        match Self::constants([self, other]) {
            Some([a, b]) => RecordedMask::Known(known(&a, &b)),
            None => push(op(self.value(), other.value())).into(),
        }
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:tt),*) => {$(
        impl<const DOUBLE: bool> $trait for Recorded<DOUBLE> {
            type Output = Self;
            #[inline(never)]
            fn $method(self, other: Self) -> Self {
                match Self::constants([self, other]) {
                    Some([a, b]) if DOUBLE => Self::Constant(a $op b),
                    Some([a, b]) => Self::Constant(f64::from(a as f32 $op b as f32)),
                    None => Self::of(Op::$trait(self.value(), other.value())),
                }
            }
        }
    )*};
}

operators!(Add add +, Sub sub -, Mul mul *, Div div /);

impl<const DOUBLE: bool> Neg for Recorded<DOUBLE> {
    type Output = Self;
    #[inline(never)]
    fn neg(self) -> Self {
        match self {
            Self::Constant(constant) => Self::Constant(-constant),
            Self::Vector(value) => Self::of(Op::Xor(value, push(Op::Bits(Self::SIGN)))),
        }
    }
}

impl<const DOUBLE: bool> Real for Recorded<DOUBLE> {
    type Truth = RecordedMask;
    const DOUBLE: bool = DOUBLE;

    fn from_f64(constant: f64) -> Self {
        Self::Constant(if DOUBLE { constant } else { f64::from(constant as f32) })
    }

    #[inline(never)]
    fn fused(self, factor: Self, term: Self) -> Self {
        match Self::constants([self, factor, term]) {
            Some([a, b, c]) if DOUBLE => Self::Constant(a.mul_add(b, c)),
            Some([a, b, c]) => Self::Constant(f64::from((a as f32).mul_add(b as f32, c as f32))),
            None => Self::of(Op::Fma(self.value(), factor.value(), term.value())),
        }
    }

    #[inline(never)]
    fn magnitude(self) -> Self {
        match self {
            Self::Constant(constant) => Self::Constant(constant.abs()),
            Self::Vector(value) => Self::of(Op::AndNot(push(Op::Bits(Self::SIGN)), value)),
        }
    }

    fn root(self) -> Self {
        match self {
            Self::Constant(constant) if DOUBLE => Self::Constant(constant.sqrt()),
            Self::Constant(constant) => Self::Constant(f64::from((constant as f32).sqrt())),
            Self::Vector(value) => Self::of(Op::Sqrt(value)),
        }
    }

    fn floor_native(self) -> Self {
        match self {
            Self::Constant(constant) => Self::Constant(constant.floor()),
            Self::Vector(value) => Self::of(Op::Floor(value)),
        }
    }

    #[inline(never)]
    fn with_sign_of(self, sign: Self) -> Self {
        if let Some([magnitude, sign]) = Self::constants([self, sign]) {
            return Self::Constant(magnitude.copysign(sign));
        }
        let bit = push(Op::Bits(Self::SIGN));
        let sign = push(Op::And(bit, sign.value()));
        Self::of(Op::Or(self.magnitude().value(), sign))
    }

    fn less(self, other: Self) -> RecordedMask {
        self.compare(other, f64::lt, Op::Lt)
    }

    fn less_or_equal(self, other: Self) -> RecordedMask {
        self.compare(other, f64::le, Op::Le)
    }

    fn equal(self, other: Self) -> RecordedMask {
        self.compare(other, f64::eq, Op::Eq)
    }

    #[inline(never)]
    fn pick(truth: RecordedMask, yes: Self, no: Self) -> Self {
        match truth {
            RecordedMask::Known(truth) => [no, yes][usize::from(truth)],
            RecordedMask::Not(mask) => Self::pick(RecordedMask::Vector(mask), no, yes),
            RecordedMask::Vector(mask) if no.is_zero() => Self::of(Op::And(mask, yes.value())),
            RecordedMask::Vector(mask) if yes.is_zero() => Self::of(Op::AndNot(mask, no.value())),
            RecordedMask::Vector(mask) => Self::of(Op::Select(mask, yes.value(), no.value())),
        }
    }

    fn from_pattern(bits: u64) -> Self {
        Self::of(Op::Bits(if DOUBLE { bits } else { bits & u64::from(u32::MAX) }))
    }

    fn add_bits(self, other: Self) -> Self {
        Self::of(Op::AddInt(self.value(), other.value()))
    }

    fn and_bits(self, other: Self) -> Self {
        Self::of(Op::And(self.value(), other.value()))
    }

    fn or_bits(self, other: Self) -> Self {
        Self::of(Op::Or(self.value(), other.value()))
    }

    fn xor_bits(self, other: Self) -> Self {
        Self::of(Op::Xor(self.value(), other.value()))
    }

    #[inline(never)]
    fn scaled(self, rounded: Self, shift: Self, back: Self) -> Self {
        let scales = RECORDING.with_borrow(|recording| recording.as_ref().is_some_and(|own| own.line.scales));
        if !scales || Self::constants([rounded]).is_some() {
            return self * Self::power_of_two(rounded, shift) * back;
        }
        let power = rounded - Self::from_f64(Self::ROUND);
        Self::of(Op::Scale(self.value(), power.value()))
    }

    fn of_eight(position: Self, numbers: [f32; 8]) -> Self {
        debug_assert!(!DOUBLE, "there are float32 of them");
        Self::of(Op::OfEight(position.value(), numbers.map(f32::to_bits)))
    }

    fn shift_left(self, by: u8) -> Self {
        Self::of(Op::ShiftLeft(self.value(), by))
    }

    fn shift_right(self, by: u8) -> Self {
        Self::of(Op::ShiftRight(self.value(), by))
    }

    fn angle<I: Isa>(turn: Turn, x: Float<Self, I>, near: Float<Self, I>) -> Float<Self, I> {
        let is_far = Float::c(Self::FAR).le(x.abs()).value();
        Float::new(Self::of(Op::Angle(turn, is_far, near.get().value(), x.get().value())))
    }
}

/// What a comparison of recorded numbers gives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RecordedMask {
    Known(bool),
    Vector(Value),
    /// True where the vector is not: most uses need no operation for that.
    Not(Value),
}

impl From<Value> for RecordedMask {
    fn from(value: Value) -> Self {
        Self::Vector(value)
    }
}

impl RecordedMask {
    /// Its vector.
    pub(crate) fn value(self) -> Value {
        match self {
            Self::Known(truth) => push(Op::Bits(if truth { u64::MAX } else { 0 })),
            Self::Vector(value) => value,
            Self::Not(value) => push(Op::Xor(value, push(Op::Bits(u64::MAX)))),
        }
    }
}

impl Mask for RecordedMask {}

impl BitAnd for RecordedMask {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        match (self, other) {
            (Self::Known(false), _) | (_, Self::Known(false)) => Self::Known(false),
            (Self::Known(true), mask) | (mask, Self::Known(true)) => mask,
            (Self::Vector(a), Self::Vector(b)) => push(Op::And(a, b)).into(),
            (Self::Not(a), Self::Vector(b)) | (Self::Vector(b), Self::Not(a)) => {
                push(Op::AndNot(a, b)).into()
            }
            (Self::Not(a), Self::Not(b)) => Self::Not(push(Op::Or(a, b))),
        }
    }
}

impl BitOr for RecordedMask {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        !(!self & !other)
    }
}

impl Not for RecordedMask {
    type Output = Self;
    fn not(self) -> Self {
        match self {
            Self::Known(truth) => Self::Known(!truth),
            Self::Vector(value) => Self::Not(value),
            Self::Not(value) => Self::Vector(value),
        }
    }
}
