//! `opsmith build`: the library of a crate of operators.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use opsmith_cuda::Architecture;
use serde_json::{Value, json};

use crate::Outcome;
use crate::cargo::{self, locate};
use crate::kernels::{self, Made};
use crate::source::{LibraryFile, read_apart};
use crate::text::{FAINT, STRONG, human_size, print, styled, wrapped};

/// Build the library of a crate of operators, and say where it is and what is in it
///
/// Cargo does the work; its progress and the compiler's messages are shown as they come.
///
/// With --cuda-kernels, calls of each op are generated from its definition, and the CUDA kernels that they would launch are
/// compiled into the folder LIB.kernels: no card is needed. It takes NVRTC: pip install nvidia-cuda-nvrtc.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  opsmith build --release
  opsmith build --dist
  opsmith build --release --cuda-kernels
  opsmith build --cuda-kernels --library libmy_ops.so --cuda-arch 80,90
  opsmith build --manifest-path my_ops/Cargo.toml --json")]
pub(crate) struct Options {
    /// Build with optimisations, into target/release: kernels at full speed, in a few seconds after a change
    #[arg(long)]
    release: bool,
    /// Build what is given to others, into target/dist: about half as large, calls cost less, and it takes longer
    #[arg(long, conflicts_with = "release")]
    dist: bool,
    /// The crate's Cargo.toml, or that of a workspace [default: the nearest one, from this folder up]
    #[arg(long, value_name = "FILE")]
    manifest_path: Option<PathBuf>,
    /// Compile its CUDA kernels ahead of time, too
    #[arg(long)]
    cuda_kernels: bool,
    /// The generations of cards to compile them for
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "75,80,90,100",
        requires = "cuda_kernels"
    )]
    cuda_arch: Vec<u32>,
    /// Compile those of a library that has been built
    #[arg(long, value_name = "LIB", requires = "cuda_kernels", conflicts_with_all = ["release", "dist", "manifest_path"])]
    library: Option<PathBuf>,
    /// Write JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Settings of Cargo's profile `release` for an author's crate, which Opsmith's own workspace and the Python package have too:
/// what macros and libraries both need is compiled once, macros and all that no kernel is made of soon.
const RELEASE: [&str; 20] = [
    "codegen-units=4",
    "lto=\"off\"",
    "build-override.codegen-units=4",
    "build-override.opt-level=3",
    "package.autocfg.opt-level=0",
    "package.dyn-stack-macros.opt-level=0",
    "package.opsmith-core.opt-level=\"s\"",
    "package.opsmith-cuda.opt-level=\"s\"",
    "package.opsmith-files.opt-level=\"s\"",
    "package.opsmith-frameworks.opt-level=\"s\"",
    "package.opsmith-macros.opt-level=0",
    "package.opsmith-threads.opt-level=\"s\"",
    "package.paste.opt-level=0",
    "package.proc-macro2.opt-level=0",
    "package.pulp.opt-level=\"s\"",
    "package.quote.opt-level=0",
    "package.seq-macro.opt-level=0",
    "package.serde_derive.opt-level=0",
    "package.syn.opt-level=0",
    "package.version_check.opt-level=0",
];

/// Those of `dist`, optimised as a whole.
const DIST: [&str; 10] = [
    "inherits=\"release\"",
    "codegen-units=1",
    "lto=\"fat\"",
    "strip=\"symbols\"",
    "package.opsmith-cuda.opt-level=\"z\"",
    "package.opsmith-files.opt-level=\"z\"",
    "package.opsmith-frameworks.opt-level=\"z\"",
    "package.opsmith-threads.opt-level=\"z\"",
    "package.rayon-core.opt-level=\"s\"",
    "package.serde_json.opt-level=\"s\"",
];

/// A shared object that Cargo made.
struct Built {
    /// The crate that it is of.
    package: String,
    path: PathBuf,
}

/// Builds, looks into the libraries, and prints.
pub(crate) fn build(options: &Options) -> Result<Outcome> {
    let libraries = match &options.library {
        Some(path) => vec![read_apart(path)?],
        None => {
            let manifest = locate(options.manifest_path.as_deref())?;
            let Some(artifacts) = run_cargo(options)? else { return Ok(Outcome::Fault) };
            let built = shared_objects(&artifacts, &manifest)?;
            built.iter().map(look_into).collect::<Result<Vec<_>>>()?
        }
    };
    let mut kernels = Vec::new();
    if options.cuda_kernels {
        let architectures: Vec<Architecture> =
            options.cuda_arch.iter().map(|number| Architecture(*number)).collect();
        for library in &libraries {
            let Some(made) = kernels::make(&library.path, &architectures)? else { return Ok(Outcome::Fault) };
            kernels.push(made);
        }
    }
    print(&if options.json { as_json(&libraries, &kernels)? } else { as_text(&libraries, &kernels)? })?;
    Ok(Outcome::Good)
}

/// What Cargo made, as it tells it; none where it failed, having said why.
fn run_cargo(options: &Options) -> Result<Option<Vec<Value>>> {
    let manifest_path = options.manifest_path.as_deref();
    let mut command =
        cargo::command(manifest_path, &["build", "--message-format", "json-render-diagnostics"]);
    if options.dist {
        command.args(["--profile", "dist"]);
        command
            .args(DIST.iter().flat_map(|setting| ["--config".to_owned(), format!("profile.dist.{setting}")]));
    } else if options.release {
        command.arg("--release");
    }
    command.args(
        RELEASE.iter().flat_map(|setting| ["--config".to_owned(), format!("profile.release.{setting}")]),
    );
    let Some(told) = cargo::run(&mut command)? else { return Ok(None) };
    let messages = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_default());
    Ok(Some(messages.filter(|message| message["reason"] == "compiler-artifact").collect()))
}

/// The shared objects of the crate with this manifest; of all crates, where that is a workspace's own.
fn shared_objects(artifacts: &[Value], manifest: &Path) -> Result<Vec<Built>> {
    let is_own = |artifact: &&Value| artifact["manifest_path"].as_str().map(Path::new) == Some(manifest);
    let is_crate = artifacts.iter().any(|artifact| is_own(&artifact));
    let mut built = Vec::new();
    for artifact in artifacts.iter().filter(|artifact| !is_crate || is_own(artifact)) {
        let files = artifact["filenames"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let path = files.map(PathBuf::from).find(|file| file.extension().is_some_and(|end| end == "so"));
        let kinds = artifact["target"]["crate_types"].as_array().into_iter().flatten();
        if let Some(path) = path.filter(|_| kinds.into_iter().any(|kind| kind == "cdylib")) {
            let package = artifact["target"]["name"].as_str().unwrap_or_default().to_owned();
            built.push(Built { package, path });
        }
    }
    if built.is_empty() {
        bail!(
            "{}: makes no shared library\n  → write into it:\n\n        [lib]\n        crate-type = [\"cdylib\"]",
            manifest.display()
        );
    }
    Ok(built)
}

fn look_into(built: &Built) -> Result<LibraryFile> {
    const ADVICE: &str = "\n  → list the ops of the crate once, at its root: opsmith::library! { ops = […] }";
    let Built { package, path } = built;
    let source = read_apart(path).map_err(|error| {
        let error = format!("{error:#}");
        let advice = if error.contains("opsmith_library_v1") { ADVICE } else { "" };
        anyhow!("`{package}` was built, but cannot be used: {error}{advice}")
    })?;
    if source.definitions.ops.is_empty() {
        bail!("`{package}` was built, but its library has no ops{ADVICE}");
    }
    Ok(source)
}

/// What was built, and for each library its kernels where they were asked for.
fn as_text(libraries: &[LibraryFile], kernels: &[Made]) -> Result<String> {
    let mut text = String::new();
    for (at, LibraryFile { path, definitions, .. }) in libraries.iter().enumerate() {
        let here = std::env::current_dir().unwrap_or_default();
        let place = path.strip_prefix(here).unwrap_or(path).display();
        let size = human_size(path.metadata()?.len());
        let ops: Vec<String> = definitions.ops.iter().map(|op| op.signature.snake_name()).collect();
        let about = format!("{size}, {} {}", definitions.name, definitions.version);
        let _ = writeln!(text, "{}  {}", styled(STRONG, place), styled(FAINT, about));
        let _ = writeln!(text, "{}", wrapped(&ops.join(", "), 2));
        text += &kernels.get(at).map(Made::text).unwrap_or_default();
    }
    Ok(text)
}

fn as_json(libraries: &[LibraryFile], kernels: &[Made]) -> Result<String> {
    let one = |(at, LibraryFile { path, definitions, .. }): (usize, &LibraryFile)| {
        let mut json = json!({
            "path": path,
            "bytes": path.metadata()?.len(),
            "name": definitions.name,
            "version": definitions.version,
            "ops": definitions.ops.iter().map(|op| op.name()).collect::<Vec<_>>(),
        });
        if let Some(made) = kernels.get(at) {
            json["cuda_kernels"] = made.json();
        }
        anyhow::Ok(json)
    };
    let list = libraries.iter().enumerate().map(one).collect::<Result<Value>>()?;
    Ok(format!("{list:#}\n"))
}
