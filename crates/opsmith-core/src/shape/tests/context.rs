use super::{context, dim, op, shape};
use crate::attr::AttrValue;
use crate::shape::{Dim, InferenceContext, Relation};
use crate::{Code, Result, Signature};

fn two() -> Signature {
    op("Op", "x y", "z", &["k: int", "on: bool = true", "name: string", "sizes: list(int)", "like: shape"])
}

fn attrs() -> [AttrValue; 5] {
    [
        AttrValue::Int(-2),
        AttrValue::Bool(true),
        AttrValue::String("same".into()),
        AttrValue::Ints(vec![2, 3]),
        AttrValue::Shape(Some(vec![None, Some(3)])),
    ]
}

/// Runs `test` in a call with these inputs.
fn call<R>(inputs: &str, test: impl FnOnce(&mut InferenceContext<'_>) -> R) -> R {
    let (op, attrs) = (two(), attrs());
    let mut context = context(&op, &attrs, inputs).unwrap();
    test(&mut context)
}

fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().message().to_owned()
}

#[test]
fn inputs_are_found_by_number_and_by_name() {
    let op = op("Op", "x? y* w", "z* v", &["N: int"]);
    let attrs = [AttrValue::Int(2)];
    let inputs = vec![None, Some(vec![shape("[1]"), shape("[2]")]), Some(vec![shape("[3]")])];
    let mut c = InferenceContext::new(&op, &attrs, inputs).unwrap();
    assert_eq!((c.num_inputs(), c.num_outputs()), (4, 3));
    assert_eq!(c.input(2).unwrap(), shape("[2]"));
    assert_eq!(c.input_by_name("w").unwrap(), shape("[3]"));
    assert_eq!(c.input_list("y").unwrap(), [shape("[1]"), shape("[2]")]);
    assert_eq!(c.input_range("w").unwrap(), 3..4);
    assert!(!c.has_input(0) && c.has_input(1) && !c.has_input(4));
    for (error, text) in [
        (c.input(0), "Op: input `x` is absent"),
        (c.input(4), "Op: has 4 inputs, so there is no input number 4"),
        (c.input_by_name("y"), "Op: input `y` is a list of 2 tensors, not one"),
        (c.input_by_name("q"), "Op: has no input `q`"),
        (c.with_rank(c.input(2).unwrap(), 2), "Op: input `y[1]` must have rank 2, got rank 1 (shape [2])"),
    ] {
        assert_eq!(message(error), text);
    }
    c.set_output(2, shape("[5]")).unwrap();
    c.set_output_list("z", vec![shape("[6]"), shape("[7]")]).unwrap();
    assert_eq!(c.outputs(), [shape("[6]"), shape("[7]"), shape("[5]")]);
    c.set_output_by_name("z", shape("[]")).unwrap();
    assert_eq!(c.outputs(), [shape("[]"), shape("[]"), shape("[5]")]);
    assert_eq!(message(c.set_output(3, shape("[]"))), "Op: has 3 outputs, so output number 3 cannot be set");
    assert_eq!(message(c.set_output_list("z", vec![])), "Op: output `z` must hold 2 tensors, got 0 shapes");
    assert_eq!(message(c.set_output_by_name("q", shape("[]"))), "Op: has no output `q`");
}

#[test]
fn a_call_has_the_inputs_of_its_definition() {
    let (op, attrs) = (two(), attrs());
    assert_eq!(message(context(&op, &attrs, "[1]")), "Op: takes 2 inputs, got 1");
    let none = InferenceContext::new(&op, &attrs, vec![None, Some(vec![shape("?")])]);
    assert_eq!(message(none), "Op: input `x` is required, got none");
    let list = InferenceContext::new(&op, &attrs, vec![Some(vec![]), Some(vec![shape("?")])]);
    assert_eq!(message(list), "Op: input `x` must hold 1 tensors, got 0");
}

#[test]
fn attributes_have_types() {
    call("?;?", |c| {
        assert_eq!(c.get_int("k").unwrap(), -2);
        assert!(c.get_bool("on").unwrap());
        assert_eq!(c.get_string("name").unwrap(), "same");
        assert_eq!(c.get_ints("sizes").unwrap(), [2, 3]);
        assert_eq!(c.get_shape("like").unwrap(), shape("[?,3]"));
        assert_eq!(c.attr("k").unwrap(), &AttrValue::Int(-2));
        assert_eq!(c.attr("q").unwrap_err().code(), Code::NotFound);
        assert_eq!(
            message(c.get_bool("k")),
            "Op: attribute `k` has type int, but its shape function reads Bool"
        );
        assert_eq!(
            message(c.get_dim("k")),
            "Op: attribute `k` is the size of a dim and must be at least 0, got -2"
        );
    });
}

#[test]
fn ranks_and_dims() {
    call("[2,?,4];?", |c| {
        let (x, y) = (c.input(0).unwrap(), c.input(1).unwrap());
        assert_eq!(c.with_rank(x.clone(), 3).unwrap(), x);
        assert_eq!(c.with_rank(y.clone(), 2).unwrap(), shape("[?,?]"));
        assert_eq!(c.with_rank_at_least(y.clone(), 2).unwrap(), y);
        let error = message(c.with_rank_at_most(x.clone(), 2));
        assert_eq!(error, "Op: input `x` must have rank at most 2, got rank 3 (shape [2,?,4])");
        assert_eq!(c.dim(&x, 0).unwrap(), dim("2"));
        assert_eq!(c.dim(&x, -1).unwrap(), dim("4"));
        assert_eq!(c.dim(&y, 7).unwrap(), Dim::Unknown);
        assert_eq!(message(c.dim(&x, 3)), "Op: input `x` of rank 3 has no dim 3 (shape [2,?,4])");
        assert!(c.dim(&x, -4).is_err() && c.dim(&x, i64::MIN).is_err() && c.dim(&x, i64::MAX).is_err());
        assert_eq!(c.replace_dim(&x, -1, 5).unwrap(), shape("[2,?,5]"));
        assert_eq!(c.replace_dim(&y, 0, 5).unwrap(), shape("?"));
        assert!(c.replace_dim(&x, 3, 5).is_err());
    });
}

#[test]
fn dims_are_inserted_and_removed() {
    call("[2,?,3];?", |c| {
        let (x, y, scalar) = (c.input(0).unwrap(), c.input(1).unwrap(), c.scalar());
        for (result, expected) in [
            (c.insert_dim(&x, 0, 5), "[5,2,?,3]"),
            (c.insert_dim(&x, 3, 5), "[2,?,3,5]"),
            (c.insert_dim(&x, -1, Dim::Unknown), "[2,?,3,?]"),
            (c.insert_dim(&x, -4, 5), "[5,2,?,3]"),
            (c.insert_dim(&scalar, -1, 5), "[5]"),
            (c.insert_dim(&y, 7, 5), "?"),
            (c.remove_dim(&x, 0), "[?,3]"),
            (c.remove_dim(&x, -1), "[2,?]"),
            (c.remove_dim(&y, 9), "?"),
            (c.remove_dims(&x, 0, 2), "[3]"),
            (c.remove_dims(&x, 1, None), "[2]"),
            (c.remove_dims(&x, -2, -1), "[2,3]"),
            (c.remove_dims(&x, 1, 1), "[2,?,3]"),
            (c.remove_dims(&x, 0, 100), "[]"),
            (c.remove_dims(&x, 100, None), "[2,?,3]"),
            (c.remove_dims(&y, 0, 1), "?"),
        ] {
            assert_eq!(result.unwrap(), shape(expected));
        }
        for result in [
            c.insert_dim(&x, 4, 5),
            c.insert_dim(&x, -5, 5),
            c.remove_dim(&x, 3),
            c.remove_dims(&x, -4, None),
            c.remove_dims(&x, 2, 1),
        ] {
            let message = result.unwrap_err().to_string();
            assert!(message.contains("input `x`"), "{message}");
        }
        assert!(c.remove_dim(&scalar, 0).is_err());
    });
}

/// The cases of TensorFlow's `ShapeInferenceTest.Subshape`.
#[test]
fn subshapes_are_slices() {
    call("[1,2,3,?,5];?", |c| {
        let (x, y) = (c.input(0).unwrap(), c.input(1).unwrap());
        for (result, expected) in [
            (c.subshape(&x, 0, None), "[1,2,3,?,5]"),
            (c.subshape(&x, 0, -1), "[1,2,3,?]"),
            (c.subshape(&x, 1, None), "[2,3,?,5]"),
            (c.subshape(&x, -1, None), "[5]"),
            (c.subshape(&x, -5, -2), "[1,2,3]"),
            (c.subshape(&x, 4, 100), "[5]"),
            (c.subshape(&x, 5, None), "[]"),
            (c.subshape(&x, 100, None), "[]"),
            (c.subshape(&x, 0, 0), "[]"),
            (c.subshape(&x, 2, 3), "[3]"),
            (c.subshape(&y, 0, None), "?"),
            (c.subshape(&y, 1, 2), "?"),
        ] {
            assert_eq!(result.unwrap(), shape(expected));
        }
        assert_eq!(
            message(c.subshape(&x, -6, None)),
            "Op: input `x` of rank 5 has no dim -6 (shape [1,2,3,?,5])"
        );
        assert_eq!(
            message(c.subshape(&x, 3, -3)),
            "Op: the part of input `x` from dim 3 ends before it starts, at dim 2 (shape [1,2,3,?,5])"
        );
    });
}

#[test]
fn shapes_are_made_and_joined() {
    call("[1,?];?", |c| {
        let (x, y) = (c.input(0).unwrap(), c.input(1).unwrap());
        assert_eq!(c.concatenate(&x, &shape("[3]")), shape("[1,?,3]"));
        assert_eq!(c.concatenate(&x, &c.scalar()), x);
        assert_eq!(c.concatenate(&x, &y), shape("?"));
        assert_eq!(c.vector(3), shape("[3]"));
        assert_eq!(c.matrix(3, &Dim::Unknown), shape("[3,?]"));
        assert_eq!(c.make_shape([dim("n"), dim("2")]), shape("[n,2]"));
        assert_eq!(c.unknown_shape(), shape("?"));
        assert_eq!(c.unknown_shape_of_rank(2), shape("[?,?]"));
    });
}

#[test]
fn merging_keeps_what_is_known() {
    call("[1,2];[3]", |c| {
        for (left, right, merged) in [
            ("?", "?", "?"),
            ("2", "?", "2"),
            ("?", "2", "2"),
            ("2", "2", "2"),
            ("n", "?", "n"),
            ("n", "2", "2"),
        ] {
            assert_eq!(c.merge(&dim(left), &dim(right)).unwrap(), dim(merged), "{left} {right}");
        }
        assert_eq!(
            message(c.merge(&dim("2"), &dim("3"))),
            "Op: dims must be equal, with inputs `x` [1,2], `y` [3]: 3 ≠ 2"
        );
        assert!(c.merge(&dim("n"), &dim("n + 1")).is_err());
        assert_eq!(c.with_value(&Dim::Unknown, 1).unwrap(), dim("1"));
        assert_eq!(
            message(c.with_value(&dim("2"), 1)),
            "Op: a dim must be 1, with inputs `x` [1,2], `y` [3]: 2 ≠ 1"
        );
        let assumed = c.constraints();
        assert_eq!(assumed.len(), 1);
        assert_eq!((&assumed[0].left, &assumed[0].right), (&dim("2"), &dim("n")));
    });
}

#[test]
fn shapes_and_prefixes_merge() {
    call("[1,2];[3]", |c| {
        for (left, right, merged) in
            [("?", "[2]", "[2]"), ("[2]", "?", "[2]"), ("[1,?]", "[?,2]", "[1,2]"), ("[]", "[]", "[]")]
        {
            assert_eq!(c.merge_shapes(&shape(left), &shape(right)).unwrap(), shape(merged));
        }
        let (x, y) = (c.input(0).unwrap(), c.input(1).unwrap());
        assert_eq!(
            message(c.merge_shapes(&x, &y)),
            "Op: input `y` must have the rank of input `x`: 1 ≠ 2 (shapes [3] and [1,2])"
        );
        assert_eq!(
            message(c.merge_prefix(&x, &y)),
            "Op: dim 0 of input `y` must equal dim 0 of input `x`: 3 ≠ 1"
        );
        let prefixed = c.merge_prefix(&shape("[?,2,?]"), &shape("[1,?]")).unwrap();
        assert_eq!(prefixed, (shape("[1,2,?]"), shape("[1,2]")));
        let unknown = c.merge_prefix(&shape("?"), &shape("[1,?]")).unwrap();
        assert_eq!(unknown, (shape("?"), shape("[1,?]")));
        assert!(
            message(c.merge_prefix(&shape("[1]"), &shape("[1,2]"))).contains("rank at least 2, got rank 1")
        );
    });
}

#[test]
fn arithmetic_is_checked() {
    call("[7];[]", |c| {
        let (n, seven) = (dim("n"), dim("7"));
        assert_eq!(c.add(&n, 1).unwrap(), dim("n + 1"));
        assert_eq!(c.subtract(&seven, 3).unwrap(), dim("4"));
        assert_eq!(c.multiply(&seven, &n).unwrap(), dim("7 * n"));
        assert_eq!(c.divide(&seven, 2, false).unwrap(), dim("3"));
        assert_eq!(c.min(&seven, 3).unwrap(), dim("3"));
        assert_eq!(c.max(&seven, &Dim::Unknown).unwrap(), Dim::Unknown);
        assert!(c.constraints().is_empty());
        let inputs = "with inputs `x` [7], `y` []";
        for (result, expected) in [
            (c.subtract(&seven, 8), format!("Op: a dim cannot be made negative, {inputs}: 7 < 8")),
            (c.divide(&seven, 2, true), format!("Op: a dim must be a multiple of 2, {inputs}: 7 ≠ 6")),
            (
                c.divide(&seven, 0, false),
                format!("Op: the divisor of a dim must be positive, {inputs}: 0 < 1"),
            ),
            (
                c.add(&dim("9223372036854775807"), 1),
                format!("Op: the size of a dim overflows 64 bits, {inputs}"),
            ),
        ] {
            assert_eq!(message(result), expected);
        }
    });
}

#[test]
fn what_symbols_must_satisfy_is_recorded_once() {
    call("[n];[]", |c| {
        let n = dim("n");
        for _ in 0..2 {
            assert_eq!(c.subtract(&n, 3).unwrap(), dim("n - 3"));
            assert_eq!(c.divide(&n, 2, true).unwrap(), dim("n // 2"));
        }
        let assumed = c.constraints();
        let parts: Vec<_> = assumed.iter().map(|c| (c.relation, c.left.clone(), c.right.clone())).collect();
        assert_eq!(
            parts,
            [(Relation::AtLeast, n.clone(), dim("3")), (Relation::Equal, n.clone(), dim("2 * (n // 2)")),]
        );
        let message = "a dim must be a multiple of 2, with inputs `x` [n], `y` []";
        assert_eq!(assumed[1].message, message);
    });
    assert_eq!(call("[n];[]", |c| c.subtract(&dim("n + 3"), 2).map(|_| c.constraints().len())), Ok(0));
}
