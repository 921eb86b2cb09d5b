//! The headers of segments, which the loader maps, and of sections, which linkers leave beside them.

use std::ops::Range;

use opsmith_core::{Result, bail, ensure, memory};

use super::{Reader, field};

pub(super) const EXECUTE: u64 = 1;
pub(super) const WRITE: u64 = 2;
pub(super) const READ: u64 = 4;

const LOAD: u64 = 1;
const DYNAMIC: u64 = 2;
const NOTE: u64 = 4;
const HEADERS: u64 = 6;
const TLS: u64 = 7;
const EH_FRAME: u64 = 0x6474_e550;
const RELRO: u64 = 0x6474_e552;
const PROPERTY: u64 = 0x6474_e553;

/// The length of a segment's header, and of a section's.
const SEGMENT: usize = 56;
const SECTION: usize = 64;

/// As many segments a library has at most: the loader has room for their headers on the stack.
const MOST_SEGMENTS: u64 = 1000;
/// Memory is mapped below this address, whatever the machine.
const HIGHEST: u64 = 1 << 47;
const LARGEST_ALIGNMENT: u64 = 1 << 30;

/// A part of the file that the loader maps or looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    kind: u64,
    flags: u64,
    offset: u64,
    pub(super) address: u64,
    file_size: u64,
    memory_size: u64,
    alignment: u64,
}

/// A part of the file as linkers see it.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) name: Vec<u8>,
    pub(super) kind: u64,
    flags: u64,
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) link: usize,
    pub(super) info: u64,
    alignment: u64,
}

const NOBITS: u64 = 8;

/// What a section's flags say.
const WRITTEN: u64 = 1;
const ALLOCATED: u64 = 2;
const EXECUTED: u64 = 4;
const THREAD_LOCAL: u64 = 0x400;

impl Segment {
    fn read(entry: &[u8]) -> Segment {
        Segment {
            kind: field(entry, 0..4),
            flags: field(entry, 4..8),
            offset: field(entry, 8..16),
            address: field(entry, 16..24),
            file_size: field(entry, 32..40),
            memory_size: field(entry, 40..48),
            alignment: field(entry, 48..56),
        }
    }

    fn end(&self) -> u64 {
        self.address + self.memory_size
    }

    /// Whether the file has what lies at these addresses.
    fn has(&self, address: u64, length: u64) -> bool {
        self.address <= address && address.saturating_add(length) <= self.address + self.file_size
    }
}

impl Section {
    fn read(entry: &[u8]) -> Section {
        Section {
            name: vec![],
            kind: field(entry, 4..8),
            flags: field(entry, 8..16),
            address: field(entry, 16..24),
            offset: field(entry, 24..32),
            size: field(entry, 32..40),
            link: field(entry, 40..44) as usize,
            info: field(entry, 44..48),
            alignment: field(entry, 48..56),
        }
    }

    pub(super) fn is_allocated(&self) -> bool {
        self.flags & ALLOCATED != 0
    }

    pub(super) fn is_written(&self) -> bool {
        self.flags & WRITTEN != 0
    }

    fn is(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }

    pub(super) fn name(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.name)
    }
}

/// The headers of a file.
#[derive(Debug)]
pub(super) struct Headers {
    segments: Vec<Segment>,
    loads: Vec<Segment>,
    pub(super) sections: Vec<Section>,
    /// Those that are loaded from the file, in the order of their addresses.
    in_file: Vec<usize>,
    /// Where the dynamic section lies in memory.
    pub(super) dynamic: Segment,
    /// The block of a thread's own variables.
    tls: Option<Segment>,
}

impl Headers {
    /// Reads and compares them.
    pub(super) fn read(reader: &Reader<'_>, start: &[u8]) -> Result<Headers> {
        let (segments_at, sections_at) = (field(start, 32..40), field(start, 40..48));
        let (segment_size, count) = (field(start, 54..56), field(start, 56..58));
        ensure!(
            segment_size == SEGMENT as u64 && count <= MOST_SEGMENTS,
            InvalidArgument,
            "is damaged: it has {count} program headers of {segment_size} bytes"
        );
        let table = reader.bytes("the program headers", segments_at, count * segment_size)?;
        let segments: Vec<Segment> = table.chunks_exact(SEGMENT).map(Segment::read).collect();
        for segment in &segments {
            reader.check_extent("a segment", segment.offset, segment.file_size)?;
            ensure!(
                segment.address <= HIGHEST && segment.memory_size <= HIGHEST,
                InvalidArgument,
                "is damaged: a segment lies at address {:#x} and has {:#x} bytes",
                segment.address,
                segment.memory_size
            );
        }
        let one = |kind, name: &str| {
            let mut found = segments.iter().filter(|segment| segment.kind == kind);
            match (found.next(), found.next()) {
                (_, Some(_)) => bail!(InvalidArgument, "is damaged: it has two {name}"),
                (found, None) => Ok(found.copied()),
            }
        };
        let Some(dynamic) = one(DYNAMIC, "dynamic sections")? else {
            bail!(InvalidArgument, "is damaged: it has no dynamic section")
        };
        let tls = one(TLS, "blocks of thread-local variables")?;
        let loads = segments.iter().filter(|segment| segment.kind == LOAD).copied().collect();
        let sections = read_sections(reader, start, sections_at)?;
        let is_in_file =
            |section: &Section| section.is_allocated() && section.kind != NOBITS && section.size > 0;
        let mut in_file: Vec<usize> =
            (0..sections.len()).filter(|index| is_in_file(&sections[*index])).collect();
        in_file.sort_by_key(|index| sections[*index].address);
        let headers = Headers { segments, loads, sections, in_file, dynamic, tls };
        headers.check_loads()?;
        headers.check_segments(reader, segments_at, table.len() as u64)?;
        headers.check_sections()?;
        headers.check_tls()?;
        Ok(headers)
    }

    /// Where in the file lies what is loaded at these addresses, into memory with all of these flags.
    pub(super) fn place(&self, what: &str, address: u64, length: u64, flags: u64) -> Result<u64> {
        let load =
            self.load_of(address).filter(|load| load.has(address, length) && load.flags & flags == flags);
        let Some(load) = load else {
            bail!(
                InvalidArgument,
                "is truncated or damaged: {what} should lie at address {address:#x}, where it cannot be"
            )
        };
        Ok(load.offset + (address - load.address))
    }

    /// Whether there is memory of the library's at these addresses, with all of these flags.
    pub(super) fn has_memory(&self, address: u64, length: u64, flags: u64) -> bool {
        let end = address.saturating_add(length);
        self.load_of(address).is_some_and(|load| end <= load.end() && load.flags & flags == flags)
    }

    /// The last segment that begins before an address, or there. They are in order, and none overlap.
    fn load_of(&self, address: u64) -> Option<&Segment> {
        self.loads[..self.loads.partition_point(|load| load.address <= address)].last()
    }

    /// How many bytes a thread's own variables take; none where there are none.
    pub(super) fn tls_size(&self) -> Option<u64> {
        self.tls.map(|tls| tls.memory_size)
    }

    /// The sections of a kind that are loaded.
    pub(super) fn of_kind(&self, kind: u64) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(move |section| section.kind == kind && section.is_allocated())
    }

    /// The loaded section that has these addresses.
    pub(super) fn section_of(&self, address: u64, length: u64) -> Option<&Section> {
        let before = self.in_file.partition_point(|index| self.sections[*index].address <= address);
        let section = &self.sections[*self.in_file[..before].last()?];
        (address.saturating_add(length) <= section.end()).then_some(section)
    }

    /// What is mapped: in order, each in pages of its own.
    fn check_loads(&self) -> Result<()> {
        let page = page_size();
        let mut end = 0;
        for load in &self.loads {
            let Segment { address, offset, alignment, .. } = *load;
            ensure!(
                !alignment.is_power_of_two() || alignment >= page,
                InvalidArgument,
                "is linked for pages of {alignment} bytes; this machine has pages of {page}\n  → link it with `-z \
                 max-page-size={page}`"
            );
            let is_aligned = alignment.is_power_of_two()
                && alignment <= LARGEST_ALIGNMENT
                && address.wrapping_sub(offset) % alignment == 0;
            ensure!(
                is_aligned && address / page * page >= end && load.file_size <= load.memory_size,
                InvalidArgument,
                "is damaged: a segment at address {address:#x} cannot be loaded"
            );
            ensure!(
                load.flags & READ != 0,
                InvalidArgument,
                "is damaged: the segment at address {address:#x} cannot be read"
            );
            end = load.end().next_multiple_of(page);
        }
        Ok(())
    }

    /// What else the loader finds by segments: each is where the file says, and is loaded.
    fn check_segments(&self, reader: &Reader<'_>, table: u64, table_size: u64) -> Result<()> {
        for segment in &self.segments {
            let Segment { kind, address, offset, file_size, memory_size, .. } = *segment;
            if !matches!(kind, DYNAMIC | NOTE | HEADERS | TLS | EH_FRAME | RELRO | PROPERTY) {
                continue;
            }
            // What is protected may reach behind what the file has of it.
            let file_size = if kind == RELRO { 0 } else { file_size };
            let is_placed = file_size == 0 || self.place("a segment", address, file_size, READ)? == offset;
            let fits = match kind {
                HEADERS => (offset, file_size) == (table, table_size),
                RELRO => self.is_protected_once_written(segment),
                DYNAMIC => self.has_memory(address, memory_size, segment.flags & WRITE),
                TLS => file_size <= memory_size,
                NOTE | PROPERTY => file_size == memory_size && are_notes(reader, segment)?,
                _ => file_size == memory_size,
            };
            ensure!(
                is_placed && fits,
                InvalidArgument,
                "is damaged: its segments contradict each other at address {address:#x}"
            );
        }
        let unwinding = self.segments.iter().find(|segment| segment.kind == EH_FRAME);
        let section = self.sections.iter().find(|section| section.name == b".eh_frame_hdr");
        ensure!(
            unwinding.map(|segment| (segment.address, segment.file_size))
                == section.map(|section| (section.address, section.size)),
            InvalidArgument,
            "is damaged: `.eh_frame_hdr` is not where it should be"
        );
        Ok(())
    }

    /// Whether a segment that is for reading once the loader has written to it has no variables.
    fn is_protected_once_written(&self, segment: &Segment) -> bool {
        let page = page_size();
        let (from, to) = (segment.address / page * page, segment.end() / page * page);
        let is_in = |load: &Segment| {
            load.address <= segment.address
                && segment.end() <= load.end().next_multiple_of(page)
                && load.flags & WRITE != 0
        };
        let mut variables =
            self.sections.iter().filter(|section| matches!(&section.name[..], b".data" | b".bss"));
        self.loads.iter().any(is_in)
            && variables.all(|section| section.end() <= from || to <= section.address || section.size == 0)
    }

    /// Every section that is loaded lies in a segment that allows what it is for, and no two in one place.
    fn check_sections(&self) -> Result<()> {
        for pair in self.in_file.windows(2) {
            let [one, other] = [&self.sections[pair[0]], &self.sections[pair[1]]];
            ensure!(
                one.end() <= other.address,
                InvalidArgument,
                "is damaged: its sections `{}` and `{}` overlap",
                one.name(),
                other.name()
            );
        }
        for section in self.sections.iter().filter(|section| section.is_allocated() && section.size > 0) {
            let Section { address, offset, size, .. } = *section;
            let wanted = READ
                | if section.is(WRITTEN) { WRITE } else { 0 }
                | if section.is(EXECUTED) { EXECUTE } else { 0 };
            let fits = match (section.kind, section.is(THREAD_LOCAL)) {
                (NOBITS, true) => true,
                // What has no bytes in the file is set to zero, so it is not where the file has some.
                (NOBITS, false) => {
                    let is_in_file = |load: &Segment| address < load.address + load.file_size;
                    let mut loads = self.loads.iter().filter(|load| load.address <= address);
                    self.has_memory(address, size, wanted) && !loads.any(is_in_file)
                }
                // The loader may write to what it protects in the end.
                _ => self.place("a section", address, size, wanted)? == offset,
            };
            ensure!(
                fits,
                InvalidArgument,
                "is damaged: its section `{}` is in no segment that it fits",
                section.name()
            );
        }
        Ok(())
    }

    /// The block of thread-local variables is as large as its sections.
    fn check_tls(&self) -> Result<()> {
        let sections = || self.sections.iter().filter(|section| section.is(THREAD_LOCAL));
        let first = sections().map(|section| section.address).min();
        let last = sections().map(Section::end).max();
        let (Some(first), Some(last)) = (first, last) else {
            ensure!(self.tls.is_none(), InvalidArgument, "is damaged: no section is its thread-local block");
            return Ok(());
        };
        let in_file = sections().filter(|section| section.kind != NOBITS).map(Section::end).max();
        let alignment = sections().map(|section| section.alignment).max().unwrap_or(1).max(1);
        let fits = |tls: Segment| {
            tls.address == first
                && tls.file_size == in_file.map_or(0, |end| end - first)
                && (last - first..=(last - first).next_multiple_of(alignment)).contains(&tls.memory_size)
                && tls.alignment == alignment
        };
        ensure!(
            alignment.is_power_of_two() && alignment <= page_size() && self.tls.is_some_and(fits),
            InvalidArgument,
            "is damaged: its block of thread-local variables is not that of its sections"
        );
        Ok(())
    }
}

/// The headers of sections, with their names.
fn read_sections(reader: &Reader<'_>, start: &[u8], at: u64) -> Result<Vec<Section>> {
    let (size, count) = (field(start, 58..60), field(start, 60..62));
    ensure!(
        at != 0 || count != 0,
        InvalidArgument,
        "has no section headers, by which a library is checked\n  → do not strip these of it (`--strip-section-headers`)"
    );
    ensure!(
        at != 0 && size == SECTION as u64 && count > 0,
        InvalidArgument,
        "is damaged: it has {count} section headers of {size} bytes"
    );
    let table = reader.bytes("the section headers", at, count * size)?;
    let mut sections =
        memory::collected(table.chunks_exact(SECTION).map(Section::read), "the section headers")?;
    for section in sections.iter().filter(|section| section.kind != NOBITS) {
        reader.check_extent("a section", section.offset, section.size)?;
    }
    let Some(names) = sections.get(field(start, 62..64) as usize) else {
        bail!(InvalidArgument, "is damaged: the names of its sections are in none");
    };
    let names = reader.bytes("the names of sections", names.offset, names.size)?;
    for (section, entry) in sections.iter_mut().zip(table.chunks_exact(SECTION)) {
        let name = reader.name(&names, field(entry, 0..4))?.unwrap_or_default();
        section.name = memory::copied(name, "the names of sections")?;
    }
    Ok(sections)
}

/// Whether each note of a segment ends where it should. The loader reads those that are aligned to eight bytes.
fn are_notes(reader: &Reader<'_>, segment: &Segment) -> Result<bool> {
    if segment.alignment != 8 {
        return Ok(true);
    }
    let notes = reader.bytes("notes", segment.offset, segment.file_size)?;
    let mut rest = &notes[..];
    while rest.len() >= 12 {
        let (name, description) = (field(rest, 0..4), field(rest, 4..8));
        let length = (12 + name).next_multiple_of(8) + description.next_multiple_of(8);
        match rest.get(length as usize..) {
            Some(following) => rest = following,
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// Whether two ranges have a place in common.
pub(super) fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

fn page_size() -> u64 {
    // SAFETY: the call touches no memory.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
