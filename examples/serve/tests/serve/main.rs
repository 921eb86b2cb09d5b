//! The server in a process of its own, on loopback: answers, limits, batches, and how it ends.

mod batches;
mod client;
mod ends;
mod limits;
mod requests;

use std::time::{Duration, Instant};

use opsmith_core::{DType, Shape};
use opsmith_runtime::{Graph, Library, Output, Tensor};
use serde_json::{Value, json};

use client::Server;

/// A graph with an input `x` of float32 and an output `y`.
fn graph(shape: &str, make: impl FnOnce(&Graph, &Output) -> opsmith_core::Result<Output>) -> Graph {
    let graph = Graph::new();
    let x = graph.placeholder("x", DType::Float32, &Shape::parse(shape).unwrap()).unwrap();
    let made = make(&graph, &x).unwrap();
    let identity = Library::standard().unwrap().op("identity").unwrap();
    graph.call(&identity).arg(&made).name("y").build().unwrap();
    graph
}

/// Twice the distances of rows of three numbers, or of as many as the shape says, from four points.
fn distances(shape: &str) -> Graph {
    let pairwise = Library::open(client::library("distances")).unwrap();
    let pairwise = pairwise.op("pairwise_manhattan_distance").unwrap();
    graph(shape, |graph, x| {
        let points: Vec<f32> = (0..12).map(|number| number as f32 / 4.0).collect();
        let points = graph.constant("points", Tensor::from_slice(&points, &[4, 3])?)?;
        let z = graph.call(&pairwise).arg(x).arg(&points).build()?.output(0)?;
        &z + &z
    })
}

/// Sums of products that take long for many rows: of one number each, the size of a row being `x` times 1000.
fn slow() -> Graph {
    graph("[?,1]", |graph, x| {
        let ones = graph.constant("ones", Tensor::from_slice(&vec![1_f32; 1000], &[1, 1000])?)?;
        let weights =
            graph.constant("weights", Tensor::from_slice(&vec![1_f32; 1_000_000], &[1000, 1000])?)?;
        x.matmul(&ones)?.matmul(&weights)?.mean(&[1])
    })
}

/// An input for [`slow`] that it takes at least this long for.
fn slow_input(server: &Server, least: Duration) -> Value {
    let mut rows = 64;
    loop {
        let x = json!(vec![[1.0]; rows]);
        let begun = Instant::now();
        let answer = server.run(&x);
        assert_eq!(answer.status, 200, "{answer:?}");
        if begun.elapsed() > least {
            return x;
        }
        rows *= 2;
    }
}

#[test]
fn variables_need_a_checkpoint_or_leave_to_begin() {
    let graph = graph("[?]", |graph, x| {
        let scale = graph.variable("scale", Tensor::from_slice(&[2_f32], &[])?)?;
        x * scale.output()
    });
    let said = Server::refusal(&graph, &[]);
    let expected = "the outputs need variable `scale`, whose current value is not in the graph's file: give the values by --checkpoint";
    assert!(said.contains(expected), "{said}");
    let answer = |options: &[&str]| Server::start(&graph, options).run(&json!([1.0, 3.0])).json();
    assert_eq!(answer(&["--initial-values"])["outputs"]["y"], json!([2.0, 6.0]));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scale.safetensors");
    let session = opsmith_runtime::Session::new(&graph);
    session.set_value(&graph.variables()[0], &Tensor::from_slice(&[5_f32], &[]).unwrap()).unwrap();
    session.save(&path).unwrap();
    assert_eq!(answer(&["--checkpoint", path.to_str().unwrap()])["outputs"]["y"], json!([5.0, 15.0]));
}
