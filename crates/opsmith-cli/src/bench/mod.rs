//! `opsmith bench`: how long a library's ops take, on generated inputs over sizes.

mod measure;
mod plot;
mod report;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use opsmith_check::Sampler;
use opsmith_core::tensor::MAX_RANK;
use opsmith_core::{DType, Error};
use opsmith_runtime::{Library, Op};

use crate::Outcome;
use crate::check::starter;
use crate::text::{print, progress};
use measure::Measured;

/// Time a library's ops on generated inputs over sizes
///
/// Inputs are generated from the shape signatures (where a function says the shapes, it is asked which ranks it accepts),
/// from dtypes and from what attributes may be; all dims that are free have one size, but for those of inputs whose
/// shapes are given. Each call is made by the embedded engine, which takes as many threads as there are processors, or
/// OPSMITH_NUM_THREADS; the time is the median of repetitions after a warm-up.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  opsmith bench target/release/libdistances.so
  opsmith bench libactivations.so gelu --sizes 64,512,4096 --dtype float64
  opsmith bench libactivations.so swiglu --shape x=1000,1000 --shape gate=1000
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
    /// The shape of an input, for one or several of them; dims that have to fit follow, and the others have the sizes
    #[arg(long = "shape", value_name = "INPUT=N,…", value_parser = shape)]
    shapes: Vec<(String, Vec<usize>)>,
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

/// `x=1000,64`; after the sign nothing, for a scalar.
fn shape(text: &str) -> Result<(String, Vec<usize>), String> {
    let (name, dims) = text.split_once('=').ok_or("write an input and its dims, such as x=1000,64")?;
    let dim = |dim: &str| {
        let size = dim.parse().ok().filter(|size| *size > 0);
        size.ok_or_else(|| format!("`{dim}` is no dim of `{name}`: it is a number from 1 to {}", usize::MAX))
    };
    let dims: Vec<usize> = match dims {
        "" => vec![],
        dims => dims.split(',').map(dim).collect::<Result<_, _>>()?,
    };
    match dims.len() {
        ..=MAX_RANK => Ok((name.to_owned(), dims)),
        rank => Err(format!("`{name}` has {rank} dims, and a tensor has at most {MAX_RANK}")),
    }
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
    let ops = chosen(&library, options)?;
    check_names(&ops, &options.shapes)?;
    let progress = progress();
    let mut rows = Vec::new();
    for op in ops {
        let name = op.signature().name.clone();
        progress.set_message(name.clone());
        let row =
            measure_op(&mut sampler, &op, options, &|size| progress.set_message(format!("{name} {size}")))
                .with_context(|| name.clone())?;
        rows.push(row);
    }
    progress.finish_and_clear();
    let is_asked = !options.shapes.is_empty();
    if is_asked
        && rows.iter().all(|row| row.measured.is_empty())
        && let [row, ..] = &rows[..]
    {
        let (op, why) = (&row.op, row.why.as_deref().unwrap_or("it was not timed"));
        // What the op itself says begins with its name.
        bail!("{op}: {}", why.strip_prefix(&format!("{op}: ")).unwrap_or(why));
    }
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

/// Refuses a shape for an input that no op has, and two for one.
fn check_names(ops: &[Op], shapes: &[(String, Vec<usize>)]) -> Result<()> {
    let inputs = ops.iter().flat_map(|op| &op.signature().inputs);
    let names: BTreeSet<&str> = inputs.map(|input| input.name.as_str()).collect();
    for (index, (name, _)) in shapes.iter().enumerate() {
        if !names.contains(name.as_str()) {
            let known = names.iter().copied().collect::<Vec<_>>().join(", ");
            bail!("--shape: no op that is to be timed has an input `{name}`; they have: {known}");
        }
        if shapes[..index].iter().any(|(other, _)| other == name) {
            bail!("--shape: `{name}` has two shapes");
        }
    }
    Ok(())
}

/// Measures an op at each size; `tell` hears of each.
fn measure_op(sampler: &mut Sampler<'_>, op: &Op, options: &Options, tell: &dyn Fn(usize)) -> Result<Row> {
    let mut row = Row { op: op.signature().name.clone(), measured: vec![], why: None };
    let calls = match sampler.calls(op.index(), options.dtype, &options.shapes).map_err(told)? {
        Ok(calls) => calls,
        Err(why) => return Ok(Row { why: Some(why), ..row }),
    };
    let mut sizes = options.sizes.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let is_sized = !calls.is_of_one_size();
    sizes.truncate(if is_sized { sizes.len() } else { 1 });
    for size in sizes {
        tell(size);
        let at = if is_sized { format!("size {size}: ") } else { String::new() };
        let measured = match calls.at(size).map_err(told)? {
            Ok(sample) => {
                let size = is_sized.then_some(size);
                measure::measure(op, size, &sample, Duration::from_secs_f64(options.seconds))
            }
            Err(why) => Ok(Err(why)),
        };
        match measured {
            // What one size does not fit, another may.
            Err(error) => {
                row.why.get_or_insert_with(|| format!("{at}{}", error.message()));
            }
            Ok(Ok(measured)) => {
                let is_long = measured.is_long();
                row.measured.push(measured);
                if is_long && is_sized {
                    row.why = Some(format!("sizes beyond {size}, which would take long"));
                    break;
                }
            }
            Ok(Err(why)) => {
                row.why = Some(at + &why);
                break;
            }
        }
    }
    Ok(row)
}

fn told(error: Error) -> anyhow::Error {
    anyhow!("{}", error.message())
}
