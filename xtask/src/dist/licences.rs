//! What others have written of what is given away: which licences are allowed, their texts, and the bill of materials.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use spdx::{Expression, ParseMode};

use super::{TARGET, told};
use crate::VENV;
use crate::run;
use crate::venv::Venv;
use crate::workspace::{Workspace, cargo};

/// The texts, which the wheel and the archive of sources have.
pub(crate) const FILE: &str = "THIRD-PARTY-LICENSES.txt";

/// Licences under which code may be given away in a library, open or not, if their texts go along.
const ALLOWED: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Fails where a crate that anything here depends on, its tests too, has another licence.
pub(crate) fn check_allowed(workspace: &Workspace) -> Result<()> {
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", TARGET];
    let metadata: Value = serde_json::from_str(&told(&mut workspace.cargo(&arguments))?)?;
    let packages = metadata["packages"].as_array().context("`cargo metadata` names no packages")?;
    let mut refused = Vec::new();
    for package in packages {
        let licence = package["license"].as_str().unwrap_or_default();
        if !is_allowed(licence) {
            refused.push(format!("{} {}: {licence:?}", package["name"], package["version"]));
        }
    }
    if refused.is_empty() {
        println!("✓ {} crates, all under licences that are allowed", packages.len());
        return Ok(());
    }
    bail!(
        "not under a licence that is allowed:\n{}\n  → do without them, or add the licence to ALLOWED in {}",
        refused.join("\n"),
        file!()
    )
}

/// Whether the licences that an expression lets one choose are allowed. Exceptions only allow more.
fn is_allowed(expression: &str) -> bool {
    let parsed = Expression::parse_mode(expression, ParseMode::LAX);
    parsed.is_ok_and(|parsed| {
        parsed.evaluate(|asked| asked.license.id().is_some_and(|id| ALLOWED.contains(&id.name)))
    })
}

/// `cargo xtask licences`: writes the texts, or with `check` fails where they are not those of the present dependencies.
pub(crate) fn licences(workspace: &Workspace, check: bool) -> Result<()> {
    let venv = Venv::open(workspace, VENV)?;
    if check {
        return check_file(workspace, &venv);
    }
    inventory(workspace, &venv, &["--licences", FILE])?;
    println!("✓ {FILE}");
    Ok(())
}

/// Fails where the texts are not those of the present dependencies.
pub(crate) fn check_file(workspace: &Workspace, venv: &Venv) -> Result<()> {
    let made = workspace.target.join(FILE);
    inventory(workspace, venv, &["--licences", &made.to_string_lossy()])?;
    let same = fs::read(&made)? == fs::read(workspace.root.join(FILE)).unwrap_or_default();
    fs::remove_file(&made)?;
    if same {
        return Ok(());
    }
    bail!(
        "{FILE} is out of date: it is to have the licences of what is linked\n  → run `cargo xtask licences`"
    )
}

/// Writes the bill of materials.
pub(super) fn write_bill(workspace: &Workspace, venv: &Venv, file: &Path) -> Result<()> {
    let version = told(Command::new(cargo()).arg("-vV").current_dir(&workspace.root))?;
    let release = version.lines().find_map(|line| line.strip_prefix("release: "));
    let release = release.context("`cargo -vV` does not tell its release")?;
    inventory(workspace, venv, &["--compiler", release, "--bill", &file.to_string_lossy()])
}

fn inventory(workspace: &Workspace, venv: &Venv, arguments: &[&str]) -> Result<()> {
    let mut command = venv.program(workspace, "python");
    command.arg("python/opsmith/build/_inventory.py").arg("--cargo").arg(cargo());
    command.args(["--package", "opsmith-python", "--target", TARGET]).args(arguments);
    run::quietly("Listing what the package is made of", &mut command).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_with_an_allowed_licence_is_allowed() {
        for good in ["MIT", "GPL-3.0-only OR MIT", "MIT/Apache-2.0", "Apache-2.0 WITH LLVM-exception"] {
            assert!(is_allowed(good), "{good}");
        }
        for bad in ["", "GPL-3.0-only", "MIT AND GPL-2.0-only", "LicenseRef-own", "no licence"] {
            assert!(!is_allowed(bad), "{bad}");
        }
    }
}
