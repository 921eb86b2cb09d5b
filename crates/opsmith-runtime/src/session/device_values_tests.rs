//! What standard operators compute in graphs on a double of a device, with derivatives of two orders, against the CPU.

use opsmith_core::{AttrValue, DType, Shape};

use super::device_tests::{assert_close, double, session_on};
use super::*;
use crate::device::tests::on_processor;
use crate::library::Library;
use crate::{CallBuilder, gradients};

/// A function of two matrices of one shape, with a dim that is not known.
type Function = fn(&Output, &Output) -> Result<Output>;

fn standard(name: &str, x: &Output) -> CallBuilder {
    let op = Library::standard().and_then(|library| library.op(name)).unwrap();
    x.graph().call(&op).arg(x)
}

fn one(call: CallBuilder) -> Result<Output> {
    call.build()?.output(0)
}

fn numbers_of(graph: &Graph, numbers: &[i64], shape: &[usize]) -> Result<Output> {
    graph.constant("numbers", Tensor::from_slice(numbers, shape)?)
}

const FUNCTIONS: [(&str, Function); 7] = [
    ("arithmetic", |x, y| &(x * y)? + &(x / y)?),
    ("functions", |x, y| (&x.exp()?.tanh()? - y)?.square()),
    // Of what is repeated the gradients are summed up, in temporary memory.
    ("repeated", |x, y| x * &y.mean(&[0])?),
    ("matrices", |x, y| {
        let transposed = one(standard("Transpose", y).attr("perm", AttrValue::Ints(vec![1, 0])))?;
        x.matmul(&transposed)
    }),
    ("rows", |x, y| &one(standard("Softmax", x))? * &one(standard("LogSoftmax", y))?),
    ("layout", |x, y| {
        let paddings = numbers_of(x.graph(), &[1, 0, 0, 2], &[2, 2])?;
        &one(standard("Pad", &x.reshape(&[-1, 2])?).arg(&paddings))? * &y.sum(&[])?
    }),
    // One of the two inputs of the product needs no gradient.
    ("stopped", |x, y| x * &y.stopped()?),
];

impl Output {
    /// The same, through which no gradient flows: on the CPU, since that op has no CUDA kernel.
    fn stopped(&self) -> Result<Output> {
        one(standard("StopGradient", &self.within(&self.graph().with_device(opsmith_core::Device::CPU))?))
            .and_then(|stopped| stopped.within(self.graph()))
    }
}

/// The function's values and derivatives, for matrices of these numbers of rows.
fn values(device: &str, function: Function, run: impl Fn(&Graph) -> Session) -> Result<Vec<Tensor>> {
    let graph = Graph::new().device(device)?;
    let placeholder = |name| graph.placeholder(name, DType::Float32, &Shape::parse("[?,4]")?);
    let (x, y) = (placeholder("x")?, placeholder("y")?);
    let z = function(&x, &y)?;
    let first: Vec<Output> = gradients(&[&z.square()?], &[&x, &y], None)?.into_iter().flatten().collect();
    let sums = first.iter().map(|gradient| gradient.square()?.sum(&[])).collect::<Result<Vec<_>>>()?;
    let second = gradients(&sums.iter().collect::<Vec<_>>(), &[&x, &y], None)?;
    let fetches: Vec<&Output> = std::iter::once(&z).chain(&first).chain(second.iter().flatten()).collect();
    let session = run(&graph);
    let mut found = vec![];
    for rows in [2, 5] {
        let fed = |scale: f32| {
            let numbers: Vec<f32> = (0..rows * 4).map(|i| (i as f32 * scale).sin() + 1.5).collect();
            Tensor::from_slice(&numbers, &[rows, 4])
        };
        found.extend(session.run(&fetches, &[(&x, &fed(0.7)?), (&y, &fed(1.3)?)])?);
    }
    Ok(found)
}

#[test]
fn standard_operators_compute_on_a_device_what_they_do_on_the_cpu() {
    for (name, function) in FUNCTIONS {
        let expected = values("cpu", function, Session::new).unwrap();
        let (device, _) = double();
        let on_device =
            |graph: &Graph| session_on(graph, std::slice::from_ref(&device), SessionOptions::default());
        let Some(found) = on_processor(|| values("cuda:0", function, on_device)) else { return };
        let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found.len(), expected.len(), "{name}");
        for (found, expected) in found.iter().zip(&expected) {
            assert_close(found, expected);
        }
        assert_eq!(device.memory_use().live, 0, "{name}: all is given back with the session");
    }
}
