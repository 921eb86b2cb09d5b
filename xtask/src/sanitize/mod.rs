//! `cargo xtask sanitize`: the tests under the compiler's sanitizers, with checks of arithmetic, and under valgrind.
//!
//! Too slow for each change, so it is started by hand. What each tool sees, and what not, is in `docs/sanitizers.md`.

mod reports;
mod sanitizer;
mod tool;

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::report::table;
use crate::sanitize::reports::Reports;
use crate::sanitize::tool::Tool;
use crate::test::{self, Outcome, RUST};
use crate::venv::Venv;
use crate::workspace::Workspace;
use crate::{VENV, run};

/// What to check, and which tests with.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The checks; all if none is named
    checks: Vec<Check>,
    /// Run these parts: `rust`, and names of folders of tests/python; each check has parts of its own if none is named
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// Run the Rust tests of these packages; all if none is named
    #[arg(long, value_name = "NAME")]
    package: Vec<String>,
    /// Run only the tests whose names contain this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

/// A way to look for what tests alone do not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Check {
    /// AddressSanitizer: memory that is not one's own, or no longer; leaks of Rust's tests
    Address,
    /// ThreadSanitizer: memory that threads use at once, locks that are taken in two orders
    Thread,
    /// Checks of overflow, assertions, and the standard library's of what its unsafe functions ask for
    Overflow,
    /// Valgrind: memory, and numbers that nobody has written, in generated machine code too
    Valgrind,
}

/// Tests that checks cannot run: the checks, what the test's name contains, and why.
const LEFT_OUT: [(&[Check], &str, &str); 7] = [
    (
        &[Check::Address],
        "no_call_without_memory_ends_the_process",
        "it limits the address space, of which the sanitizer takes 20 TB",
    ),
    (
        &[Check::Address, Check::Thread],
        "without_memory_it_is_an_error_and_the_server_lives",
        "it limits the address space too, of a server",
    ),
    (
        &[Check::Address, Check::Thread],
        "every_planted_fault_is_found_and_no_other",
        "the sanitizer finds them first, and says so in its own words",
    ),
    (
        &[Check::Thread],
        "a_pool_has_as_many_threads_as_there_is_room_for",
        "it limits the address space, which the sanitizer needs",
    ),
    (&[Check::Thread], "a_c_program_calls_ops", "the program in C is linked without the sanitizer"),
    (
        &[Check::Address],
        "no_damaged_table_kills_the_process",
        "it starts a thousand Pythons, each of which sets the sanitizer up",
    ),
    (
        &[Check::Address],
        "leak_nothing",
        "it looks at the process's memory: the sanitizer keeps what was freed for a while",
    ),
];

/// What valgrind runs, which takes it fifty times as long: packages, and what the names of their tests contain.
const UNDER_VALGRIND: [(&str, &str); 3] =
    [("opsmith-kernels", "native"), ("opsmith-kernels", "product"), ("opsmith-core", "strided")];

impl Check {
    const ALL: [Check; 4] = [Check::Address, Check::Thread, Check::Overflow, Check::Valgrind];

    fn name(self) -> &'static str {
        match self {
            Check::Address => "address",
            Check::Thread => "thread",
            Check::Overflow => "overflow",
            Check::Valgrind => "valgrind",
        }
    }

    /// What it runs if nothing is named.
    fn parts(self) -> &'static [&'static str] {
        match self {
            Check::Address => &[RUST, "numpy", "torch", "torch_bare", "jax", "jax_bare"],
            Check::Thread | Check::Overflow => &[RUST, "numpy"],
            Check::Valgrind => &[RUST],
        }
    }

    /// What the tests that it cannot run have in their names.
    fn left_out(self) -> impl Iterator<Item = &'static str> {
        LEFT_OUT.iter().filter(move |(checks, ..)| checks.contains(&self)).map(|(_, test, _)| *test)
    }
}

/// Runs the checks one after another; all run even when one finds something.
pub(crate) fn sanitize(workspace: &Workspace, options: &Options) -> Result<()> {
    let checks = if options.checks.is_empty() { &Check::ALL[..] } else { &options.checks };
    let mut rows = Vec::new();
    let mut found = Vec::new();
    for &check in checks {
        let tool = Tool::new(workspace, check)?;
        let named: Vec<&str> = options.only.iter().map(String::as_str).collect();
        for part in if named.is_empty() { check.parts() } else { &named } {
            let began = Instant::now();
            let reports = Reports::new(tool.folder.join("reports").join(part))?;
            let outcome = run_part(&tool, part, &reports, options)?;
            let said = reports.summaries()?;
            rows.push(row(check, part, &outcome, said.iter().map(|(_, count)| count).sum(), began));
            found.extend(outcome.failure.map(|why| format!("{} {part}: {why}", check.name())));
            found.extend(
                said.iter().map(|(text, count)| format!("{} {part}: {count} × {text}", check.name())),
            );
        }
    }
    println!();
    found.iter().for_each(|line| println!("✗ {line}"));
    println!("\n{}", table(&["check", "tests", "passed", "failed", "not run", "reports", "minutes"], &rows));
    for (without, test, reason) in LEFT_OUT {
        for check in without.iter().filter(|check| checks.contains(check)) {
            println!("left out of {}: `{test}`: {reason}", check.name());
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    bail!("the checks found something; whole reports are in target/sanitize/CHECK/reports/PART")
}

/// Runs one part's tests.
fn run_part(tool: &Tool<'_>, part: &str, reports: &Reports, options: &Options) -> Result<Outcome> {
    let filter = options.filter.as_deref();
    let label = format!("{} {part}", tool.check.name());
    if part != RUST {
        let venv = Venv::open(tool.workspace, VENV)?;
        venv.install_lock(tool.workspace, "test")?;
        let package = tool.build_for_python()?;
        let chosen = filter.into_iter().map(str::to_owned);
        let chosen =
            chosen.chain(tool.check.left_out().map(|test| format!("not {test}"))).collect::<Vec<_>>();
        let chosen = (!chosen.is_empty()).then(|| chosen.join(" and "));
        let mut command = test::python_command(&tool.built, &venv, part, chosen.as_deref());
        tool.watch_python(&mut command, reports, &package);
        return test::suite_outcome(label, &mut command, |_| false);
    }
    if tool.check == Check::Valgrind {
        return valgrind(tool, reports, filter);
    }
    let named = options.package.iter().flat_map(|name| ["--package", name]);
    let packages: Vec<&str> = if options.package.is_empty() { vec!["--workspace"] } else { named.collect() };
    let mut build = tool.cargo(&["test", "--no-run"]);
    run::quietly(&format!("Building the Rust tests for {}", tool.check.name()), build.args(&packages))?;
    let mut command = tool.cargo(&["test", "--no-fail-fast"]);
    tool.watch(command.args(&packages), reports);
    command.args(filter).arg("--").args(tool.check.left_out().flat_map(|test| ["--skip", test]));
    test::suite_outcome(label, &mut command, |_| false)
}

/// Runs the chosen tests under valgrind.
fn valgrind(tool: &Tool<'_>, reports: &Reports, filter: Option<&str>) -> Result<Outcome> {
    let found = Command::new("valgrind").arg("--version").output();
    found.context("there is no valgrind\n  → install it, on Debian and Ubuntu by `apt install valgrind`")?;
    let mut all = Outcome { name: "valgrind rust".to_owned(), failure: None, summary: Vec::new() };
    for (package, tests) in UNDER_VALGRIND {
        let mut command = tool.cargo(&["test", "--package", package, "--lib", filter.unwrap_or(tests)]);
        tool.watch(&mut command, reports);
        command.arg("--").args(tool.check.left_out().flat_map(|test| ["--skip", test]));
        let outcome = test::suite_outcome(format!("valgrind {package} {tests}"), &mut command, |_| false)?;
        all.failure = all.failure.or(outcome.failure);
        all.summary.extend(outcome.summary);
    }
    Ok(all)
}

fn row(check: Check, part: &str, outcome: &Outcome, reports: usize, began: Instant) -> Vec<String> {
    let count =
        |words: &[&str]| words.iter().map(|word| reports::counted(&outcome.summary, word)).sum::<usize>();
    let not_run = count(&["ignored", "skipped", "deselected"]);
    let figures = [count(&["passed"]), count(&["failed", "error", "errors"]), not_run, reports];
    let words = [check.name(), part].into_iter().map(str::to_owned);
    let minutes = format!("{:.1}", began.elapsed().as_secs_f64() / 60.0);
    words.chain(figures.map(|figure| figure.to_string())).chain([minutes]).collect()
}
