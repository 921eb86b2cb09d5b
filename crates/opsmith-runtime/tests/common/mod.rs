//! The library of test operators, as a file. That of an example is beside it.

use std::path::PathBuf;

use opsmith_runtime::Library;

/// The shared object of `opsmith-testops`: Cargo puts it beside the programs that test it, since it is a Rust library too.
pub(crate) fn path() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libopsmith_testops.so")
}

/// The library of test operators.
pub(crate) fn library() -> Library {
    Library::open(path()).unwrap()
}
