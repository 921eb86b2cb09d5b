//! Which library is looked at.

use std::fmt;
use std::path::PathBuf;

use opsmith_core::Result;
use opsmith_runtime::Library;

/// A library, here and in the process that calls its ops.
#[derive(Debug, Clone)]
pub enum LibrarySource {
    /// The one in this file.
    File(PathBuf),
    /// The standard operators, which both processes have in them.
    Standard,
}

impl LibrarySource {
    /// The library.
    ///
    /// # Errors
    /// Those of [`Library::open`].
    pub fn open(&self) -> Result<Library> {
        match self {
            LibrarySource::File(path) => Library::open(path),
            LibrarySource::Standard => Library::standard(),
        }
    }

    /// The library as Python code has it.
    pub(crate) fn python(&self) -> String {
        match self {
            LibrarySource::File(path) => format!("opsmith.load({:?})", path.display().to_string()),
            LibrarySource::Standard => "opsmith.ops".to_owned(),
        }
    }

    /// The path as it goes to the other process, which [`read`](Self::read) takes.
    pub(crate) fn path(&self) -> Option<String> {
        match self {
            LibrarySource::File(path) => Some(path.to_string_lossy().into_owned()),
            LibrarySource::Standard => None,
        }
    }

    /// What [`path`](Self::path) gave.
    pub(crate) fn read(path: Option<String>) -> LibrarySource {
        path.map_or(LibrarySource::Standard, |path| LibrarySource::File(path.into()))
    }
}

impl fmt::Display for LibrarySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LibrarySource::File(path) => write!(f, "{}", path.display()),
            LibrarySource::Standard => f.write_str("the standard operators"),
        }
    }
}
