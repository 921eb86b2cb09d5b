//! Derivatives of graphs against finite differences and known ones, and optimisers against the same steps by hand.

mod common;

use opsmith_core::{Code, DType, Result, Shape};
use opsmith_runtime::{
    Adam, Compose, GradientDescent, Graph, Library, Momentum, Operation, Optimizer, Output, Session, Tensor,
    Variable, gradients, jvp, jvp_with,
};

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.to_vec().unwrap()
}

fn matrix(values: &[f64], rows: usize) -> Tensor {
    Tensor::from_slice(values, &[rows, values.len() / rows]).unwrap()
}

fn placeholder(graph: &Graph, name: &str, shape: &str) -> Output {
    graph.placeholder(name, DType::Float64, &Shape::parse(shape).unwrap()).unwrap()
}

/// The derivative of the sum of `y` along each number of `x`, by central differences.
fn differences(session: &Session, y: &Output, x: &Output, feeds: &[(&Output, &Tensor)]) -> Vec<f64> {
    let (_, at) = feeds.iter().find(|(fed, _)| *fed == x).unwrap();
    let numbers_of = |values: &[f64]| {
        let moved = Tensor::from_slice(values, at.shape()).unwrap();
        let feeds: Vec<_> =
            feeds.iter().map(|&(fed, value)| (fed, if fed == x { &moved } else { value })).collect();
        numbers(&session.run(&[y], &feeds).unwrap()[0]).iter().sum::<f64>()
    };
    let (values, step) = (numbers(at), 1e-5);
    let along = |index: usize| {
        let (mut up, mut down) = (values.clone(), values.clone());
        up[index] += step;
        down[index] -= step;
        (numbers_of(&up) - numbers_of(&down)) / (2.0 * step)
    };
    (0..values.len()).map(along).collect()
}

fn assert_close(actual: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(actual.len(), expected.len());
    for (a, e) in actual.iter().zip(expected) {
        assert!((a - e).abs() <= tolerance * (1.0 + e.abs()), "{actual:?} is not {expected:?}");
    }
}

#[test]
fn gradients_of_two_orders_agree_with_differences() {
    let graph = Graph::new();
    let (x, w) = (placeholder(&graph, "x", "[?,3]"), placeholder(&graph, "w", "[3,2]"));
    let hidden = x.matmul(&w).unwrap().tanh().unwrap();
    let loss = (&hidden * &hidden.sigmoid().unwrap()).unwrap().mean(&[]).unwrap();
    let first = gradients(&[&loss], &[&x, &w], None).unwrap();
    let (dx, dw) = (first[0].clone().unwrap(), first[1].clone().unwrap());
    let along = dw.square().unwrap().sum(&[]).unwrap();
    let second = gradients(&[&along], &[&x, &w], None).unwrap();
    let session = Session::new(&graph);
    let a = matrix(&[0.1, -0.5, 0.3, 0.7, 0.2, -0.9], 2);
    let b = matrix(&[0.3, 0.1, -0.4, 0.8, 0.5, -0.2], 3);
    let feeds = [(&x, &a), (&w, &b)];
    for (gradient, y, x) in [
        (&dx, &loss, &x),
        (&dw, &loss, &w),
        (second[0].as_ref().unwrap(), &along, &x),
        (second[1].as_ref().unwrap(), &along, &w),
    ] {
        let gradient = numbers(&session.run(&[gradient], &feeds).unwrap()[0]);
        assert_close(&gradient, &differences(&session, y, x, &feeds), 1e-8);
    }
}

#[test]
fn gradients_add_up_stop_and_go_through_lists_and_other_libraries() {
    let graph = Graph::new();
    let x = placeholder(&graph, "x", "[2,2]");
    let fixed = x.stop_gradient().unwrap();
    let y = (&(&x * &x).unwrap() + &(&x * &fixed).unwrap()).unwrap();
    let found = gradients(&[&y], &[&x, &fixed], None).unwrap();
    let session = Session::new(&graph);
    let a = matrix(&[1.0, 2.0, 3.0, 4.0], 2);
    let dx = session.run(&[found[0].as_ref().unwrap()], &[(&x, &a)]).unwrap();
    assert_eq!(numbers(&dx[0]), [3.0, 6.0, 9.0, 12.0]);
    let dfixed = session.run(&[found[1].as_ref().unwrap()], &[(&x, &a)]).unwrap();
    assert_eq!(numbers(&dfixed[0]), numbers(&a));
    // A list in, from a library that is opened as a file, and a gradient that flows in.
    let concat = Library::standard().unwrap().op("Concat").unwrap();
    let list = [x.clone(), fixed, x.clone()];
    let joined = graph.call(&concat).arg(&list[..]).attr("axis", 1).build().unwrap().output(0).unwrap();
    let incoming =
        graph.constant("incoming", matrix(&(1..=12).map(f64::from).collect::<Vec<_>>(), 2)).unwrap();
    let found = gradients(&[&joined], &[&x], Some(&[&incoming])).unwrap();
    let dx = session.run(&[found[0].as_ref().unwrap()], &[(&x, &a)]).unwrap();
    assert_eq!(numbers(&dx[0]), [6.0, 8.0, 18.0, 20.0]);
    let distances = common::path().with_file_name("libdistances.so");
    let pairwise = Library::open(distances).unwrap().op("pairwise_manhattan_distance").unwrap();
    let distances = graph.call(&pairwise).arg(&x).arg(&x).build().unwrap().output(0).unwrap();
    let found = gradients(&[&distances], &[&x], None).unwrap();
    let feeds = [(&x, &a)];
    let dx = session.run(&[found[0].as_ref().unwrap()], &feeds).unwrap();
    assert_close(&numbers(&dx[0]), &differences(&session, &distances, &x, &feeds), 1e-7);
}

#[test]
fn an_op_without_a_gradient_is_named_with_the_way_to_it() {
    let graph = Graph::new();
    let x = placeholder(&graph, "x", "[2]");
    let echo = common::library().op("squares").unwrap();
    let Ok(inner) = graph.call(&echo).arg(&x).name("inner").build() else {
        panic!("squares takes a vector");
    };
    let y = inner.output(0).unwrap().exp().unwrap();
    let error = gradients(&[&y], &[&x], None).unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert!(error.message().starts_with("Squares: no gradient is declared for it (node `inner`"), "{error}");
    assert!(error.message().ends_with("Exp <- inner"), "{error}");
    // What does not depend on an x in a differentiable way has no gradient.
    let other = placeholder(&graph, "other", "[2]");
    assert_eq!(gradients(&[&y], &[&other], None).unwrap(), [None]);
    let i = graph.placeholder("i", DType::Int32, &Shape::parse("[2]").unwrap()).unwrap();
    assert!(gradients(&[&i], &[&i], None).unwrap_err().message().contains("only floats have gradients"));
}

/// The derivatives of the ys along the tangents of the xs, by central differences.
fn along(session: &Session, ys: &[&Output], xs: &[(&Output, &Tensor, &Tensor)]) -> Vec<Vec<f64>> {
    let step = 1e-5;
    let moved = |by: f64| -> Vec<Vec<f64>> {
        let moved: Vec<Tensor> = xs
            .iter()
            .map(|(_, at, tangent)| {
                let both = numbers(at).into_iter().zip(numbers(tangent));
                let values: Vec<f64> = both.map(|(at, tangent)| at + by * tangent).collect();
                Tensor::from_slice(&values, at.shape()).unwrap()
            })
            .collect();
        let feeds: Vec<_> = xs.iter().zip(&moved).map(|((x, ..), value)| (*x, value)).collect();
        session.run(ys, &feeds).unwrap().iter().map(numbers).collect()
    };
    let slope = |(up, down): (Vec<f64>, Vec<f64>)| {
        up.iter().zip(&down).map(|(up, down)| (up - down) / (2.0 * step)).collect()
    };
    moved(step).into_iter().zip(moved(-step)).map(slope).collect()
}

#[test]
fn forward_mode_agrees_with_differences() {
    let graph = Graph::new();
    let (x, w, b) = (
        placeholder(&graph, "x", "[?,3]"),
        placeholder(&graph, "w", "[3,2]"),
        placeholder(&graph, "b", "[2]"),
    );
    let (tx, tw, tb) = (
        placeholder(&graph, "tx", "[?,3]"),
        placeholder(&graph, "tw", "[3,2]"),
        placeholder(&graph, "tb", "[2]"),
    );
    let hidden = (&x.matmul(&w).unwrap() + &b).unwrap().tanh().unwrap();
    let loss = (&hidden * &hidden.sigmoid().unwrap()).unwrap().mean(&[]).unwrap();
    let distances = common::path().with_file_name("libdistances.so");
    let pairwise = Library::open(distances).unwrap().op("pairwise_manhattan_distance").unwrap();
    let pairs = graph.call(&pairwise).arg(&x).arg(&x).build().unwrap().output(0).unwrap();
    let fixed = (&x.stop_gradient().unwrap() * &x).unwrap();
    let (ys, xs, tangents) = ([&hidden, &loss, &pairs, &x], [&x, &w, &b], [&tx, &tw, &tb]);
    let found = jvp(&ys, &xs, &tangents).unwrap();
    for (y, tangent) in ys.iter().zip(&found) {
        assert_eq!((y.dtype(), y.shape().rank()), (tangent.dtype(), tangent.shape().rank()));
    }
    let session = Session::new(&graph);
    let values = [
        (&x, matrix(&[0.1, -0.5, 0.3, 0.7, 0.2, -0.9], 2), &tx, matrix(&[1.0, 0.5, -2.0, 0.2, 0.4, 0.9], 2)),
        (&w, matrix(&[0.3, 0.1, -0.4, 0.8, 0.5, -0.2], 3), &tw, matrix(&[-0.7, 1.1, 0.3, 0.2, -1.5, 0.6], 3)),
        (
            &b,
            Tensor::from_slice(&[0.2, -0.3], &[2]).unwrap(),
            &tb,
            Tensor::from_slice(&[1.0, 2.0], &[2]).unwrap(),
        ),
    ];
    let feeds: Vec<_> = values.iter().flat_map(|(x, at, t, tangent)| [(*x, at), (*t, tangent)]).collect();
    let points: Vec<_> = values.iter().map(|(x, at, _, tangent)| (*x, at, tangent)).collect();
    let expected = along(&session, &ys, &points);
    let found: Vec<&Output> = found.iter().collect();
    for (value, expected) in session.run(&found, &feeds).unwrap().iter().zip(&expected) {
        assert_close(&numbers(value), expected, 1e-8);
    }
    // Nothing flows through what stops gradients; the other way is left.
    let found = jvp(&[&fixed], &[&x], &[&tx]).unwrap();
    let value = session.run(&[&found[0]], &feeds).unwrap();
    let product: Vec<f64> =
        numbers(&values[0].1).iter().zip(numbers(&values[0].3)).map(|(x, t)| x * t).collect();
    assert_close(&numbers(&value[0]), &product, 1e-12);
    // A tangent of another shape than the input has in this run is found.
    let mut feeds = feeds;
    let short = matrix(&[1.0, 0.5, -2.0], 1);
    feeds[1].1 = &short;
    let error = session.run(&[&found[0]], &feeds).unwrap_err();
    assert!(error.message().contains("must have shape [2, 3], got [1, 3]"), "{error}");
}

#[test]
fn forward_mode_of_what_depends_on_nothing_and_of_inputs_that_lead_to_each_other() {
    let graph = Graph::new();
    let (x, other) = (placeholder(&graph, "x", "[2]"), placeholder(&graph, "other", "[2]"));
    let one = graph.constant("one", Tensor::from_slice(&[1.0, 10.0], &[2]).unwrap()).unwrap();
    let square = x.square().unwrap();
    let y = square.exp().unwrap();
    let found = jvp(&[&y, &other, &y], &[&x, &square, &one], &[&one, &one, &one]).unwrap();
    let session = Session::new(&graph);
    let (a, b) =
        (Tensor::from_slice(&[0.5, -0.3], &[2]).unwrap(), Tensor::zeros(DType::Float64, &[2]).unwrap());
    let found: Vec<&Output> = found.iter().collect();
    let values = session.run(&found, &[(&x, &a), (&other, &b)]).unwrap();
    // d exp(x²) along t in x and s in x² is exp(x²) (2 x t + s).
    let expected = [0.25f64.exp() * 2.0, 0.09f64.exp() * (-6.0 + 10.0)];
    assert_close(&numbers(&values[0]), &expected, 1e-12);
    assert_eq!(numbers(&values[1]), [0.0, 0.0]);
    assert_eq!(numbers(&values[0]), numbers(&values[2]));
    assert!(jvp(&[], &[&x], &[&one]).unwrap().is_empty());
    let alone = jvp(&[&y], &[], &[]).unwrap();
    assert_eq!(numbers(&session.run(&[&alone[0]], &[(&x, &a)]).unwrap()[0]), [0.0, 0.0]);
}

#[test]
fn forward_mode_over_reverse_mode_is_a_product_with_the_hessian() {
    let graph = Graph::new();
    let (x, direction) = (placeholder(&graph, "x", "[?]"), placeholder(&graph, "direction", "[?]"));
    let y = (&x.tanh().unwrap() * &x.square().unwrap()).unwrap().sum(&[]).unwrap();
    let gradient = gradients(&[&y], &[&x], None).unwrap()[0].clone().unwrap();
    let forward = jvp(&[&gradient], &[&x], &[&direction]).unwrap().remove(0);
    let along_it = (&gradient * &direction).unwrap().sum(&[]).unwrap();
    let reverse = gradients(&[&along_it], &[&x], None).unwrap()[0].clone().unwrap();
    let session = Session::new(&graph);
    let a = Tensor::from_slice(&[0.5, -0.3, 1.2], &[3]).unwrap();
    let d = Tensor::from_slice(&[1.0, 2.0, -0.5], &[3]).unwrap();
    let values = session.run(&[&forward, &reverse], &[(&x, &a), (&direction, &d)]).unwrap();
    assert_close(&numbers(&values[0]), &numbers(&values[1]), 1e-12);
    assert_close(&numbers(&values[0]), &along(&session, &[&gradient], &[(&x, &a, &d)])[0], 1e-8);
}

#[test]
fn tangents_that_do_not_fit_are_told() {
    let graph = Graph::new();
    let (x, t) = (placeholder(&graph, "x", "[2]"), placeholder(&graph, "t", "[3]"));
    let i = graph.placeholder("i", DType::Int32, &Shape::parse("[2]").unwrap()).unwrap();
    let half = graph.placeholder("half", DType::Float32, &Shape::parse("[2]").unwrap()).unwrap();
    let y = x.exp().unwrap();
    let elsewhere = placeholder(&Graph::new(), "elsewhere", "[2]");
    for (outputs, inputs, tangents, message) in [
        (&y, &[&x][..], &[&x, &x][..], "jvp: 1 inputs need as many tangents, got 2"),
        (&y, &[&x], &[&t], "jvp: the tangent of `x` must be float64[2], got float64[3]"),
        (&y, &[&x], &[&half], "jvp: the tangent of `x` must be float64[2], got float32[2]"),
        (&y, &[&i], &[&i], "jvp: the input `i` is int32; only floats have tangents"),
        (&i, &[&x], &[&x], "jvp: the output `i` is int32; only floats have tangents"),
        (&y, &[&x], &[&elsewhere], "jvp: `elsewhere` is of another graph"),
    ] {
        let error = jvp(&[outputs], inputs, tangents).unwrap_err();
        assert_eq!((error.code(), &*error.message()), (Code::InvalidArgument, message));
    }
}

#[test]
fn forward_mode_names_what_has_no_gradient() {
    let graph = Graph::new();
    let x = placeholder(&graph, "x", "[1]");
    let library = common::library();
    let (squares, scaled) = (library.op("squares").unwrap(), library.op("scaled").unwrap());
    let message = |compose: &mut Compose<'_>, y: &Output| {
        let error = jvp_with(&[y], &[&x], &[&x], compose).unwrap_err();
        assert_eq!(error.code(), Code::Unimplemented);
        error.message().to_owned()
    };
    // The op itself, and the gradient op of one.
    let inner = graph.call(&squares).arg(&x).name("inner").build().unwrap().output(0).unwrap();
    let told = message(&mut |_, _| Ok(None), &inner.exp().unwrap());
    assert!(told.starts_with("Squares: no gradient is declared for it (node `inner`"), "{told}");
    assert!(told.ends_with("Exp <- inner"), "{told}");
    let twice = graph.call(&scaled).arg(&x).arg(&x).name("twice").build().unwrap().output(0).unwrap();
    let told = message(&mut |_, _| Ok(None), &twice);
    assert!(
        told.starts_with("ScaledGrad: no gradient is declared for it (node `jvp_1/twice_grad`"),
        "{told}"
    );
    assert!(told.contains("jvp needs the gradients of gradient ops"), "{told}");
    // A gradient that was registered, and says that it is a constant of what arrives, or uses an op that does.
    let of_squares = |operation: &Operation, gradients: &[Option<Output>]| {
        let x = operation.inputs()[0].clone().unwrap();
        Ok((x.clone(), (&x + &x)?, gradients[0].clone().unwrap()))
    };
    let mut composed = |operation: &Operation, gradients: &[Option<Output>]| {
        let (_, double, gradient) = of_squares(operation, gradients)?;
        Ok(Some(vec![Some((&double * &gradient)?)]))
    };
    let found = jvp_with(&[&inner], &[&x], &[&x], &mut composed).unwrap();
    let value = Session::new(&graph).run(&[&found[0]], &[(&x, &Tensor::from_slice(&[3.0], &[1]).unwrap())]);
    assert_eq!(numbers(&value.unwrap()[0]), [18.0]);
    let mut stopped = |operation: &Operation, gradients: &[Option<Output>]| {
        let (_, double, gradient) = of_squares(operation, gradients)?;
        Ok(Some(vec![Some((&double * &gradient.stop_gradient()?)?)]))
    };
    let told = message(&mut stopped, &inner);
    assert!(told.starts_with("StopGradient: is declared to be not differentiable, but jvp needs"), "{told}");
    let mut lost = |operation: &Operation, gradients: &[Option<Output>]| {
        let (x, double, gradient) = of_squares(operation, gradients)?;
        Ok(Some(vec![Some(x.graph().call(&scaled).arg(&gradient).arg(&double).build()?.output(0)?)]))
    };
    let told = message(&mut lost, &inner);
    assert!(told.starts_with("Scaled: its gradient op gives no gradient by the input `factor`"), "{told}");
}

/// A quadratic loss of one variable, 3 for each step of it: loss = Σ (w − target)².
fn quadratic() -> Result<(Graph, Variable, Output)> {
    let graph = Graph::new();
    let w = graph.variable("w", Tensor::from_slice(&[1.0, -2.0], &[2])?)?;
    let target = graph.constant("target", Tensor::from_slice(&[0.5, 3.0], &[2])?)?;
    let loss = (w.output() - &target)?.square()?.sum(&[])?;
    Ok((graph, w, loss))
}

#[test]
fn optimisers_take_the_steps_that_their_definitions_say() {
    let target = [0.5, 3.0];
    let gradient = |w: &[f64]| [2.0 * (w[0] - target[0]), 2.0 * (w[1] - target[1])];
    let steps = 5;
    let mut expected: Vec<(Box<dyn Optimizer>, Vec<f64>)> = Vec::new();
    let mut w = [1.0, -2.0];
    for _ in 0..steps {
        let g = gradient(&w);
        (0..2).for_each(|i| w[i] -= 0.1 * g[i]);
    }
    expected.push((Box::new(GradientDescent { learning_rate: 0.1 }), w.to_vec()));
    let (mut w, mut velocity) = ([1.0, -2.0], [0.0; 2]);
    for _ in 0..steps {
        let g = gradient(&w);
        (0..2).for_each(|i| {
            velocity[i] = 0.9 * velocity[i] + g[i];
            w[i] -= 0.01 * velocity[i];
        });
    }
    expected.push((Box::new(Momentum { learning_rate: 0.01, momentum: 0.9 }), w.to_vec()));
    let (mut w, mut mean, mut square) = ([1.0, -2.0], [0.0; 2], [0.0; 2]);
    for step in 1..=steps {
        let g = gradient(&w);
        (0..2).for_each(|i| {
            mean[i] = 0.9 * mean[i] + 0.1 * g[i];
            square[i] = 0.999 * square[i] + 0.001 * g[i] * g[i];
            let (m, v) = (mean[i] / (1.0 - 0.9f64.powi(step)), square[i] / (1.0 - 0.999f64.powi(step)));
            w[i] -= 0.05 * m / (v.sqrt() + 1e-8);
        });
    }
    expected.push((Box::new(Adam { learning_rate: 0.05, ..Adam::default() }), w.to_vec()));
    for (optimizer, expected) in expected {
        let (graph, w, loss) = quadratic().unwrap();
        let train = optimizer.minimize(&loss).unwrap();
        let session = Session::new(&graph);
        session.initialize().unwrap();
        for _ in 0..steps {
            session.execute(&train, &[]).unwrap();
        }
        assert_close(&numbers(&session.value(&w).unwrap()), &expected, 1e-12);
    }
}

#[test]
fn what_is_saved_for_an_output_is_what_it_needs() {
    let folder = std::env::temp_dir().join(format!("opsmith-served-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let (file, values) = (folder.join("graph"), folder.join("values"));
    let (graph, w, loss) = quadratic().unwrap();
    let train = Adam::default().minimize(&loss).unwrap();
    let session = Session::new(&graph);
    session.initialize().unwrap();
    session.execute(&train, &[]).unwrap();
    graph.save_for(&file, &[&loss]).unwrap();
    session.save_for(&values, &[&loss]).unwrap();
    let loaded = Graph::load(&file, &[]).unwrap();
    assert!(loaded.num_nodes() < graph.num_nodes());
    assert!(loaded.operations().iter().all(|operation| operation.place().file.is_empty()));
    let names: Vec<_> = loaded.variables().iter().map(|variable| variable.name().to_owned()).collect();
    assert_eq!(names, [w.name()]);
    let served = Session::new(&loaded);
    served.restore(&values).unwrap();
    let same = loaded.output(&loss.name()).unwrap();
    assert_eq!(
        numbers(&served.run(&[&same], &[]).unwrap()[0]),
        numbers(&session.run(&[&loss], &[]).unwrap()[0])
    );
    assert_eq!(loaded.save_for(&file, &[&loss]).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(served.save_for(&values, &[&loss]).unwrap_err().code(), Code::InvalidArgument);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn training_goes_on_exactly_where_it_was_saved() {
    let path = std::env::temp_dir().join(format!("opsmith-checkpoint-{}", std::process::id()));
    let (graph, w, loss) = quadratic().unwrap();
    let train = Adam::default().minimize(&loss).unwrap();
    let session = Session::new(&graph);
    assert_eq!(session.save(&path).unwrap_err().code(), Code::FailedPrecondition);
    session.initialize().unwrap();
    let steps = |session: &Session| (0..10).for_each(|_| session.execute(&train, &[]).unwrap());
    steps(&session);
    session.save(&path).unwrap();
    steps(&session);
    let other = Session::new(&graph);
    other.restore(&path).unwrap();
    steps(&other);
    let bits = |session: &Session| {
        numbers(&session.value(&w).unwrap()).iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    };
    assert_eq!(bits(&session), bits(&other));
    // A file that lacks a variable, or is damaged, changes nothing.
    let before = bits(&other);
    opsmith_runtime::save_tensors(&path, &[("w", &Tensor::zeros(DType::Float64, &[2]).unwrap())]).unwrap();
    let error = other.restore(&path).unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    std::fs::write(&path, "not a checkpoint").unwrap();
    assert_eq!(other.restore(&path).unwrap_err().code(), Code::DataLoss);
    assert_eq!(bits(&other), before);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_loss_that_cannot_be_minimised_is_an_error() {
    let (graph, _, loss) = quadratic().unwrap();
    let x = placeholder(&graph, "x", "[2]");
    let optimizer = GradientDescent { learning_rate: 0.1 };
    assert!(optimizer.minimize(&x).unwrap_err().message().contains("must be a float of shape []"));
    let other = placeholder(&graph, "other", "[]");
    assert!(optimizer.minimize(&other).unwrap_err().message().contains("depends on no variable"));
    assert!(optimizer.minimize_with(&loss, &[]).is_err());
}
