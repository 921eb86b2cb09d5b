//! `opsmith check`: it finds every fault that was planted, and none in the examples.

use std::collections::BTreeSet;
use std::process::Output;

use crate::common::{library, opsmith, stderr, stdout};
use serde_json::Value;

fn check(name: &str, arguments: &[&str]) -> Output {
    opsmith().arg("check").arg(library(name)).args(arguments).output().unwrap()
}

/// The report, and the exit status.
fn report(name: &str, arguments: &[&str]) -> (Value, Option<i32>) {
    let output = check(name, &[arguments, &["--json"]].concat());
    let json = serde_json::from_slice(&output.stdout);
    (json.unwrap_or_else(|_| panic!("{}", stderr(&output))), output.status.code())
}

fn rows(report: &Value, verdict: &str) -> BTreeSet<(String, String)> {
    let rows = report["rows"].as_array().unwrap().iter().filter(|row| row["verdict"] == verdict);
    let text = |json: &Value| json.as_str().unwrap().to_owned();
    rows.map(|row| (text(&row["op"]), text(&row["property"]))).collect()
}

/// One row of a report.
fn row<'a>(report: &'a Value, op: &str, property: &str) -> &'a Value {
    let rows = report["rows"].as_array().unwrap();
    rows.iter().find(|row| row["op"] == op && row["property"] == property).unwrap()
}

fn assert_passes(name: &str) {
    let (report, status) = report(name, &["--cases", "10"]);
    assert_eq!(rows(&report, "failed"), BTreeSet::new(), "{report:#}");
    assert_eq!(status, Some(0));
    // What was skipped was not skipped for want of cases.
    for row in report["rows"].as_array().unwrap().iter().filter(|row| row["verdict"] == "skipped") {
        assert!(!row["why"].as_str().unwrap().contains("in time"), "{row}");
    }
}

#[test]
fn the_distances_pass() {
    assert_passes("distances");
    let (report, _) = report("distances", &["--cases", "3"]);
    let skipped = rows(&report, "skipped");
    let cuda = skipped.iter().filter(|(_, property)| property == "cuda").count();
    // Where there is a card, they are called on it.
    assert!(matches!((cuda, skipped.len()), (3, 9) | (0, 6)), "{skipped:?}");
}

#[test]
fn zero_out_in_all_versions_passes() {
    assert_passes("zero_out");
}

#[test]
fn the_activations_pass() {
    assert_passes("activations");
}

#[test]
fn the_reductions_pass() {
    assert_passes("reductions");
}

#[test]
fn the_pairwise_folds_pass() {
    assert_passes("pairwise");
}

/// The ops of the faulty library, the property that each lacks, and part of what is said of it.
const FAULTS: [(&str, &str, &str); 20] = [
    ("WrongSign", "gradient", "the gradient by `y` at y[0] is 0.25"),
    ("IgnoredOutput", "gradient", "the gradient by `x` at x[0]"),
    ("Shrunk", "gradient", "Here `by` is 0: if 0 need not be allowed, write `above = 0.0`"),
    ("WrongSecondGrad", "gradient", "the gradient by `x` at x[0]"),
    ("SwappedDims", "shapes", "output `products` has shape [1, 2], but [2,1] was inferred"),
    ("SwappedDims", "empty", "output `products` has shape [1, 0], but [0,1] was inferred"),
    ("LateCheck", "ill-formed", "the call succeeds, though shape inference refuses it"),
    ("TrustsShapes", "ill-formed", "SIGSEGV"),
    ("OutsideTheView", "strided", "which dense tensors give"),
    ("LeavesAHole", "determinism", "not written at all"),
    ("CountsThreads", "threads", "with 2 threads `y`[0] is -4 instead of -5"),
    ("EndsOnNoPixels", "empty", "SIGABRT"),
    ("EndsOnNoPixels", "ill-formed", "SIGABRT"),
    ("EndsOnEmpty", "empty", "SIGABRT"),
    ("EndsOnEmpty", "ill-formed", "SIGABRT"),
    ("PanicsOnInfinity", "extremes", "an internal error: PanicsOnInfinity: panicked at"),
    ("NeedsTheOther", "wanted", "where `double` is not wanted, `triple`[0] is 0.125 instead of 0.375"),
    ("ClaimsColumns", "parallel", "cut along the free axis `m` as 1 + 1, `y`[0, 0] is"),
    ("ClaimsSum", "parallel", "cut along the free axis `n` as 1 + 1, `y` is 0.375 instead of 0.1875"),
    ("NeverDone", "shapes", "was not done within 1 s"),
];

#[test]
fn every_planted_fault_is_found_and_no_other() {
    let mut ops: Vec<&str> = FAULTS.iter().map(|(op, _, _)| *op).filter(|op| *op != "NeverDone").collect();
    ops.extend(["Right", "WrongSignGrad", "WrongSecond", "WrongSecondGradGrad", "IgnoredOutputGrad"]);
    ops.dedup();
    let arguments: Vec<&str> = ops.iter().flat_map(|op| ["--op", op]).collect();
    let (report, status) = report("opsmith_faulty", &arguments);
    assert_eq!(status, Some(1));
    let faults = FAULTS.iter().filter(|(op, _, _)| *op != "NeverDone");
    let expected: BTreeSet<_> =
        faults.clone().map(|(op, property, _)| ((*op).to_owned(), (*property).to_owned())).collect();
    assert_eq!(rows(&report, "failed"), expected, "{report:#}");
    for (op, property, message) in faults {
        let said = row(&report, op, property)["message"].as_str().unwrap();
        assert!(said.contains(message), "{op}: {said}");
    }
}

#[test]
fn what_is_said_of_the_first_call_is_said_where_none_is_accepted() {
    let output = check("opsmith_faulty", &["--op", "takes_none", "--property", "determinism"]);
    assert_eq!(output.status.code(), Some(0));
    let said = stdout(&output);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, said) = said.split_once("skipped determinism no call was accepted ").unwrap();
    assert!(said.starts_with("TakesNone: `x` has "), "{said}");
    assert!(
        said.contains("there have to be 1000000000000 of them at least, for whatever reason 0 passed"),
        "{said}"
    );
}

#[test]
fn a_call_without_end_is_ended() {
    let arguments = ["--op", "never_done", "--property", "shapes", "--time-limit", "1"];
    let (report, status) = report("opsmith_faulty", &arguments);
    let (op, property, message) = FAULTS[FAULTS.len() - 1];
    let said = row(&report, op, property)["message"].as_str().unwrap();
    assert!(said.contains(message), "{said}");
    assert_eq!(status, Some(1));
}

#[test]
fn a_failing_case_is_small_and_a_line_of_python() {
    for seed in ["0", "1", "2"] {
        let (report, _) = report("opsmith_faulty", &["--op", "wrong_sign", "--seed", seed]);
        let python = row(&report, "WrongSign", "gradient")["python"].as_str().unwrap();
        let call = python.split_once("wrong_sign_grad(").unwrap().1;
        let one = "np.array([0.125], 'float64')";
        assert_eq!(call, format!("{one}, {one}, np.array([-2.0], 'float64')))"));
        let (before, _) = python.split_once("wrong_sign_grad(").unwrap();
        assert!(before.starts_with("import numpy as np, opsmith; print(opsmith.load("), "{before}");
    }
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let run = || report("opsmith_faulty", &["--op", "outside_the_view", "--op", "right", "--seed", "7"]).0;
    assert_eq!(run(), run());
}

#[test]
fn the_table_says_what_is_wrong_and_the_status_that_something_is() {
    let output = check("opsmith_faulty", &["--op", "swapped_dims", "--property", "shapes"]);
    assert_eq!(output.status.code(), Some(1));
    let table = stdout(&output);
    assert!(
        table.contains("  failed   shapes       0 cases\n           output `products` has shape [1, 2]"),
        "{table}"
    );
    assert!(table.ends_with("0 passed, 1 failed, 0 skipped\n"), "{table}");
    let output = check("distances", &["--op", "pairwise_manhattan_distance", "--property", "cuda"]);
    assert_eq!(output.status.code(), Some(0));
    // Why not depends on the machine, and is in words: never the name of a driver's function.
    let said = stdout(&output);
    let not_run =
        said.split_once("  skipped  cuda         not run: ").and_then(|(_, why)| why.lines().next());
    match not_run {
        Some(why) => assert!(why.contains(' ') && !why.contains("cuInit"), "{said}"),
        None => assert!(said.contains("  passed   cuda         32 cases\n"), "{said}"),
    }
    let output = check("opsmith_faulty", &["--op", "swapped_dims", "--property", "cuda"]);
    assert!(stdout(&output).contains("  skipped  cuda         it has no CUDA kernel\n"));
    // The path in the line of Python is as long as it is, everything else keeps to 80 columns.
    for line in table.lines().filter(|line| !line.contains("import numpy")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn what_cannot_be_checked_is_told() {
    for (arguments, message) in [
        (&["nothing.so"][..], "nothing.so: there is no such file"),
        (&[env!("CARGO_MANIFEST_PATH")], "is not a shared library but a text file"),
    ] {
        let output = opsmith().arg("check").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
    for (arguments, message) in [
        (["--op", "nothing"], "has no op `nothing`; it has: PairwiseManhattanDistance"),
        (["--property", "nothing"], "there are shapes, empty, scalars"),
    ] {
        let output = check("distances", &arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
}

#[test]
fn no_cases_at_all_are_refused() {
    let output = opsmith().arg("check").arg(library("distances")).args(["--cases", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("invalid value '0' for '--cases <N>'"), "{}", stderr(&output));
}
