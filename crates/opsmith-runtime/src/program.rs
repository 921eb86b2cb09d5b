//! What an op computes of each element, each row and over named axes, as its library tells it: read with care, for the library may be any.

use opsmith_body::{Axes, Axis, Graph, Listing};
use opsmith_core::abi::program::{
    OPSMITH_NODE_CONSTANT, OPSMITH_ROWS_AXES, OPSMITH_ROWS_KEPT, OPSMITH_ROWS_LEFT_OUT, OPSMITH_ROWS_NONE,
    OpsmithNode, OpsmithProgram,
};
use opsmith_core::{Error, ProgramRows, Result, bail, memory};

use crate::pointed::{slice, structure};

/// What an op computes of each element or row, or over named axes.
#[derive(Debug)]
pub(crate) struct OpProgram {
    pub(crate) graph: Graph,
    /// For each output, the input whose shape it has; none where it has that of all.
    pub(crate) like: Vec<Option<usize>>,
    /// The inputs that do not broadcast.
    pub(crate) whole: Vec<usize>,
    /// The dims that are a row; none of a function of each element, or over named axes.
    pub(crate) rows: Option<ProgramRows>,
    /// The axes of the last dims of each input and then each output, of a function over named axes.
    pub(crate) axes: Option<Vec<Vec<usize>>>,
}

/// The program of a library; none where it has a node that is not known here.
///
/// # Safety
/// `told` must point to a program that is readable as its fields say.
pub(crate) unsafe fn read(told: *const OpsmithProgram) -> Result<Option<OpProgram>> {
    // SAFETY: promised by the caller.
    let told = unsafe { structure(told, "its head") }?;
    // SAFETY: promised by the caller.
    let (nodes, axes, outputs, results, like, whole, row_dims) = unsafe {
        (
            slice(told.nodes, told.num_nodes, "nodes")?,
            slice(told.inputs, told.num_inputs, "inputs")?,
            slice(told.outputs, told.num_outputs, "outputs")?,
            slice(told.results, told.num_outputs, "axes of outputs")?,
            slice(told.like, told.num_outputs, "shapes of outputs")?,
            slice(told.whole, told.num_whole, "inputs that do not broadcast")?,
            slice(told.row_dims, told.num_row_dims, "dims of a row")?,
        )
    };
    let inputs = told.num_inputs;
    let copied = |axes: &[u16]| memory::collected(axes.iter().copied(), "a program");
    let (axes, results) = (copied(axes)?, copied(results)?);
    let named = match told.rows {
        OPSMITH_ROWS_AXES => Some(named(axes.iter().chain(&results), row_dims)?),
        _ => None,
    };
    let nodes = memory::collected(nodes.iter().map(numbers), "a program")?;
    let outputs = memory::collected(outputs.iter().copied().map(i64::from), "a program")?;
    let like = like.iter().map(|&like| if like == -1 { Ok(None) } else { input(like, inputs).map(Some) });
    let like = memory::try_collected(like, "a program")?;
    let whole = memory::try_collected(whole.iter().map(|&whole| input(whole, inputs)), "a program")?;
    let rows = match told.rows {
        OPSMITH_ROWS_NONE | OPSMITH_ROWS_AXES => None,
        OPSMITH_ROWS_LEFT_OUT | OPSMITH_ROWS_KEPT => Some(ProgramRows {
            dims: memory::collected(row_dims.iter().copied(), "a program")?,
            keep: told.rows == OPSMITH_ROWS_KEPT,
        }),
        // A way of a later version: whoever computes the op calls it.
        _ => return Ok(None),
    };
    let graph = Graph::from_listing(&Listing { inputs: axes, nodes, outputs, results });
    let Some(graph) = graph.map_err(Error::internal)? else { return Ok(None) };
    let own = graph.input_axes().chain(graph.output_axes()).fold(graph.used_axes(), Axes::union);
    let is_each = graph.used_axes().is_empty()
        && graph.input_axes().chain(graph.output_axes()).all(|axes| axes == Axes::FIRST);
    // What is over more axes comes of a later version.
    let is_known = named.is_some() || own.is_within(Axes::FIRST) && (rows.is_some() || is_each);
    Ok(is_known.then_some(OpProgram { graph, like, whole, rows, axes: named }))
}

/// The axes of each argument in the order of its dims, from those of all.
fn named<'a>(arguments: impl Iterator<Item = &'a u16>, all: &[i64]) -> Result<Vec<Vec<usize>>> {
    let (mut rest, mut named) = (all, Vec::new());
    for &bits in arguments {
        let own = rest.split_at_checked(bits.count_ones() as usize);
        let axis = |axis: &i64| usize::try_from(*axis).ok().filter(|axis| *axis < Axis::MOST);
        let axes = own.and_then(|(own, _)| own.iter().map(axis).collect::<Option<Vec<usize>>>());
        let axes = axes.filter(|axes| Axes::at(axes).bits() == bits);
        let (Some(axes), Some((_, more))) = (axes, own) else {
            bail!(Internal, "expected the axes of all arguments in the order of their dims, got {all:?}");
        };
        named.push(axes);
        rest = more;
    }
    Ok(named)
}

fn numbers(node: &OpsmithNode) -> [i64; 4] {
    match (node.opcode, node.operands.map(i64::from)) {
        (OPSMITH_NODE_CONSTANT, [_, b, c]) => {
            [OPSMITH_NODE_CONSTANT.into(), node.constant.to_bits() as i64, b, c]
        }
        (opcode, [a, b, c]) => [opcode.into(), a, b, c],
    }
}

/// The position of an input.
fn input(position: impl Into<i64>, inputs: usize) -> Result<usize> {
    let position = position.into();
    match usize::try_from(position) {
        Ok(input) if input < inputs => Ok(input),
        _ => bail!(Internal, "expected one of {inputs} inputs, got {position}"),
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::null;

    use opsmith_body::opcodes;
    use opsmith_core::abi::program::{OPSMITH_NODE_ADD, OPSMITH_NODE_FOLD_SUM, OPSMITH_NODE_INPUT};

    use super::*;

    const NODES: [OpsmithNode; 3] = [
        node(OPSMITH_NODE_INPUT, [0; 3]),
        node(OPSMITH_NODE_INPUT, [1, 0, 0]),
        node(OPSMITH_NODE_ADD, [0, 1, 0]),
    ];

    const fn node(opcode: i32, operands: [u32; 3]) -> OpsmithNode {
        OpsmithNode { opcode, operands, constant: 0.0 }
    }

    /// What is read of the sum of two inputs when something about it is changed.
    fn told(nodes: &[OpsmithNode], change: impl FnOnce(&mut OpsmithProgram)) -> Result<Option<OpProgram>> {
        let mut program = OpsmithProgram {
            size: size_of::<OpsmithProgram>(),
            inputs: [1, 1].as_ptr(),
            num_inputs: 2,
            nodes: nodes.as_ptr(),
            num_nodes: nodes.len(),
            outputs: &2,
            results: &1,
            like: &-1,
            num_outputs: 1,
            whole: &1,
            num_whole: 1,
            rows: OPSMITH_ROWS_NONE,
            row_dims: null(),
            num_row_dims: 0,
        };
        change(&mut program);
        // SAFETY: it points to what lives as long.
        unsafe { read(&raw const program) }
    }

    fn error(nodes: &[OpsmithNode], change: impl FnOnce(&mut OpsmithProgram)) -> String {
        told(nodes, change).unwrap_err().message().to_owned()
    }

    #[test]
    fn a_program_is_read() {
        let program = told(&NODES, |_| ()).unwrap().unwrap();
        assert_eq!(program.graph.formula(), "y0 = x0 + x1");
        assert_eq!((program.like, program.whole), (vec![None], vec![1]));
        let rows = |program: &mut OpsmithProgram| {
            (program.rows, program.row_dims, program.num_row_dims) = (OPSMITH_ROWS_KEPT, &-1, 1);
        };
        let sum = [NODES[0], NODES[1], node(OPSMITH_NODE_FOLD_SUM, [0, 0, 0])];
        let program = told(&sum, rows).unwrap().unwrap();
        assert_eq!(program.graph.formula(), "y0 = sum(x0)");
        assert_eq!(program.rows, Some(ProgramRows { dims: vec![-1], keep: true }));
        // The products of all pairs.
        let pairs = |program: &mut OpsmithProgram| {
            (program.inputs, program.results, program.rows) = ([1, 2].as_ptr(), &3, OPSMITH_ROWS_AXES);
            (program.row_dims, program.num_row_dims) = ([0, 1, 1, 0].as_ptr(), 4);
        };
        let program = told(&NODES, pairs).unwrap().unwrap();
        assert_eq!(program.axes, Some(vec![vec![0], vec![1], vec![1, 0]]));
        // A fold of no row, and one along a second axis.
        assert!(told(&sum, |_| ()).unwrap().is_none());
        let second = [NODES[0], NODES[1], node(OPSMITH_NODE_FOLD_SUM, [0, 1, 0])];
        assert!(told(&second, rows).unwrap().is_none());
        let constant = OpsmithNode { opcode: OPSMITH_NODE_CONSTANT, operands: [0; 3], constant: 0.5 };
        let program = told(&[NODES[0], constant, NODES[2]], |_| ()).unwrap().unwrap();
        assert_eq!(program.graph.formula(), "y0 = x0 + 0.5");
    }

    #[test]
    fn a_malformed_program_is_refused() {
        assert!(told(&[NODES[0], NODES[1], node(9999, [0; 3])], |_| ()).unwrap().is_none());
        let needed = size_of::<OpsmithProgram>();
        assert_eq!(
            error(&NODES, |program| program.size = 8),
            format!("its head: expected a structure of {needed} bytes, got 8")
        );
        assert_eq!(
            error(&NODES, |program| program.num_nodes = usize::MAX),
            "expected at most 1048576 nodes, got 18446744073709551615"
        );
        assert_eq!(error(&NODES, |program| program.nodes = null()), "expected 3 nodes, got null");
        assert_eq!(
            error(&NODES, |program| program.num_inputs = 1 << 40),
            "expected at most 1048576 inputs, got 1099511627776"
        );
        assert_eq!(error(&NODES, |program| program.num_outputs = 0), "it has no output");
        // A way of folding rows that is not known is one of a later version.
        assert!(told(&NODES, |program| program.rows = 4).unwrap().is_none());
        let axes = "expected the axes of all arguments in the order of their dims, got";
        assert_eq!(error(&NODES, |program| program.rows = OPSMITH_ROWS_AXES), format!("{axes} []"));
        for dims in [[0, 0, 1], [0, 0, -1], [0, 0, 16]] {
            let told = error(&NODES, |program| {
                (program.rows, program.row_dims, program.num_row_dims) =
                    (OPSMITH_ROWS_AXES, dims.as_ptr(), 3);
            });
            assert_eq!(told, format!("{axes} {dims:?}"));
        }
        assert_eq!(error(&NODES, |program| program.num_row_dims = 1), "expected 1 dims of a row, got null");
        assert_eq!(error(&NODES, |program| program.like = &-2), "expected one of 2 inputs, got -2");
        assert_eq!(error(&NODES, |program| program.whole = &2), "expected one of 2 inputs, got 2");
        assert_eq!(
            error(&NODES, |program| program.outputs = &3),
            "output 0: expected one of the 3 nodes before it, got 3"
        );
        let later = [NODES[0], NODES[1], node(OPSMITH_NODE_ADD, [0, 2, 0])];
        assert_eq!(error(&later, |_| ()), "node 2, `add`: expected one of the 2 nodes before it, got 2");
    }

    #[test]
    fn the_header_has_the_numbers_of_all_operations() {
        let header = include_str!("../../../include/opsmith.h");
        let written = header.matches("#define OPSMITH_NODE_").count();
        let numbers: Vec<(i64, &str)> = opcodes().collect();
        for (number, name) in &numbers {
            let line = format!("#define OPSMITH_NODE_{} {number}\n", name.to_uppercase());
            assert!(header.contains(&line), "{line}");
        }
        assert_eq!(written, numbers.len());
    }
}
