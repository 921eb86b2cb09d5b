//! The program `opsmith`; see the library.

use std::process::ExitCode;

use opsmith_cli::Itself;

fn main() -> ExitCode {
    let itself = Itself { again: Vec::new(), from: env!("CARGO_MANIFEST_DIR").into() };
    opsmith_cli::run(itself, std::env::args_os().skip(1)).into()
}
