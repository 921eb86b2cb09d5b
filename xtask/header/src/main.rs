//! What `cargo xtask header` runs: `xtask-header <repository> [--check]`.
//!
//! A program of its own, since `cargo xtask demo` would else begin by compiling a parser of Rust that it does not need.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};

/// The module that the header is generated from, and how.
const MODULE: &str = "crates/opsmith-core/src/abi";
const CONFIG: &str = "xtask/header/cbindgen.toml";
const HEADER: &str = "include/opsmith.h";

/// Writes `include/opsmith.h`, or with `--check` fails if the file is not what would be written.
fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let root = PathBuf::from(arguments.next().context("no repository was named")?);
    let check = arguments.next().is_some_and(|option| option == "--check");
    let module = root.join(MODULE);
    let config = cbindgen::Config::from_file(root.join(CONFIG)).map_err(|error| anyhow!(error))?;
    let bindings = cbindgen::Builder::new()
        .with_src(module.join("mod.rs"))
        .with_src(module.join("program.rs"))
        .with_config(config)
        .generate()
        .with_context(|| format!("could not generate a header from {MODULE}"))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let path = root.join(HEADER);
    if fs::read(&path).is_ok_and(|present| present == text) {
        println!("✓ {HEADER} is up to date");
    } else if check {
        bail!("{HEADER} is not what {MODULE} generates\n  → run `cargo xtask header` and commit the result");
    } else {
        fs::create_dir_all(path.parent().context("the header lies in a folder")?)?;
        fs::write(&path, text).with_context(|| format!("could not write {HEADER}"))?;
        println!("✓ wrote {HEADER}");
    }
    Ok(())
}
