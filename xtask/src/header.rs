//! `cargo xtask header`: the C header of the library ABI, generated from `opsmith-abi`.

use std::fs;

use anyhow::{Context, Result, anyhow, bail};

use crate::workspace::Workspace;

const CRATE: &str = "crates/opsmith-abi";
const HEADER: &str = "include/opsmith.h";

/// Writes `include/opsmith.h`, or with `check` fails if the file is not what would be written.
pub(crate) fn header(workspace: &Workspace, check: bool) -> Result<()> {
    let folder = workspace.root.join(CRATE);
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).map_err(|error| anyhow!(error))?;
    let bindings = cbindgen::Builder::new()
        .with_crate(&folder)
        .with_config(config)
        .generate()
        .with_context(|| format!("could not generate a header from {CRATE}"))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let path = workspace.root.join(HEADER);
    if fs::read(&path).is_ok_and(|present| present == text) {
        println!("✓ {HEADER} is up to date");
    } else if check {
        bail!("{HEADER} is not what {CRATE} generates\n  → run `cargo xtask header` and commit the result");
    } else {
        fs::create_dir_all(path.parent().context("the header lies in a folder")?)?;
        fs::write(&path, text).with_context(|| format!("could not write {HEADER}"))?;
        println!("✓ wrote {HEADER}");
    }
    Ok(())
}
