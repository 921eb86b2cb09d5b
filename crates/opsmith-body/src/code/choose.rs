//! Which instructions compute an operation, and where its result is.

use super::asm::{Arith, Bitwise, First, Mask, Rm, Signs, Test, Vector, When};
use super::calls;
use super::line::{Op, Value};
use super::place::{FIRST, FRAME, Placer, ROOM, SCRATCH};
use crate::float::Turn;

impl Placer<'_> {
    /// Computes a vector, in this register if it can be.
    pub(super) fn op(&mut self, value: Value, op: Op, pin: Option<Vector>) {
        let operands: Vec<Value> = op.operands().collect();
        match op {
            Op::Add(a, b) => self.two(value, pin, Arith::Add, a, b, true),
            Op::Sub(a, b) => self.two(value, pin, Arith::Sub, a, b, false),
            Op::Mul(a, b) => self.two(value, pin, Arith::Mul, a, b, true),
            Op::Div(a, b) => self.two(value, pin, Arith::Div, a, b, false),
            Op::Max(a, b) => self.two(value, pin, Arith::Max, a, b, false),
            Op::Min(a, b) => self.two(value, pin, Arith::Min, a, b, false),
            Op::And(a, b) => self.bitwise((value, pin), (Arith::And, Bitwise::And), a, b),
            Op::Or(a, b) => self.bitwise((value, pin), (Arith::Or, Bitwise::Or), a, b),
            Op::AndNot(a, b) => self.bitwise((value, pin), (Arith::AndNot, Bitwise::AndNot), a, b),
            Op::Xor(a, b) => self.two(value, pin, Arith::Xor, a, b, true),
            Op::Fma(a, b, c) => self.multiply_add((value, pin), Signs::Same, (a, b, c)),
            Op::Fms(a, b, c) => self.multiply_add((value, pin), Signs::LessTerm, (a, b, c)),
            Op::Fnma(a, b, c) => self.multiply_add((value, pin), Signs::LessProduct, (a, b, c)),
            Op::FmaWhere(mask, a, b, c) => self.multiply_add_where((value, pin), mask, (a, b, c)),
            Op::Sqrt(a) | Op::Floor(a) => {
                let from = self.anywhere(a);
                let to = self.result(value, pin, &operands);
                match op {
                    Op::Sqrt(_) => self.asm.sqrt(to, from),
                    _ => self.asm.floor(to, from),
                }
            }
            Op::IsNan(a) => {
                let from = self.register(a);
                self.compared((value, pin), Test::Unordered, (from, from.into()), &operands);
            }
            Op::IsNotZero(a) => {
                let from = self.register(a);
                let zero = self.asm.constant(|_| 0);
                self.compared((value, pin), Test::NotZero, (from, zero), &operands);
            }
            Op::Lt(a, b) => self.compare(value, pin, Test::Lt, a, b),
            Op::Le(a, b) => self.compare(value, pin, Test::Le, a, b),
            Op::Eq(a, b) => self.compare(value, pin, Test::Eq, a, b),
            Op::AddInt(a, b) => {
                let a = self.register(a);
                let b = self.anywhere(b);
                let to = self.result(value, pin, &operands);
                self.asm.add_int(to, a, b);
            }
            Op::Scale(a, b) => {
                let a = self.register(a);
                let b = self.anywhere(b);
                let to = self.result(value, pin, &operands);
                self.asm.scale(to, a, b);
            }
            Op::ShiftLeft(a, count) | Op::ShiftRight(a, count) => {
                let from = self.register(a);
                let to = self.result(value, pin, &operands);
                match op {
                    Op::ShiftLeft(..) => self.asm.shift_left(to, from, count),
                    _ => self.asm.shift_right(to, from, count),
                }
            }
            Op::OfEight(a, numbers) => {
                let from = self.register(a);
                let to = self.result(value, pin, &operands);
                let numbers = self.asm.constant(|lane| numbers[lane % 8].into());
                self.asm.choose(to, from, numbers);
            }
            Op::Angle(turn, far, near, x) => return self.angle((value, pin), turn, (far, near, x)),
            Op::Select(..) | Op::FirstOf(..) => self.chosen((value, pin), op, &operands),
            Op::Quarters(..) | Op::Permuted(..) => self.moved((value, pin), op, &operands),
            Op::Input(_) | Op::Constant(_) | Op::Bits(_) => {
                unreachable!("they are no instructions")
            }
        }
        self.forget(&operands, value);
    }

    /// Numbers of one vector or of another.
    fn chosen(&mut self, (value, pin): (Value, Option<Vector>), op: Op, operands: &[Value]) {
        match op {
            Op::Select(mask, yes, no) if self.vectors.wide => {
                let no = self.register(no);
                let mask = self.mask(mask);
                let yes = self.anywhere(yes);
                let to = self.result(value, pin, operands);
                self.asm.blend(to, mask, yes, no);
            }
            Op::Select(mask, yes, no) => {
                let (mask, no) = (self.register(mask), self.register(no));
                let yes = self.anywhere(yes);
                let to = self.result(value, pin, operands);
                self.asm.select(to, mask, yes, no);
            }
            Op::FirstOf(count, first, rest) => {
                let (first, rest) = (self.register(first), self.register(rest));
                let to = self.result(value, pin, operands);
                if self.vectors.wide {
                    self.asm.set_first_bits(FIRST, count.into(), SCRATCH);
                    self.asm.blend(to, FIRST, first.into(), rest);
                } else {
                    self.asm.first_of(count.into(), to, first, rest);
                }
            }
            _ => unreachable!("it is one of both"),
        }
    }

    /// The numbers of vectors in other places.
    fn moved(&mut self, (value, pin): (Value, Option<Vector>), op: Op, operands: &[Value]) {
        let from: Vec<Vector> = op.operands().map(|from| self.register(from)).collect();
        let to = self.result(value, pin, operands);
        match op {
            Op::Quarters(.., order) => self.asm.quarters(to, from[0], from[1], order),
            Op::Permuted(_, order) => self.asm.permute(to, from[0], order),
            _ => unreachable!("it is one of both"),
        }
    }

    /// Calls a function for numbers that are far, if there are some.
    fn angle(
        &mut self,
        (value, pin): (Value, Option<Vector>),
        turn: Turn,
        (far, near, x): (Value, Value, Value),
    ) {
        let operands = [far, near, x];
        let (from, of) = (self.register(near), self.register(x));
        let past = self.asm.label();
        if self.vectors.wide {
            let far = self.mask(far);
            self.asm.test_bits(far);
        } else {
            let far = self.register(far);
            self.asm.test_vector(far);
        }
        let to = match self.is_last(near, &operands, pin) {
            true => from,
            false => self.free(),
        };
        self.asm.copy(to, from);
        self.asm.jump(When::Equal, past);
        self.asm.store(to, Rm::At(FRAME, ROOM));
        self.asm.store(of, Rm::At(FRAME, ROOM + self.vectors.bytes() as i32));
        self.asm.get_wide(SCRATCH, calls::address(turn, self.vectors) as usize as i64);
        self.asm.call_out();
        self.asm.load(to, Rm::At(FRAME, ROOM));
        self.asm.here(past);
        match to == from {
            true => self.replaced(value, near, &operands),
            false => self.new_result(value, to, &operands),
        }
    }

    /// Of masks that are in registers for such, the result is in one too; one of them says where a vector is cleared or set.
    fn bitwise(
        &mut self,
        (value, pin): (Value, Option<Vector>),
        (op, of_masks): (Arith, Bitwise),
        a: Value,
        b: Value,
    ) {
        match (self.mask_of(a), self.mask_of(b)) {
            (Some(first), Some(second)) => {
                self.done(&[a, b]);
                let mask = self.free_mask();
                self.asm.combine_bits(of_masks, mask, first, second);
                self.masks[usize::from(mask.0)] = Some(value);
            }
            (Some(mask), None) if op != Arith::AndNot => {
                self.under((value, pin), op, (mask, b), &[a, b]);
            }
            (None, Some(mask)) if op != Arith::AndNot => {
                self.under((value, pin), op, (mask, a), &[a, b]);
            }
            _ => self.two(value, pin, op, a, b, op != Arith::AndNot),
        }
    }

    /// A vector cleared where a mask is false, or with all bits set where it is true.
    fn under(
        &mut self,
        (value, pin): (Value, Option<Vector>),
        op: Arith,
        (mask, vector): (Mask, Value),
        operands: &[Value],
    ) {
        if op == Arith::And {
            let from = self.anywhere(vector);
            let to = self.result(value, pin, operands);
            return self.asm.load_first(to, First::Mask(mask), from);
        }
        let from = self.register(vector);
        let ones = self.asm.constant(|_| u64::MAX);
        let to = self.result(value, pin, operands);
        self.asm.blend(to, mask, ones, from);
    }

    fn two(&mut self, value: Value, pin: Option<Vector>, op: Arith, a: Value, b: Value, turns: bool) {
        let (a, b) = if turns && !self.is_near(a) && self.is_near(b) { (b, a) } else { (a, b) };
        let first = self.register(a);
        let second = self.anywhere(b);
        let to = self.result(value, pin, &[a, b]);
        self.asm.arith(op, to, first, second);
    }

    fn compare(&mut self, value: Value, pin: Option<Vector>, test: Test, a: Value, b: Value) {
        let first = self.register(a);
        let second = self.anywhere(b);
        self.compared((value, pin), test, (first, second), &[a, b]);
    }

    /// Compares what is in registers, or the second in memory.
    fn compared(
        &mut self,
        (value, pin): (Value, Option<Vector>),
        test: Test,
        (first, second): (Vector, Rm),
        operands: &[Value],
    ) {
        if self.vectors.wide {
            let mask = self.free_mask();
            self.asm.compare_bits(test, mask, first, second);
            self.masks[usize::from(mask.0)] = Some(value);
            return self.done(operands);
        }
        let to = self.result(value, pin, operands);
        self.asm.compare(test, to, first, second);
    }

    /// a b + c, in the place of what is no longer read.
    fn multiply_add(
        &mut self,
        (value, pin): (Value, Option<Vector>),
        signs: Signs,
        (a, b, c): (Value, Value, Value),
    ) {
        let operands = [a, b, c];
        let is_last = |own: &Self, which: Value| own.is_last(which, &operands, pin);
        if is_last(self, c) && self.is_near(c) {
            let (a, b) = if self.is_near(a) { (a, b) } else { (b, a) };
            let (to, first) = (self.register(c), self.register(a));
            let second = self.anywhere(b);
            self.asm.add_product(signs, to, first, second);
            return self.replaced(value, c, &operands);
        }
        let (a, b) = if is_last(self, b) && self.is_near(b) && !(is_last(self, a) && self.is_near(a)) {
            (b, a)
        } else {
            (a, b)
        };
        let first = self.register(a);
        let factor = self.register(b);
        if is_last(self, a) {
            let term = self.anywhere(c);
            self.asm.multiply_add(signs, first, factor, term);
            return self.replaced(value, a, &operands);
        }
        let to = self.free();
        self.asm.copy(to, first);
        let term = self.anywhere(c);
        self.asm.multiply_add(signs, to, factor, term);
        self.new_result(value, to, &operands);
    }

    /// Whether an operand is read for the last time and its register can have the result.
    fn is_last(&self, which: Value, operands: &[Value], pin: Option<Vector>) -> bool {
        let times = operands.iter().filter(|other| **other == which).count();
        let is_free = self.at[which.0 as usize]
            .is_none_or(|register| !self.is_pinned[usize::from(register.0)] || pin == Some(register));
        self.uses.left(which) == 1 && times == 1 && is_free
    }

    /// a b + c where a mask is true, else c.
    fn multiply_add_where(
        &mut self,
        (value, pin): (Value, Option<Vector>),
        mask: Value,
        (a, b, c): (Value, Value, Value),
    ) {
        let operands = [mask, a, b, c];
        let sum = self.register(c);
        let by = self.register(a);
        if self.vectors.wide {
            let mask = self.mask(mask);
            let is_last = self.is_last(c, &operands, pin);
            let to = if is_last { sum } else { self.free() };
            self.asm.copy(to, sum);
            let times = self.anywhere(b);
            self.asm.add_product_where(to, mask, by, times);
            return match is_last {
                true => self.replaced(value, c, &operands),
                false => self.new_result(value, to, &operands),
            };
        }
        let (mask, to) = (self.register(mask), self.free());
        self.asm.copy(to, sum);
        let times = self.anywhere(b);
        self.asm.add_product(Signs::Same, to, by, times);
        self.asm.select(to, mask, to.into(), sum);
        self.new_result(value, to, &operands);
    }

    /// A result is in a register that nothing else is in.
    fn new_result(&mut self, value: Value, to: Vector, operands: &[Value]) {
        self.done(operands);
        self.forget(operands, value);
        self.registers[usize::from(to.0)] = Some(value);
        self.at[value.0 as usize] = Some(to);
    }

    /// A result is where an operand was.
    fn replaced(&mut self, value: Value, operand: Value, operands: &[Value]) {
        self.done(operands);
        let register = self.at[operand.0 as usize].take().expect("it was in a register");
        self.forget(operands, value);
        self.registers[usize::from(register.0)] = Some(value);
        self.at[value.0 as usize] = Some(register);
    }
}
