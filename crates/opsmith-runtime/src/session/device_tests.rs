//! Graphs on a double of a card in host memory, with kernels run on the processor: what is computed, what is copied and when it
//! is waited for. Of a device, or of the driver, it shows nothing.

use std::sync::atomic::Ordering;

use opsmith_core::{Code, DType, Shape};

use super::*;
use crate::device::tests::{Ledger, double_of, on_processor};
use crate::library::Library;
use crate::{Adam, Card, GradientDescent, GraphArg, Momentum, Optimizer};

/// A session on these doubles.
pub(super) fn session_on(graph: &Graph, devices: &[Card], options: SessionOptions) -> Session {
    Session::on(graph, options, Devices::of(options.allow_soft_placement, devices))
}

pub(super) fn double() -> (Card, Arc<Ledger>) {
    double_of(1 << 24, 0)
}

/// How many copies went in, came out, and how often it was waited, since it was last asked.
pub(super) fn counted(ledger: &Ledger) -> (usize, usize, usize) {
    let taken = |count: &std::sync::atomic::AtomicUsize| count.swap(0, Ordering::Relaxed);
    (taken(&ledger.copied_in), taken(&ledger.copied_out), taken(&ledger.waited))
}

pub(super) fn tensor(values: &[f32], shape: &[usize]) -> Tensor {
    Tensor::from_slice(values, shape).unwrap()
}

pub(super) fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

#[track_caller]
pub(super) fn assert_close(found: &Tensor, expected: &Tensor) {
    assert_eq!(found.shape(), expected.shape());
    let (found, expected) = (numbers(found), numbers(expected));
    let close = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs().max(1.0));
    assert!(close, "{found:?} {expected:?}");
}

/// A network of two layers, its loss, and a step of training.
struct Network {
    graph: Graph,
    x: Output,
    target: Output,
    loss: Output,
    train: Operation,
}

impl Network {
    fn new(device: &str, optimizer: &dyn Optimizer) -> Result<Network> {
        let graph = Graph::new().device(device)?;
        let pattern = |count: usize| (0..count).map(|i| (i as f32 * 0.7).sin()).collect::<Vec<_>>();
        let x = graph.placeholder("x", DType::Float32, &Shape::parse("[?,3]")?)?;
        let target = graph.placeholder("target", DType::Float32, &Shape::parse("[?,2]")?)?;
        let w = graph.variable("w", tensor(&pattern(12), &[3, 4]))?;
        let b = graph.variable("b", tensor(&pattern(4), &[4]))?;
        let v = graph.variable("v", tensor(&pattern(8), &[4, 2]))?;
        let hidden = (&x.matmul(w.output())? + b.output())?.tanh()?;
        let loss = (&hidden.matmul(v.output())? - &target)?.square()?.mean(&[])?;
        let train = optimizer.minimize(&loss)?;
        Ok(Network { graph, x, target, loss, train })
    }

    fn fed() -> (Tensor, Tensor) {
        let values: Vec<f32> = (0..15).map(|i| (i as f32 * 0.3).cos()).collect();
        (tensor(&values, &[5, 3]), tensor(&values[..10], &[5, 2]))
    }

    /// The loss before a step.
    fn step(&self, session: &Session) -> Result<Tensor> {
        let (x, target) = Network::fed();
        let runner = session.runner().fetch(&self.loss).target(&self.train);
        Ok(runner.feed(&self.x, &x).feed(&self.target, &target).run()?.outputs.remove(0))
    }
}

#[test]
fn a_network_trains_on_a_device_as_it_does_on_the_cpu() {
    let optimizers: [&dyn Optimizer; 3] = [
        &GradientDescent { learning_rate: 0.1 },
        &Momentum { learning_rate: 0.05, momentum: 0.9 },
        &Adam { learning_rate: 0.05, ..Adam::default() },
    ];
    for optimizer in optimizers {
        let (here, there) =
            (Network::new("cpu", optimizer).unwrap(), Network::new("cuda:0", optimizer).unwrap());
        let (device, ledger) = double();
        let expected = Session::new(&here.graph);
        expected.initialize().unwrap();
        let session = session_on(&there.graph, std::slice::from_ref(&device), SessionOptions::default());
        session.initialize().unwrap();
        let Some(()) = on_processor(|| {
            for _ in 0..3 {
                assert_close(&there.step(&session).unwrap(), &here.step(&expected).unwrap());
            }
        }) else {
            return;
        };
        for (found, variable) in there.graph.variables().iter().zip(here.graph.variables()) {
            if found.output().dtype() == DType::Float32 {
                assert_close(&session.value(found).unwrap(), &expected.value(&variable).unwrap());
            }
        }
        let live = device.memory_use().live;
        on_processor(|| there.step(&session)).unwrap().unwrap();
        assert_eq!(device.memory_use().live, live, "a run leaves nothing but the variables");
        drop(session);
        assert_eq!(device.memory_use().live, 0);
        device.release_memory();
        assert_eq!(ledger.bytes.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_training_step_copies_what_is_fed_and_fetched_and_waits_for_the_fetched_alone() {
    let network = Network::new("cuda:0", &GradientDescent { learning_rate: 0.1 }).unwrap();
    let (device, ledger) = double();
    let session = session_on(&network.graph, &[device], SessionOptions::default());
    session.initialize().unwrap();
    assert_eq!(counted(&ledger), (3, 0, 0), "the variables");
    let Some(_) = on_processor(|| network.step(&session).unwrap()) else { return };
    counted(&ledger);
    on_processor(|| network.step(&session)).unwrap().unwrap();
    assert_eq!(counted(&ledger), (2, 1, 1), "x and the target; the loss; the loss");
    let (x, target) = Network::fed();
    let feeds = [(&network.x, &x), (&network.target, &target)];
    let runner = session.runner().fetch(&network.loss).feed(&network.x, &x).feed(&network.target, &target);
    let trace = on_processor(|| runner.traced().run()).unwrap().unwrap().trace.unwrap();
    let copies = trace.events.iter().filter(|event| event.op.starts_with("CopyTo"));
    let copies: Vec<String> =
        copies.map(|event| format!("{} {} {}", event.op, event.node, event.bytes)).collect();
    assert_eq!(copies, ["CopyTo cuda:0 x 60", "CopyTo cuda:0 target 40", "CopyTo cpu Mean 4"]);
    counted(&ledger);
    on_processor(|| session.execute(&network.train, &feeds)).unwrap().unwrap();
    assert_eq!(counted(&ledger).2, 0);
    counted(&ledger);
    // Memory of somebody else's may change when the run is over.
    let (lent, other) = (
        Tensor::from(ndarray::Array2::<f32>::ones((5, 3))),
        Tensor::from(ndarray::Array2::<f32>::ones((5, 2))),
    );
    on_processor(|| session.execute(&network.train, &[(&network.x, &lent), (&network.target, &other)]))
        .unwrap()
        .unwrap();
    assert_eq!(counted(&ledger), (2, 0, 1));
    // All variables are waited for at once.
    let path = std::env::temp_dir().join(format!("opsmith-device-{}.safetensors", std::process::id()));
    session.save(&path).unwrap();
    assert_eq!(counted(&ledger), (0, 3, 1));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_value_crosses_once_to_each_device_and_folded_constants_before_the_runs() {
    let graph = Graph::new();
    let on_device = graph.device("cuda:0").unwrap();
    let x = graph.placeholder("x", DType::Float32, &Shape::parse("[2]").unwrap()).unwrap();
    let doubled = (&x + &x).unwrap();
    let there = |output: &Output| output.within(&on_device).unwrap();
    let (a, b) = ((&there(&doubled) * &doubled).unwrap(), there(&doubled).exp().unwrap());
    let constant = graph.constant("c", tensor(&[1.0, 2.0], &[2])).unwrap();
    let folded = (&constant + &constant).unwrap();
    let c = (&(&a + &b).unwrap() + &folded).unwrap();
    assert_eq!(c.device(), opsmith_core::Device::cuda(0), "made of what is on the device");
    let back = c.within(&graph).unwrap();
    let (d, e) = ((&back + &constant).unwrap(), back.square().unwrap());
    let (device, ledger) = double();
    let session = session_on(&graph, &[device], SessionOptions::default());
    let fed = tensor(&[0.5, -1.0], &[2]);
    let Some(found) = on_processor(|| session.run(&[&d, &e, &c], &[(&x, &fed)]).unwrap()) else { return };
    assert_eq!(counted(&ledger), (2, 1, 1), "the sum, and the constant with the plan; one result");
    on_processor(|| session.run(&[&d, &e, &c], &[(&x, &fed)])).unwrap().unwrap();
    assert_eq!(counted(&ledger), (1, 1, 1));
    let sums: Vec<f32> =
        [(1f32, 2f32), (-2.0, 4.0)].iter().map(|(x, constant)| x * x + x.exp() + constant).collect();
    assert_close(&found[2], &tensor(&sums, &[2]));
    assert_close(&found[0], &tensor(&[sums[0] + 1.0, sums[1] + 2.0], &[2]));
    assert_close(&found[1], &tensor(&[sums[0] * sums[0], sums[1] * sums[1]], &[2]));
    let traced = on_processor(|| session.runner().fetch(&d).feed(&x, &fed).traced().run()).unwrap().unwrap();
    let trace = traced.trace.unwrap();
    let copies: Vec<&str> =
        trace.events.iter().map(|event| &*event.op).filter(|op| op.starts_with("CopyTo")).collect();
    assert_eq!(copies, ["CopyTo cuda:0", "CopyTo cpu"]);
    assert!(trace.to_chrome_json().contains(r#""device":"cuda:0""#));
    assert!(trace.to_string().contains("Exp on cuda:0"), "{trace}");
}

#[test]
fn what_a_kernel_reads_in_host_memory_stays_or_comes_there() {
    let graph = Graph::new().device("cuda:0").unwrap();
    let x = graph.placeholder("x", DType::Float32, &Shape::parse("[2]").unwrap()).unwrap();
    let y = graph.placeholder("y", DType::Int64, &Shape::parse("[1,2]").unwrap()).unwrap();
    let pad = Library::standard().and_then(|library| library.op("Pad")).unwrap();
    let padded = |paddings: &Output| {
        graph
            .call(&pad)
            .arg(&(&x + &x).unwrap())
            .arg(paddings)
            .build()
            .and_then(|call| call.output(0))
            .unwrap()
    };
    let transposed = Library::standard().and_then(|library| library.op("Reshape")).unwrap();
    let shape = graph.constant("shape", Tensor::from_slice(&[1i64, 2], &[2]).unwrap()).unwrap();
    // On the device, and read in host memory.
    let moved = graph.call(&transposed).arg(&y).arg(&shape).build().and_then(|call| call.output(0)).unwrap();
    let (first, second) = (padded(&y), padded(&moved));
    let (device, ledger) = double();
    let session = session_on(&graph, &[device], SessionOptions::default());
    let (fed, paddings) = (tensor(&[1.0, 2.0], &[2]), Tensor::from_slice(&[1i64, 2], &[1, 2]).unwrap());
    let Some(found) = on_processor(|| session.run(&[&first], &[(&x, &fed), (&y, &paddings)]).unwrap()) else {
        return;
    };
    assert_eq!(numbers(&found[0]), [0.0, 2.0, 4.0, 0.0, 0.0]);
    assert_eq!(counted(&ledger), (1, 1, 1), "the paddings stay");
    let found = on_processor(|| session.run(&[&second], &[(&x, &fed), (&y, &paddings)])).unwrap().unwrap();
    assert_eq!(numbers(&found[0]), [0.0, 2.0, 4.0, 0.0, 0.0]);
    assert_eq!(counted(&ledger), (2, 2, 2), "they go there and come back");
}

#[test]
fn an_op_without_a_cuda_kernel_is_an_error_or_on_the_cpu_where_that_is_allowed() {
    let graph = Graph::new().device("cuda:0").unwrap();
    let x = graph.placeholder("x", DType::Float32, &Shape::parse("[3]").unwrap()).unwrap();
    let doubled = (&x + &x).unwrap();
    let unique = Library::standard().and_then(|library| library.op("Unique")).unwrap();
    let order = graph.call(&unique).arg(&doubled).build().and_then(|call| call.output(1)).unwrap();
    let (device, ledger) = double();
    let fed = tensor(&[3.0, 1.0, 2.0], &[3]);
    let strict = session_on(&graph, std::slice::from_ref(&device), SessionOptions::default());
    let error = strict.run(&[&order], &[(&x, &fed)]).unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    let message = error.message();
    assert!(
        message.starts_with("node `Unique`, made at ") && message.contains("device_tests.rs:"),
        "{message}"
    );
    assert!(
        message.ends_with(
            ": Unique: has no CUDA kernel; it is placed on cuda:0: place it on the CPU, or have the session do so by \
             `allow_soft_placement`"
        ),
        "{message}"
    );
    let soft = SessionOptions { allow_soft_placement: true, ..SessionOptions::default() };
    let session = session_on(&graph, &[device], soft);
    let Some(found) = on_processor(|| session.run(&[&order], &[(&x, &fed)]).unwrap()) else { return };
    assert_eq!(found[0].to_vec::<i64>().unwrap(), [2, 0, 1]);
    assert_eq!(counted(&ledger), (1, 1, 1));
    // A dtype that the kernels are not for, and one that no device has.
    let sums = Library::standard().and_then(|library| library.op("CumSum")).unwrap();
    let complex = graph.placeholder("complex", DType::Complex64, &Shape::parse("[1]").unwrap()).unwrap();
    let sums = graph.call(&sums).arg(&complex).build().and_then(|call| call.output(0)).unwrap();
    let error = strict.run(&[&sums], &[(&complex, &Tensor::zeros(DType::Complex64, &[1]).unwrap())]);
    let message = error.unwrap_err();
    assert!(
        message.message().contains("CumSum: has no CUDA kernel for T = complex64; it is placed"),
        "{message}"
    );
    let text = graph.variable("text", Tensor::from_strings(&["a"], &[1]).unwrap()).unwrap();
    let error = strict.set_value(&text, &Tensor::from_strings(&["b"], &[1]).unwrap()).unwrap_err();
    assert!(
        error.message().contains("`text`, made at") && error.message().contains("a string tensor cannot"),
        "{error}"
    );
    session.set_value(&text, &Tensor::from_strings(&["b"], &[1]).unwrap()).unwrap();
    assert_eq!(session.value(&text).unwrap().strings().unwrap(), [b"b"]);
}

#[test]
fn variables_are_set_saved_and_restored_where_they_are() {
    let graph = Graph::new();
    let there = graph.device("cuda:0").unwrap().variable("there", tensor(&[1.0, 2.0], &[2])).unwrap();
    let here = graph.variable("here", tensor(&[5.0], &[1])).unwrap();
    let (device, ledger) = double();
    let session = session_on(&graph, std::slice::from_ref(&device), SessionOptions::default());
    let error = session.value(&there).unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().starts_with("variable `there`, made at"), "{error}");
    session.execute(&graph.initializer().unwrap(), &[]).unwrap();
    assert_eq!(numbers(&session.value(&there).unwrap()), [1.0, 2.0]);
    assert_eq!(device.memory_use().live, 512, "no copy of the initial value is kept");
    session.set_value(&there, &tensor(&[3.0, 4.0], &[2])).unwrap();
    assert_eq!(device.memory_use().live, 512);
    let path =
        std::env::temp_dir().join(format!("opsmith-device-variables-{}.safetensors", std::process::id()));
    session.save(&path).unwrap();
    counted(&ledger);
    // One value goes to the device and another comes from there, in one run.
    let copied = there.assign(here.output()).unwrap_err();
    assert!(copied.message().contains("has shape [2]"), "{copied}");
    let pair = graph.placeholder("pair", DType::Float32, &Shape::parse("[2]").unwrap()).unwrap();
    let other = graph.variable("other", tensor(&[0.0, 0.0], &[2])).unwrap();
    session.set_value(&other, &tensor(&[0.0, 0.0], &[2])).unwrap();
    let (to, from) = (there.assign(&pair).unwrap(), other.assign(there.output()).unwrap());
    let fed = tensor(&[8.0, 9.0], &[2]);
    let assigned = to.output(0).unwrap();
    let runner = session.runner().fetch(&assigned).target(&from).feed(&pair, &fed);
    assert_eq!(numbers(&runner.run().unwrap().outputs[0]), [8.0, 9.0]);
    assert_eq!(numbers(&session.value(&other).unwrap()), [3.0, 4.0], "what it was before the run");
    assert_eq!(numbers(&session.value(&there).unwrap()), [8.0, 9.0]);
    let resumed = session_on(&graph, std::slice::from_ref(&device), SessionOptions::default());
    let error = resumed.restore(&path).unwrap_err();
    assert!(error.message().contains("no value for variable `other`"), "{error}");
    session.save(&path).unwrap();
    resumed.restore(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    assert_eq!(numbers(&resumed.value(&there).unwrap()), [8.0, 9.0]);
    assert_eq!(numbers(&resumed.value(&here).unwrap()), [5.0]);
    let wrong = graph.placeholder("wrong", DType::Float32, &Shape::parse("?").unwrap()).unwrap();
    let error =
        session.execute(&there.assign(&wrong).unwrap(), &[(&wrong, &tensor(&[1.0], &[1]))]).unwrap_err();
    assert!(
        error.message().contains("variable `there` has shape [2], cannot be assigned a value of shape [1]"),
        "{error}"
    );
    assert_eq!(numbers(&session.value(&there).unwrap()), [8.0, 9.0]);
}

#[test]
fn from_device_to_device_a_value_goes_through_host_memory() {
    let graph = Graph::new();
    let (first, second) = (graph.device("cuda:0").unwrap(), graph.device("cuda:1").unwrap());
    let x = graph.placeholder("x", DType::Float32, &Shape::parse("[2]").unwrap()).unwrap();
    let a = x.within(&first).unwrap().exp().unwrap();
    let there = a.within(&second).unwrap();
    let (b, c) = ((&there + &a).unwrap(), there.exp().unwrap());
    let ((one, of_one), (two, of_two)) = (double(), double_of(1 << 20, 1));
    let session = session_on(&graph, &[one, two], SessionOptions::default());
    let fed = tensor(&[0.0, 1.0], &[2]);
    let Some(found) = on_processor(|| session.run(&[&b, &c, &a], &[(&x, &fed)]).unwrap()) else { return };
    let e = std::f32::consts::E;
    assert_close(&found[0], &tensor(&[2.0, 2.0 * e], &[2]));
    assert_close(&found[1], &tensor(&[e, e.exp()], &[2]));
    assert_eq!(counted(&of_one), (1, 1, 1));
    assert_eq!(counted(&of_two), (1, 2, 1), "both results at once");
}

#[test]
fn threads_share_a_session() {
    let graph = Graph::new().device("cuda:0").unwrap();
    let x = graph.placeholder("x", DType::Float32, &Shape::parse("[64]").unwrap()).unwrap();
    let count = graph.variable("count", tensor(&[0.0; 64], &[64])).unwrap();
    let y = (&x.exp().unwrap() + &x).unwrap();
    let next = count.assign(&(count.output() + &x).unwrap()).unwrap();
    let (device, _) = double();
    let session = session_on(&graph, &[device], SessionOptions::default());
    session.initialize().unwrap();
    let results: Vec<Option<()>> = std::thread::scope(|scope| {
        let work = |number: usize| {
            let (session, y, x, next) = (&session, &y, &x, &next);
            move || {
                let fed = tensor(&[number as f32; 64], &[64]);
                on_processor(|| {
                    for _ in 0..20 {
                        let found = session.runner().fetch(y).target(next).feed(x, &fed).run().unwrap();
                        let number = number as f32;
                        assert_close(&found.outputs[0], &tensor(&[number.exp() + number; 64], &[64]));
                    }
                })
            }
        };
        let threads = [1, 2].map(|number| scope.spawn(work(number)));
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    if results.iter().all(Option::is_some) {
        assert_eq!(numbers(&session.value(&count).unwrap()), [60.0; 64]);
    }
}

#[test]
fn a_full_device_is_an_error_of_the_node_and_the_session_goes_on() {
    let graph = Graph::new().device("cuda:0").unwrap();
    let x = graph.placeholder("x", DType::Float32, &Shape::parse("[?]").unwrap()).unwrap();
    let y = (&x.exp().unwrap() + &x).unwrap();
    let large = graph.variable("large", Tensor::zeros(DType::Float32, &[8192]).unwrap()).unwrap();
    let (device, _) = double_of(8192, 0);
    let session = session_on(&graph, std::slice::from_ref(&device), SessionOptions::default());
    let error = session.initialize().unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    assert!(
        error.message().starts_with("node `large/initial`, made at")
            && error.message().contains("double is full"),
        "{error}"
    );
    assert!(session.value(&large).is_err());
    let fed = Tensor::zeros(DType::Float32, &[4096]).unwrap();
    let error = session.run(&[&y], &[(&x, &fed)]).unwrap_err();
    assert!(error.message().starts_with("node `x`, made at"), "{error}");
    let some = Tensor::zeros(DType::Float32, &[1024]).unwrap();
    let Some(found) = on_processor(|| session.run(&[&y], &[(&x, &some)])) else { return };
    let error = found.unwrap_err();
    assert!(
        error.message().starts_with("node `Add`, made at") && error.message().contains("full"),
        "{error}"
    );
    assert_eq!(device.memory_use().live, 0, "what the run had");
    let few = tensor(&[0.0], &[1]);
    assert_eq!(numbers(&on_processor(|| session.run(&[&y], &[(&x, &few)])).unwrap().unwrap()[0]), [1.0]);
}

#[test]
fn what_cannot_be_changed_in_place_on_a_device_says_so() {
    let graph = Graph::new();
    let variable = graph.device("cuda:0").unwrap().variable("v", tensor(&[1.0], &[1])).unwrap();
    let assign = Library::standard().and_then(|library| library.op("Assign")).unwrap();
    let value = graph.constant("value", tensor(&[2.0], &[1])).unwrap();
    let on_cpu = graph.call(&assign).arg(variable.output()).arg(GraphArg::One(value)).build().unwrap();
    let session = session_on(&graph, &[double().0], SessionOptions::default());
    session.initialize().unwrap();
    let error = session.execute(&on_cpu, &[]).unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert!(
        error.message().ends_with(
            "Assign: changes variable `v` in place, which is on cuda:0: place the variable on the CPU"
        ),
        "{error}"
    );
}

#[test]
fn without_a_driver_only_what_is_on_a_device_is_an_error() {
    let graph = Graph::new();
    let x = graph.placeholder("x", DType::Float32, &Shape::parse("[1]").unwrap()).unwrap();
    let here = (&x + &x).unwrap();
    let there = x.within(&graph.device("cuda:99").unwrap()).unwrap().exp().unwrap();
    let fed = tensor(&[1.0], &[1]);
    let session = Session::new(&graph);
    assert_eq!(numbers(&session.run(&[&here], &[(&x, &fed)]).unwrap()[0]), [2.0]);
    let error = session.run(&[&there], &[(&x, &fed)]).unwrap_err();
    assert!(matches!(error.code(), Code::FailedPrecondition | Code::NotFound), "{error}");
    assert!(error.message().starts_with("node `Exp`, made at"), "{error}");
    assert!(error.message().contains("; it is placed on cuda:99: place it on the CPU, or"), "{error}");
    let soft = SessionOptions { allow_soft_placement: true, ..SessionOptions::default() };
    let found = Session::with_options(&graph, soft).run(&[&there], &[(&x, &fed)]).unwrap();
    assert_close(&found[0], &tensor(&[std::f32::consts::E], &[1]));
}

#[test]
fn an_op_that_asks_for_a_shape_copies_nothing() {
    let graph = Graph::new().device("cuda:0").unwrap();
    let x = graph.placeholder("x", DType::Float32, &Shape::parse("[?,2]").unwrap()).unwrap();
    let y = x.exp().unwrap();
    let shape = Library::standard().and_then(|library| library.op("Shape")).unwrap();
    let shape = graph.call(&shape).arg(&y).build().and_then(|call| call.output(0)).unwrap();
    // The ones that flow into a y of many elements are made of its shape.
    let gradient = crate::gradients(&[&y], &[&x], None).unwrap().remove(0).unwrap();
    assert_eq!(gradient.device(), opsmith_core::Device::cuda(0));
    let (device, ledger) = double();
    let session = session_on(&graph, &[device], SessionOptions::default());
    let fed = tensor(&[0.0, 1.0, 2.0, 0.0, 1.0, 2.0], &[3, 2]);
    let Some(found) = on_processor(|| session.run(&[&shape], &[(&x, &fed)]).unwrap()) else { return };
    assert_eq!(found[0].to_vec::<i64>().unwrap(), [3, 2]);
    assert_eq!(counted(&ledger), (1, 0, 0));
    let found = on_processor(|| session.run(&[&shape, &gradient, &y], &[(&x, &fed)])).unwrap().unwrap();
    assert_close(&found[1], &found[2]);
    assert_eq!(counted(&ledger), (2, 2, 1), "x and the ones; what is fetched");
}
