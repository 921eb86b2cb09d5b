//! Graphs and sessions: what is built, what runs, what is remembered, and what is said when something does not fit.

mod common;

use opsmith_core::{Code, DType, Result, Shape};
use std::num::NonZeroUsize;

use opsmith_runtime::{Graph, Library, Output, Session, SessionOptions, Tensor, Variable};

fn shape(text: &str) -> Shape {
    Shape::parse(text).unwrap()
}

fn vector(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, &[values.len()]).unwrap()
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.to_vec().unwrap()
}

/// x and y of unknown length, and their sum of squares.
fn example() -> Result<(Graph, Output, Output, Output)> {
    let graph = Graph::new();
    let x = graph.placeholder("x", DType::Float64, &shape("[?]"))?;
    let y = graph.placeholder("y", DType::Float64, &shape("[?]"))?;
    let z = (&(&x * &x)? + &(&y * &y)?)?;
    Ok((graph, x, y, z))
}

#[test]
fn a_run_computes_what_is_fetched_from_what_is_fed() {
    let (graph, x, y, z) = example().unwrap();
    assert_eq!(z.shape().to_string(), "[?]");
    let session = Session::new(&graph);
    let (a, b) = (vector(&[1.0, 2.0]), vector(&[3.0, 4.0]));
    let fetched = session.run(&[&z, &x, &z], &[(&x, &a), (&y, &b)]).unwrap();
    assert_eq!(numbers(&fetched[0]), [10.0, 20.0]);
    assert_eq!(numbers(&fetched[1]), [1.0, 2.0]);
    assert_eq!(numbers(&fetched[2]), [10.0, 20.0]);
    // What lies between may be fed too; then what leads to it is not needed.
    let square = graph.output("Mul").unwrap();
    let fetched = session.run(&[&z], &[(&square, &a), (&y, &b)]).unwrap();
    assert_eq!(numbers(&fetched[0]), [10.0, 18.0]);
}

#[test]
fn names_are_unique_and_scopes_nest() {
    let graph = Graph::new();
    let layer = graph.scope("layer").unwrap();
    let inner = layer.scope("inner").unwrap();
    let a = inner.placeholder("x", DType::Float32, &shape("?")).unwrap();
    let b = inner.placeholder("x", DType::Float32, &shape("?")).unwrap();
    assert_eq!((a.name(), b.name()), ("layer/inner/x".to_owned(), "layer/inner/x_1".to_owned()));
    assert_eq!(graph.scope("layer").unwrap().scope_name(), "layer_1/");
    assert_eq!(graph.output("layer/inner/x_1").unwrap(), b);
    let message = graph.operation("layer/inner/y").unwrap_err();
    assert_eq!(message.code(), Code::NotFound);
    assert!(message.message().contains("did you mean `layer/inner/x"), "{message}");
    assert!(graph.placeholder("a b", DType::Bool, &shape("?")).is_err());
    let deep = "a/".repeat(100) + "x";
    assert!(graph.placeholder(&deep, DType::Bool, &shape("?")).unwrap_err().message().contains("64 scopes"));
    assert!(graph.output("layer/inner/x:1").unwrap_err().message().contains("has 1 outputs"));
}

#[test]
fn a_mistake_is_an_error_where_the_node_is_made() {
    let graph = Graph::new();
    let x = graph.placeholder("x", DType::Float64, &shape("[?,3]")).unwrap();
    let w = graph.placeholder("w", DType::Float64, &shape("[4,2]")).unwrap();
    let error = x.matmul(&w).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().starts_with("MatMul:"), "{error}");
    let i = graph.placeholder("i", DType::Int32, &shape("[?,3]")).unwrap();
    let error = (&x + &i).unwrap_err();
    assert!(error.message().contains("float64") && error.message().contains("int32"), "{error}");
    let other = Graph::new().placeholder("other", DType::Float64, &shape("[?,3]")).unwrap();
    assert!((&x + &other).unwrap_err().message().contains("of another graph"));
    assert_eq!(graph.num_nodes(), 3);
}

#[test]
fn what_is_fed_wrongly_is_an_error_that_names_it() {
    let (graph, x, y, z) = example().unwrap();
    let session = Session::new(&graph);
    let a = vector(&[1.0]);
    let error = session.run(&[&z], &[(&x, &a)]).unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(
        error.message().contains("placeholder `y`, made at") && error.message().contains("graph.rs"),
        "{error}"
    );
    let floats = Tensor::from_slice(&[1f32], &[1]).unwrap();
    let error = session.run(&[&z], &[(&x, &a), (&y, &floats)]).unwrap_err();
    assert_eq!(error.message(), "the feed for `y` must be float64[?], got float32[1]");
    let matrix = Tensor::from_slice(&[1.0], &[1, 1]).unwrap();
    let error = session.run(&[&z], &[(&x, &a), (&y, &matrix)]).unwrap_err();
    assert_eq!(error.message(), "the feed for `y` must be float64[?], got float64[1, 1]");
    let error = session.run(&[&z], &[(&x, &a), (&x, &a)]).unwrap_err();
    assert_eq!(error.message(), "`x` is fed twice");
    let (_, other, _, _) = example().unwrap();
    assert!(session.run(&[&other], &[]).unwrap_err().message().contains("of another graph"));
    // A kernel that fails names its node, and the session goes on.
    let error =
        session.run(&[&z], &[(&x, &vector(&[1.0, 2.0])), (&y, &vector(&[1.0, 2.0, 3.0]))]).unwrap_err();
    assert!(error.message().starts_with("node `Add`, made at"), "{error}");
    assert_eq!(numbers(&session.run(&[&z], &[(&x, &a), (&y, &a)]).unwrap()[0]), [2.0]);
}

#[test]
fn equal_nodes_run_once_and_constant_ones_not_at_all() {
    let graph = Graph::new();
    let x = graph.placeholder("x", DType::Float64, &shape("[2]")).unwrap();
    let two = graph.constant("two", vector(&[2.0, 2.0])).unwrap();
    let again = graph.constant("again", vector(&[2.0, 2.0])).unwrap();
    let four = (&two + &again).unwrap();
    let (a, b) = ((&x * &four).unwrap(), (&x * &(&again + &two).unwrap()).unwrap());
    let z = (&a + &b).unwrap();
    let _unused = (&x - &two).unwrap();
    let fed = vector(&[1.0, 10.0]);
    for (simplify, calls) in [(true, 2), (false, 5)] {
        let options = SessionOptions { simplify, fuse: false, ..SessionOptions::default() };
        let session = Session::with_options(&graph, options);
        let outcome = session.runner().fetch(&z).feed(&x, &fed).traced().run().unwrap();
        assert_eq!(numbers(&outcome.outputs[0]), [8.0, 80.0]);
        let trace = outcome.trace.unwrap();
        assert_eq!(trace.events.len(), calls, "{trace}");
        let json: serde_json::Value = serde_json::from_str(&trace.to_chrome_json()).unwrap();
        assert_eq!(json["traceEvents"].as_array().unwrap().len(), calls);
        assert_eq!(json["traceEvents"][0]["args"]["bytes"], 16);
    }
}

#[test]
fn steps_that_run_out_of_order_find_what_they_read() {
    // Long and short readers of the same tensors take turns: the long ones run ahead of the short ones.
    let graph = Graph::new();
    let x = graph.placeholder("x", DType::Float64, &shape("[?]")).unwrap();
    let y = graph.placeholder("y", DType::Float64, &shape("[]")).unwrap();
    let mut small = y.clone();
    let mut sums = Vec::new();
    let base = x.exp().unwrap();
    for _ in 0..6 {
        small = small.tanh().unwrap();
        let first = (&base * &x).unwrap();
        let both = (&first + &base).unwrap().square().unwrap();
        let late = (&both * &small).unwrap().sum(&[]).unwrap();
        sums.push((&late + &first.sum(&[]).unwrap()).unwrap());
    }
    let fetches: Vec<&Output> = sums.iter().collect();
    let values: Vec<f64> = (0..100_000).map(|i| f64::from(i) * 1e-6).collect();
    let (fed, one) = (vector(&values), Tensor::scalar(1.0).unwrap());
    let feeds = [(&x, &fed), (&y, &one)];
    let simple = SessionOptions {
        parallel: false,
        simplify: false,
        fuse: false,
        threads: NonZeroUsize::new(1),
        ..SessionOptions::default()
    };
    let expected = Session::with_options(&graph, simple).run(&fetches, &feeds).unwrap();
    for simplify in [true, false] {
        let session = Session::with_options(&graph, SessionOptions { simplify, ..SessionOptions::default() });
        for _ in 0..20 {
            let found = session.run(&fetches, &feeds).unwrap();
            assert!(found.iter().zip(&expected).all(|(a, b)| numbers(a) == numbers(b)));
        }
    }
}

#[test]
fn one_of_several_outputs_may_be_fed() {
    let graph = Graph::new();
    let x = graph.placeholder("x", DType::Float64, &shape("[4]")).unwrap();
    let split = Library::standard().unwrap().op("Split").unwrap();
    let parts = graph.call(&split).arg(&x).attr("N", 2).build().unwrap().outputs();
    let sum = (&parts[0] + &parts[1]).unwrap();
    let session = Session::new(&graph);
    let (a, b) = (vector(&[1.0, 2.0, 3.0, 4.0]), vector(&[10.0, 20.0]));
    let found = session.run(&[&sum, &parts[0]], &[(&x, &a), (&parts[0], &b)]).unwrap();
    assert_eq!((numbers(&found[0]), numbers(&found[1])), (vec![13.0, 24.0], vec![10.0, 20.0]));
}

#[test]
fn stateful_ops_are_neither_merged_nor_folded() {
    let graph = Graph::new();
    let library = common::library();
    let counter = library.op("counter").unwrap();
    let first = graph.call(&counter).build().unwrap().output(0).unwrap();
    let second = graph.call(&counter).build().unwrap().output(0).unwrap();
    let session = Session::new(&graph);
    let count = |output| session.run(&[output], &[]).unwrap()[0].clone();
    let (a, b) = (count(&first), count(&second));
    assert_ne!(format!("{:?}", a.to_vec::<i64>()), format!("{:?}", b.to_vec::<i64>()));
}

#[test]
fn variables_are_the_sessions_and_change_when_a_run_succeeds() {
    let graph = Graph::new();
    let w = graph.variable("w", vector(&[1.0, 2.0])).unwrap();
    let x = graph.placeholder("x", DType::Float64, &shape("[?]")).unwrap();
    let sum = (w.output() + &x).unwrap();
    let update = w.assign(&sum).unwrap();
    let updated = update.output(0).unwrap();
    let session = Session::new(&graph);
    let error = session.value(&w).unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().contains("variable `w`, made at"), "{error}");
    session.initialize().unwrap();
    // A reader sees the value from before the run.
    let fetched = session.run(&[&updated, w.output()], &[(&x, &vector(&[10.0, 10.0]))]).unwrap();
    assert_eq!((numbers(&fetched[0]), numbers(&fetched[1])), (vec![11.0, 12.0], vec![1.0, 2.0]));
    assert_eq!(numbers(&session.value(&w).unwrap()), [11.0, 12.0]);
    assert!(session.execute(&update, &[(&x, &vector(&[1.0, 2.0, 3.0]))]).is_err());
    assert_eq!(numbers(&session.value(&w).unwrap()), [11.0, 12.0]);
    // Another session has values of its own; the node that initialises all takes in later variables.
    let initialize = graph.initializer().unwrap();
    let v = graph.variable("v", vector(&[7.0])).unwrap();
    let other = Session::new(&graph);
    other.execute(&initialize, &[]).unwrap();
    assert_eq!(numbers(&other.value(&w).unwrap()), [1.0, 2.0]);
    assert_eq!(numbers(&other.value(&v).unwrap()), [7.0]);
    let error = w.assign(v.output()).unwrap_err();
    assert!(error.message().contains("variable `w` has shape [2]"), "{error}");
    assert!(Variable::from_output(&x).unwrap_err().message().contains("not a variable"));
    session.set_value(&w, &vector(&[0.0, 0.0])).unwrap();
    assert!(session.set_value(&w, &vector(&[0.0])).is_err());
    assert_eq!(numbers(&session.value(&w).unwrap()), [0.0, 0.0]);
}

#[test]
fn what_a_variable_is_after_a_run_is_clear() {
    let graph = Graph::new();
    let w = graph.variable("w", vector(&[1.0])).unwrap();
    let first = w.assign(&(w.output() + w.output()).unwrap()).unwrap();
    let second = w.assign(&(w.output() * w.output()).unwrap()).unwrap();
    let session = Session::new(&graph);
    session.initialize().unwrap();
    let both = graph.group("both", &[first.clone(), second.clone()]).unwrap();
    let again = graph.group("again", &[first.clone(), graph.initializer().unwrap()]).unwrap();
    for twice in [&both, &again] {
        let error = session.execute(twice, &[]).unwrap_err();
        assert!(
            error.message().starts_with("variable `w` is written twice in one run, by node `Assign`"),
            "{error}"
        );
    }
    assert_eq!(numbers(&session.value(&w).unwrap()), [1.0]);
    let doubled = first.output(0).unwrap();
    let third = w.assign(&(&doubled + &doubled).unwrap()).unwrap();
    session.execute(&graph.group("in_order", &[first, third]).unwrap(), &[]).unwrap();
    assert_eq!(numbers(&session.value(&w).unwrap()), [4.0]);
}

#[test]
fn runs_from_many_threads_lose_no_update_and_no_memory() {
    let graph = Graph::new();
    let w = graph.variable("w", vector(&[0.0])).unwrap();
    let one = graph.constant("one", vector(&[1.0])).unwrap();
    let increment = w.assign(&(w.output() + &one).unwrap()).unwrap();
    let x = graph.placeholder("x", DType::Float64, &shape("[?]")).unwrap();
    let square = (&x * &x).unwrap();
    let sessions = [Session::new(&graph), Session::new(&graph)];
    sessions.iter().for_each(|session| session.initialize().unwrap());
    let (threads, runs) = (8, 500);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (sessions, increment, square, x) = (&sessions, &increment, &square, &x);
            scope.spawn(move || {
                let session = &sessions[thread % 2];
                for run in 0..runs {
                    session.execute(increment, &[]).unwrap();
                    let value = f64::from(run);
                    let squared = session.run(&[square], &[(x, &vector(&[value]))]).unwrap();
                    assert_eq!(numbers(&squared[0]), [value * value]);
                }
            });
        }
    });
    for session in &sessions {
        assert_eq!(numbers(&session.value(&w).unwrap()), [f64::from(runs) * threads as f64 / 2.0]);
        // The block of the variable's value, and nothing else.
        assert_eq!(session.memory_use().live, 64);
    }
}

#[test]
fn a_saved_graph_computes_the_same_when_it_is_read() {
    let graph = Graph::new();
    let scoped = graph.scope("model").unwrap();
    let x = scoped.placeholder("x", DType::Float64, &shape("[?,2]")).unwrap();
    let w = scoped.variable("w", Tensor::from_slice(&[1.0, 2.0], &[2, 1]).unwrap()).unwrap();
    let y = x.matmul(w.output()).unwrap();
    let train = w.assign(&(w.output() + w.output()).unwrap()).unwrap();
    let both = graph.group("both", &[train]).unwrap();
    graph.initializer().unwrap();
    graph.constant("words", Tensor::from_strings(&["one", "zwei\u{e9}"], &[2]).unwrap()).unwrap();
    let library = common::library();
    let concatenated = library.op("counter").unwrap();
    graph.call(&concatenated).after(&both).name("counted").build().unwrap();
    let path = std::env::temp_dir().join(format!("opsmith-graph-{}", std::process::id()));
    graph.save(&path).unwrap();
    let error = Graph::load(&path, &[]).unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.message().contains("needs the library"), "{error}");
    let needed = Graph::libraries_of(&path).unwrap();
    let [only] = &needed[..] else { panic!("{needed:?}") };
    assert_eq!((&*only.name, &*only.version), (library.name(), library.version()));
    assert_eq!(std::path::Path::new(&only.path), library.path());
    let loaded = Graph::load(&path, &[library]).unwrap();
    assert_eq!(loaded.num_nodes(), graph.num_nodes());
    assert_eq!(loaded.to_dot().unwrap(), graph.to_dot().unwrap());
    let place = loaded.operation("model/x").unwrap().place().clone();
    assert!(place.file.ends_with("graph.rs") && place.line > 0);
    let session = Session::new(&loaded);
    session.execute(&loaded.operation("Initialize").unwrap(), &[]).unwrap();
    session.execute(&loaded.operation("both").unwrap(), &[]).unwrap();
    let fed = Tensor::from_slice(&[1.0, 10.0], &[1, 2]).unwrap();
    let (y, x) = (loaded.output(&y.name()).unwrap(), loaded.output("model/x").unwrap());
    assert_eq!(numbers(&session.run(&[&y], &[(&x, &fed)]).unwrap()[0]), [42.0]);
    damaged_files_are_errors(&path);
    std::fs::remove_file(path).unwrap();
}

/// Every beginning of the file, and files of another kind.
fn damaged_files_are_errors(path: &std::path::Path) {
    let whole = std::fs::read(path).unwrap();
    for length in (0..whole.len()).step_by(97) {
        std::fs::write(path, &whole[..length]).unwrap();
        assert_eq!(Graph::load(path, &[]).unwrap_err().code(), Code::DataLoss);
        assert_eq!(Graph::libraries_of(path).unwrap_err().code(), Code::DataLoss);
    }
    let a = vector(&[1.0]);
    opsmith_runtime::save_tensors(path, &[("a", &a)]).unwrap();
    assert!(Graph::load(path, &[]).unwrap_err().message().contains("no graph"));
    std::fs::write(path, &whole).unwrap();
    // A cycle can only be written by hand: a node takes one that comes after it.
    let text = String::from_utf8_lossy(&whole).into_owned();
    let cyclic = text.replacen("model/x\\\"", "counted\\\"", 2);
    if cyclic.len() == text.len() {
        std::fs::write(path, cyclic).unwrap();
        assert!(Graph::load(path, &[common::library()]).is_err());
    }
}

#[test]
fn a_graph_is_drawn_with_its_scopes_as_boxes() {
    let graph = Graph::new();
    let scoped = graph.scope("layer").unwrap();
    let x = scoped.placeholder("x", DType::Float64, &shape("[?]")).unwrap().within(&scoped).unwrap();
    let y = (&x * &x).unwrap();
    assert_eq!((y.name().as_str(), y.graph().scope_name()), ("layer/Mul", ""));
    assert!(x.within(&Graph::new()).is_err());
    let z = graph.scope("loss").unwrap();
    let z = z.call(&Library::standard().unwrap().op("Sum").unwrap()).arg(&y).build().unwrap();
    assert_eq!(z.name(), "loss/Sum");
    let dot = graph.to_dot().unwrap();
    for part in ["subgraph cluster_0", "label=\"layer\"", "label=\"loss\"", "n0 -> n1", "n1 -> n2"] {
        assert!(dot.contains(part), "{part} is not in\n{dot}");
    }
    let svg = graph.to_svg().unwrap();
    assert_eq!(svg.matches("<rect class=\"node\"").count(), 3);
    assert_eq!(svg.matches("<rect class=\"frame\"").count(), 2);
    assert_eq!(svg.matches("marker-end").count(), 2);
    assert!(!svg.contains("NaN") && svg.contains("float64[?]"));
    assert!(Graph::new().to_svg().is_ok());
}
