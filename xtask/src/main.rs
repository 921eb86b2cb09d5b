//! Opsmith's chores, started as `cargo xtask <command>`.
//!
//! Each command sets up what it needs (a Python environment in `.venv`, the built libraries, the built
//! package), skips what is already in place, and ends with what it found.

mod bench;
mod build;
mod circles;
mod demo;
mod differ;
mod dist;
mod docs;
mod figure;
mod fuzz;
mod gpu;
mod hang;
mod header;
mod lint;
mod matrix;
mod report;
mod run;
mod sanitize;
mod stamp;
mod test;
mod unsafes;
mod venv;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// The environment that all commands but `matrix` work in, relative to the repository.
const VENV: &str = ".venv";

/// Opsmith's chores: each command sets up what it needs and skips what is already in place.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Classify handwritten digits with an operator written in Rust, against NumPy and SciPy
    ///
    /// Makes .venv, installs NumPy, SciPy and scikit-learn, builds the example operators and the Python
    /// package, then runs nearest neighbours and k-medians by Manhattan distance and prints accuracy,
    /// agreement, time and memory. No framework is needed; if PyTorch is in .venv it gets a row too.
    Demo,
    /// Run every Rust and Python test, each Python framework in its own process
    ///
    /// Makes .venv, installs the pinned frameworks (about 7 GB the first time), builds, tests, and ends with
    /// the runners' own summaries. Two suites run at a time; all run even when one fails. One that says nothing for
    /// 20 minutes is ended, its stacks are shown, and it has failed.
    Test(test::Options),
    /// Measure against the peers and write the tables and charts into docs/benchmarks
    Bench(bench::Options),
    /// Build what is given to others: crates, the wheel for older systems too, sources, licences, a bill of materials
    ///
    /// All in the profile `dist`, which is optimised as a whole and takes some minutes. The wheel is audited, and sizes are looked at.
    /// The files are in target/packages.
    Dist(dist::Options),
    /// Make the site of guides and references in target/site
    ///
    /// It has a search of its own and asks no other host for anything. Links and anchors that lead nowhere are errors.
    Docs,
    /// Check formatting, lints, documentation and generated files
    ///
    /// rustfmt, clippy and rustdoc with warnings as errors, ruff for Python, the C header, and the prose of the guides.
    Lint,
    /// Write THIRD-PARTY-LICENSES.txt, the licences of what is linked into the Python package
    Licences {
        /// Write nothing; fail if the file is out of date
        #[arg(long)]
        check: bool,
    },
    /// Give all that reads what others have written bytes that lead to code which was not run before
    ///
    /// Builds with libFuzzer and AddressSanitizer into target/fuzz (some minutes the first time), runs each target for its share
    /// of the time, and ends with a table. What a target died of is kept in fuzz/crashes.
    Fuzz(fuzz::Options),
    /// Run the tests under the compiler's sanitizers, with checks of arithmetic, and under valgrind
    ///
    /// Each check builds for itself, in target/sanitize, and takes some multiples of the time of the tests. Ends with a table
    /// of the tests and the reports.
    Sanitize(sanitize::Options),
    /// Run the frameworks' suites under several framework releases with the same, not rebuilt libraries
    ///
    /// Releases and Pythons are those of requirements/matrix.txt. Each gets an environment of up to 7 GB, which is removed when
    /// its suites have run, and is a part by itself: what has passed with the same files is not run again.
    Matrix(matrix::Options),
    /// Compare random calls of all ops in all frameworks and the engine, without end
    ///
    /// Calls are made from the definitions; bits, gradients, and where there is one a formula of NumPy's are compared. A call
    /// that differs is shrunk and kept as a file in tests/differ, which `test` runs again.
    Differ(differ::Options),
    /// Run everything that needs a card: values, gradients, streams, graphs, the sanitizer, times
    ///
    /// Where a card is, it builds what is not built, and writes a report into target/gpu/report. Elsewhere `--prepare
    /// FOLDER` builds it all into a folder that needs nothing but PyTorch and NumPy on the machine with the card.
    Gpu(gpu::Options),
    /// Draw the figure of the crates in docs/architecture.md from their manifests
    Figure {
        /// Write nothing; fail if the figure is out of date
        #[arg(long)]
        check: bool,
    },
    /// Generate the C header include/opsmith.h from the ABI crate
    Header {
        /// Write nothing; fail if the file is out of date
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let profile = match arguments.command {
        Task::Bench(_) | Task::Dist(_) | Task::Gpu(_) => "dist",
        _ => "release",
    };
    let outcome = Workspace::find(profile).and_then(|workspace| match &arguments.command {
        Task::Demo => demo::demo(&workspace),
        Task::Test(options) => test::test(&workspace, options),
        Task::Bench(options) => bench::bench(&workspace, options),
        Task::Dist(options) => dist::dist(&workspace, options),
        Task::Docs => docs::docs(&workspace),
        Task::Lint => lint::lint(&workspace),
        Task::Fuzz(options) => fuzz::fuzz(&workspace, options),
        Task::Sanitize(options) => sanitize::sanitize(&workspace, options),
        Task::Matrix(options) => matrix::matrix(&workspace, options),
        Task::Differ(options) => differ::differ(&workspace, options),
        Task::Gpu(options) => gpu::gpu(&workspace, options),
        Task::Licences { check } => dist::licences::licences(&workspace, *check),
        Task::Figure { check } => figure::figure(&workspace, *check),
        Task::Header { check } => header::header(&workspace, *check),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
