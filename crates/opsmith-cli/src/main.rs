//! The program `opsmith`; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    opsmith_cli::run()
}
