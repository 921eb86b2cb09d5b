//! Dims as they cross the C ABI: numbered, each computed from earlier ones.

use std::collections::HashMap;
use std::sync::Arc;

use super::expr::{Operation, Writer};
use super::{Dim, Expr, Shape};
use crate::abi::OpsmithStr;
use crate::abi::shapes::{
    OPSMITH_DIM_ADD, OPSMITH_DIM_FLOOR_DIV, OPSMITH_DIM_KNOWN, OPSMITH_DIM_MAX, OPSMITH_DIM_MIN,
    OPSMITH_DIM_MUL, OPSMITH_DIM_SUB, OPSMITH_DIM_SYMBOL, OPSMITH_DIM_UNKNOWN, OpsmithDim,
};
use crate::{Error, Result, bail, ensure};

/// The most dims of a list that is read, and the most steps in which all of them are computed together: what each step takes may grow
/// with its operands.
const MOST_DIMS: usize = 1 << 16;
const MOST_STEPS_OF_ALL: usize = 1 << 17;

/// The most bytes of a symbol's name, which messages repeat for each dim that it is in.
const MOST_NAME: usize = 1 << 12;

/// The most steps in which a dim is computed, those of its operands counted for each use, and the most divisions, minima and
/// maxima within each other: more than any real shape needs, and few enough to be compared and freed.
const MOST_STEPS: usize = 1 << 12;
const MOST_DEPTH: usize = 128;

const UNKNOWN: OpsmithDim = OpsmithDim {
    kind: OPSMITH_DIM_UNKNOWN,
    operands: [0; 2],
    value: 0,
    name: OpsmithStr { data: std::ptr::null(), len: 0 },
};

impl Operation {
    fn kind(self) -> i32 {
        match self {
            Operation::Add => OPSMITH_DIM_ADD,
            Operation::Sub => OPSMITH_DIM_SUB,
            Operation::Mul => OPSMITH_DIM_MUL,
            Operation::FloorDiv => OPSMITH_DIM_FLOOR_DIV,
            Operation::Min => OPSMITH_DIM_MIN,
            Operation::Max => OPSMITH_DIM_MAX,
        }
    }
}

/// A list of dims that is being written. What it points to is there as long as it is.
#[derive(Default)]
pub struct DimTable {
    dims: Vec<OpsmithDim>,
    /// The position of each symbol, whose name the list points to.
    symbols: HashMap<Arc<str>, u32>,
}

impl DimTable {
    /// The list so far.
    pub fn dims(&self) -> &[OpsmithDim] {
        &self.dims
    }

    /// Writes a dim, and gives its position.
    ///
    /// # Errors
    /// `InvalidArgument` for a size of more than 63 bits.
    pub fn add(&mut self, dim: &Dim) -> Result<u32> {
        Ok(match dim.to_expr()? {
            Some(expr) => expr.write(self),
            None => self.push(UNKNOWN),
        })
    }

    /// Writes the dims of a shape, and gives its rank and their positions: −1 and none for an unknown rank.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_shape(&mut self, shape: &Shape) -> Result<(i32, Vec<u32>)> {
        let Some(dims) = shape.dims() else { return Ok((-1, Vec::new())) };
        let positions = dims.iter().map(|dim| self.add(dim)).collect::<Result<Vec<_>>>()?;
        Ok((positions.len() as i32, positions))
    }

    fn push(&mut self, dim: OpsmithDim) -> u32 {
        self.dims.push(dim);
        self.dims.len() as u32 - 1
    }
}

impl Writer for DimTable {
    type Written = u32;

    fn number(&mut self, value: i64) -> u32 {
        self.push(OpsmithDim { kind: OPSMITH_DIM_KNOWN, value, ..UNKNOWN })
    }

    fn symbol(&mut self, name: &Arc<str>) -> u32 {
        if let Some(&position) = self.symbols.get(name) {
            return position;
        }
        let text = OpsmithStr::new(name);
        let position = self.push(OpsmithDim { kind: OPSMITH_DIM_SYMBOL, name: text, ..UNKNOWN });
        self.symbols.insert(Arc::clone(name), position);
        position
    }

    fn computed(&mut self, operation: Operation, mut operands: Vec<u32>) -> u32 {
        // Neighbours first, so that operands are within as few others as can be.
        while operands.len() > 1 {
            let pair = |pair: &[u32]| match *pair {
                [left, right] => {
                    self.push(OpsmithDim { kind: operation.kind(), operands: [left, right], ..UNKNOWN })
                }
                _ => pair[0],
            };
            operands = operands.chunks(2).map(pair).collect();
        }
        operands[0]
    }
}

/// Dims that have been read, by their positions.
pub struct Dims(Vec<Step>);

struct Step {
    /// Nothing where it is not known.
    expr: Option<Expr>,
    steps: usize,
    depth: usize,
}

impl Dims {
    /// Reads a list of dims.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no dim, and for one that is computed from itself, from later ones, from what is not known, or in
    /// too many steps.
    ///
    /// # Safety
    /// The names must be readable.
    pub unsafe fn read(list: &[OpsmithDim]) -> Result<Dims> {
        let count = list.len();
        ensure!(count <= MOST_DIMS, InvalidArgument, "there are {count} dims; at most {MOST_DIMS} are read");
        let mut dims = Dims(Vec::with_capacity(count));
        let mut steps = 0;
        for (position, dim) in list.iter().enumerate() {
            // SAFETY: promised by the caller.
            let step = unsafe { dims.step(dim) };
            let step = step.map_err(|error| error.within(format_args!("dim {position} of the list")))?;
            steps += step.steps;
            ensure!(
                steps <= MOST_STEPS_OF_ALL,
                InvalidArgument,
                "the dims up to {position} of the list are computed in {steps} steps; at most {MOST_STEPS_OF_ALL} are taken"
            );
            dims.0.push(step);
        }
        Ok(dims)
    }

    /// # Safety
    /// The name must be readable.
    unsafe fn step(&self, dim: &OpsmithDim) -> Result<Step> {
        let expr = match dim.kind {
            OPSMITH_DIM_UNKNOWN => None,
            OPSMITH_DIM_KNOWN => Some(Expr::constant(dim.value)),
            OPSMITH_DIM_SYMBOL => {
                ensure!(
                    !dim.name.data.is_null() && dim.name.len > 0,
                    InvalidArgument,
                    "a symbol has no name"
                );
                let length = dim.name.len;
                ensure!(
                    length <= MOST_NAME,
                    InvalidArgument,
                    "the name of a symbol has {length} bytes; it may have {MOST_NAME}"
                );
                // SAFETY: promised by the caller.
                let name = std::str::from_utf8(unsafe { dim.name.as_bytes() });
                Some(Expr::symbol(
                    name.map_err(|_| Error::invalid_argument("the name of a symbol is not UTF-8"))?,
                ))
            }
            kind => return self.computed(kind, dim.operands),
        };
        Ok(Step { expr, steps: 1, depth: 0 })
    }

    fn computed(&self, kind: i32, operands: [u32; 2]) -> Result<Step> {
        let operation = Operation::ALL.into_iter().find(|operation| operation.kind() == kind);
        let Some(operation) = operation else { bail!(InvalidArgument, "{kind} is not a kind of dim") };
        let operand = |position: u32| {
            let step = self.at(position)?;
            match &step.expr {
                Some(expr) => Ok((expr, step)),
                None => bail!(InvalidArgument, "it is computed from dim {position}, which is not known"),
            }
        };
        let ((a, left), (b, right)) = (operand(operands[0])?, operand(operands[1])?);
        let steps = 1 + left.steps + right.steps;
        ensure!(steps <= MOST_STEPS, InvalidArgument, "it is computed in more than {MOST_STEPS} steps");
        // What else there is becomes one sum of products.
        let nests = matches!(operation, Operation::FloorDiv | Operation::Min | Operation::Max);
        let depth = left.depth.max(right.depth) + usize::from(nests);
        ensure!(
            depth <= MOST_DEPTH,
            InvalidArgument,
            "more than {MOST_DEPTH} operations are within each other"
        );
        Ok(Step { expr: Some(operation.apply(a, b)?), steps, depth })
    }

    fn at(&self, position: u32) -> Result<&Step> {
        let step = self.0.get(position as usize);
        step.ok_or_else(|| Error::invalid_argument(format!("there is no dim {position} before it")))
    }

    /// The dim at a position.
    ///
    /// # Errors
    /// `InvalidArgument` where there is none, and for a number that is negative.
    pub fn dim(&self, position: u32) -> Result<Dim> {
        let Some(step) = self.0.get(position as usize) else {
            bail!(InvalidArgument, "there is no dim {position}; the list has {}", self.0.len());
        };
        step.expr.clone().map_or(Ok(Dim::Unknown), Dim::from_expr)
    }

    /// The shape whose dims are at these positions.
    ///
    /// # Errors
    /// As [`dim`](Self::dim).
    pub fn shape(&self, positions: &[u32]) -> Result<Shape> {
        positions.iter().map(|&position| self.dim(position)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(list: &[OpsmithDim]) -> Result<Dims> {
        // SAFETY: names are literals, or of a table that is there.
        unsafe { Dims::read(list) }
    }

    fn node(kind: i32, left: u32, right: u32) -> OpsmithDim {
        OpsmithDim { kind, operands: [left, right], ..UNKNOWN }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let texts = ["?", "0", "7", "n", "n + 3 * m - 2", "(n + 1) // 2 - m * n", "min(n, m, 9 // k)"];
        let texts = texts.map(String::from).into_iter();
        let long = (0..300).map(|i| format!("s{i}")).collect::<Vec<_>>();
        let texts = texts.chain([long.join(" + "), format!("max({})", long.join(", "))]);
        let dims: Vec<Dim> = texts.map(|text| Dim::parse(&text).unwrap()).collect();
        let mut table = DimTable::default();
        let positions = dims.iter().map(|dim| table.add(dim).unwrap()).collect::<Vec<_>>();
        let again = read(table.dims()).unwrap();
        for (dim, position) in dims.iter().zip(positions) {
            assert_eq!(again.dim(position).unwrap(), *dim);
        }
        let shape = Shape::from(dims);
        let (rank, positions) = table.add_shape(&shape).unwrap();
        assert_eq!((rank, read(table.dims()).unwrap().shape(&positions).unwrap()), (9, shape));
        assert_eq!(table.add_shape(&Shape::unknown()).unwrap(), (-1, vec![]));
    }

    #[test]
    fn what_is_no_dim_is_an_error() {
        let name = |name| OpsmithDim { kind: OPSMITH_DIM_SYMBOL, name: OpsmithStr::new(name), ..UNKNOWN };
        let message = |list: &[OpsmithDim]| read(list).map(drop).unwrap_err().message().to_owned();
        let symbol = name("n");
        assert!(message(&[symbol, node(99, 0, 0)]).contains("dim 1 of the list: 99 is not a kind of dim"));
        assert!(message(&[node(OPSMITH_DIM_ADD, 0, 0)]).contains("no dim 0 before it"));
        assert!(message(&[symbol, node(OPSMITH_DIM_MUL, 0, u32::MAX)]).contains("no dim 4294967295"));
        assert!(message(&[UNKNOWN, node(OPSMITH_DIM_MIN, 0, 0)]).contains("dim 0, which is not known"));
        let zero = OpsmithDim { kind: OPSMITH_DIM_KNOWN, ..UNKNOWN };
        assert!(message(&[symbol, zero, node(OPSMITH_DIM_FLOOR_DIV, 0, 1)]).contains("must be positive"));
        assert!(message(&[OpsmithDim { kind: OPSMITH_DIM_SYMBOL, ..UNKNOWN }]).contains("has no name"));
        let long = "n".repeat(MOST_NAME + 1);
        let text = OpsmithStr { data: long.as_ptr().cast(), len: long.len() };
        let long = OpsmithDim { kind: OPSMITH_DIM_SYMBOL, name: text, ..UNKNOWN };
        assert!(message(&[long]).contains("has 4097 bytes; it may have 4096"));
        let most = OpsmithDim { kind: OPSMITH_DIM_KNOWN, value: i64::MAX, ..UNKNOWN };
        assert!(message(&[most, node(OPSMITH_DIM_ADD, 0, 0)]).contains("overflows"));
        let dims = read(&[OpsmithDim { value: -1, ..most }]).unwrap();
        assert!(dims.dim(0).unwrap_err().message().contains("cannot be negative"));
        assert!(dims.dim(1).unwrap_err().message().contains("no dim 1; the list has 1"));
    }

    /// Each is made of two of the one before: as a tree it is far too large.
    #[test]
    fn dims_that_double_are_refused() {
        let name = OpsmithDim { kind: OPSMITH_DIM_SYMBOL, name: OpsmithStr::new("n"), ..UNKNOWN };
        for kind in [OPSMITH_DIM_MUL, OPSMITH_DIM_FLOOR_DIV, OPSMITH_DIM_MAX] {
            let list: Vec<_> = std::iter::once(name).chain((0..64).map(|at| node(kind, at, at))).collect();
            assert!(read(&list).map(drop).unwrap_err().message().contains("more than 4096 steps"));
        }
        let many = (1..MOST_DIMS).map(|_| node(OPSMITH_DIM_MAX, 0, 0));
        let list: Vec<_> = std::iter::once(name).chain(many).collect();
        assert!(read(&list).map(drop).unwrap_err().message().contains("at most 131072 are taken"));
        let deep = (0..MOST_DEPTH as u32).map(|at| node(OPSMITH_DIM_FLOOR_DIV, at + 1, 0));
        let two = OpsmithDim { kind: OPSMITH_DIM_KNOWN, value: 2, ..UNKNOWN };
        let mut list: Vec<_> = [two, name].into_iter().chain(deep).collect();
        read(&list).unwrap();
        list.push(node(OPSMITH_DIM_FLOOR_DIV, MOST_DEPTH as u32 + 1, 0));
        assert!(read(&list).map(drop).unwrap_err().message().contains("within each other"));
    }
}
