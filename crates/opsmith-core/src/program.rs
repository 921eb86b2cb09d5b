//! What an op computes of each element, each row and over named axes, for programs: ops that follow each other are computed as one.

use std::sync::Arc;

use crate::Result;
use crate::kernel::OpKernelConstruction;

/// A function of each element, of rows, or over named axes, in numbers: a graph as `opsmith_body::Listing` has it, and what becomes of shapes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Program {
    /// For each input, those of the op, the axes that it lies on, as bits: the first one, 1, unless there is one number for each row.
    pub inputs: Vec<u16>,
    /// For each node its opcode, `OPSMITH_NODE_…` in `opsmith.h`, and what it is computed from.
    pub nodes: Vec<[i64; 4]>,
    /// The node of each output of the op.
    pub outputs: Vec<i64>,
    /// For each output the axes that it lies on.
    pub results: Vec<u16>,
    /// For each output the input whose shape it has, summed over the dims along which that is repeated; none for an
    /// output of the shape that all inputs broadcast to.
    pub like: Vec<Option<usize>>,
    /// The inputs that do not broadcast, as gradients do not: in a call where the shapes of these are the one that all inputs
    /// broadcast to, every shape fits.
    pub whole: Vec<usize>,
    /// What the first axis stands for; none of a function of each element, or over named axes.
    pub rows: Option<ProgramRows>,
    /// Of a function over named axes, for each input and then each output the axes of its last dims, which are of equal size wherever an
    /// axis is. Dims before these broadcast, and outputs have them all.
    pub axes: Option<Vec<Vec<usize>>>,
}

/// The dims that are a row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramRows {
    /// Their positions, counted from the end where negative; all dims if there is none.
    pub dims: Vec<i64>,
    /// Whether what there is one of for each row keeps them, as dims of 1.
    pub keep: bool,
}

/// What makes the [`Program`] of an op for some attributes; none where it is more than that.
pub type ProgramFn = Arc<dyn Fn(&OpKernelConstruction<'_>) -> Result<Option<Program>> + Send + Sync>;
