//! Shape queries of the C ABI: any op, any dims and what they are computed from, any attributes.

use arbitrary::Unstructured;
use opsmith_core::DType;
use opsmith_core::abi::OpsmithStr;
use opsmith_core::abi::shapes::{OpsmithArgument, OpsmithDim, OpsmithShapeQuery, OpsmithShapes};
use opsmith_core::def::{ArgCount, ArgDef};

use super::{Choices, Kept, attributes, dtype_of, end, signatures, table};

/// A query: which library and op, then dims, tensors and attributes. What is answered has dims that lie before what is computed
/// from them.
pub(crate) fn queries(data: &[u8]) {
    let mut choices = Choices(Unstructured::new(data));
    let standard = choices.byte() & 1 == 1;
    let signatures = signatures(standard);
    let op = choices.below(signatures.len());
    let signature = &signatures[op];
    let kept = Kept::default();
    let count = choices.below(24);
    let dims: Vec<OpsmithDim> = (0..count).map(|at| dim(at, &mut choices)).collect();
    let attrs = attributes::of(signature, &mut choices, &kept);
    let dtypes: Vec<DType> =
        signature.attrs.iter().map(|attr| attributes::dtype(attr, &mut choices)).collect();
    let list = choices.below(4);
    let (mut tensors, mut counts) = (Vec::new(), Vec::new());
    for arg in &signature.inputs {
        if arg.optional && choices.once_in(3) {
            tensors.push(std::ptr::null());
            counts.push(1);
            continue;
        }
        let held = if arg.count == ArgCount::One { 1 } else { list };
        counts.push(if choices.once_in(64) { usize::MAX } else { held });
        tensors.extend((0..held).map(|_| argument(arg, &dtypes, count, &mut choices, &kept)));
    }
    let query = OpsmithShapeQuery {
        size: size_of::<OpsmithShapeQuery>(),
        op,
        num_tensors: tensors.len(),
        tensors: kept.list(tensors),
        num_arguments: counts.len(),
        counts: if choices.once_in(8) { std::ptr::null() } else { kept.list(counts) },
        num_attrs: attrs.len(),
        attrs: kept.list(attrs),
        num_dims: dims.len(),
        dims: dims.as_ptr(),
    };
    let (table, mut shapes) = (table(standard), std::ptr::null());
    // SAFETY: all that the query points to is kept until the end, and as large as it says; the answer is read before it is given back.
    unsafe {
        if end(table, (table.infer_shapes)(&query, &mut shapes)) {
            check(&*shapes);
        }
        (table.shapes_free)(shapes);
    }
}

/// # Safety
/// It must be an answer that was not given back.
unsafe fn check(shapes: &OpsmithShapes) {
    // SAFETY: an answer has as many of each as it says; an empty list may be anywhere.
    unsafe {
        let dims = std::slice::from_raw_parts(shapes.dims, shapes.num_dims);
        for (at, dim) in dims.iter().enumerate() {
            let is_computed = dim.kind >= opsmith_core::abi::shapes::OPSMITH_DIM_ADD;
            assert!(!is_computed || dim.operands.iter().all(|operand| (*operand as usize) < at));
        }
        for tensor in std::slice::from_raw_parts(shapes.tensors, shapes.num_tensors) {
            let own = std::slice::from_raw_parts((**tensor).dims, (**tensor).rank.max(0) as usize);
            assert!(own.iter().all(|dim| (*dim as usize) < dims.len()));
        }
    }
}

fn dim(at: usize, choices: &mut Choices<'_>) -> OpsmithDim {
    const NAMES: [&str; 3] = ["n", "m", "batch"];
    let operand = |choices: &mut Choices<'_>| match choices.once_in(64) {
        true => u32::MAX,
        false => choices.below(at.max(1)) as u32,
    };
    let kind = match choices.once_in(64) {
        true => choices.one_of(&[-1, 9, i32::MAX]),
        false if at < 2 => 1 + (choices.byte() & 1) as i32,
        false => choices.below(9) as i32,
    };
    OpsmithDim {
        kind,
        operands: [operand(choices), operand(choices)],
        value: match choices.byte() {
            0xff => i64::MAX,
            0xfe => i64::MIN,
            byte => i64::from(byte % 9) - i64::from(byte == 8),
        },
        name: match choices.once_in(64) {
            true => OpsmithStr { data: std::ptr::null(), len: 3 },
            false => OpsmithStr::new(choices.one_of(&NAMES)),
        },
    }
}

fn argument(
    arg: &ArgDef,
    dtypes: &[DType],
    dims: usize,
    choices: &mut Choices<'_>,
    kept: &Kept,
) -> *const OpsmithArgument {
    let rank = if choices.once_in(8) { -1 } else { choices.below(4) as i32 };
    let positions: Vec<u32> = (0..rank).map(|_| choices.below(dims + 1) as u32).collect();
    let dtype = dtype_of(arg, dtypes, choices) as i32;
    kept.one(OpsmithArgument {
        size: if choices.once_in(64) { 8 } else { size_of::<OpsmithArgument>() },
        dtype: if choices.once_in(64) { 99 } else { dtype },
        rank,
        dims: if choices.once_in(64) { std::ptr::null() } else { kept.list(positions) },
        value: std::ptr::null(),
    })
}
