//! What tests of CUDA kernels need on a machine without a card.

pub mod processor;
mod resources;

use std::collections::BTreeSet;
use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use opsmith_core::Result;

pub use resources::{Resources, resources};

use crate::ahead;
use crate::launch::Launch;
use crate::nvrtc::Nvrtc;
use crate::source::{Architecture, Target};

/// The generations of cards that kernels are compiled for in tests.
pub const ARCHITECTURES: [Architecture; 4] =
    [Architecture(75), Architecture(80), Architecture(90), Architecture(100)];

/// Says why a test does nothing, each reason once in a process: on standard error itself, as the test harness keeps to itself what
/// a test that passes prints by macros. `cargo xtask test` has these lines in its summary.
pub fn skipped(why: &str) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(why.to_owned()) {
        // Where nobody listens there is nobody to be told.
        let _ = writeln!(io::stderr(), "skipped, as {why}");
    }
}

/// The compiler, also from a `.venv` in the current folder or one above it; where there is none, says on standard error that
/// the test is skipped.
pub fn nvrtc() -> Option<&'static Nvrtc> {
    static FOUND: OnceLock<Option<Nvrtc>> = OnceLock::new();
    match Nvrtc::get() {
        Ok(nvrtc) => Some(nvrtc),
        Err(error) => {
            let found = FOUND.get_or_init(|| environments().iter().find_map(|place| Nvrtc::open(place).ok()));
            if found.is_none() {
                skipped(&format!("CUDA sources cannot be compiled here: {}", error.message()));
            }
            found.as_ref()
        }
    }
}

/// Compiles the kernel of a launch for every generation of [`ARCHITECTURES`], and prints what it takes of one; each kernel of a
/// source once in a process. Where the environment names a folder for kernels compiled ahead of time, they are kept there.
///
/// # Errors
/// As [`Nvrtc::compile`], and as [`resources()`].
pub fn compile_everywhere(nvrtc: &Nvrtc, launch: &Launch<'_>) -> Result<()> {
    /// The generation that resources are told for.
    const SHOWN: Architecture = Architecture(90);
    static DONE: Mutex<BTreeSet<(u128, String)>> = Mutex::new(BTreeSet::new());
    let key = (launch.source.key(), launch.kernel.clone());
    if !DONE.lock().unwrap_or_else(PoisonError::into_inner).insert(key) {
        return Ok(());
    }
    let folder = ahead::named();
    for architecture in ARCHITECTURES {
        match &folder {
            Some(folder) => {
                ahead::make(nvrtc, folder, launch.source, &launch.kernel, architecture).map(drop)?
            }
            None => {
                nvrtc.compile(launch.source, &launch.kernel, Target::Machine(architecture), &[]).map(drop)?;
            }
        }
    }
    let taken = resources(nvrtc, launch.source, &launch.kernel, SHOWN)?;
    let taken = taken.map_or_else(|| "there is no ptxas to ask".to_owned(), |taken| taken.to_string());
    println!("{} of {} for {SHOWN}: {taken}", launch.kernel, launch.source.name());
    Ok(())
}

/// Python environments that belong to this place.
fn environments() -> Vec<PathBuf> {
    let current = env::current_dir().unwrap_or_default();
    let own = current.ancestors().map(|folder| folder.join(".venv"));
    let said = [crate::find::VARIABLE, "VIRTUAL_ENV"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    said.chain(own).filter(|place| place.is_dir()).collect()
}
