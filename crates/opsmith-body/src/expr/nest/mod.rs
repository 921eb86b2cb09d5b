//! Graphs over axes as nests of loops, which compute blocks of numbers.

mod again;
mod cuda;
mod cut;
mod emit;
mod fold;
mod known;
mod lanes;
mod online;
mod order;
#[cfg(test)]
mod tests;
mod tile;
mod uses;
mod whole;

pub use fold::{across, add_part, fold_blocks, sum_up};
pub use online::Online;
pub use tile::Tile;

use self::again::Again;
use crate::axes::{Axes, Axis};
use crate::expr::cuda::CudaType;
use crate::expr::graph::Graph;
use crate::expr::interpret::Interpreted;
use crate::expr::node::{Fold, Id};
pub(crate) use known::is_dear;

/// What a graph computes for some sizes of its axes, as nests that run one after another.
///
/// A fold that has no more numbers than the largest argument is computed once: into temporary memory, or, where all that is made of it
/// is of the same rows, in one nest with that: as many for the [classes](Self::classes) of the sizes. One that has more, such as the distance of every pair, is computed again wherever it is
/// used, block by block, and is never in memory.
///
/// ```
/// use opsmith_body::{Axes, Axis, Indexed, Nests, Scalar, trace_over};
///
/// // y(i) = the smallest distance to a row of the second input.
/// let (i, j, k) = (Axes::at(&[0, 2]), Axes::at(&[1, 2]), Axes::at(&[0]));
/// let graph = trace_over(&["i", "j", "k"], &[("x", i), ("y", j)], &[("z", k)], |x| {
///     let d = (x[0] - x[1]) * (x[0] - x[1]);
///     vec![d.sum(Axis::new(2)).amin(Axis::new(1)).sqrt()]
/// });
/// let nests = Nests::new(&graph, &[1000, 1000, 3], &[j, j, k]);
/// // Neither the distances nor the smallest of each row are in memory, only the outputs.
/// assert!(nests.temporaries.is_empty());
/// assert_eq!(nests.nests.len(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct Nests {
    /// The axes of each array of temporary memory.
    pub temporaries: Vec<Axes>,
    /// The nests, in order.
    pub nests: Vec<Nest>,
    /// What is computed again, and compared with what it was before.
    again: Again,
    /// For a card, what of each nest a block of threads computes side by side, where that saves something.
    pub tiles: Vec<Option<Tile>>,
}

/// Loops in loops.
#[derive(Clone, Debug)]
pub struct Nest {
    /// The axis that lies along the numbers of a block; none where there is one number.
    pub lanes: Option<Axis>,
    /// The axes of the outermost loops: what is computed for their positions is independent, and may be computed by different
    /// threads.
    pub free: Axes,
    /// The registers, blocks of numbers: of each the axes for whose positions it has a block of its own.
    pub registers: Vec<Axes>,
    /// What is done for every position of the free axes.
    pub steps: Vec<Step>,
}

/// An array of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The input of that position.
    Input(usize),
    /// The output of that position.
    Output(usize),
    /// The temporary memory of that position.
    Temporary(usize),
}

impl Place {
    /// Its position among all inputs, outputs and temporaries, of which there are so many inputs and outputs.
    pub fn argument(self, (inputs, outputs): (usize, usize)) -> usize {
        match self {
            Self::Input(input) => input,
            Self::Output(output) => inputs + output,
            Self::Temporary(array) => inputs + outputs + array,
        }
    }
}

/// What a nest does. Numbers are registers, at the positions where the loops are.
#[derive(Clone, Debug)]
pub enum Step {
    /// Reads a block.
    Load {
        /// From where.
        from: Place,
        /// The register.
        to: usize,
    },
    /// Writes a block.
    Store {
        /// The register.
        from: usize,
        /// To where.
        to: Place,
    },
    /// Puts the positions along an axis into a register.
    Index {
        /// The axis.
        axis: Axis,
        /// The register.
        to: usize,
    },
    /// Puts the size of an axis into a register.
    Count {
        /// The axis.
        axis: Axis,
        /// The register.
        to: usize,
    },
    /// Computes registers from registers.
    Compute {
        /// What is computed; a mask that it reads or gives is a number, 1 or 0.
        graph: Box<Graph>,
        /// The same as a program.
        program: Box<Interpreted>,
        /// What it reads.
        inputs: Vec<usize>,
        /// What it writes.
        outputs: Vec<usize>,
    },
    /// Puts a number into all blocks of a register.
    Fill {
        /// The register.
        register: usize,
        /// The number.
        value: f64,
    },
    /// Folds a register into another one, number by number.
    Fold {
        /// How.
        op: Fold,
        /// What is folded.
        from: usize,
        /// Into what.
        into: usize,
    },
    /// Goes along an axis.
    Loop {
        /// The axis; if it is that of the lanes, block by block.
        axis: Axis,
        /// What is done at every position.
        steps: Vec<Step>,
        /// The registers that sums are folded into.
        sums: Vec<Sum>,
    },
    /// Folds the numbers of each block of a register, which all then are the fold.
    Across {
        /// How.
        op: Fold,
        /// The register.
        register: usize,
    },
    /// For a card: what sums of exponentials need that are computed in the loop of the largest number.
    Online(Online),
}

/// A sum along a loop: a few terms are added to `part`, which is then added to `total` with what that rounds off in `lost`.
#[derive(Clone, Copy, Debug)]
pub struct Sum {
    /// The register that terms are folded into, and which has the whole sum after the loop.
    pub part: usize,
    /// The sum of the parts before; the loop begins with 0.
    pub total: usize,
    /// What rounding has lost of it, 0 as well.
    pub lost: usize,
    /// The sum in the graph.
    pub of: Id,
    /// Whether another loop computes it too, with which it is compared: terms are added in the order of their positions, so that both
    /// give the same bits.
    pub is_again: bool,
    /// Whether a product that is a term may be rounded with the sum: it is computed beside where it is added, in all loops.
    pub is_fused: bool,
}

/// How many terms [`Sum::part`] is at most the sum of.
pub const PART: usize = 32;

impl Nests {
    /// How many dims more than axes a kernel of a card goes through at most: those of a batch, and of axes that stand for several.
    pub const BATCH_DIMS: usize = 8;

    /// The nests of a graph whose axes have these sizes, for a processor; `dense` has, for each input and then each output, the
    /// axes along which its numbers lie one after another. They are the same for all sizes of the same [`classes`](Self::classes).
    pub fn new(graph: &Graph, sizes: &[usize], dense: &[Axes]) -> Self {
        let sizes = &Self::classes(sizes);
        cut::cut(&graph.without_detached(), &Room::Blocks { sizes, dense })
    }

    /// The largest sizes that nests do not tell from these: small ones are alone, others go up to a power of two. So calls whose sizes
    /// change need few cuts.
    pub fn classes(sizes: &[usize]) -> Vec<usize> {
        const ALONE: usize = 16;
        let class = |size: usize| match size {
            ..=ALONE => size,
            _ => size.checked_next_power_of_two().unwrap_or(usize::MAX),
        };
        sizes.iter().copied().map(class).collect()
    }

    /// The nests of a graph for a card: for all sizes. A fold is in memory if it lies on axes of one argument. With `many`, there are
    /// many elements of the batch, so that what has one number for each of them is not computed apart from what is made of it.
    pub fn for_card(graph: &Graph, dtype: CudaType, many: bool) -> Self {
        let mut nests = cut::cut(&graph.without_detached(), &Room::Card { many });
        let (inputs, outputs): (Vec<Axes>, Vec<Axes>) =
            (graph.input_axes().collect(), graph.output_axes().collect());
        let axes = |place: Place| match place {
            Place::Input(input) => inputs[input],
            Place::Output(output) => outputs[output],
            Place::Temporary(array) => nests.temporaries[array],
        };
        let words = if dtype == CudaType::Double { 2 } else { 1 };
        let tile = |nest: &Nest| if nests.again.folds { None } else { Tile::of(nest, &axes, words) };
        nests.tiles = nests.nests.iter().map(tile).collect();
        nests
    }

    /// Whether sums, or products along an axis, are computed in two places and compared: all nests are to be run in one way then, for
    /// another way may give other bits.
    pub fn folds_again(&self) -> bool {
        self.again.folds
    }
}

/// How much room there is.
enum Room<'a> {
    /// Registers are blocks, of which there may be many.
    Blocks { sizes: &'a [usize], dense: &'a [Axes] },
    /// A register is one number.
    Card { many: bool },
}

impl Room<'_> {
    /// The most blocks that a register has.
    const MOST_BLOCKS: usize = 1024;

    /// How many numbers there are for these axes, as many as there can be if that is not known.
    fn count(&self, axes: Axes) -> usize {
        axes.iter().map(|axis| self.size(axis)).fold(1, usize::saturating_mul)
    }

    fn size(&self, axis: Axis) -> usize {
        match self {
            Self::Blocks { sizes, .. } => sizes.get(axis.index()).copied().unwrap_or(1),
            Self::Card { .. } => usize::MAX,
        }
    }

    /// Whether the input or output of that position, inputs first, lies one number after another along an axis.
    fn is_dense(&self, argument: usize, axis: Axis) -> bool {
        match self {
            Self::Blocks { dense, .. } => dense.get(argument).is_none_or(|axes| axes.has(axis)),
            Self::Card { .. } => true,
        }
    }

    /// Whether there may be enough positions of these axes, with those of the batch, for all threads.
    fn is_many(&self, axes: Axes, least: usize) -> bool {
        matches!(self, Self::Card { many: true }) || self.count(axes) >= least
    }

    /// Whether registers of several blocks are in memory that is near.
    fn is_narrow(&self) -> bool {
        matches!(self, Self::Blocks { .. })
    }

    /// Whether a register can have a block for each position of these axes.
    fn has(&self, axes: Axes) -> bool {
        self.count(axes) <= Self::MOST_BLOCKS
    }

    /// Whether a fold on these axes is kept in memory, whose largest arguments are on `arguments`.
    fn keeps(&self, axes: Axes, arguments: &[Axes]) -> bool {
        match self {
            Self::Blocks { .. } => arguments.iter().any(|own| self.count(axes) <= self.count(*own)),
            Self::Card { .. } => arguments.iter().any(|own| axes.is_within(*own)),
        }
    }
}
