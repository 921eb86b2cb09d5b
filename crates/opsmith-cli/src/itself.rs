//! How this program came here, and how it is started again: it loads libraries, and makes calls that may crash, in a process of its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

/// How the program came here.
#[derive(Debug, Default)]
pub struct Itself {
    /// What starts the program again: a Python, empty where it is not known, and its first arguments. None where it is a file of its own.
    pub again: Vec<OsString>,
    /// What it was installed from: a folder in a clone of the repository, or a file in one. Empty where that is not known.
    pub from: PathBuf,
}

static ITSELF: OnceLock<Itself> = OnceLock::new();

/// Says how the program came here. What was said first counts.
pub(crate) fn set(itself: Itself) {
    let _ = ITSELF.set(itself);
}

/// What starts the program, without its own arguments.
///
/// # Errors
/// When neither Python nor the system tells which file this program is.
pub(crate) fn command() -> Result<Command> {
    match ITSELF.get().and_then(|itself| itself.again.split_first()) {
        Some((program, _)) if program.is_empty() => {
            bail!("Python does not say which program it is, so it cannot be started again")
        }
        Some((program, first)) => {
            let mut command = Command::new(program);
            command.args(first);
            Ok(command)
        }
        None => {
            let program = std::env::current_exe().context("cannot tell where this program is")?;
            Ok(Command::new(program))
        }
    }
}

/// The Python that the program came with, or else the one on the path.
pub(crate) fn python() -> PathBuf {
    ITSELF.get().and_then(|itself| itself.again.first()).map_or_else(|| "python3".into(), PathBuf::from)
}

/// What the program was installed from, and the folders above.
pub(crate) fn installed_from() -> impl Iterator<Item = &'static Path> {
    ITSELF.get().map_or(Path::new(""), |itself| &itself.from).ancestors().filter(|path| path.is_absolute())
}
