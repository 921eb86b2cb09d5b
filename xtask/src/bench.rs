//! `cargo xtask bench`: the tables against the peers.

use anyhow::{Result, bail};

use crate::venv::Venv;
use crate::workspace::Workspace;
use crate::{VENV, build, run};

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Fewer rounds: a look at the numbers, not a result; writes nothing
    #[arg(long)]
    quick: bool,
    /// The suites to run, by name; all of them if none is named
    suites: Vec<String>,
}

/// Sets up the peers, then runs the suites of `benches/`.
pub(crate) fn bench(workspace: &Workspace, options: &Options) -> Result<()> {
    let venv = Venv::open(workspace, VENV)?;
    venv.install_lock(workspace, "bench")?;
    build::everything(workspace, &venv)?;
    let mut command = venv.program(workspace, "python");
    command.arg("benches/run.py").arg("--libraries").arg(workspace.library_folder());
    if options.quick {
        command.arg("--quick");
    }
    command.args(&options.suites);
    let finished = run::streaming("bench", &mut command)?;
    if finished.success() {
        return Ok(());
    }
    bail!("the benchmarks failed ({})", finished.status())
}
