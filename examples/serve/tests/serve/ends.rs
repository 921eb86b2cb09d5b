//! SIGTERM: what is under way is answered.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Server;
use crate::{distances, slow, slow_input};

#[test]
fn what_is_computed_is_answered_before_it_ends() {
    let mut server = Server::start(&slow(), &["--linger", "0"]);
    let input = slow_input(&server, Duration::from_millis(700));
    let mut idle = server.connect();
    assert_eq!(idle.request("GET", "/health", &[], b"").unwrap().status, 200);
    thread::scope(|scope| {
        let last = scope.spawn(|| server.run(&input));
        while server.metric("serve_active_requests") < 1.0 {}
        server.terminate();
        let answer = last.join().unwrap();
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains("connection: close"), "{}", answer.head);
    });
    assert!(idle.answer().is_none());
    assert_eq!(server.wait().code(), Some(0));
    assert!(std::net::TcpStream::connect(server.address).is_err());
}

#[test]
fn nothing_is_lost_under_load() {
    let mut server = Server::start(&distances("[?,3]"), &["--linger", "0.5"]);
    let body = json!({"inputs": {"x": [[1, 2, 3]]}}).to_string();
    let (sent, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut client = server.connect();
                loop {
                    sent.fetch_add(1, Ordering::Relaxed);
                    let answer = client.request("POST", "/run", &[], body.as_bytes());
                    let answer = answer.expect("each request is answered");
                    assert_eq!(answer.status, 200);
                    answered.fetch_add(1, Ordering::Relaxed);
                    if answer.head.contains("connection: close") {
                        return;
                    }
                }
            });
        }
        let begun = Instant::now();
        while answered.load(Ordering::Relaxed) < 1000 {
            assert!(begun.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(5));
        }
        server.terminate();
        // Who asks is told to go elsewhere, and is still answered.
        thread::sleep(Duration::from_millis(100));
        assert_eq!(server.request("GET", "/health", &[], b"").status, 503);
        assert_eq!(server.run(&json!([[1, 2, 3]])).status, 200);
    });
    assert_eq!(sent.into_inner(), answered.into_inner());
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn it_ends_in_time_whatever_is_left() {
    let mut server =
        Server::start(&distances("[?,3]"), &["--linger", "0", "--grace", "0.3", "--read-time", "30"]);
    let mut stuck = server.connect();
    stuck.send(b"POST /run HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\n\r\n{");
    while server.metric("serve_active_requests") < 1.0 {}
    let begun = Instant::now();
    server.terminate();
    assert_eq!(server.wait().code(), Some(1));
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(stuck.answer().is_none());
}

#[test]
fn who_waits_for_a_connection_is_answered() {
    let mut server = Server::start(&distances("[?,3]"), &["--linger", "0.3", "--connections", "1"]);
    let mut first = server.connect();
    assert_eq!(first.request("GET", "/health", &[], b"").unwrap().status, 200);
    let body = json!({"inputs": {"x": [[1, 2, 3]]}}).to_string();
    let head = format!("POST /run HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut waiting: Vec<_> = (0..5).map(|_| server.connect()).collect();
    waiting.iter_mut().for_each(|client| assert!(client.send(format!("{head}{body}").as_bytes())));
    server.terminate();
    for mut client in waiting {
        assert_eq!(client.answer().expect("each request is answered").status, 200);
    }
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn half_a_head_is_no_request() {
    let options = ["--linger", "0", "--grace", "30", "--read-time", "0.5"];
    let mut server = Server::start(&distances("[?,3]"), &options);
    let mut half = server.connect();
    half.send(b"POST /run HTTP/1.1\r\nHost: ");
    while server.metric("serve_connections") < 2.0 {}
    let begun = Instant::now();
    server.terminate();
    assert_eq!(server.wait().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn who_connects_at_the_last_moment_is_answered() {
    let mut server = Server::start(&distances("[?,3]"), &["--linger", "0.5"]);
    server.is_well();
    server.terminate();
    thread::sleep(Duration::from_millis(200));
    // It stands still while the time runs out in which it accepts.
    server.signal("STOP");
    let body = json!({"inputs": {"x": [[1, 2, 3]]}}).to_string();
    let head = format!("POST /run HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert!(client.send(format!("{head}{body}").as_bytes()));
    }
    thread::sleep(Duration::from_millis(500));
    server.signal("CONT");
    for mut client in clients {
        let answer = client.answer().expect("each request is answered");
        assert!(answer.status == 200 && answer.head.contains("connection: close"), "{answer:?}");
    }
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_run_that_nobody_waits_for_does_not_keep_it() {
    let mut server = Server::start(&slow(), &["--linger", "0", "--grace", "0.3"]);
    let mut input = slow_input(&server, Duration::from_millis(700));
    let rows = input.as_array_mut().unwrap();
    *rows = vec![rows[0].clone(); rows.len() * 10];
    let body = json!({"inputs": {"x": input}}).to_string();
    let before = server.metric("serve_active_requests");
    let mut gone = server.connect();
    let head = format!("POST /run HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", body.len());
    gone.send(&[head.as_bytes(), body.as_bytes()].concat());
    while server.metric("serve_active_requests") <= before {}
    // Long enough for the worker to have taken it.
    thread::sleep(Duration::from_millis(500));
    drop(gone);
    while server.metric("serve_active_requests") > before {}
    server.terminate();
    assert_eq!(server.wait().code(), Some(1));
}
