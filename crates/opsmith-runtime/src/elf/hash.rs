//! The hash tables by which the loader finds symbols. It divides by their sizes and follows their chains to the end.

use opsmith_core::{Result, memory};

use super::field;
use super::symbol::Symbol;

/// The hash of a name in GNU's table.
fn gnu_hash(name: &[u8]) -> u64 {
    u64::from(name.iter().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte))))
}

/// The hash of a name in the older table, and of a version.
pub(super) fn hash(name: &[u8]) -> u64 {
    name.iter().fold(0, |hash, byte| {
        let sum = (hash << 4) + u64::from(*byte);
        (sum ^ (sum >> 24 & 0xf0)) & 0x0fff_ffff
    })
}

fn words(bytes: &[u8]) -> Result<Vec<u64>> {
    memory::collected(bytes.chunks_exact(4).map(|word| field(word, 0..4)), "a hash table")
}

/// Whether GNU's table has all symbols that others may find, each where it is looked for.
pub(super) fn is_gnu_table(bytes: &[u8], symbols: &[Symbol<'_>]) -> Result<bool> {
    Ok(fits_gnu_table(&words(bytes)?, symbols))
}

fn fits_gnu_table(words: &[u64], symbols: &[Symbol<'_>]) -> bool {
    let [buckets, first, filter, shift, rest @ ..] = words else { return false };
    let (buckets, first, filter) = (*buckets as usize, *first as usize, *filter as usize);
    let Some(found) = symbols.get(first..) else { return false };
    let Some((table, chains)) = rest.get(2 * filter..).and_then(|rest| rest.split_at_checked(buckets)) else {
        return false;
    };
    // That of a library where nothing can be found says nothing of where its symbols begin.
    if buckets != 0 && table.iter().all(|start| *start == 0) && !symbols.iter().any(Symbol::is_defined) {
        return true;
    }
    if buckets == 0 || !filter.is_power_of_two() || *shift >= 32 || chains.len() < found.len() {
        return false;
    }
    // In each bucket's chain the last one is odd; they follow each other.
    let mut at = 0;
    for (bucket, start) in table.iter().enumerate().filter(|(_, start)| **start != 0) {
        if *start != (first + at) as u64 {
            return false;
        }
        loop {
            let (Some(symbol), Some(chain)) = (found.get(at), chains.get(at)) else { return false };
            let hash = gnu_hash(symbol.name);
            if !symbol.is_defined() || hash | 1 != chain | 1 || hash % buckets as u64 != bucket as u64 {
                return false;
            }
            at += 1;
            if chain & 1 == 1 {
                break;
            }
        }
    }
    at == found.len()
}

/// Whether the older table has every symbol once at most, where it is looked for.
pub(super) fn is_table(bytes: &[u8], symbols: &[Symbol<'_>]) -> Result<bool> {
    let mut seen = memory::filled(false, symbols.len(), "the symbols")?;
    Ok(fits_table(&words(bytes)?, symbols, &mut seen))
}

fn fits_table(words: &[u64], symbols: &[Symbol<'_>], seen: &mut [bool]) -> bool {
    let [buckets, count, rest @ ..] = words else { return false };
    let (buckets, count) = (*buckets as usize, *count as usize);
    let Some((table, chains)) = rest.split_at_checked(buckets) else { return false };
    if buckets == 0 || count != symbols.len() || chains.len() < count {
        return false;
    }
    for (bucket, start) in table.iter().enumerate() {
        let mut at = *start as usize;
        while at != 0 {
            let Some(symbol) = symbols.get(at) else { return false };
            if std::mem::replace(&mut seen[at], true) || hash(symbol.name) % buckets as u64 != bucket as u64 {
                return false;
            }
            at = chains[at] as usize;
        }
    }
    true
}
