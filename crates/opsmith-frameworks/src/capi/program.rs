//! What an op computes, through the C ABI.

use std::ptr::null;

use opsmith_core::abi::OpsmithAttr;
use opsmith_core::abi::program::{
    OPSMITH_NODE_CONSTANT, OPSMITH_ROWS_AXES, OPSMITH_ROWS_KEPT, OPSMITH_ROWS_LEFT_OUT, OPSMITH_ROWS_NONE,
    OpsmithNode, OpsmithProgram,
};
use opsmith_core::{Error, Program, Result, memory};

use super::call::attributes;
use super::infer::op_at;
use crate::StaticLibrary;

/// A program with the memory that it points to.
#[repr(C)]
struct Told {
    header: OpsmithProgram,
    nodes: Vec<OpsmithNode>,
    inputs: Vec<u16>,
    outputs: Vec<u32>,
    results: Vec<u16>,
    like: Vec<i32>,
    whole: Vec<u32>,
    row_dims: Vec<i64>,
}

/// Tells the program of an op; null where there is none.
///
/// # Safety
/// The attributes, a pointer and how many there are, must be valid as `opsmith_core::abi` says.
pub(super) unsafe fn tell(
    library: &'static StaticLibrary,
    op: usize,
    (attrs, num_attrs): (*const *const OpsmithAttr, usize),
) -> Result<*const OpsmithProgram> {
    let op = op_at(library, op)?;
    // SAFETY: promised by the caller.
    let attrs = unsafe { attributes(op.signature(), attrs, num_attrs) };
    let program = attrs.and_then(|attrs| op.program(&attrs)?.as_ref().map(told).transpose());
    let program = program.map_err(|error| error.with_op(&op.signature().name))?;
    Ok(program.map_or_else(null, |told| Box::into_raw(Box::new(told)).cast_const().cast()))
}

fn told(program: &Program) -> Result<Told> {
    let each = |numbers: &mut dyn Iterator<Item = i64>| {
        memory::try_collected(numbers.map(number::<u32>), "a program")
    };
    let nodes = memory::try_collected(program.nodes.iter().map(node), "a program")?;
    let outputs = each(&mut program.outputs.iter().copied())?;
    let like = program.like.iter().map(|like| like.map_or(Ok(-1), |input| number(input as i64)));
    let like = memory::try_collected(like, "a program")?;
    let whole = each(&mut program.whole.iter().map(|input| *input as i64))?;
    let copied = |axes: &[u16]| memory::collected(axes.iter().copied(), "a program");
    let (inputs, results) = (copied(&program.inputs)?, copied(&program.results)?);
    let row_dims = program.rows.iter().flat_map(|rows| rows.dims.iter().copied());
    let axes = program.axes.iter().flatten().flatten().map(|&axis| axis as i64);
    let row_dims = row_dims.chain(axes).collect::<Vec<i64>>();
    let header = OpsmithProgram {
        size: size_of::<OpsmithProgram>(),
        inputs: inputs.as_ptr(),
        num_inputs: inputs.len(),
        nodes: nodes.as_ptr(),
        num_nodes: nodes.len(),
        outputs: outputs.as_ptr(),
        like: like.as_ptr(),
        results: results.as_ptr(),
        num_outputs: outputs.len().min(like.len()).min(results.len()),
        whole: whole.as_ptr(),
        num_whole: whole.len(),
        rows: match &program.rows {
            None if program.axes.is_some() => OPSMITH_ROWS_AXES,
            None => OPSMITH_ROWS_NONE,
            Some(rows) if rows.keep => OPSMITH_ROWS_KEPT,
            Some(_) => OPSMITH_ROWS_LEFT_OUT,
        },
        row_dims: row_dims.as_ptr(),
        num_row_dims: row_dims.len(),
    };
    Ok(Told { header, nodes, inputs, outputs, results, like, whole, row_dims })
}

fn node(&[opcode, operands @ ..]: &[i64; 4]) -> Result<OpsmithNode> {
    let opcode = number(opcode)?;
    if opcode == OPSMITH_NODE_CONSTANT {
        return Ok(OpsmithNode { opcode, operands: [0; 3], constant: f64::from_bits(operands[0] as u64) });
    }
    let [a, b, c] = operands.map(number::<u32>);
    Ok(OpsmithNode { opcode, operands: [a?, b?, c?], constant: 0.0 })
}

/// A number as the ABI has it.
fn number<T: TryFrom<i64>>(number: i64) -> Result<T> {
    T::try_from(number).map_err(|_| Error::internal(format!("its program has the number {number}")))
}

/// Frees a program.
///
/// # Safety
/// `program` must be null or one that [`tell`] gave and nobody freed or reads.
pub(super) unsafe extern "C" fn free(program: *const OpsmithProgram) {
    if !program.is_null() {
        // SAFETY: promised by the caller.
        drop(unsafe { Box::from_raw(program.cast_mut().cast::<Told>()) });
    }
}
