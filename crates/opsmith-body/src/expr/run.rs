//! Programs of loops over blocks, run: step by step, a few blocks at a time.

#![allow(
    clippy::needless_range_loop,
    reason = "no closures: only what is inlined, whatever happens, is compiled for the instruction set"
)]

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::body::{BLOCK, Block};
use crate::element::Element;
use crate::expr::functions::with_functions;
use crate::expr::graph::{Binary, Compare, Unary};
use crate::expr::interpret::{Interpreted, Operation, Source, Step, Target, Temporary};
use crate::isa::{Isa, Kernel};
use crate::scalar::Scalar;

/// How many blocks a step computes before the next step, so that choosing its loop costs little. The temporaries still
/// stay in the first cache.
pub(super) const TILE: usize = 4;
/// A block is computed by parts of so many numbers, as many as it needs.
const PART: usize = 32;

/// Where a block lies that a step reads, and one that it writes.
type Read<T> = *const [T; BLOCK];
type Written<T> = *mut [T; BLOCK];

/// The temporaries of a thread.
pub struct Slots<T> {
    blocks: Vec<[Block<T>; TILE]>,
    /// Where they lie. A step finds there what it reads and writes as it does in the lists of inputs and outputs.
    places: Vec<[Written<T>; TILE]>,
    /// Where the outputs are, if there is a block of each.
    outputs: Vec<Written<T>>,
}

impl<T: Element> Slots<T> {
    pub(super) const fn new() -> Self {
        Self { blocks: Vec::new(), places: Vec::new(), outputs: Vec::new() }
    }

    /// Where so many temporaries lie.
    pub(super) fn places(&mut self, count: usize) -> &[[Written<T>; TILE]] {
        self.places_and(count, &mut []).0
    }

    /// The same, and where the blocks lie.
    pub(super) fn places_and(
        &mut self,
        count: usize,
        outputs: &mut [Block<T>],
    ) -> (&[[Written<T>; TILE]], &[Written<T>]) {
        if self.blocks.len() < count {
            self.blocks.resize(count, [Block::default(); TILE]);
            self.places.clear();
            for tile in &mut self.blocks {
                let mut places = [std::ptr::null_mut(); TILE];
                for (place, block) in places.iter_mut().zip(tile) {
                    *place = &raw mut block.0;
                }
                self.places.push(places);
            }
        }
        self.outputs.clear();
        self.outputs.extend(outputs.iter_mut().map(|block| &raw mut block.0));
        (&self.places, &self.outputs)
    }
}

/// What a program reads and writes: so many blocks of each input and output, all of the first, then of the second, and so
/// on.
pub(super) struct Run<'a, T> {
    program: &'a Interpreted,
    /// How long each block is.
    lens: &'a [usize],
    inputs: &'a [Read<T>],
    outputs: &'a [Written<T>],
    slots: &'a [[Written<T>; TILE]],
}

impl<'a, T: Temporary> Run<'a, T> {
    /// # Panics
    /// If there are more or fewer blocks than that.
    ///
    /// # Safety
    /// While it runs, the outputs' blocks must be writable, and nobody else's.
    pub(super) unsafe fn new(
        program: &'a Interpreted,
        lens: &'a [usize],
        inputs: &'a [&[T; BLOCK]],
        outputs: &'a [Written<T>],
        slots: &'a [[Written<T>; TILE]],
    ) -> Self {
        assert_eq!(inputs.len(), lens.len() * program.inputs, "a slice for each input");
        assert_eq!(outputs.len(), lens.len() * program.outputs, "a block for each output");
        // SAFETY: references are pointers.
        let inputs = unsafe { &*(&raw const *inputs as *const [Read<T>]) };
        Self { program, lens, inputs, outputs, slots }
    }
}

impl<T: Temporary> Kernel for Run<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { program, lens, inputs, outputs, slots } = self;
        let mut first = 0;
        while first < lens.len() {
            let lens_here = &lens[first..lens.len().min(first + TILE)];
            let count = lens_here.len();
            for step in &program.steps {
                let results = match step.target {
                    Target::Output(output) => &outputs[output * lens.len() + first..][..count],
                    Target::Slot(slot) => &slots[slot][..count],
                };
                let found = Found { program, inputs, slots, all: lens.len(), first, count };
                step_on::<I, T>(step, &found, results, lens_here);
            }
            for &(output, source) in &program.copies {
                let mut room = [std::ptr::null(); TILE];
                let found = Found { program, inputs, slots, all: lens.len(), first, count };
                let from = found.get(source, &mut room);
                let results = &outputs[output * lens.len() + first..][..count];
                for unit in 0..count {
                    // SAFETY: each is a whole block, and the output is exclusively ours.
                    unsafe { *results[unit] = *from[unit] };
                }
            }
            first += TILE;
        }
    }
}

/// Everything that a step can read.
struct Found<'a, T> {
    program: &'a Interpreted,
    inputs: &'a [Read<T>],
    slots: &'a [[Written<T>; TILE]],
    /// How many blocks there are of each input; the first of the tile, and how many the tile has.
    all: usize,
    first: usize,
    count: usize,
}

impl<T: Temporary> Found<'_, T> {
    /// Where the blocks of a tile lie, in `room` if nowhere else.
    #[inline(always)]
    fn get<'s>(&'s self, source: Source, room: &'s mut [Read<T>; TILE]) -> &'s [Read<T>] {
        let places: &[Read<T>] = match source {
            Source::Input(position) => &self.inputs[position * self.all + self.first..],
            Source::Slot(slot) => {
                // SAFETY: what may be written may be read.
                unsafe { &*(&raw const self.slots[slot] as *const [Read<T>; TILE]) }
            }
            Source::Constant(position) => {
                *room = [T::constant(&self.program.constants[position]); TILE];
                room
            }
        };
        &places[..self.count]
    }
}

/// A loop over the blocks of a tile: `result[i] = expression` of the operands' numbers.
macro_rules! each {
    ($isa:ty, $number:ty, $lens:ident, $operands:ident, $results:ident = |$($x:ident),*| $expression:expr) => {{
        // A function of its own says that the result is no operand's memory.
        #[inline(always)]
        fn block<I: Isa, T: Element>($($x: &[T; BLOCK],)* result: &mut [T; BLOCK], len: usize) {
            if len == BLOCK {
                for index in 0..BLOCK {
                    $(let $x = $x[index].load::<I>();)*
                    result[index] = T::store($expression);
                }
            } else {
                for index in 0..len.next_multiple_of(PART).min(BLOCK) {
                    $(let $x = $x[index].load::<I>();)*
                    result[index] = T::store($expression);
                }
            }
        }
        for unit in 0..$lens.len() {
            let [$($x),*, ..] = &$operands;
            // SAFETY: each is a whole block. A result is no operand of its step: an output is exclusively ours, and a
            // temporary is used again only by a later step.
            unsafe { block::<$isa, $number>($(&*$x[unit],)* &mut *$results[unit], $lens[unit]) };
        }
    }};
}

/// Chooses the loop of an operation.
macro_rules! choose {
    ({$isa:ty, $number:ty, $operation:expr, $lens:ident, $results:ident, $operands:ident;
      $($binary:ident $method:ident)*; $($compare:ident $comparison:ident)*}
     $($unary:ident $function:ident),*) => {
        match $operation {
            Operation::And => each!($isa, $number, $lens, $operands, $results = |a, b| a * b),
            Operation::Or => each!($isa, $number, $lens, $operands, $results = |a, b| {
                Scalar::select(a.ne(Scalar::of(0.0)), Scalar::of(1.0), b)
            }),
            Operation::Not => {
                each!($isa, $number, $lens, $operands, $results = |a| T::Number::<I>::of(1.0) - a)
            }
            Operation::Select => each!($isa, $number, $lens, $operands, $results = |a, b, c| {
                Scalar::select(a.ne(Scalar::of(0.0)), b, c)
            }),
            Operation::Unary(Unary::Neg) => {
                each!($isa, $number, $lens, $operands, $results = |a| a.neg());
            }
            $(Operation::Unary(Unary::$unary) => {
                each!($isa, $number, $lens, $operands, $results = |a| a.$function());
            })*
            $(Operation::Binary(Binary::$binary) => {
                each!($isa, $number, $lens, $operands, $results = |a, b| a.$method(b));
            })*
            $(Operation::Compare(Compare::$compare) => each!($isa, $number, $lens, $operands, $results = |a, b| {
                Scalar::select(a.$comparison(b), Scalar::of(1.0), Scalar::of(0.0))
            }),)*
        }
    };
}

#[inline(always)]
fn step_on<I: Isa, T: Temporary>(step: &Step, found: &Found<'_, T>, results: &[Written<T>], lens: &[usize]) {
    let mut room = [[std::ptr::null(); TILE]; 3];
    let [room_of_a, room_of_b, room_of_c] = &mut room;
    let a = found.get(step.operands[0], room_of_a);
    let b = if step.arity > 1 { found.get(step.operands[1], room_of_b) } else { a };
    let c = if step.arity > 2 { found.get(step.operands[2], room_of_c) } else { a };
    let operands = [a, b, c];
    with_functions! {
        choose {
            I, T, step.operation, lens, results, operands;
            Add add Sub sub Mul mul Div div Pow pow Min min Max max;
            Lt lt Le le Eq eq
        }
    }
}
