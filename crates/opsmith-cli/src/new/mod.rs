//! `opsmith new`: a crate with one op, its gradient and its tests.

mod dependency;
mod name;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::Outcome;
use crate::text::{FAINT, STRONG, print, styled};

/// Where each file goes, and its text; `{{name}}` and `{{opsmith}}` stand for what differs. These are of every crate.
const FILES: [(&str, &str); 3] = [
    ("Cargo.toml", include_str!("../../templates/new/Cargo.toml.in")),
    ("pyproject.toml", include_str!("../../templates/new/pyproject.toml")),
    (".gitignore", include_str!("../../templates/new/gitignore")),
];
/// The source of one without ops.
const EMPTY: [(&str, &str); 1] = [("src/lib.rs", include_str!("../../templates/new/empty.rs"))];
/// That of one with an op.
const EXAMPLE: [(&str, &str); 4] = [
    ("README.md", include_str!("../../templates/new/README.md")),
    ("src/lib.rs", include_str!("../../templates/new/lib.rs")),
    ("src/tests.rs", include_str!("../../templates/new/tests.rs")),
    ("tests/test_ops.py", include_str!("../../templates/new/test_ops.py")),
];

/// Make a crate with one op, its gradient, and tests for both in Rust and Python
///
/// The library, the namespace of its ops in every framework, has the crate's name.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  opsmith new my_ops && cd my_ops && cargo test
  opsmith new my_ops --opsmith ~/src/opsmith
  opsmith new my_ops --opsmith 0.1")]
pub(crate) struct Options {
    /// The crate's name, snake_case, or the path of a folder of that name; it must not be there yet
    name: PathBuf,
    /// The `opsmith` to depend on: a clone of its repository, or a version [default: the clone that this program was
    /// built or installed from, if it is still there, else this program's version]
    #[arg(long, value_name = "PATH|VERSION")]
    opsmith: Option<String>,
    /// Leave out the example: the op, its tests and the README
    #[arg(long)]
    empty: bool,
}

/// Makes the crate.
pub(crate) fn new(options: &Options) -> Result<Outcome> {
    let folder = &options.name;
    let name = folder.file_name().with_context(|| format!("{}: does not end in a name", folder.display()))?;
    let name = name.to_str().with_context(|| format!("{}: is not UTF-8", folder.display()))?;
    name::check(name)?;
    let opsmith = dependency::find(options.opsmith.as_deref())?;
    match fs::create_dir(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{}: is there already; choose another name, or remove it", folder.display())
        }
        Err(error) => {
            return Err(error).with_context(|| format!("{}: cannot be made", folder.display()));
        }
    }
    let source: &[_] = if options.empty { &EMPTY } else { &EXAMPLE };
    if let Err(error) = fill(folder, name, &opsmith, source) {
        // What is half made would be in the way of the next try.
        let _ = fs::remove_dir_all(folder);
        return Err(error);
    }
    print(&steps(folder, name, options.empty))?;
    Ok(Outcome::Good)
}

fn fill(folder: &Path, name: &str, opsmith: &str, source: &[(&str, &str)]) -> Result<()> {
    for &(place, template) in FILES.iter().chain(source) {
        let path = folder.join(place);
        let mut text = template.replace("{{name}}", name).replace("{{opsmith}}", opsmith);
        if place == "Cargo.toml" && is_in_workspace(folder) {
            text += "\n[workspace]    # of its own, though there is one above\n";
        }
        let write = || {
            fs::create_dir_all(path.parent().unwrap_or(folder))?;
            fs::write(&path, text)
        };
        write().with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    Ok(())
}

/// A manifest that is there; one of more than a megabyte is none.
fn read_manifest(path: &Path) -> Option<String> {
    opsmith_files::read_text(path, 1 << 20).ok()
}

/// Whether a folder above is a workspace, of which Cargo would take the crate to be a part.
fn is_in_workspace(folder: &Path) -> bool {
    let above = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let manifests = above.ancestors().skip(1).map(|above| above.join("Cargo.toml"));
    manifests.filter_map(|path| read_manifest(&path)).any(|text| text.contains("[workspace"))
}

fn steps(folder: &Path, name: &str, is_empty: bool) -> String {
    if is_empty {
        let place = folder.join("src/lib.rs");
        return format!("{} has no ops yet: write some in {}\n", styled(STRONG, name), place.display());
    }
    let steps = [
        (format!("cd {}", folder.display()), ""),
        ("cargo test".to_owned(), "the tests in Rust"),
        ("opsmith build --release".to_owned(), "the library"),
        ("python -m pytest tests".to_owned(), "the tests from Python"),
        ("opsmith wheel".to_owned(), "a package for others"),
    ];
    let head = format!("{} has one op, scale_rows, and its gradient", styled(STRONG, name));
    let line = |(command, what): &(String, &str)| match what {
        &"" => format!("  {command}"),
        what => format!("  {command:24}  {}", styled(FAINT, what)),
    };
    let lines: Vec<String> = std::iter::once(head).chain(steps.iter().map(line)).collect();
    lines.join("\n") + "\n"
}
