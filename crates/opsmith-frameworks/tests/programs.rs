//! What ops compute of each element, as callers of the C ABI are told it.

mod common;

use std::ptr::{from_ref, null, null_mut};

use opsmith_core::abi::program::*;
use opsmith_core::abi::*;
use opsmith_core::{Code, OpDef, Program, ProgramRows, shape_fns};
use opsmith_frameworks::{Root, StaticLibrary, capi};

use self::common::taken;

fn scale() -> OpDef {
    let def = OpDef::new("Scale").attr("by: float = 2.0").input("x: float").output("y: float");
    def.shape_fn(shape_fns::unchanged).program(|construction| {
        let by: f64 = construction.attr("by")?;
        let nodes = vec![
            [OPSMITH_NODE_INPUT.into(), 0, 0, 0],
            [OPSMITH_NODE_CONSTANT.into(), by.to_bits() as i64, 0, 0],
            [OPSMITH_NODE_MUL.into(), 0, 1, 0],
        ];
        let (inputs, outputs, results) = (vec![1], vec![2], vec![1]);
        let rows = (by == 3.0).then(|| ProgramRows { dims: vec![-1, 0], keep: true });
        let axes = (by == 4.0).then(|| vec![vec![0], vec![0]]);
        let program =
            Program { inputs, nodes, outputs, results, like: vec![None], whole: vec![0], rows, axes };
        // A multiple of none stands for a program that no caller can be told.
        Ok(Some(if by == 0.0 { Program { outputs: vec![-1], ..program } } else { program }))
    })
}

fn sort() -> OpDef {
    OpDef::new("Sort").input("x: float").output("y: float").shape_fn(shape_fns::unchanged)
}

static LIBRARY: StaticLibrary = StaticLibrary::new("programs", "1.0.0", &[scale, sort]);
static TABLE: OpsmithLibrary = capi::table::<Programs>("programs", "1.0.0");

struct Programs;

// SAFETY: there is one.
unsafe impl Root for Programs {
    fn library() -> &'static StaticLibrary {
        &LIBRARY
    }
}

/// The program of an op with a value of `by`, or the error's code and message.
fn program(op: usize, by: f64) -> Result<*const OpsmithProgram, (i32, String)> {
    let by = OpsmithAttr {
        size: size_of::<OpsmithAttr>(),
        name: OpsmithStr::new("by"),
        kind: OPSMITH_ATTR_FLOAT,
        is_list: 0,
        len: 1,
        values: (&raw const by).cast(),
    };
    let (attrs, mut program) = ([from_ref(&by)], null());
    // SAFETY: the attribute is alive, and `program` is a place to write to.
    taken(&TABLE, unsafe { (TABLE.program)(op, attrs.as_ptr(), 1, &raw mut program) }).map(|()| program)
}

#[test]
fn a_program_is_told_for_its_attributes() {
    let told = program(0, 0.5).unwrap();
    // SAFETY: the library gave it, with as much as it says, and it is freed once.
    unsafe {
        let read = &*told;
        assert_eq!((read.size, read.num_inputs), (size_of::<OpsmithProgram>(), 1));
        assert_eq!((read.num_nodes, read.num_outputs, read.num_whole), (3, 1, 1));
        assert_eq!((*read.outputs, *read.like, *read.whole), (2, -1, 0));
        assert_eq!((*read.inputs, *read.results, read.rows, read.num_row_dims), (1, 1, OPSMITH_ROWS_NONE, 0));
        let nodes = std::slice::from_raw_parts(read.nodes, 3);
        let [input, half, product] = nodes else { unreachable!() };
        assert_eq!(
            (input.opcode, half.opcode, half.constant),
            (OPSMITH_NODE_INPUT, OPSMITH_NODE_CONSTANT, 0.5)
        );
        assert_eq!((product.opcode, product.operands), (OPSMITH_NODE_MUL, [0, 1, 0]));
        (TABLE.program_free)(told);
        (TABLE.program_free)(null());
        let told = program(0, 3.0).unwrap();
        assert_eq!(((*told).rows, (*told).num_row_dims), (OPSMITH_ROWS_KEPT, 2));
        assert_eq!(std::slice::from_raw_parts((*told).row_dims, 2), [-1, 0]);
        (TABLE.program_free)(told);
        let told = program(0, 4.0).unwrap();
        assert_eq!(((*told).rows, (*told).num_row_dims), (OPSMITH_ROWS_AXES, 2));
        assert_eq!(std::slice::from_raw_parts((*told).row_dims, 2), [0, 0]);
        (TABLE.program_free)(told);
    }
}

#[test]
fn what_cannot_be_told_is_null_or_an_error() {
    let mut told = std::ptr::dangling();
    // SAFETY: there are no attributes, and `told` is a place to write to.
    taken(&TABLE, unsafe { (TABLE.program)(1, null(), 0, &raw mut told) }).unwrap();
    assert!(told.is_null());
    // SAFETY: as above, but for the place.
    let (code, message) = taken(&TABLE, unsafe { (TABLE.program)(0, null(), 0, null_mut()) }).unwrap_err();
    assert_eq!((code, message.as_str()), (Code::InvalidArgument as i32, "the place for the result is null"));
    let (code, message) = program(2, 1.0).unwrap_err();
    assert_eq!((code, message.as_str()), (Code::NotFound as i32, "library `programs` has 2 ops, no op 2"));
    let (code, message) = program(1, 1.0).unwrap_err();
    assert_eq!(code, Code::InvalidArgument as i32);
    assert!(message.contains("by"), "{message}");
    let (code, message) = program(0, 0.0).unwrap_err();
    assert_eq!((code, message.as_str()), (Code::Internal as i32, "Scale: its program has the number -1"));
}
