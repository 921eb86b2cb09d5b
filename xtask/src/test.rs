//! `cargo xtask test`: every Rust test, and every Python suite in a process of its own, two processes at a time.

use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::{fs, panic, thread, vec};

use anyhow::{Context, Result, bail};

use crate::report::summary_lines;
use crate::run;
use crate::venv::Venv;
use crate::workspace::Workspace;
use crate::{VENV, build};

/// Pytest's exit status when it found nothing to run.
const NO_TESTS: i32 = 5;
/// The suite of all Rust tests.
pub(crate) const RUST: &str = "rust";

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
///
/// There are two lanes, since most tests keep one processor busy. The first one builds what Python needs and goes on with the
/// Python suites; the second one runs the Rust tests and then helps.
pub(crate) fn test(workspace: &Workspace, options: &Options) -> Result<()> {
    let filter = options.filter.as_deref();
    let mut outcomes = thread::scope(|scope| {
        let (ready, waiting) = mpsc::channel::<Arc<Suites<'_>>>();
        let (installing, installed) = mpsc::channel::<()>();
        let helper = scope.spawn(move || -> Result<Vec<Outcome>> {
            let mut outcomes = Vec::new();
            if !options.python_only {
                outcomes.push(rust(workspace, filter, &installed)?);
            }
            // There is nothing to help with if no suite is wanted, or if what they need could not be built.
            if let Ok(suites) = waiting.recv() {
                outcomes.extend(suites.run()?);
            }
            Ok(outcomes)
        });
        let mut outcomes = Vec::new();
        if options.rust_only {
            drop(installing);
        } else {
            let venv = Venv::open(workspace, VENV)?;
            venv.install_lock(workspace, "test")?;
            drop(installing);
            let suites = Arc::new(Suites::prepare(workspace, venv, filter)?);
            // Received unless the helper has failed, which is told below.
            let _ = ready.send(Arc::clone(&suites));
            outcomes.extend(suites.run()?);
        }
        drop(ready);
        outcomes.extend(helper.join().unwrap_or_else(|reason| panic::resume_unwind(reason))?);
        anyhow::Ok(outcomes)
    })?;
    // That of Rust comes first.
    outcomes.sort_by_key(|outcome| (outcome.name != RUST, outcome.name.clone()));
    conclude(&outcomes)
}

/// The Python suites that nobody has taken yet, and what they need.
struct Suites<'a> {
    workspace: &'a Workspace,
    venv: Venv,
    filter: Option<&'a str>,
    left: Mutex<vec::IntoIter<String>>,
}

impl<'a> Suites<'a> {
    /// Builds what the suites need.
    fn prepare(workspace: &'a Workspace, venv: Venv, filter: Option<&'a str>) -> Result<Self> {
        build::everything(workspace, &venv)?;
        build::programs(workspace)?;
        let left = Mutex::new(suites(workspace)?.into_iter());
        Ok(Self { workspace, venv, filter, left })
    }

    /// Runs one suite after another until all are taken.
    fn run(&self) -> Result<Vec<Outcome>> {
        let next = || self.left.lock().unwrap_or_else(PoisonError::into_inner).next();
        std::iter::from_fn(next)
            .map(|suite| python(self.workspace, &self.venv, &suite, self.filter))
            .collect()
    }
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
    let mut command = python_command(workspace, venv, suite, filter);
    let empty_is_fine = filter.is_some();
    suite_outcome(format!("python/{suite}"), &mut command, |code| empty_is_fine && code == NO_TESTS)
}

/// The command that runs one Python suite in `venv`, with the libraries and programs of `workspace`.
pub(crate) fn python_command(
    workspace: &Workspace,
    venv: &Venv,
    suite: &str,
    filter: Option<&str>,
) -> Command {
    let mut command = venv.program(workspace, "python");
    // Without a cache of results, which suites that run at once would share.
    command.args(["-m", "pytest", "-ra", "--durations=5", "-p", "no:cacheprovider"]);
    command.arg(format!("tests/python/{suite}"));
    command.env("OPSMITH_LIB_DIR", workspace.library_folder());
    command.env("OPSMITH_PROGRAM", workspace.program());
    command.env("OPSMITH_SERVER", workspace.server());
    // ONNX Runtime reports to its makers otherwise.
    command.env("ORT_DISABLE_TELEMETRY", "1");
    command.env("OPSMITH_RANDOM_BODIES", workspace.random_bodies());
    if let Some(filter) = filter {
        command.args(["-k", filter]);
    }
    command
}

/// Runs the Rust tests. They are built meanwhile, but begin when the environment is complete, whose end `installed` tells: those
/// of CUDA kernels use the compiler that is in it.
fn rust(workspace: &Workspace, filter: Option<&str>, installed: &mpsc::Receiver<()>) -> Result<Outcome> {
    let mut build = workspace.cargo(&["test", "--workspace", "--no-run"]);
    if let Err(error) = run::quietly("Building the Rust tests", &mut build) {
        println!("{error:#}");
        let failure = Some("they could not be built".to_owned());
        return Ok(Outcome { name: RUST.to_owned(), failure, summary: Vec::new() });
    }
    // Nothing is sent: the other end is dropped.
    let _ = installed.recv();
    let mut command = workspace.cargo(&["test", "--workspace", "--no-fail-fast"]);
    command.args(filter);
    suite_outcome(RUST.to_owned(), &mut command, |_| false)
}

/// Runs a suite's command; some exit statuses are fine besides 0.
pub(crate) fn suite_outcome(
    name: String,
    command: &mut Command,
    also_fine: impl Fn(i32) -> bool,
) -> Result<Outcome> {
    let finished = run::whole(&name, command)?;
    let passed = finished.success() || finished.code.is_some_and(also_fine);
    let failure = (!passed).then(|| finished.status());
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
