//! Programs of loops over blocks, run: step by step.

#![allow(
    clippy::needless_range_loop,
    reason = "no closures: only what is inlined, whatever happens, is compiled for the instruction set"
)]

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::body::{BLOCK, Block};
use crate::element::Element;
use crate::expr::functions::with_functions;
use crate::expr::interpret::{Interpreted, Operand, Operation, Step, Target, Temporary};
use crate::expr::node::{Binary, Compare, Unary};
use crate::isa::{Isa, Kernel, Level, dispatch_at};
use crate::scalar::Scalar;

impl Interpreted {
    /// Computes a block.
    ///
    /// # Panics
    /// If there are more or fewer slices than inputs and outputs.
    pub fn eval<T: Temporary>(&self, level: Level, inputs: &[&[T; BLOCK]], outputs: &mut [Block<T>]) {
        assert_eq!(inputs.len(), self.inputs, "a slice for each input");
        assert_eq!(outputs.len(), self.outputs, "a block for each output");
        T::slots().with_borrow_mut(|slots| {
            if slots.len() < self.slots {
                slots.resize(self.slots, Block::default());
            }
            self.run(level, Run { program: self, inputs, outputs, slots });
        });
    }

    // Once for each type: it has the loops for the least instruction set in it.
    #[inline(never)]
    fn run<T: Temporary>(&self, level: Level, run: Run<'_, T>) {
        dispatch_at(level, run);
    }
}

/// What a program reads and writes.
struct Run<'a, T> {
    program: &'a Interpreted,
    inputs: &'a [&'a [T; BLOCK]],
    outputs: &'a mut [Block<T>],
    slots: &'a mut [Block<T>],
}

impl<T: Temporary> Kernel for Run<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self) {
        let program = self.program;
        for step in &program.steps {
            let result: *mut [T; BLOCK] = match step.target {
                Target::Output(output) => &raw mut self.outputs[output].0,
                Target::Slot(slot) => &raw mut self.slots[slot].0,
            };
            let a = self.get(step.operands[0]);
            let b = if step.arity > 1 { self.get(step.operands[1]) } else { a };
            let c = if step.arity > 2 { self.get(step.operands[2]) } else { a };
            // SAFETY: each is a whole block. The result is no operand of its step: an output is read by no step, and a temporary is used
            // again only by a later step.
            unsafe { step_on::<I, T>(step, [&*a, &*b, &*c], &mut *result) };
        }
        for &(output, source) in &program.copies {
            // SAFETY: it is a block.
            self.outputs[output].0 = unsafe { *self.get(source) };
        }
    }
}

impl<T: Temporary> Run<'_, T> {
    /// Where a block lies that a step reads.
    #[inline(always)]
    fn get(&mut self, source: Operand) -> *const [T; BLOCK] {
        match source {
            Operand::Input(position) => self.inputs[position],
            Operand::Slot(slot) => &raw const self.slots[slot].0,
            Operand::Constant(position) => T::constant(&self.program.constants[position]),
        }
    }
}

/// A loop over a block: `result[i] = expression` of the operands' numbers.
macro_rules! each {
    ($isa:ty, $number:ty, $operands:ident, $results:ident = |$($x:ident),*| $expression:expr) => {{
        // A function of its own says that the result is no operand's memory.
        #[inline(always)]
        fn block<I: Isa, T: Element>($($x: &[T; BLOCK],)* result: &mut [T; BLOCK]) {
            for index in 0..BLOCK {
                $(let $x = $x[index].load::<I>();)*
                result[index] = T::store($expression);
            }
        }
        let [$($x),*, ..] = $operands;
        block::<$isa, $number>($($x,)* $results);
    }};
}

/// Chooses the loop of an operation.
macro_rules! choose {
    ({$isa:ty, $number:ty, $operation:expr, $results:ident, $operands:ident;
      $($binary:ident $method:ident)*; $($compare:ident $comparison:ident)*}
     $($unary:ident $function:ident),*) => {
        match $operation {
            Operation::And => each!($isa, $number, $operands, $results = |a, b| a * b),
            Operation::Or => each!($isa, $number, $operands, $results = |a, b| {
                Scalar::select(a.ne(Scalar::of(0.0)), Scalar::of(1.0), b)
            }),
            Operation::Not => {
                each!($isa, $number, $operands, $results = |a| T::Number::<I>::of(1.0) - a)
            }
            Operation::Select => each!($isa, $number, $operands, $results = |a, b, c| {
                Scalar::select(a.ne(Scalar::of(0.0)), b, c)
            }),
            Operation::Unary(Unary::Neg) => {
                each!($isa, $number, $operands, $results = |a| a.neg());
            }
            $(Operation::Unary(Unary::$unary) => {
                each!($isa, $number, $operands, $results = |a| a.$function());
            })*
            $(Operation::Binary(Binary::$binary) => {
                each!($isa, $number, $operands, $results = |a, b| a.$method(b));
            })*
            $(Operation::Compare(Compare::$compare) => each!($isa, $number, $operands, $results = |a, b| {
                Scalar::select(a.$comparison(b), Scalar::of(1.0), Scalar::of(0.0))
            }),)*
        }
    };
}

#[inline(always)]
fn step_on<I: Isa, T: Temporary>(step: &Step, operands: [&[T; BLOCK]; 3], result: &mut [T; BLOCK]) {
    with_functions! {
        choose {
            I, T, step.operation, result, operands;
            Add add Sub sub Mul mul Div div Pow pow Min min Max max;
            Lt lt Le le Eq eq
        }
    }
}
