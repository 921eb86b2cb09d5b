//! The sources of the crates that libraries of operators are built with, for just-in-time builds.

use pyo3::prelude::*;

/// Each file's path in the workspace, and its text.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/crate_sources.rs"));

/// The files that a library of operators is built with: `Cargo.toml`, `Cargo.lock` and the crates under `crates`.
#[pyfunction]
pub(crate) fn crate_sources() -> Vec<(&'static str, &'static str)> {
    FILES.to_vec()
}
