//! `cargo xtask header`: the C header of the library ABI, generated from the module `abi` of `opsmith-core`.

use anyhow::Result;

use crate::run;
use crate::workspace::Workspace;

/// Writes `include/opsmith.h`, or with `check` fails if the file is not what would be written.
pub(crate) fn header(workspace: &Workspace, check: bool) -> Result<()> {
    let mut command = workspace.cargo(&["run", "--quiet", "--package", "xtask-header", "--"]);
    command.arg(&workspace.root).args(check.then_some("--check"));
    run::quietly(if check { "header" } else { "Writing the C header" }, &mut command).map(drop)
}
