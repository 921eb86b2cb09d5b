//! Relocations: what the loader writes into the library, and where.

use std::ops::Range;

use opsmith_core::{Result, bail, ensure, memory};

use super::dynamic::{Dynamic, RELACOUNT};
use super::headers::{EXECUTE, Headers, READ, WRITE, overlap};
use super::symbols::Symbols;
use super::{AARCH64, MACHINE, Reader, field};

/// The length of an entry.
const ENTRY: usize = 24;
/// What is read and made here, in errors.
const WHAT: &str = "the relocations";

/// What a relocation writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nothing,
    /// An address of the library's.
    Relative,
    /// What a function of the library's says.
    Chosen,
    /// A symbol's address, and a number more.
    Absolute,
    /// A symbol's address, in the table of addresses.
    Address,
    /// Where a thread-local variable is found.
    ThreadLocal,
    /// The same, in two words.
    Descriptor,
}

impl Kind {
    fn of(number: u64) -> Option<Kind> {
        use Kind::{Absolute, Address, Chosen, Descriptor, Nothing, Relative, ThreadLocal};
        // In the order of the ABI of either machine.
        const X86_64: [(u64, Kind); 10] = [
            (0, Nothing),
            (1, Absolute),
            (6, Address),
            (7, Address),
            (8, Relative),
            (16, ThreadLocal),
            (17, ThreadLocal),
            (18, ThreadLocal),
            (36, Descriptor),
            (37, Chosen),
        ];
        const AARCH64_KINDS: [(u64, Kind); 10] = [
            (0, Nothing),
            (257, Absolute),
            (1025, Address),
            (1026, Address),
            (1027, Relative),
            (1028, ThreadLocal),
            (1029, ThreadLocal),
            (1030, ThreadLocal),
            (1031, Descriptor),
            (1032, Chosen),
        ];
        let kinds = if MACHINE == AARCH64 { AARCH64_KINDS } else { X86_64 };
        kinds.into_iter().find(|(other, _)| *other == number).map(|(_, kind)| kind)
    }
}

/// What is written, and where to: an address of the library's where that is known.
pub(super) struct Written {
    pub(super) place: Range<u64>,
    pub(super) address: Option<u64>,
}

/// Checks all relocations, and gives what they write, in the order of places.
pub(super) fn check(
    reader: &Reader<'_>,
    headers: &Headers,
    dynamic: &Dynamic<'_>,
    symbols: &Symbols<'_>,
) -> Result<Vec<Written>> {
    let [all, functions] = dynamic.relocations();
    let (all, functions) = (read(reader, headers, all)?, read(reader, headers, functions)?);
    let relocations = || all.iter().chain(&functions);
    // The loader takes it for granted that the first ones are of one kind.
    let plain = usize::try_from(dynamic.get(RELACOUNT).unwrap_or(0)).unwrap_or(usize::MAX);
    ensure!(
        all.iter().take(plain).all(|relocation| relocation.kind == Kind::Relative),
        InvalidArgument,
        "is damaged: its first relocations are of another kind than its dynamic section says"
    );
    check_functions(dynamic, &functions)?;
    check_symbols(relocations())?;
    let checked = relocations().filter_map(|relocation| relocation.check(headers, symbols).transpose());
    let mut written = memory::try_collected(checked, WHAT)?;
    if let Some((at, size)) = dynamic.relative() {
        let offset = headers.place(WHAT, at, size, READ)?;
        let table = reader.bytes(WHAT, offset, size)?;
        let mut words = Words { reader, window: vec![], from: 0 };
        for place in relative_places(&table) {
            reader.charge(size_of::<Written>() as u64)?;
            let addend = words.at(headers.place("what is relocated", place, 8, READ)?)?;
            let relocation = Relocation { place, kind: Kind::Relative, number: 0, symbol: 0, addend };
            memory::reserve(&mut written, 1, WHAT)?;
            written.extend(relocation.check(headers, symbols)?);
        }
    }
    written.sort_unstable_by_key(|written| written.place.start);
    for pair in written.windows(2) {
        ensure!(
            !overlap(&pair[0].place, &pair[1].place),
            InvalidArgument,
            "is damaged: two relocations write to address {:#x}",
            pair[1].place.start
        );
    }
    Ok(written)
}

/// The relocations of a table.
fn read(reader: &Reader<'_>, headers: &Headers, table: Option<(u64, u64)>) -> Result<Vec<Relocation>> {
    let Some((at, size)) = table else { return Ok(vec![]) };
    ensure!(size % ENTRY as u64 == 0, InvalidArgument, "is damaged: its relocations have {size} bytes");
    let offset = headers.place(WHAT, at, size, READ)?;
    let table = reader.bytes(WHAT, offset, size)?;
    reader.charge(size / ENTRY as u64 * (size_of::<Relocation>() + size_of::<Written>()) as u64)?;
    memory::try_collected(table.chunks_exact(ENTRY).map(Relocation::read), WHAT)
}

/// The addresses of functions lie side by side, and none is missing: code calls through each.
fn check_functions(dynamic: &Dynamic<'_>, functions: &[Relocation]) -> Result<()> {
    let of_functions = functions.iter().filter(|relocation| relocation.kind != Kind::Descriptor);
    let mut places = memory::collected(of_functions.map(|relocation| relocation.place), WHAT)?;
    places.sort_unstable();
    let expected = (dynamic.functions().unwrap_or_default()..).step_by(8);
    ensure!(
        places.iter().copied().eq(expected.take(places.len()))
            && functions.iter().all(|relocation| relocation.kind != Kind::Nothing),
        InvalidArgument,
        "is damaged: the relocations of its functions do not follow each other"
    );
    Ok(())
}

/// No symbol is asked for twice in one way.
fn check_symbols<'a>(all: impl Iterator<Item = &'a Relocation>) -> Result<()> {
    let addresses = all.filter(|relocation| relocation.kind == Kind::Address);
    let mut asked = memory::collected(addresses.map(|one| (one.symbol, one.number)), WHAT)?;
    asked.sort_unstable();
    ensure!(
        asked.windows(2).all(|pair| pair[0] != pair[1]),
        InvalidArgument,
        "is damaged: its relocations ask for one symbol instead of another"
    );
    Ok(())
}

/// The places of a compressed table: an even word is one, an odd word has a bit for each of the 63 words behind the last.
fn relative_places(table: &[u8]) -> impl Iterator<Item = u64> {
    let mut next = 0_u64;
    table.chunks_exact(8).map(|word| field(word, 0..8)).flat_map(move |word| {
        // The word's own place, or those that its bits mark.
        let (first, bits) = if word & 1 == 0 { (word, 1) } else { (next, word >> 1) };
        next = first.wrapping_add(if word & 1 == 0 { 8 } else { 8 * 63 });
        (0..63).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| first.wrapping_add(8 * bit))
    })
}

/// Words of the file that are asked for one behind the other.
struct Words<'a> {
    reader: &'a Reader<'a>,
    window: Vec<u8>,
    /// Where the window begins.
    from: u64,
}

impl Words<'_> {
    /// As many bytes are read at once.
    const WINDOW: u64 = 4096;

    fn at(&mut self, offset: u64) -> Result<u64> {
        let mut at = offset.wrapping_sub(self.from);
        if at.saturating_add(8) > self.window.len() as u64 {
            let length = Self::WINDOW.min(self.reader.size.saturating_sub(offset));
            self.window = self.reader.bytes("what is relocated", offset, length)?;
            (self.from, at) = (offset, 0);
        }
        let word = self.window.get(at as usize..).and_then(|rest| rest.get(..8));
        Ok(field(word.unwrap_or(&[0; 8]), 0..8))
    }
}

struct Relocation {
    place: u64,
    kind: Kind,
    /// The kind's, on this machine.
    number: u64,
    symbol: u64,
    addend: u64,
}

impl Relocation {
    fn read(entry: &[u8]) -> Result<Relocation> {
        let number = field(entry, 8..12);
        let Some(kind) = Kind::of(number) else {
            bail!(InvalidArgument, "is damaged: it has a relocation of the kind {number}");
        };
        let (symbol, addend) = (field(entry, 12..16), field(entry, 16..24));
        Ok(Relocation { place: field(entry, 0..8), kind, number, symbol, addend })
    }

    fn check(&self, headers: &Headers, symbols: &Symbols<'_>) -> Result<Option<Written>> {
        let Relocation { place, kind, symbol, addend, .. } = *self;
        if kind == Kind::Nothing {
            return Ok(None);
        }
        let length = if kind == Kind::Descriptor { 16 } else { 8 };
        headers.place("what is relocated", place, length, READ | WRITE)?;
        let section = headers.section_of(place, length);
        let is_in_table = section.is_some_and(|section| section.name.starts_with(b".got"));
        let is_free =
            section.is_some_and(|section| section.is_written() && section.address != headers.dynamic.address);
        let Some(named) = symbols.get(symbol) else {
            bail!(InvalidArgument, "is damaged: a relocation is of symbol {symbol}, which it does not have");
        };
        let is_thread_local = match symbol {
            0 => headers.tls_size().is_some_and(|size| addend <= size),
            _ => named.is_thread_local(),
        };
        let fits = match kind {
            Kind::Nothing => true,
            Kind::Relative => symbol == 0 && headers.has_memory(addend, 0, READ),
            Kind::Chosen => symbol == 0 && headers.has_memory(addend, 1, READ | EXECUTE),
            Kind::Absolute => symbol != 0 && !named.is_thread_local(),
            Kind::Address => symbol != 0 && !named.is_thread_local() && addend == 0 && is_in_table,
            Kind::ThreadLocal | Kind::Descriptor => is_thread_local && is_in_table,
        };
        ensure!(
            fits && is_free,
            InvalidArgument,
            "is damaged: the relocation of address {place:#x} writes where it may not, or leads out of the library"
        );
        let is_own = kind == Kind::Absolute && named.is_defined();
        let address = match kind {
            Kind::Relative => Some(addend),
            _ => is_own.then(|| named.value.wrapping_add(addend)),
        };
        Ok(Some(Written { place: place..place + length, address }))
    }
}
