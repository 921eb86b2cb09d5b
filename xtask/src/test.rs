//! `cargo xtask test`: every Rust test, then every Python suite in a process of its own.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::report::summary_lines;
use crate::run;
use crate::venv::Venv;
use crate::workspace::Workspace;
use crate::{VENV, build};

/// Pytest's exit status when it found nothing to run.
const NO_TESTS: i32 = 5;

/// What to test.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run the Rust tests only; no Python is needed then
    #[arg(long, conflicts_with = "python_only")]
    rust_only: bool,
    /// Run the Python suites only
    #[arg(long)]
    python_only: bool,
    /// Run only the tests whose names contain this text
    filter: Option<String>,
}

/// One runner's outcome.
pub(crate) struct Outcome {
    /// The suite's name.
    pub(crate) name: String,
    /// Why it failed; `None` if it passed.
    pub(crate) failure: Option<String>,
    /// The runner's own summary lines.
    pub(crate) summary: Vec<String>,
}

/// Runs the suites; all of them run even when one fails.
pub(crate) fn test(workspace: &Workspace, options: &Options) -> Result<()> {
    let filter = options.filter.as_deref();
    let mut outcomes = Vec::new();
    if !options.python_only {
        outcomes.push(rust(workspace, filter)?);
    }
    if !options.rust_only {
        let venv = Venv::open(workspace, VENV)?;
        venv.install_lock(workspace, "test")?;
        build::everything(workspace, &venv, None)?;
        build::program(workspace)?;
        for suite in suites(workspace)? {
            outcomes.push(python(workspace, &venv, &suite, filter)?);
        }
    }
    conclude(&outcomes)
}

/// The Python suites: the folders of `tests/python` that hold tests, by name.
pub(crate) fn suites(workspace: &Workspace) -> Result<Vec<String>> {
    let folder = workspace.root.join("tests/python");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("could not list {}", folder.display()))? {
        let entry = entry?;
        let is_test = |name: &str| name.starts_with("test_") && name.ends_with(".py");
        if entry.file_type()?.is_dir()
            && fs::read_dir(entry.path())?.flatten().any(|file| is_test(&file.file_name().to_string_lossy()))
        {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Runs one Python suite in `venv`.
pub(crate) fn python(
    workspace: &Workspace,
    venv: &Venv,
    suite: &str,
    filter: Option<&str>,
) -> Result<Outcome> {
    let mut command = venv.program(workspace, "python");
    command.args(["-m", "pytest", "-ra", "--durations=5", &format!("tests/python/{suite}")]);
    command.env("OPSMITH_LIB_DIR", workspace.library_folder());
    command.env("OPSMITH_PROGRAM", workspace.program());
    if let Some(filter) = filter {
        command.args(["-k", filter]);
    }
    let empty_is_fine = filter.is_some();
    suite_outcome(format!("python/{suite}"), &mut command, |code| empty_is_fine && code == NO_TESTS)
}

fn rust(workspace: &Workspace, filter: Option<&str>) -> Result<Outcome> {
    let mut command = workspace.cargo(&["test", "--workspace", "--no-fail-fast"]);
    command.args(filter);
    suite_outcome("rust".to_owned(), &mut command, |_| false)
}

fn suite_outcome(name: String, command: &mut Command, also_fine: impl Fn(i32) -> bool) -> Result<Outcome> {
    let finished = run::streaming(&name, command)?;
    let passed = finished.success() || finished.code.is_some_and(also_fine);
    let failure = (!passed).then(|| run::status(finished.code));
    Ok(Outcome { name, failure, summary: summary_lines(&finished.lines) })
}

/// Prints the verdicts and, last, the runners' own summaries; fails if a suite failed.
fn conclude(outcomes: &[Outcome]) -> Result<()> {
    println!();
    for outcome in outcomes {
        match &outcome.failure {
            None => println!("✓ {} passed", outcome.name),
            Some(reason) => println!("✗ {} failed ({reason})", outcome.name),
        }
    }
    println!();
    for outcome in outcomes {
        println!("{}:", outcome.name);
        outcome.summary.iter().for_each(|line| println!("{line}"));
    }
    let failed: Vec<&str> = outcomes
        .iter()
        .filter(|outcome| outcome.failure.is_some())
        .map(|outcome| outcome.name.as_str())
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    bail!("{} of {} suites failed: {}", failed.len(), outcomes.len(), failed.join(", "))
}
