//! `opsmith inspect`: a library's ops as an author would read them.

mod page;

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::Outcome;
use crate::definitions::Op;
use crate::source::{Source, read};
use crate::text::{FAINT, STRONG, print, styled};

/// Show a library's ops: signatures, shapes, dtypes, kernels, gradients, documentation
///
/// With --json it writes all that a library says of its ops. That is a file to commit: `opsmith compat` compares it
/// with later versions, and `inspect` shows it too.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  opsmith inspect target/release/libdistances.so
  opsmith inspect libdistances.so --op pairwise_distance
  opsmith inspect libdistances.so --json > distances.json")]
pub(crate) struct Options {
    /// A library, or a file of definitions
    #[arg(value_name = "LIB")]
    library: PathBuf,
    /// Only this op, by its CamelCase or snake_case name
    #[arg(long, value_name = "NAME")]
    op: Option<String>,
    /// Write JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Reads the library and prints what was asked for.
pub(crate) fn inspect(options: &Options) -> Result<Outcome> {
    let mut source = read(&options.library)?;
    if let Some(name) = &options.op {
        keep_only(&mut source, name)?;
    }
    let json = || format!("{:#}\n", source.json);
    print(&if options.json { json() } else { pages(&source, options.op.is_none()) })?;
    Ok(Outcome::Good)
}

/// Drops all ops but one.
fn keep_only(source: &mut Source, name: &str) -> Result<()> {
    let ops = &mut source.definitions.ops;
    let is_it = |op: &Op| op.name() == name || op.signature.snake_name() == name;
    let Some(index) = ops.iter().position(is_it) else {
        let names: Vec<&str> = ops.iter().map(Op::name).collect();
        bail!("library `{}` has no op `{name}`; it has: {}", source.definitions.name, names.join(", "));
    };
    *ops = vec![ops.swap_remove(index)];
    if let Value::Array(list) = &mut source.json["ops"] {
        *list = vec![list.swap_remove(index)];
    }
    Ok(())
}

fn pages(source: &Source, with_head: bool) -> String {
    let definitions = &source.definitions;
    let mut pages = Vec::new();
    if with_head {
        let count = definitions.ops.len();
        let plural = if count == 1 { "" } else { "s" };
        let name = styled(STRONG, format_args!("{} {}", definitions.name, definitions.version));
        let place = styled(FAINT, format_args!("{}", source.path.display()));
        pages.push(format!("{name}, {count} op{plural}, {place}\n"));
    }
    pages.extend(definitions.ops.iter().map(page::page));
    pages.join("\n")
}
