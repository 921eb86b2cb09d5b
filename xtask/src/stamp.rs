//! Stamps: a file holding the hash of what was last done, so that it is not done again for nothing.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// A stamp file and the hash that it ought to hold.
pub(crate) struct Stamp {
    path: PathBuf,
    hash: String,
}

impl Stamp {
    /// The stamp at `path` for the content whose hash is `hash`.
    pub(crate) fn new(path: PathBuf, hash: String) -> Self {
        Self { path, hash }
    }

    /// Whether the work was done for this very content.
    pub(crate) fn is_current(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|text| text.trim() == self.hash)
    }

    /// Notes that the work is done.
    pub(crate) fn write(&self) -> Result<()> {
        fs::write(&self.path, &self.hash).with_context(|| format!("could not write {}", self.path.display()))
    }
}

/// The SHA-256 of `bytes`, in hexadecimal.
pub(crate) fn hash_bytes(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of one file, in hexadecimal.
pub(crate) fn hash_file(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("could not read {}", path.display()))?;
    Ok(hash_bytes(&bytes))
}

/// The SHA-256 over the names and contents of all source files under `paths` (files or folders; one that
/// does not exist counts as empty). Compiled Python files are left out.
pub(crate) fn hash_sources(root: &Path, paths: &[&str]) -> Result<String> {
    let mut files = Vec::new();
    for path in paths {
        collect(&root.join(path), &mut files)?;
    }
    files.sort();
    let mut digest = Sha256::new();
    for file in files {
        digest.update(file.strip_prefix(root).unwrap_or(&file).as_os_str().as_encoded_bytes());
        digest.update(hash_file(&file)?);
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if path.is_file() {
        files.push(path.to_owned());
    } else if path.is_dir() && !path.ends_with("__pycache__") {
        let entries = fs::read_dir(path).with_context(|| format!("could not list {}", path.display()))?;
        for entry in entries {
            collect(&entry?.path(), files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_current_only_for_its_content() {
        let folder = std::env::temp_dir().join(format!("opsmith-stamp-{}", std::process::id()));
        fs::create_dir_all(folder.join("src/__pycache__")).unwrap();
        fs::write(folder.join("src/a.py"), "one").unwrap();
        let before = hash_sources(&folder, &["src", "missing"]).unwrap();
        fs::write(folder.join("src/__pycache__/a.pyc"), "compiled").unwrap();
        assert_eq!(hash_sources(&folder, &["src"]).unwrap(), before);

        let stamp = Stamp::new(folder.join("stamp"), before.clone());
        assert!(!stamp.is_current());
        stamp.write().unwrap();
        assert!(stamp.is_current());

        fs::write(folder.join("src/a.py"), "two").unwrap();
        let after = hash_sources(&folder, &["src"]).unwrap();
        assert_ne!(after, before);
        assert!(!Stamp::new(folder.join("stamp"), after).is_current());
        fs::remove_dir_all(folder).unwrap();
    }
}
