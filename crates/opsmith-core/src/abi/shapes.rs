//! What shape inference is asked and answers, as it crosses the C ABI.

use super::{OpsmithAttr, OpsmithStr, OpsmithTensor};

/// `kind` of a dim: not known.
pub const OPSMITH_DIM_UNKNOWN: i32 = 0;
/// `value`.
pub const OPSMITH_DIM_KNOWN: i32 = 1;
/// A size that has a `name` and is not known yet. It is never negative.
pub const OPSMITH_DIM_SYMBOL: i32 = 2;
/// The sum of two dims; this and what follows are computed from `operands`.
pub const OPSMITH_DIM_ADD: i32 = 3;
/// The first less the second.
pub const OPSMITH_DIM_SUB: i32 = 4;
/// Their product.
pub const OPSMITH_DIM_MUL: i32 = 5;
/// The first divided by the second, rounded down.
pub const OPSMITH_DIM_FLOOR_DIV: i32 = 6;
/// The smaller.
pub const OPSMITH_DIM_MIN: i32 = 7;
/// The larger.
pub const OPSMITH_DIM_MAX: i32 = 8;

/// `relation` of a constraint: the dims are equal.
pub const OPSMITH_RELATION_EQUAL: i32 = 0;
/// The left one is at least the right one.
pub const OPSMITH_RELATION_AT_LEAST: i32 = 1;

/// A dim, or a number that dims are computed from. Its size never changes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpsmithDim {
    /// What it is: `OPSMITH_DIM_…`.
    pub kind: i32,
    /// The positions in the same list of what it is computed from, both before it; else 0.
    pub operands: [u32; 2],
    /// The number of `OPSMITH_DIM_KNOWN`; else 0.
    pub value: i64,
    /// The name of `OPSMITH_DIM_SYMBOL`; else empty.
    pub name: OpsmithStr,
}

/// What is known of a tensor that is not there yet.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpsmithArgument {
    /// `sizeof(OpsmithArgument)`.
    pub size: usize,
    /// The type of the elements: `OPSMITH_FLOAT32` and so on.
    pub dtype: i32,
    /// The number of dims; -1 when it is unknown.
    pub rank: i32,
    /// The dims, `rank` of them: positions in the list of dims beside it.
    pub dims: *const u32,
    /// The tensor, in host memory, where its value is known too; else null.
    pub value: *const OpsmithTensor,
}

/// A question for the shapes and dtypes of an op's outputs.
#[repr(C)]
pub struct OpsmithShapeQuery {
    /// `sizeof(OpsmithShapeQuery)`.
    pub size: usize,
    /// The op's position in the library.
    pub op: usize,
    /// All inputs, lists written out; a null pointer is an absent one.
    pub tensors: *const *const OpsmithArgument,
    /// How many pointers `tensors` has.
    pub num_tensors: usize,
    /// How many tensors each argument of the definition has; null when each has one.
    pub counts: *const usize,
    /// The length of `counts`.
    pub num_arguments: usize,
    /// The attributes that are given; the others have their defaults.
    pub attrs: *const *const OpsmithAttr,
    /// How many pointers `attrs` has.
    pub num_attrs: usize,
    /// The dims of all tensors, and what they are computed from.
    pub dims: *const OpsmithDim,
    /// How many there are.
    pub num_dims: usize,
}

/// What inference took for granted of dims that are not known yet. Whoever knows them later checks it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpsmithConstraint {
    /// `sizeof(OpsmithConstraint)`.
    pub size: usize,
    /// How the two compare: `OPSMITH_RELATION_…`.
    pub relation: i32,
    /// A position in the list of dims.
    pub left: u32,
    /// Another one.
    pub right: u32,
    /// What is wrong where it does not hold. It does not name the op.
    pub message: OpsmithStr,
}

/// The shapes and dtypes of an op's outputs. The library made it; the caller reads it, with all that it points to, until it gives
/// it to `shapes_free`.
#[repr(C)]
pub struct OpsmithShapes {
    /// `sizeof(OpsmithShapes)`.
    pub size: usize,
    /// All outputs, lists written out; none is null, and no value is known.
    pub tensors: *const *const OpsmithArgument,
    /// How many there are.
    pub num_tensors: usize,
    /// How many tensors each output of the definition has.
    pub counts: *const usize,
    /// How many outputs the definition has.
    pub num_outputs: usize,
    /// The dims of the outputs and of the constraints, and what they are computed from.
    pub dims: *const OpsmithDim,
    /// How many there are.
    pub num_dims: usize,
    /// What was taken for granted.
    pub constraints: *const *const OpsmithConstraint,
    /// How many there are.
    pub num_constraints: usize,
}
