//! Kernels compiled ahead of time: in a folder beside the library, which is looked into before anything is compiled.
//!
//! A file is found by the source, the headers, the instance of the template and the generation of cards, as those of the cache
//! are, so one of another source is never taken. The compiler is not part of that: machine code is the card's whoever made it.

use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{env, io};

use opsmith_core::{Error, Result};

use crate::cache::{self, Readers};
use crate::digest::Digest;
use crate::nvrtc::{LANGUAGE, Nvrtc};
use crate::source::{Architecture, Compiled, Source, Target};

/// The environment variable that says where the folder is: in tests, which then fill it, and where it is not beside the library.
pub const VARIABLE: &str = "OPSMITH_CUDA_KERNELS";

/// What the name of the folder has behind the library's.
const SUFFIX: &str = ".kernels";

/// The folder that the environment names.
pub(crate) fn named() -> Option<PathBuf> {
    env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The library that this code is in.
fn library() -> Option<PathBuf> {
    static HERE: u8 = 0;
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the address is one of this library's, and the structure is filled where the function says that it found it; the name
    // is a C string, which lives as long as the library does.
    let name = unsafe {
        if libc::dladdr((&raw const HERE).cast::<c_void>(), found.as_mut_ptr()) == 0 {
            return None;
        }
        let name = found.assume_init().dli_fname;
        if name.is_null() {
            return None;
        }
        CStr::from_ptr(name)
    };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// The folder of the library in this file.
pub fn folder_of(library: &Path) -> PathBuf {
    let mut folder = library.as_os_str().to_owned();
    folder.push(SUFFIX);
    PathBuf::from(folder)
}

/// Compiles a kernel into a folder; gives how many bytes of machine code that is.
///
/// # Errors
/// As [`Nvrtc::compile`], and those of the file system.
pub fn make(
    nvrtc: &Nvrtc,
    folder: &Path,
    source: &Source,
    kernel: &str,
    architecture: Architecture,
) -> Result<usize> {
    let compiled = nvrtc.compile(source, kernel, Target::Machine(architecture), &[])?;
    write(folder, source, kernel, architecture, &compiled)
        .map_err(|error| Error::internal(format!("{}: {error}", folder.display())))?;
    Ok(compiled.image.len())
}

/// The kernel for a card of this generation, if it has been compiled ahead: for this one, or an earlier one of its family. The
/// folder is the one that the environment names, or the one beside the library; that is passed by, with a warning, where others
/// could have put the kernel there than those who could have put the library there.
///
/// # Errors
/// As [`read`], for the folder that the environment names.
pub fn find(source: &Source, kernel: &str, card: Architecture) -> Result<Option<Compiled>> {
    let (named, library) = (named(), library());
    let find = |architecture| match (&named, &library) {
        (Some(folder), _) => read(folder, source, kernel, architecture),
        (None, Some(library)) => {
            let found = cache::read_beside(library, &folder_of(library), key(source, kernel, architecture));
            Ok(found.unwrap_or_else(|error| {
                cache::warn_of(&error);
                None
            }))
        }
        (None, None) => Ok(None),
    };
    // Machine code runs on later cards of the same family.
    let family = card.0 / 10 * 10;
    (family..=card.0).rev().find_map(|number| find(Architecture(number)).transpose()).transpose()
}

/// The kernel for exactly this generation.
///
/// # Errors
/// `PermissionDenied` where others could have put it there.
pub fn read(
    folder: &Path,
    source: &Source,
    kernel: &str,
    architecture: Architecture,
) -> Result<Option<Compiled>> {
    cache::read(folder, key(source, kernel, architecture), VARIABLE)
}

/// Puts a kernel into a folder, machine code of this generation.
///
/// # Errors
/// Those of the file system.
pub fn write(
    folder: &Path,
    source: &Source,
    kernel: &str,
    architecture: Architecture,
    compiled: &Compiled,
) -> io::Result<()> {
    cache::write(folder, key(source, kernel, architecture), compiled, Readers::All)
}

fn key(source: &Source, kernel: &str, architecture: Architecture) -> u128 {
    let digest = Digest::new().part(b"ahead of time").part(LANGUAGE.as_bytes());
    let digest = digest.part(&source.key().to_le_bytes());
    digest.part(kernel.as_bytes()).part(architecture.to_string().as_bytes()).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_lies_beside_the_library() {
        // Tests are a program, not a library; its name is as good.
        let folder = folder_of(&library().expect("this code is in a file"));
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        assert!(name.starts_with("opsmith_cuda-") && name.ends_with(SUFFIX), "{name}");
    }
}
