//! `cargo xtask differ`: random calls, computed by all frameworks and by the engine, against each other.

use anyhow::{Result, bail};

use crate::venv::Venv;
use crate::workspace::Workspace;
use crate::{VENV, build, run};

/// How long, and what.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// For how long
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// The same seed gives the same calls, as many as there is time for
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Of engine, formulas, torch, tensorflow, jax, graphs and bodies; all if none is named
    frameworks: Vec<String>,
}

/// Builds, then runs `tests/differ/differ.py`, which has a process for each framework.
pub(crate) fn differ(workspace: &Workspace, options: &Options) -> Result<()> {
    let venv = Venv::open(workspace, VENV)?;
    venv.install_lock(workspace, "test")?;
    build::everything(workspace, &venv)?;
    let mut command = venv.program(workspace, "python");
    command.args(["tests/differ/differ.py", "--minutes", &options.minutes.to_string()]);
    command.args(["--seed", &options.seed.to_string()]).args(&options.frameworks);
    command.env("OPSMITH_LIB_DIR", workspace.library_folder());
    let finished = run::streaming("differ", &mut command)?;
    if finished.success() {
        return Ok(());
    }
    bail!(
        "something differs ({}): the cases are in tests/differ, where the tests run them again",
        finished.status()
    )
}
