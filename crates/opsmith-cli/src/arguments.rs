//! The program's arguments, and which command they start.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{bench, build, check, compare, graph, inspect, new, text, wheel};

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

/// Runs the program on the arguments of this process.
pub fn run() -> ExitCode {
    let outcome = match Arguments::parse().command {
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
        Ok(outcome) => outcome.into(),
        Err(error) => {
            text::print_error(&error);
            ExitCode::from(2)
        }
    }
}
