//! The versions of symbols: which one each is of, which ones other libraries have to have, which ones this one has.

use std::collections::HashSet;

use opsmith_core::{Result, ensure, memory};

use super::dynamic::{self, Dynamic, NEEDED, Table};
use super::headers::Headers;
use super::symbol::Symbol;
use super::{Reader, field, hash};

/// An entry's bit that says that a symbol is found by its version only.
const HIDDEN: u64 = 0x8000;

/// Checks them, and gives each symbol's; none where the library has no versions.
pub(super) fn check(
    reader: &Reader<'_>,
    headers: &Headers,
    dynamic: &Dynamic<'_>,
    symbols: &[Symbol<'_>],
) -> Result<Vec<u64>> {
    let [own, needed, defined] = dynamic::versions(reader, headers)?;
    let (mut of_others, mut of_this) = (HashSet::new(), HashSet::new());
    let opened: HashSet<&[u8]> = dynamic.all(NEEDED).map(|at| dynamic.name(at)).collect::<Result<_>>()?;
    let is_whole = needed
        .is_none_or(|table| check_needed(&table, dynamic, &opened, &mut of_others).is_some())
        && defined.is_none_or(|table| check_defined(&table, dynamic, &mut of_this).is_some());
    ensure!(is_whole, InvalidArgument, "is damaged: its tables of versions are not whole");
    let Some(own) = own else { return Ok(vec![]) };
    let versions = own.bytes.chunks_exact(2).map(|entry| field(entry, 0..2) & !HIDDEN);
    let versions = memory::collected(versions, "the versions of symbols")?;
    // The loader has room for versions where there are any, and for no number that none has.
    let is_there = |(symbol, version): (&Symbol<'_>, &u64)| {
        *version <= 1 || if symbol.is_defined() { &of_this } else { &of_others }.contains(version)
    };
    ensure!(
        versions.len() == symbols.len()
            && !(of_others.is_empty() && of_this.is_empty())
            && symbols.iter().zip(&versions).all(is_there),
        InvalidArgument,
        "is damaged: a symbol has a version that its tables of versions do not list"
    );
    Ok(versions)
}

/// Follows a table of versions that others have, as the loader does; nothing where it leads out of it.
fn check_needed(
    table: &Table,
    dynamic: &Dynamic<'_>,
    opened: &HashSet<&[u8]>,
    found: &mut HashSet<u64>,
) -> Option<()> {
    let mut at = 0;
    for number in 1..=table.info {
        let library = part(table, at, 16)?;
        let name = dynamic.name(field(library, 4..8)).ok()?;
        let mut version_at = at.checked_add(field(library, 8..12))?;
        let count = field(library, 2..4);
        if field(library, 0..2) != 1 || !opened.contains(name) || count == 0 {
            return None;
        }
        for version_number in 1..=count {
            let version = part(table, version_at, 16)?;
            let name = dynamic.name(field(version, 8..12)).ok()?;
            let index = field(version, 6..8) & !HIDDEN;
            if hash::hash(name) != field(version, 0..4) || index < 2 || !found.insert(index) {
                return None;
            }
            version_at = following(version_at, field(version, 12..16), version_number == count)?;
        }
        at = following(at, field(library, 12..16), number == table.info)?;
    }
    Some(())
}

/// Follows a table of versions that this library has; nothing where it leads out of it.
fn check_defined(table: &Table, dynamic: &Dynamic<'_>, found: &mut HashSet<u64>) -> Option<()> {
    let mut at = 0;
    for number in 1..=table.info {
        let version = part(table, at, 20)?;
        let name = part(table, at.checked_add(field(version, 12..16))?, 8)?;
        let is_named = hash::hash(dynamic.name(field(name, 0..4)).ok()?) == field(version, 8..12);
        let index = field(version, 4..6) & !HIDDEN;
        if field(version, 0..2) != 1 || !is_named || !found.insert(index) {
            return None;
        }
        at = following(at, field(version, 16..20), number == table.info)?;
    }
    Some(())
}

/// These bytes of a table.
fn part(table: &Table, at: u64, length: usize) -> Option<&[u8]> {
    table.bytes.get(usize::try_from(at).ok()?..)?.get(..length)
}

/// Where the next entry is. The last one says that there is none, and no other does.
fn following(at: u64, step: u64, is_last: bool) -> Option<u64> {
    ((step == 0) == is_last).then(|| at.checked_add(step)).flatten()
}
