//! What was built, installed and used as users do it: under every Python that is here, without Rust on the path.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{BuildTree, MANYLINUX, clear, only, package};
use crate::run;
use crate::stamp::hash_file;
use crate::venv::{PYTHONS, Venv, pythons};
use crate::workspace::Workspace;

/// Crates whose wheels are made and installed: one as users make them, and one with an op that panics.
const WHEELS: [&str; 2] = ["examples/distances", "tests/libraries/opsmith-testops"];
const SCRIPT: &str = "tests/dist/use_what_is_installed.py";

/// Makes wheels of ops with the package, and the package from its sources; then installs and uses all of it.
pub(super) fn run(place: &BuildTree, venv: &Venv, packages: &Path) -> Result<()> {
    let workspace = &place.workspace;
    let folder = workspace.target.join("trial");
    clear(&folder)?;
    let wheel = only(packages, ".whl")?;
    let ops = folder.join("ops");
    venv.install_wheel(workspace, &wheel, hash_file(&wheel)?)?;
    for path in WHEELS {
        make_wheel(place, venv, path, &ops)?;
    }
    let own = from_sources(workspace, venv, packages, &folder)?;
    let pythons = pythons();
    let mut tried = Vec::new();
    for minor in PYTHONS {
        let version = format!("3.{minor}");
        match pythons.iter().find(|python| python.version == version) {
            Some(python) => tried.push(used(workspace, &folder, &python.path, &version, &wheel, &ops)?),
            None => println!("– Python {version} is not here: not tried"),
        }
    }
    let Some(python) = pythons.iter().find(|python| !python.is_free_threaded()) else {
        bail!(
            "found no Python 3.10 to 3.14\n  → install one, or name some in OPSMITH_PYTHONS, divided by colons"
        );
    };
    tried.push(used(workspace, &folder, &python.path, "from-sources", &own, &ops)?);
    println!("✓ installed and used, without Rust:\n{}", tried.join("\n"));
    fs::remove_dir_all(&folder).with_context(|| format!("could not remove {}", folder.display()))
}

/// `opsmith wheel --compatibility …` on a crate of ops.
fn make_wheel(place: &BuildTree, venv: &Venv, path: &str, folder: &Path) -> Result<()> {
    let workspace = &place.workspace;
    let mut command = venv.program(workspace, "python");
    command.args(["-m", "opsmith.build", "--compatibility", MANYLINUX, "--manifest-path"]);
    command.arg(workspace.root.join(path).join("Cargo.toml")).arg("--out").arg(folder);
    command.envs(package::settings(place, venv, &place.operators)?);
    run::quietly(&format!("Making a wheel of {path}"), &mut command).map(drop)
}

/// The wheel that `pip` makes of the archive of sources, in a folder where nothing else is.
fn from_sources(workspace: &Workspace, venv: &Venv, packages: &Path, folder: &Path) -> Result<PathBuf> {
    let out = folder.join("from-sources");
    let mut command = venv.program(workspace, "python");
    command.args(["-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", "--wheel-dir"]).arg(&out);
    command.arg(only(packages, ".tar.gz")?).current_dir(folder);
    command.env("CARGO_TARGET_DIR", workspace.target.join("from-sources"));
    run::quietly("Building the package from its sources", &mut command)?;
    only(&out, ".whl")
}

/// Installs wheels into a new environment and uses them there; what Python and which NumPy it was.
fn used(
    workspace: &Workspace,
    folder: &Path,
    python: &Path,
    name: &str,
    wheel: &Path,
    ops: &Path,
) -> Result<String> {
    let (home, environment) = (folder.join(format!("home-{name}")), folder.join(format!("python-{name}")));
    clear(&home)?;
    // As on a machine where nobody has installed Rust: neither the path nor the home has it.
    let plain = |program: &Path| {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", &home).env("HOME", &home).current_dir(&home);
        // How the index is reached is this machine's matter.
        command
            .envs(std::env::vars().filter(|(name, _)| name.starts_with("PIP_") || name.ends_with("_proxy")));
        command
    };
    run::quietly(
        &format!("Python {name}: making an environment"),
        plain(python).args(["-m", "venv"]).arg(&environment),
    )?;
    let mut install = plain(&environment.join("bin/python"));
    install
        .args(["-m", "pip", "--disable-pip-version-check", "install", "--only-binary", ":all:"])
        .arg(wheel);
    install.args(super::files(ops)?);
    run::quietly(&format!("Python {name}: installing"), &mut install)?;
    let mut script = plain(&environment.join("bin/python"));
    script.arg("-I").arg(workspace.root.join(SCRIPT)).arg(&home);
    let said = run::quietly(&format!("Python {name}: using it"), &mut script)?;
    said.lines.last().cloned().with_context(|| format!("{SCRIPT} has said nothing"))
}
