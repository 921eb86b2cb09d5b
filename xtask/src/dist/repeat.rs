//! The same sources in another folder: what is built of them is to be the same, byte for byte.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{BuildTree, build, clear, told};
use crate::stamp::hash_file;
use crate::venv::Venv;
use crate::workspace::Workspace;

/// Builds once more from a copy of the sources elsewhere, and compares with what is in `packages`.
pub(super) fn again(first: &BuildTree, venv: &Venv, packages: &Path) -> Result<()> {
    let workspace = &first.workspace;
    // Of another length than any folder that was built in before: places in files are kept by their lengths, too.
    let folder = std::env::temp_dir().join(format!("opsmith-built-once-more-{}", std::process::id()));
    let copy = folder.join("sources");
    clear(&copy)?;
    copy_sources(workspace, &copy)?;
    let other = Workspace { root: copy, target: folder.join("target"), ..workspace.clone() };
    let made = other.target.join("packages");
    clear(&made)?;
    let place = BuildTree::of(&other, &first.date);
    build(&place, venv, &made)?;
    let paths = |place: &BuildTree| place.libraries().into_iter().map(|(path, _)| path);
    let libraries = paths(first).zip(paths(&place));
    let packed = super::files(&made)?.into_iter().map(|path| (packages.join(name(&path)), path));
    let pairs = packed.chain(libraries);
    let mut differ = Vec::new();
    for (one, two) in pairs {
        let (hash, again) = (hash_file(&one)?, hash_file(&two)?);
        println!(
            "{}  {}  {}",
            if hash == again { "same" } else { "DIFFERENT" },
            &hash[..16],
            name(&one).display()
        );
        if hash != again {
            differ.push(format!("{} and {}", one.display(), two.display()));
        }
    }
    if !differ.is_empty() {
        bail!("built twice, these differ:\n{}", differ.join("\n"));
    }
    println!("✓ built in another folder, every byte is the same");
    fs::remove_dir_all(&folder).with_context(|| format!("could not remove {}", folder.display()))
}

fn name(path: &Path) -> PathBuf {
    path.file_name().unwrap_or_default().into()
}

/// Copies the files that Git has or would have, changed ones as they are.
fn copy_sources(workspace: &Workspace, copy: &Path) -> Result<()> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = told(Command::new("git").args(arguments).current_dir(&workspace.root))?;
    for file in listed.split('\0').filter(|file| !file.is_empty()) {
        let (from, to) = (workspace.root.join(file), copy.join(file));
        fs::create_dir_all(to.parent().unwrap_or(copy))?;
        match from.symlink_metadata() {
            Ok(found) if found.is_symlink() => std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?,
            Ok(_) => drop(fs::copy(&from, &to).with_context(|| format!("could not copy {file}"))?),
            Err(_) => {} // deleted, and Git not told yet
        }
    }
    Ok(())
}
