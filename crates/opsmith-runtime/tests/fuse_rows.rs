//! Folds with pointwise operators before and after them, computed as one: the same numbers, shapes and errors as one by one.

use std::num::NonZeroUsize;

use opsmith_core::{AttrValue, DType, Shape};
use opsmith_runtime::{Graph, Library, Output, Session, SessionOptions, Tensor, gradients};

/// An author's reductions: of several inputs, of one number for each row, of several outputs.
mod author {
    use opsmith::prelude::*;

    #[reduce]
    fn layer_norm<R: Rows>(
        x: R::Each,
        gamma: R::Each,
        beta: R::Each,
        #[attr(default = 1e-5)] epsilon: R::One,
    ) -> R::Each {
        let centred = x - x.mean();
        let variance = (centred * centred).mean();
        centred * (variance + epsilon).rsqrt() * gamma + beta
    }

    #[reduce(outputs = [y, total])]
    fn moved_by<R: Rows>(x: R::Each, by: R::One) -> (R::Each, R::One) {
        let y = x - by;
        (y, (y * y).sum())
    }

    #[reduce]
    fn log_sum_exp<R: Rows>(x: R::Each) -> R::One {
        let most = x.amax().detached();
        (x - most).exp().sum().log() + most
    }

    opsmith::library! {
        name = "rows_of_an_author",
        ops = [layer_norm, moved_by, log_sum_exp],
        embedded = true,
    }
}

/// Sessions that compute steps as one, on all threads and on one, and one that does not.
fn sessions(graph: &Graph) -> [Session; 3] {
    let one = SessionOptions { threads: NonZeroUsize::new(1), ..SessionOptions::default() };
    let plain = SessionOptions { fuse: false, ..SessionOptions::default() };
    [Session::new(graph), Session::with_options(graph, one), Session::with_options(graph, plain)]
}

type Feeds<'a> = [(&'a Output, &'a Tensor)];

/// The ops that a run called.
fn called(session: &Session, fetches: &[&Output], feeds: &Feeds<'_>) -> Vec<String> {
    let runner = fetches.iter().fold(session.runner().traced(), |runner, fetch| runner.fetch(fetch));
    let runner = feeds.iter().fold(runner, |runner, (output, value)| runner.feed(output, value));
    runner.run().unwrap().trace.unwrap().events.into_iter().map(|event| event.op).collect()
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::Float32 => tensor.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect(),
        _ => tensor.to_vec().unwrap(),
    }
}

/// Asserts that the sessions give the same but for the order in which sums are added up, and threads change no bit. Gives the ops
/// that were called.
fn compare(graph: &Graph, fetches: &[&Output], feeds: &Feeds<'_>) -> Vec<String> {
    let [fused, one, plain] = sessions(graph);
    let [found, on_one, wanted] = [&fused, &one, &plain].map(|session| session.run(fetches, feeds).unwrap());
    for ((found, on_one), wanted) in found.iter().zip(&on_one).zip(&wanted) {
        assert_eq!((found.shape(), found.dtype()), (wanted.shape(), wanted.dtype()));
        let bound = if found.dtype() == DType::Float32 { 1e-5 } else { 1e-13 };
        for ((a, b), c) in numbers(found).into_iter().zip(numbers(wanted)).zip(numbers(on_one)) {
            let same = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= bound * (1.0 + b.abs());
            assert!(same, "{a} {b}: {found} {wanted} {:?}", called(&fused, fetches, feeds));
            assert_eq!(a.to_bits(), c.to_bits());
        }
    }
    called(&fused, fetches, feeds)
}

fn call(graph: &Graph, op: &str, x: &Output, attrs: &[(&str, AttrValue)]) -> Output {
    let op = Library::standard().unwrap().op(op).unwrap();
    let node =
        attrs.iter().fold(graph.call(&op).arg(x), |call, (name, value)| call.attr(name, value.clone()));
    node.build().unwrap().output(0).unwrap()
}

/// A fold of these dims that keeps them.
fn kept(graph: &Graph, op: &str, x: &Output, axes: Vec<i64>) -> Output {
    call(graph, op, x, &[("axes", axes.into()), ("keep_dims", true.into())])
}

fn filled(dims: &[usize], dtype: DType, mut number: impl FnMut() -> f64) -> Tensor {
    let values: Vec<f64> = (0..dims.iter().product()).map(|_| number()).collect();
    match dtype {
        DType::Float32 => Tensor::from_slice(&values.iter().map(|v| *v as f32).collect::<Vec<_>>(), dims),
        _ => Tensor::from_slice(&values, dims),
    }
    .unwrap()
}

fn random() -> impl FnMut(usize) -> usize {
    let mut state = 7_u64;
    move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

#[test]
fn what_is_before_and_after_a_fold_is_one_with_it() {
    let graph = Graph::new();
    let x = graph.placeholder("x", DType::Float64, &Shape::parse("[?,5]").unwrap()).unwrap();
    let bias = graph.placeholder("bias", DType::Float64, &Shape::parse("[5]").unwrap()).unwrap();
    let mut random = random();
    let mut number = || random(1000) as f64 / 250.0 - 2.0;
    let (fed, row) =
        (filled(&[40, 5], DType::Float64, &mut number), filled(&[5], DType::Float64, &mut number));
    let feeds = [(&x, &fed), (&bias, &row)];
    let moved = (&(&x * &x).unwrap() + &bias).unwrap();
    let softmax = call(&graph, "Softmax", &moved, &[]);
    assert_eq!(compare(&graph, &[&softmax], &feeds), ["RowWise"]);
    // What is fetched of the middle is there.
    assert_eq!(compare(&graph, &[&moved, &softmax], &feeds), ["RowWise"]);
    let centred = (&moved - &kept(&graph, "Mean", &moved, vec![1])).unwrap();
    let spread = kept(&graph, "Mean", &centred.square().unwrap(), vec![1]);
    let norm = (&centred / &spread.sqrt().unwrap()).unwrap();
    assert_eq!(compare(&graph, &[&norm], &feeds), ["RowWise"]);
    assert_eq!(compare(&graph, &[&norm, &spread, &centred], &feeds), ["RowWise"]);
    let upstream = graph.placeholder("upstream", DType::Float64, norm.shape()).unwrap();
    let slope = gradients(&[&norm], &[&moved], Some(&[&upstream])).unwrap().remove(0).unwrap();
    assert_eq!(compare(&graph, &[&norm, &slope], &[feeds[0], feeds[1], (&upstream, &fed)]), ["RowWise"]);
    // Rows that lack their dims go on by themselves; what is folded of them is another step.
    let least = call(&graph, "Sum", &norm.exp().unwrap(), &[("axes", vec![-1].into())]);
    let logs = least.log().unwrap();
    assert_eq!(compare(&graph, &[&logs], &feeds), ["RowWise"]);
    assert_eq!(compare(&graph, &[&logs.mean(&[]).unwrap()], &feeds), ["RowWise", "Mean"]);
    // Folds of other dims too.
    let other = (&softmax - &call(&graph, "Max", &softmax, &[("axes", vec![0].into())])).unwrap();
    assert_eq!(compare(&graph, &[&other], &feeds), ["RowWise", "RowWise"]);
    let all = (&x - &bias).unwrap().square().unwrap().mean(&[]).unwrap();
    assert_eq!(compare(&graph, &[&all], &feeds), ["RowWise"]);
    // What is made of one row for each of its elements is for several threads.
    let away = (&moved - &moved.mean(&[]).unwrap()).unwrap().abs().unwrap();
    assert_eq!(compare(&graph, &[&away], &feeds), ["RowWise", "Pointwise"]);
}

#[test]
fn reductions_of_an_author_take_part() {
    // SAFETY: the macro made the table, and it is a static.
    let library = unsafe { Library::from_table(author::table()) }.unwrap();
    let mut random = random();
    let mut number = || random(1000) as f64 / 250.0 - 2.0;
    for (dims, axes, is_known) in [([3, 20, 7], 1, true), ([3, 20, 7], 2, false), ([2, 1, 300], 2, true)] {
        let graph = Graph::new();
        let row = &dims[3 - axes..];
        let mut feeds = Vec::new();
        for (name, dims) in [("x", &dims[..]), ("y", &dims), ("gamma", row), ("beta", row)] {
            let shape = if is_known { Shape::known(dims) } else { Shape::unknown_of_rank(dims.len()) };
            let input = graph.placeholder(name, DType::Float64, &shape).unwrap();
            feeds.push((input, filled(dims, DType::Float64, &mut number)));
        }
        let feeds: Vec<(&Output, &Tensor)> = feeds.iter().map(|(x, value)| (x, value)).collect();
        let [x, y, gamma, beta] = [0, 1, 2, 3].map(|input| feeds[input].0);
        let call = |op: &str, inputs: &[&Output]| {
            let op = library.op(op).unwrap();
            let node = inputs.iter().fold(graph.call(&op), |call, input| call.arg(*input));
            node.attr("axes", axes as i64).build().unwrap()
        };
        let norm = call("LayerNorm", &[&(&x.tanh().unwrap() + y).unwrap(), gamma, beta]).output(0).unwrap();
        assert_eq!(compare(&graph, &[&norm], &feeds), ["RowWise"]);
        let logs = call("LogSumExp", &[&norm]).output(0).unwrap().abs().unwrap();
        assert_eq!(compare(&graph, &[&norm, &logs], &feeds), ["RowWise"]);
        let moved = call("MovedBy", &[&norm, &logs]);
        let [moved, total] = [0, 1].map(|output| moved.output(output).unwrap());
        assert_eq!(compare(&graph, &[&moved], &feeds), ["RowWise"]);
        assert_eq!(compare(&graph, &[&total, &logs, &moved.square().unwrap()], &feeds), ["RowWise"]);
        let loss = (&total.mean(&[]).unwrap() + &moved.exp().unwrap().sum(&[]).unwrap()).unwrap();
        let slopes = gradients(&[&loss], &[x, y, gamma, beta], None).unwrap();
        let fetches: Vec<&Output> = [&loss].into_iter().chain(slopes.iter().flatten()).collect();
        let calls = compare(&graph, &fetches, &feeds);
        assert!(calls.len() < called(&sessions(&graph)[2], &fetches, &feeds).len() - 8, "{calls:?}");
    }
}

#[test]
fn functions_that_long_rows_would_need_twice_are_computed_before() {
    let graph = Graph::new();
    let fed = filled(&[3, 5], DType::Float64, || 0.5);
    // A function that two passes over long rows need is computed before them.
    let long = filled(&[2, 1030], DType::Float64, || 0.5);
    let x = graph.placeholder("long", DType::Float64, &Shape::parse("[?,?]").unwrap()).unwrap();
    let softmax = call(&graph, "Softmax", &(&x.tanh().unwrap() + &x).unwrap(), &[]);
    assert_eq!(compare(&graph, &[&softmax], &[(&x, &long)]), ["Pointwise", "Softmax"]);
    assert_eq!(compare(&graph, &[&softmax], &[(&x, &fed)]), ["RowWise"]);
}

#[test]
fn shapes_that_turn_out_smaller_run_without_folds_as_one() {
    let graph = Graph::new();
    let [x, y] = ["x", "y"]
        .map(|name| graph.placeholder(name, DType::Float64, &Shape::parse("[?,?]").unwrap()).unwrap());
    let sum = (&x + &y).unwrap();
    let inner = x.exp().unwrap().tanh().unwrap();
    let folded = kept(&graph, "Sum", &inner, vec![1]);
    let z = (&(&sum * &folded).unwrap() * &inner).unwrap();
    let fed = |dims: &[usize]| filled(dims, DType::Float64, || 0.5);
    let [whole, column, row] = [fed(&[3, 4]), fed(&[3, 1]), fed(&[1, 4])];
    assert_eq!(compare(&graph, &[&z], &[(&x, &whole), (&y, &whole)]), ["RowWise"]);
    assert_eq!(compare(&graph, &[&z], &[(&x, &whole), (&y, &column)]), ["RowWise"]);
    let others = compare(&graph, &[&z], &[(&x, &column), (&y, &row)]);
    assert_eq!(others, ["Pointwise", "Sum", "Pointwise"]);
    compare(&graph, &[&z], &[(&x, &row), (&y, &whole)]);
    compare(&graph, &[&z, &folded], &[(&x, &fed(&[0, 4])), (&y, &fed(&[1, 1]))]);
    compare(&graph, &[&z, &folded], &[(&x, &fed(&[3, 0])), (&y, &fed(&[1, 1]))]);
    let two = fed(&[2, 2]);
    let [fused, _, plain] = sessions(&graph);
    let [fused, plain] =
        [fused, plain].map(|session| session.run(&[&z], &[(&x, &whole), (&y, &two)]).unwrap_err());
    assert_eq!(fused.message(), plain.message());
}

#[test]
fn a_fold_may_be_read_beside_what_has_more_dims() {
    let graph = Graph::new();
    let x = graph.placeholder("x", DType::Float64, &Shape::known(&[3])).unwrap();
    let y = graph.placeholder("y", DType::Float64, &Shape::known(&[1, 3])).unwrap();
    let feeds = [[3].as_slice(), &[1, 3]].map(|dims| filled(dims, DType::Float64, || 2.0));
    let product = (&kept(&graph, "Sum", &x, vec![0]) * &y).unwrap();
    assert_eq!(compare(&graph, &[&product], &[(&x, &feeds[0]), (&y, &feeds[1])]), ["Sum", "Mul"]);
}

#[test]
fn random_graphs_with_folds_give_the_same() {
    let mut random = random();
    let (mut saved, mut rows) = (0, 0);
    for round in 0..150 {
        let dtype = [DType::Float32, DType::Float64][round % 2];
        let (n, k) = ([0, 1, 3, 17][random(4)], [0, 1, 5, 40][random(4)]);
        let graph = Graph::new();
        let is_known = random(2) == 0;
        let shapes = [vec![n, k], vec![n, k], vec![k], vec![n, 1], vec![]];
        let (mut feeds, mut nodes) = (Vec::new(), Vec::new());
        for (index, dims) in shapes.iter().enumerate() {
            let declared = if is_known { Shape::known(dims) } else { Shape::unknown_of_rank(dims.len()) };
            let x = graph.placeholder(&format!("x{index}"), dtype, &declared).unwrap();
            feeds.push((x.clone(), filled(dims, dtype, || random(1000) as f64 / 250.0 - 2.0)));
            nodes.push(x);
        }
        nodes.push(graph.constant("number", filled(&[], dtype, || random(100) as f64 / 50.0)).unwrap());
        for _ in 0..random(12) + 3 {
            let pick = |random: &mut dyn FnMut(usize) -> usize| {
                let last = nodes.len().min(4);
                nodes[if random(3) == 0 { random(nodes.len()) } else { nodes.len() - 1 - random(last) }]
                    .clone()
            };
            let (a, b) = (pick(&mut random), pick(&mut random));
            let is_whole = a.shape().rank() == Some(2);
            let axis = random(2) as i64 - 2;
            let made = match random(12) {
                0 => &a + &b,
                1 => &a - &b,
                2 => &a * &b,
                3 => a.tanh(),
                4 => a.sigmoid(),
                5 => a.abs(),
                6 if is_whole => Ok(call(&graph, "Softmax", &a, &[])),
                7 if is_whole => Ok(call(&graph, "LogSoftmax", &a, &[])),
                8 if is_whole => Ok(kept(&graph, "Sum", &a, vec![axis])),
                9 if is_whole => Ok(kept(&graph, "Mean", &a, vec![axis])),
                10 if is_whole => Ok(call(&graph, "Max", &a, &[("axes", vec![axis].into())])),
                11 => a.sum(&[]),
                _ => -&a,
            };
            // Rows without their dims need not fit beside others.
            nodes.push(made.unwrap_or(a));
        }
        let last = nodes.last().unwrap().sum(&[]).unwrap();
        let slopes = gradients(&[&last], &[&nodes[0], &nodes[2], &nodes[3]], None).unwrap();
        let mut fetches: Vec<&Output> = nodes[6..].iter().filter(|_| random(3) == 0).collect();
        fetches.extend([&last].into_iter().chain(slopes.iter().flatten()));
        let feeds: Vec<(&Output, &Tensor)> = feeds.iter().map(|(x, value)| (x, value)).collect();
        let plain = &sessions(&graph)[2];
        if plain.run(&fetches, &feeds).is_err() {
            // Rows without their dims may turn out not to fit.
            assert!(!is_known && Session::new(&graph).run(&fetches, &feeds).is_err());
            continue;
        }
        let calls = compare(&graph, &fetches, &feeds);
        saved += called(plain, &fetches, &feeds).len() - calls.len();
        rows += calls.iter().filter(|op| *op == "RowWise").count();
    }
    assert!(saved > 300 && rows > 100, "{saved} calls were saved by {rows}");
}
