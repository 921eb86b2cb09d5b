use crate::attr::{AttrValue, TensorValue};
use crate::shape::functions as shape_fns;
use crate::shape::{InferenceContext, Relation};
use crate::testing::ShapeTest;
use crate::{DType, OpDef, Result, infer_error, infer_ok};

fn test(
    def: OpDef,
    shape_fn: impl Fn(&mut InferenceContext<'_>) -> Result<()> + Send + Sync + 'static,
) -> ShapeTest {
    ShapeTest::of(def.shape_fn(shape_fn)).unwrap()
}

fn unary() -> OpDef {
    OpDef::new("Op").attr("T: type").input("x: T").output("z: T")
}

fn binary() -> OpDef {
    unary().input("y: T")
}

#[test]
fn unchanged() {
    let op = test(unary(), shape_fns::unchanged);
    infer_ok!(op, "?", "in0");
    infer_ok!(op, "[1,2,?,4,5]", "in0");
    infer_ok!(op, "[]", "[]");
    infer_ok!(op, "[n,2]", "[n,2]");
}

#[test]
fn unchanged_with_a_rank() {
    let op = test(unary(), shape_fns::unchanged_with_rank(2));
    infer_ok!(op, "?", "[?,?]");
    infer_ok!(op, "[1,?]", "in0");
    infer_error!(op, "Op: input `x` must have rank 2, got rank 1 (shape [1])", "[1]");
    let op = test(unary(), shape_fns::unchanged_with_rank_at_least(2));
    infer_ok!(op, "?", "in0");
    infer_ok!(op, "[1,?,3]", "in0");
    infer_error!(op, "Op: input `x` must have rank at least 2, got rank 0 (shape [])", "[]");
    let op = test(unary(), shape_fns::unchanged_with_rank_at_most(1));
    infer_ok!(op, "?", "in0");
    infer_ok!(op, "[?]", "[d0_0]");
    infer_error!(op, "Op: input `x` must have rank at most 1, got rank 2 (shape [1,?])", "[1,?]");
}

#[test]
fn whatever_the_inputs_are() {
    infer_ok!(test(unary(), shape_fns::scalar), "[2,3]", "[]");
    infer_ok!(test(unary(), shape_fns::unknown), "[2,3]", "?");
    infer_ok!(test(OpDef::new("Sink").input("x: float"), shape_fns::no_outputs), "[2,3]", "");
    infer_error!(test(unary(), shape_fns::no_outputs), "Op: has 1 outputs", "[2]");
    let explicit = test(unary().attr("shape: shape"), shape_fns::explicit);
    let explicit = explicit.attr("shape", AttrValue::Shape(Some(vec![Some(2), None])));
    infer_ok!(explicit, "[7]", "[2,?]");
}

#[test]
fn merged() {
    let def = OpDef::new("AddN").attr("N: int >= 1").input("x: N * float").output("z: float");
    let op = test(def, shape_fns::merged);
    infer_ok!(op, "[2,?];[?,3]", "[d0_0,d1_1]");
    infer_ok!(op, "[2,3];?;[2,3]", "in0");
    infer_ok!(op, "?", "?");
    infer_error!(op, "AddN: dim 1 of input `x[2]` must equal dim 1 of input `x[1]`: 4 ≠ 3", "?;[2,3];[2,4]");
    infer_error!(op, "input `x[1]` must have the rank of input `x[0]`: 1 ≠ 2", "[2,3];[2]");
    let (_, constraints) = op.infer("[n];[m];[m]").unwrap();
    let text: Vec<String> = constraints.iter().map(|c| c.failure(&c.left, &c.right)).collect();
    assert_eq!(
        text,
        [
            "dim 0 of input `x[1]` must equal dim 0 of input `x[0]`: m ≠ n",
            "dim 0 of input `x[2]` must equal dim 0 of input `x[0]`: m ≠ n",
        ]
    );
}

#[test]
fn gradients_have_the_shapes_of_their_inputs() {
    let op = test(binary().output("second: T"), shape_fns::like_inputs(&[1, 0]));
    infer_ok!(op, "[2,?];?", "in1;in0");
}

/// TensorFlow's cases for `BroadcastBinaryOpShapeFn`.
#[test]
fn broadcast() {
    let op = test(binary(), shape_fns::broadcast_binary);
    infer_ok!(op, "?;?", "?");
    infer_ok!(op, "[1,2];?", "?");
    infer_ok!(op, "?;[1,2]", "?");
    infer_ok!(op, "[5,4,3,2,1];[1]", "[5,4,3,2,1]");
    infer_ok!(op, "[1];[5,4,3,2,1]", "[5,4,3,2,1]");
    infer_ok!(op, "[5];[5]", "[5]");
    infer_ok!(op, "[5,1];[1,6]", "[5,6]");
    infer_ok!(op, "[];[2,?]", "[2,d1_1]");
    infer_ok!(op, "[0];[1]", "[0]");
    infer_ok!(op, "[?];[?]", "[?]");
    infer_ok!(op, "[?];[1]", "[d0_0]");
    infer_ok!(op, "[1];[?]", "[d1_0]");
    infer_ok!(op, "[?];[3]", "[3]");
    infer_ok!(op, "[n];[?]", "[n]");
    infer_ok!(op, "[1,n];[m,1]", "[m,n]");
    infer_error!(
        op,
        "Op: input `x` of shape [2,3] and input `y` of shape [4] do not broadcast: dim 0 of input `y` must equal dim 1 of input `x`, or one of them be 1: \
         4 ≠ 3",
        "[2,3];[4]"
    );
    let (outputs, constraints) = op.infer("[n];[m]").unwrap();
    assert_eq!(outputs[0].to_string(), "[n]");
    assert_eq!(constraints.len(), 1);
    assert_eq!(constraints[0].relation, Relation::Equal);
}

/// TensorFlow's cases for `MatMulShape`.
#[test]
fn matmul() {
    let def = || {
        let def = OpDef::new("MatMul").input("a: float").input("b: float").output("c: float");
        def.attr("transpose_a: bool = false").attr("transpose_b: bool = false")
    };
    let op = test(def(), shape_fns::matmul);
    infer_error!(op, "MatMul: input `a` must have rank 2, got rank 1 (shape [2])", "[2];?");
    infer_error!(op, "MatMul: input `b` must have rank 2, got rank 1 (shape [2])", "?;[2]");
    infer_ok!(op, "?;?", "[?,?]");
    infer_ok!(op, "[?,?];[?,?]", "[d0_0,d1_1]");
    infer_ok!(op, "[2,3];[3,4]", "[2,4]");
    infer_ok!(op, "[2,?];[3,4]", "[2,4]");
    infer_ok!(op, "[n,k];[k,m]", "[n,m]");
    infer_error!(
        op,
        "dim 0 of input `b` must equal dim 1 of input `a`, as the inner dims of a matrix product: 4 ≠ 3",
        "[2,3];[4,5]"
    );
    let a = op.clone().attr("transpose_a", AttrValue::Bool(true));
    infer_ok!(a, "[3,2];[3,4]", "[2,4]");
    let both = a.attr("transpose_b", AttrValue::Bool(true));
    infer_ok!(both, "[?,?];[?,?]", "[d0_1,d1_0]");
    infer_error!(both, "dim 1 of input `b` must equal dim 0 of input `a`", "[3,2];[4,5]");
}

#[test]
fn shapes_come_from_constant_inputs() {
    let def = OpDef::new("Fill").attr("T: {int32, int64}").input("dims: T").output("z: float");
    let op = test(def, |c| {
        let shape = c.shape_from_input(0)?;
        c.set_output(0, shape)
    });
    infer_ok!(op, "?", "?");
    infer_ok!(op, "[?]", "?");
    infer_ok!(op, "[2]", "[?,?]");
    infer_error!(op, "Fill: input `dims` must have rank 1", "[2,2]");
    let value = |dtype, bytes: Vec<u8>| TensorValue { dtype, shape: vec![2], bytes, strings: vec![] };
    let int32 = |numbers: [i32; 2]| value(DType::Int32, numbers.map(i32::to_ne_bytes).concat());
    infer_ok!(op.clone().input_value(0, int32([2, -1])), "[2]", "[2,?]");
    let int64 = value(DType::Int64, [7i64, 0].map(i64::to_ne_bytes).concat());
    infer_ok!(op.clone().input_value(0, int64), "[2]", "[7,0]");
    infer_error!(
        op.clone().input_value(0, int32([2, -2])),
        "is a shape, but -2 is not the size of a dim",
        "[2]"
    );
    let float = value(DType::Float32, vec![0; 8]);
    infer_error!(op.input_value(0, float), "must hold int32 or int64, got float32", "[2]");
}

#[test]
fn a_failed_test_says_what_is_wrong() {
    let op = test(binary(), shape_fns::broadcast_binary);
    let message = |run: &dyn Fn()| {
        let run = std::panic::AssertUnwindSafe(run);
        *std::panic::catch_unwind(run).unwrap_err().downcast::<String>().unwrap()
    };
    assert_eq!(message(&|| infer_ok!(op, "[2];[1]", "[3]")), "Op([2];[1]): output 0 should be [3], is [2]");
    assert_eq!(
        message(&|| infer_ok!(op, "[?];[1]", "[d1_0]")),
        "Op([?];[1]): output 0 should be [d1_0], is [?]"
    );
    let unchanged = test(binary(), shape_fns::unchanged);
    assert_eq!(
        message(&|| infer_ok!(unchanged, "[?];[?]", "[d1_0]")),
        "Op([?];[?]): with a symbol for each unknown dim: output 0 should be [d1_0], is [d0_0]"
    );
    assert_eq!(
        message(&|| infer_error!(op, "no", "[2];[2]")),
        "Op([2];[2]): should fail with `no`, gives [2]"
    );
    assert!(message(&|| infer_ok!(op, "[2];[3]", "[2]")).contains("fails with `Op: input `x` of shape [2]"));
    assert!(message(&|| infer_ok!(op, "[2];[2", "[2]")).contains("expected `,`, found the end"));
    assert!(message(&|| infer_ok!(op, "[2];[2];[2]", "[2]")).contains("1 shapes more than inputs"));
}
