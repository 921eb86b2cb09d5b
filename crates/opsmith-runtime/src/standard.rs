//! The standard operators, which the engine has in it.

use std::path::PathBuf;

use opsmith_core::Result;
use opsmith_core::fork::OnceLock;

use crate::library::Library;
use crate::library::Op;

impl Library {
    /// The library of the standard operators, `opsmith`, which is part of the engine and needs no file.
    ///
    /// # Errors
    /// What is wrong with its definitions.
    pub fn standard() -> Result<Library> {
        static STANDARD: OnceLock<Result<Library>> = OnceLock::new();
        let library = || Library::new(PathBuf::from("the engine"), None, opsmith_ops::table());
        STANDARD.get_or_init(library).clone()
    }
}

/// The standard operator of this name.
pub(crate) fn op(name: &str) -> Result<Op> {
    Library::standard()?.op(name)
}
