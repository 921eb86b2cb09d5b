//! `opsmith check`: property tests of a library's ops from their definitions alone.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use opsmith_check::{Author, Emphasis, Look, Property, Row};

use crate::text::{BAD, FAINT, GOOD, STRONG, print, progress, styled, wrapped};
use crate::{Outcome, itself};

/// Test a library's ops by what their definitions say: shapes, gradients, strides, threads, ill-formed calls
///
/// Calls are generated from the shape signatures, dtypes and attributes, and made in another process, so that one that
/// crashes or hangs is a failure like any other. A case that fails is made smaller, and shown with a line of Python.
///
/// Exit status: 0 if everything holds, 1 if something does not, 2 if the library cannot be checked.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  opsmith check target/release/libdistances.so
  opsmith check libactivations.so --op gelu --property gradient --cases 500
  opsmith check libdistances.so --seed 7 --json > checks.json")]
pub(crate) struct Options {
    /// A library
    #[arg(value_name = "LIB")]
    library: PathBuf,
    /// Only this op, by any of its names, such as `Huber`, `huber` or `my_ops.huber`; may be given several times
    #[arg(long = "op", value_name = "NAME")]
    ops: Vec<String>,
    /// Only this property; may be given several times
    #[arg(long = "property", value_name = "NAME", value_parser = property)]
    properties: Vec<Property>,
    /// Generate the cases from this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Try as many cases for each property
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cases: Option<u32>,
    /// Give up on a call after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    time_limit: u64,
    /// Write JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Reads the name of a property.
fn property(name: &str) -> Result<Property, String> {
    Property::ALL.into_iter().find(|property| property.name() == name).ok_or_else(|| {
        let names: Vec<&str> = Property::ALL.iter().map(|property| property.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

/// Checks the library and prints the report.
pub(crate) fn check(options: &Options) -> Result<Outcome> {
    let start = starter()?;
    let mut wanted = opsmith_check::Options {
        ops: options.ops.clone(),
        seed: options.seed,
        cases: options.cases,
        limit: Duration::from_secs(options.time_limit),
        ..opsmith_check::Options::default()
    };
    if let Some(cases) = options.cases {
        // Who asks for more cases has the time for them.
        wanted.budget = Duration::from_secs(60).max(Duration::from_millis(u64::from(cases) * 50));
    }
    match &options.properties[..] {
        // Nothing here knows what the outputs ought to be.
        [] => wanted.properties.retain(|property| *property != Property::Reference),
        chosen => wanted.properties = chosen.to_vec(),
    }
    let progress = progress();
    let mut done = |row: &Row| {
        progress.set_message(format!("{} {}", row.op, row.property.name()));
        Ok(())
    };
    let library = opsmith_check::LibrarySource::File(options.library.clone());
    let report = opsmith_check::check(&library, &wanted, &start, Author::default(), &mut done);
    progress.finish_and_clear();
    let report = report.map_err(|error| anyhow!("{}", error.message()))?;
    if report.rows.is_empty() {
        bail!("library `{}` has no ops", report.library);
    }
    print(&if options.json { format!("{:#}\n", report.to_json()) } else { report.table(&OurLook) })?;
    Ok(if report.failures().next().is_some() { Outcome::Fault } else { Outcome::Good })
}

/// Starts this program as the other process, which makes the calls.
pub(crate) fn starter() -> Result<impl Fn() -> Command> {
    let program = itself::command()?;
    Ok(move || {
        let mut command = Command::new(program.get_program());
        command.args(program.get_args()).arg("check-worker");
        command
    })
}

/// The other process.
pub(crate) fn work() -> Result<Outcome> {
    opsmith_check::work().context("the other side is gone")?;
    Ok(Outcome::Good)
}

/// Tables as all commands write them.
struct OurLook;

impl Look for OurLook {
    fn styled(&self, emphasis: Emphasis, text: &str) -> String {
        let style = match emphasis {
            Emphasis::Strong => STRONG,
            Emphasis::Faint => FAINT,
            Emphasis::Good => GOOD,
            Emphasis::Bad => BAD,
        };
        styled(style, text)
    }

    fn wrapped(&self, text: &str, indent: usize) -> String {
        wrapped(text, indent)
    }
}
