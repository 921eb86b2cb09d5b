//! `cargo xtask matrix`: one build of the libraries and of the wheel under several framework releases.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};

use crate::report::table;
use crate::stamp::hash_file;
use crate::venv::Venv;
use crate::workspace::Workspace;
use crate::{VENV, build, test};

/// The frameworks that the tests' own environment has.
const HOSTS: [&str; 3] = ["torch", "tensorflow", "jax"];

/// An environment with one release of each of some frameworks.
struct Cell {
    hosts: Vec<String>,
    venv: Venv,
}

/// Builds once, then runs the hosts' suites in each environment and shows that no file changed meanwhile.
pub(crate) fn matrix(workspace: &Workspace) -> Result<()> {
    let venv = Venv::open(workspace, VENV)?;
    venv.install_lock(workspace, "test")?;
    build::everything(workspace, &venv)?;
    let wheel = build::wheel(workspace, &venv)?;
    let before = hashes(workspace, &wheel)?;

    let suites = test::suites(workspace)?;
    let mut rows = Vec::new();
    let mut failed = false;
    for cell in cells(workspace, venv)? {
        cell.venv.install_wheel(workspace, &wheel, hash_file(&wheel)?)?;
        for host in cell.hosts.iter().map(String::as_str).chain(["numpy"]) {
            for suite in suites.iter().filter(|suite| belongs(suite, host)) {
                let outcome = test::python(workspace, &cell.venv, suite, None)?;
                failed |= outcome.failure.is_some();
                let result =
                    outcome.summary.last().map_or("no summary", |line| line.trim_matches(['=', ' ']));
                rows.push(row(workspace, &cell.venv, suite, host, result)?);
            }
        }
    }
    println!("\n{}\n", table(&["suite", "host", "numpy", "python", "result"], &rows));
    let files: Vec<Vec<String>> =
        before.iter().map(|(file, hash)| vec![file.clone(), hash.clone()]).collect();
    println!("{}", table(&["file", "sha256"], &files));
    if hashes(workspace, &wheel)? != before {
        bail!("a library was rebuilt while the suites ran");
    }
    if failed {
        bail!("a suite failed");
    }
    Ok(())
}

/// Whether a suite tests `host`: `torch` and `torch_bare` belong to `torch`.
fn belongs(suite: &str, host: &str) -> bool {
    suite.split('_').next() == Some(host)
}

/// The tests' own environment and one for each `requirements/matrix-HOST-VERSION.txt`.
fn cells(workspace: &Workspace, venv: Venv) -> Result<Vec<Cell>> {
    let mut locks = Vec::new();
    for entry in fs::read_dir(workspace.root.join("requirements"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(lock) = name.strip_prefix("matrix-").and_then(|rest| rest.strip_suffix(".txt")) {
            locks.push(lock.to_owned());
        }
    }
    locks.sort();
    let mut cells = vec![Cell { hosts: HOSTS.map(str::to_owned).to_vec(), venv }];
    for lock in locks {
        let venv = Venv::open(workspace, &format!(".venv-matrix/{lock}"))?;
        venv.install_lock(workspace, &format!("matrix-{lock}"))?;
        let host = lock.split('-').next().unwrap_or(&lock).to_owned();
        cells.push(Cell { hosts: vec![host], venv });
    }
    Ok(cells)
}

fn row(workspace: &Workspace, venv: &Venv, suite: &str, host: &str, result: &str) -> Result<Vec<String>> {
    let script = format!("import {host}; print({host}.__version__)");
    let numpy = "import numpy; print(numpy.__version__)";
    let python = ask(workspace, venv, "import platform; print(platform.python_version())")?;
    let host = format!("{host} {}", ask(workspace, venv, &script)?);
    Ok(vec![suite.to_owned(), host, ask(workspace, venv, numpy)?, python, result.to_owned()])
}

fn ask(workspace: &Workspace, venv: &Venv, script: &str) -> Result<String> {
    let output = venv.program(workspace, "python").args(["-c", script]).output()?;
    if !output.status.success() {
        bail!("{script:?} failed:\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The operator libraries and the wheel, each with the hash of its content.
fn hashes(workspace: &Workspace, wheel: &Path) -> Result<Vec<(String, String)>> {
    let folder = workspace.library_folder();
    let libraries = workspace.libraries.iter().map(|library| folder.join(&library.file));
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    libraries.chain([wheel.to_owned()]).map(|path| Ok((name(&path), hash_file(&path)?))).collect()
}
