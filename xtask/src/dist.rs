//! `cargo xtask dist`: what is given to others, in the profile `dist`, and how large it is.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::venv::Venv;
use crate::workspace::Workspace;
use crate::{VENV, run};

/// Libraries that are built to be looked at, and the bytes that each may have: what it had when it was looked at last, and a little.
const LIBRARIES: [(&str, &str, u64); 4] = [
    ("zero_out", "libzero_out.so", 1_600_000),
    ("distances", "libdistances.so", 1_640_000),
    ("activations", "libactivations.so", 2_120_000),
    ("opsmith-ops-library", "libopsmith_ops.so", 6_300_000),
];

/// What the package for Python has that is compiled, and the bytes that it may have.
const MODULE: (&str, u64) = ("lib_native.so", 8_700_000);

/// Builds the libraries, the wheel and the archive of sources; fails where a file is larger than it may be.
pub(crate) fn dist(workspace: &Workspace) -> Result<()> {
    let venv = Venv::open(workspace, VENV)?;
    venv.install_lock(workspace, "demo")?;
    let mut libraries = workspace.cargo(&["build", "--profile", workspace.profile, "--lib"]);
    libraries.args(LIBRARIES.iter().flat_map(|(package, ..)| ["--package", package]));
    run::quietly("Building the operators", &mut libraries)?;
    let folder = workspace.target.join("packages");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("could not clear {}", folder.display()))?;
    }
    let mut wheel = venv.program(workspace, "maturin");
    wheel
        .args(["build", "--profile", workspace.profile, "--interpreter"])
        .arg(venv.python())
        .arg("--out")
        .arg(&folder);
    run::quietly("Building the Python package", &mut wheel)?;
    let mut sources = venv.program(workspace, "maturin");
    sources.args(["sdist", "--out"]).arg(&folder);
    run::quietly("Packing its sources", &mut sources)?;
    println!();
    for entry in fs::read_dir(&folder)? {
        let entry = entry?;
        println!("{}  {:.1} MB", entry.path().display(), entry.metadata()?.len() as f64 / 1e6);
    }
    let built = workspace.library_folder();
    let files = LIBRARIES.iter().map(|(_, file, most)| (*file, *most)).chain([MODULE]);
    let mut too_large = Vec::new();
    for (file, most) in files {
        let size = size(&built.join(file))?;
        println!("{file:20} {size:>10} bytes, at most {most}");
        if size > most {
            too_large.push(file);
        }
    }
    if too_large.is_empty() {
        return Ok(());
    }
    bail!("larger than they may be: {}", too_large.join(", "))
}

fn size(file: &Path) -> Result<u64> {
    Ok(file.metadata().with_context(|| format!("{} was not built", file.display()))?.len())
}
