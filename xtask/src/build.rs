//! Builds what Python uses: operator libraries and the `opsmith` wheel.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::run;
use crate::stamp::{Stamp, hash_file, hash_sources};
use crate::venv::Venv;
use crate::workspace::Workspace;

/// What the wheel is made of.
const WHEEL_SOURCES: [&str; 6] =
    ["Cargo.toml", "Cargo.lock", "README.md", "crates", "pyproject.toml", "python"];

/// Builds all operator libraries and the wheel, and installs that into `venv`.
pub(crate) fn everything(workspace: &Workspace, venv: &Venv) -> Result<()> {
    libraries(workspace, None)?;
    package(workspace, venv)
}

/// Builds the wheel and installs it into `venv`, which must hold maturin. Nothing that is up to date is done again.
pub(crate) fn package(workspace: &Workspace, venv: &Venv) -> Result<()> {
    let wheel = wheel(workspace, venv)?;
    venv.install_wheel(workspace, &wheel, hash_file(&wheel)?)
}

/// Builds the operator library of one package, or of all for `None`.
pub(crate) fn libraries(workspace: &Workspace, package: Option<&str>) -> Result<()> {
    let mut command = workspace.cargo(&["build", "--profile", workspace.profile, "--lib"]);
    let packages = workspace.libraries.iter().map(|library| library.package.as_str());
    for package in packages.filter(|name| package.is_none_or(|only| only == *name)) {
        command.args(["--package", package]);
    }
    run::quietly("Building the operators", &mut command).map(drop)
}

/// Builds the programs that Python's tests run, quickly.
///
/// An example among them has Cargo choose the features of all crates as for the Rust tests: nothing is compiled twice.
pub(crate) fn programs(workspace: &Workspace) -> Result<()> {
    let mut command = workspace.cargo(&["build", "--workspace", "--bin", "opsmith", "--bin", "serve"]);
    command.args(["--example", "random_bodies"]);
    run::quietly("Building the programs", &mut command).map(drop)
}

/// Builds the `opsmith` wheel unless its sources are those of the one already built; returns its path.
pub(crate) fn wheel(workspace: &Workspace, venv: &Venv) -> Result<PathBuf> {
    let folder = workspace.target.join("wheels").join(workspace.profile);
    let stamp = Stamp::new(folder.join(".sources.sha256"), hash_sources(&workspace.root, &WHEEL_SOURCES)?);
    if stamp.is_current()
        && let Some(wheel) = newest_wheel(&folder)?
    {
        return Ok(wheel);
    }
    let wheel = wheel_into(workspace, &folder, venv, venv)?;
    stamp.write()?;
    Ok(wheel)
}

/// Builds the package for a free-threaded Python, which has no stable interface, so that each version needs a wheel of its own.
pub(crate) fn free_threaded_wheel(workspace: &Workspace, tools: &Venv, python: &Venv) -> Result<PathBuf> {
    wheel_into(workspace, &workspace.target.join("wheels/free-threaded"), tools, python)
}

/// Builds a wheel for this Python with the tools of an environment, in a folder for it alone.
fn wheel_into(workspace: &Workspace, folder: &Path, tools: &Venv, python: &Venv) -> Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("could not clear {}", folder.display()))?;
    }
    let mut command = tools.program(workspace, "maturin");
    command.args(["build", "--profile", workspace.profile, "--compatibility", "linux", "--interpreter"]);
    command.arg(python.python());
    command.arg("--out").arg(folder);
    run::quietly("Building the Python package", &mut command)?;
    newest_wheel(folder)?.context("maturin succeeded but left no wheel")
}

fn newest_wheel(folder: &Path) -> Result<Option<PathBuf>> {
    if !folder.exists() {
        return Ok(None);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            return Ok(Some(path));
        }
    }
    Ok(None)
}
