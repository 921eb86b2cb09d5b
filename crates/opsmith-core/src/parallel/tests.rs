use super::*;
use crate::{AttrValue, OpDef};

/// An op of as many inputs and outputs, with attributes for all rules here.
fn def(inputs: usize, outputs: usize) -> OpDef {
    let def =
        OpDef::new("Op").attr("axis: int = 0").attr("axes: list(int) = []").attr("perm: list(int) = []");
    let def = def.attr("keep_dims: bool = false").attr("transposed: bool = false");
    let def = (0..inputs).fold(def, |def, input| def.input(&format!("x{input}: float")));
    (0..outputs).fold(def, |def, output| def.output(&format!("y{output}: float")))
}

fn of_names(shape: &str, names: &str) -> Result<String, String> {
    let count = |side: &str| side.matches('(').count();
    let (inputs, outputs) = shape.split_once("->").unwrap();
    let op = def(count(inputs), count(outputs)).shape(shape).parallel(names).build();
    op.map(|op| op.parallel().unwrap().to_string()).map_err(|error| error.message().to_owned())
}

#[test]
fn names_of_dims_are_a_rule() {
    for (shape, names, rule) in [
        ("(...,n,k),(m,k)->(...,n,m)", "n, m", "(_..., n, _), (m, _) -> (_..., n, m)"),
        ("(...,n,k),(m,k)->(...,n,m)", "...,m", "(..., _, _), (m, _) -> (..., _, m)"),
        ("(n,p),(m,p),(n,m)->(n,p),(m,p)", "p, +n", "(n, p), (_, p), (n, _) -> (n, p), +(_, p)"),
        ("(...),()->(...),()", "+...", "(...), () -> (...), +()"),
        ("(n,3)->(n,axis)", "n", "(n, _) -> (n, _)"),
    ] {
        assert_eq!(of_names(shape, names).as_deref(), Ok(rule), "{shape} {names}");
    }
}

#[test]
fn names_that_do_not_fit_are_told() {
    for (shape, names, why) in [
        (
            "(n,p),(m,p)->(n,m)",
            "q",
            "`q` is not a dim of an input in its shape signature `(n,p),(m,p)->(n,m)`, which has n, p, m",
        ),
        (
            "(...,n)->(...)",
            "k",
            "`k` is not a dim of an input in its shape signature `(...,n)->(...)`, which has ..., n",
        ),
        ("(n)->(n,axis)", "axis", "`axis` is an attribute and not a dim of an input in its shape signature"),
        (
            "(3)->(3)",
            "n",
            "`n` is not a dim of an input in its shape signature `(3)->(3)`, whose inputs have no dims with names",
        ),
        ("(n)->(n)", "", "`` is not a dim of an input"),
        ("(n)->(n)", "n, n", "`n` is given twice"),
        ("(n)->(n)", "n, +n", "`n` is given twice"),
        (
            "(n,p)->(n)",
            "n, p",
            "`p` is not a dim of the output `y0`, which is (n); if that is the sum over the parts, write `+p`, \
             or `+(n)` in a rule",
        ),
        (
            "(n)->(n),(n+1)",
            "n",
            "`n` is not free: `n+1` of its shape signature `(n)->(n),(n+1)` depends on it",
        ),
        ("(n,n)->(n)", "n", "`n` occurs twice in `x0`, which is (n, n), so it cannot be cut"),
        ("(n,k)->(n,?)", "n", "`n` is not free: the kernel decides the size of the output (n,?)"),
    ] {
        let error = of_names(shape, names).unwrap_err();
        assert!(error.starts_with(&format!("Op: `parallel`: {why}")), "{shape} {names}: {error}");
    }
    let why = |def: OpDef| def.build().err().map(|error| error.message().to_owned()).unwrap_or_default();
    assert_eq!(
        why(def(1, 1).parallel("n")),
        "Op: `parallel`: `n` names dims, but the op has no shape signature; give a rule, `(..., n) -> (..., n)`"
    );
    assert!(why(def(1, 1).shape("(n)->(n)").parallel("n").stateful()).contains("it is stateful"));
    let changed = OpDef::new("Op").input("x: Ref(float)").shape("(n)->").parallel("n");
    assert!(why(changed).contains("it changes its input `x` in place"));
}

#[test]
fn rules_that_do_not_fit_are_told() {
    for (rule, why) in [
        ("(n) -> (n), (n)", "the op has 1 outputs, but `(n) -> (n), (n)` has 2"),
        ("(_) -> (_)", "`(_) -> (_)` has no free axis"),
        ("(...) -> (n)", "`n` is an axis of the output `y0`, but of no input"),
        ("(...) -> (_)", "`...` is not a dim of the output `y0`, which is (_)"),
        ("(... but nothing) -> (...)", "`nothing` is not an attribute of type int or list(int)"),
        ("(... less axes unless axis) -> (...)", "`axis` is not an attribute of type bool"),
        ("(..., _*nothing) -> (...)", "`nothing` is not an attribute of type int or list(int)"),
        ("(n, _; axis) -> (n)", "`axis` is not an attribute of type bool"),
        ("+(n) -> (n)", "`+` is for outputs, and `x0` is an input"),
        ("(n) -> (n, _..., _)", "the dims before `_...` of the output `y0` cannot be determined"),
        ("(..., _...) -> (...)", "an argument may have `...` only once"),
        ("(n -> (n)", "expected `,`, found `-`"),
        ("(n but axis) -> (n)", "expected `,`, found `b`"),
    ] {
        let error = def(1, 1).parallel(rule).build().err().map(|error| error.message().to_owned());
        assert!(error.as_ref().is_some_and(|error| error.contains(why)), "{rule}: {error:?}");
    }
}

#[test]
fn rules_are_read_as_they_are_printed() {
    for rule in [
        "(..., n, _; transposed), (_*axis, m) -> +(n, _..., m), (...)",
        "(... but axis), (i...) -> (... with i... at axis)",
        "(... less axes unless keep_dims) -> (... by perm)",
        "() -> ()",
    ] {
        assert_eq!(Parallel::parse(rule).unwrap().to_string(), rule);
    }
}

/// The axes of a call as text: name, dims of inputs, dims of outputs.
fn axes(rule: &str, attrs: &[(&str, AttrValue)], ranks: &[usize]) -> Vec<String> {
    let rule = Parallel::parse(rule).unwrap();
    let attr = |name: &str| attrs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    let ranks: Vec<Option<usize>> = ranks.iter().map(|rank| Some(*rank)).collect();
    let dim = |dim: Option<usize>| dim.map_or("-".to_owned(), |dim| dim.to_string());
    let text = |axis: FreeAxis| {
        let inputs: Vec<String> = axis.inputs.into_iter().map(dim).collect();
        let outputs = axis.outputs.into_iter();
        let outputs: Vec<String> =
            outputs.map(|own| format!("{}{}", dim(own.dim), if own.is_sum { "+" } else { "" })).collect();
        format!("{} {}>{}", axis.name, inputs.join(""), outputs.join(""))
    };
    rule.free_axes(&attr, &ranks).into_iter().map(text).collect()
}

#[test]
fn dims_follow_from_ranks_and_attributes() {
    let ints = |positions: &[i64]| AttrValue::Ints(positions.to_vec());
    let (yes, no) = (AttrValue::Bool(true), AttrValue::Bool(false));
    assert_eq!(axes("(...), (...) -> (...)", &[], &[2, 1]), ["...[-2] 2->2", "...[-1] 11>1"]);
    assert_eq!(axes("(...), (...) -> +(...)", &[], &[1, 2]), ["...[-1] 11>1+", "...[-2] -2>2+"]);
    let product = "(..., n, _; a), (..., _, m) -> (..., n, m)";
    let found = ["...[-1] 33>3", "n 2->2", "m -1>1"];
    assert_eq!(axes(product, &[("a", no.clone())], &[3, 3]), found);
    assert_eq!(axes(product, &[("a", yes.clone())], &[3, 3])[1], "n 1->2");
    let sum = "(... but axes) -> (... less axes unless keep)";
    assert_eq!(
        axes(sum, &[("axes", ints(&[1])), ("keep", no.clone())], &[3]),
        ["...[-3] 3>2", "...[-1] 1>1"]
    );
    assert_eq!(axes(sum, &[("axes", ints(&[-2])), ("keep", yes)], &[3]), ["...[-3] 3>3", "...[-1] 1>1"]);
    assert!(axes(sum, &[("axes", ints(&[])), ("keep", no.clone())], &[3]).is_empty());
    assert!(axes(sum, &[("axes", ints(&[3])), ("keep", no)], &[3]).is_empty());
    assert!(axes(sum, &[], &[3]).is_empty());
    assert!(axes("(...) -> (...)", &[], &[usize::MAX]).is_empty());
    let stack = "(... less axis) -> (... but axis)";
    assert_eq!(axes(stack, &[("axis", 0i64.into())], &[1]), ["...[-1] 1>1"]);
    assert_eq!(axes(stack, &[("axis", (-1i64).into())], &[1]), ["...[-2] 1>2"]);
    let turned = "(...) -> (... by perm)";
    assert_eq!(axes(turned, &[("perm", ints(&[]))], &[2]), ["...[-2] 2>1", "...[-1] 1>2"]);
    assert_eq!(axes(turned, &[("perm", ints(&[0, 1]))], &[2]), ["...[-2] 2>2", "...[-1] 1>1"]);
    let gather = "(... but axis), (i...) -> (... with i... at axis)";
    let found = ["...[-2] 2->3", "i...[-2] -2>2", "i...[-1] -1>1"];
    assert_eq!(axes(gather, &[("axis", 1i64.into())], &[2, 2]), found);
    assert_eq!(axes("(..., _*axis) -> (...)", &[("axis", 2i64.into())], &[3]), ["...[-1] 3>1"]);
    assert!(axes("(..., _*axis) -> (...)", &[("axis", 2i64.into())], &[1]).is_empty());
    let windows = "(..., _*axes) -> (..., _*axes)";
    assert_eq!(axes(windows, &[("axes", ints(&[7, 9]))], &[3]), ["...[-1] 3>3"]);
    assert_eq!(axes("(n), (n, _...) -> (n)", &[], &[1, 2]), ["n 12>1"]);
}

#[test]
fn what_sums_nothing_is_known() {
    let is = |rule: &str| Parallel::parse(rule).unwrap().is_elementwise();
    assert!(is("(...), () -> (...)") && is("(...) -> (... by perm)"));
    assert!(!is("(..., _) -> (...)") && !is("(...) -> +(...)") && !is("(... but axis) -> (... but axis)"));
}

#[test]
fn whether_dims_may_be_permuted_is_known() {
    let is = |rule: &str| Parallel::parse(rule).unwrap().may_permute_dims();
    assert!(is("(...), (...) -> (...)") && is("(...) -> +(...), (...)"));
    assert!(!is("(...) -> (... by perm)") && !is("(..., n) -> (..., n)") && !is("(i...) -> (i...)"));
    assert!(!is("(n) -> (n)") && !is("(_...) -> (_...)") && !is("(... but axis) -> (... but axis)"));
}

#[test]
fn a_rule_is_told_in_words() {
    let words = |rule: &str| Parallel::parse(rule).unwrap().words();
    assert_eq!(words("(..., n, _), (m, _) -> (..., n, m)"), "`n`, each dim of `...`, `m`");
    assert_eq!(
        words("(... but axes), (n) -> +(... less axes)"),
        "each dim of `...` but those at `axes`, `n`; an output with `+` that lacks one is the sum over the parts"
    );
}

#[test]
fn the_size_is_that_of_the_inputs_that_have_it_whole() {
    let axis =
        &Parallel::parse("(...), (...) -> (...)").unwrap().free_axes(&|_| None, &[Some(2), Some(1)])[1];
    let shapes = [vec![vec![4, 1]], vec![vec![3]]];
    assert_eq!(axis.size(shapes.iter().map(Vec::as_slice)), 3);
    assert_eq!(FreeAxis::position(axis.inputs[0], &[4, 1], 3), None);
    assert_eq!(FreeAxis::position(axis.inputs[1], &[3], 3), Some(0));
    assert_eq!(FreeAxis::position(Some(2), &[3], 3), None);
}

fn batches(rule: &str, given: &[(&str, AttrValue)], ranks: &[usize], batched: &[usize]) -> Vec<Batch> {
    batches_wanted(rule, given, ranks, batched, true)
}

/// With or without the second output.
fn batches_wanted(
    rule: &str,
    given: &[(&str, AttrValue)],
    ranks: &[usize],
    batched: &[usize],
    wanted: bool,
) -> Vec<Batch> {
    let parallel = parse::parse(rule).unwrap();
    let attr = |name: &str| given.iter().find(|(own, _)| *own == name).map(|(_, value)| value.clone());
    let ranks: Vec<Option<usize>> = ranks.iter().map(|rank| Some(*rank)).collect();
    let batched: Vec<bool> = (0..ranks.len()).map(|input| batched.contains(&input)).collect();
    parallel.batches(&Calls { attr: &attr, ranks: &ranks, batched: &batched, wanted: &[true, wanted] })
}

fn ints(values: &[i64]) -> AttrValue {
    AttrValue::Ints(values.to_vec())
}

#[test]
fn a_batch_is_one_more_dim_in_front() {
    let in_front =
        |rule: &str, given: &[(&str, AttrValue)], ranks: &[usize], batched: &[usize]| match batches(
            rule, given, ranks, batched,
        )
        .into_iter()
        .next()
        {
            Some(Batch::InFront { ranks, attrs, .. }) => {
                Some((ranks.iter().map(|rank| rank.unwrap_or(0)).collect::<Vec<_>>(), attrs))
            }
            _ => None,
        };
    let ranks = |rule: &str, own: &[usize], batched: &[usize]| in_front(rule, &[], own, batched).map(|b| b.0);
    assert_eq!(ranks("(...), (...) -> (...)", &[0, 2], &[0]), Some(vec![3, 3]));
    assert_eq!(ranks("(..., i, _), (..., _, _), (_) -> (..., i)", &[2, 4, 1], &[0]), Some(vec![5, 5, 0]));
    assert_eq!(ranks("(..., i, _), (_) -> (..., i)", &[2, 1], &[0, 1]), None);
    assert_eq!(ranks("(_..., i), (i) -> (_..., i)", &[2, 1], &[0]), None);
    let sum = "(... but axes) -> (... less axes)";
    let of_axes = |axes: &[i64], rank: usize| in_front(sum, &[("axes", ints(axes))], &[rank], &[0]);
    let with_axes = |rank: usize, axes: &[i64]| Some((vec![rank], vec![("axes".to_owned(), ints(axes))]));
    assert_eq!(of_axes(&[0, -1], 3), with_axes(4, &[1, -1]));
    assert_eq!(of_axes(&[], 2), with_axes(3, &[1, 2]));
    assert_eq!(of_axes(&[], 0), None);
    let gradient = "(... but axes), (... less axes) -> (... but axes)";
    let found = in_front(gradient, &[("axes", ints(&[1]))], &[3, 2], &[1]);
    assert_eq!(found, Some((vec![4, 3], vec![("axes".to_owned(), ints(&[2]))])));
    let turned = |perm: &[i64]| in_front("(...) -> (... by perm)", &[("perm", ints(perm))], &[2], &[0]);
    let with_perm = |perm: &[i64]| Some((vec![3], vec![("perm".to_owned(), ints(perm))]));
    assert_eq!(turned(&[]), with_perm(&[0, 2, 1]));
    assert_eq!(turned(&[-1, 0]), with_perm(&[0, -1, 1]));
    let axis = [("axis", AttrValue::Int(0))];
    let gather = in_front("(... but axis), (_) -> (... with i... at axis)", &axis, &[2, 1], &[0]);
    assert_eq!(gather.map(|found| found.0), Some(vec![3, 0]));
    let look_up = batches("(... but axis), (i...) -> (... with i... at axis)", &axis, &[2, 0], &[1]);
    let expected = Batch::InFront { ranks: vec![None, Some(1)], attrs: vec![], outputs: vec![Some(2)] };
    assert_eq!(look_up, [expected]);
    let product = "(..., n, _; transposed), (..., _, m) -> (..., n, m)";
    let transposed = [("transposed", AttrValue::Bool(true))];
    assert_eq!(in_front(product, &transposed, &[2, 2], &[1]).map(|b| b.0), Some(vec![3, 3]));
}

#[test]
fn a_batch_is_beside_a_free_axis() {
    let beside = |rule: &str, ranks: &[usize], batched: &[usize]| -> Vec<String> {
        let all = batches(rule, &[], ranks, batched).into_iter();
        all.filter_map(|batch| if let Batch::Beside(axis) = batch { Some(axis.name) } else { None }).collect()
    };
    let distance = "(n, _), (m, _) -> (n, m)";
    assert_eq!(beside(distance, &[2, 2], &[0]), ["n"]);
    assert_eq!(beside(distance, &[2, 2], &[1]), ["m"]);
    assert!(beside(distance, &[2, 2], &[0, 1]).is_empty());
    // No sum over the batch is asked for.
    assert!(beside("(n, _), (m, _), (n, m) -> +(n, _), +(m, _)", &[2, 2, 2], &[2]).is_empty());
    // Of the other gradient none is.
    let gradient = "(n, _), (m, _), (n, m) -> +(n, _), +(m, _)";
    let of_first = batches_wanted(gradient, &[], &[2, 2, 2], &[0, 2], false);
    assert!(matches!(&of_first[..], [Batch::Beside(axis)] if axis.name == "n"), "{of_first:?}");
    // A sum may have fewer dims than the others.
    assert!(beside("(i...), (i...) -> +(i...)", &[1, 2], &[1]).is_empty());
    assert_eq!(beside("(i...), (i...) -> +(i...)", &[2, 2], &[1]), ["i...[-2]", "i...[-1]"]);
    // What need not be repeated comes first, then what need not be moved.
    assert_eq!(beside("(n, b), (n) -> (n, b)", &[2, 1], &[0]), ["b", "n"]);
    assert_eq!(beside("(n, b) -> (n, b)", &[2], &[0]), ["n", "b"]);
    // No tensor has as many dims.
    assert!(batches("(..., n) -> (..., n)", &[], &[usize::MAX], &[0]).is_empty());
}
