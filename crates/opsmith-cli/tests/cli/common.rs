//! What the tests of the program share: the program, and the libraries of the examples.

use std::path::PathBuf;
use std::process::{Command, Output};

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
