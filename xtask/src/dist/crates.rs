//! The crates for crates.io: packed, and each built from what was packed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::told;
use crate::run;
use crate::workspace::Workspace;

/// Packs every crate that is published into `folder`; fails where one does not build by itself, or Cargo warns of something.
pub(super) fn package(workspace: &Workspace, folder: &Path) -> Result<()> {
    let changed = told(Command::new("git").args(["status", "--porcelain"]).current_dir(&workspace.root))?;
    if !changed.is_empty() {
        println!("these are not the sources of a commit:\n{changed}");
    }
    let mut command = workspace.cargo(&["package", "--allow-dirty", "--locked"]);
    command.args(workspace.published.iter().flat_map(|package| ["--package", package]));
    let finished = run::quietly("Packing the crates, and building each", &mut command)?;
    let is_warning = |line: &&String| line.trim_start().starts_with("warning");
    let warnings: Vec<&str> = finished.lines.iter().filter(is_warning).map(String::as_str).collect();
    if !warnings.is_empty() {
        bail!("Cargo warns of what is to be published:\n{}", warnings.join("\n"));
    }
    fs::create_dir_all(folder)?;
    for package in &workspace.published {
        let name = format!("{package}-{}.crate", env!("CARGO_PKG_VERSION"));
        fs::copy(workspace.target.join("package").join(&name), folder.join(&name))?;
    }
    Ok(())
}
