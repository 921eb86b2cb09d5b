//! `cargo xtask fuzz`: gives all that reads what others have written bytes that lead to code which was not run before.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::run;
use crate::workspace::Workspace;

/// The platform, named so that macros and build scripts are compiled without the sanitizer.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
/// What libFuzzer needs of the compiler, and the sanitizer that ends a program at the first access which is not its own.
const FLAGS: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Zsanitizer=address",
];
/// Memory that is not there is an error, and no reason to end the program; plans are kept for good, and are no leak.
const SANITIZER: &str = "allocator_may_return_null=1:detect_leaks=0:handle_abort=1:detect_stack_use_after_return=0:quarantine_size_mb=16:malloc_context_size=8";
/// So many inputs are kept of what a target has been given.
const MOST_KEPT: usize = 48;
/// What inputs are called that a target once died of: they stay.
const FOUND: &str = "found-";
/// After so many deaths a target is left alone.
const MOST_DEATHS: usize = 10;

/// What to fuzz.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// For how many minutes; targets share them
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// How many targets run at a time
    #[arg(long, default_value_t = 1)]
    at_once: usize,
    /// Put inputs that cover what was covered into fuzz/corpus, in place of those that are there
    #[arg(long)]
    keep: bool,
    /// The targets, folders of fuzz/corpus; all if none is named
    targets: Vec<String>,
}

/// What came of a target.
#[derive(Default)]
struct Outcome {
    name: String,
    runs: u64,
    seconds: f64,
    edges: u64,
    inputs: usize,
    deaths: Vec<PathBuf>,
}

/// Runs the targets, and ends with a table; fails if one died.
pub(crate) fn fuzz(workspace: &Workspace, options: &Options) -> Result<()> {
    let program = build(workspace)?;
    let known = targets(workspace)?;
    let unknown = options.targets.iter().find(|name| !known.contains(name));
    ensure!(unknown.is_none(), "there is no target `{}`; there are {}", unknown.unwrap(), known.join(", "));
    let chosen = if options.targets.is_empty() { &known } else { &options.targets };
    let share = options.minutes * 60.0 * options.at_once as f64 / chosen.len() as f64;
    let left = Mutex::new(chosen.iter());
    let outcomes = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let work = || -> Result<()> {
            loop {
                let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(name) = next else { return Ok(()) };
                let target = Target { workspace, program: &program, name };
                let outcome = target.run(Duration::from_secs_f64(share))?;
                if options.keep {
                    target.keep()?;
                }
                outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
            }
        };
        let workers: Vec<_> = (0..options.at_once.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("it panics nowhere"))
    })?;
    conclude(workspace, &program, outcomes.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The folders of the corpus.
fn targets(workspace: &Workspace) -> Result<Vec<String>> {
    let folder = workspace.root.join("fuzz/corpus");
    let entries = fs::read_dir(&folder).with_context(|| format!("could not list {}", folder.display()))?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// The program, built with what libFuzzer and the sanitizer need: flags of the compiler that it has, but takes of unstable
/// releases only, unless it is told to.
fn build(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target.join("fuzz");
    let arguments = ["build", "--profile", "fuzz", "--package", "opsmith-fuzz", "--features", "guided"];
    let mut command = workspace.cargo(&arguments);
    command.args(["--target", PLATFORM]).arg("--target-dir").arg(&folder);
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", FLAGS.join(" "));
    run::quietly("Building the fuzzer", &mut command)?;
    Ok(folder.join(PLATFORM).join("fuzz/opsmith-fuzz"))
}

/// A target, and the program that has it.
struct Target<'a> {
    workspace: &'a Workspace,
    program: &'a Path,
    name: &'a str,
}

impl Target<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.current_dir(&self.workspace.root);
        command.env("OPSMITH_FUZZ_TARGET", self.name).env("ASAN_OPTIONS", SANITIZER);
        command
    }

    /// The corpus of the repository.
    fn corpus(&self) -> PathBuf {
        self.workspace.root.join("fuzz/corpus").join(self.name)
    }

    /// That of this machine, which grows from run to run.
    fn found(&self) -> PathBuf {
        self.workspace.target.join("fuzz/corpus").join(self.name)
    }

    /// Runs for so long; after a death it goes on.
    fn run(&self, share: Duration) -> Result<Outcome> {
        let crashes = self.workspace.root.join("fuzz/crashes");
        for folder in [&crashes, &self.found()] {
            fs::create_dir_all(folder).with_context(|| format!("could not make {}", folder.display()))?;
        }
        let mut outcome = Outcome { name: self.name.to_owned(), ..Outcome::default() };
        let begin = Instant::now();
        while begin.elapsed() + Duration::from_secs(1) < share && outcome.deaths.len() < MOST_DEATHS {
            let left = (share - begin.elapsed()).as_secs().max(1);
            let mut command = self.command();
            command.arg(self.found()).arg(self.corpus());
            command.arg(format!("-max_total_time={left}"));
            command.arg(format!("-artifact_prefix={}/{}-", crashes.display(), self.name));
            command.args(["-print_final_stats=1", "-timeout=20", "-rss_limit_mb=3000", "-max_len=4096"]);
            let finished = run::lines(&format!("Fuzzing {}", self.name), &mut command)?;
            if let Some(died) = outcome.read(&finished.lines) {
                outcome.deaths.push(died);
            } else if !finished.success() {
                bail!("{} ended with {}:\n{}", self.name, finished.status(), finished.lines.join("\n"));
            }
        }
        outcome.seconds = begin.elapsed().as_secs_f64();
        outcome.inputs = fs::read_dir(self.found())?.count();
        Ok(outcome)
    }

    /// Makes the corpus of the repository of what was found: few inputs, small ones, that lead as far as all.
    fn keep(&self) -> Result<()> {
        let (merged, corpus) = (self.found().with_extension("merged"), self.corpus());
        let _ = fs::remove_dir_all(&merged);
        fs::create_dir_all(&merged)?;
        let mut command = self.command();
        command.args(["-set_cover_merge=1", "-max_len=4096", "-rss_limit_mb=3000"]);
        command.arg(&merged).arg(&corpus).arg(self.found());
        run::quietly(&format!("Merging the corpus of {}", self.name), &mut command)?;
        let mut files: Vec<(u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&merged)? {
            let entry = entry?;
            files.push((entry.metadata()?.len(), entry.path()));
        }
        files.sort();
        for entry in fs::read_dir(&corpus)?.flatten() {
            if !entry.file_name().to_string_lossy().starts_with(FOUND) {
                fs::remove_file(entry.path())?;
            }
        }
        // Of many, every so many: large ones lead far, and small ones elsewhere.
        let kept = files.len().min(MOST_KEPT);
        for index in 0..kept {
            let (_, file) = &files[index * files.len() / kept];
            fs::copy(file, corpus.join(file.file_name().unwrap_or_default()))?;
        }
        fs::remove_dir_all(&merged)?;
        Ok(())
    }
}

impl Outcome {
    /// Adds what libFuzzer tells of a run, and gives the input at which it died.
    fn read(&mut self, lines: &[String]) -> Option<PathBuf> {
        let after = |line: &str, word: &str| line.split_once(word)?.1.split_whitespace().next()?.parse().ok();
        let mut died = None;
        let (mut counted, mut told) = (0, None);
        for line in lines {
            if let Some(runs) = line.strip_prefix('#').and_then(|rest| rest.split(char::is_whitespace).next())
            {
                counted = runs.parse().unwrap_or(counted);
            }
            told = after(line, "stat::number_of_executed_units:").or(told);
            self.edges = self.edges.max(after(line, " cov: ").unwrap_or(0));
            if let Some((_, path)) = line.split_once("Test unit written to ") {
                died = Some(PathBuf::from(path));
            }
        }
        self.runs += told.unwrap_or(counted);
        died
    }
}

fn conclude(workspace: &Workspace, program: &Path, mut outcomes: Vec<Outcome>) -> Result<()> {
    outcomes.sort_by(|a, b| a.name.cmp(&b.name));
    println!(
        "\n{:14} {:>12} {:>10} {:>8} {:>8} {:>7}",
        "target", "runs", "runs / s", "edges", "inputs", "deaths"
    );
    for Outcome { name, runs, seconds, edges, inputs, deaths } in &outcomes {
        let speed = *runs as f64 / seconds.max(1.0);
        println!("{name:14} {runs:>12} {speed:>10.0} {edges:>8} {inputs:>8} {:>7}", deaths.len());
    }
    println!("{:14} {:>12}", "all", outcomes.iter().map(|outcome| outcome.runs).sum::<u64>());
    let deaths: usize = outcomes.iter().map(|outcome| outcome.deaths.len()).sum();
    if deaths == 0 {
        return Ok(());
    }
    let shown = |path: &Path| path.strip_prefix(&workspace.root).unwrap_or(path).display().to_string();
    println!("\nTo run one again:");
    for outcome in &outcomes {
        for death in &outcome.deaths {
            println!(
                "ASAN_OPTIONS={SANITIZER} OPSMITH_FUZZ_TARGET={} {} {}",
                outcome.name,
                shown(program),
                shown(death)
            );
        }
    }
    bail!("{deaths} deaths")
}
