//! `opsmith graph`: the picture, where it is written, and what is said where there is none.

use std::fs;
use std::process::Output;

use crate::common::{library, opsmith, save_graph, stderr, stdout};
use tempfile::TempDir;

/// A folder with a saved graph.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    save_graph(&folder.path().join("model.graph"));
    folder
}

fn graph(folder: &TempDir, arguments: &[&str]) -> Output {
    let arguments = arguments.iter().chain([&"--trust"]);
    opsmith().arg("graph").args(arguments).current_dir(folder.path()).output().unwrap()
}

#[test]
fn the_file_alone_does_not_say_what_is_opened() {
    let folder = folder();
    let output = opsmith().args(["graph", "model.graph"]).current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(
        said.contains("it needs the library `distances`") && said.contains("--trust opens it there"),
        "{said}"
    );
}

#[test]
fn the_picture_comes_beside_the_file() {
    let folder = folder();
    let output = graph(&folder, &["model.graph"]);
    assert_eq!((stdout(&output).as_str(), output.status.code()), ("model.svg  3 nodes\n", Some(0)));
    let svg = fs::read_to_string(folder.path().join("model.svg")).unwrap();
    assert_eq!(svg.matches("<rect class=\"node\"").count(), 3);
    assert!(svg.contains("float32[n,3]"), "{svg}");
    let output = graph(&folder, &["model.graph", "--format", "dot"]);
    assert_eq!(stdout(&output), "model.dot  3 nodes\n");
    let dot = fs::read_to_string(folder.path().join("model.dot")).unwrap();
    assert!(dot.starts_with("digraph"), "{dot}");
}

#[test]
fn the_output_says_the_format_and_may_be_standard_output() {
    let folder = folder();
    let output = graph(&folder, &["model.graph", "--output", "picture.gv"]);
    assert_eq!(stdout(&output), "picture.gv  3 nodes\n");
    let dot = fs::read_to_string(folder.path().join("picture.gv")).unwrap();
    let output = graph(&folder, &["model.graph", "--format", "dot", "--output", "-"]);
    assert_eq!((stdout(&output), stderr(&output).as_str()), (dot, "model.graph  3 nodes\n"));
    let output = graph(&folder, &["model.graph", "--output", "-"]);
    assert!(stdout(&output).starts_with("<svg"), "{}", stdout(&output));
}

/// Makes the graph one that was made with a library in another place. The new path fills the room of the old one, as the
/// file says elsewhere how long its parts are.
fn move_library(folder: &TempDir, new: &str) {
    let path = folder.path().join("model.graph");
    let mut bytes = fs::read(&path).unwrap();
    let old = library("distances").canonicalize().unwrap().display().to_string();
    let at = bytes.windows(old.len()).position(|window| window == old.as_bytes()).unwrap();
    bytes[at..at + old.len()]
        .copy_from_slice(format!("{}{new}", "/".repeat(old.len() - new.len())).as_bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_library_that_has_moved_is_given() {
    let folder = folder();
    move_library(&folder, "/gone.so");
    let output = graph(&folder, &["model.graph"]);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(
        said.starts_with(
            "error: model.graph: it needs the library `distances`, version 0.1.0 when it was made: "
        ) && said.ends_with("/gone.so: there is no such file\n  → --library LIB says where it is\n"),
        "{said}"
    );
    let moved = library("distances");
    let output = graph(&folder, &["model.graph", "--library", moved.to_str().unwrap()]);
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("model.svg  3 nodes\n", ""));
    let output = graph(&folder, &["model.graph", "--library", library("zero_out").to_str().unwrap()]);
    assert!(stderr(&output).contains("it needs the library `distances`"), "{}", stderr(&output));
    let output = graph(&folder, &["model.graph", "--library", "none.so"]);
    assert_eq!(stderr(&output), "error: none.so: there is no such file\n");
}

#[test]
fn a_library_that_is_another_now_is_told() {
    let folder = folder();
    move_library(&folder, library("zero_out").canonicalize().unwrap().to_str().unwrap());
    let said = stderr(&graph(&folder, &["model.graph"]));
    assert!(said.contains("libzero_out.so: is the library `zero_out` now\n  → --library LIB says"), "{said}");
}

#[test]
fn what_is_no_graph_is_told_with_its_name() {
    let folder = folder();
    let whole = fs::read(folder.path().join("model.graph")).unwrap();
    fs::write(folder.path().join("cut.graph"), &whole[..whole.len() / 2]).unwrap();
    fs::write(folder.path().join("text.graph"), "a graph").unwrap();
    opsmith_runtime::save_tensors(folder.path().join("tensors.graph"), &[]).unwrap();
    for (arguments, message) in [
        (&["none.graph"][..], "none.graph: there is no such file"),
        (&["cut.graph"], "cut.graph: no file of tensors (safetensors), or a damaged one"),
        (&["text.graph"], "text.graph: no file of tensors (safetensors), or a damaged one"),
        (&["tensors.graph"], "tensors.graph: holds tensors but no graph"),
        (&["model.graph", "--output", "model.graph"], "model.graph: the picture would replace the graph"),
        (&["model.graph", "--output", "none/model.svg"], "none/model.svg: cannot be written: No such file"),
    ] {
        let output = graph(&folder, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = stderr(&output);
        assert!(said.starts_with(&format!("error: {message}")), "{said}");
    }
    assert_eq!(fs::read(folder.path().join("model.graph")).unwrap(), whole);
}
