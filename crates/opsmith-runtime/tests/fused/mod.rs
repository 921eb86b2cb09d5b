//! Sessions that compute steps as one beside one that does not.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::num::NonZeroUsize;

use opsmith_core::{AttrValue, DType};
use opsmith_runtime::{Graph, Library, Output, Session, SessionOptions, Tensor};

/// Sessions that compute steps as one, on all threads and on one, and one that does not.
pub(crate) fn sessions(graph: &Graph) -> [Session; 3] {
    let one = SessionOptions { threads: NonZeroUsize::new(1), ..SessionOptions::default() };
    let plain = SessionOptions { fuse: false, ..SessionOptions::default() };
    [Session::new(graph), Session::with_options(graph, one), Session::with_options(graph, plain)]
}

pub(crate) type Feeds<'a> = [(&'a Output, &'a Tensor)];

/// The ops that a run called.
pub(crate) fn called(session: &Session, fetches: &[&Output], feeds: &Feeds<'_>) -> Vec<String> {
    let runner = fetches.iter().fold(session.runner().traced(), |runner, fetch| runner.fetch(fetch));
    let runner = feeds.iter().fold(runner, |runner, (output, value)| runner.feed(output, value));
    runner.run().unwrap().trace.unwrap().events.into_iter().map(|event| event.op).collect()
}

pub(crate) fn numbers(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::Float32 => tensor.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect(),
        DType::Int64 => tensor.to_vec::<i64>().unwrap().into_iter().map(|v| v as f64).collect(),
        _ => tensor.to_vec().unwrap(),
    }
}

/// Asserts that the sessions give the same but for the order in which sums are added up, and threads change no bit. Gives the ops
/// that were called.
pub(crate) fn compare(graph: &Graph, fetches: &[&Output], feeds: &Feeds<'_>) -> Vec<String> {
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

pub(crate) fn call(graph: &Graph, op: &str, x: &Output, attrs: &[(&str, AttrValue)]) -> Output {
    let op = Library::standard().unwrap().op(op).unwrap();
    let node =
        attrs.iter().fold(graph.call(&op).arg(x), |call, (name, value)| call.attr(name, value.clone()));
    node.build().unwrap().output(0).unwrap()
}

/// A fold of these dims that keeps them.
pub(crate) fn kept(graph: &Graph, op: &str, x: &Output, axes: Vec<i64>) -> Output {
    call(graph, op, x, &[("axes", axes.into()), ("keep_dims", true.into())])
}

pub(crate) fn filled(dims: &[usize], dtype: DType, mut number: impl FnMut() -> f64) -> Tensor {
    let values: Vec<f64> = (0..dims.iter().product()).map(|_| number()).collect();
    match dtype {
        DType::Float32 => Tensor::from_slice(&values.iter().map(|v| *v as f32).collect::<Vec<_>>(), dims),
        _ => Tensor::from_slice(&values, dims),
    }
    .unwrap()
}

pub(crate) fn random() -> impl FnMut(usize) -> usize {
    let mut state = 7_u64;
    move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}
