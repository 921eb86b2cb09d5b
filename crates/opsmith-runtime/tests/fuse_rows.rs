//! Folds with pointwise operators before and after them, computed as one: the same numbers, shapes and errors as one by one.

mod fused;

use opsmith_core::{DType, Shape};
use opsmith_runtime::{Graph, Library, Output, Session, Tensor, gradients};

use self::fused::{call, called, compare, filled, kept, random, sessions};

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
    assert_eq!(compare(&graph, &[&softmax], &feeds), ["OverAxes"]);
    // What is fetched of the middle is there.
    assert_eq!(compare(&graph, &[&moved, &softmax], &feeds), ["OverAxes"]);
    let centred = (&moved - &kept(&graph, "Mean", &moved, vec![1])).unwrap();
    let spread = kept(&graph, "Mean", &centred.square().unwrap(), vec![1]);
    let norm = (&centred / &spread.sqrt().unwrap()).unwrap();
    assert_eq!(compare(&graph, &[&norm], &feeds), ["OverAxes"]);
    assert_eq!(compare(&graph, &[&norm, &spread, &centred], &feeds), ["OverAxes"]);
    let upstream = graph.placeholder("upstream", DType::Float64, norm.shape()).unwrap();
    let slope = gradients(&[&norm], &[&moved], Some(&[&upstream])).unwrap().remove(0).unwrap();
    assert_eq!(compare(&graph, &[&norm, &slope], &[feeds[0], feeds[1], (&upstream, &fed)]), ["OverAxes"]);
    // Rows that lack their dims go on by themselves; what is folded of them is another step.
    let least = call(&graph, "Sum", &norm.exp().unwrap(), &[("axes", vec![-1].into())]);
    let logs = least.log().unwrap();
    assert_eq!(compare(&graph, &[&logs], &feeds), ["OverAxes"]);
    assert_eq!(compare(&graph, &[&logs.mean(&[]).unwrap()], &feeds), ["OverAxes", "Mean"]);
    // Folds of other dims too.
    let other = (&softmax - &call(&graph, "Max", &softmax, &[("axes", vec![0].into())])).unwrap();
    assert_eq!(compare(&graph, &[&other], &feeds), ["OverAxes", "OverAxes"]);
    let all = (&x - &bias).unwrap().square().unwrap().mean(&[]).unwrap();
    assert_eq!(compare(&graph, &[&all], &feeds), ["OverAxes"]);
    // What is made of one row for each of its elements is for several threads.
    let away = (&moved - &moved.mean(&[]).unwrap()).unwrap().abs().unwrap();
    assert_eq!(compare(&graph, &[&away], &feeds), ["OverAxes", "Pointwise"]);
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
        assert_eq!(compare(&graph, &[&norm], &feeds), ["OverAxes"]);
        let logs = call("LogSumExp", &[&norm]).output(0).unwrap().abs().unwrap();
        assert_eq!(compare(&graph, &[&norm, &logs], &feeds), ["OverAxes"]);
        let moved = call("MovedBy", &[&norm, &logs]);
        let [moved, total] = [0, 1].map(|output| moved.output(output).unwrap());
        assert_eq!(compare(&graph, &[&moved], &feeds), ["OverAxes"]);
        assert_eq!(compare(&graph, &[&total, &logs, &moved.square().unwrap()], &feeds), ["OverAxes"]);
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
    assert_eq!(compare(&graph, &[&softmax], &[(&x, &fed)]), ["OverAxes"]);
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
    assert_eq!(compare(&graph, &[&z], &[(&x, &whole), (&y, &whole)]), ["OverAxes"]);
    assert_eq!(compare(&graph, &[&z], &[(&x, &whole), (&y, &column)]), ["OverAxes"]);
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
        rows += calls.iter().filter(|op| *op == "OverAxes").count();
    }
    assert!(saved > 300 && rows > 100, "{saved} calls were saved by {rows}");
}
