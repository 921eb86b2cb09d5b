//! `opsmith wheel`: a crate of operators as a package for Python.
//!
//! The Python package makes it, as it does for `pip install .`, so that both give the same; this finds the Python.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, anyhow, bail};

use crate::cargo::locate;
use crate::{Outcome, itself};

/// Make a wheel of a crate of operators: one file for every Python and framework
///
/// It has the library, its functions as a typed module, licences and what Cargo.toml says of the crate. The Python package
/// `opsmith` makes it, the same as `pip install .` does where the crate has a pyproject.toml.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  opsmith wheel
  opsmith wheel --compatibility manylinux_2_28
  opsmith wheel --sdist --out /tmp/dist
  opsmith wheel --manifest-path my_ops/Cargo.toml --python .venv/bin/python")]
pub(crate) struct Options {
    /// The crate's Cargo.toml [default: the nearest one, from this folder up]
    #[arg(long, value_name = "FILE")]
    manifest_path: Option<PathBuf>,
    /// The folder to put it in
    #[arg(long, value_name = "FOLDER", default_value = "dist")]
    out: PathBuf,
    /// Pack the sources as well, for machines that the wheel is not for
    #[arg(long)]
    sdist: bool,
    /// Build the library as `opsmith build --release` does: made sooner, and larger
    #[arg(long)]
    release: bool,
    /// The oldest system that the wheel is for, whatever this one is: manylinux_2_28 [needs: pip install cargo-zigbuild]
    #[arg(long, value_name = "TAG")]
    compatibility: Option<String>,
    /// A Python that has the package `opsmith` [default: the one that this program came with, or python3]
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// Write JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Has the Python package make the wheel, which says where it is.
pub(crate) fn wheel(options: &Options) -> Result<Outcome> {
    let manifest = locate(options.manifest_path.as_deref())?;
    let python = options.python.clone().unwrap_or_else(itself::python);
    check_python(&python)?;
    let mut command = Command::new(&python);
    command.args(["-m", "opsmith.build", "--manifest-path"]).arg(manifest).arg("--out").arg(&options.out);
    command.args(options.release.then_some("--release"));
    command.args(options.compatibility.iter().flat_map(|tag| ["--compatibility", tag]));
    command.args(options.sdist.then_some("--sdist")).args(options.json.then_some("--json"));
    match command.status()?.code() {
        Some(0) => Ok(Outcome::Good),
        // It has told why.
        Some(1) => Ok(Outcome::Fault),
        _ => bail!("`{}` ended unexpectedly while it made the wheel", python.display()),
    }
}

fn check_python(program: &Path) -> Result<()> {
    let python = program.display();
    let advice = "pip install opsmith, or name a Python that has it: --python PROGRAM";
    let asked =
        Command::new(program).args(["-c", "import opsmith.build; print(opsmith.__version__)"]).output();
    let output = asked.map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            anyhow!("there is no `{python}`\n  → install Python 3.10 or newer, or name it: --python PROGRAM")
        }
        _ => anyhow!("`{python}` cannot be started: {error}"),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let why = said.lines().last().unwrap_or("it does not say why");
        bail!("`{python}` cannot use the Python package `opsmith`: {why}\n  → {advice}");
    }
    // What is imported may print something, too.
    let (own, said) = (env!("CARGO_PKG_VERSION"), String::from_utf8_lossy(&output.stdout));
    let theirs = said.lines().last().unwrap_or_default();
    if theirs != own {
        bail!(
            "this program is Opsmith {own}, and the Python package of `{python}` is {theirs}\n  → have both of one version"
        );
    }
    Ok(())
}
