use proptest::prelude::*;

use super::{context, op};
use crate::attr::AttrValue;
use crate::shape::{Constraint, Dim, InferenceContext, Relation, Shape, ShapeSignature};
use crate::{Result, Signature};

fn parse(text: &str) -> ShapeSignature {
    ShapeSignature::parse(text).unwrap_or_else(|error| panic!("{}", error.render(text)))
}

/// As it is of this op.
fn of_op(text: &str, op: &Signature) -> ShapeSignature {
    parse(text).of_op(op).unwrap_or_else(|error| panic!("{}", error.render(text)))
}

/// The shapes of the outputs by inference, and what it assumed.
fn infer(text: &str, op: &Signature, attrs: &[AttrValue], inputs: &str) -> Result<(String, Vec<Constraint>)> {
    let mut context = context(op, attrs, inputs)?;
    of_op(text, op).shape_fn()(&mut context)?;
    let (outputs, constraints) = context.into_parts();
    Ok((outputs.iter().map(Shape::to_string).collect::<Vec<_>>().join(";"), constraints))
}

/// The shapes of the outputs by binding.
fn bind(
    text: &str,
    op: &Signature,
    attrs: &[AttrValue],
    shapes: &[Option<&[usize]>],
) -> Result<Vec<Vec<usize>>> {
    let signature = of_op(text, op);
    let bound = signature.bind(op, shapes, attrs)?;
    Ok((0..op.outputs.len()).map(|i| bound.output_shape(i).to_vec()).collect())
}

fn distance() -> Signature {
    op("Distance", "x y", "z", &[])
}

#[test]
fn sizes_of_names_give_the_inputs_that_would_bind_them() {
    let signature = parse("(...,n,p),(m,2 * p)->(...,n,m)");
    let op = distance();
    let bound = signature.with_sizes(&op, &[2, 3, 4], &[5], &[]).unwrap();
    let inputs = [bound.input_shape(0), bound.input_shape(1)];
    assert_eq!((&inputs[0][..], &inputs[1][..]), (&[5, 2, 3][..], &[4, 6][..]));
    assert_eq!(bound.output_shape(0)[..], [5, 2, 4]);
    let again = signature.bind(&op, &inputs.each_ref().map(|shape| Some(&shape[..])), &[]).unwrap();
    assert_eq!(again.output_shape(0), bound.output_shape(0));
    assert!(signature.with_sizes(&op, &[2, 3], &[], &[]).is_none(), "a size for each name");
    let negative = parse("(n),(m)->(n - m)");
    assert!(negative.with_sizes(&op, &[1, 2], &[], &[]).is_none(), "no dim is negative");
}

#[test]
fn some_inputs_say_sizes_alone() {
    let signature = parse("(...,n,p),(m,2 * p)->(...,n,m)");
    let op = distance();
    let said = |shapes: &[Option<&'static [usize]>]| signature.said_by(&op, shapes, &[]);
    assert_eq!(said(&[Some(&[5, 2, 3]), None]), Some((vec![Some(2), Some(3), None], &[5][..])));
    assert_eq!(
        said(&[None, Some(&[4, 6])]),
        Some((vec![None, None, Some(4)], &[][..])),
        "`p` is of the first"
    );
    assert_eq!(said(&[None, Some(&[4])]), None, "the rank");
    assert_eq!(parse("(n,n),(m)->(m)").said_by(&op, &[Some(&[2, 3]), None], &[]), None, "the size");
}

#[test]
fn names_are_bound_by_the_inputs_and_give_the_outputs() {
    let signature = parse("(n,p),(m,p)->(n,m)");
    let op = distance();
    let bound = signature.bind(&op, &[Some(&[2, 3]), Some(&[4, 3])], &[]).unwrap();
    assert_eq!(bound.output_shape(0).as_slice(), [2, 4]);
    assert_eq!((bound.dim("n"), bound.dim("p"), bound.dim("q")), (Some(2), Some(3), None));
    assert_eq!(signature.dim_names(), ["n", "p", "m"]);
    assert!(!signature.is_batchable());
}

#[test]
fn a_mismatch_names_both_arguments_and_both_sizes() {
    let error = bind("(n,p),(m,p)->(n,m)", &distance(), &[], &[Some(&[2, 3]), Some(&[4, 5])]).unwrap_err();
    assert_eq!(error.message(), "Distance: dim 1 of input `y` must equal dim 1 of input `x` (p): 5 ≠ 3");
    let error = bind("(n,p),(m,p)->(n,m)", &distance(), &[], &[Some(&[2]), Some(&[4, 5])]).unwrap_err();
    assert_eq!(error.message(), "Distance: input `x` must have rank 2, (n,p), got rank 1 (shape [2])");
    let error = bind("(n,p),(m,p)->(n,m)", &distance(), &[], &[Some(&[2, 3])]).unwrap_err();
    assert_eq!(error.message(), "Distance: takes 2 input tensors, got 1");
    let error = bind("(3),()->()", &distance(), &[], &[Some(&[4]), Some(&[])]).unwrap_err();
    assert_eq!(error.message(), "Distance: dim 0 of input `x` must be 3: 4 ≠ 3");
}

#[test]
fn symbolic_dims_give_symbolic_outputs_and_constraints() {
    let (outputs, constraints) = infer("(n,p),(m,p)->(n,m)", &distance(), &[], "[a,b];[c,d]").unwrap();
    assert_eq!(outputs, "[a,c]");
    let expected = Constraint {
        relation: Relation::Equal,
        left: Dim::symbol("d"),
        right: Dim::symbol("b"),
        message: "dim 1 of input `y` must equal dim 1 of input `x` (p)".into(),
    };
    assert_eq!(constraints, [expected]);
    assert_eq!(
        constraints[0].failure(5, 3),
        bind("(n,p),(m,p)->(n,m)", &distance(), &[], &[Some(&[2, 3]), Some(&[4, 5])]).unwrap_err().text()
    );
}

#[test]
fn what_is_unknown_stays_unknown() {
    for (inputs, outputs) in
        [("?;?", "[?,?]"), ("[2,?];?", "[2,?]"), ("?;[4,3]", "[?,4]"), ("[?,3];[4,?]", "[?,4]")]
    {
        assert_eq!(infer("(n,p),(m,p)->(n,m)", &distance(), &[], inputs).unwrap().0, outputs);
    }
    let error = infer("(n,p),(m,p)->(n,m)", &distance(), &[], "[?,3];[?,4]").unwrap_err();
    assert!(error.message().ends_with("(p): 4 ≠ 3"), "{error}");
    assert_eq!(infer("(...,n),(n)->(...)", &distance(), &[], "?;[3]").unwrap().0, "?");
}

#[test]
fn batch_dims_lead_and_are_equal() {
    let text = "(...,n),(...,n)->(...)";
    assert!(parse(text).is_batchable());
    assert_eq!(bind(text, &distance(), &[], &[Some(&[5, 2, 3]), Some(&[5, 2, 3])]).unwrap(), [[5, 2]]);
    assert_eq!(bind(text, &distance(), &[], &[Some(&[3]), Some(&[3])]).unwrap(), [[0usize; 0]]);
    for (x, y, message) in [
        (&[5, 3][..], &[4, 3][..], "dim 0 of input `y` must equal dim 0 of input `x` (...): 4 ≠ 5"),
        (&[5, 3], &[3], "input `y` must have as many batch dims as input `x`: 0 ≠ 1"),
        (&[5, 3], &[], "input `y` must have rank at least 1, (...,n), got rank 0 (shape [])"),
    ] {
        let error = bind(text, &distance(), &[], &[Some(x), Some(y)]).unwrap_err();
        assert_eq!(error.message(), format!("Distance: {message}"));
    }
    assert!(!parse("(...,n),(n)->(...)").is_batchable());
}

#[test]
fn arithmetic_and_attributes_give_dims() {
    let op = op("Window", "x y", "z", &["k: int"]);
    let call = |text, k, x, y| bind(text, &op, &[AttrValue::Int(k)], &[Some(x), Some(y)]);
    assert_eq!(call("(n),()->(n + 1, 2*n, n // k)", 2, &[5], &[]).unwrap(), [[6, 10, 2]]);
    assert_eq!(call("(n),()->(k)", 2, &[5], &[]).unwrap(), [[2]]);
    assert_eq!(call("(3*s, s + f),(s,f)->(s)", 0, &[6, 7], &[2, 5]).unwrap(), [[2]]);
    for (text, k, x, y, message) in [
        ("(n),()->(k)", -1, &[5][..], &[][..], "dim 0 of output `z` (k) must not be negative: -1 < 0"),
        ("(n),()->(n-k)", 6, &[5], &[], "dim 0 of output `z` (n-k) must not be negative: -1 < 0"),
        (
            "(n),()->(n // k)",
            0,
            &[5],
            &[],
            "dim 0 of output `z` (n // k): the divisor must be positive, got 0",
        ),
        ("(3*s),(s)->(s)", 0, &[7], &[2], "dim 0 of input `x` must be 3*s: 7 ≠ 6"),
        ("(s-k),(s)->(s)", 5, &[7], &[2], "dim 0 of input `x` must be s-k: 7 ≠ -3"),
        (
            "(n),()->(n*k)",
            i64::MAX,
            &[5],
            &[],
            "dim 0 of output `z` (n*k): the size of a dim overflows 64 bits",
        ),
    ] {
        assert_eq!(call(text, k, x, y).unwrap_err().message(), format!("Window: {message}"));
    }
    let constraints = infer("(n),()->(n-k)", &op, &[AttrValue::Int(2)], "[n];[]").unwrap().1;
    assert_eq!(constraints[0].relation, Relation::AtLeast);
    assert_eq!(constraints[0].failure(-1, 0), "dim 0 of output `z` (n-k) must not be negative: -1 < 0");
}

#[test]
fn a_multiple_gives_its_dim() {
    let op = op("Heads", "x y", "z", &["heads: int"]);
    let call = |text, heads, x, y| bind(text, &op, &[AttrValue::Int(heads)], &[Some(x), Some(y)]);
    assert_eq!(call("(n,2 * d),()->(n,d)", 0, &[5, 8], &[]).unwrap(), [[5, 4]]);
    assert_eq!(call("(n,heads * d),(d * 2)->(heads,d)", 3, &[5, 12], &[8]).unwrap(), [[3, 4]]);
    assert_eq!(parse("(n,2 * d),(m)->(d)").dim_names(), ["n", "m", "d"]);
    assert_eq!(of_op("(heads * d),()->(d)", &op).dim_names(), ["d"]);
    for (text, heads, x, y, message) in [
        ("(2 * d),()->(d)", 0, &[7][..], &[][..], "dim 0 of input `x` must be a multiple of 2, 2 * d: 7 ≠ 6"),
        ("(2 * d),(3 * d)->(d)", 0, &[8], &[9], "dim 0 of input `y` must be 3 * d: 9 ≠ 12"),
        (
            "(heads * d),()->(d)",
            0,
            &[7],
            &[],
            "dim 0 of input `x` must be heads * d: the divisor must be positive, got 0",
        ),
    ] {
        assert_eq!(call(text, heads, x, y).unwrap_err().message(), format!("Heads: {message}"));
    }
    let (outputs, constraints) = infer("(2 * d),()->(d)", &op, &[AttrValue::Int(0)], "[n];[]").unwrap();
    assert_eq!(outputs, "[n // 2]");
    let text = "dim 0 of input `x` must be a multiple of 2, 2 * d: 7 ≠ 6";
    assert_eq!(constraints[0].failure(7, 6), text);
    let (outputs, constraints) = infer("(2 * d),()->(d)", &op, &[AttrValue::Int(0)], "[2 * n];[]").unwrap();
    assert_eq!((&*outputs, constraints), ("[n]", vec![]));
    assert_eq!(infer("(2 * d),(d)->(d)", &op, &[AttrValue::Int(0)], "?;[3]").unwrap().0, "[3]");
    let op = self::op("Two", "x y", "z", &[]);
    let error = of_op("(a * b),()->()", &op).check(&op).unwrap_err();
    assert!(error.message().contains("`a` in its shape signature is neither"), "{error}");
}

#[test]
fn optional_inputs_may_be_absent_where_the_others_say_enough() {
    let op = op("Grad", "x y? g", "a", &[]);
    let call = |text, y| bind(text, &op, &[], &[Some(&[2, 3]), y, Some(&[2, 4])]);
    assert_eq!(call("(n,p),(m,p),(n,m)->(m,p)", None).unwrap(), [[4, 3]]);
    assert_eq!(call("(n,p),(m,p),(n,m)->(m,p)", Some(&[4, 3])).unwrap(), [[4, 3]]);
    assert_eq!(
        call("(n,p),(q,p),(n,m)->(q,p)", None).unwrap_err().message(),
        "Grad: dim 0 of output `a` is not known: the inputs that have `q` are absent"
    );
    let error = bind("(n,p),(q,p),(n,m)->(q,p)", &op, &[], &[None, None, Some(&[2, 4])]).unwrap_err();
    assert_eq!(error.message(), "Grad: input `x` is required, got none");
}

#[test]
fn every_tensor_of_a_list_follows_its_shape() {
    let op = op("Sum", "x* y", "z*", &["N: int"]);
    let text = "(n,p),(p)->(n)";
    let two = [AttrValue::Int(2)];
    assert_eq!(bind(text, &op, &two, &[Some(&[2, 3]), Some(&[2, 3]), Some(&[3])]).unwrap(), [[2]]);
    let error = bind(text, &op, &two, &[Some(&[2, 3]), Some(&[4, 3]), Some(&[3])]).unwrap_err();
    assert_eq!(error.message(), "Sum: dim 0 of input `x[1]` must equal dim 0 of input `x[0]` (n): 4 ≠ 2");
    let error = bind(text, &op, &two, &[Some(&[2, 3][..]); 4]).unwrap_err();
    assert_eq!(error.message(), "Sum: takes 3 input tensors, got 4");
    let huge = [AttrValue::Int(i64::MAX)];
    assert!(bind(text, &op, &huge, &[Some(&[2, 3])]).unwrap_err().message().contains("is longer than"));
}

#[test]
fn a_signature_that_does_not_fit_its_definition_is_refused() {
    let error = parse("(n)->(n)").check(&distance()).unwrap_err();
    assert_eq!(error.message(), "Distance: has 2 inputs, but its shape signature `(n)->(n)` has 1");
    let error = parse("(n),(n)->(k)").check(&distance()).unwrap_err();
    assert!(error.message().contains("`k` in its shape signature"), "{error}");
    assert!(error.message().ends_with("\n            ^"), "{error}");
}

#[test]
fn errors_of_the_text_point_at_the_place() {
    for (text, offset, len, message) in [
        ("", 0, 0, "expected `(` or `->`, found the end"),
        ("(n)", 3, 0, "expected `,` or `->`, found the end"),
        ("(n)->(n", 7, 0, "expected `,` or `)`, found the end"),
        ("(n?)->(n)", 2, 1, "expected `,` or `)`, found `?`"),
        ("(n,)->(n)", 3, 1, "expected a number or a name, found `)`"),
        ("(n,...)->(n)", 3, 3, "`...` can only come first"),
        ("(n)->(...,n)", 6, 3, "an output has `...` but no input does"),
        ("(n)->(n - )", 10, 1, "expected a number or a name, found `)`"),
        ("(2 - 3)->(n)", 1, 5, "a dim must be from 0 to 2^63 - 1"),
        ("(99999999999999999999)->()", 1, 20, "the number overflows 64 bits"),
        ("(n)->(n) x", 9, 1, "expected `,` or the end, found `x`"),
        ("(é)->()", 1, 2, "expected a number or a name, found `é`"),
    ] {
        let error = ShapeSignature::parse(text).unwrap_err();
        assert_eq!((error.offset, error.len, &*error.message), (offset, len, message), "{text}");
    }
    let deep = format!("({}n{})->()", "(".repeat(1000), ")".repeat(1000));
    assert_eq!(ShapeSignature::parse(&deep).unwrap_err().message, "the expression is nested too deeply");
    // Text of any length is read or refused on any stack.
    let signs = |count| format!("(n)->({}n)", "-".repeat(count));
    assert!(ShapeSignature::parse(&signs(100_000)).is_ok());
    for sign in ["+", "*", "-"] {
        let long = format!("(n)->(n{})", format!("{sign} n").repeat(100_000));
        assert_eq!(ShapeSignature::parse(&long).unwrap_err().message, "there are more than 1024 operations");
    }
    let text = "(n?)->(n)";
    let rendered = ShapeSignature::parse(text).unwrap_err().render(text);
    assert_eq!(rendered, "expected `,` or `)`, found `?`\n  (n?)->(n)\n    ^");
}

const TEXTS: [&str; 13] = [
    "(n,p),(m,p)->(n,m)",
    "(n),(n)->()",
    "(n),(m)->(n + m, 2 * n)",
    "(n,n),(2)->(n // 2, max(n, 3))",
    "(...,n),(n)->(...)",
    "(...,n),(...,m)->(...,n,m)",
    "(2*n),(n)->(n - 1)",
    "(n + m, n),(m)->(k)",
    "(n,m),()->(n * m - k)",
    "(n),(m)->(min(n, m) // k, n - m)",
    "(2 * n),()->(n)",
    "(n * k * 1),(m)->(n,m)",
    "(2 * n, 3 * n),(m + n)->(n,2 * m)",
];

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(0usize..4, 0..4)
}

proptest! {
    #[test]
    fn both_evaluators_agree(text in 0..TEXTS.len(), x in sizes(), y in sizes(), k in -1i64..3) {
        let op = op("Op", "x y", "z", &["k: int"]);
        let attrs = [AttrValue::Int(k)];
        let signature = of_op(TEXTS[text], &op);
        let shapes = [Some(&x[..]), Some(&y[..])];
        let bound = signature.bind(&op, &shapes, &attrs).map(|bound| Shape::known(&bound.output_shape(0)));
        let inputs = vec![Some(vec![Shape::known(&x)]), Some(vec![Shape::known(&y)])];
        let mut context = InferenceContext::new(&op, &attrs, inputs).unwrap();
        let inferred = signature.shape_fn()(&mut context).map(|()| context.outputs()[0].clone());
        prop_assert_eq!(&bound, &inferred);
        prop_assert_eq!(context.constraints(), &[]);

        // With symbols for the same sizes: the constraints hold just when the call is right.
        let symbolic = |prefix: &str, sizes: &[usize]| -> Vec<Shape> {
            vec![(0..sizes.len()).map(|i| Dim::symbol(&format!("{prefix}{i}"))).collect()]
        };
        let inputs = vec![Some(symbolic("x", &x)), Some(symbolic("y", &y))];
        let mut context = InferenceContext::new(&op, &attrs, inputs).unwrap();
        let size = |name: &str| {
            let sizes = if name.starts_with('x') { &x } else { &y };
            name[1..].parse().ok().and_then(|i: usize| sizes.get(i)).map(|&size| size as u64)
        };
        if signature.shape_fn()(&mut context).is_err() {
            prop_assert!(bound.is_err());
            return Ok(());
        }
        let holds = |constraint: &Constraint| {
            let (left, right) = (constraint.left.substitute(&size), constraint.right.substitute(&size));
            match (left, right, constraint.relation) {
                (Ok(left), Ok(right), Relation::Equal) => left == right,
                (Ok(left), Ok(right), Relation::AtLeast) => left.value() >= right.value(),
                _ => false,
            }
        };
        let output = context.outputs()[0].substitute(&size);
        prop_assert_eq!(bound.is_ok(), context.constraints().iter().all(holds) && output.is_ok());
        if let Ok(bound) = bound {
            prop_assert_eq!(bound, output.unwrap());
        }
    }

    #[test]
    fn any_text_is_read_or_refused_within_it(text in "[(),.>n0-9+*/ -]{0,24}") {
        match ShapeSignature::parse(&text) {
            Ok(signature) => prop_assert_eq!(signature.to_string(), text),
            Err(error) => prop_assert!(error.offset + error.len <= text.len()),
        }
    }
}

#[test]
fn what_an_unknown_attribute_decides_is_unknown() {
    let op = op("Tile", "x", "z", &["times: int = 2", "least: int = 0"]);
    let mut context = context(&op, &[AttrValue::Int(2), AttrValue::Int(0)], "[n,3]").unwrap();
    context = context.with_unknown_attrs(vec![true, false]);
    parse("(n,m)->(times * n,m)").shape_fn()(&mut context).unwrap();
    assert_eq!(context.outputs()[0], Shape::parse("[?,3]").unwrap());
    let error = context.get_int("times").unwrap_err();
    assert_eq!(error.code(), crate::Code::Unavailable);
    assert_eq!(context.get_int("least").unwrap(), 0);
}
