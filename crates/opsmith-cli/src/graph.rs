//! `opsmith graph`: a picture of a saved graph.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use opsmith_core::Error;
use opsmith_runtime::{Graph, Library, SavedLibrary};

use crate::Outcome;
use crate::text::{FAINT, STRONG, print, styled};

/// Draw a graph that the engine saved, as SVG or in graphviz's language DOT
///
/// Dtypes and shapes are inferred by the libraries whose ops the graph calls: give them with --library. A library is
/// code that runs when it is opened, so the file alone does not say what is opened; with --trust it does.
///
/// Exit status: 0 if the picture is written, 2 if not.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  opsmith graph model.graph --library target/release/libdistances.so
  opsmith graph model.graph --trust --format dot --output - | dot -Tpdf > model.pdf")]
pub(crate) struct Options {
    /// A graph, as `Graph::save` writes it
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// What to write [default: what the name of the output says, else svg]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Where to write it, `-` for standard output [default: beside FILE, with the format as suffix]
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// A library whose ops the graph calls; may be given several times
    #[arg(long = "library", value_name = "LIB")]
    libraries: Vec<PathBuf>,
    /// Open the libraries that are not given where the graph was made with them: their code runs
    #[arg(long)]
    trust: bool,
}

/// A language for pictures.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Svg,
    Dot,
}

impl Format {
    fn suffix(self) -> &'static str {
        match self {
            Format::Svg => "svg",
            Format::Dot => "dot",
        }
    }

    /// What a file of this name holds.
    fn of(path: &Path) -> Format {
        let is_dot = path.extension().is_some_and(|suffix| suffix == "dot" || suffix == "gv");
        if is_dot { Format::Dot } else { Format::Svg }
    }
}

/// Reads the graph, draws it, and says how large it is.
pub(crate) fn graph(options: &Options) -> Result<Outcome> {
    let file = &options.file;
    let format = options.format.unwrap_or_else(|| options.output.as_deref().map_or(Format::Svg, Format::of));
    let output = options.output.clone().unwrap_or_else(|| file.with_extension(format.suffix()));
    if output == *file {
        bail!("{}: the picture would replace the graph\n  → --output PATH says where to", file.display());
    }
    let graph = Graph::load(file, &libraries(options)?).map_err(told)?;
    let picture = match format {
        Format::Svg => graph.to_svg(),
        Format::Dot => graph.to_dot(),
    };
    let picture = picture.map_err(|error| told(error.within(file.display())))?;
    let nodes = match graph.num_nodes() {
        1 => "1 node".to_owned(),
        count => format!("{count} nodes"),
    };
    if output == Path::new("-") {
        print(&picture)?;
        let _ = writeln!(anstream::stderr(), "{}  {}", styled(STRONG, file.display()), styled(FAINT, nodes));
    } else {
        std::fs::write(&output, picture)
            .with_context(|| format!("{}: cannot be written", output.display()))?;
        print(&format!("{}  {}\n", styled(STRONG, output.display()), styled(FAINT, nodes)))?;
    }
    Ok(Outcome::Good)
}

/// The libraries that are given, and those that the graph needs beside them.
fn libraries(options: &Options) -> Result<Vec<Library>> {
    // What is wrong with the graph comes before what is wrong with its libraries.
    let needed = Graph::libraries_of(&options.file).map_err(told)?;
    let open = |path: &PathBuf| Library::open(path).map_err(told);
    let mut libraries = options.libraries.iter().map(open).collect::<Result<Vec<_>>>()?;
    for needed in needed {
        if libraries.iter().all(|library| library.name() != needed.name) {
            let opened = if options.trust { open_needed(&needed) } else { Err(not_opened(&needed)) };
            libraries
                .push(opened.with_context(|| format!("{}: {}", options.file.display(), lacks(&needed)))?);
        }
    }
    Ok(libraries)
}

fn not_opened(needed: &SavedLibrary) -> anyhow::Error {
    anyhow!(
        "it was at {}\n  → --library LIB says where it is; --trust opens it there, which runs its code",
        needed.path
    )
}

/// The library that the graph was made with, from where it was then.
fn open_needed(needed: &SavedLibrary) -> Result<Library> {
    let library = Library::open(&needed.path)
        .map_err(|error| anyhow!("{}\n  → --library LIB says where it is", error.message()))?;
    if library.name() != needed.name {
        let (path, name) = (&needed.path, library.name());
        bail!("{path}: is the library `{name}` now\n  → --library LIB says where it is");
    }
    Ok(library)
}

fn lacks(needed: &SavedLibrary) -> String {
    format!("it needs the library `{}`, version {} when it was made", needed.name, needed.version)
}

fn told(error: Error) -> anyhow::Error {
    anyhow!("{}", error.message())
}
