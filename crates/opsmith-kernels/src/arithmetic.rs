//! Arithmetic of elements: a graph without folds, computed for blocks of numbers. As machine code where there can be such, else
//! interpreted.

mod few;

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::Arc;

use opsmith_body::code::{Frame, Held, Lies, Tile, Vectors, Wanted, Way, compile};
use opsmith_body::{Axes, Axis, BLOCK, Block, Graph, Interpreted, Level, Nest, Node, Place, Step};
use smallvec::SmallVec;

pub(crate) use self::few::{FewElements, MOST_FEW};
use crate::kept::{Kept, Presence};
use crate::nests::{Pages, is_possible};
use crate::stored::{Stored, Wide};

/// The most vectors of a frame, which is on the stack.
const MOST_VECTORS: usize = 128;

/// What is computed of each element.
pub struct Arithmetic {
    graph: Graph,
    interpreted: Interpreted,
    cost: usize,
    made: Kept<Variant, Option<Made>>,
}

/// What code is made for.
#[derive(Clone, Copy, PartialEq)]
struct Variant {
    /// The inputs of which there is one number, as bits.
    same: u64,
    /// How numbers are held, and the vectors in which they are computed.
    held: Held,
    vectors: Vectors,
    /// How many numbers a turn of its outer loop computes.
    turn: usize,
}

/// So many numbers are computed by a turn where there are as many.
const MANY: usize = 8 * BLOCK;

/// Machine code for any number of turns.
struct Made {
    pages: Pages,
    frame: Frame,
    variant: Variant,
}

/// The code of a variant, where there is any.
type Code = Option<Arc<Option<Made>>>;

/// A vector of a frame.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Vector([u8; 64]);

/// Room for what code has for itself.
pub(crate) struct Scratch([MaybeUninit<Vector>; MOST_VECTORS]);

impl Scratch {
    pub(crate) fn new() -> Self {
        Scratch([MaybeUninit::uninit(); MOST_VECTORS])
    }

    #[inline]
    fn set(&mut self, at: usize, number: u64) {
        // SAFETY: what a frame has is within it, at multiples of 8 bytes.
        unsafe { self.0.as_mut_ptr().cast::<u8>().add(at).cast::<u64>().write(number) };
    }
}

impl Made {
    /// Puts down what is the same in all runs on elements of so many bytes.
    fn prepare(&self, scratch: &mut Scratch, bytes: usize) {
        for (_, axis, at) in &self.frame.strides {
            let numbers = if axis.index() == 0 { 1 } else { self.variant.turn };
            scratch.set(*at, (numbers * bytes) as u64);
        }
    }

    /// Runs so many turns, one at least, on arguments at these addresses.
    ///
    /// # Safety
    /// The room must be prepared, and the elements of the arguments be there.
    unsafe fn run(&self, scratch: &mut Scratch, turns: usize, arguments: impl Iterator<Item = u64>) {
        for (argument, address) in arguments.enumerate() {
            scratch.set(self.frame.addresses + 8 * argument, address);
        }
        scratch.set(self.frame.count, turns as u64);
        // SAFETY: the code was made for this frame, and the caller promises the rest.
        unsafe { self.pages.run(scratch.0.as_mut_ptr().cast()) };
    }
}

/// Arithmetic for inputs of a kind, on a thread.
pub(crate) struct Ready<'a, T> {
    arithmetic: &'a Arithmetic,
    same: u64,
    /// The code for turns of so many numbers, as far as it was asked for.
    made: SmallVec<[(usize, Code); 2]>,
    scratch: &'a mut Scratch,
    /// The turn of the code that the room was prepared for.
    prepared: usize,
    elements: PhantomData<fn() -> T>,
}

impl Arithmetic {
    pub(crate) fn new(graph: &Graph) -> Self {
        let graph = graph.without_detached();
        let operation = |node: &Node| match node {
            Node::Unary(..) => 40,
            Node::Input(_) | Node::Attribute(_) | Node::Constant(_) => 2,
            _ => 6,
        };
        Arithmetic {
            interpreted: Interpreted::new(&graph),
            cost: 20 + graph.nodes().iter().map(operation).sum::<usize>(),
            made: Kept::default(),
            graph,
        }
    }

    /// That of a call which does not have or want all.
    pub(crate) fn part(&self, given: Presence) -> Arithmetic {
        Arithmetic::new(&given.part(&self.graph))
    }

    /// How many inputs there are, and outputs.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.graph.input_count(), self.graph.outputs().len())
    }

    /// The nanoseconds that a block takes, roughly: gathering and storing it, and each operation.
    pub(crate) fn cost(&self) -> usize {
        self.cost
    }

    /// Ready for elements of `T`; the inputs that `same` has as bits are of one number.
    pub(crate) fn ready<'a, T: Stored>(&'a self, same: u64, scratch: &'a mut Scratch) -> Ready<'a, T> {
        let (made, elements) = (SmallVec::new(), PhantomData);
        Ready { arithmetic: self, same, made, scratch, prepared: 0, elements }
    }

    /// The code of a variant, made at its first use; none where there can be none.
    fn made(&self, variant: Variant) -> Code {
        if self.graph.input_count() > 64 || !is_possible([variant.held]) {
            return None;
        }
        let made = self.made.get(variant, |variant| self.make(*variant));
        made.is_some().then_some(made)
    }

    fn make(&self, variant: Variant) -> Option<Made> {
        let Variant { same, held, vectors, turn } = variant;
        let (inputs, outputs) = self.counts();
        let (numbers, turns) = (Axis::new(0), Axis::new(1));
        let mut steps: Vec<Step> =
            (0..inputs).map(|input| Step::Load { from: Place::Input(input), to: input }).collect();
        steps.push(Step::Compute {
            graph: Box::new(self.graph.clone()),
            program: Box::new(self.interpreted.clone()),
            inputs: (0..inputs).collect(),
            outputs: (inputs..inputs + outputs).collect(),
        });
        let store = |output| Step::Store { from: inputs + output, to: Place::Output(output) };
        steps.extend((0..outputs).map(store));
        let steps = vec![Step::Loop { axis: numbers, steps, sums: Vec::new() }];
        let registers = vec![Axes::NONE; inputs + outputs];
        let nest = Nest { lanes: Some(numbers), free: Axes::of(turns), registers, steps };
        let bytes = match held {
            Held::Half | Held::BFloat => 2,
            _ => vectors.number(),
        };
        let lie = |argument: usize| {
            let is_one = argument < inputs && same >> argument & 1 == 1;
            let (axes, dense) = match is_one {
                true => (Axes::NONE, Axes::NONE),
                false => (Axes::of(numbers).with(turns), Axes::of(numbers)),
            };
            let mut along = [0; Axis::MOST];
            if !is_one {
                (along[numbers.index()], along[turns.index()]) = (bytes as isize, (turn * bytes) as isize);
            }
            Lies { axes, dense, along, held }
        };
        let lies: Vec<Lies> = (0..inputs + outputs).map(lie).collect();
        let wanted = Wanted {
            nest: &nest,
            // The turns are as many as the call says; of their axis no size is in the code.
            sizes: &[turn, BLOCK],
            lies: &lies,
            counts: (inputs, outputs),
            tile: &Tile { counts: Vec::new(), last: vectors.width(), inner: None },
            steps: (0, nest.steps.len()),
            part: None,
        };
        let code = Way::ALL.into_iter().find_map(|way| compile(&wanted, vectors, way))?;
        let fits = code.frame.bytes <= MOST_VECTORS * size_of::<Vector>();
        Some(Made { pages: fits.then(|| Pages::new(&code.bytes)).flatten()?, frame: code.frame, variant })
    }
}

/// Where the elements of an operand are: from here on, or one for all.
#[derive(Clone, Copy)]
pub(crate) struct Elements<T> {
    pub(crate) first: *const T,
    pub(crate) is_one: bool,
}

impl<T: Stored> Ready<'_, T> {
    /// Where in `made` the code for turns of so many numbers is, if there is any.
    fn made(&mut self, turn: usize) -> Option<usize> {
        let known = self.made.iter().position(|(known, _)| *known == turn);
        let position = known.unwrap_or_else(|| {
            let vectors = Vectors::best(size_of::<T::Wide>() == 8);
            let variant = Variant { same: self.same, held: T::HELD, vectors, turn };
            self.made.push((turn, self.arithmetic.made(variant)));
            self.made.len() - 1
        });
        self.made[position].1.as_ref().map(|_| position)
    }

    /// Computes `count` numbers, whole blocks, of each output, as machine code; says whether it did. Of an input that is one for all there
    /// is one element.
    ///
    /// # Panics
    /// If there are more or fewer operands than inputs and outputs.
    ///
    /// # Safety
    /// There must be so many elements of each operand. Those of outputs must be nobody else's, and an input's only where they are a single
    /// output's and at the same places. Which inputs are one for all was told before.
    pub(crate) unsafe fn elements(
        &mut self,
        count: usize,
        inputs: &[Elements<T>],
        outputs: &[*mut T],
    ) -> bool {
        if self.made(BLOCK).is_none() {
            return false;
        }
        let mut done = 0;
        for turn in [MANY, BLOCK] {
            let here = (count - done) / turn * turn;
            if here > 0
                && let Some(made) = self.made(turn)
            {
                // SAFETY: promised by the caller; the code was made for such inputs.
                unsafe { self.run(made, (done, here), inputs, outputs) };
                done += here;
            }
        }
        true
    }

    /// # Safety
    /// As [`elements`](Self::elements), for some numbers from one on, which are whole turns.
    unsafe fn run(
        &mut self,
        made: usize,
        (from, count): (usize, usize),
        inputs: &[Elements<T>],
        outputs: &[*mut T],
    ) {
        // The code goes through its loop once at least.
        let made = self.made[made].1.as_deref().and_then(Option::as_ref);
        let Some(made) = made.filter(|_| count > 0) else { return };
        assert_eq!((inputs.len(), outputs.len()), self.arithmetic.counts(), "so many inputs and outputs");
        let turn = made.variant.turn;
        if self.prepared != turn {
            made.prepare(self.scratch, size_of::<T>());
            self.prepared = turn;
        }
        let read = inputs.iter().map(|own| own.first.wrapping_add(if own.is_one { 0 } else { from }) as u64);
        let written = outputs.iter().map(|own| own.wrapping_add(from) as u64);
        // SAFETY: the code was made for these arguments, which the caller promises are there.
        unsafe { made.run(self.scratch, count / turn, read.chain(written)) };
    }
}

impl<W: Wide + Stored<Wide = W>> Ready<'_, W> {
    /// Computes the first `count` numbers of a block, at least.
    ///
    /// # Panics
    /// If there are more or fewer blocks than inputs and outputs, or the inputs that are one number are not none.
    pub(crate) fn block(&mut self, count: usize, inputs: &[&[W; BLOCK]], outputs: &mut [Block<W>]) {
        assert_eq!(self.same, 0, "blocks of numbers");
        let width = Vectors::best(size_of::<W>() == 8).width();
        let turn = if count > BLOCK / 2 { BLOCK } else { width };
        let Some(made) = self.made(turn) else {
            return self.arithmetic.interpreted.eval(Level::best(), inputs, outputs);
        };
        // Filled where they lie: collected ones would be copied.
        let (mut read, mut written) = (SmallVec::<[Elements<W>; 8]>::new(), SmallVec::<[*mut W; 4]>::new());
        read.extend(inputs.iter().map(|block| Elements { first: block.as_ptr(), is_one: false }));
        written.extend(outputs.iter_mut().map(|block| block.0.as_mut_ptr()));
        // SAFETY: there is a block of each, of which no more is computed, and outputs are borrowed apart from inputs.
        unsafe { self.run(made, (0, count.next_multiple_of(turn)), &read, &written) };
    }
}

#[cfg(test)]
mod tests;
