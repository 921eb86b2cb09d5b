//! `opsmith bench`: what is timed, what is not and why, the report and the plot.

use std::process::Output;

use crate::common::{library, opsmith, stderr, stdout};
use serde_json::Value;
use tempfile::TempDir;

fn bench(name: &str, arguments: &[&str]) -> Output {
    opsmith().arg("bench").arg(library(name)).args(["--seconds", "0"]).args(arguments).output().unwrap()
}

fn report(name: &str, arguments: &[&str]) -> Value {
    let output = bench(name, &[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn names(report: &Value) -> Vec<&str> {
    report["ops"].as_array().unwrap().iter().map(|op| op["op"].as_str().unwrap()).collect()
}

/// Why an op was not timed.
fn reason<'a>(report: &'a Value, op: &str) -> &'a str {
    let ops = report["ops"].as_array().unwrap();
    ops.iter().find(|found| found["op"] == op).unwrap()["not_timed"].as_str().unwrap()
}

#[test]
fn an_op_is_timed_at_each_size() {
    let report = report("distances", &["--sizes", "8,2,8", "--dtype", "float64"]);
    assert_eq!((&report["library"], &report["dtype"]), (&"distances".into(), &"float64".into()));
    let [op] = &report["ops"].as_array().unwrap()[..] else { panic!("{report}") };
    assert!(op["not_timed"].is_null());
    let times = op["times"].as_array().unwrap();
    let sizes: Vec<u64> = times.iter().map(|time| time["size"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [2, 8]);
    for (time, n) in times.iter().zip(sizes) {
        assert!(time["seconds"].as_f64().unwrap() > 0.0 && time["repetitions"].as_u64().unwrap() >= 3);
        assert_eq!(time["inputs"], format!("[{n},{n}] [{n},{n}]"));
        assert_eq!((&time["output_elements"], &time["bytes"]), (&(n * n).into(), &(3 * n * n * 8).into()));
    }
}

#[test]
fn gradients_are_timed_on_demand_and_ops_by_name() {
    let small = ["--sizes", "2"];
    let all =
        ["PairwiseManhattanDistance", "PairwiseManhattanDistanceGrad", "PairwiseManhattanDistanceGradGrad"];
    assert_eq!(names(&report("distances", &small)), all[..1]);
    assert_eq!(names(&report("distances", &["--sizes", "2", "--gradients"])), all);
    let one = ["pairwise_manhattan_distance_grad", "--sizes", "2"];
    assert_eq!(names(&report("distances", &one)), all[1..2]);
    assert_eq!(names(&report("distances", &[&one[..], &["--gradients"]].concat())), all[1..]);
    let output = bench("distances", &["cosine"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("has no op `cosine`; it has: Pairwise"), "{}", stderr(&output));
}

#[test]
fn every_op_of_the_examples_is_timed() {
    for name in ["activations", "pairwise", "reductions"] {
        let report = report(name, &["--sizes", "3", "--gradients"]);
        for op in report["ops"].as_array().unwrap() {
            assert!(op["not_timed"].is_null() && op["times"].as_array().unwrap().len() == 1, "{name}: {op}");
        }
    }
}

#[test]
fn ops_with_bounded_attributes_and_indices_are_timed() {
    let faulty = report("opsmith_faulty", &["rows_of", "--sizes", "2,16"]);
    let [op] = &faulty["ops"].as_array().unwrap()[..] else { panic!("{faulty}") };
    assert_eq!(op["times"].as_array().unwrap().len(), 2, "{op}");
    assert_eq!(op["times"][1]["inputs"], "[16,16] [16]");
    let none = report("opsmith_faulty", &["takes_none", "--sizes", "2"]);
    let said = reason(&none, "TakesNone");
    assert!(
        said.starts_with("it accepts no call that was generated: TakesNone: `x` has 4 elements"),
        "{said}"
    );
}

#[test]
fn what_is_not_timed_is_told_with_the_reason() {
    let changed = report("zero_out", &["--sizes", "2"]);
    let said = reason(&changed, "ZeroOutInPlace");
    assert_eq!(said, "it changes `to_zero` in place, so no two calls are alike");
    let other = report("distances", &["--dtype", "int32"]);
    let said = reason(&other, "PairwiseManhattanDistance");
    assert_eq!(said, "it has no kernel for int32; it has float32, float64");
    let large = report("distances", &["--sizes", "2,100000"]);
    let said = reason(&large, "PairwiseManhattanDistance");
    assert_eq!(said, "size 100000: its inputs would take more than 1 GiB");
    assert_eq!(large["ops"][0]["times"].as_array().unwrap().len(), 1);
}

#[test]
fn the_table_has_a_line_for_each_size() {
    let output = bench("distances", &["--sizes", "2,4", "--dtype", "double"]);
    let table = stdout(&output);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "distances 0.1.0, float64");
    assert_eq!(lines[2], "PairwiseManhattanDistance");
    assert!(lines[3].starts_with("    size       time  elements/s    bytes/s  inputs"), "{table}");
    assert!(lines[4].starts_with("       2  ") && lines[4].ends_with("  [2,2] [2,2]"), "{table}");
    assert!(lines[5].starts_with("       4  ") && lines.len() == 6, "{table}");
}

#[test]
fn the_plot_has_a_line_for_each_op() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("times.svg");
    let plot = ["--plot", path.to_str().unwrap()];
    let output = bench("distances", &[&plot[..], &["--gradients", "--sizes", "2,4,8"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let svg = std::fs::read_to_string(&path).unwrap();
    assert_eq!(svg.matches("<circle").count(), 9);
    for text in ["PairwiseManhattanDistanceGradGrad", "size of every dim", "time of a call, float32"] {
        assert!(svg.contains(text), "{text} is not in\n{svg}");
    }
    assert!(svg.starts_with("<svg") && !svg.contains("NaN"));
    std::fs::remove_file(&path).unwrap();
    // One op, one size: a picture all the same.
    let output = bench("distances", &[&plot[..], &["--sizes", "4"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(&path).unwrap().matches("<circle").count(), 1);
    let output = bench("distances", &[&plot[..], &["--dtype", "int8"]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("nothing to plot"), "{}", stderr(&output));
}

#[test]
fn shapes_are_given_by_the_names_of_inputs() {
    for (name, arguments, inputs) in [
        ("activations", &["swiglu", "--shape", "gate=4", "--shape", "x=6,4"][..], &["[4] [6,4]"][..]),
        ("activations", &["swiglu", "--shape", "gate=1,4", "--shape", "x=6,1"], &["[1,4] [6,1]"]),
        // What is not given follows.
        ("activations", &["swiglu", "--shape", "x=6,4,2"], &["[6,4,2] [6,4,2]"]),
        ("activations", &["swiglu", "--shape", "x="], &["[] []"]),
        ("activations", &["gelu", "--shape", "x=1,2,1,9,3"], &["[1,2,1,9,3]"]),
        // What is open has the sizes.
        ("distances", &["--shape", "y=7,3", "--sizes", "2,5"], &["[2,3] [7,3]", "[5,3] [7,3]"]),
        ("distances", &["--shape", "y=7,3", "--shape", "x=2,3"], &["[2,3] [7,3]"]),
    ] {
        let report = report(name, arguments);
        let op = &report["ops"][0];
        let times = op["times"].as_array().unwrap();
        let timed: Vec<&str> = times.iter().map(|time| time["inputs"].as_str().unwrap()).collect();
        assert_eq!(timed, inputs, "{op}");
        assert_eq!(times[0]["size"].is_null(), inputs.len() == 1, "{op}");
    }
    // Ops without such an input are timed as always.
    let both = report("activations", &["swiglu", "gelu", "--shape", "gate=3", "--sizes", "2"]);
    let inputs = [0, 1].map(|op| both["ops"][op]["times"][0]["inputs"].as_str().unwrap());
    assert_eq!(inputs, ["[2,2]", "[3] [3]"]);
    let table = stdout(&bench("activations", &["gelu", "--shape", "x=3,5"]));
    let line = table.lines().nth(4).unwrap();
    assert!(line.starts_with("       -  ") && line.ends_with("  [3,5]"), "{table}");
}

#[test]
fn attributes_are_given_by_their_names() {
    let given = report("activations", &["leaky_relu", "--attr", "slope=0.25", "--sizes", "2"]);
    assert_eq!(given["ops"][0]["times"][0]["attributes"], "slope = 0.25", "{given}");
    let given = report("zero_out", &["attr_defaults", "--attr", "l_float=[0.5, 2]"]);
    assert!(
        given["ops"][0]["times"][0]["attributes"].as_str().unwrap().contains("l_float = [0.5, 2.0]"),
        "{given}"
    );
    for (arguments, message) in [
        (&["leaky_relu", "--attr", "slope"][..], "write an attribute and its value, such as size=7"),
        (&["leaky_relu", "--attr", "=1"], "write an attribute and its value, such as size=7"),
        (&["leaky_relu", "--attr", "slop=1"], "has an attribute `slop`; they have: T, slope"),
        (&["leaky_relu", "--attr", "slope=1", "--attr", "slope=2"], "--attr: `slope` has two values"),
        (&["leaky_relu", "--attr", "slope=steep"], "attribute `slope`: cannot be read as float"),
        (&["leaky_relu", "--attr", "T=float32"], "attribute `T` follows from the inputs"),
        (
            &["attr_defaults", "--attr", "ty=DT_DOUBLE"],
            "attribute `ty` is a dtype, which follows from `--dtype`",
        ),
        (&["attr_defaults", "--attr", "l_type=[DT_HALF]"], "attribute `l_type` is a dtype"),
        (
            &["fruit_price", "--attr", "fruit=kiwi"],
            "attribute `fruit` must be one of 'apple', 'orange', got 'kiwi'",
        ),
        // Refused at once, and before anything of that size is made.
        (&["zero_out_preserve", "--attr", "preserve_index=9223372036854775807"], "preserve_index"),
    ] {
        let library = if arguments[0] == "leaky_relu" { "activations" } else { "zero_out" };
        let output = bench(library, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {}", stdout(&output));
        assert!(stderr(&output).contains(message), "{arguments:?} {}", stderr(&output));
    }
}

#[test]
fn shapes_that_cannot_be_are_told() {
    let deep = format!("x={}", ["4"; 200].join(","));
    let [front, back] = ["4", "1"].map(|dim| [dim; 12].join(","));
    let (broad, across) = (format!("x={front},{back}"), format!("gate={back},{front}"));
    let rank = format!("x={}", ["1"; 255].join(","));
    for (name, op, shapes, message) in [
        ("activations", "swiglu", &["z=3"][..], "has an input `z`; they have: gate, x"),
        ("activations", "swiglu", &["x=3", "x=3"], "--shape: `x` has two shapes"),
        ("zero_out", "counter", &["x=3"], "has an input `x`; they have no inputs"),
        ("activations", "swiglu", &["=3"], "write an input and its dims, such as x=1000,64"),
        ("activations", "swiglu", &["x"], "write an input and its dims, such as x=1000,64"),
        ("activations", "swiglu", &["x=3,-1"], "`-1` is no dim of `x`: it is a number from 1 to 18446"),
        ("activations", "swiglu", &["x=0"], "`0` is no dim of `x`"),
        ("activations", "swiglu", &["x=3,"], "`` is no dim of `x`"),
        ("activations", "swiglu", &["x=99999999999999999999"], "`99999999999999999999` is no dim of `x`"),
        ("activations", "swiglu", &[&rank], "`x` has 255 dims, and a tensor has at most 254"),
        ("activations", "swiglu", &["x=1000", "gate=999"], "error: Swiglu: input `gate` of shape [999]"),
        ("activations", "swiglu", &["x=1000000,1000000"], "Swiglu: its inputs would take more than 1 GiB"),
        ("activations", "swiglu", &["x=18446744073709551615,2"], "its inputs would take more than 1 GiB"),
        ("activations", "swiglu", &["x=60000,1", "gate=1,60000"], "its outputs would take more than 1 GiB"),
        ("activations", "gelu", &[&deep], "its inputs would take more than 1 GiB"),
        ("activations", "swiglu", &[&broad, &across], "its outputs would take more than 1 GiB"),
        (
            "activations",
            "swiglu",
            &["x=2,2,2,2"],
            "Swiglu: no rank of `gate` beside x=[2,2,2,2] was found: give its shape, too",
        ),
        (
            "activations",
            "lltm_cell",
            &["g0=9999999,1,1", "g1=1,9999999,1", "g2=1,1,9999999", "old_cell=1"],
            "1 GiB",
        ),
        (
            "distances",
            "pairwise_manhattan_distance",
            &["x=3"],
            "no call has x=[3]: the shapes are (n,p),(m,p)->(n,m)",
        ),
        (
            "distances",
            "pairwise_manhattan_distance",
            &["x=2,3", "y=2,4"],
            "no call has x=[2,3] y=[2,4]: the shapes",
        ),
    ] {
        let given = shapes.iter().flat_map(|shape| ["--shape", shape]);
        let output = bench(name, &[op].into_iter().chain(given).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(2), "{shapes:?} {}", stdout(&output));
        assert!(stderr(&output).contains(message), "{shapes:?} {}", stderr(&output));
    }
}

#[test]
fn wrong_arguments_are_told() {
    for (arguments, message) in [
        (["--sizes", "4,0"], "a size is a number from 1 to 18446744073709551615"),
        (["--sizes", "18446744073709551616"], "a size is a number from 1 to 18446744073709551615"),
        (["--dtype", "float31"], "there are float32, float64"),
        (["--dtype", "string"], "there are float32, float64"),
        (["--seconds", "10000"], "a number of seconds, up to 3600"),
        (["--sizes", "4"], "nothing.so: there is no such file"),
    ] {
        let output = opsmith().args(["bench", "nothing.so"]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
        assert!(!stderr(&output).contains(", string"), "{}", stderr(&output));
    }
}

/// Runs `opsmith bench` with so many KiB of addresses.
fn limited(kib: usize, name: &str, arguments: &[&str]) -> Output {
    let program = opsmith().get_program().to_owned();
    std::process::Command::new("sh")
        .args(["-c", &format!("ulimit -v {kib} && exec \"$@\""), "sh"])
        .arg(program)
        .arg("bench")
        .arg(library(name))
        .args(["--seconds", "0"])
        .args(arguments)
        .env("OPSMITH_NUM_THREADS", "1")
        .output()
        .unwrap()
}

#[test]
fn many_small_dims_are_tried_small() {
    let [all, threes] = ["4", "3"].map(|dim| format!("x={}", [dim; 10].join(",")));
    let begun = std::time::Instant::now();
    let timed = report("activations", &["gelu", "--shape", &all]);
    assert_eq!(timed["ops"][0]["times"][0]["output_elements"], 1 << 20, "{timed}");
    // Refused for whatever is tried.
    let output = bench("opsmith_faulty", &["takes_none", "--shape", &threes]);
    assert!(stderr(&output).contains("no call has x=[3,3,3"), "{}", stderr(&output));
    let output = bench("opsmith_faulty", &["takes_none", "--shape", "x=100000"]);
    assert_eq!(output.status.code(), Some(2));
    let said =
        "TakesNone: it accepts no smaller call with x=[4] in place of x=[100000]: TakesNone: `x` has 4 ";
    assert!(stderr(&output).contains(said), "{}", stderr(&output));
    let output = bench("opsmith_faulty", &["takes_none", "--shape", "x=6"]);
    assert!(stderr(&output).contains("error: TakesNone: `x` has 6 elements"), "{}", stderr(&output));
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}

#[test]
fn memory_is_limited_before_it_is_taken() {
    for (op, shape, dtype, message) in [
        ("non_zero", "x=40000000,2", "int8", "NonZero: its outputs would take more than 1 GiB"),
        ("non_zero", "x=140000000", "float64", "NonZero: its inputs would take more than 1 GiB"),
    ] {
        let output = limited(1 << 20, "zero_out", &[op, "--shape", shape, "--dtype", dtype]);
        assert_eq!(output.status.code(), Some(2), "{shape} {}", stdout(&output));
        assert!(stderr(&output).contains(message), "{shape} {}", stderr(&output));
    }
    // What is allowed, and does not fit.
    let output = limited(700_000, "activations", &["gelu", "--shape", "x=200000000"]);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    let said = "Gelu: cannot allocate 800000000 bytes for a generated input";
    assert!(stderr(&output).contains(said), "{}", stderr(&output));
}

#[test]
fn a_dtype_that_a_definition_does_not_allow_is_not_timed() {
    let text = report("zero_out", &["--dtype", "float64", "--sizes", "2"]);
    assert_eq!(reason(&text, "StringToNumber"), "it has no kernel for float64; it has float32, int32");
}

#[test]
fn what_was_measured_is_printed_whatever_fails_then() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("times.svg");
    let plot = ["--plot", path.to_str().unwrap()];
    let output = bench("activations", &[&plot[..], &["gelu", "--shape", "x=3,5"]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("  [3,5]"), "{}", stdout(&output));
    assert!(stderr(&output).contains("nothing to plot") && !path.exists(), "{}", stderr(&output));
    // Nothing is timed where the picture cannot be written.
    let nowhere = folder.path().join("none/times.svg");
    let output = bench("activations", &["gelu", "--plot", nowhere.to_str().unwrap()]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
    assert!(stderr(&output).contains("times.svg: cannot be written"), "{}", stderr(&output));
    // Ops without the input are timed, but do not count where no op accepts the shape.
    let shape = ["--shape", "gate=2,2,2,2", "--sizes", "2"];
    let output = bench("activations", &[&["gelu", "swiglu"][..], &shape].concat());
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(stdout(&output).contains("  [2,2]"), "{}", stdout(&output));
    assert!(stderr(&output).contains("error: Swiglu: no rank of `x`"), "{}", stderr(&output));
}
