//! What a kernel takes of a card, as `ptxas` tells it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fmt, fs, process};

use opsmith_core::{Error, Result};

use super::environments;
use crate::nvrtc::Nvrtc;
use crate::source::{Architecture, Source, Target};

/// What one thread and one block of a kernel take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of memory shared by a block that the kernel declares.
    pub shared: u32,
    /// Bytes that a thread stores for want of registers, and loads again.
    pub spilled: (u32, u32),
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Resources { registers, shared, spilled: (stores, loads) } = self;
        write!(
            f,
            "{registers} registers, {shared} bytes of shared memory, spills {stores} stored {loads} loaded"
        )
    }
}

/// What a kernel takes of a card of this generation; none where there is no `ptxas`, which is looked for in `PATH` and among
/// the packages of Python environments (`triton` and `nvidia-cuda-nvcc` have one).
///
/// # Errors
/// As [`Nvrtc::compile`], and `Internal` when `ptxas` fails.
pub fn resources(
    nvrtc: &Nvrtc,
    source: &Source,
    kernel: &str,
    architecture: Architecture,
) -> Result<Option<Resources>> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Some(ptxas) = ptxas() else { return Ok(None) };
    let compiled = nvrtc.compile(source, kernel, Target::Portable(architecture), &[])?;
    let path = env::temp_dir().join(format!(
        "opsmith-{}-{}.ptx",
        process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    ));
    let failed = |error: std::io::Error| Error::internal(format!("{}: {error}", ptxas.display()));
    let text = compiled.image.strip_suffix(&[0]).unwrap_or(&compiled.image);
    // Its own release may be older than NVRTC's, and refuse the version of PTX that it does not know by number alone.
    fs::write(&path, text).map_err(failed)?;
    let output = Command::new(&ptxas)
        .args(["--verbose", "--output-file", "/dev/null"])
        .arg(format!("--gpu-name={architecture}"))
        .arg(&path)
        .output();
    let _ = fs::remove_file(&path);
    let output = output.map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stderr);
    match parse(&said).filter(|_| output.status.success()) {
        Some(resources) => Ok(Some(resources)),
        None => Err(Error::internal(format!("{} on {}: {said}", ptxas.display(), compiled.symbol))),
    }
}

fn ptxas() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut candidates: Vec<PathBuf> = env::split_paths(&path).map(|folder| folder.join("ptxas")).collect();
    for environment in environments() {
        let pythons = fs::read_dir(environment.join("lib")).into_iter().flatten().flatten();
        for packages in pythons.map(|python| python.path().join("site-packages")) {
            candidates.push(packages.join("nvidia/cu13/bin/ptxas"));
            candidates.push(packages.join("nvidia/cuda_nvcc/bin/ptxas"));
            // The newer of the two that triton has.
            candidates.push(packages.join("triton/backends/nvidia/bin/ptxas-blackwell"));
            candidates.push(packages.join("triton/backends/nvidia/bin/ptxas"));
        }
    }
    candidates.into_iter().find(|candidate| candidate.is_file())
}

/// The numbers in what `ptxas` says of one kernel.
fn parse(said: &str) -> Option<Resources> {
    let before = |what: &str| -> Option<u32> {
        let text = said[..said.find(what)?].trim_end();
        text[text.rfind([' ', ',']).map_or(0, |at| at + 1)..].parse().ok()
    };
    Some(Resources {
        registers: before(" registers")?,
        shared: before(" bytes smem").unwrap_or(0),
        spilled: (before(" bytes spill stores").unwrap_or(0), before(" bytes spill loads").unwrap_or(0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read() {
        let said = "ptxas info    : Function properties for f\n    0 bytes stack frame, 16 bytes spill stores, 24 bytes \
                    spill loads\nptxas info    : Used 40 registers, used 1 barriers, 2176 bytes smem, 400 bytes cmem[0]";
        let expected = Resources { registers: 40, shared: 2176, spilled: (16, 24) };
        assert_eq!(parse(said), Some(expected));
        assert_eq!(parse("ptxas fatal"), None);
    }
}
