//! `opsmith inspect`: a library's ops as an author would read them.

mod page;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::Outcome;
use crate::definitions::Op;
use crate::kernels;
use crate::source::{LibraryFile, read};
use crate::text::{FAINT, STRONG, print, styled};

/// Show a library's ops: signatures, shapes, dtypes, kernels, gradients, documentation
///
/// With --json it writes all that a library says of its ops. That is a file to commit: `opsmith compat` compares it
/// with later versions, and `inspect` shows it too.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  opsmith inspect target/release/libdistances.so
  opsmith inspect libdistances.so --op pairwise_distance
  opsmith inspect libactivations.so --op gelu --cuda > gelu.cu
  opsmith inspect libdistances.so --json > distances.json")]
pub(crate) struct Options {
    /// A library, or a file of definitions
    #[arg(value_name = "LIB")]
    library: PathBuf,
    /// Only this op, by any of its names, such as `Huber`, `huber` or `my_ops.huber`
    #[arg(long, value_name = "NAME")]
    op: Option<String>,
    /// Write JSON, for programs
    #[arg(long, conflicts_with = "cuda")]
    json: bool,
    /// Write JSON without formulas and CUDA sources, which take long to make for some ops
    #[arg(long, conflicts_with_all = ["json", "cuda"])]
    definitions: bool,
    /// Write the CUDA C++ source of kernels that are written once for all devices
    #[arg(long)]
    cuda: bool,
}

/// Reads the library and prints what was asked for.
pub(crate) fn inspect(options: &Options) -> Result<Outcome> {
    let source = read(&options.library, options.op.as_deref(), !options.definitions)?;
    let text = if options.json || options.definitions {
        format!("{:#}\n", source.json)
    } else if options.cuda {
        cuda_sources(&source)?
    } else {
        pages(&source, options.op.is_none())
    };
    print(&text)?;
    Ok(Outcome::Good)
}

/// The CUDA source of each op that has one.
fn cuda_sources(source: &LibraryFile) -> Result<String> {
    let explained = source.definitions.ops.iter().filter_map(|op| Some((op, op.explanation.as_ref()?)));
    let sources: Vec<String> =
        explained.map(|(op, explanation)| format!("// {}\n{}", op.name(), explanation.cuda_source)).collect();
    if sources.is_empty() {
        let names: Vec<&str> = source.definitions.ops.iter().map(Op::name).collect();
        let written = "has a kernel that is written once for all devices, so there is no CUDA source to show";
        bail!("library `{}`: none of {} {written}", source.definitions.name, names.join(", "));
    }
    Ok(sources.join("\n"))
}

fn pages(source: &LibraryFile, with_head: bool) -> String {
    let definitions = &source.definitions;
    let mut pages = Vec::new();
    if with_head {
        let count = definitions.ops.len();
        let plural = if count == 1 { "" } else { "s" };
        let name = styled(STRONG, format_args!("{} {}", definitions.name, definitions.version));
        let place = styled(FAINT, format_args!("{}", source.path.display()));
        let kernels = kernels::beside(&source.path);
        let kernels = kernels.map(|line| format!("  {}\n", styled(FAINT, line))).unwrap_or_default();
        pages.push(format!("{name}, {count} op{plural}, {place}\n{kernels}"));
    }
    pages.extend(definitions.ops.iter().map(page::page));
    pages.join("\n")
}
