//! What is asked and what is answered.

use opsmith_runtime::{Session, Tensor, tensors_from_bytes, tensors_to_bytes};
use serde_json::json;

use crate::client::{Answer, Server};
use crate::{distances, graph};

const SAFETENSORS: &str = "Content-Type: application/safetensors";

#[test]
fn both_formats_give_what_a_session_gives() {
    let model = distances("[?,3]");
    let x = Tensor::from_slice(&[0.1_f32, -2.0, 3.5, 1e-3, 0.25, 7.0], &[2, 3]).unwrap();
    let (input, output) = (model.output("x").unwrap(), model.output("y").unwrap());
    let expected = Session::new(&model).run(&[&output], &[(&input, &x)]).unwrap()[0].to_vec::<f32>().unwrap();

    let server = Server::start(&model, &[]);
    let answer = server.run(&json!([[0.1, -2, 3.5], [1e-3, 0.25, 7.0]]));
    assert_eq!(answer.status, 200);
    let y: Vec<Vec<f32>> = serde_json::from_value(answer.json()["outputs"]["y"].clone()).unwrap();
    assert_eq!(y.concat(), expected);

    let body = tensors_to_bytes(&[("x", &x)]).unwrap();
    let answer = server.request("POST", "/run", &[SAFETENSORS], &body);
    let y = tensors_from_bytes(answer.body).unwrap();
    assert_eq!((y[0].0.as_str(), y[0].1.shape()), ("y", &[2, 4][..]));
    assert_eq!(y[0].1.to_vec::<f32>().unwrap(), expected);
    let headers = ["content-type: Application/SafeTensors", "Accept: application/JSON"];
    let answer = server.request("POST", "/run", &headers, &body);
    assert!(answer.json()["outputs"]["y"][1][3].is_number());
    for (accept, is_json) in [
        ("text/html, application/safetensors;q=0.9, application/json;q=0.8", false),
        ("application/json;q=0, */*", false),
        ("*/*", false),
        ("application/safetensors;q=0, application/json", true),
    ] {
        let headers = ["Content-Type: application/safetensors", &format!("Accept: {accept}")];
        let answer = server.request("POST", "/run", &headers, &body);
        assert_eq!(answer.head.contains("application/json"), is_json, "{accept}: {}", answer.head);
    }

    let empty = server.run(&json!([]));
    assert_eq!((empty.status, empty.json()), (200, json!({"outputs": {"y": []}})));
}

#[test]
fn it_says_what_it_serves() {
    let server = Server::start(&distances("[?,3]"), &[]);
    server.is_well();
    let expected = json!({
        "inputs": [{"name": "x", "dtype": "float32", "shape": [null, 3]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": [null, 4]}],
        "batched": true,
    });
    assert_eq!(server.request("GET", "/model", &[], b"").json(), expected);
    server.run(&json!([[1, 2, 3]]));
    assert_eq!(server.metric("serve_run_requests_total"), 1.0);
    assert_eq!(server.metric("serve_request_seconds_count"), 1.0);
    assert_eq!(server.metric("serve_answers_total{code=\"200\"}"), 5.0);
    assert!(server.metric("process_resident_memory_bytes") > 1e6);
    assert_eq!(server.request("GET", "/run", &[], b"").status, 405);
    assert_eq!(server.request("POST", "/health", &[], b"").status, 405);
    assert_eq!(server.request("HEAD", "/run", &[], b"").status, 405);
    let head = server.request("HEAD", "/health", &[], b"");
    assert!(head.status == 200 && head.head.contains("content-length: 15"), "{head:?}");
    let answer = server.request("GET", "/other", &[], b"");
    assert!(answer.status == 404 && answer.message().contains("`POST /run`"), "{answer:?}");
}

fn refused(answer: &Answer, status: u16, parts: &[&str]) {
    assert_eq!(answer.status, status, "{answer:?}");
    for part in parts {
        assert!(answer.message().contains(part), "{part} is not in {}", answer.message());
    }
}

#[test]
fn malformed_json_is_refused_with_what_was_expected() {
    let server = Server::start(&distances("[?,3]"), &[]);
    let deep = format!("{{\"inputs\": {{\"x\": {}", "[".repeat(100_000));
    let cases: [(&[u8], &str); 21] = [
        (b"", "expected `{` at byte 0, got the end"),
        (b"[1]", "expected `{` at byte 0, got `[`"),
        (b"{\"inputs\": {\"x\": [[1, 2, 3]]}", "expected `}` at byte 29, got the end"),
        (b"{\"inputs\": {\"x\": [[1, 2, 3]]}} {}", "something follows"),
        (b"{\"input\": {}}", "expected the key `inputs` and no other, got `input`"),
        (b"{\"inputs\": {\"x\": [[1, 2, 3]]}, \"outputs\": []}", "and no other, got `outputs`"),
        (b"{\"inputs\": {}}", "input `x` is missing: expected float32 of shape [?,3]"),
        (b"{\"inputs\": {\"X\": 1}}", "no input `X`"),
        (b"{\"inputs\": {\"x\": [], \"x\": []}}", "twice"),
        (b"{\"inputs\": {\"x\": [[1, 2, \"a\"]]}}", "input `x`: expected float32, got \"a\""),
        (b"{\"inputs\": {\"x\": [[1, 2, null]]}}", "input `x`: expected float32, got null"),
        (
            b"{\"inputs\": {\"x\": [[1, 2, 1e39]]}}",
            "expected float32, got 1e39, which is out of the range of float32",
        ),
        (
            b"{\"inputs\": {\"x\": [[1, 2, NaN]]}}",
            "got NaN: JSON has no such number, write \"nan\" in quotes",
        ),
        (b"{\"inputs\": {\"x\": [[1, 2, -Infinity]]}}", "write \"-inf\" in quotes"),
        (b"{\"inputs\": {\"x\": [[1, 2, 3], [4]]}}", "lists of 3 and 1 elements"),
        (b"{\"inputs\": {\"x\": [[1, 2, 3], 4]}}", "lists of different depths"),
        (b"{\"inputs\": {\"x\": [1, [2]]}}", "lists of different depths"),
        (b"{\"inputs\": {\"x\": [[1, 2, 3}}", "expected `]`"),
        (b"{\"inputs\": {\"x\": [[1, 2, 3],", "expected a list or an element at byte 28, got the end"),
        (b"{\"inputs\": {\"x\": \"\xff\"}}", "not UTF-8"),
        (deep.as_bytes(), "254 deep"),
    ];
    for (body, message) in cases {
        refused(&server.request("POST", "/run", &[], body), 400, &[message]);
    }
    refused(&server.request("POST", "/run", &["Content-Type: text/html"], b"x"), 415, &["got `text/html`"]);
    refused(&server.request("POST", "/run", &["Content-Encoding: gzip"], b"x"), 415, &["gzip"]);
    server.is_well();
}

#[test]
fn what_does_not_fit_is_refused_in_the_ops_words() {
    let server = Server::start(&distances("[?,3]"), &[]);
    let answer = server.run(&json!([[1.0, 2.0]]));
    refused(&answer, 400, &["input `x` is of shape [1, 2]: expected float32 of shape [?,3]"]);
    assert_eq!(answer.json()["error"]["argument"], json!("x"));
    refused(&server.run(&json!(1.0)), 400, &["input `x` is of shape []"]);
    let wrong = tensors_to_bytes(&[("x", &Tensor::from_slice(&[1_i64, 2, 3], &[1, 3]).unwrap())]).unwrap();
    let answer = server.request("POST", "/run", &[SAFETENSORS], &wrong);
    assert_eq!(answer.message(), "input `x` is int64: expected float32 of shape [?,3]");
    assert_eq!((answer.status, &answer.json()["error"]["argument"]), (400, &json!("x")));
    assert_eq!(server.metric("serve_request_seconds_count"), 3.0);
    let whole = tensors_to_bytes(&[("x", &Tensor::from_slice(&[1_f32, 2., 3.], &[1, 3]).unwrap())]).unwrap();
    for length in [0, 7, 8, 40, whole.len() - 1] {
        refused(&server.request("POST", "/run", &[SAFETENSORS], &whole[..length]), 400, &["safetensors"]);
    }
    let json = br#"{"inputs": {"x": [[1, 2, 3]]}}"#;
    refused(&server.request("POST", "/run", &[SAFETENSORS], json), 400, &["Content-Type: application/json"]);
    let other = tensors_to_bytes(&[("z", &Tensor::scalar(1_f32).unwrap())]).unwrap();
    refused(&server.request("POST", "/run", &[SAFETENSORS], &other), 400, &["no input `z`"]);

    // Nothing is known of the rows before the op sees them.
    let server = Server::start(&distances("[?,?]"), &[]);
    let answer = server.run(&json!([[1.0, 2.0]]));
    refused(&answer, 400, &["PairwiseManhattanDistance", "p", "2", "3"]);
    assert_eq!(answer.json()["error"]["op"], json!("PairwiseManhattanDistance"));
}

#[test]
fn numbers_that_json_lacks_are_words() {
    let server = Server::start(&graph("[?]", |_, x| x + x), &[]);
    let answer = server.run(&json!(["inf", "-inf", "nan", 0.1, 3.4e38]));
    assert_eq!(answer.json(), json!({"outputs": {"y": ["inf", "-inf", "nan", 0.2, "inf"]}}));
}
