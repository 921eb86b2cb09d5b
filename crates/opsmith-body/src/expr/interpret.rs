//! Graphs computed by blocks of elements: a program of loops over 128 numbers, with few temporaries.

#![allow(
    clippy::needless_range_loop,
    reason = "no closures: only what is inlined, whatever happens, is compiled for the instruction set"
)]

use std::cell::RefCell;
use std::ops::{Add, Div, Mul, Neg, Sub};
use std::thread::LocalKey;

use crate::blocks::Blocks;
use crate::body::{BLOCK, Block};
use crate::element::Element;
use crate::expr::graph::{Binary, Compare, Fold, Graph, Id, Node, Unary};
use crate::isa::{Isa, Kernel, Level, dispatch_at};
use crate::scalar::Scalar;

/// A [`Graph`] as [`Blocks`]: computed node by node, a block at a time.
///
/// Nothing is compiled for a particular graph: each function is a loop over a block, compiled once for all graphs. The
/// temporaries are blocks that are used again as soon as nobody reads them any more, so they stay in the first cache.
/// Results are those of the compiled body that was traced, but for what clean-up made more exact and for the
/// multiplications and additions that a compiler fuses.
///
/// ```
/// use opsmith_body::{BLOCK, Block, Blocks, Body, Interpreted, Level, Scalar, trace};
///
/// struct Swish;
///
/// impl Body<1, 1> for Swish {
///     fn eval<S: Scalar>(&self, [x]: [S; 1]) -> [S; 1] {
///         [x * x.sigmoid()]
///     }
/// }
///
/// let gradient = Interpreted::new(&trace(&Swish).gradient());
/// let mut x_grad = [Block::default()];
/// gradient.eval_f32(Level::best(), &[&[0.0; BLOCK], &[3.0; BLOCK]], &mut x_grad);
/// assert_eq!(x_grad[0].0, [1.5; BLOCK]);
/// ```
#[derive(Clone, Debug)]
pub struct Interpreted {
    inputs: usize,
    outputs: usize,
    /// How many temporaries there are at one time.
    slots: usize,
    steps: Vec<Step>,
    /// Outputs that are not the result of a step of their own.
    copies: Vec<(usize, Source)>,
    /// A block for each constant and attribute.
    constants: Vec<(Block<f32>, Block<f64>)>,
}

/// Where an operand is.
#[derive(Clone, Copy, Debug)]
enum Source {
    Input(usize),
    Constant(usize),
    Slot(usize),
}

/// Where a result goes.
#[derive(Clone, Copy, Debug)]
enum Target {
    Slot(usize),
    Output(usize),
}

/// What a step does. Masks are the numbers 1 and 0.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Unary(Unary),
    Binary(Binary),
    Compare(Compare),
    And,
    Or,
    Not,
    Select,
}

/// A loop over a block.
#[derive(Clone, Copy, Debug)]
struct Step {
    operation: Operation,
    /// As many as the operation has; the others repeat the first.
    operands: [Source; 3],
    target: Target,
}

impl Interpreted {
    /// The program of a graph, with the attributes' traced values.
    ///
    /// # Panics
    /// If the graph has folds: those are computed by [`Passes`](crate::Passes).
    pub fn new(graph: &Graph) -> Self {
        let graph = &graph.without_detached();
        let mut program = Self {
            inputs: graph.input_count(),
            outputs: graph.outputs().len(),
            slots: 0,
            steps: Vec::with_capacity(graph.nodes().len()),
            copies: Vec::new(),
            constants: Vec::new(),
        };
        let mut uses = vec![0_usize; graph.nodes().len()];
        for id in graph.nodes().iter().flat_map(|node| node.operands()).chain(graph.outputs().iter().copied())
        {
            uses[id.index()] += 1;
        }
        let mut places: Vec<Source> = Vec::with_capacity(graph.nodes().len());
        let mut free: Vec<usize> = Vec::new();
        for (index, node) in graph.nodes().iter().enumerate() {
            let place = match program.leaf(graph, *node) {
                Some(leaf) => leaf,
                None => program.step(graph, index, &places, &uses, &mut free),
            };
            places.push(place);
            for id in node.operands() {
                uses[id.index()] -= 1;
                if let (0, Source::Slot(slot)) = (uses[id.index()], places[id.index()]) {
                    free.push(slot);
                }
            }
        }
        let outputs = graph.outputs().iter().enumerate();
        let direct = |output: usize| {
            program.steps.iter().any(|step| matches!(step.target, Target::Output(o) if o == output))
        };
        program.copies =
            outputs.filter(|(o, _)| !direct(*o)).map(|(o, id)| (o, places[id.index()])).collect();
        program
    }

    /// Where an input, an attribute or a constant is.
    fn leaf(&mut self, graph: &Graph, node: Node) -> Option<Source> {
        let value = match node {
            Node::Input(position) => return Some(Source::Input(position as usize)),
            Node::Attribute(position) => graph.attributes()[position as usize].1,
            Node::Constant(bits) => f64::from_bits(bits),
            _ => return None,
        };
        self.constants.push((Block([value as f32; BLOCK]), Block([value; BLOCK])));
        Some(Source::Constant(self.constants.len() - 1))
    }

    /// Adds the step of a node. Its result goes to an output if it is that alone, else to a temporary that is none of
    /// its operands.
    fn step(
        &mut self,
        graph: &Graph,
        index: usize,
        places: &[Source],
        uses: &[usize],
        free: &mut Vec<usize>,
    ) -> Source {
        let node = graph.nodes()[index];
        let operation = match node {
            Node::Unary(op, _) => Operation::Unary(op),
            Node::Binary(op, ..) => Operation::Binary(op),
            Node::Compare(op, ..) => Operation::Compare(op),
            Node::And(..) => Operation::And,
            Node::Or(..) => Operation::Or,
            Node::Not(_) => Operation::Not,
            Node::Select(..) => Operation::Select,
            Node::Input(_) | Node::Attribute(_) | Node::Constant(_) => unreachable!("leaves have no step"),
            Node::Fold(..) | Node::Count | Node::Detached(_) => unreachable!("a graph with folds has passes"),
        };
        let place = |id: Id| places[id.index()];
        let mut operands = [Source::Slot(0); 3];
        for (k, operand) in operands.iter_mut().enumerate() {
            let of_node = node.operands().nth(k).or_else(|| node.operands().next());
            *operand = of_node.map_or(Source::Slot(0), place);
        }
        let output = graph.outputs().iter().position(|id| id.index() == index);
        if let (Some(output), 1) = (output, uses[index]) {
            self.steps.push(Step { operation, operands, target: Target::Output(output) });
            // Nobody reads it.
            return Source::Slot(usize::MAX);
        }
        let slot = free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        self.steps.push(Step { operation, operands, target: Target::Slot(slot) });
        Source::Slot(slot)
    }

    fn eval<T: Temporary>(&self, level: Level, inputs: &[&[T; BLOCK]], outputs: &mut [Block<T>]) {
        assert_eq!(inputs.len(), self.inputs, "a slice for each input");
        assert_eq!(outputs.len(), self.outputs, "a block for each output");
        self.run(level, Inputs::Blocks(inputs), Outputs::Blocks(outputs), 1, BLOCK);
    }

    /// Computes several blocks: those of each input, or one that stands for all of them. The first `last` numbers of the
    /// last block are folded.
    ///
    /// # Panics
    /// If there are more or fewer strips than inputs and outputs, or fewer blocks in one than `blocks`.
    pub fn eval_strips<T: Temporary>(
        &self,
        level: Level,
        (blocks, last): (usize, usize),
        inputs: &[&[[T; BLOCK]]],
        outputs: &mut [Strip<'_, T>],
    ) {
        assert_eq!(inputs.len(), self.inputs, "a strip for each input");
        assert_eq!(outputs.len(), self.outputs, "a strip for each output");
        self.run(level, Inputs::Strips(inputs), Outputs::Strips(outputs), blocks, last);
    }

    // Once for each type: it has the loops for the least instruction set in it.
    #[inline(never)]
    fn run<T: Temporary>(
        &self,
        level: Level,
        inputs: Inputs<'_, T>,
        outputs: Outputs<'_, '_, T>,
        blocks: usize,
        last: usize,
    ) {
        T::slots().with_borrow_mut(|slots| {
            if slots.len() < self.slots {
                slots.resize(self.slots, Block::default());
            }
            dispatch_at(level, Run { program: self, inputs, outputs, slots, blocks, last });
        });
    }
}

impl Blocks for Interpreted {
    fn inputs(&self) -> usize {
        self.inputs
    }

    fn outputs(&self) -> usize {
        self.outputs
    }

    fn eval_f32(&self, level: Level, inputs: &[&[f32; BLOCK]], outputs: &mut [Block<f32>]) {
        self.eval(level, inputs, outputs);
    }

    fn eval_f64(&self, level: Level, inputs: &[&[f64; BLOCK]], outputs: &mut [Block<f64>]) {
        self.eval(level, inputs, outputs);
    }
}

/// A float type that programs are computed in: `f32` and `f64`.
pub trait Temporary: Element {
    /// The temporaries of this thread.
    #[doc(hidden)]
    fn slots() -> &'static LocalKey<RefCell<Vec<Block<Self>>>>;
    /// The block of a constant.
    #[doc(hidden)]
    fn constant(blocks: &(Block<f32>, Block<f64>)) -> &[Self; BLOCK];
}

macro_rules! temporary {
    ($($float:ty, $field:tt;)*) => {$(
        impl Temporary for $float {
            fn slots() -> &'static LocalKey<RefCell<Vec<Block<Self>>>> {
                thread_local! {
                    static SLOTS: RefCell<Vec<Block<$float>>> = const { RefCell::new(Vec::new()) };
                }
                &SLOTS
            }
            #[inline(always)]
            fn constant(blocks: &(Block<f32>, Block<f64>)) -> &[Self; BLOCK] {
                &blocks.$field.0
            }
        }
    )*};
}

temporary! { f32, 0; f64, 1; }

/// Where the blocks of a result of [`Interpreted::eval_strips`] go.
#[derive(Debug)]
pub enum Strip<'a, T> {
    /// Block by block.
    Blocks(&'a mut [[T; BLOCK]]),
    /// Folded, lane by lane, into a block.
    Fold(Fold, &'a mut Block<T>),
}

/// What a program reads.
#[derive(Clone, Copy)]
enum Inputs<'a, T> {
    Blocks(&'a [&'a [T; BLOCK]]),
    Strips(&'a [&'a [[T; BLOCK]]]),
}

impl<'a, T> Inputs<'a, T> {
    #[inline(always)]
    fn get(self, position: usize, block: usize) -> &'a [T; BLOCK] {
        match self {
            Self::Blocks(blocks) => blocks[position],
            // A strip of one block is that block again and again.
            Self::Strips(strips) if strips[position].len() == 1 => &strips[position][0],
            Self::Strips(strips) => &strips[position][block],
        }
    }
}

/// What a program writes.
enum Outputs<'a, 'b, T> {
    Blocks(&'a mut [Block<T>]),
    Strips(&'a mut [Strip<'b, T>]),
}

impl<T> Outputs<'_, '_, T> {
    /// Where a block of an output goes; `spare` if it is folded.
    #[inline(always)]
    fn get<'s>(&'s mut self, output: usize, block: usize, spare: &'s mut [T; BLOCK]) -> &'s mut [T; BLOCK] {
        match self {
            Outputs::Blocks(blocks) => &mut blocks[output].0,
            Outputs::Strips(strips) => match &mut strips[output] {
                Strip::Blocks(blocks) => &mut blocks[block],
                Strip::Fold(..) => spare,
            },
        }
    }

    /// Folds the first `count` of some numbers if the output is folded, and tells whether it is.
    #[inline(always)]
    fn fold<I: Isa>(&mut self, output: usize, numbers: &[T; BLOCK], count: usize) -> bool
    where
        T: Element,
    {
        if let Outputs::Strips(strips) = self
            && let Strip::Fold(fold, lanes) = &mut strips[output]
        {
            fold_lanes::<I, T>(*fold, &mut lanes.0, numbers, count);
            return true;
        }
        false
    }
}

/// Folds the first `count` numbers into as many lanes; a loop for each fold, so that none asks which fold it is.
#[inline(always)]
fn fold_lanes<I: Isa, T: Element>(fold: Fold, lanes: &mut [T; BLOCK], numbers: &[T; BLOCK], count: usize) {
    macro_rules! lanes {
        ($fold:expr) => {
            if count == BLOCK {
                for index in 0..BLOCK {
                    let folded = $fold.of_two(lanes[index].load::<I>(), numbers[index].load::<I>());
                    lanes[index] = T::store(folded);
                }
            } else {
                for index in 0..count {
                    let folded = $fold.of_two(lanes[index].load::<I>(), numbers[index].load::<I>());
                    lanes[index] = T::store(folded);
                }
            }
        };
    }
    match fold {
        Fold::Sum => lanes!(Fold::Sum),
        Fold::Max => lanes!(Fold::Max),
        Fold::Min => lanes!(Fold::Min),
    }
}

struct Run<'a, 'b, T> {
    program: &'a Interpreted,
    inputs: Inputs<'a, T>,
    outputs: Outputs<'a, 'b, T>,
    slots: &'a mut [Block<T>],
    /// How many blocks there are, and how many numbers of the last one count.
    blocks: usize,
    last: usize,
}

impl<T: Temporary> Kernel for Run<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { program, inputs, mut outputs, slots, blocks, last } = self;
        let mut spare = Block::<T>::default();
        for block in 0..blocks {
            let count = if block + 1 == blocks { last } else { BLOCK };
            for step in &program.steps {
                let (before, result, after) = match step.target {
                    Target::Output(output) => (&*slots, outputs.get(output, block, &mut spare.0), &[][..]),
                    Target::Slot(slot) => {
                        let (before, rest) = slots.split_at_mut(slot);
                        let Some((result, after)) = rest.split_first_mut() else { return };
                        (&*before, &mut result.0, &*after)
                    }
                };
                step_on::<I, T>(step, &Found { program, inputs, block, before, after }, result);
                if let Target::Output(output) = step.target {
                    outputs.fold::<I>(output, &spare.0, count);
                }
            }
            for &(output, source) in &program.copies {
                let found = Found { program, inputs, block, before: slots, after: &[] };
                let numbers = found.get(source);
                if !outputs.fold::<I>(output, numbers, count) {
                    *outputs.get(output, block, &mut spare.0) = *numbers;
                }
            }
        }
    }
}

/// Everything that a step can read: all temporaries but the one that it writes.
struct Found<'a, T> {
    program: &'a Interpreted,
    inputs: Inputs<'a, T>,
    block: usize,
    before: &'a [Block<T>],
    after: &'a [Block<T>],
}

impl<'a, T: Temporary> Found<'a, T> {
    #[inline(always)]
    fn get(&self, source: Source) -> &'a [T; BLOCK] {
        match source {
            Source::Input(position) => self.inputs.get(position, self.block),
            Source::Constant(position) => T::constant(&self.program.constants[position]),
            Source::Slot(slot) if slot < self.before.len() => &self.before[slot].0,
            Source::Slot(slot) => &self.after[slot - self.before.len() - 1].0,
        }
    }
}

/// A loop over a block: `result[i] = expression` of the operands' numbers.
macro_rules! each {
    ($isa:ty, $number:ty, $result:ident = |$($x:ident),*| $expression:expr) => {
        for index in 0..BLOCK {
            $(let $x = $x[index].load::<$isa>();)*
            $result[index] = <$number>::store($expression);
        }
    };
}

/// Chooses the loop of an operation.
macro_rules! choose {
    ($isa:ty, $number:ty, $operation:expr, $result:ident, ($a:ident, $b:ident, $c:ident);
     $($unary:ident $function:ident)*; $($binary:ident $method:ident)*; $($compare:ident $comparison:ident)*) => {{
        let one = <$number as Element>::Number::<$isa>::of(1.0);
        let zero = <$number as Element>::Number::<$isa>::of(0.0);
        match $operation {
            Operation::And => each!($isa, $number, $result = |$a, $b| $a * $b),
            Operation::Or => each!($isa, $number, $result = |$a, $b| Scalar::select($a.ne(zero), one, $b)),
            Operation::Not => each!($isa, $number, $result = |$a| one - $a),
            Operation::Select => each!($isa, $number, $result = |$a, $b, $c| Scalar::select($a.ne(zero), $b, $c)),
            $(Operation::Unary(Unary::$unary) => each!($isa, $number, $result = |$a| $a.$function()),)*
            $(Operation::Binary(Binary::$binary) => each!($isa, $number, $result = |$a, $b| $a.$method($b)),)*
            $(Operation::Compare(Compare::$compare) => {
                each!($isa, $number, $result = |$a, $b| Scalar::select($a.$comparison($b), one, zero));
            })*
        }
    }};
}

#[inline(always)]
fn step_on<I: Isa, T: Temporary>(step: &Step, found: &Found<'_, T>, result: &mut [T; BLOCK]) {
    let (a, b, c) = (found.get(step.operands[0]), found.get(step.operands[1]), found.get(step.operands[2]));
    choose! {
        I, T, step.operation, result, (a, b, c);
        Neg neg Exp exp Log log Log1p log1p Expm1 expm1 Tanh tanh Sigmoid sigmoid Erf erf NormalCdf normal_cdf
        NormalPdf normal_pdf Softplus softplus Sin sin Cos cos Sqrt sqrt Rsqrt rsqrt Abs abs Sign sign Floor floor;
        Add add Sub sub Mul mul Div div Pow pow Min min Max max;
        Lt lt Le le Eq eq
    }
}
