//! Runs other programs: quietly with a progress line, or with their output passed on or shown whole.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::hang;

/// How many lines of a failed program's output are shown.
const TAIL: usize = 60;
/// Without a terminal, a quiet program tells this often that it still runs.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// A suite that says nothing for this long hangs: no test takes half of it.
const SILENCE: Duration = Duration::from_secs(20 * 60);

/// The progress lines of the programs that run at the moment.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// What a program did.
pub(crate) struct Finished {
    /// Its exit status; `None` when a signal ended it.
    pub(crate) code: Option<i32>,
    /// Standard output and standard error, line by line as they came.
    pub(crate) lines: Vec<String>,
    /// How long it had said nothing when it was ended for that.
    pub(crate) silent: Option<Duration>,
}

impl Finished {
    /// Whether the program said that it succeeded.
    pub(crate) fn success(&self) -> bool {
        self.code == Some(0)
    }

    /// How it ended, in words.
    pub(crate) fn status(&self) -> String {
        if let Some(silent) = self.silent {
            return format!("ended, as it said nothing for {} s", silent.as_secs());
        }
        self.code.map_or_else(|| "ended by a signal".to_owned(), |code| format!("exit status {code}"))
    }
}

/// Runs `command` behind one progress line and fails with the end of its output if it fails.
///
/// On a terminal the line shows what the program says at the moment; elsewhere one plain line tells the
/// beginning, one the end, and a heartbeat every half minute that it goes on. It may be silent for as long as it likes: pip says
/// nothing while it downloads, and how long that takes is up to the line.
pub(crate) fn quietly(label: &str, command: &mut Command) -> Result<Finished> {
    let finished = lines(label, command)?;
    if finished.success() {
        return Ok(finished);
    }
    let tail = &finished.lines[finished.lines.len().saturating_sub(TAIL)..];
    let advice = advice(&finished.lines).map(|text| format!("\n  → {text}")).unwrap_or_default();
    bail!("{} failed ({}):\n{}{advice}", describe(command), finished.status(), tail.join("\n"));
}

/// Runs `command` behind one progress line; what it said, and whether it failed, is for the caller to judge.
pub(crate) fn lines(label: &str, command: &mut Command) -> Result<Finished> {
    let started = Instant::now();
    let progress = Progress::start(label);
    let finished = execute(command, None, |line| progress.say(line), || progress.beat(started))?;
    progress.finish(started, finished.success());
    Ok(finished)
}

/// Runs `command` with its output passed on as it comes, for somebody who looks on; a failure is for the caller to judge.
pub(crate) fn streaming(label: &str, command: &mut Command) -> Result<Finished> {
    println!("\n── {label}: {}", describe(command));
    execute(command, None, |line| println!("{line}"), || {})
}

/// Runs `command` behind a progress line and then shows all that it said; a failure is for the caller to judge.
///
/// That is for suites of tests, which run at once, so that their outputs would be mixed. One that says nothing for 20 minutes is
/// ended.
pub(crate) fn whole(label: &str, command: &mut Command) -> Result<Finished> {
    let started = Instant::now();
    let progress = Progress::start(label);
    let finished = execute(command, Some(SILENCE), |line| progress.say(line), || progress.beat(started))?;
    progress.clear();
    BARS.suspend(|| -> std::io::Result<()> {
        // Nobody else prints meanwhile.
        let mut out = std::io::stdout().lock();
        writeln!(out, "\n── {label}: {}", describe(command))?;
        finished.lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    })?;
    progress.finish(started, finished.success());
    Ok(finished)
}

fn execute(
    command: &mut Command,
    patience: Option<Duration>,
    mut on_line: impl FnMut(&str),
    mut on_idle: impl FnMut(),
) -> Result<Finished> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("could not start {}", describe(command)))?;
    let (sender, receiver) = mpsc::channel();
    child.stdout.take().into_iter().for_each(|pipe| forward(pipe, sender.clone()));
    child.stderr.take().into_iter().for_each(|pipe| forward(pipe, sender.clone()));
    drop(sender);
    let mut lines = Vec::new();
    let mut spoke = Instant::now();
    loop {
        match receiver.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => {
                spoke = Instant::now();
                on_line(&line);
                lines.push(line);
            }
            Err(RecvTimeoutError::Timeout) if patience.is_some_and(|limit| spoke.elapsed() >= limit) => {
                lines.extend(hang::end(&mut child, &receiver)?);
                return Ok(Finished { code: None, lines, silent: patience });
            }
            Err(RecvTimeoutError::Timeout) => on_idle(),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(Finished { code: child.wait()?.code(), lines, silent: None })
}

/// Sends the lines from a pipe on until it ends or nobody wants them.
fn forward(pipe: impl Read + Send + 'static, sender: Sender<String>) {
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            if sender.send(line).is_err() {
                return;
            }
            bytes.clear();
        }
    });
}

fn describe(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// What a user can do about the failures that are not the project's.
fn advice(lines: &[String]) -> Option<&'static str> {
    const KNOWN: [(&str, &str); 9] = [
        (
            "No space left on device",
            "the disk is full: free some space (the tests' environment needs about 7 GB) and run it again",
        ),
        ("Could not resolve host", "no network: connect, or set HTTPS_PROXY, and run it again"),
        ("name resolution", "no network: connect, or set HTTPS_PROXY, and run it again"),
        ("Network is unreachable", "no network: connect, or set HTTPS_PROXY, and run it again"),
        ("NewConnectionError", "no network: connect, or set HTTPS_PROXY, and run it again"),
        (
            "No matching distribution found",
            "no wheel for this Python or no way to the index: set OPSMITH_PYTHON to a Python 3.10 to 3.13 and check the network",
        ),
        ("no such command: `clippy`", "run `rustup component add clippy`"),
        ("no such command: `fmt`", "run `rustup component add rustfmt`"),
        ("linker `cc` not found", "install a C tool chain for the linker, such as `apt install gcc`"),
    ];
    let hit = |pattern: &str| lines.iter().any(|line| line.contains(pattern));
    KNOWN.iter().find(|(pattern, _)| hit(pattern)).map(|(_, text)| *text)
}

/// The one line that stands for a running program.
enum Progress {
    Bar(ProgressBar, String),
    Plain(String, std::cell::Cell<Instant>, std::cell::RefCell<String>),
}

impl Progress {
    fn start(label: &str) -> Self {
        if std::io::stdout().is_terminal() {
            let bar = BARS.add(ProgressBar::new_spinner());
            let style = ProgressStyle::with_template("{spinner} {prefix} [{elapsed}] {wide_msg:.dim}");
            bar.set_style(style.expect("the template is constant and well formed"));
            bar.set_prefix(label.to_owned());
            bar.enable_steady_tick(Duration::from_millis(120));
            return Self::Bar(bar, label.to_owned());
        }
        println!("… {label}");
        Self::Plain(label.to_owned(), Instant::now().into(), String::new().into())
    }

    fn say(&self, line: &str) {
        match self {
            Self::Bar(bar, _) => bar.set_message(line.trim().to_owned()),
            Self::Plain(_, _, last) => line.trim().clone_into(&mut last.borrow_mut()),
        }
    }

    fn beat(&self, started: Instant) {
        if let Self::Plain(label, since, last) = self
            && since.get().elapsed() >= HEARTBEAT
        {
            since.set(Instant::now());
            println!("… {label}, {:.0} s so far: {}", started.elapsed().as_secs_f64(), last.borrow());
        }
    }

    /// Ends the line without a word.
    fn clear(&self) {
        if let Self::Bar(bar, _) = self {
            bar.finish_and_clear();
        }
    }

    fn finish(&self, started: Instant, success: bool) {
        let mark = if success { "✓" } else { "✗" };
        let seconds = started.elapsed().as_secs_f64();
        match self {
            Self::Bar(bar, label) => {
                bar.finish_and_clear();
                BARS.suspend(|| println!("{mark} {label} ({seconds:.1} s)"));
            }
            Self::Plain(label, ..) => println!("{mark} {label} ({seconds:.1} s)"),
        }
    }
}
