//! Where things lie: the repository, Cargo's target directory, and the crates of operators.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The repository as `cargo metadata` tells it.
#[derive(Clone)]
pub(crate) struct Workspace {
    /// The repository's root.
    pub(crate) root: PathBuf,
    /// Cargo's target directory, `target/` unless the user moved it.
    pub(crate) target: PathBuf,
    /// The profile that libraries and the Python package are built in: `dist` where they are measured.
    pub(crate) profile: &'static str,
    /// The packages that build an operator library: the examples, and the tests' own.
    pub(crate) libraries: Vec<Library>,
    /// The packages that are published on crates.io.
    pub(crate) published: Vec<String>,
    /// The packages in `crates`, and which of them each depends on, but for tests.
    pub(crate) crates: BTreeMap<String, BTreeSet<String>>,
}

/// A crate of operators.
#[derive(Clone)]
pub(crate) struct Library {
    /// The Cargo package.
    pub(crate) package: String,
    /// The file name of its library, such as `libdistances.so`.
    pub(crate) file: String,
}

impl Workspace {
    /// Asks Cargo about the repository that this program belongs to.
    pub(crate) fn find(profile: &'static str) -> Result<Self> {
        let here = std::env::var_os("CARGO_MANIFEST_DIR")
            .context("this program is part of the repository\n  → start it as `cargo xtask …`")?;
        let output = Command::new(cargo())
            .args(["metadata", "--format-version", "1", "--no-deps"])
            .current_dir(here)
            .output()
            .context("could not run `cargo metadata`")?;
        if !output.status.success() {
            bail!("`cargo metadata` failed:\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
        }
        let metadata: Value =
            serde_json::from_slice(&output.stdout).context("`cargo metadata` gave no JSON")?;
        let path = |key: &str| {
            let text = metadata[key].as_str().with_context(|| format!("`cargo metadata` names no {key}"))?;
            anyhow::Ok(PathBuf::from(text))
        };
        Ok(Self {
            root: path("workspace_root")?,
            target: path("target_directory")?,
            profile,
            libraries: libraries(&metadata),
            published: published(&metadata),
            crates: crates(&metadata),
        })
    }

    /// The folders of our crates: those in `crates`, and the libraries of tests.
    pub(crate) fn crate_folders(&self) -> Result<Vec<PathBuf>> {
        let mut folders = Vec::new();
        for parent in ["crates", "tests/libraries"] {
            let entries = fs::read_dir(self.root.join(parent));
            for entry in entries.with_context(|| format!("could not list {parent}"))? {
                folders.push(entry?.path());
            }
        }
        Ok(folders)
    }

    /// A Cargo command in the repository's root.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(cargo());
        command.args(arguments).current_dir(&self.root);
        command
    }

    /// The program `opsmith`, as the tests build it.
    pub(crate) fn program(&self) -> PathBuf {
        self.target.join("debug/opsmith")
    }

    /// The server, as the tests build it.
    pub(crate) fn server(&self) -> PathBuf {
        self.target.join("debug/serve")
    }

    /// The example that tells random bodies, as the tests build it.
    pub(crate) fn random_bodies(&self) -> PathBuf {
        self.target.join("debug/examples/random_bodies")
    }

    /// Where the built operator libraries lie.
    pub(crate) fn library_folder(&self) -> PathBuf {
        self.target.join(self.profile)
    }
}

/// Cargo, the one that started this program.
pub(crate) fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Copies a folder, without what Python compiled.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("could not make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("could not list {}", from.display()))? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if !path.is_dir() {
            fs::copy(&path, to.join(name)).with_context(|| format!("could not copy {}", path.display()))?;
        } else if name != "__pycache__" {
            copy_folder(&path, &to.join(name))?;
        }
    }
    Ok(())
}

/// The packages that do not say `publish = false`.
fn published(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let public = packages.filter(|package| package["publish"].is_null());
    public.filter_map(|package| package["name"].as_str().map(str::to_owned)).collect()
}

/// The packages in `crates`, and which of them each depends on, but for tests.
fn crates(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let is_inside = |package: &&Value| {
        let manifest = package["manifest_path"].as_str().map(Path::new);
        manifest
            .and_then(|path| path.parent()?.parent()?.file_name())
            .is_some_and(|folder| folder == "crates")
    };
    let name = |value: &Value| value["name"].as_str().map(str::to_owned);
    let inside: Vec<&Value> = packages.filter(is_inside).collect();
    let names: BTreeSet<String> = inside.iter().filter_map(|package| name(package)).collect();
    let uses = |package: &Value| {
        let all = package["dependencies"].as_array().into_iter().flatten();
        let others = all.filter(|other| other["kind"] != "dev");
        others.filter_map(name).filter(|other| names.contains(other)).collect()
    };
    inside.iter().filter_map(|package| Some((name(package)?, uses(package)))).collect()
}

/// The packages that depend on `opsmith`, as an author's crate does, and build a C library.
fn libraries(metadata: &Value) -> Vec<Library> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let is_author =
        |package: &Value| list(&package["dependencies"]).iter().any(|other| other["name"] == "opsmith");
    let packages = list(&metadata["packages"]);
    packages
        .iter()
        .filter(|package| is_author(package))
        .filter_map(|package| {
            let targets = list(&package["targets"]);
            let target = targets
                .iter()
                .find(|target| list(&target["crate_types"]).iter().any(|kind| kind == "cdylib"))?;
            let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
            let name = target["name"].as_str()?.replace('-', "_");
            Some(Library {
                package: package["name"].as_str()?.to_owned(),
                file: format!("{prefix}{name}{suffix}"),
            })
        })
        .collect()
}
