//! The program `opsmith`, which comes with the package: the command line's own crate, in the process of a Python.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use opsmith_cli::Itself;
use pyo3::prelude::*;

/// The exit status of a Rust program that panicked.
const PANICKED: u8 = 101;

/// Runs the program on `arguments` and gives its exit status. `again` starts this in a process of its own: a program, and its first
/// arguments. `installed_from` is the file or folder that the package was installed from.
#[pyfunction]
pub(crate) fn run_program(
    py: Python<'_>,
    again: Vec<OsString>,
    installed_from: PathBuf,
    arguments: Vec<OsString>,
) -> u8 {
    let itself = Itself { again, from: installed_from };
    // The message has been printed by then.
    py.detach(|| catch_unwind(AssertUnwindSafe(|| opsmith_cli::run(itself, arguments))).unwrap_or(PANICKED))
}
