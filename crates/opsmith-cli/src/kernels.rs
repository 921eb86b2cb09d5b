//! CUDA kernels compiled ahead of time: `opsmith build --cuda-kernels` finds out which ones calls would launch, and puts them
//! beside the library, where it looks before it compiles any.

use std::fmt::Write;
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{fs, process, thread};

use anyhow::{Context, Result, anyhow, bail};
use opsmith_check::{Kernel, Kernels, Unreached, cuda_kernels};
use opsmith_core::Error;
use opsmith_cuda::{Architecture, Nvrtc, Target, ahead};
use serde_json::{Value, json};

use crate::check::starter;
use crate::text::{human_size, print_error, progress, wrapped};

/// So long one call may take.
const LIMIT: Duration = Duration::from_secs(10);
/// The file of the folder that says what is in it.
const INDEX: &str = "kernels.json";

/// It has at most as many bytes, thousands of kernels.
const MOST_INDEX: u64 = 16 << 20;

/// As many characters are shown of what an op said.
const MOST_SHOWN: usize = 200;

/// What was compiled.
pub(crate) struct Made {
    folder: PathBuf,
    architectures: Vec<Architecture>,
    found: Kernels,
    bytes: usize,
}

/// Compiles the kernels of a library into the folder beside it, which has these and no others then. None where one does not
/// compile, having said so; the folder is as it was.
///
/// # Errors
/// When there is no compiler, or none for these generations, the library has no CUDA kernels, or the folder cannot be written.
pub(crate) fn make(library: &Path, architectures: &[Architecture]) -> Result<Option<Made>> {
    let nvrtc = compiler(architectures)?;
    let (start, bar) = (starter()?, progress());
    // A library that was built before frameworks had `launch` would launch, at made-up addresses: it must find no card.
    let start = || {
        let mut command = start();
        command.env("CUDA_VISIBLE_DEVICES", "");
        command
    };
    let told = |error: Error| anyhow!("{}", error.message());
    let found =
        cuda_kernels(library, &start, LIMIT, &mut |op| bar.set_message(op.to_owned())).map_err(told)?;
    if found.ops == 0 {
        bail!("{}: has no CUDA kernels\n  → leave out --cuda-kernels", library.display());
    }
    let folder = folder_of(library)?;
    let part = Part::new(&folder)?;
    bar.set_message(format!("{} kernels", found.kernels.len()));
    let outcome = compile_all(nvrtc, &part.0, &found.kernels, architectures);
    bar.finish_and_clear();
    let bytes = match outcome {
        Ok(bytes) => bytes,
        Err(errors) => {
            errors.into_iter().for_each(|error| print_error(&anyhow!("{}", error.message())));
            return Ok(None);
        }
    };
    let cannot = || format!("{}: cannot be written", part.0.display());
    fs::write(part.0.join(INDEX), index(&found.kernels, architectures)).with_context(cannot)?;
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("{}: cannot be replaced", folder.display()))?;
    }
    fs::rename(&part.0, &folder).with_context(cannot)?;
    Ok(Some(Made { folder, architectures: architectures.to_vec(), found, bytes }))
}

/// The folder beside a library: beside the file itself, where a link to it is given, since that is where it looks.
fn folder_of(library: &Path) -> Result<PathBuf> {
    let file = library.canonicalize().with_context(|| format!("{}: cannot be read", library.display()))?;
    Ok(ahead::folder_of(&file))
}

/// A new folder that gets another's content and then its name; removed where it does not come to that.
struct Part(PathBuf);

impl Part {
    fn new(folder: &Path) -> Result<Part> {
        // One that is there already is what is left of a process of this number that was killed.
        for attempt in 0_u64.. {
            let part = folder.with_extension(format!("kernels-{}-{attempt}", process::id()));
            // For whoever gets the library, and for nobody else to write to.
            match DirBuilder::new().mode(0o755).create(&part) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("{}: cannot be made", part.display()));
                }
                Ok(()) => return Ok(Part(part)),
            }
        }
        bail!("{}: there are too many folders beside it", folder.display());
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Renamed, there is nothing; else it is of no use to anybody, and what went wrong is told already.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// NVRTC, which has to know the generations.
fn compiler(architectures: &[Architecture]) -> Result<&'static Nvrtc> {
    let told = |error: Error| anyhow!("{}", error.message());
    let nvrtc = Nvrtc::get().map_err(told)?;
    for &architecture in architectures {
        if nvrtc.target_for(architecture).map_err(told)? != Target::Machine(architecture) {
            let (major, minor) = nvrtc.version();
            bail!(
                "NVRTC {major}.{minor} does not know cards of {architecture}\n  → leave it out of --cuda-arch, or install a newer one"
            );
        }
    }
    Ok(nvrtc)
}

/// Compiles each kernel for each generation, on all processors: how many bytes that makes, or what the compiler says.
fn compile_all(
    nvrtc: &Nvrtc,
    folder: &Path,
    kernels: &[Kernel],
    architectures: &[Architecture],
) -> Result<usize, Vec<Error>> {
    let (next, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let errors = Mutex::new(Vec::new());
    let work = || {
        while let Some(kernel) = kernels.get(next.fetch_add(1, Ordering::Relaxed)) {
            for &architecture in architectures {
                match ahead::make(nvrtc, folder, &kernel.source, &kernel.name, architecture) {
                    Ok(made) => {
                        bytes.fetch_add(made, Ordering::Relaxed);
                    }
                    Err(error) => {
                        // What is wrong is most often wrong for every generation.
                        errors.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(error);
                        break;
                    }
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let errors = errors.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if errors.is_empty() { Ok(bytes.into_inner()) } else { Err(errors) }
}

fn index(kernels: &[Kernel], architectures: &[Architecture]) -> String {
    let json = json!({
        "architectures": names(architectures),
        "kernels": kernels.iter().map(|kernel| &kernel.name).collect::<Vec<_>>(),
    });
    format!("{json:#}\n")
}

/// What lies beside a library, for a person: `compiled ahead of time: 4 CUDA kernels for sm_80, sm_90`. None where there is
/// nothing.
pub(crate) fn beside(library: &Path) -> Option<String> {
    let folder = folder_of(library).ok()?;
    let index = opsmith_files::read_text(&folder.join(INDEX), MOST_INDEX).ok();
    let index: Value = index.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let list = |key: &str| index[key].as_array();
    if let (Some(kernels), Some(architectures)) = (list("kernels"), list("architectures")) {
        let architectures: Vec<&str> = architectures.iter().filter_map(Value::as_str).collect();
        let (number, architectures) = (kernels.len(), architectures.join(", "));
        return Some(format!("compiled ahead of time: {number} CUDA kernels for {architectures}"));
    }
    // Tests have put them there, which say nothing of what for.
    let files = fs::read_dir(folder).ok()?.flatten();
    let files = files.filter(|file| file.path().extension().is_some_and(|end| end == "kernel")).count();
    (files > 0).then(|| format!("compiled ahead of time: {files} files of CUDA kernels"))
}

fn names(architectures: &[Architecture]) -> Vec<String> {
    architectures.iter().map(Architecture::to_string).collect()
}

impl Made {
    /// Lines for a person: how many, and what was not reached.
    pub(crate) fn text(&self) -> String {
        let Made { architectures, found, bytes, .. } = self;
        let number = found.kernels.len();
        let size = human_size(*bytes as u64);
        let mut text = wrapped(
            &format!(
                "{number} CUDA kernels of {} ops for {}, {size}",
                found.ops,
                names(architectures).join(", ")
            ),
            2,
        );
        text.push('\n');
        for unreached in &found.unreached {
            let _ = writeln!(text, "{}", wrapped(&described(unreached), 2));
        }
        text
    }

    /// The same for programs.
    pub(crate) fn json(&self) -> Value {
        // One for each kernel, as they are counted: two sources may have kernels of one name.
        let mut kernels: Vec<&str> = self.found.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        kernels.sort_unstable();
        let unreached = |Unreached { op, types, only_wide, why }: &Unreached| json!({ "op": op, "types": types, "only_64_bit_indices": only_wide, "why": why });
        json!({
            "folder": self.folder,
            "bytes": self.bytes,
            "architectures": names(&self.architectures),
            "kernels": kernels,
            "not_reached": self.found.unreached.iter().map(unreached).collect::<Vec<_>>(),
        })
    }
}

fn described(Unreached { op, types, only_wide, why }: &Unreached) -> String {
    let types = if types.is_empty() { String::new() } else { format!(" for {types}") };
    let what = if *only_wide { " with indices of 64 bits" } else { "" };
    // Some say all numbers of a tensor.
    let mut why: String = why.chars().take(MOST_SHOWN + 1).collect();
    if why.chars().count() > MOST_SHOWN {
        why.pop();
        why.push('…');
    }
    format!("not reached: {op}{types}{what}: {why}")
}
