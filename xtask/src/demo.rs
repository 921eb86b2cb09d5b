//! `cargo xtask demo`: nearest neighbours and k-medians on real data, against NumPy and SciPy.

use anyhow::{Result, bail};

use crate::venv::Venv;
use crate::workspace::Workspace;
use crate::{VENV, build, run};

/// Sets up what the demo needs, then runs it.
pub(crate) fn demo(workspace: &Workspace) -> Result<()> {
    let venv = Venv::open(workspace, VENV)?;
    venv.install_lock(workspace, "demo")?;
    build::everything(workspace, &venv, Some("distances"))?;
    let mut command = venv.program(workspace, "python");
    command.arg("demo/knn.py").arg("--library").arg(workspace.library_folder().join("libdistances.so"));
    let finished = run::streaming("demo", &mut command)?;
    if finished.success() {
        return Ok(());
    }
    bail!("the demo failed ({})", finished.status())
}
