//! The `opsmith` that a new crate depends on.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::itself;

/// The dependency as a manifest has it: `{ path = "…" }`, or a version in quotes.
///
/// # Errors
/// When `wanted` is neither a folder with the crate nor a version, or when others can write to the clone that was found.
pub(super) fn find(wanted: Option<&str>) -> Result<String> {
    let Some(wanted) = wanted else {
        let clone = itself::installed_from().find_map(|folder| crate_in(&folder.join("crates/opsmith")));
        return match clone {
            Some(path) => {
                // Above a wheel in a folder that others write to, they may have put a crate.
                if opsmith_files::check_own(&path, "").is_err() {
                    let path = path.display();
                    bail!(
                        "others than you can write to {path}, which this program was installed from\n  → name it by --opsmith {path} if you \
                         trust it, or keep them out by chmod go-w"
                    );
                }
                by_path(&path)
            }
            None => Ok(quoted(env!("CARGO_PKG_VERSION"))),
        };
    };
    let path = Path::new(wanted);
    if let Some(path) = crate_in(path).or_else(|| crate_in(&path.join("crates/opsmith"))) {
        return by_path(&path);
    }
    let is_version = wanted.starts_with(|c: char| c.is_ascii_digit())
        && wanted.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+'));
    if is_version && !path.exists() {
        return Ok(quoted(wanted));
    }
    bail!("`{wanted}` is neither a version nor a folder with the crate `opsmith`")
}

/// The folder, if it has the crate `opsmith`.
fn crate_in(folder: &Path) -> Option<PathBuf> {
    let manifest = super::read_manifest(&folder.join("Cargo.toml"))?;
    let is_it = manifest.lines().any(|line| line.replace(' ', "") == "name=\"opsmith\"");
    is_it.then(|| folder.canonicalize().ok()).flatten()
}

fn by_path(path: &Path) -> Result<String> {
    let text = path.to_str().with_context(|| format!("{}: is not UTF-8", path.display()))?;
    Ok(format!("{{ path = {} }}", quoted(text)))
}

/// A basic string of TOML, which has all that a string of JSON has.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
