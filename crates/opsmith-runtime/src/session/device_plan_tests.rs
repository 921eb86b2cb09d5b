//! What a session keeps on a double of a device from run to run, and what a trace says of copies.

use opsmith_core::{DType, Shape};

use super::device_tests::{counted, double, numbers, session_on, tensor};
use super::*;
use crate::device::tests::on_processor;

#[test]
fn a_constant_is_on_a_device_once_for_all_ways_in_which_a_session_runs() {
    let graph = Graph::new().device("cuda:0").unwrap();
    let constant = graph.constant("c", tensor(&[1.0; 256], &[256])).unwrap();
    let x = graph.placeholder("x", DType::Float32, &Shape::parse("[256]").unwrap()).unwrap();
    let outputs: Vec<Output> = (0..4).map(|_| (&x + &constant).unwrap()).collect();
    let (device, ledger) = double();
    let session = session_on(&graph, std::slice::from_ref(&device), SessionOptions::default());
    let fed = tensor(&[0.5; 256], &[256]);
    for output in &outputs {
        let Some(found) = on_processor(|| session.run(&[output], &[(&x, &fed)]).unwrap()) else { return };
        assert_eq!(numbers(&found[0]), [1.5; 256]);
    }
    assert_eq!(counted(&ledger).0, 1 + outputs.len(), "the constant, and what was fed to each run");
    assert_eq!(device.memory_use().live, 1024);
    // Another session has its own; with a session its copies go.
    let other = session_on(&graph, std::slice::from_ref(&device), SessionOptions::default());
    on_processor(|| other.run(&[&outputs[0]], &[(&x, &fed)])).unwrap().unwrap();
    assert_eq!(device.memory_use().live, 2048);
    drop(session);
    assert_eq!(device.memory_use().live, 1024);
    // It goes with the last plan that has it, and is copied again for the next one.
    other.plans.lock().clear();
    assert_eq!(device.memory_use().live, 0);
    on_processor(|| other.run(&[&outputs[0]], &[(&x, &fed)])).unwrap().unwrap();
    assert_eq!(device.memory_use().live, 1024);
}

#[test]
fn initial_values_that_are_computed_on_a_device_stay_there() {
    let graph = Graph::new().device("cuda:0").unwrap();
    let initial = graph.constant("zeros", tensor(&[0.0, 0.0], &[2])).and_then(|zeros| zeros.exp()).unwrap();
    let variable = graph.variable_from("ones", &initial).unwrap();
    let nodes = graph.num_nodes();
    let (device, ledger) = double();
    let options = SessionOptions { simplify: false, ..SessionOptions::default() };
    let session = session_on(&graph, &[device], options);
    let Some(()) = on_processor(|| session.initialize().unwrap()) else { return };
    assert_eq!(counted(&ledger), (1, 0, 0), "the zeros");
    assert_eq!(graph.num_nodes(), nodes);
    assert_eq!(numbers(&session.value(&variable).unwrap()), [1.0, 1.0]);
}

#[test]
fn a_trace_shares_the_time_of_what_is_copied_at_once() {
    let graph = Graph::new().device("cuda:0").unwrap();
    let x = graph.placeholder("x", DType::Float32, &Shape::parse("[?]").unwrap()).unwrap();
    let (y, sum) = (x.exp().unwrap(), x.sum(&[]).unwrap());
    let (device, _) = double();
    let session = session_on(&graph, &[device], SessionOptions::default());
    let fed = tensor(&[0.5; 999], &[999]);
    let run = || session.runner().fetch(&y).fetch(&sum).feed(&x, &fed).traced().run();
    let Some(outcome) = on_processor(run) else { return };
    let trace = outcome.unwrap().trace.unwrap();
    let copies: Vec<&TraceEvent> = trace.events.iter().filter(|event| event.op == "CopyTo cpu").collect();
    let [of_y, of_sum] = copies[..] else { panic!("{copies:?}") };
    assert_eq!((of_y.bytes, of_sum.bytes), (3996, 4));
    assert!(of_y.duration > 100 * of_sum.duration, "{copies:?}");
    assert!(of_y.start + of_y.duration <= of_sum.start, "one after the other: {copies:?}");
    assert!(of_sum.start + of_sum.duration <= trace.total);
    assert!(trace.to_string().contains("2 calls and 3 copies took"), "{trace}");
}
