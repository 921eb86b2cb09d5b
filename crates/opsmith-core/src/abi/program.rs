//! What an op computes, as a program that crosses the C ABI.

/// `rows` of a program: a function of each element.
pub const OPSMITH_ROWS_NONE: i32 = 0;
/// What there is one of for each row lacks the dims of a row.
pub const OPSMITH_ROWS_LEFT_OUT: i32 = 1;
/// It has them, as dims of 1.
pub const OPSMITH_ROWS_KEPT: i32 = 2;
/// A function over named axes.
pub const OPSMITH_ROWS_AXES: i32 = 3;

/// `opcode` of a node: an input of the op; `operands[0]` is its position.
pub const OPSMITH_NODE_INPUT: i32 = 0;
/// A number, `constant`.
pub const OPSMITH_NODE_CONSTANT: i32 = 1;
/// The second operand where the first, a mask, is true, else the third.
pub const OPSMITH_NODE_SELECT: i32 = 2;
/// Both masks.
pub const OPSMITH_NODE_AND: i32 = 3;
/// Either mask.
pub const OPSMITH_NODE_OR: i32 = 4;
/// Not the mask.
pub const OPSMITH_NODE_NOT: i32 = 5;
/// A mask: whether the first is less than the second.
pub const OPSMITH_NODE_LT: i32 = 6;
/// A mask: less than or equal.
pub const OPSMITH_NODE_LE: i32 = 7;
/// A mask: equal.
pub const OPSMITH_NODE_EQ: i32 = 8;
/// The sum of two numbers.
pub const OPSMITH_NODE_ADD: i32 = 9;
/// The first less the second.
pub const OPSMITH_NODE_SUB: i32 = 10;
/// Their product.
pub const OPSMITH_NODE_MUL: i32 = 11;
/// The first divided by the second.
pub const OPSMITH_NODE_DIV: i32 = 12;
/// The first to the power of the second.
pub const OPSMITH_NODE_POW: i32 = 13;
/// The smaller, NaN if one is NaN.
pub const OPSMITH_NODE_MIN: i32 = 14;
/// The larger, NaN if one is NaN.
pub const OPSMITH_NODE_MAX: i32 = 15;
/// A node's numbers along the axis `operands[1]` added up: 0 of none.
pub const OPSMITH_NODE_FOLD_SUM: i32 = 16;
/// The largest of them, NaN if one is NaN: −∞ of none.
pub const OPSMITH_NODE_FOLD_MAX: i32 = 17;
/// The smallest of them, NaN if one is NaN: ∞ of none.
pub const OPSMITH_NODE_FOLD_MIN: i32 = 18;
/// Their product: 1 of none.
pub const OPSMITH_NODE_FOLD_PRODUCT: i32 = 19;
/// How many numbers the axis `operands[0]` has.
pub const OPSMITH_NODE_COUNT: i32 = 20;
/// The position along the axis `operands[0]`, from 0.
pub const OPSMITH_NODE_INDEX: i32 = 21;
/// −x; this and what follows are functions of one number.
pub const OPSMITH_NODE_NEG: i32 = 64;
/// eˣ.
pub const OPSMITH_NODE_EXP: i32 = 65;
/// The natural logarithm.
pub const OPSMITH_NODE_LOG: i32 = 66;
/// log(1 + x), exact near 0.
pub const OPSMITH_NODE_LOG1P: i32 = 67;
/// eˣ − 1, exact near 0.
pub const OPSMITH_NODE_EXPM1: i32 = 68;
/// The hyperbolic tangent.
pub const OPSMITH_NODE_TANH: i32 = 69;
/// 1 / (1 + e⁻ˣ).
pub const OPSMITH_NODE_SIGMOID: i32 = 70;
/// The error function.
pub const OPSMITH_NODE_ERF: i32 = 71;
/// The normal distribution's cumulative function.
pub const OPSMITH_NODE_NORMAL_CDF: i32 = 72;
/// The normal distribution's density.
pub const OPSMITH_NODE_NORMAL_PDF: i32 = 73;
/// log(1 + eˣ).
pub const OPSMITH_NODE_SOFTPLUS: i32 = 74;
/// The sine.
pub const OPSMITH_NODE_SIN: i32 = 75;
/// The cosine.
pub const OPSMITH_NODE_COS: i32 = 76;
/// The square root.
pub const OPSMITH_NODE_SQRT: i32 = 77;
/// 1 / √x.
pub const OPSMITH_NODE_RSQRT: i32 = 78;
/// The absolute value.
pub const OPSMITH_NODE_ABS: i32 = 79;
/// −1, 0 or 1; ±0 and NaN stay what they are.
pub const OPSMITH_NODE_SIGN: i32 = 80;
/// The largest integer that is not larger.
pub const OPSMITH_NODE_FLOOR: i32 = 81;
/// x times `OPSMITH_NODE_NORMAL_CDF` of x, the Gaussian error linear unit.
pub const OPSMITH_NODE_GELU: i32 = 82;
/// Its usual approximation, x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))).
pub const OPSMITH_NODE_GELU_TANH: i32 = 83;
/// The arc tangent.
pub const OPSMITH_NODE_ATAN: i32 = 84;
/// log |Γ(x)|, the logarithm of the gamma function.
pub const OPSMITH_NODE_LGAMMA: i32 = 85;
/// The derivative of `OPSMITH_NODE_LGAMMA`.
pub const OPSMITH_NODE_DIGAMMA: i32 = 86;

/// A step of a program: a number, or a mask where it is a comparison or made of masks. Its size never changes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OpsmithNode {
    /// What it computes: `OPSMITH_NODE_…`. Later versions may add some; who does not know one leaves the program alone.
    pub opcode: i32,
    /// The positions of the nodes that it is computed from, all before it, as many as the opcode takes; then 0.
    pub operands: [u32; 3],
    /// The number of `OPSMITH_NODE_CONSTANT`; else 0.
    pub constant: f64,
}

/// What an op computes of each element of its inputs, all broadcast to one shape, of rows of them, or over named axes: a graph whose nodes come after
/// what they are computed from. What lies on the first axis is there for each element, what lies on none once for each row. The library made it; the caller reads it, with all that it points to, until it gives it to `program_free`.
#[repr(C)]
pub struct OpsmithProgram {
    /// `sizeof(OpsmithProgram)`.
    pub size: usize,
    /// For each input of the op the axes that it lies on, as bits.
    pub inputs: *const u16,
    /// How many there are.
    pub num_inputs: usize,
    /// The nodes.
    pub nodes: *const OpsmithNode,
    /// How many there are.
    pub num_nodes: usize,
    /// For each output of the op the position of its node; that of an `int64` output has whole numbers.
    pub outputs: *const u32,
    /// For each output the axes that it lies on, as bits.
    pub results: *const u16,
    /// For each output the input whose shape it has, summed over the dims along which that is repeated; -1 for an output of the
    /// shape that all inputs broadcast to.
    pub like: *const i32,
    /// How many outputs there are.
    pub num_outputs: usize,
    /// The inputs that do not broadcast: where the shapes of these are the one that all inputs broadcast to, every shape fits.
    pub whole: *const u32,
    /// How many there are.
    pub num_whole: usize,
    /// Whether rows are folded, `OPSMITH_ROWS_…`.
    pub rows: i32,
    /// The dims that are a row, counted from the end where negative; all if there is none. Of a function over named axes, for each input and
    /// then each output the axes of its last dims, in their order, as many as bits are set in its entry of `inputs` or `results`: an axis is of one size, and the dims before these
    /// broadcast.
    pub row_dims: *const i64,
    /// How many there are.
    pub num_row_dims: usize,
}
