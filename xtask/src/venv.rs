//! Python environments: finds a Python, makes `.venv`, installs what a lock file pins.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;
use crate::stamp::{Stamp, hash_bytes};
use crate::workspace::Workspace;

/// The oldest Python that the locks have wheels for, as a minor version of Python 3.
const OLDEST: u32 = 10;
/// The newest one; a newer Python is used only when `OPSMITH_PYTHON` names it.
const NEWEST: u32 = 13;

/// The minor versions of Python 3 that the package says it is for.
pub(crate) const PYTHONS: std::ops::RangeInclusive<u32> = 10..=14;

/// A virtual environment of the repository.
pub(crate) struct Venv {
    folder: PathBuf,
}

impl Venv {
    /// The environment `folder` (relative to the repository), made if it is not there or no longer runs.
    pub(crate) fn open(workspace: &Workspace, folder: &str) -> Result<Self> {
        Self::made_with(workspace, folder, find_python)
    }

    /// The same, made with the Python that `python` finds.
    pub(crate) fn made_with(
        workspace: &Workspace,
        folder: &str,
        python: impl FnOnce() -> Result<String>,
    ) -> Result<Self> {
        let venv = Self { folder: workspace.root.join(folder) };
        if Command::new(venv.python()).args(["-c", ""]).output().is_ok_and(|output| output.status.success()) {
            return Ok(venv);
        }
        if venv.folder.exists() {
            fs::remove_dir_all(&venv.folder).with_context(|| format!("could not clear {folder}"))?;
        }
        let python = python()?;
        let mut command = Command::new(&python);
        command.args(["-m", "venv"]).arg(&venv.folder);
        run::quietly(&format!("Making {folder} with {python}"), &mut command).with_context(|| {
            format!(
                "{python} could not make a virtual environment\n  → install its venv module (Debian, Ubuntu: `apt \
                 install python3-venv`) or set OPSMITH_PYTHON to another Python"
            )
        })?;
        Ok(venv)
    }

    /// The environment's interpreter.
    pub(crate) fn python(&self) -> PathBuf {
        self.folder.join("bin/python")
    }

    /// A command that runs a program of this environment.
    pub(crate) fn program(&self, workspace: &Workspace, name: &str) -> Command {
        let mut command = Command::new(self.folder.join("bin").join(name));
        command.current_dir(&workspace.root).env("VIRTUAL_ENV", &self.folder);
        command.env_remove("PYTHONHOME").env_remove("PYTHONPATH").env("PYTHONUNBUFFERED", "1");
        // Nothing is compiled when it is installed: each process would compile a framework again.
        command.env_remove("PYTHONDONTWRITEBYTECODE");
        command
    }

    /// Installs `requirements/<lock>.txt` unless this very text was installed before.
    pub(crate) fn install_lock(&self, workspace: &Workspace, lock: &str) -> Result<()> {
        let file = format!("requirements/{lock}.txt");
        let text = fs::read(workspace.root.join(&file)).with_context(|| format!("could not read {file}"))?;
        let stamp = self.stamp(lock, hash_bytes(&text));
        if stamp.is_current() {
            return Ok(());
        }
        let mut command = self.pip(workspace);
        // Python compiles the few modules that are used when it first imports them.
        command.args(["install", "--no-compile", "--progress-bar", "off", "--requirement", &file]);
        run::quietly(&format!("Installing {file}"), &mut command)?;
        stamp.write()
    }

    /// Installs these packages unless this very list was installed before.
    pub(crate) fn install(&self, workspace: &Workspace, name: &str, packages: &[&str]) -> Result<()> {
        let stamp = self.stamp(name, hash_bytes(packages.join(" ").as_bytes()));
        if stamp.is_current() {
            return Ok(());
        }
        let mut command = self.pip(workspace);
        command
            .args(["install", "--no-compile", "--progress-bar", "off", "--only-binary", ":all:"])
            .args(packages);
        run::quietly(&format!("Installing {name}"), &mut command)?;
        stamp.write()
    }

    /// Installs one wheel over whatever version is there, unless this very file was installed before.
    pub(crate) fn install_wheel(&self, workspace: &Workspace, wheel: &Path, hash: String) -> Result<()> {
        let stamp = self.stamp("package", hash);
        if stamp.is_current() {
            return Ok(());
        }
        let mut command = self.pip(workspace);
        command.args(["install", "--force-reinstall", "--no-deps", "--no-index"]).arg(wheel);
        run::quietly("Installing the Python package", &mut command)?;
        stamp.write()
    }

    fn pip(&self, workspace: &Workspace) -> Command {
        let mut command = self.program(workspace, "python");
        command.args(["-m", "pip", "--disable-pip-version-check", "--no-input"]);
        command
    }

    fn stamp(&self, name: &str, hash: String) -> Stamp {
        Stamp::new(self.folder.join(format!(".opsmith-{name}.sha256")), hash)
    }
}

/// The Python to make environments with: `OPSMITH_PYTHON`, else the first fitting one on the path.
fn find_python() -> Result<String> {
    if let Ok(chosen) = std::env::var("OPSMITH_PYTHON") {
        return match minor_version(&chosen) {
            Some(minor) if minor >= OLDEST => Ok(chosen),
            Some(minor) => bail!(
                "OPSMITH_PYTHON={chosen} is Python 3.{minor}, which is too old\n  → name a Python 3.{OLDEST} or newer"
            ),
            None => bail!(
                "OPSMITH_PYTHON={chosen} does not run as a Python 3\n  → name a Python 3.{OLDEST} or newer"
            ),
        };
    }
    let versioned = (OLDEST..=NEWEST).rev().map(|minor| format!("python3.{minor}"));
    let mut candidates = std::iter::once("python3".to_owned()).chain(versioned);
    candidates.find(|name| minor_version(name).is_some_and(|minor| (OLDEST..=NEWEST).contains(&minor))).with_context(
        || {
            format!(
                "found no Python 3.{OLDEST} to 3.{NEWEST}, for which all pinned packages have wheels\n  → install one, \
                 or set OPSMITH_PYTHON to its interpreter"
            )
        },
    )
}

/// The minor version of a Python 3 interpreter; `None` if `program` is not one or does not run.
fn minor_version(program: &str) -> Option<u32> {
    let script = "import sys; print(sys.version_info[1] if sys.version_info[0] == 3 else '')";
    let output = Command::new(program).args(["-c", script]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// A Python that runs.
pub(crate) struct Python {
    /// `3.14`, or `3.14t` of a free-threaded one.
    pub(crate) version: String,
    /// Where it really is: what is on the path may be a program that chooses among several.
    pub(crate) path: PathBuf,
}

impl Python {
    /// Whether it runs threads side by side, for which the package needs a wheel of its own.
    pub(crate) fn is_free_threaded(&self) -> bool {
        self.version.ends_with('t')
    }
}

/// The Pythons that are here, one of each version: those that `OPSMITH_PYTHONS` names, on the path, and of pyenv.
pub(crate) fn pythons() -> Vec<Python> {
    let named = std::env::var_os("OPSMITH_PYTHONS").unwrap_or_default();
    let mut candidates: Vec<PathBuf> =
        std::env::split_paths(&named).filter(|path| path.as_os_str() != "").collect();
    candidates.extend(
        PYTHONS.flat_map(|minor| ["", "t"].map(|kind| PathBuf::from(format!("python3.{minor}{kind}")))),
    );
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let pyenv = std::env::var_os("PYENV_ROOT").map_or_else(|| home.join(".pyenv"), PathBuf::from);
    if let Ok(entries) = fs::read_dir(pyenv.join("versions")) {
        candidates.extend(entries.flatten().map(|entry| entry.path().join("bin/python3")));
    }
    let mut found: Vec<Python> = Vec::new();
    for python in candidates.iter().filter_map(|candidate| asked(candidate)) {
        if found.iter().all(|other| other.version != python.version) {
            found.push(python);
        }
    }
    found
}

/// What a Python says of itself, if it runs and the package is for it.
fn asked(python: &Path) -> Option<Python> {
    let script = "import sys, sysconfig, venv; print(*sys.version_info[:2], \
                  't' if sysconfig.get_config_var('Py_GIL_DISABLED') else '-', sys.executable)";
    let output = Command::new(python).args(["-c", script]).current_dir("/").output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    let [major, minor, kind, path] = said.trim().splitn(4, ' ').collect::<Vec<_>>().try_into().ok()?;
    let is_ours = major == "3" && PYTHONS.contains(&minor.parse().ok()?);
    let version = format!("3.{minor}{}", if kind == "t" { "t" } else { "" });
    is_ours.then(|| Python { version, path: PathBuf::from(path) })
}
