//! `opsmith bench`: how long a library's ops take, on generated inputs over sizes.

mod measure;
mod plot;
mod report;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
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
  opsmith bench libactivations.so leaky_relu --attr slope=0.2
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
    /// The value of an attribute, for one or several of them, written as its default is in a definition; the others have their default, or a
    /// simple value that they may have
    #[arg(long = "attr", value_name = "ATTR=VALUE", value_parser = attr)]
    attrs: Vec<(String, String)>,
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
    text.parse()
        .ok()
        .filter(|size| *size > 0)
        .ok_or_else(|| format!("a size is a number from 1 to {}", usize::MAX))
}

/// `x=1000,64`; after the sign nothing, for a scalar.
fn shape(text: &str) -> Result<(String, Vec<usize>), String> {
    let named = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, dims) = named.ok_or("write an input and its dims, such as x=1000,64")?;
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

/// `size=7`; after the sign nothing, for an empty text.
fn attr(text: &str) -> Result<(String, String), String> {
    let named = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = named.ok_or("write an attribute and its value, such as size=7")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn dtype(name: &str) -> Result<DType, String> {
    let is_number = |dtype: &DType| *dtype != DType::String;
    let names = || DType::ALL.into_iter().filter(is_number).map(DType::name).collect::<Vec<_>>();
    DType::parse(name).filter(is_number).ok_or_else(|| format!("there are {}", names().join(", ")))
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "a number of seconds, up to 3600".to_owned())
}

/// What was measured of an op.
struct Row {
    op: String,
    /// Whether an input of it has a shape that is given, or an attribute a value.
    is_given: bool,
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
    check_names(&ops, options)?;
    options.plot.as_deref().map_or(Ok(()), check_writable)?;
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
    let text = match options.json {
        true => report::json(&library, options.dtype, &rows),
        false => report::table(&library, options.dtype, &rows),
    };
    let unfit = unfit(&rows);
    // Whatever fails from here on, what was measured is not lost.
    if unfit.is_none() || rows.iter().any(|row| !row.measured.is_empty()) {
        print(&text)?;
    }
    if let Some(why) = unfit {
        bail!("{why}");
    }
    if let Some(path) = &options.plot {
        let picture = plot::draw(&rows, options.dtype)?;
        std::fs::write(path, picture).with_context(|| cannot_be_written(path))?;
    }
    Ok(Outcome::Good)
}

/// What the first op says of whose call something is given, where none of these ops was timed.
fn unfit(rows: &[Row]) -> Option<String> {
    let mut given = rows.iter().filter(|row| row.is_given).peekable();
    let first = *given.peek()?;
    if given.any(|row| !row.measured.is_empty()) {
        return None;
    }
    let (op, why) = (&first.op, first.why.as_deref().unwrap_or("it was not timed"));
    // What the op itself says begins with its name.
    Some(format!("{op}: {}", why.strip_prefix(&format!("{op}: ")).unwrap_or(why)))
}

/// Fails where a file cannot be written; leaves what is there, and nothing where nothing was.
fn check_writable(path: &Path) -> Result<()> {
    let is_new = path.symlink_metadata().is_err();
    File::options().append(true).create(true).open(path).with_context(|| cannot_be_written(path))?;
    if is_new {
        std::fs::remove_file(path).with_context(|| cannot_be_written(path))?;
    }
    Ok(())
}

fn cannot_be_written(path: &Path) -> String {
    format!("{}: cannot be written", path.display())
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

/// Refuses a shape for an input that no op has, and two for one; values of attributes likewise.
fn check_names(ops: &[Op], options: &Options) -> Result<()> {
    let inputs = ops.iter().flat_map(|op| op.signature().inputs.iter().map(|input| &*input.name));
    let attrs = ops.iter().flat_map(|op| op.signature().attrs.iter().map(|attr| &*attr.name));
    let shapes: Vec<&str> = options.shapes.iter().map(|(name, _)| &**name).collect();
    let values: Vec<&str> = options.attrs.iter().map(|(name, _)| &**name).collect();
    check_given("--shape", ("input", "shapes"), &inputs.collect(), &shapes)?;
    check_given("--attr", ("attribute", "values"), &attrs.collect(), &values)
}

fn check_given(
    option: &str,
    (one, several): (&str, &str),
    names: &BTreeSet<&str>,
    given: &[&str],
) -> Result<()> {
    for (index, name) in given.iter().enumerate() {
        if !names.contains(name) {
            let known = match names.is_empty() {
                true => format!("they have no {one}s"),
                false => format!("they have: {}", names.iter().copied().collect::<Vec<_>>().join(", ")),
            };
            bail!("{option}: no op that is to be timed has an {one} `{name}`; {known}");
        }
        if given[..index].contains(name) {
            bail!("{option}: `{name}` has two {several}");
        }
    }
    Ok(())
}

/// Measures an op at each size; `tell` hears of each.
fn measure_op(sampler: &mut Sampler<'_>, op: &Op, options: &Options, tell: &dyn Fn(usize)) -> Result<Row> {
    let signature = op.signature();
    let is_given =
        signature.inputs.iter().any(|input| options.shapes.iter().any(|(name, _)| *name == input.name))
            || signature.attrs.iter().any(|attr| options.attrs.iter().any(|(name, _)| *name == attr.name));
    let mut row = Row { op: signature.name.clone(), is_given, measured: vec![], why: None };
    let calls =
        match sampler.calls(op.index(), options.dtype, &options.shapes, &options.attrs).map_err(told)? {
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
        let sized = is_sized.then_some(size);
        let budget = Duration::from_secs_f64(options.seconds);
        let measured = calls.at(size).and_then(|sample| match sample {
            Ok(sample) => measure::measure(op, sized, sample, budget).map(Ok),
            Err(why) => Ok(Err(why)),
        });
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
