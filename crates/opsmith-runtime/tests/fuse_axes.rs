//! Ops over named axes with pointwise operators and folds around them, computed as one: the same numbers, shapes and errors as one by one.

mod fused;

use opsmith_core::{AttrValue, DType, Shape};
use opsmith_runtime::{Graph, Library, Output, Session, Tensor, gradients};

use self::fused::{call, called, compare, filled, kept, random, sessions};

/// An author's functions over named axes.
mod author {
    use opsmith::prelude::*;

    #[body("(i,k),(j,k)->(i,j)")]
    fn cosine<S: Indexed>(x: S, y: S) -> S {
        S::of(1.0) - (x * y).sum(k) * ((x * x).sum(k) * (y * y).sum(k) + 0.5).rsqrt()
    }

    #[body("(i,k),(j,k)->(i,j)")]
    fn squares<S: Indexed>(x: S, y: S) -> S {
        ((x - y) * (x - y)).sum(k)
    }

    /// With the rows of y first, and an attribute.
    #[body("(i,k),(j,k)->(j,i)")]
    fn turned<S: Indexed>(x: S, y: S, #[attr(default = 1.0)] gamma: S) -> S {
        (-((x - y) * (x - y)).sum(k) * gamma).exp()
    }

    /// The numbers of both are read once.
    #[body("(i,k),(i,k)->(i)")]
    fn products<S: Indexed>(x: S, y: S) -> S {
        (x * y).sum(k)
    }

    /// A softmax, which reads each number in several passes.
    #[body("(i,k),(i,k)->(i,k)")]
    fn attention<S: Indexed>(x: S, y: S) -> S {
        let e = (x - x.amax(k).detached()).exp();
        e / e.sum(k) * y
    }

    #[body("(i,k),(j,k)->(i,j),(i)", outputs = [distance, length])]
    fn both<S: Indexed>(x: S, y: S) -> (S, S) {
        ((x - y).abs().sum(k), (x * x).sum(k))
    }

    /// It tells no program: its positions are no numbers.
    #[body("(i,k),(j,k)->(i)")]
    fn nearest<S: Indexed>(x: S, y: S) -> S::Index {
        ((x - y) * (x - y)).sum(k).argmin(j)
    }

    /// Neither does one whose axis has a size of its own.
    #[body("(i,g = 5),(j,g)->(i,j)")]
    fn of_five<S: Indexed>(x: S, y: S) -> S {
        (x * y).sum(g)
    }

    #[pairwise(fold = max)]
    fn chebyshev<S: Scalar>(x: S, y: S) -> S {
        (x - y).abs()
    }

    opsmith::library! {
        name = "axes_of_an_author",
        ops = [cosine, squares, turned, products, attention, both, nearest, of_five, chebyshev],
        embedded = true,
    }
}

fn library() -> Library {
    // SAFETY: the macro made the table, and it is a static.
    unsafe { Library::from_table(author::table()) }.unwrap()
}

/// An output of an author's op.
fn of(graph: &Graph, op: &str, inputs: [&Output; 2], output: usize) -> Output {
    let op = library().op(op).unwrap();
    let call = inputs.iter().fold(graph.call(&op), |call, input| call.arg(*input));
    call.build().unwrap().output(output).unwrap()
}

/// A fold of these dims that does not keep them.
fn folded(graph: &Graph, op: &str, x: &Output, axis: i64) -> Output {
    call(graph, op, x, &[("axes", vec![axis].into())])
}

fn relu(graph: &Graph, x: &Output) -> Output {
    call(graph, "Relu", x, &[])
}

/// A graph, and what it is fed, of these shapes.
struct Fed {
    graph: Graph,
    inputs: Vec<(Output, Tensor)>,
}

impl Fed {
    fn new(shapes: &[&[usize]], dtype: DType, is_known: bool, random: &mut dyn FnMut(usize) -> usize) -> Fed {
        let graph = Graph::new();
        let inputs = shapes.iter().enumerate().map(|(index, dims)| {
            let shape = if is_known { Shape::known(dims) } else { Shape::unknown_of_rank(dims.len()) };
            let input = graph.placeholder(&format!("x{index}"), dtype, &shape).unwrap();
            (input, filled(dims, dtype, || random(1000) as f64 / 250.0 - 2.0))
        });
        Fed { inputs: inputs.collect(), graph }
    }

    fn feeds(&self) -> Vec<(&Output, &Tensor)> {
        self.inputs.iter().map(|(x, value)| (x, value)).collect()
    }

    fn compare(&self, fetches: &[&Output]) -> Vec<String> {
        compare(&self.graph, fetches, &self.feeds())
    }
}

#[test]
fn what_is_made_of_every_pair_is_one_with_it() {
    let mut random = random();
    let shapes: [&[usize]; 5] = [&[300, 5], &[40, 5], &[40], &[300, 1], &[1, 1]];
    for (is_known, dtype) in [(true, DType::Float32), (false, DType::Float64)] {
        let fed = Fed::new(&shapes, dtype, is_known, &mut random);
        let [x, y, of_j, of_i, one] = [0, 1, 2, 3, 4].map(|input| &fed.inputs[input].0);
        let graph = &fed.graph;
        for op in ["Cosine", "Chebyshev"] {
            let distance = of(graph, op, [x, y], 0);
            let biased = relu(graph, &(&(&distance + of_j).unwrap() * of_i).unwrap());
            assert_eq!(fed.compare(&[&biased]), ["OverAxes"]);
            let total = folded(graph, "Sum", &biased, 1);
            assert_eq!(fed.compare(&[&total]), ["OverAxes"]);
            let least = kept(graph, "Min", &(&biased - one).unwrap().square().unwrap(), vec![-1]);
            let root = (&least.sqrt().unwrap() + of_i).unwrap();
            assert_eq!(fed.compare(&[&root]), ["OverAxes"]);
            // Several that lie alike.
            assert_eq!(fed.compare(&[&root, &least, &total]), ["OverAxes"]);
            // What is fetched is not computed again, nor are columns with rows.
            assert_eq!(fed.compare(&[&biased, &total]), ["OverAxes", "Sum"]);
            let columns = folded(graph, "Mean", &biased, 0);
            assert_eq!(fed.compare(&[&columns, &total]).len(), 3);
            let other = (&distance * &distance).unwrap();
            assert_eq!(fed.compare(&[&other]), ["OverAxes"]);
            // What is as large as all pairs is.
            let softmax = call(graph, "Softmax", &biased, &[]);
            assert_eq!(fed.compare(&[&softmax]), ["OverAxes", "Softmax"]);
        }
        let columns = kept(graph, "Mean", &of(graph, "Turned", [x, y], 0), vec![0]);
        assert_eq!(fed.compare(&[&columns.log().unwrap()]), ["OverAxes"]);
        let [distance, length] = [0, 1].map(|output| of(graph, "Both", [x, y], output));
        let ratio = (&distance / &kept(graph, "Max", of_i, vec![0])).unwrap();
        assert_eq!(fed.compare(&[&ratio]), ["Max", "OverAxes"]);
        // Of two outputs that lie otherwise.
        assert_eq!(fed.compare(&[&relu(graph, &distance), &length]), ["Both", "Relu"]);
        assert_eq!(fed.compare(&[&of(graph, "OfFive", [x, y], 0).exp().unwrap()]), ["OfFive", "Exp"]);
        assert_eq!(fed.compare(&[&of(graph, "Nearest", [&x.exp().unwrap(), y], 0)]), ["Exp", "Nearest"]);
    }
}

#[test]
fn dims_before_the_axes_take_part() {
    let mut random = random();
    let shapes: [&[usize]; 4] = [&[3, 1, 60, 4], &[2, 50, 4], &[2, 1, 50], &[3, 2, 60, 1]];
    let fed = Fed::new(&shapes, DType::Float64, false, &mut random);
    let [x, y, of_j, of_i] = [0, 1, 2, 3].map(|input| &fed.inputs[input].0);
    let graph = &fed.graph;
    let biased = (&(&of(graph, "Cosine", [x, y], 0) + of_j).unwrap() * of_i).unwrap();
    for axis in [0, 1, 2, 3] {
        for op in ["Sum", "Max"] {
            assert_eq!(fed.compare(&[&folded(graph, op, &biased, axis)]), ["OverAxes"], "{op} {axis}");
        }
    }
    let both = call(graph, "Sum", &biased, &[("axes", vec![0, 3].into())]);
    assert_eq!(fed.compare(&[&both]), ["OverAxes", "Sum"]);
}

/// Whole numbers of which there are few, so that many distances are equal, and no sum is rounded; some have no number.
fn with_equals(shapes: &[&[usize]], dtype: DType, is_known: bool, has_nan: bool) -> Fed {
    let mut random = random();
    let mut fed = Fed::new(shapes, dtype, is_known, &mut random);
    for (_, value) in &mut fed.inputs {
        let number = |random: &mut dyn FnMut(usize) -> usize| match random(60) {
            0 if has_nan => f64::NAN,
            1 if has_nan => f64::INFINITY,
            _ => random(4) as f64,
        };
        *value = filled(value.shape(), dtype, || number(&mut random));
    }
    fed
}

#[test]
fn the_positions_of_the_least_and_the_largest_are_one_with_it() {
    let shapes: [&[usize]; 3] = [&[300, 3], &[270, 3], &[270]];
    for case in 0..8 {
        let dtype = [DType::Float32, DType::Float64][case % 2];
        let fed = with_equals(&shapes, dtype, case & 2 == 0, case & 4 == 0);
        let [x, y, of_j] = [0, 1, 2].map(|input| &fed.inputs[input].0);
        let graph = &fed.graph;
        for op in ["Squares", "Chebyshev"] {
            let distance = of(graph, op, [x, y], 0);
            let biased = (&distance.sqrt().unwrap() + of_j).unwrap();
            for of in [&distance, &biased] {
                for (position, axis) in [("ArgMin", 1), ("ArgMin", 0), ("ArgMax", -1), ("ArgMax", -2)] {
                    let places = folded(graph, position, of, axis);
                    assert_eq!(places.dtype(), DType::Int64);
                    assert_eq!(fed.compare(&[&places]), ["OverAxes"], "{op} {position} {axis}");
                    let places = kept(graph, position, of, vec![axis]);
                    assert_eq!(fed.compare(&[&places]), ["OverAxes"], "{op} {position} {axis}");
                }
                let [places, least] = ["ArgMin", "Min"].map(|op| folded(graph, op, of, 1));
                let farthest = folded(graph, "ArgMax", of, 1);
                assert_eq!(fed.compare(&[&places, &least]), ["OverAxes"]);
                assert_eq!(fed.compare(&[&farthest, &relu(graph, &least), &places]), ["OverAxes"]);
                let double = call(graph, "Cast", &places, &[("dtype", DType::Float64.into())]);
                assert_eq!(fed.compare(&[&double]), ["OverAxes", "Cast"]);
            }
            // Those of all pairs are in memory: of a position along two dims, and where others read them.
            let all = call(graph, "ArgMin", &biased, &[("axes", vec![0, 1].into())]);
            assert_eq!(fed.compare(&[&all]), ["OverAxes", "ArgMin"]);
            let places = folded(graph, "ArgMin", &biased, 1);
            assert_eq!(fed.compare(&[&biased, &places]), ["OverAxes", "ArgMin"]);
        }
    }
}

#[test]
fn positions_along_dims_before_the_axes_are_one_with_it() {
    let shapes: [&[usize]; 3] = [&[3, 1, 60, 4], &[2, 50, 4], &[2, 1, 50]];
    let fed = with_equals(&shapes, DType::Float32, false, true);
    let [x, y, of_j] = [0, 1, 2].map(|input| &fed.inputs[input].0);
    let biased = (&of(&fed.graph, "Squares", [x, y], 0) - of_j).unwrap();
    for axis in [0, 1, 2, 3] {
        for op in ["ArgMin", "ArgMax"] {
            assert_eq!(fed.compare(&[&folded(&fed.graph, op, &biased, axis)]), ["OverAxes"], "{op} {axis}");
        }
    }
}

#[test]
fn positions_of_none_are_told_as_one_by_one() {
    let fed = with_equals(&[&[300, 3], &[0, 3]], DType::Float64, false, false);
    let distance = of(&fed.graph, "Squares", [&fed.inputs[0].0, &fed.inputs[1].0], 0);
    let places = folded(&fed.graph, "ArgMin", &distance, 1);
    let [fused, _, plain] = sessions(&fed.graph);
    let [found, wanted] = [fused, plain].map(|session| session.run(&[&places], &fed.feeds()).unwrap_err());
    assert!(wanted.message().contains("must have an element along the dims"), "{wanted}");
    assert_eq!(found.message(), wanted.message());
}

#[test]
fn as_many_dims_as_axes_may_take_part() {
    let mut random = random();
    let shapes: [&[usize]; 2] = [&[2, 1, 2, 1, 2, 1, 2, 1, 5, 3], &[1, 2, 1, 2, 1, 2, 1, 2, 6, 3]];
    let fed = Fed::new(&shapes, DType::Float64, true, &mut random);
    let distance = of(&fed.graph, "Cosine", [&fed.inputs[0].0, &fed.inputs[1].0], 0).exp().unwrap();
    for axis in 0..10 {
        assert_eq!(fed.compare(&[&folded(&fed.graph, "Sum", &distance, axis)]), ["OverAxes"], "{axis}");
    }
}

#[test]
fn a_tensor_that_is_read_twice_again_and_again_is_looked_at_once() {
    let mut random = random();
    let fed = Fed::new(&[&[3, 4], &[3, 4]], DType::Float64, false, &mut random);
    let mut x = fed.inputs[0].0.clone();
    for _ in 0..60 {
        x = (&x + &x).unwrap();
    }
    let product = of(&fed.graph, "Products", [&x, &fed.inputs[1].0], 0);
    assert!(fed.compare(&[&product]).contains(&"OverAxes".to_owned()));
}

#[test]
fn what_others_come_after_stays_before_them() {
    let mut random = random();
    let fed = Fed::new(&[&[90, 6], &[90, 6]], DType::Float64, false, &mut random);
    let [x, y] = [0, 1].map(|input| &fed.inputs[input].0);
    let first = x.exp().unwrap();
    let tanh = Library::standard().unwrap().op("Tanh").unwrap();
    let later = fed.graph.call(&tanh).arg(y).after(first.operation()).build().unwrap().output(0).unwrap();
    let product = of(&fed.graph, "Products", [&first, &later], 0);
    let calls = fed.compare(&[&product, &later]);
    let at = |op: &str| calls.iter().position(|own| own == op);
    assert!(at("Exp").is_some() && at("Exp") < at("Tanh"), "{calls:?}");
}

#[test]
fn what_is_before_goes_with_it_where_each_number_is_read_once() {
    let mut random = random();
    let fed = Fed::new(&[&[90, 6], &[90, 6], &[6], &[4, 90, 6]], DType::Float64, false, &mut random);
    let [x, y, scale, many] = [0, 1, 2, 3].map(|input| &fed.inputs[input].0);
    let graph = &fed.graph;
    let scaled = (&(x * scale).unwrap().tanh().unwrap() + y).unwrap();
    assert_eq!(fed.compare(&[&of(graph, "Products", [&scaled, y], 0)]), ["OverAxes"]);
    assert_eq!(fed.compare(&[&of(graph, "Products", [&scaled, &scaled], 0).exp().unwrap()]), ["OverAxes"]);
    let weighted = |x: &Output| of(graph, "Attention", [x, y], 0).abs().unwrap();
    assert_eq!(fed.compare(&[&weighted(&(x * scale).unwrap())]), ["OverAxes"]);
    assert_eq!(fed.compare(&[&weighted(&scaled)]), ["Pointwise", "OverAxes"]);
    // Others read it, too, or it is read for every pair or part of the batch.
    let product = of(graph, "Products", [&scaled, y], 0);
    assert_eq!(fed.compare(&[&product, &scaled]), ["Pointwise", "Products"]);
    assert_eq!(fed.compare(&[&of(graph, "Cosine", [&scaled, y], 0)]), ["Pointwise", "Cosine"]);
    assert_eq!(fed.compare(&[&of(graph, "Products", [&scaled, many], 0)]), ["Pointwise", "Products"]);
}

#[test]
fn shapes_that_do_not_fit_run_one_by_one() {
    let graph = Graph::new();
    let [x, y, bias] = ["x", "y", "bias"]
        .map(|name| graph.placeholder(name, DType::Float64, &Shape::parse("[?,?]").unwrap()).unwrap());
    let sum = folded(&graph, "Sum", &(&of(&graph, "Cosine", [&x, &y], 0) + &bias).unwrap(), 1);
    let fed = |dims: [usize; 2]| filled(&dims, DType::Float64, || 0.5);
    let run = |x_dims, y_dims, bias_dims| {
        let tensors = [x_dims, y_dims, bias_dims].map(fed);
        let feeds = [(&x, &tensors[0]), (&y, &tensors[1]), (&bias, &tensors[2])];
        let [fused, _, plain] = sessions(&graph);
        match plain.run(&[&sum], &feeds) {
            Ok(_) => Ok(compare(&graph, &[&sum], &feeds)),
            Err(error) => {
                let found = fused.run(&[&sum], &feeds).unwrap_err();
                assert_eq!((found.message(), found.code()), (error.message(), error.code()));
                Err(error.message().to_owned())
            }
        }
    };
    let ops = |ops: &[&str]| Ok(ops.iter().map(|op| (*op).to_owned()).collect::<Vec<_>>());
    let (whole, apart) = (ops(&["OverAxes"]), ops(&["Cosine", "Add", "Sum"]));
    assert_eq!(run([300, 3], [7, 3], [1, 7]), whole);
    assert_eq!(run([300, 3], [7, 3], [300, 1]), whole);
    // The bias has more numbers.
    assert_eq!(run([300, 3], [1, 3], [300, 9]), apart);
    // Few rows are better folded by all threads, and what has no more numbers than an input is in memory.
    let without_fold = ops(&["OverAxes", "Sum"]);
    assert_eq!(run([2, 3], [7, 3], [1, 7]), without_fold);
    assert_eq!(run([300, 40], [70, 40], [1, 70]), without_fold);
    assert_eq!(run([300, 3], [70, 3], [300, 70]), without_fold);
    assert_eq!(run([300, 40], [90, 40], [300, 1]), whole);
    for empty in [[[0, 3], [7, 3], [1, 7]], [[300, 3], [0, 3], [300, 1]], [[300, 0], [7, 0], [1, 1]]] {
        assert_eq!(run(empty[0], empty[1], empty[2]), apart, "{empty:?}");
    }
    assert!(run([300, 3], [7, 4], [1, 7]).unwrap_err().contains("axis `k`"));
    assert!(run([300, 3], [7, 3], [1, 6]).is_err());
    assert!(run([300, 1], [7, 3], [1, 7]).unwrap_err().contains("axis `k`"));
}

#[test]
fn random_graphs_over_axes_give_the_same() {
    let mut random = random();
    let (mut saved, mut over) = (0, 0);
    for round in 0..250 {
        let dtype = [DType::Float32, DType::Float64][round % 2];
        let (n, m, k) = ([0, 5, 300, 400][random(4)], [1, 3, 17, 65][random(4)], [1, 4, 5][random(3)]);
        let (is_known, has_batch) = (random(2) == 0, random(3) == 0);
        let batch: &[usize] = if has_batch { &[2] } else { &[] };
        let rows = [batch, &[n, k]].concat();
        let shapes: [&[usize]; 6] = [&rows, &[m, k], &[m], &[n, 1], &[n, k], &[]];
        let fed = Fed::new(&shapes, dtype, is_known, &mut random);
        let graph = &fed.graph;
        let mut nodes: Vec<Output> = fed.inputs.iter().map(|(x, _)| x.clone()).collect();
        for _ in 0..random(10) + 3 {
            let pick = |random: &mut dyn FnMut(usize) -> usize| {
                let last = nodes.len().min(3);
                nodes[if random(3) == 0 { random(nodes.len()) } else { nodes.len() - 1 - random(last) }]
                    .clone()
            };
            let (a, b) = (pick(&mut random), pick(&mut random));
            let rank = a.shape().rank().unwrap_or(0);
            let axis = random(rank.max(1)) as i64;
            let library = library();
            let named = |op: &str, x: &Output, y: &Output| {
                graph.call(&library.op(op).unwrap()).arg(x).arg(y).build().and_then(|node| node.output(0))
            };
            let made = match random(14) {
                0 => &a + &b,
                1 => &a * &b,
                2 => a.tanh(),
                3 => a.abs(),
                4 if rank > 0 => Ok(folded(graph, ["Sum", "Min", "Mean"][random(3)], &a, axis)),
                5 if rank > 0 => Ok(kept(graph, ["Sum", "Max"][random(2)], &a, vec![axis])),
                6 if rank > 1 => Ok(call(graph, "Softmax", &a, &[])),
                7 => named("Products", &a, &nodes[4]),
                8 => named("Turned", &nodes[4], &nodes[1]),
                9 => named("Both", &a, &nodes[1]),
                10 => named("Chebyshev", &nodes[0], &nodes[1]),
                _ => named("Cosine", &nodes[random(2) * 4], &nodes[1]),
            };
            nodes.push(made.unwrap_or(a));
        }
        let last = nodes.last().unwrap().sum(&[]).unwrap();
        let mut fetches: Vec<&Output> = nodes[6..].iter().filter(|_| random(4) == 0).collect();
        let slopes = gradients(&[&last], &[&nodes[0], &nodes[1]], None).unwrap();
        fetches.push(&last);
        if random(2) == 0 {
            fetches.extend(slopes.iter().flatten());
        }
        let plain = &sessions(graph)[2];
        if let Err(error) = plain.run(&fetches, &fed.feeds()) {
            let found = Session::new(graph).run(&fetches, &fed.feeds()).unwrap_err();
            assert!(!is_known && found.code() == error.code(), "{found} {error}");
            continue;
        }
        let calls = fed.compare(&fetches);
        saved += called(plain, &fetches, &fed.feeds()).len() - calls.len();
        over += calls.iter().filter(|op| *op == "OverAxes").count();
    }
    assert!(saved > 150 && over > 100, "{saved} calls were saved by {over}");
}

#[test]
fn attributes_are_those_of_the_call() {
    let mut random = random();
    let fed = Fed::new(&[&[300, 3], &[9, 3]], DType::Float64, true, &mut random);
    let op = library().op("Turned").unwrap();
    let kernel = |gamma: f64| {
        let call = fed.graph.call(&op).arg(&fed.inputs[0].0).arg(&fed.inputs[1].0);
        let made = call.attr("gamma", AttrValue::from(gamma)).build().unwrap().output(0).unwrap();
        folded(&fed.graph, "Sum", &made, 0)
    };
    let sums = [0.5, 0.25].map(kernel);
    assert_eq!(fed.compare(&[&sums[0], &sums[1]]), ["OverAxes", "OverAxes"]);
}
