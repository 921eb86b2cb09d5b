//! `cargo xtask demo`: nearest neighbours and k-medians on real data, against NumPy and SciPy.

use std::{panic, thread};

use anyhow::{Result, bail};

use crate::venv::Venv;
use crate::workspace::Workspace;
use crate::{VENV, build, run};

/// Sets up what the demo needs, then runs it.
pub(crate) fn demo(workspace: &Workspace) -> Result<()> {
    // Cargo waits for nothing from Python but the program that packs the wheel.
    let venv = thread::scope(|scope| {
        let installing = scope.spawn(|| {
            let venv = Venv::open(workspace, VENV)?;
            venv.install_lock(workspace, "demo")?;
            anyhow::Ok(venv)
        });
        build::libraries(workspace, Some("distances"))?;
        installing.join().unwrap_or_else(|reason| panic::resume_unwind(reason))
    })?;
    build::package(workspace, &venv)?;
    let mut command = venv.program(workspace, "python");
    command.arg("demo/knn.py").arg("--library").arg(workspace.library_folder().join("libdistances.so"));
    let finished = run::streaming("demo", &mut command)?;
    if finished.success() {
        return Ok(());
    }
    bail!("the demo failed ({})", finished.status())
}
