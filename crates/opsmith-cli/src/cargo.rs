//! Cargo, as the author would run it: what it says is shown as it comes, and known failures get their cure.

use std::env;
use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};

/// A Cargo command on a crate.
pub(crate) fn command(manifest_path: Option<&Path>, arguments: &[&str]) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(path) = manifest_path {
        command.arg("--manifest-path").arg(path);
    }
    command
}

/// The manifest that Cargo takes: the one that is named, or the nearest.
///
/// # Errors
/// When there is none, or no Cargo.
pub(crate) fn locate(manifest_path: Option<&Path>) -> Result<PathBuf> {
    let mut command = command(manifest_path, &["locate-project", "--message-format", "plain"]);
    let output = command.output().map_err(|error| not_started(error, &command))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().trim_start_matches("error: ").to_owned();
        bail!("{said}\n  → `opsmith new NAME` makes a crate of operators");
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end()))
}

/// Runs the command and gives what it wrote to standard output; none where it failed, having said why.
///
/// # Errors
/// When it cannot be started, and when it failed for a reason whose cure is known.
pub(crate) fn run(command: &mut Command) -> Result<Option<String>> {
    if std::io::stderr().is_terminal() {
        // It sees no terminal, for what it says is read on the way there.
        for (name, value) in [("COLOR", "always"), ("PROGRESS_WHEN", "always"), ("PROGRESS_WIDTH", "80")] {
            let name = format!("CARGO_TERM_{name}");
            if env::var_os(&name).is_none() {
                command.env(name, value);
            }
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| not_started(error, command))?;
    let mut results = child.stdout.take().context("Cargo's output cannot be read")?;
    let messages = child.stderr.take().context("Cargo's messages cannot be read")?;
    let (told, said) = thread::scope(|scope| {
        let passing = scope.spawn(|| pass_on(messages));
        let mut told = Vec::new();
        let read = results.read_to_end(&mut told);
        let said = passing.join().unwrap_or_default();
        read.map(|_| (told, said))
    })?;
    if child.wait()?.success() {
        return Ok(Some(String::from_utf8_lossy(&told).into_owned()));
    }
    cure(&said).map_or(Ok(None), |cure| Err(anyhow!(cure)))
}

/// Shows what comes from there as it comes, and gives all of it.
fn pass_on(mut messages: impl Read) -> String {
    let (mut said, mut block) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = messages.read(&mut block) {
        said.extend_from_slice(&block[..read]);
        let mut shown = std::io::stderr().lock();
        // Nobody may be listening any more; the build goes on.
        let _ = shown.write_all(&block[..read]).and_then(|()| shown.flush());
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// What Cargo and the compiler say; just-in-time builds and wheels know the same (`python/opsmith/jit/_errors.py`).
const SAYS_FULL: [&str; 7] = [
    "No space left on device",
    "Disk quota exceeded",
    "File too large",
    "os error 27",
    "File size limit exceeded",
    "ld terminated with signal 7",
    "Bus error",
];
const SAYS_NO_NETWORK: [&str; 10] = [
    "Could not resolve host",
    "failed to download",
    "network failure",
    "Could not connect",
    "Couldn't connect",
    "spurious network error",
    "failed to fetch",
    "download of config.json failed",
    "tunnel failed",
    "--offline",
];
const SAYS_OLD: [&str; 2] =
    ["is not supported by the following package", "feature `edition2024` is required"];

/// Why Cargo failed and what to do about it, where that can be told from what it said.
fn cure(said: &str) -> Option<String> {
    let said = anstream::adapter::strip_str(said).to_string();
    let is_linker =
        |line: &str| line.split_once("linker `").is_some_and(|(_, rest)| rest.contains("` not found"));
    if SAYS_FULL.iter().any(|sign| said.contains(sign)) {
        let cure = "the disk is full\n  → free some, or set CARGO_TARGET_DIR to a folder that has room";
        return Some(cure.to_owned());
    }
    if said.lines().any(is_linker) {
        let cure = "there is no linker, for which Rust asks the C compiler `cc`\n  → install one: `apt install gcc` on \
                    Debian and Ubuntu, `dnf install gcc` on Fedora";
        return Some(cure.to_owned());
    }
    // What comes before may be a warning of something that went well in the end, and what a compiler says quotes the user's text.
    let is_compilers =
        |line: &str| line.starts_with("error[E") || line.starts_with("error: could not compile");
    if said.lines().any(is_compilers) {
        return None;
    }
    let error: Vec<&str> = said.lines().skip_while(|line| !line.starts_with("error: ")).collect();
    let is_told = |signs: &[&str]| error.iter().any(|line| signs.iter().any(|sign| line.contains(sign)));
    if is_told(&SAYS_NO_NETWORK) {
        let cure = "crates.io cannot be reached, and not every crate that is needed is in Cargo's cache\n  → build once with a \
                    network, or copy $CARGO_HOME/registry (~/.cargo/registry) from a machine that has; behind a proxy, set \
                    https_proxy";
        Some(cure.to_owned())
    } else if is_told(&SAYS_OLD) {
        Some(format!("{}\n  → run: rustup update stable", old_rust()))
    } else {
        None
    }
}

/// Which compiler Cargo has found, and what it takes instead.
fn old_rust() -> String {
    let named = env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places = env::split_paths(&path).map(|folder| folder.join(&named));
    let found = places.find(|place| place.is_file()).unwrap_or_else(|| PathBuf::from(&named));
    let told = Command::new(&named).arg("--version").output().map(|output| output.stdout);
    let told = String::from_utf8_lossy(&told.unwrap_or_default()).into_owned();
    let oldest = env!("CARGO_PKG_RUST_VERSION");
    match told.split(' ').nth(1) {
        Some(version) => format!("`{}` is Rust {version}; it takes {oldest} or newer", found.display()),
        None => format!("this Rust is too old; it takes {oldest} or newer"),
    }
}

fn not_started(error: std::io::Error, command: &Command) -> anyhow::Error {
    let program = command.get_program().to_string_lossy();
    match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "there is no `{program}`\n  → install Rust from https://rustup.rs, or set CARGO to where Cargo is"
        ),
        _ => anyhow!("`{program}` cannot be started: {error}"),
    }
}
