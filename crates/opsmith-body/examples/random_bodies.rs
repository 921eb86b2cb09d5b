//! Writes the random bodies of the tests as JSON to standard output: as PyTorch reads them, what they and their
//! gradients of first and second order are at some points, and their CUDA sources. `tests/python/body` compares.

#[path = "../tests/support/gradient.rs"]
mod gradient;
#[path = "../tests/support/mod.rs"]
mod support;

use gradient::Gradient;
use opsmith_body::{Body, CudaType, F64, Graph, Plain, trace};
use serde_json::{Value, json};
use support::Random;
use support::tree::{RandomBody, bodies};

/// How many bodies have the second order too.
const SECOND_ORDER: usize = 20;

fn eval<B: Body<I, O>, const I: usize, const O: usize>(body: &B, inputs: &[f64]) -> Vec<f64> {
    let numbers: [F64<Plain>; I] = std::array::from_fn(|k| F64::new(inputs[k]));
    body.eval(numbers).map(F64::get).to_vec()
}

fn sources(graph: &Graph, name: &str) -> Value {
    CudaType::ALL
        .iter()
        .map(|dtype| (format!("{dtype:?}"), Value::from(graph.cuda_source(name, *dtype, 0))))
        .collect()
}

fn describe(index: usize, body: &RandomBody) -> Value {
    let mut random = Random(index as u64);
    let gradient = Gradient::<_, 3, 2>(body);
    let second = Gradient::<_, 5, 3>(&gradient);
    let points: Vec<Value> = (0..5)
        .map(|_| {
            let at: Vec<f64> = (0..8).map(|_| random.between(-2.5, 2.5)).collect();
            json!({
                "at": at,
                "outputs": eval::<_, 3, 2>(body, &at),
                "gradients": eval::<_, 5, 3>(&gradient, &at),
                "second": (index < SECOND_ORDER).then(|| eval::<_, 8, 5>(&second, &at)),
            })
        })
        .collect();
    let graph = trace(body);
    json!({
        "torch": body.0.each_ref().map(|tree| tree.torch()),
        "points": points,
        "forward": sources(&graph, "forward"),
        "backward": sources(&graph.gradient(), "backward"),
    })
}

fn main() {
    let all: Vec<Value> = bodies(100).iter().enumerate().map(|(index, body)| describe(index, body)).collect();
    println!("{}", Value::Array(all));
}
