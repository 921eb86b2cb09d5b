//! `opsmith bench`: how long a library's ops take, on generated inputs over sizes.

mod measure;
mod plot;
mod report;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use opsmith_check::Sampler;
use opsmith_core::{DType, Error};
use opsmith_runtime::{Library, Op};

use crate::Outcome;
use crate::check::starter;
use crate::text::{print, progress};
use measure::Measured;

/// Time a library's ops on generated inputs over sizes
///
/// Inputs are generated from the shape signatures (where a function says the shapes, it is asked which ranks it accepts),
/// from dtypes and from what attributes may be; all dims that are free have one size. Each call is made by the embedded
/// engine, which takes as many threads as there are processors, or OPSMITH_NUM_THREADS; the time is the median of
/// repetitions after a warm-up.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  opsmith bench target/release/libdistances.so
  opsmith bench libactivations.so gelu --sizes 64,512,4096 --dtype float64
  opsmith bench libdistances.so --gradients --plot distances.svg
  opsmith bench libdistances.so --json > times.json")]
pub(crate) struct Options {
    /// A library
    #[arg(value_name = "LIB")]
    library: PathBuf,
    /// Only these ops, by any of their names, such as `Huber`, `huber` or `my_ops.huber`
    #[arg(value_name = "OP")]
    ops: Vec<String>,
    /// The sizes of dims
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [16, 64, 256, 1024], value_parser = size)]
    sizes: Vec<usize>,
    /// The dtype of the tensors, where definitions leave it open
    #[arg(long, value_name = "DTYPE", default_value = "float32", value_parser = dtype)]
    dtype: DType,
    /// Also time the ops that compute the gradients of these
    #[arg(long)]
    gradients: bool,
    /// Repeat a call for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0.2, value_parser = seconds)]
    seconds: f64,
    /// Write JSON, for programs
    #[arg(long)]
    json: bool,
    /// Draw time against size, an SVG picture
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

fn size(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|size| *size > 0).ok_or_else(|| "a size is a number from 1 on".to_owned())
}

fn dtype(name: &str) -> Result<DType, String> {
    let name_of = |dtype: &DType| dtype.name();
    DType::parse(name)
        .filter(|dtype| *dtype != DType::String)
        .ok_or_else(|| format!("there are {}", DType::ALL.iter().map(name_of).collect::<Vec<_>>().join(", ")))
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "a number of seconds, up to 3600".to_owned())
}

/// What was measured of an op.
struct Row {
    op: String,
    measured: Vec<Measured>,
    /// Why there is nothing, or nothing for larger sizes.
    why: Option<String>,
}

/// Measures the ops, and prints.
pub(crate) fn bench(options: &Options) -> Result<Outcome> {
    let start = starter()?;
    let limit = Duration::from_secs(10);
    let mut sampler = Sampler::open(&options.library, &start, limit).map_err(told)?;
    let library = sampler.library().clone();
    if library.num_ops() == 0 {
        bail!("library `{}` has no ops", library.name());
    }
    let progress = progress();
    let mut rows = Vec::new();
    for op in chosen(&library, options)? {
        let name = op.signature().name.clone();
        progress.set_message(name.clone());
        let row =
            measure_op(&mut sampler, &op, options, &|size| progress.set_message(format!("{name} {size}")))
                .with_context(|| name.clone())?;
        rows.push(row);
    }
    progress.finish_and_clear();
    if let Some(path) = &options.plot {
        let picture = plot::draw(&rows, options.dtype)?;
        std::fs::write(path, picture).with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    let text = match options.json {
        true => report::json(&library, options.dtype, &rows),
        false => report::table(&library, options.dtype, &rows),
    };
    print(&text)?;
    Ok(Outcome::Good)
}

/// The ops that are to be timed: those that are named, else all that are no gradients; and the gradients, if wanted.
fn chosen(library: &Library, options: &Options) -> Result<Vec<Op>> {
    let all = (0..library.num_ops()).map(|index| library.op_at(index).map_err(told));
    let all = all.collect::<Result<Vec<Op>>>()?;
    let gradient = |op: &Op| op.gradient_wiring().map(|wiring| wiring.op.clone());
    let gradients: BTreeSet<String> = all.iter().filter_map(gradient).collect();
    let mut names: BTreeSet<String> = match &options.ops[..] {
        [] => {
            let names = all.iter().map(|op| op.signature().name.clone());
            names.filter(|name| !gradients.contains(name)).collect()
        }
        named => {
            let name = |name: &String| Ok(library.op(name).map_err(told)?.signature().name.clone());
            named.iter().map(name).collect::<Result<_>>()?
        }
    };
    if options.gradients {
        // A gradient's gradient comes behind it, whatever the order in the library: at most as often as there are ops.
        for _ in 0..all.len() {
            let of_chosen = all.iter().filter(|op| names.contains(&op.signature().name));
            let more: Vec<String> = of_chosen.filter_map(gradient).collect();
            names.extend(more);
        }
    }
    Ok(all.into_iter().filter(|op| names.contains(&op.signature().name)).collect())
}

/// Measures an op at each size; `tell` hears of each.
fn measure_op(sampler: &mut Sampler<'_>, op: &Op, options: &Options, tell: &dyn Fn(usize)) -> Result<Row> {
    let mut row = Row { op: op.signature().name.clone(), measured: vec![], why: None };
    let calls = match sampler.calls(op.index(), options.dtype).map_err(told)? {
        Ok(calls) => calls,
        Err(why) => return Ok(Row { why: Some(why), ..row }),
    };
    let mut sizes = options.sizes.clone();
    sizes.sort_unstable();
    sizes.dedup();
    for size in sizes {
        tell(size);
        let measured = match calls.at(size).map_err(told)? {
            Ok(sample) => measure::measure(op, size, &sample, Duration::from_secs_f64(options.seconds)),
            Err(why) => Ok(Err(why)),
        };
        match measured {
            // What one size does not fit, another may.
            Err(error) => {
                row.why.get_or_insert_with(|| format!("size {size}: {}", error.message()));
            }
            Ok(Ok(measured)) => {
                let is_long = measured.is_long();
                row.measured.push(measured);
                if is_long {
                    row.why = Some(format!("sizes beyond {size}, which would take long"));
                    break;
                }
            }
            Ok(Err(why)) => {
                row.why = Some(format!("size {size}: {why}"));
                break;
            }
        }
    }
    Ok(row)
}

fn told(error: Error) -> anyhow::Error {
    anyhow!("{}", error.message())
}
