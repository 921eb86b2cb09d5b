//! What tests of CUDA kernels need on a machine without a card.

pub mod processor;
mod resources;

use std::collections::BTreeSet;
use std::env;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use opsmith_core::Result;

pub use resources::{Resources, resources};

use crate::ahead;
use crate::launch::Launch;
use crate::nvrtc::Nvrtc;
use crate::source::{Architecture, Target};

/// The generations of cards that kernels are compiled for in tests, all or in turn.
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

/// The variable that asks for all that can be told of sources on this machine: they are compiled for every generation of cards,
/// and optimised, which takes many times as long, and what kernels take of a card is printed.
pub const WHOLE: &str = "OPSMITH_EVERY_SOURCE";

/// Compiles the kernel of a launch, each kernel of a source once in a process: for one of [`ARCHITECTURES`], which its
/// name decides, and with little optimised; or, where the environment has [`WHOLE`], for all of them, and prints what it takes of one.
/// Where the environment names a folder for kernels compiled ahead of time, it is compiled for all of them and kept there.
///
/// # Errors
/// As [`Nvrtc::compile`], and as [`resources()`].
pub fn compile_everywhere(nvrtc: &Nvrtc, launch: &Launch<'_>) -> Result<()> {
    /// The generation that resources are told for.
    const SHOWN: Architecture = Architecture(90);
    static DONE: Mutex<BTreeSet<(u128, String)>> = Mutex::new(BTreeSet::new());
    let (source, kernel) = (launch.source, &launch.kernel);
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    // The same one in every run, whatever the order of the tests.
    let mut hasher = DefaultHasher::new();
    (source.key(), kernel).hash(&mut hasher);
    let turn = (hasher.finish() % ARCHITECTURES.len() as u64) as usize;
    if !done.insert((source.key(), kernel.clone())) {
        return Ok(());
    }
    drop(done);
    if let Some(folder) = ahead::named() {
        for architecture in ARCHITECTURES {
            ahead::make(nvrtc, &folder, source, kernel, architecture)?;
        }
    } else if env::var_os(WHOLE).is_none() {
        nvrtc.compile(source, kernel, Target::Machine(ARCHITECTURES[turn]), &nvrtc.quick())?;
        return Ok(());
    } else {
        for architecture in ARCHITECTURES {
            nvrtc.compile(source, kernel, Target::Machine(architecture), &[])?;
        }
    }
    let taken = resources(nvrtc, source, kernel, SHOWN)?;
    let taken = taken.map_or_else(|| "there is no ptxas to ask".to_owned(), |taken| taken.to_string());
    println!("{kernel} of {} for {SHOWN}: {taken}", source.name());
    Ok(())
}

/// Python environments that belong to this place.
fn environments() -> Vec<PathBuf> {
    let current = env::current_dir().unwrap_or_default();
    let own = current.ancestors().map(|folder| folder.join(".venv"));
    let said = [crate::find::VARIABLE, "VIRTUAL_ENV"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    said.chain(own).filter(|place| place.is_dir()).collect()
}
