//! `cargo xtask dist`: what is given to others, in the profile `dist`: crates, a wheel, an archive of sources, what they are made
//! of, and how large the libraries are.

mod crates;
pub(crate) mod licences;
mod package;
mod repeat;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;
use crate::venv::Venv;
use crate::workspace::Workspace;

/// The environment with what builds and audits wheels.
const VENV: &str = ".venv-dist";
/// The systems that the wheel is for: those with a C library as old as this, whatever the one here is.
const MANYLINUX: &str = "manylinux_2_28";
/// The same as Cargo, linking by zig, is told it.
const TARGET: &str = "x86_64-unknown-linux-gnu";
const TARGET_GLIBC: &str = "x86_64-unknown-linux-gnu.2.28";

/// Libraries that are built to be looked at, and the bytes that each may have: what it had when it was looked at last, and a little.
const LIBRARIES: [(&str, &str, u64); 4] = [
    ("zero_out", "libzero_out.so", 1_880_000),
    ("distances", "libdistances.so", 1_800_000),
    ("activations", "libactivations.so", 2_720_000),
    ("opsmith-ops-library", "libopsmith_ops.so", 9_600_000),
];

/// What the package for Python has that is compiled, and the bytes that it may have: all operators, compiled for speed, the engine, and
/// the program `opsmith`, which takes 1.2 MB of them.
const MODULE: (&str, u64) = ("lib_native.so", 14_850_000);

/// What to do besides building.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Build a second time, in another folder, and compare every byte
    #[arg(long)]
    twice: bool,
    /// Install what was built into new environments of every Python from 3.10 on that is here, and use it there
    #[arg(long = "try")]
    trial: bool,
}

/// Builds everything; fails where a file is larger than it may be, a licence is none that is allowed, or an audit fails.
pub(crate) fn dist(workspace: &Workspace, options: &Options) -> Result<()> {
    if std::env::consts::ARCH != "x86_64" || std::env::consts::OS != "linux" {
        bail!("releases are for Linux on x86-64, and made there\n  → run it on such a machine");
    }
    let venv = Venv::open(workspace, VENV)?;
    venv.install_lock(workspace, "dist")?;
    licences::check_allowed(workspace)?;
    licences::check_file(workspace, &venv)?;
    let packages = workspace.target.join("packages");
    clear(&packages)?;
    let own = BuildTree::of(workspace, &package::date(workspace)?);
    build(&own, &venv, &packages)?;
    check_sizes(&own.libraries())?;
    if options.trial {
        trial::run(&own, &venv, &packages)?;
    }
    if options.twice {
        repeat::again(&own, &venv, &packages)?;
    }
    crates::package(workspace, &packages.join("crates"))?;
    list(&packages)
}

/// A folder with the sources, and where their libraries are built. They are built apart from those of `bench` and `gpu`, since paths
/// are left out of them, so that Cargo would compile everything again whenever the one was built after the other; and the module apart
/// from the operators, since the two programs that build them have each a linker of its own name, with the same effect.
struct BuildTree {
    workspace: Workspace,
    /// When they are from, in seconds since 1970.
    date: String,
    operators: PathBuf,
    module: PathBuf,
}

impl BuildTree {
    fn of(workspace: &Workspace, date: &str) -> Self {
        Self {
            workspace: workspace.clone(),
            date: date.to_owned(),
            operators: workspace.target.join("dist-operators"),
            module: workspace.target.join("dist-module"),
        }
    }

    /// The libraries, and the bytes that each may have.
    fn libraries(&self) -> Vec<(PathBuf, u64)> {
        let inside = |target: &Path, file: &str| target.join(TARGET).join(self.workspace.profile).join(file);
        let operators = LIBRARIES.iter().map(|(_, file, most)| (inside(&self.operators, file), *most));
        operators.chain([(inside(&self.module, MODULE.0), MODULE.1)]).collect()
    }
}

/// Builds the libraries, the wheel, the archive of sources and the list of what is in them, into `packages`.
fn build(place: &BuildTree, venv: &Venv, packages: &Path) -> Result<()> {
    let workspace = &place.workspace;
    let mut libraries = venv.program(workspace, "cargo-zigbuild");
    libraries.args(["zigbuild", "--profile", workspace.profile, "--lib", "--target", TARGET_GLIBC]);
    libraries.args(LIBRARIES.iter().flat_map(|(package, ..)| ["--package", package]));
    libraries.envs(package::settings(place, venv, &place.operators)?);
    run::quietly("Building the operators", &mut libraries)?;
    let bill = packages.join("opsmith.cdx.json");
    licences::write_bill(workspace, venv, &bill)?;
    let settings = package::settings(place, venv, &place.module)?;
    package::wheel(workspace, venv, packages, &bill, &settings)?;
    package::sources(workspace, venv, packages, &settings)?;
    fs::copy(workspace.root.join(licences::FILE), packages.join(licences::FILE))?;
    package::audit(workspace, venv, packages)
}

/// Prints what there is.
fn list(packages: &Path) -> Result<()> {
    for path in files(packages)? {
        println!("{}  {:.1} MB", path.display(), path.metadata()?.len() as f64 / 1e6);
    }
    Ok(())
}

fn check_sizes(libraries: &[(PathBuf, u64)]) -> Result<()> {
    let mut too_large = Vec::new();
    for (path, most) in libraries {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let size = path.metadata().with_context(|| format!("{} was not built", path.display()))?.len();
        println!("{file:20} {size:>10} bytes, at most {most}");
        if size > *most {
            too_large.push(file);
        }
    }
    if too_large.is_empty() {
        return Ok(());
    }
    bail!("larger than they may be: {}", too_large.join(", "))
}

/// All files in a folder and those in it, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("could not list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// An empty folder.
fn clear(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("could not clear {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("could not make {}", folder.display()))
}

/// The only file in `folder` whose name ends so.
fn only(folder: &Path, ending: &str) -> Result<PathBuf> {
    let found = files(folder)?;
    let mut found = found.into_iter().filter(|path| path.to_string_lossy().ends_with(ending));
    match (found.next(), found.next()) {
        (Some(path), None) => Ok(path),
        _ => bail!("{}: is to have one file that ends in {ending}", folder.display()),
    }
}

/// What a program says, without the end of the line.
fn told(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("could not start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}
