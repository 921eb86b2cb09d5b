//! `cargo xtask lint`: formatting, lints, documentation and its prose, with every warning an error.

use std::process::Command;

use anyhow::{Result, bail};

use crate::dist::licences;
use crate::venv::Venv;
use crate::workspace::Workspace;
use crate::{VENV, circles, figure, header, run, unsafes};

/// Runs every check, also after one has failed.
pub(crate) fn lint(workspace: &Workspace) -> Result<()> {
    let venv = Venv::open(workspace, VENV)?;
    for lock in ["lint", "docs"] {
        venv.install_lock(workspace, lock)?;
    }
    let mut documentation = workspace.cargo(&["doc", "--workspace", "--no-deps"]);
    documentation.env("RUSTDOCFLAGS", "-Dwarnings");
    let mut ruff_check = venv.program(workspace, "ruff");
    ruff_check.args(["check", "."]);
    let mut ruff_format = venv.program(workspace, "ruff");
    ruff_format.args(["format", "--check", "."]);
    let mut prose = venv.program(workspace, "python");
    prose.arg("xtask/prose.py");
    let mut links = venv.program(workspace, "python");
    links.arg("xtask/site/site.py").arg(workspace.target.join("linted-site"));
    let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    let checks: [(&str, Command); 7] = [
        ("rustfmt", workspace.cargo(&["fmt", "--all", "--check"])),
        ("clippy", workspace.cargo(&clippy)),
        ("rustdoc", documentation),
        ("ruff check", ruff_check),
        ("ruff format", ruff_format),
        ("prose", prose),
        ("links of the docs", links),
    ];
    let mut failures = Vec::new();
    for (name, mut command) in checks {
        if let Err(error) = run::quietly(name, &mut command) {
            eprintln!("{error:#}\n");
            failures.push(name);
        }
    }
    let files = [
        ("header", header::header(workspace, true)),
        ("figure", figure::figure(workspace, true)),
        ("licences", licences::check_file(workspace, &venv)),
        ("unsafe", unsafes::check(workspace)),
        ("circles", circles::check(workspace)),
    ];
    for (name, outcome) in files {
        if let Err(error) = outcome {
            eprintln!("{error:#}\n");
            failures.push(name);
        }
    }
    if failures.is_empty() {
        println!("✓ all checks passed");
        return Ok(());
    }
    bail!("{} failed", failures.join(", "))
}
