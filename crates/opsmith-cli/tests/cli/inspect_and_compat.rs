//! `opsmith inspect` and `opsmith compat`, as programs are called.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{library, opsmith, stderr, stdout};
use serde_json::{Value, json};
use tempfile::TempDir;

fn run(arguments: &[&Path]) -> Output {
    opsmith().args(arguments).output().unwrap()
}

/// The definitions of the library of distances, as `inspect --json` writes them.
fn definitions() -> Value {
    let output = opsmith().arg("inspect").arg(library("distances")).arg("--json").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A file of these definitions.
fn file(folder: &TempDir, name: &str, definitions: &Value) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, definitions.to_string()).unwrap();
    path
}

/// The definitions with the attribute `a` of the gradient op's default changed.
fn with_another_default() -> Value {
    let mut changed = definitions();
    let attr = &mut changed["ops"][1]["attrs"][0];
    assert_eq!(attr["spec"], "a: int = 1");
    attr["spec"] = json!("a: int = 2");
    changed
}

#[test]
fn every_op_is_shown_within_80_columns() {
    for name in ["distances", "zero_out"] {
        let output = run(&[Path::new("inspect"), &library(name)]);
        assert!(output.status.success(), "{}", stderr(&output));
        let pages = stdout(&output);
        let json: Value = serde_json::from_slice(
            &opsmith().args(["inspect", "--json"]).arg(library(name)).output().unwrap().stdout,
        )
        .unwrap();
        for op in json["ops"].as_array().unwrap() {
            let begin = format!("{}(", op["name"].as_str().unwrap());
            assert!(pages.lines().any(|line| line.starts_with(&begin)), "{begin}");
            for arg in op["inputs"].as_array().unwrap().iter().chain(op["outputs"].as_array().unwrap()) {
                assert!(pages.contains(arg["spec"].as_str().unwrap()), "{arg}");
            }
        }
        // The head has the path, which is as long as it is.
        for line in pages.lines().skip(1) {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(!pages.contains('\u{1b}'), "colours without a terminal");
    }
}

#[test]
fn one_op_is_found_by_either_name() {
    for name in ["PairwiseManhattanDistance", "pairwise_manhattan_distance"] {
        let output =
            opsmith().arg("inspect").arg(library("distances")).args(["--op", name]).output().unwrap();
        let page = stdout(&output);
        assert!(page.starts_with("PairwiseManhattanDistance(x, y) -> z\n"), "{page}");
        assert!(page.contains("x: T, shape (n,p)"), "{page}");
        assert!(
            page.contains("PairwiseManhattanDistanceGrad, from x, y, z_grad, with respect to x, y"),
            "{page}"
        );
        assert!(!page.contains("DistanceGrad("), "{page}");
    }
    let output =
        opsmith().arg("inspect").arg(library("distances")).args(["--op", "nothing"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("has no op `nothing`; it has: PairwiseManhattanDistance,"));
}

#[test]
fn a_file_of_definitions_reads_like_the_library() {
    let folder = TempDir::new().unwrap();
    let saved = file(&folder, "distances.json", &definitions());
    let pages = |path: &Path| {
        let text = stdout(&run(&[Path::new("inspect"), path]));
        text.split_once('\n').unwrap().1.to_owned()
    };
    assert_eq!(pages(&saved), pages(&library("distances")));
}

#[test]
fn a_library_is_compatible_with_its_own_definitions() {
    let folder = TempDir::new().unwrap();
    let saved = file(&folder, "distances.json", &definitions());
    for (old, new) in [(&saved, &library("distances")), (&library("distances"), &library("distances"))] {
        let output = run(&[Path::new("compat"), old, new]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).ends_with("\nno change\n"), "{}", stdout(&output));
    }
}

#[test]
fn a_breaking_change_ends_with_status_1_and_its_reason() {
    let folder = TempDir::new().unwrap();
    let old = file(&folder, "old.json", &with_another_default());
    let output = run(&[Path::new("compat"), &old, &library("distances")]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let table = stdout(&output);
    assert!(
        table.contains("breaking  PairwiseManhattanDistanceGrad, attribute `a`  attr-default-changed\n"),
        "{table}"
    );
    assert!(table.contains("the default was 2, is 1\n"), "{table}");
    assert!(table.ends_with("\n1 breaking, 0 to be looked at, 0 safe\n"), "{table}");

    let output = opsmith().args(["compat", "--json"]).arg(&old).arg(library("distances")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["breaking"], 1);
    let change = &json["changes"][0];
    assert_eq!(change["rule"], "attr-default-changed");
    assert_eq!((&change["part"], &change["name"]), (&json!("attribute"), &json!("a")));
}

#[test]
fn what_an_op_and_its_gradients_have_in_common_is_told_once() {
    let folder = TempDir::new().unwrap();
    let output = opsmith().arg("inspect").arg(library("activations")).arg("--json").output().unwrap();
    let changed = stdout(&output).replace("slope: float = 0.01", "slope: float = 0.02");
    let new = folder.path().join("new.json");
    fs::write(&new, &changed).unwrap();
    let output = run(&[Path::new("compat"), &library("activations"), &new]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let table = stdout(&output);
    assert!(table.contains("breaking  LeakyRelu, attribute `slope`  attr-default-changed\n"), "{table}");
    assert!(!table.contains("LeakyReluGrad, attribute"), "{table}");
    let told = table.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = "its gradients too, LeakyReluGrad, LeakyReluGradGrad, LeakyReluGradGradGrad: 3 breaking \
                (attr-default-changed); --json lists each";
    assert!(told.contains(line), "{table}");
    assert!(table.ends_with("\n4 breaking, 0 to be looked at, 0 safe\n"), "{table}");
}

#[test]
fn two_versions_of_a_library_are_loaded_apart() {
    // Both are of the name `distances`, and no process has two libraries of one name.
    let folder = TempDir::new().unwrap();
    let copy = folder.path().join("libdistances.so");
    fs::copy(library("distances"), &copy).unwrap();
    let output = run(&[Path::new("compat"), &copy, &library("zero_out")]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains("`distances` became `zero_out`"), "{}", stdout(&output));
}

#[test]
fn cautions_fail_only_where_that_is_asked_for() {
    let folder = TempDir::new().unwrap();
    let mut changed = definitions();
    let op = &mut changed["ops"][0];
    op["inputs"].as_array_mut().unwrap().push(json!({"name": "more", "spec": "more: N * T", "doc": ""}));
    op["attrs"].as_array_mut().unwrap().push(json!({"name": "N", "spec": "N: int >= 0 = 0", "doc": ""}));
    op["shape"] = json!("(n,p),(m,p),(k)->(n,m)");
    let new = file(&folder, "new.json", &changed);
    let output = run(&[Path::new("compat"), &library("distances"), &new]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    assert!(
        stdout(&output).contains("caution   PairwiseManhattanDistance, input `more`"),
        "{}",
        stdout(&output)
    );
    let strict = opsmith().args(["compat", "--strict"]).arg(library("distances")).arg(&new).output().unwrap();
    assert_eq!(strict.status.code(), Some(1));
}

#[test]
fn what_cannot_be_compared_ends_with_status_2() {
    let folder = TempDir::new().unwrap();
    let text = folder.path().join("text.json");
    let cases: [(&str, &str); 6] = [
        (
            "{\"name\": \"x\",,}",
            "text.json:1:14: is not JSON: key must be a string\n    {\"name\": \"x\",,}\n",
        ),
        ("{}", "is not what `opsmith inspect LIB --json` writes: it has no list `ops`"),
        ("{\"name\": \"x\", \"version\": \"1\", \"ops\": [{}]}", "the JSON of a definition: missing field"),
        ("[1, 2]", "it has no list `ops`"),
        ("", "is not JSON: EOF while parsing a value"),
        ("\u{1F980}", "is not JSON: expected value"),
    ];
    for (content, message) in cases {
        fs::write(&text, content).unwrap();
        let output = run(&[Path::new("compat"), &text, &library("distances")]);
        assert_eq!(output.status.code(), Some(2), "{content}");
        assert!(stderr(&output).contains(message), "{content}: {}", stderr(&output));
    }
    let nothing = folder.path().join("nothing.so");
    let output = run(&[Path::new("compat"), &library("distances"), &nothing]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("nothing.so: there is no such file"), "{}", stderr(&output));
    assert_eq!(run(&[Path::new("compat"), &library("distances")]).status.code(), Some(2));
    assert_eq!(run(&[Path::new("unknown")]).status.code(), Some(2));
}

#[test]
fn what_is_no_library_is_an_error_and_not_a_crash() {
    let folder = TempDir::new().unwrap();
    let truncated = folder.path().join("libdistances.so");
    let whole = fs::read(library("distances")).unwrap();
    fs::write(&truncated, &whole[..whole.len() / 2]).unwrap();
    for command in ["inspect", "compat"] {
        let mut call = opsmith();
        call.arg(command).arg(&truncated);
        if command == "compat" {
            call.arg(&truncated);
        }
        let output = call.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).starts_with("error: "), "{}", stderr(&output));
        assert!(stderr(&output).contains("libdistances.so"), "{}", stderr(&output));
    }
}

#[test]
fn the_status_counts_even_if_nobody_reads_the_table() {
    let folder = TempDir::new().unwrap();
    let old = file(&folder, "old.json", &with_another_default());
    let mut child = opsmith();
    child.arg("compat").arg(&old).arg(library("distances")).stdout(std::process::Stdio::piped());
    let mut child = child.spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn huge_numbers_in_definitions_exhaust_nothing() {
    let folder = TempDir::new().unwrap();
    for (spec, shape) in [
        ("N: int >= 1000000000000000 = 1000000000000000", "(n,p),(m,p),(k)->(n,m)"),
        ("N: int >= 0 = 9223372036854775807", "(n,q),(m,q),(k)->(n,m)"),
    ] {
        let mut changed = definitions();
        let op = &mut changed["ops"][0];
        op["inputs"].as_array_mut().unwrap().push(json!({"name": "more", "spec": "more: N * T", "doc": ""}));
        op["attrs"].as_array_mut().unwrap().push(json!({"name": "N", "spec": spec, "doc": ""}));
        op["shape"] = json!(shape);
        let huge = file(&folder, "huge.json", &changed);
        changed["ops"][0]["shape"] = json!("(n,p),(m,q),(k)->(n,m)");
        let other = file(&folder, "other.json", &changed);
        for (old, new) in [(&library("distances"), &huge), (&huge, &other)] {
            let output = run(&[Path::new("compat"), old, new]);
            assert!(matches!(output.status.code(), Some(0 | 1)), "{}", stderr(&output));
        }
    }
}

#[test]
fn definitions_that_are_damaged_say_where() {
    type Damage = fn(&mut Value);
    let folder = TempDir::new().unwrap();
    let cases: [(Damage, &str); 6] = [
        (
            |json| json["ops"][0]["inputs"][0]["spec"] = json!("x: U"),
            "`U` is neither a dtype nor an attribute",
        ),
        (|json| json["ops"][0]["shape"] = json!("(n,p->(n)"), "PairwiseManhattanDistance: its `shape`: "),
        (|json| json["ops"][0]["shape"] = json!("(n,p)->(n)"), "PairwiseManhattanDistance: its `shape`: "),
        (|json| json["ops"][0]["gradient"]["outputs"] = json!([7]), "its `gradient` is not an object"),
        (|json| json["ops"][0]["kernels"] = json!(null), "it has no list `kernels`"),
        (|json| json["ops"][0]["kernels"][0]["types"]["T"] = json!("flot"), "a kernel's `T` is not a dtype"),
    ];
    for (damage, message) in cases {
        let mut json = definitions();
        damage(&mut json);
        let path = file(&folder, "damaged.json", &json);
        let output = run(&[Path::new("inspect"), &path]);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(stderr(&output).contains(message), "{message}: {}", stderr(&output));
    }
}

#[test]
fn colours_come_when_they_are_wanted() {
    let output =
        opsmith().arg("inspect").arg(library("distances")).env("CLICOLOR_FORCE", "1").output().unwrap();
    assert!(stdout(&output).contains("\u{1b}[1m"));
    let mut call = opsmith();
    call.arg("inspect").arg(library("distances")).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1");
    assert!(!stdout(&call.output().unwrap()).contains('\u{1b}'));
}

#[test]
fn help_is_within_80_columns_and_has_examples() {
    for command in ["new", "build", "inspect", "check", "compat"] {
        let help = stdout(&opsmith().args([command, "--help"]).output().unwrap());
        assert!(help.contains("Examples:\n  opsmith "), "{help}");
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

#[test]
fn what_is_no_file_is_told_and_not_waited_for() {
    let folder = TempDir::new().unwrap();
    let pipe = folder.path().join("pipe.json");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let definitions = library("distances");
    let definitions = definitions.as_path();
    for command in ["inspect", "graph", "compat", "check", "bench"] {
        for (path, what) in [(pipe.as_path(), "is a pipe"), (Path::new("/dev/zero"), "is a device")] {
            let mut call = Command::new("timeout");
            call.args(["60", env!("CARGO_BIN_EXE_opsmith"), command]).arg(path);
            if command == "compat" {
                call.arg(definitions);
            }
            let output = call.output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{command}: {}", stderr(&output));
            assert!(stderr(&output).contains(what), "{command}: {}", stderr(&output));
        }
    }
}
