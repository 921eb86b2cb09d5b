//! Requests that are computed as one.

use std::thread;
use std::time::Duration;

use opsmith_runtime::{Graph, Library, Tensor};
use serde_json::{Value, json};

use crate::client::Server;
use crate::{distances, graph, slow, slow_input};

#[test]
fn what_waits_is_computed_as_one_and_each_gets_its_rows() {
    let server = Server::start(&slow(), &["--batch", "32"]);
    let input = slow_input(&server, Duration::from_millis(700));
    let (runs, requests) = (server.metric("serve_runs_total"), server.metric("serve_run_requests_total"));
    thread::scope(|scope| {
        let first = scope.spawn(|| server.run(&input));
        while server.metric("serve_active_requests") < 1.0 {}
        // Long enough for the worker to have taken it.
        thread::sleep(Duration::from_millis(100));
        let rest: Vec<_> = (1..=8)
            .map(|index| {
                let rows = vec![[f64::from(index)]; index as usize];
                (
                    index,
                    scope.spawn({
                        let server = &server;
                        move || server.run(&json!(rows))
                    }),
                )
            })
            .collect();
        for (index, answer) in rest {
            let expected = vec![f64::from(index) * 1000.0; index as usize];
            assert_eq!(answer.join().unwrap().json(), json!({"outputs": {"y": expected}}));
        }
        assert_eq!(first.join().unwrap().status, 200);
    });
    assert_eq!(server.metric("serve_run_requests_total"), requests + 9.0);
    assert_eq!(server.metric("serve_runs_total"), runs + 2.0);
}

#[test]
fn one_that_fails_does_not_fail_the_others() {
    // Rows of two numbers do not go with points of three: only the op sees that.
    let server = Server::start(&distances("[?,?]"), &["--batch", "16"]);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..64)
            .map(|index| {
                let server = &server;
                scope.spawn(move || {
                    let columns = if index % 3 == 0 { 2 } else { 3 };
                    server.run(&json!([vec![f64::from(index); columns]]))
                })
            })
            .collect();
        for (index, thread) in threads.into_iter().enumerate() {
            let answer = thread.join().unwrap();
            if index % 3 == 0 {
                assert_eq!(answer.status, 400);
                continue;
            }
            let x = index as f64;
            let expected: Vec<f64> = (0..4)
                .map(|row| (0..3).map(|at| 2.0 * (x - f64::from(row * 3 + at) / 4.0).abs()).sum())
                .collect();
            assert_eq!(answer.json(), json!({"outputs": {"y": [expected]}}));
        }
    });
}

fn is_batched(graph: &Graph) -> Value {
    Server::start(graph, &[]).request("GET", "/model", &[], b"").json()["batched"].clone()
}

#[test]
fn only_rows_that_are_free_through_the_graph_are_put_together() {
    let ops = Library::standard().unwrap();
    let softmax = ops.op("softmax").unwrap();
    let over = |axes: i64| {
        graph("[?,3]", |graph, x| graph.call(&softmax).arg(x).attr("axes", axes).build()?.output(0))
    };
    assert_eq!(is_batched(&over(1)), json!(true));
    assert_eq!(is_batched(&over(2)), json!(false));
    assert_eq!(is_batched(&graph("[?,3]", |_, x| x.mean(&[1]))), json!(true));
    assert_eq!(is_batched(&graph("[?,3]", |_, x| x.mean(&[0]))), json!(false));
    assert_eq!(is_batched(&graph("[4,3]", |_, x| x + x)), json!(false));
    // Beside its own mean over all rows.
    assert_eq!(is_batched(&graph("[?,3]", |_, x| x - &x.mean(&[])?)), json!(false));
    let turned = ops.op("transpose").unwrap();
    let turned =
        graph("[?,3]", |graph, x| graph.call(&turned).arg(x).attr("perm", vec![1_i64, 0]).build()?.output(0));
    assert_eq!(is_batched(&turned), json!(false));
    assert_eq!(is_batched(&distances("[?,3]")), json!(true));
    // Beside a sum over all rows, of a tensor that is repeated for them.
    let (greater, select) = (ops.op("greater").unwrap(), ops.op("select_grad").unwrap());
    let summed = graph("[?,3]", |graph, x| {
        let zeros = graph.constant("zeros", Tensor::from_slice(&[0_f32; 3], &[1, 3])?)?;
        let is_greater = graph.call(&greater).arg(x).arg(&zeros).build()?.output(0)?;
        let sum = graph.call(&select).arg(&is_greater).arg(&zeros).arg(x).arg(x).build()?.output(0)?;
        x + &sum
    });
    assert_eq!(is_batched(&summed), json!(false));
}
