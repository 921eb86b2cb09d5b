//! The commands in `docs/cli.md` and `docs/author-guide.md`, run as they stand there.
//!
//! A line that begins with `$ ` is a command, the lines behind it what it writes. The commands of a block run in one
//! folder, which has the libraries of the examples and a saved graph. `UPDATE_EXPECTED=1` writes the outputs anew.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{library, save_graph};
use tempfile::TempDir;

/// Runs a command and gives what it wrote, standard error too.
fn run(command: &str, folder: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_opsmith"));
    let path = format!("{}:{}", program.parent().unwrap().display(), env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec 2>&1\n{command}")]).current_dir(folder).env("PATH", path);
    let output = shell.env_remove("CLICOLOR_FORCE").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_commands_do_what_the_guide_says() {
    follow("cli.md");
}

#[test]
fn the_commands_do_what_the_authors_guide_says() {
    follow("author-guide.md");
}

fn follow(page: &str) {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = fs::read_to_string(&guide).unwrap();
    let folder = TempDir::new().unwrap();
    for name in ["distances", "zero_out", "opsmith_faulty"] {
        fs::copy(library(name), folder.path().join(format!("lib{name}.so"))).unwrap();
    }
    save_graph(&folder.path().join("model.graph"));
    let mut made = String::new();
    let mut is_console = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_console = line == "```console";
        }
        match line.strip_prefix("$ ") {
            Some(command) if is_console => made += &format!("{line}\n{}", run(command, folder.path())),
            _ if is_console && !line.starts_with("```") => {}
            _ => made += &format!("{line}\n"),
        }
    }
    if env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(&guide, &made).unwrap();
    }
    assert_eq!(made, text);
}
