//! Compiled kernels on disk. What is there is whole: it is written elsewhere and renamed, and has a checksum. It is code, so it is
//! taken from a folder only that nobody else can write to.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{env, fs, io, process};

use opsmith_core::{Error, Result};
use opsmith_files::Trust;

use crate::digest::Digest;
use crate::source::Compiled;

/// The environment variable that says where the folder is; just-in-time builds have theirs in the same place.
pub const VARIABLE: &str = "OPSMITH_CACHE_DIR";

/// What a file begins with.
const MAGIC: &[u8; 16] = b"opsmith kernel 1";

/// A kernel takes at most as many bytes.
const MOST: u64 = 256 << 20;

/// The folder of compiled kernels: `cuda` in `$OPSMITH_CACHE_DIR`, else in `$XDG_CACHE_HOME/opsmith`, else in
/// `~/.cache/opsmith`. None on a machine that says nothing of these.
pub fn folder() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let own = set(VARIABLE)
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("opsmith")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/opsmith")));
    Some(own?.join("cuda"))
}

/// Who gets at what is written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Readers {
    /// The user alone: a cache.
    User,
    /// Everybody: what goes to others beside its library.
    All,
}

/// The kernel of this key, if it is there and whole. The folder is the one that the environment variable `variable` says.
///
/// # Errors
/// `PermissionDenied` where others could have put it there.
pub(crate) fn read(folder: &Path, key: u128, variable: &str) -> Result<Option<Compiled>> {
    let path = path(folder, key);
    opsmith_files::check_own(&path, variable)?;
    Ok(read_file(&path, key))
}

/// The kernel of this key in a folder beside `library`, if it is there and whole: as trusted as that.
///
/// # Errors
/// `PermissionDenied` where others could have put it there than those who could have put the library there.
pub(crate) fn read_beside(library: &Path, folder: &Path, key: u128) -> Result<Option<Compiled>> {
    let path = path(folder, key);
    let Ok(known) = fs::metadata(library) else { return Ok(None) };
    for place in [folder, &path] {
        let Ok(found) = fs::metadata(place) else { return Ok(None) };
        let advice = format!("give it owner and mode of {}, or delete it", library.display());
        Trust::like(&known).check(place, &found, &advice)?;
    }
    Ok(read_file(&path, key))
}

/// Tells once in a process why kernels that are there are not taken, which costs the time of compiling them.
pub(crate) fn warn_of(error: &Error) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        // Not `eprintln!`, which panics where standard error is a closed pipe.
        let _ =
            writeln!(io::stderr(), "opsmith: kernels on disk are passed by, and compiled instead: {error}");
    }
}

fn read_file(path: &Path, key: u128) -> Option<Compiled> {
    decode(&opsmith_files::read(path, MOST).ok()?, key)
}

/// Keeps a kernel. It appears at once or not at all.
pub(crate) fn write(folder: &Path, key: u128, compiled: &Compiled, readers: Readers) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (folder_mode, mode) = match readers {
        Readers::User => (0o700, 0o600),
        Readers::All => (0o755, 0o644),
    };
    DirBuilder::new().recursive(true).mode(folder_mode).create(folder)?;
    let own = format!("{}-{}.part", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let part = folder.join(own);
    // What is left of a process of this number that was killed.
    let _ = fs::remove_file(&part);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&part)
        .and_then(|mut file| file.write_all(&encode(key, compiled)))
        .and_then(|()| fs::rename(&part, path(folder, key)));
    if written.is_err() {
        // It is of no use, and may not even be there.
        let _ = fs::remove_file(&part);
    }
    written
}

fn path(folder: &Path, key: u128) -> PathBuf {
    folder.join(format!("{key:032x}.kernel"))
}

/// The beginning, the key, a checksum of the rest, the length of the symbol, the symbol and the image.
fn encode(key: u128, Compiled { symbol, image }: &Compiled) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(key.to_le_bytes());
    bytes.extend(checksum(symbol.as_bytes(), image).to_le_bytes());
    bytes.extend((symbol.len() as u64).to_le_bytes());
    bytes.extend(symbol.as_bytes());
    bytes.extend(image);
    bytes
}

fn decode(bytes: &[u8], key: u128) -> Option<Compiled> {
    let (magic, rest) = bytes.split_first_chunk::<16>()?;
    let (own_key, rest) = rest.split_first_chunk::<16>()?;
    let (sum, rest) = rest.split_first_chunk::<16>()?;
    let (len, rest) = rest.split_first_chunk::<8>()?;
    let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
    let (symbol, image) = rest.split_at_checked(len)?;
    let whole = magic == MAGIC
        && u128::from_le_bytes(*own_key) == key
        && u128::from_le_bytes(*sum) == checksum(symbol, image);
    let symbol = std::str::from_utf8(symbol).ok().filter(|_| whole)?;
    Some(Compiled { symbol: symbol.to_owned(), image: image.to_owned() })
}

fn checksum(symbol: &[u8], image: &[u8]) -> u128 {
    Digest::new().part(symbol).part(image).finish()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

    use opsmith_core::Code;

    use super::*;

    fn kernel() -> Compiled {
        Compiled { symbol: "_Z7doubledPf".to_owned(), image: vec![7; 100] }
    }

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn refused<T: std::fmt::Debug>(read: Result<T>, parts: [&str; 2]) {
        let error = read.unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied);
        assert!(parts.iter().all(|part| error.message().contains(part)), "{error}");
    }

    #[test]
    fn a_kernel_that_others_could_have_put_there_is_refused() {
        let root = env::temp_dir().join(format!("opsmith-kernels-{}", process::id()));
        let folder = root.join("cache/cuda");
        assert_eq!(read(&folder, 5, "CACHE").unwrap(), None);
        write(&folder, 5, &kernel(), Readers::User).unwrap();
        assert_eq!(read(&folder, 5, "CACHE").unwrap(), Some(kernel()));
        let file = path(&folder, 5);
        for (place, mode) in [(&root, 0o700), (&folder, 0o700), (&file, 0o600)] {
            assert_eq!(fs::metadata(place).unwrap().mode() & 0o777, mode, "{}", place.display());
        }
        // Nobody else gets at it there.
        set(&file, 0o666);
        assert_eq!(read(&folder, 5, "CACHE").unwrap(), Some(kernel()));
        for place in [&root, &root.join("cache"), &folder] {
            set(place, 0o755);
        }
        refused(read(&folder, 5, "CACHE"), ["(mode 0666)", "set CACHE"]);
        set(&file, 0o600);
        set(&folder, 0o777);
        refused(read(&folder, 6, "CACHE"), ["cuda: others", "(mode 0777)"]);
        set(&folder, 0o700);
        if fs::metadata(&root).unwrap().uid() == 0 {
            chown(&file, Some(65_533), None).unwrap();
            refused(read(&folder, 5, "CACHE"), ["belongs to user 65533", "set CACHE"]);
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_kernel_beside_a_library_is_as_trusted_as_that() {
        let root = env::temp_dir().join(format!("opsmith-kernels-beside-{}", process::id()));
        let (library, folder) = (root.join("lib.so"), root.join("lib.so.kernels"));
        write(&folder, 5, &kernel(), Readers::All).unwrap();
        fs::write(&library, "").unwrap();
        set(&library, 0o755);
        assert_eq!(fs::metadata(path(&folder, 5)).unwrap().mode() & 0o777, 0o644);
        let read = || read_beside(&library, &folder, 5);
        assert_eq!(read().unwrap(), Some(kernel()));
        set(&folder, 0o777);
        refused(read(), ["lib.so.kernels: others", "give it owner and mode of"]);
        // As installers leave both where new files are for a group to write to.
        set(&library, 0o775);
        set(&folder, 0o775);
        assert_eq!(read().unwrap(), Some(kernel()));
        set(&path(&folder, 5), 0o666);
        refused(read(), [".kernel: others", "(mode 0666)"]);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn what_is_damaged_is_not_there() {
        let compiled = kernel();
        let whole = encode(5, &compiled);
        assert_eq!(decode(&whole, 5), Some(compiled));
        assert_eq!(decode(&whole, 6), None);
        for len in 0..whole.len() {
            assert_eq!(decode(&whole[..len], 5), None, "cut at {len}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            assert_eq!(decode(&damaged, 5), None, "damaged at {at}");
        }
    }
}
