//! Pointwise operators that follow each other, computed as one: the same numbers, shapes and errors as one by one.

use opsmith_core::{DType, Shape};
use opsmith_runtime::{Graph, Library, Output, Session, SessionOptions, Tensor, gradients};

fn shape(text: &str) -> Shape {
    Shape::parse(text).unwrap()
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.to_vec().unwrap()
}

/// Sessions that compute steps as one, and that do not.
fn sessions(graph: &Graph) -> [Session; 2] {
    let options = SessionOptions { fuse: false, ..SessionOptions::default() };
    [Session::new(graph), Session::with_options(graph, options)]
}

/// The ops that a run called.
fn called(session: &Session, fetches: &[&Output], feeds: &[(&Output, &Tensor)]) -> Vec<String> {
    let runner = fetches.iter().fold(session.runner().traced(), |runner, fetch| runner.fetch(fetch));
    let runner = feeds.iter().fold(runner, |runner, (output, value)| runner.feed(output, value));
    runner.run().unwrap().trace.unwrap().events.into_iter().map(|event| event.op).collect()
}

/// Asserts that both sessions give the same, and that one of them calls these ops.
fn assert_called(graph: &Graph, fetches: &[&Output], feeds: &[(&Output, &Tensor)], expected: &[&str]) {
    let [fused, plain] = sessions(graph);
    let (found, wanted) = (fused.run(fetches, feeds).unwrap(), plain.run(fetches, feeds).unwrap());
    for (found, wanted) in found.iter().zip(&wanted) {
        assert_eq!(found.shape(), wanted.shape());
        assert_eq!(numbers(found), numbers(wanted));
    }
    assert_eq!(called(&fused, fetches, feeds), expected);
}

#[test]
fn a_chain_is_one_call() {
    let graph = Graph::new();
    let x = graph.placeholder("x", DType::Float64, &shape("[?,3]")).unwrap();
    let bias = graph.constant("bias", Tensor::from_slice(&[0.5, -1.0, 2.0], &[3]).unwrap()).unwrap();
    let two = graph.constant("two", Tensor::scalar(2.0).unwrap()).unwrap();
    let sum = (&x + &bias).unwrap();
    let y = (&sum * &two).unwrap().tanh().unwrap();
    let z = (&y - &x).unwrap();
    let fed = Tensor::from_slice(&[0.1, 0.2, 0.3, -4.0, 5.0, -6.0], &[2, 3]).unwrap();
    assert_called(&graph, &[&z], &[(&x, &fed)], &["Pointwise"]);
    // What is fetched of the middle is an output too.
    assert_called(&graph, &[&y, &z], &[(&x, &fed)], &["Pointwise"]);
    // One alone stays what it is.
    assert_called(&graph, &[&sum], &[(&x, &fed)], &["Add"]);
}

#[test]
fn what_others_need_first_is_not_put_together_with_what_needs_them() {
    let graph = Graph::new();
    let x = graph.placeholder("x", DType::Float64, &shape("[4]")).unwrap();
    let squares = x.exp().unwrap().square().unwrap();
    let mean = squares.mean(&[]).unwrap();
    let centred = (&squares - &mean).unwrap().abs().unwrap();
    let fed = Tensor::from_slice(&[1.0, 2.0, -3.0, 0.5], &[4]).unwrap();
    assert_called(&graph, &[&centred], &[(&x, &fed)], &["OverAxes", "Pointwise"]);
}

#[test]
fn shapes_that_turn_out_smaller_run_one_by_one() {
    let graph = Graph::new();
    let x = graph.placeholder("x", DType::Float64, &shape("[?]")).unwrap();
    let y = graph.placeholder("y", DType::Float64, &shape("[?]")).unwrap();
    let inner = x.exp().unwrap();
    let sum = (&inner + &y).unwrap();
    let (one, three) =
        (Tensor::from_slice(&[1.0], &[1]).unwrap(), Tensor::from_slice(&[1.0, 2.0, 3.0], &[3]).unwrap());
    assert_called(&graph, &[&inner, &sum], &[(&x, &three), (&y, &three)], &["Pointwise"]);
    assert_called(&graph, &[&inner, &sum], &[(&x, &three), (&y, &one)], &["Pointwise"]);
    assert_called(&graph, &[&inner, &sum], &[(&x, &one), (&y, &three)], &["Exp", "Add"]);
    let two = Tensor::from_slice(&[1.0, 2.0], &[2]).unwrap();
    let error = Session::new(&graph).run(&[&sum], &[(&x, &two), (&y, &three)]).unwrap_err();
    assert!(error.message().starts_with("node `Add`, made at"), "{error}");
    let empty = Tensor::from_slice::<f64>(&[], &[0]).unwrap();
    assert_called(&graph, &[&inner, &sum], &[(&x, &empty), (&y, &one)], &["Pointwise"]);
}

#[test]
fn gradients_are_the_same_and_sums_stay_outside() {
    let graph = Graph::new();
    let x = graph.placeholder("x", DType::Float64, &shape("[?,3]")).unwrap();
    let bias = graph.placeholder("bias", DType::Float64, &shape("[3]")).unwrap();
    let y = (&x + &bias).unwrap().tanh().unwrap().square().unwrap();
    let loss = y.sum(&[]).unwrap();
    let slopes = gradients(&[&loss], &[&x, &bias], None).unwrap();
    let slopes: Vec<&Output> = slopes.iter().map(|slope| slope.as_ref().unwrap()).collect();
    let fed = Tensor::from_slice(&[0.1, 0.2, 0.3, -0.4, 0.5, -0.6], &[2, 3]).unwrap();
    let given = Tensor::from_slice(&[0.5, -1.0, 2.0], &[3]).unwrap();
    let [fused, plain] = sessions(&graph);
    let feeds = [(&x, &fed), (&bias, &given)];
    let (found, wanted) = (fused.run(&slopes, &feeds).unwrap(), plain.run(&slopes, &feeds).unwrap());
    for (found, wanted) in found.iter().zip(&wanted) {
        let close = numbers(found).iter().zip(numbers(wanted)).all(|(a, b)| (a - b).abs() < 1e-15);
        assert!(close && found.shape() == wanted.shape(), "{found} {wanted}");
    }
    let calls = called(&fused, &slopes, &feeds);
    assert!(calls.len() < called(&plain, &slopes, &feeds).len(), "{calls:?}");
}

#[test]
fn a_chain_longer_than_one_program_is_several() {
    let graph = Graph::new();
    let x = graph.placeholder("x", DType::Float32, &shape("[]")).unwrap();
    let one = graph.placeholder("one", DType::Float32, &shape("[]")).unwrap();
    let sum = (0..5000).fold(x.clone(), |sum, _| (&sum + &one).unwrap());
    let number = Tensor::scalar(1.0_f32).unwrap();
    let session = Session::new(&graph);
    let found = session.run(&[&sum], &[(&x, &number), (&one, &number)]).unwrap();
    assert_eq!(found[0].to_vec::<f32>().unwrap(), [5001.0]);
    assert_eq!(called(&session, &[&sum], &[(&x, &number), (&one, &number)]).len(), 3);
}

#[test]
fn random_graphs_give_the_same() {
    let mut state = 1_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut saved = 0;
    for _ in 0..200 {
        let graph = Graph::new();
        let known = random(2) == 0;
        let shapes = [vec![2, 3], vec![3], vec![2, 1], vec![]];
        let mut feeds = Vec::new();
        let mut nodes = Vec::new();
        for (index, dims) in shapes.iter().enumerate() {
            let declared = if known { Shape::known(dims) } else { Shape::unknown_of_rank(dims.len()) };
            let x = graph.placeholder(&format!("x{index}"), DType::Float64, &declared).unwrap();
            let count: usize = dims.iter().product();
            let values: Vec<f64> = (0..count).map(|_| random(1000) as f64 / 250.0 - 2.0).collect();
            feeds.push((x.clone(), Tensor::from_slice(&values, dims).unwrap()));
            nodes.push(x);
        }
        let number = graph.constant("number", Tensor::scalar(random(100) as f64 / 10.0).unwrap()).unwrap();
        nodes.push(number);
        for _ in 0..random(20) + 2 {
            let (a, b) = (nodes[random(nodes.len())].clone(), nodes[random(nodes.len())].clone());
            nodes.push(match random(9) {
                0 => (&a + &b).unwrap(),
                1 => (&a - &b).unwrap(),
                2 => (&a * &b).unwrap(),
                3 => a.tanh().unwrap(),
                4 => a.exp().unwrap(),
                5 => a.abs().unwrap(),
                6 => (&a / &(&b * &b).unwrap().exp().unwrap()).unwrap(),
                7 => a.sum(&[]).unwrap(),
                _ => a.sigmoid().unwrap(),
            });
        }
        let fetches: Vec<&Output> =
            nodes[5..].iter().filter(|_| random(3) == 0).chain(nodes.last()).collect();
        let feeds: Vec<(&Output, &Tensor)> = feeds.iter().map(|(x, value)| (x, value)).collect();
        let [fused, plain] = sessions(&graph);
        let simple = SessionOptions { simplify: false, ..SessionOptions::default() };
        let simple = Session::with_options(&graph, simple).run(&fetches, &feeds).unwrap();
        let (found, wanted) = (fused.run(&fetches, &feeds).unwrap(), plain.run(&fetches, &feeds).unwrap());
        let calls = called(&fused, &fetches, &feeds);
        for (found, wanted) in found.iter().zip(&wanted).chain(simple.iter().zip(&wanted)) {
            assert_eq!(found.shape(), wanted.shape());
            // A sum that is computed with what is before it may have its terms added in another order.
            let bound = if calls.contains(&"OverAxes".to_owned()) { 1e-12 } else { 0.0 };
            let same = |(a, b): (&f64, f64)| {
                a.to_bits() == b.to_bits()
                    || (a.is_nan() && b.is_nan())
                    || (a - b).abs() < bound * (1.0 + b.abs())
            };
            assert!(numbers(found).iter().zip(numbers(wanted)).all(same), "{found} {wanted}");
        }
        saved += called(&plain, &fetches, &feeds).len() - calls.len();
    }
    assert!(saved > 200, "{saved} calls were saved");
}

/// The operators of the standard library that are one function, and how many inputs they have.
const FUNCTIONS: [(&str, usize); 12] = [
    ("Add", 2),
    ("Sub", 2),
    ("Mul", 2),
    ("Div", 2),
    ("Maximum", 2),
    ("Neg", 1),
    ("Exp", 1),
    ("Tanh", 1),
    ("Erf", 1),
    ("Elu", 1),
    ("Softplus", 1),
    ("Gelu", 1),
];

#[test]
fn programs_compute_what_their_operators_do() {
    let numbers =
        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -30.0, -5.5, -0.25, -0.0, 0.0, 0.5, 2.0, 700.0];
    let fed = Tensor::from_slice(&numbers, &[11]).unwrap();
    let other = Tensor::from_slice(&[-3.5], &[1]).unwrap();
    for (name, inputs) in FUNCTIONS {
        let graph = Graph::new();
        let x = graph.placeholder("x", DType::Float64, &shape("[11]")).unwrap();
        let by = graph.placeholder("by", DType::Float64, &shape("[1]")).unwrap();
        let op = Library::standard().unwrap().op(name).unwrap();
        let node = [&x, &by][..inputs].iter().fold(graph.call(&op), |call, input| call.arg(*input));
        let y = node.build().unwrap().output(0).unwrap().abs().unwrap();
        let feeds = [(&x, &fed), (&by, &other)];
        let [fused, plain] = sessions(&graph);
        let values = |session: &Session| {
            let found = session.run(&[&y], &feeds[..inputs]).unwrap();
            found[0].to_vec::<f64>().unwrap().into_iter().map(f64::to_bits).collect::<Vec<_>>()
        };
        assert_eq!(values(&fused), values(&plain), "{name}");
        assert_eq!(called(&fused, &[&y], &feeds[..inputs]), ["Pointwise"], "{name}");
    }
}

#[test]
fn what_is_rounded_as_a_whole_is_one_function() {
    let graph = Graph::new();
    let x = graph.placeholder("x", DType::Float32, &shape("[4]")).unwrap();
    let gelu = Library::standard().unwrap().op("Gelu").unwrap();
    let half = graph.constant("half", Tensor::scalar(0.5f32).unwrap()).unwrap();
    for approximate in [false, true] {
        let y =
            graph.call(&gelu).arg(&x).attr("approximate", approximate).build().unwrap().output(0).unwrap();
        let y = (&y * &half).unwrap();
        let fed = Tensor::from_slice(&[f32::NEG_INFINITY, -30.0, -5.5, 2.0], &[4]).unwrap();
        let [fused, plain] = sessions(&graph);
        let values = |session: &Session| {
            let found = session.run(&[&y], &[(&x, &fed)]).unwrap();
            found[0].to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        assert_eq!(values(&fused), values(&plain));
        assert_eq!(values(&fused)[0], (-0.0f32).to_bits());
        assert_eq!(called(&fused, &[&y], &[(&x, &fed)]), ["Pointwise"]);
    }
}

#[test]
fn constants_alone_are_left_as_they_are() {
    let graph = Graph::new();
    let two = graph.constant("two", Tensor::scalar(2.0).unwrap()).unwrap();
    let y = two.exp().unwrap().tanh().unwrap();
    for simplify in [true, false] {
        let session = Session::with_options(&graph, SessionOptions { simplify, ..SessionOptions::default() });
        assert!((numbers(&session.run(&[&y], &[]).unwrap()[0])[0] - 2f64.exp().tanh()).abs() < 1e-15);
    }
}

#[test]
fn a_gradient_does_not_broadcast() {
    let graph = Graph::new();
    let x = graph.placeholder("x", DType::Float64, &shape("[?]")).unwrap();
    let upstream = graph.placeholder("upstream", DType::Float64, &shape("[?]")).unwrap();
    let y = x.tanh().unwrap();
    let slope = gradients(&[&y], &[&x], Some(&[&upstream])).unwrap().remove(0).unwrap().exp().unwrap();
    let (three, one) =
        (Tensor::from_slice(&[1.0, 2.0, 3.0], &[3]).unwrap(), Tensor::from_slice(&[1.0], &[1]).unwrap());
    for session in sessions(&graph) {
        let error = session.run(&[&slope], &[(&x, &three), (&upstream, &one)]).unwrap_err();
        assert!(error.message().contains("TanhGrad"), "{error}");
        session.run(&[&slope], &[(&x, &three), (&upstream, &three)]).unwrap();
    }
}
