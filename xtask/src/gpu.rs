//! `cargo xtask gpu`: everything that needs a card, in one go; what can be built without one is built apart.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::venv::Venv;
use crate::workspace::Workspace;
use crate::{VENV, build, run};

/// The folder in the repository with the programs that look at a card.
const PROGRAMS: &str = "gpu";
/// The file that tells where a prepared folder is from.
const MANIFEST: &str = "manifest.json";

/// What to do with a card.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Build the libraries and the package into this folder, and run nothing: no card is needed
    ///
    /// `python gpu/run.py` there does everything on a machine with a card, and needs PyTorch and NumPy only.
    #[arg(long, value_name = "FOLDER")]
    prepare: Option<PathBuf>,
    /// The Python to run with, which has PyTorch for CUDA; .venv with the tests' frameworks if none is named
    #[arg(long, value_name = "PROGRAM", conflicts_with = "prepare")]
    python: Option<PathBuf>,
    /// What gpu/run.py is given: `--quick`, `--only values`, `--device cpu` for a dry run on the processor
    #[arg(last = true, conflicts_with = "prepare")]
    arguments: Vec<String>,
}

/// Prepares a folder, or that and the run in it.
pub(crate) fn gpu(workspace: &Workspace, options: &Options) -> Result<()> {
    if let Some(folder) = &options.prepare {
        // Programs run in the repository, wherever the user is.
        let folder = std::path::absolute(folder)?;
        refuse_foreign(workspace, &folder)?;
        let venv = Venv::open(workspace, VENV)?;
        venv.install_lock(workspace, "demo")?;
        prepare(workspace, &venv, &folder)?;
        println!(
            "✓ {} is ready: take it to a machine with a card, `python gpu/run.py` there",
            folder.display()
        );
        return Ok(());
    }
    let venv = Venv::open(workspace, VENV)?;
    if !is_dry(&options.arguments) {
        // Before anything is installed or built.
        look(workspace, &venv)?;
    }
    venv.install_lock(workspace, if options.python.is_some() { "demo" } else { "test" })?;
    let folder = workspace.target.join("gpu");
    prepare(workspace, &venv, &folder)?;
    let mut command = match &options.python {
        // A path is from where the user is; a name is looked up.
        Some(python) if python.components().count() > 1 => Command::new(std::path::absolute(python)?),
        Some(python) => Command::new(python),
        None => venv.program(workspace, "python"),
    };
    command.arg(folder.join("gpu/run.py")).arg("--out").arg(folder.join("report")).args(&options.arguments);
    // What is in front of the prepared package would hide it.
    command.env_remove("PYTHONPATH").current_dir(&folder);
    let finished = run::streaming("gpu", &mut command)?;
    if finished.success() {
        return Ok(());
    }
    bail!("not everything passed on this machine ({})", finished.status())
}

/// Whether the run is one on the processor.
fn is_dry(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| argument == "--device=cpu")
        || arguments.windows(2).any(|pair| pair == ["--device", "cpu"])
}

/// Fails where there is no card.
fn look(workspace: &Workspace, venv: &Venv) -> Result<()> {
    let script = "import sys; sys.path.insert(0, 'gpu'); import devices; sys.exit(devices.look())";
    let output = venv.program(workspace, "python").args(["-c", script]).output()?;
    if output.status.success() {
        return Ok(());
    }
    bail!(
        "{}\n  → run it on a machine with a card: `cargo xtask gpu --prepare FOLDER` makes a folder to take there; or try the \
         steps on the processor by `cargo xtask gpu -- --device cpu`",
        String::from_utf8_lossy(&output.stderr).trim()
    )
}

/// Refuses a folder that holds anything but what was prepared in it before: parts of it are made anew.
fn refuse_foreign(workspace: &Workspace, folder: &Path) -> Result<()> {
    if workspace.root.starts_with(folder) || workspace.root.join(PROGRAMS).starts_with(folder) {
        bail!("{} holds this repository: name an empty folder, or a new one", folder.display());
    }
    let is_ours = folder.join(MANIFEST).is_file();
    let is_empty = || fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    if folder.exists() && !is_ours && !is_empty() {
        bail!(
            "{} is not empty, and not made by this command: name an empty folder, or a new one",
            folder.display()
        );
    }
    Ok(())
}

/// Puts the programs, the libraries, the package and where they are from into a folder.
fn prepare(workspace: &Workspace, venv: &Venv, folder: &Path) -> Result<()> {
    build::libraries(workspace, None)?;
    let wheel = build::wheel(workspace, venv)?;
    let sources = workspace.root.join(PROGRAMS);
    let programs = files(&sources, ".py")?;
    replace(&folder.join(PROGRAMS), &programs)?;
    let libraries: Vec<PathBuf> =
        workspace.libraries.iter().map(|library| workspace.library_folder().join(&library.file)).collect();
    let kept = folder.join("libraries");
    replace(&kept, &libraries)?;
    // Kernels that were compiled ahead of time lie beside their library.
    for library in &workspace.libraries {
        let kernels = workspace.library_folder().join(format!("{}.kernels", library.file));
        if kernels.is_dir() {
            let name = kernels.file_name().context("a folder has no name")?;
            replace(&kept.join(name), &files(&kernels, "")?)?;
        }
    }
    let package = folder.join("package");
    replace(&package, &[])?;
    let mut unpack = venv.program(workspace, "python");
    unpack.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&package);
    run::quietly("Unpacking the Python package", &mut unpack)?;
    let manifest = json!({ "commit": commit(workspace) });
    let file = folder.join(MANIFEST);
    fs::write(&file, format!("{manifest}\n")).with_context(|| format!("could not write {}", file.display()))
}

/// The files of a folder with this ending, sorted.
fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("could not list {}", folder.display()))? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Makes a folder with copies of these files and nothing else.
fn replace(folder: &Path, files: &[PathBuf]) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("could not clear {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("could not make {}", folder.display()))?;
    for file in files {
        let name = file.file_name().context("a file has no name")?;
        fs::copy(file, folder.join(name)).with_context(|| format!("could not copy {}", file.display()))?;
    }
    Ok(())
}

/// The commit that is checked out, and whether it was changed.
fn commit(workspace: &Workspace) -> String {
    let mut command = Command::new("git");
    command.args(["describe", "--always", "--dirty", "--abbrev=12"]).current_dir(&workspace.root);
    match command.output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => "not known".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_is_known_by_its_device() {
        let dry = |words: &[&str]| is_dry(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        assert!(dry(&["--quick", "--device", "cpu"]) && dry(&["--device=cpu"]));
        assert!(!dry(&[]) && !dry(&["--device", "cuda"]) && !dry(&["--only", "cpu"]));
    }

    #[test]
    fn folders_of_others_are_left_alone() {
        let workspace = Workspace::find("release").unwrap();
        for holds_it in [workspace.root.as_path(), workspace.root.parent().unwrap()] {
            assert!(
                refuse_foreign(&workspace, holds_it)
                    .unwrap_err()
                    .to_string()
                    .contains("holds this repository")
            );
        }
        let root = std::env::temp_dir().join(format!("opsmith-xtask-foreign-{}", std::process::id()));
        assert!(refuse_foreign(&workspace, &root).is_ok());
        fs::create_dir_all(&root).unwrap();
        assert!(refuse_foreign(&workspace, &root).is_ok());
        fs::write(root.join("letter.txt"), "dear").unwrap();
        assert!(refuse_foreign(&workspace, &root).unwrap_err().to_string().contains("is not empty"));
        fs::write(root.join(MANIFEST), "{}").unwrap();
        assert!(refuse_foreign(&workspace, &root).is_ok());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_folder_holds_what_was_put_into_it_last() {
        let root = std::env::temp_dir().join(format!("opsmith-xtask-gpu-{}", std::process::id()));
        let (from, to) = (root.join("from"), root.join("to"));
        fs::create_dir_all(&from).unwrap();
        for name in ["a.py", "b.py", "c.txt"] {
            fs::write(from.join(name), name).unwrap();
        }
        let found = files(&from, ".py").unwrap();
        replace(&to, &found).unwrap();
        replace(&to, &found[1..]).unwrap();
        assert_eq!(files(&to, "").unwrap(), [to.join("b.py")]);
        fs::remove_dir_all(&root).unwrap();
    }
}
