//! What just-in-time builds ask: the sources of the crates that libraries of operators are built with, and the processor.

use opsmith_body::Level;
use pyo3::prelude::*;

/// Each file's path in the workspace, and its text.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/crate_sources.rs"));

/// The files that a library of operators is built with: `Cargo.toml`, `Cargo.lock` and the crates under `crates`.
#[pyfunction]
pub(crate) fn crate_sources() -> Vec<(&'static str, &'static str)> {
    FILES.to_vec()
}

/// The feature of `opsmith` that leaves out kernels for other processors than this one; none where there is only one kind.
#[pyfunction]
pub(crate) fn processor_feature() -> Option<&'static str> {
    match Level::best() {
        Level::Plain => None,
        Level::Avx2 => Some("only-avx2"),
        Level::Avx512 => Some("only-avx512"),
    }
}
