//! The package for Python: its wheel, its sources, and whether the wheel is for the systems that it says.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{BuildTree, MANYLINUX, TARGET, only, told};
use crate::run;
use crate::venv::Venv;
use crate::workspace::Workspace;

/// Settings of the environment that builds have.
pub(super) type Settings = Vec<(&'static str, String)>;

/// What makes a build the same wherever it is made: paths are left out, and dates are those of the commit.
pub(super) fn settings(place: &BuildTree, venv: &Venv, target: &Path) -> Result<Settings> {
    let workspace = &place.workspace;
    let mut renamed = vec![(workspace.root.clone(), "opsmith"), (target.to_owned(), "target")];
    renamed.extend(registries(workspace)?.into_iter().map(|folder| (folder, "crates")));
    let flags =
        renamed.iter().map(|(folder, name)| format!("--remap-path-prefix={}={name}", folder.display()));
    Ok(vec![
        ("CARGO_TARGET_DIR", target.display().to_string()),
        ("CARGO_ENCODED_RUSTFLAGS", flags.collect::<Vec<_>>().join("\x1f")),
        ("CARGO_ZIGBUILD_PYTHON_PATH", venv.python().display().to_string()),
        ("SOURCE_DATE_EPOCH", place.date.clone()),
    ])
}

/// The folders that Cargo keeps crates from elsewhere in.
fn registries(workspace: &Workspace) -> Result<BTreeSet<std::path::PathBuf>> {
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", TARGET];
    let metadata: Value = serde_json::from_str(&told(&mut workspace.cargo(&arguments))?)?;
    let packages = metadata["packages"].as_array().context("`cargo metadata` names no packages")?;
    let foreign = packages.iter().filter(|package| package["source"].is_string());
    let folders =
        foreign.filter_map(|package| Path::new(package["manifest_path"].as_str()?).ancestors().nth(2));
    Ok(folders.map(Path::to_owned).collect())
}

/// When the sources are from, in seconds since 1970: what `SOURCE_DATE_EPOCH` says, else the commit.
pub(super) fn date(workspace: &Workspace) -> Result<String> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => Ok(text),
        Err(_) => {
            let mut git = std::process::Command::new("git");
            told(git.args(["log", "-1", "--format=%ct"]).current_dir(&workspace.root))
                .context("the date of the sources is that of their commit\n  → or set SOURCE_DATE_EPOCH")
        }
    }
}

/// Builds the wheel, linked by zig for older systems than this one.
pub(super) fn wheel(
    workspace: &Workspace,
    venv: &Venv,
    folder: &Path,
    bill: &Path,
    settings: &Settings,
) -> Result<()> {
    let mut command = venv.program(workspace, "maturin");
    command.args(["build", "--profile", workspace.profile, "--locked", "--interpreter"]).arg(venv.python());
    command.args(["--zig", "--compatibility", MANYLINUX, "--auditwheel", "check", "--sbom-include"]);
    command.arg(bill).arg("--out").arg(folder).envs(settings.clone());
    run::quietly("Building the Python package", &mut command).map(drop)
}

/// Packs the sources that `pip` builds where the wheel is not for the machine.
pub(super) fn sources(workspace: &Workspace, venv: &Venv, folder: &Path, settings: &Settings) -> Result<()> {
    let mut command = venv.program(workspace, "maturin");
    command.args(["sdist", "--out"]).arg(folder).envs(settings.clone());
    run::quietly("Packing its sources", &mut command).map(drop)
}

/// Fails where the wheel needs more of a system than its name says.
pub(super) fn audit(workspace: &Workspace, venv: &Venv, folder: &Path) -> Result<()> {
    let wheel = only(folder, ".whl")?;
    let said = told(venv.program(workspace, "auditwheel").arg("show").arg(&wheel))?;
    let found = audited(&said).with_context(|| format!("auditwheel names no tag:\n{said}"))?;
    let named = glibc(MANYLINUX).context("the tag is a constant and well formed")?;
    let name = wheel.file_name().unwrap_or_default().to_string_lossy();
    if !name.ends_with(&format!("-{MANYLINUX}_x86_64.whl"))
        || glibc(found).is_none_or(|needed| needed > named)
    {
        bail!("{name} is to be for {MANYLINUX}, and auditwheel says that it is for {found}:\n{said}");
    }
    println!("✓ auditwheel: {name} is for {found}");
    Ok(())
}

/// The tag that auditwheel gives, whose text is broken into lines anywhere between words.
fn audited(said: &str) -> Option<&str> {
    said.split_whitespace().find_map(|word| word.strip_prefix("\"")?.strip_suffix("_x86_64\"."))
}

/// The release of glibc that a tag names.
fn glibc(tag: &str) -> Option<(u32, u32)> {
    let (major, minor) = tag.strip_prefix("manylinux_")?.split_once('_')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_is_found_in_what_auditwheel_says() {
        let said =
            "\nx.whl is consistent with\nthe following platform tag: \"manylinux_2_28_x86_64\".\n\nThe wheel";
        assert_eq!(audited(said), Some("manylinux_2_28"));
        assert_eq!(glibc("manylinux_2_28"), Some((2, 28)));
        assert_eq!(glibc("linux"), None);
        assert_eq!(audited("no tag"), None);
    }
}
