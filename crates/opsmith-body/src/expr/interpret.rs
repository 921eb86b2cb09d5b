//! Graphs computed by blocks of elements: a program of loops over 128 numbers, with few temporaries.

use std::cell::RefCell;
use std::thread::LocalKey;

use crate::body::{BLOCK, Block};
use crate::element::Element;
use crate::expr::graph::Graph;
use crate::expr::node::{Binary, Compare, Id, Node, Unary};

/// A [`Graph`] without folds, computed node by node, a block at a time.
///
/// Nothing is compiled for a particular graph: each function is a loop over a block, compiled once for all graphs. The
/// temporaries are blocks that are used again as soon as nobody reads them any more, so they stay in the first cache.
/// Results are those of the body that was traced, but for what clean-up made more exact and for the multiplications and additions that are
/// fused.
///
/// ```
/// use opsmith_body::{BLOCK, Block, Body, Interpreted, Level, Scalar, trace};
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
/// gradient.eval(Level::best(), &[&[0.0; BLOCK], &[3.0; BLOCK]], &mut x_grad);
/// assert_eq!(x_grad[0].0, [1.5; BLOCK]);
/// ```
#[derive(Clone, Debug)]
pub struct Interpreted {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// How many temporaries there are at one time.
    pub(super) slots: usize,
    pub(super) steps: Vec<Step>,
    /// Outputs that are not the result of a step of their own.
    pub(super) copies: Vec<(usize, Operand)>,
    /// A block for each constant and attribute.
    pub(super) constants: Vec<(Block<f32>, Block<f64>)>,
}

/// Where an operand is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operand {
    Input(usize),
    Constant(usize),
    Slot(usize),
}

/// Where a result goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    Slot(usize),
    Output(usize),
}

/// What a step does. Masks are the numbers 1 and 0.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
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
pub(super) struct Step {
    pub(super) operation: Operation,
    /// As many as the operation has; the others repeat the first.
    pub(super) operands: [Operand; 3],
    pub(super) arity: usize,
    pub(super) target: Target,
}

impl Interpreted {
    /// The program of a graph, with the attributes' traced values.
    ///
    /// # Panics
    /// If the graph has folds: those are computed by [`Nests`](crate::Nests).
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
        let mut places: Vec<Operand> = Vec::with_capacity(graph.nodes().len());
        let mut free: Vec<usize> = Vec::new();
        for (index, node) in graph.nodes().iter().enumerate() {
            let place = match program.leaf(graph, *node) {
                Some(leaf) => leaf,
                None => program.step(graph, index, &places, &uses, &mut free),
            };
            places.push(place);
            for id in node.operands() {
                uses[id.index()] -= 1;
                if let (0, Operand::Slot(slot)) = (uses[id.index()], places[id.index()]) {
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

    /// How many inputs there are.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// How many outputs there are.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// How many loops over a block it has.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether it only copies.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Where an input, an attribute or a constant is.
    fn leaf(&mut self, graph: &Graph, node: Node) -> Option<Operand> {
        let value = match node {
            Node::Input(position) => return Some(Operand::Input(position as usize)),
            Node::Attribute(position) => graph.attributes()[position as usize].1,
            Node::Constant(bits) => f64::from_bits(bits),
            _ => return None,
        };
        self.constants.push((Block([value as f32; BLOCK]), Block([value; BLOCK])));
        Some(Operand::Constant(self.constants.len() - 1))
    }

    /// Adds the step of a node. Its result goes to an output if it is that alone, else to a temporary that is none of
    /// its operands.
    fn step(
        &mut self,
        graph: &Graph,
        index: usize,
        places: &[Operand],
        uses: &[usize],
        free: &mut Vec<usize>,
    ) -> Operand {
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
            Node::Fold(..) | Node::Count(_) | Node::Index(_) | Node::Detached(_) => {
                unreachable!("a graph with folds is cut into nests")
            }
        };
        let place = |id: Id| places[id.index()];
        let mut operands = [Operand::Slot(0); 3];
        for (k, operand) in operands.iter_mut().enumerate() {
            let of_node = node.operands().nth(k).or_else(|| node.operands().next());
            *operand = of_node.map_or(Operand::Slot(0), place);
        }
        let arity = node.operands().count();
        let output = graph.outputs().iter().position(|id| id.index() == index);
        if let (Some(output), 1) = (output, uses[index]) {
            self.steps.push(Step { operation, operands, arity, target: Target::Output(output) });
            // Nobody reads it.
            return Operand::Slot(usize::MAX);
        }
        let slot = free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        self.steps.push(Step { operation, operands, arity, target: Target::Slot(slot) });
        Operand::Slot(slot)
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
