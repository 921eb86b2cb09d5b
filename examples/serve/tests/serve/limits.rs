//! Clients that send too much, too slowly, too often, or go away.

use std::thread;
use std::time::{Duration, Instant};

use opsmith_runtime::{Adam, Optimizer, Tensor};
use serde_json::json;

use crate::client::{Client, Server};
use crate::{distances, graph, slow, slow_input};

#[test]
fn a_body_that_is_too_large_is_refused() {
    let server = Server::start(&distances("[?,3]"), &["--body", "1000"]);
    for size in [1001, 3000, 100_000_000] {
        let mut client = server.connect();
        let head = format!("POST /run HTTP/1.1\r\nHost: test\r\nContent-Length: {size}\r\n\r\n");
        client.send(head.as_bytes());
        if size < 10_000 {
            client.send(&vec![b' '; size]);
        }
        let answer = client.answer().unwrap();
        assert_eq!(answer.status, 413, "{answer:?}");
        assert!(
            answer.message().contains(&format!("1000 bytes, the server's --body, got {size}")),
            "{}",
            answer.message()
        );
    }
    // A client that writes all of it before it reads sees the answer too, and the connection lives.
    let mut client = server.connect();
    for _ in 0..2 {
        let answer = client.request("POST", "/run", &[], &vec![b' '; 20_000_000]).unwrap();
        assert!(answer.status == 413 && !answer.head.contains("connection: close"), "{answer:?}");
    }
    // One that waits for leave to write, or wants to write without end, is told that the connection ends.
    for headers in ["Content-Length: 5000\r\nExpect: 100-continue", "Content-Length: 2000000000000"] {
        let mut client = server.connect();
        client.send(format!("POST /run HTTP/1.1\r\nHost: test\r\n{headers}\r\n\r\n").as_bytes());
        let answer = client.answer().unwrap();
        assert!(answer.status == 413 && answer.head.contains("connection: close"), "{answer:?}");
        assert!(client.answer().is_none());
    }
    // In chunks, without a length.
    let mut client = server.connect();
    client.send(b"POST /run HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..15 {
        client.send(&[&b"64\r\n"[..], &[b' '; 100], b"\r\n"].concat());
    }
    client.send(b"0\r\n\r\n");
    assert_eq!(client.answer().unwrap().status, 413);
    // A head is no body: of 200 kB it is refused too.
    let header = format!("X: {}", "a".repeat(200_000));
    let answer = server.connect().request("GET", "/health", &[&header], b"");
    assert!(answer.is_none_or(|answer| answer.status == 431));
    server.is_well();
}

#[test]
fn slow_clients_are_let_go() {
    let server = Server::start(&distances("[?,3]"), &["--read-time", "0.5", "--idle-time", "0.7"]);
    let begun = Instant::now();
    // A head that does not end, a body that does not, and nothing at all.
    let (mut head, mut body, mut idle) = (server.connect(), server.connect(), server.connect());
    head.send(b"POST /run HTTP/1.1\r\nHost: ");
    body.send(b"POST /run HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\n\r\n{");
    let answer = body.answer().unwrap();
    assert!(answer.status == 408 && answer.head.contains("connection: close"), "{answer:?}");
    assert!(head.answer().is_none_or(|answer| answer.status == 408));
    assert!(idle.answer().is_none());
    assert!(begun.elapsed() < Duration::from_secs(20));
    while server.metric("serve_connections") > 1.0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "connections are left");
    }
    server.is_well();
}

#[test]
fn a_connection_may_be_idle_for_longer_than_a_body_may_take() {
    let server = Server::start(&distances("[?,3]"), &["--read-time", "0.2"]);
    let mut client = server.connect();
    for _ in 0..2 {
        assert_eq!(client.request("GET", "/health", &[], b"").unwrap().status, 200);
        thread::sleep(Duration::from_millis(600));
    }
    assert_eq!(client.request("GET", "/health", &[], b"").unwrap().status, 200);
}

/// A server that was asked for 20 MB, more than lies between the two, and who asked.
fn asked_for_much(options: &[&str]) -> (Server, Client) {
    let model = graph("[?,1]", |graph, x| {
        let row = graph.constant("row", Tensor::from_slice(&[0_f32; 1000], &[1, 1000])?)?;
        x + &row
    });
    let server = Server::start(&model, options);
    let body = json!({"inputs": {"x": vec![[1.0]; 5000]}}).to_string();
    let mut client = server.connect();
    let head = format!("POST /run HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", body.len());
    client.send(&[head.as_bytes(), body.as_bytes()].concat());
    (server, client)
}

#[test]
fn who_does_not_take_an_answer_in_time_is_let_go() {
    // Nothing of it, or bit by bit.
    for most in [0, 100_000] {
        let (server, mut slow) = asked_for_much(&["--read-time", "0.5"]);
        let begun = Instant::now();
        while server.metric("serve_request_seconds_count") < 1.0 || server.metric("serve_connections") > 1.0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "the connection is left");
            if most > 0 {
                slow.take(most);
            }
            thread::sleep(Duration::from_millis(100));
        }
        assert!(slow.answer().is_none());
    }
}

#[test]
fn no_more_is_done_at_a_time_than_the_limits_say() {
    let server = Server::start(&slow(), &["--concurrency", "1", "--answer-time", "30"]);
    let input = slow_input(&server, Duration::from_millis(700));
    thread::scope(|scope| {
        let first = scope.spawn(|| server.run(&input));
        while server.metric("serve_active_requests") < 1.0 {}
        let refused = server.run(&json!([[1.0]]));
        assert_eq!(refused.status, 503);
        assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
        // The body comes after the answer, and the next request over the same connection.
        let mut client = server.connect();
        for _ in 0..3 {
            client.send(b"POST /run HTTP/1.1\r\nHost: test\r\nContent-Length: 24\r\n\r\n");
            assert_eq!(client.answer().unwrap().status, 503);
            assert!(client.send(b"{\"inputs\": {\"x\": [[1]]}}"));
        }
        assert!(
            refused.message().contains("1 requests, as many as its --concurrency allows"),
            "{}",
            refused.message()
        );
        assert_eq!(first.join().unwrap().status, 200);
    });
    assert_eq!(server.run(&json!([[1.0]])).status, 200);
}

#[test]
fn an_answer_that_is_not_taken_has_its_share() {
    let model = graph("[?,1]", |graph, x| {
        let row = graph.constant("row", Tensor::from_slice(&[0_f32; 1000], &[1, 1000])?)?;
        x + &row
    });
    let server = Server::start(&model, &["--read-time", "300", "--concurrency", "1"]);
    // An answer of 20 MB.
    let body = json!({"inputs": {"x": vec![[1.0]; 5000]}}).to_string();
    let mut stuck = server.connect();
    let head = format!("POST /run HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", body.len());
    stuck.send(&[head.as_bytes(), body.as_bytes()].concat());
    let begun = Instant::now();
    while server.metric("serve_request_seconds_count") < 1.0 {
        assert!(begun.elapsed() < Duration::from_secs(240), "it is not computed");
    }
    assert_eq!(server.run(&json!([[1.0]])).status, 503);
    drop(stuck);
    while server.run(&json!([[1.0]])).status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(300), "the share is lost");
    }
}

#[test]
fn what_takes_too_long_is_not_waited_for() {
    let quick = Server::start(&slow(), &["--answer-time", "0.2"]);
    let input = slow_input(&Server::start(&slow(), &[]), Duration::from_millis(1000));
    let answer = quick.run(&input);
    assert_eq!(answer.status, 504, "{answer:?}");
    assert!(answer.message().contains("200ms"), "{}", answer.message());
    // Whether it is answered in time depends on what the worker still computes.
    let begun = Instant::now();
    while quick.run(&json!([[1.0]])).status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(30), "the worker is lost");
    }
}

#[test]
fn a_request_whose_client_is_gone_is_not_computed() {
    let server = Server::start(&slow(), &["--batch", "1"]);
    let input = slow_input(&server, Duration::from_millis(700));
    let before = server.metric("serve_run_requests_total");
    thread::scope(|scope| {
        let first = scope.spawn(|| server.run(&input));
        while server.metric("serve_active_requests") < 1.0 {}
        for _ in 0..8 {
            let mut gone = server.connect();
            gone.send(
                b"POST /run HTTP/1.1\r\nHost: test\r\nContent-Length: 24\r\n\r\n{\"inputs\": {\"x\": [[1]]}}",
            );
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(first.join().unwrap().status, 200);
    });
    assert_eq!(server.run(&json!([[1.0]])).status, 200);
    assert_eq!(server.metric("serve_run_requests_total"), before + 2.0);
    assert_eq!(server.metric("serve_active_requests"), 0.0);
}

#[test]
fn without_memory_it_is_an_error_and_the_server_lives() {
    // 2 GiB of addresses, and a row for each pair: 100,000 rows of one number ask for 40 GB.
    let model = graph("[?,1]", |graph, x| {
        let transpose = opsmith_runtime::Library::standard()?.op("transpose")?;
        let other = graph.call(&transpose).arg(x).attr("perm", vec![1_i64, 0]).build()?.output(0)?;
        x.matmul(&other)?.mean(&[1])
    });
    let server = Server::limited(&model, &[], "ulimit -v 2097152");
    let many = json!(vec![[1.0]; 100_000]);
    for _ in 0..3 {
        let answer = server.run(&many);
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.json()["error"]["code"], json!("ResourceExhausted"));
        assert!(answer.message().contains("40000000000 bytes"), "{}", answer.message());
        // Where the node was made is not for whoever asks.
        assert!(answer.message().starts_with("node `"), "{}", answer.message());
        assert!(!answer.message().contains("limits.rs"), "{}", answer.message());
    }
    assert_eq!(server.run(&json!([[2.0], [4.0]])).json(), json!({"outputs": {"y": [6.0, 12.0]}}));
}

#[test]
fn limits_with_which_nothing_is_answered_are_refused() {
    let model = distances("[?,3]");
    let cases = [
        ("--read-time", "0", "more than 0 seconds"),
        ("--idle-time", "0", "more than 0 seconds"),
        ("--answer-time", "0", "more than 0 seconds"),
        ("--body", "0", "at least 1"),
        ("--concurrency", "0", "1..=65535"),
        ("--listen", "8080", "for example 127.0.0.1:8080"),
    ];
    for (option, value, expected) in cases {
        let said = Server::refusal(&model, &[option, value]);
        assert!(said.contains(expected) && said.contains(option), "{said}");
    }
    let said = Server::refusal(&model, &["--output", "y"]);
    assert!(said.contains("--output `y` is given twice"), "{said}");
    let said = Server::refusal(&model, &["--free-rows"]);
    assert!(said.contains("--free-rows is for a model of ONNX"), "{said}");
}

#[test]
fn what_a_trained_graph_may_be_asked_for_is_told() {
    let model = graph("[?,1]", |graph, x| {
        let weight = graph.variable("weight", Tensor::from_slice(&[1_f32], &[1, 1])?)?;
        x.matmul(weight.output())
    });
    let loss = model.output("y").unwrap().mean(&[0, 1]).unwrap();
    Adam::default().minimize(&loss).unwrap();
    let said = Server::refusal(&model, &["--output", "z"]);
    assert!(
        said.contains("no node `z`") && said.contains("nodes with names of their own are `y`\n"),
        "{said}"
    );
}
