//! What the tests of the program share: the program, and the libraries of the examples.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use opsmith_core::{DType, Shape};
use opsmith_runtime::{Graph, Library};

/// The program, with no colours and none of our surroundings' wishes.
pub(crate) fn opsmith() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_opsmith"));
    command.env_remove("CLICOLOR_FORCE").env_remove("NO_COLOR");
    command
}

/// The shared object of a crate that this one depends on for tests: Cargo puts it beside the programs that test it.
pub(crate) fn library(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().with_file_name(format!("lib{name}.so"))
}

/// Standard output.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Standard error.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Saves a graph of three nodes, of which one calls an op of the library of distances.
pub(crate) fn save_graph(path: &Path) {
    let graph = Graph::new();
    let rows = |name, text| graph.placeholder(name, DType::Float32, &Shape::parse(text).unwrap()).unwrap();
    let (x, y) = (rows("x", "[n,3]"), rows("y", "[?,3]"));
    let distance = Library::open(library("distances")).unwrap().op("pairwise_manhattan_distance").unwrap();
    graph.call(&distance).name("distance").arg(&x).arg(&y).build().unwrap();
    graph.save(path).unwrap();
}
