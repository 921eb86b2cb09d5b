//! The symbols that the loader looks for and lets others find.

use std::collections::HashSet;

use opsmith_core::{Error, Result, bail, ensure, memory};

use super::dynamic::{self, Dynamic};
use super::headers::{EXECUTE, Headers, READ};
use super::symbol::{Symbol, THREAD_LOCAL};
use super::{Reader, field, hash, versions};

/// The length of an entry.
const ENTRY: usize = 24;

const LOCAL: u64 = 0;
const WEAK: u64 = 2;
const UNIQUE: u64 = 10;

const OBJECT: u64 = 1;
const FUNCTION: u64 = 2;
const SECTION: u64 = 3;
/// A function that chooses a function.
const CHOOSER: u64 = 10;

/// A section's number that stands for none.
const ABSOLUTE: u64 = 0xfff1;

/// What is visible by default, and what is but cannot be replaced.
const VISIBLE: [u64; 2] = [0, 3];

/// The symbols of a library.
pub(super) struct Symbols<'a> {
    all: Vec<Symbol<'a>>,
}

impl<'a> Symbols<'a> {
    /// Reads them, with their hash tables and versions.
    pub(super) fn read(
        reader: &Reader<'_>,
        headers: &Headers,
        dynamic: &'a Dynamic<'_>,
    ) -> Result<Symbols<'a>> {
        let Some(table) = dynamic::symbols(reader, headers)? else {
            bail!(InvalidArgument, "is damaged: it has no symbols");
        };
        reader.charge((table.bytes.len() / ENTRY * size_of::<Symbol<'_>>()) as u64)?;
        let symbols = table.bytes.chunks_exact(ENTRY).map(|entry| {
            let info = field(entry, 4..5);
            Ok(Symbol {
                name: dynamic.name(field(entry, 0..4))?,
                kind: info & 15,
                binding: info >> 4,
                visibility: field(entry, 5..6) & 3,
                section: field(entry, 6..8),
                value: field(entry, 8..16),
                size: field(entry, 16..24),
            })
        });
        let all = memory::try_collected(symbols, "the symbols")?;
        for (index, symbol) in all.iter().enumerate() {
            let is_local = symbol.binding == LOCAL;
            let fits = is_local == ((index as u64) < table.info)
                && (symbol.binding <= WEAK || symbol.binding == UNIQUE)
                && (is_local || VISIBLE.contains(&symbol.visibility));
            let fits =
                fits && if symbol.is_defined() { is_placed(headers, symbol) } else { symbol.visibility == 0 };
            ensure!(
                fits,
                InvalidArgument,
                "is damaged: its symbol `{}` cannot be",
                String::from_utf8_lossy(symbol.name)
            );
        }
        let [gnu, older] = dynamic::hashes(reader, headers)?;
        ensure!(gnu.is_some() || older.is_some(), InvalidArgument, "is damaged: its symbols cannot be found");
        let is_gnu = gnu.map_or(Ok(true), |table| hash::is_gnu_table(&table.bytes, &all))?;
        let is_older = older.map_or(Ok(true), |table| hash::is_table(&table.bytes, &all))?;
        ensure!(
            is_gnu && is_older,
            InvalidArgument,
            "is damaged: its symbol table and its hash table do not match"
        );
        let versions = versions::check(reader, headers, dynamic, &all)?;
        let mut seen = HashSet::new();
        if seen.try_reserve(all.len()).is_err() {
            return Err(Error::resource_exhausted("there is no memory for the symbols"));
        }
        for (index, symbol) in all.iter().enumerate().filter(|(_, symbol)| symbol.binding != LOCAL) {
            ensure!(
                seen.insert((symbol.name, versions.get(index))),
                InvalidArgument,
                "is damaged: it has the symbol `{}` twice",
                String::from_utf8_lossy(symbol.name)
            );
        }
        Ok(Symbols { all })
    }

    /// The symbol of a number.
    pub(super) fn get(&self, index: u64) -> Option<&Symbol<'a>> {
        self.all.get(usize::try_from(index).ok()?)
    }

    /// What the library exports by this name.
    pub(super) fn exported(&self, name: &str) -> Option<&Symbol<'a>> {
        let is_it = |symbol: &&Symbol<'_>| {
            symbol.is_defined() && symbol.kind == OBJECT && symbol.name == name.as_bytes()
        };
        self.all.iter().find(is_it)
    }
}

/// Whether a symbol names something that is in the section that it says.
fn is_placed(headers: &Headers, symbol: &Symbol<'_>) -> bool {
    let Symbol { kind, section, value, size, .. } = *symbol;
    if section == ABSOLUTE {
        return kind <= OBJECT;
    }
    let Some(section) = headers.sections.get(section as usize) else { return false };
    let end = value.saturating_add(size);
    match kind {
        // A place, such as the end of what is loaded.
        0 => headers.has_memory(value, 0, 0),
        THREAD_LOCAL => headers.tls_size().is_some_and(|tls| end <= tls),
        // What is only for compilers is not loaded, and found by none.
        OBJECT..=SECTION if !section.is_allocated() => true,
        OBJECT..=SECTION | CHOOSER => {
            let wanted = if matches!(kind, FUNCTION | CHOOSER) { READ | EXECUTE } else { READ };
            section.address <= value && end <= section.end() && headers.has_memory(value, size, wanted)
        }
        _ => false,
    }
}
