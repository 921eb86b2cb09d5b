//! Compiled kernels on disk. What is there is whole: it is written elsewhere and renamed, and has a checksum.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, io, process};

use crate::digest::Digest;
use crate::source::Compiled;

/// The environment variable that says where the folder is; just-in-time builds have theirs in the same place.
pub const VARIABLE: &str = "OPSMITH_CACHE_DIR";

/// What a file begins with.
const MAGIC: &[u8; 16] = b"opsmith kernel 1";

/// The folder of compiled kernels: `cuda` in `$OPSMITH_CACHE_DIR`, else in `$XDG_CACHE_HOME/opsmith`, else in
/// `~/.cache/opsmith`. None on a machine that says nothing of these.
pub fn folder() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let own = set(VARIABLE)
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("opsmith")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/opsmith")));
    Some(own?.join("cuda"))
}

/// The kernel of this key, if it is there and whole.
pub(crate) fn read(folder: &Path, key: u128) -> Option<Compiled> {
    decode(&fs::read(path(folder, key)).ok()?, key)
}

/// Keeps a kernel. It appears at once or not at all.
pub(crate) fn write(folder: &Path, key: u128, compiled: &Compiled) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    fs::create_dir_all(folder)?;
    let own = format!("{}-{}.part", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let part = folder.join(own);
    let written = fs::File::create(&part)
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
    use super::*;

    #[test]
    fn what_is_damaged_is_not_there() {
        let compiled = Compiled { symbol: "_Z7doubledPf".to_owned(), image: vec![7; 100] };
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
