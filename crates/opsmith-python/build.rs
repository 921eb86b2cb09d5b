//! Puts the sources of the crates that every library of operators is built with into the extension module, so that an
//! installed package can build libraries just in time, whatever has built the package.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// What `opsmith` is made of.
const CRATES: [&str; 9] = [
    "opsmith",
    "opsmith-body",
    "opsmith-core",
    "opsmith-cuda",
    "opsmith-files",
    "opsmith-frameworks",
    "opsmith-kernels",
    "opsmith-macros",
    "opsmith-threads",
];

/// What of a crate: its benchmarks are named in its manifest.
const PARTS: [&str; 4] = ["Cargo.toml", "README.md", "src", "benches"];

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("Cargo sets it"));
    let root = manifest.join("../..").canonicalize().expect("the workspace is there");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets it"));
    let mut files = vec![root.join("Cargo.lock")];
    for name in CRATES {
        for part in PARTS {
            let path = root.join("crates").join(name).join(part);
            println!("cargo::rerun-if-changed={}", path.display());
            collect(&path, &mut files).expect("the crates can be read");
        }
    }
    files.sort();
    let workspace = out.join("Cargo.toml");
    fs::write(&workspace, without_other_members(&root)).expect("OUT_DIR can be written to");
    let mut list = String::from("&[\n");
    let _ = writeln!(list, "(\"Cargo.toml\", include_str!({workspace:?})),");
    for file in &files {
        let name = file.strip_prefix(&root).expect("it is in the workspace");
        let _ = writeln!(list, "({name:?}, include_str!({file:?})),");
    }
    list += "]";
    fs::write(out.join("crate_sources.rs"), list).expect("OUT_DIR can be written to");
    println!("cargo::rerun-if-changed={}", root.join("Cargo.toml").display());
    println!("cargo::rerun-if-changed={}", root.join("Cargo.lock").display());
    println!("cargo::rerun-if-changed=build.rs");
}

/// Adds a file, or those in a folder; nothing where there is none.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            collect(&entry?.path(), files)?;
        }
    } else if path.is_file() {
        files.push(path.to_owned());
    }
    Ok(())
}

/// The workspace's manifest, whose members are the crates that are there.
fn without_other_members(root: &Path) -> String {
    let text = fs::read_to_string(root.join("Cargo.toml")).expect("the workspace has a manifest");
    let lines = text.lines().map(|line| match line.starts_with("members = ") {
        true => "members = [\"crates/*\"]",
        false => line,
    });
    lines.map(|line| format!("{line}\n")).collect()
}
