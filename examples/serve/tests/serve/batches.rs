//! Requests that are computed as one.

use std::thread;
use std::time::Duration;

use opsmith_runtime::{Graph, Library, Tensor};
use serde_json::json;

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

/// Why a server says that it computes requests one by one; nothing if it does not.
fn why_alone(graph: &Graph) -> String {
    let told = Server::start(graph, &[]).request("GET", "/model", &[], b"").json();
    assert_eq!(told["batched"], json!(told["why_not_batched"].is_null()));
    told["why_not_batched"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn only_rows_that_are_free_through_the_graph_are_put_together() {
    let ops = Library::standard().unwrap();
    let softmax = ops.op("softmax").unwrap();
    let over = |axes: i64| {
        graph("[?,3]", |graph, x| graph.call(&softmax).arg(x).attr("axes", axes).build()?.output(0))
    };
    assert_eq!(why_alone(&over(1)), "");
    assert!(why_alone(&over(2)).contains("the rows are no free axis of node `Softmax` (Softmax)"));
    assert_eq!(why_alone(&graph("[?,3]", |_, x| x.mean(&[1]))), "");
    assert!(why_alone(&graph("[?,3]", |_, x| x.mean(&[0]))).contains("(Mean)"));
    assert!(why_alone(&graph("[4,3]", |_, x| x + x)).contains("input `x` has no first dim of unknown size"));
    // Beside its own mean over all rows.
    assert!(why_alone(&graph("[?,3]", |_, x| x - &x.mean(&[])?)).contains("(Mean)"));
    let turned = ops.op("transpose").unwrap();
    let turned =
        graph("[?,3]", |graph, x| graph.call(&turned).arg(x).attr("perm", vec![1_i64, 0]).build()?.output(0));
    assert!(why_alone(&turned).contains("is not that of the rows"));
    assert_eq!(why_alone(&distances("[?,3]")), "");
    // Beside a sum over all rows, of a tensor that is repeated for them.
    let (greater, select) = (ops.op("greater").unwrap(), ops.op("select_grad").unwrap());
    let summed = graph("[?,3]", |graph, x| {
        let zeros = graph.constant("zeros", Tensor::from_slice(&[0_f32; 3], &[1, 3])?)?;
        let is_greater = graph.call(&greater).arg(x).arg(&zeros).build()?.output(0)?;
        let sum = graph.call(&select).arg(&is_greater).arg(&zeros).arg(x).arg(x).build()?.output(0)?;
        x + &sum
    });
    assert!(why_alone(&summed).contains("(SelectGrad)"));
}
