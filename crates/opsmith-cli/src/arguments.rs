//! The program's arguments, and which command they start.

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use crate::{Itself, Outcome, bench, build, check, compare, graph, inspect, itself, new, text, wheel};

/// Tools for those who write libraries of tensor operators.
#[derive(Parser)]
#[command(name = "opsmith", version, arg_required_else_help = true, max_term_width = 80)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    New(new::Options),
    Build(build::Options),
    Wheel(wheel::Options),
    Inspect(inspect::Options),
    Check(check::Options),
    Bench(bench::Options),
    Compat(compare::Options),
    Graph(graph::Options),
    #[command(hide = true)]
    CheckWorker,
}

/// Runs the program on these arguments, without its own name, and gives its exit status. In a process that has run it before, the
/// first `itself` counts.
pub fn run(itself: Itself, arguments: impl IntoIterator<Item = OsString>) -> u8 {
    itself::set(itself);
    let named = std::iter::once(OsString::from("opsmith")).chain(arguments);
    let command = match Arguments::try_parse_from(named) {
        Ok(arguments) => arguments.command,
        Err(told) => {
            // Help and versions are told in this way, too. Who does not listen is told nothing.
            let _ = told.print();
            return u8::try_from(told.exit_code()).unwrap_or(2);
        }
    };
    let outcome = match command {
        Command::New(options) => new::new(&options),
        Command::Build(options) => build::build(&options),
        Command::Wheel(options) => wheel::wheel(&options),
        Command::Inspect(options) => inspect::inspect(&options),
        Command::Check(options) => check::check(&options),
        Command::Bench(options) => bench::bench(&options),
        Command::Compat(options) => compare::compat(&options),
        Command::Graph(options) => graph::graph(&options),
        Command::CheckWorker => check::work(),
    };
    match outcome {
        Ok(Outcome::Good) => 0,
        Ok(Outcome::Fault) => 1,
        Err(error) => {
            text::print_error(&error);
            2
        }
    }
}
