//! The dynamic section: where the loader finds everything else.

use std::collections::HashSet;

use opsmith_core::{Result, bail, ensure, memory};

use super::headers::{EXECUTE, Headers, READ, Section, WRITE};
use super::{Reader, field};

pub(super) const NEEDED: u64 = 1;
const PLTRELSZ: u64 = 2;
const PLTGOT: u64 = 3;
const HASH: u64 = 4;
const STRTAB: u64 = 5;
const SYMTAB: u64 = 6;
const RELA: u64 = 7;
const RELASZ: u64 = 8;
const RELAENT: u64 = 9;
const STRSZ: u64 = 10;
const SYMENT: u64 = 11;
const INIT: u64 = 12;
const FINI: u64 = 13;
const SONAME: u64 = 14;
const RPATH: u64 = 15;
const REL: u64 = 17;
const PLTREL: u64 = 20;
const JMPREL: u64 = 23;
pub(super) const INIT_ARRAY: u64 = 25;
pub(super) const FINI_ARRAY: u64 = 26;
pub(super) const INIT_ARRAYSZ: u64 = 27;
pub(super) const FINI_ARRAYSZ: u64 = 28;
const RUNPATH: u64 = 29;
const RELRSZ: u64 = 35;
const RELR: u64 = 36;
const RELRENT: u64 = 37;
const GNU_HASH: u64 = 0x6fff_fef5;
const VERSYM: u64 = 0x6fff_fff0;
pub(super) const RELACOUNT: u64 = 0x6fff_fff9;
const VERDEF: u64 = 0x6fff_fffc;
const VERDEFNUM: u64 = 0x6fff_fffd;
const VERNEED: u64 = 0x6fff_fffe;
const VERNEEDNUM: u64 = 0x6fff_ffff;
const AUXILIARY: u64 = 0x7fff_fffd;
const FILTER: u64 = 0x7fff_ffff;

/// As many bytes a dynamic section has at most: libraries have some tens of entries.
const MOST: u64 = 1 << 20;
/// Compilers align functions so.
const FUNCTION_ALIGNMENT: u64 = 16;

/// Kinds of sections.
pub(super) const SECTION_RELA: u64 = 4;
const SECTION_HASH: u64 = 5;
const SECTION_DYNAMIC: u64 = 6;
const SECTION_DYNSYM: u64 = 11;
const SECTION_INIT_ARRAY: u64 = 14;
const SECTION_FINI_ARRAY: u64 = 15;
const SECTION_RELR: u64 = 19;
const SECTION_GNU_HASH: u64 = 0x6fff_fff6;
const SECTION_VERDEF: u64 = 0x6fff_fffd;
const SECTION_VERNEED: u64 = 0x6fff_fffe;
const SECTION_VERSYM: u64 = 0x6fff_ffff;

/// Tables that the loader finds by an address, and linkers as the one section of a kind; and what says their size, in bytes or,
/// of versions, in entries.
const TABLES: [(u64, u64, Option<u64>); 9] = [
    (SECTION_DYNSYM, SYMTAB, None),
    (SECTION_HASH, HASH, None),
    (SECTION_GNU_HASH, GNU_HASH, None),
    (SECTION_INIT_ARRAY, INIT_ARRAY, Some(INIT_ARRAYSZ)),
    (SECTION_FINI_ARRAY, FINI_ARRAY, Some(FINI_ARRAYSZ)),
    (SECTION_RELR, RELR, Some(RELRSZ)),
    (SECTION_VERSYM, VERSYM, None),
    (SECTION_VERDEF, VERDEF, Some(VERDEFNUM)),
    (SECTION_VERNEED, VERNEED, Some(VERNEEDNUM)),
];

/// What needs which other entry, and what that has to be.
const COMPANIONS: [(u64, u64, Option<u64>); 8] = [
    (STRTAB, STRSZ, None),
    (SYMTAB, SYMENT, Some(24)),
    (SYMTAB, STRTAB, None),
    (RELA, RELASZ, None),
    (RELA, RELAENT, Some(24)),
    (JMPREL, PLTRELSZ, None),
    (JMPREL, PLTREL, Some(RELA)),
    (RELR, RELRENT, Some(8)),
];

/// The dynamic section's entries, and the names that it speaks of.
pub(super) struct Dynamic<'a> {
    reader: &'a Reader<'a>,
    entries: Vec<(u64, u64)>,
    names: Vec<u8>,
}

impl<'a> Dynamic<'a> {
    /// Reads it, and compares it with the sections.
    pub(super) fn read(reader: &'a Reader<'a>, headers: &Headers) -> Result<Dynamic<'a>> {
        let section = only(headers, SECTION_DYNAMIC)?;
        let Some(section) = section.filter(|section| section.address == headers.dynamic.address) else {
            bail!(InvalidArgument, "is damaged: its dynamic section is not where it should be");
        };
        let size = section.size;
        ensure!(size <= MOST, InvalidArgument, "is damaged: its dynamic section has {size} bytes");
        let offset = headers.place("the dynamic section", section.address, section.size, READ)?;
        let table = reader.bytes("the dynamic section", offset, section.size)?;
        let entries = table.chunks_exact(16).map(|entry| (field(entry, 0..8), field(entry, 8..16)));
        let entries = memory::collected(entries.take_while(|(tag, _)| *tag != 0), "the dynamic section")?;
        ensure!(
            entries.len() < table.len() / 16,
            InvalidArgument,
            "is damaged: its dynamic section has no end"
        );
        let mut dynamic = Dynamic { reader, entries, names: vec![] };
        dynamic.check_entries()?;
        dynamic.check_tables(headers)?;
        dynamic.names = dynamic.read_names(headers)?;
        for &(tag, value) in &dynamic.entries {
            if matches!(tag, NEEDED | SONAME | RPATH | RUNPATH | AUXILIARY | FILTER) {
                dynamic.name(value)?;
            }
        }
        Ok(dynamic)
    }

    /// What an entry says, if it is there.
    pub(super) fn get(&self, tag: u64) -> Option<u64> {
        self.entries.iter().find(|(other, _)| *other == tag).map(|(_, value)| *value)
    }

    /// What all entries of a kind say.
    pub(super) fn all(&self, tag: u64) -> impl Iterator<Item = u64> {
        self.entries.iter().filter(move |(other, _)| *other == tag).map(|(_, value)| *value)
    }

    /// The name at a place among the names.
    pub(super) fn name(&self, at: u64) -> Result<&[u8]> {
        let Some(name) = self.reader.name(&self.names, at)? else {
            bail!(InvalidArgument, "is damaged: it has a name at byte {at} of {}", self.names.len());
        };
        Ok(name)
    }

    /// The tables of relocations, where they lie and their size: of all kinds, and of the addresses of functions.
    pub(super) fn relocations(&self) -> [Option<(u64, u64)>; 2] {
        [(RELA, RELASZ), (JMPREL, PLTRELSZ)].map(|(at, size)| Some((self.get(at)?, self.get(size)?)))
    }

    /// Where the addresses of functions lie.
    pub(super) fn functions(&self) -> Option<u64> {
        // The first three words are the loader's.
        self.get(PLTGOT)?.checked_add(24)
    }

    /// The compressed table of relocations.
    pub(super) fn relative(&self) -> Option<(u64, u64)> {
        Some((self.get(RELR)?, self.get(RELRSZ)?))
    }

    fn check_entries(&self) -> Result<()> {
        let mut seen = HashSet::new();
        for (tag, _) in &self.entries {
            ensure!(
                matches!(*tag, NEEDED | AUXILIARY | FILTER) || seen.insert(*tag),
                InvalidArgument,
                "is damaged: its dynamic section has the entry {tag:#x} twice"
            );
        }
        ensure!(
            self.get(REL).is_none() && self.get(SYMTAB).is_some(),
            InvalidArgument,
            "is damaged: its dynamic section lacks an entry, or has one of another machine"
        );
        for (tag, other, wanted) in COMPANIONS {
            let found = self.get(other);
            let is_there = found.is_some() || self.get(tag).is_none();
            ensure!(
                is_there && (found.is_none() || wanted.is_none() || found == wanted),
                InvalidArgument,
                "is damaged: the entries {tag:#x} and {other:#x} of its dynamic section contradict each other"
            );
        }
        Ok(())
    }

    /// Every table is the section that it should be.
    fn check_tables(&self, headers: &Headers) -> Result<()> {
        for (kind, at, size) in TABLES {
            let section = only(headers, kind)?;
            let is_same = section.map(|section| section.address) == self.get(at);
            let length = section.map(|section| match kind {
                SECTION_VERDEF | SECTION_VERNEED => section.info,
                _ => section.size,
            });
            ensure!(
                is_same && size.is_none_or(|size| self.get(size) == length),
                InvalidArgument,
                "is damaged: the entry {at:#x} of its dynamic section and its sections contradict each other"
            );
        }
        let tables: Vec<_> = self
            .relocations()
            .into_iter()
            .flatten()
            .map(|(at, size)| (at, at.saturating_add(size)))
            .collect();
        let sections = headers.of_kind(SECTION_RELA).filter(|section| section.size > 0);
        let sections: Vec<_> = sections.map(|section| (section.address, section.end())).collect();
        // A table may be of several sections.
        let is_listed = |part: &(u64, u64)| tables.iter().any(|table| table.0 <= part.0 && part.1 <= table.1);
        let is_whole = |table: &(u64, u64)| {
            table.0 == table.1
                || (sections.iter().any(|part| part.0 == table.0)
                    && sections.iter().any(|part| part.1 == table.1))
        };
        ensure!(
            sections.iter().all(is_listed) && tables.iter().all(is_whole),
            InvalidArgument,
            "is damaged: the relocations of its dynamic section are not those of its sections"
        );
        for (tag, name) in [(INIT, b".init"), (FINI, b".fini")] {
            let section = headers.sections.iter().find(|section| section.name == name);
            if let Some(at) = self.get(tag) {
                headers.place("a function", at, 1, READ | EXECUTE)?;
                // The linker may have been told of another function.
                let is_other = at % FUNCTION_ALIGNMENT == 0
                    && headers.section_of(at, 1).is_some_and(|section| section.name == b".text");
                ensure!(
                    is_other || section.is_none_or(|section| section.address == at),
                    InvalidArgument,
                    "is damaged: `{}` is not where it should be",
                    String::from_utf8_lossy(name)
                );
            }
        }
        if let Some(at) = self.get(PLTGOT) {
            headers.place("the table of functions", at, 24, READ | WRITE)?;
        }
        Ok(())
    }

    fn read_names(&self, headers: &Headers) -> Result<Vec<u8>> {
        let (at, size) = (self.get(STRTAB).unwrap_or_default(), self.get(STRSZ).unwrap_or_default());
        let symbols = only(headers, SECTION_DYNSYM)?;
        let section = symbols.and_then(|symbols| headers.sections.get(symbols.link));
        ensure!(
            section.is_some_and(|section| (section.address, section.size) == (at, size)),
            InvalidArgument,
            "is damaged: its names are not where they should be"
        );
        let offset = headers.place("the names", at, size, READ)?;
        let names = self.reader.bytes("the names", offset, size)?;
        let is_text = names.first() == Some(&0) && names.last() == Some(&0);
        ensure!(is_text, InvalidArgument, "is damaged: its names do not begin and end as they should");
        Ok(names)
    }
}

/// A table and what its section says of it.
pub(super) struct Table {
    pub(super) bytes: Vec<u8>,
    /// The section's own number, of a meaning that depends on its kind.
    pub(super) info: u64,
}

/// The table of symbols.
pub(super) fn symbols(reader: &Reader<'_>, headers: &Headers) -> Result<Option<Table>> {
    table(reader, headers, SECTION_DYNSYM)
}

/// The hash tables: GNU's, and the older one.
pub(super) fn hashes(reader: &Reader<'_>, headers: &Headers) -> Result<[Option<Table>; 2]> {
    Ok([table(reader, headers, SECTION_GNU_HASH)?, table(reader, headers, SECTION_HASH)?])
}

/// The tables of versions: of each symbol, those that are needed, those that are defined.
pub(super) fn versions(reader: &Reader<'_>, headers: &Headers) -> Result<[Option<Table>; 3]> {
    let [symbols, needed, defined] =
        [SECTION_VERSYM, SECTION_VERNEED, SECTION_VERDEF].map(|kind| table(reader, headers, kind));
    Ok([symbols?, needed?, defined?])
}

fn table(reader: &Reader<'_>, headers: &Headers, kind: u64) -> Result<Option<Table>> {
    let Some(section) = only(headers, kind)? else { return Ok(None) };
    let bytes = reader.bytes("a table", section.offset, section.size)?;
    Ok(Some(Table { bytes, info: section.info }))
}

/// The loaded section of a kind.
fn only(headers: &Headers, kind: u64) -> Result<Option<&Section>> {
    let mut found = headers.of_kind(kind);
    let first = found.next();
    ensure!(found.next().is_none(), InvalidArgument, "is damaged: it has two sections of the kind {kind:#x}");
    Ok(first)
}
