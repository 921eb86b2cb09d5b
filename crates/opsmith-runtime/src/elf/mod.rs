//! Looks at a file before the dynamic loader does: a file that is not a whole library for this machine is refused with a
//! message that says what it is, where `dlopen` would say little or, for a damaged file, end the process.
//!
//! The loader believes what a file says of itself. So all that it follows on its way to the library's first function is
//! followed here first: every table lies in the file and in memory that may be read, every number that leads somewhere leads
//! into the library. A linker tells most of it twice, in sections and in what the loader reads; where the two differ, the file
//! is damaged. What is left are numbers that could as well be others, as the code itself is.

mod arrays;
mod dynamic;
mod hash;
mod headers;
mod relocations;
mod symbol;
mod symbols;
mod versions;

use std::cell::Cell;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use opsmith_core::{Error, Result, bail, ensure, memory};

use dynamic::Dynamic;
use headers::{Headers, READ};
use symbols::Symbols;

/// The first bytes of what a symbol names.
pub(crate) type Head = [u8; 16];

/// The length of the ELF header.
const START: usize = 64;

/// As many bytes all that is read of a file may have, with what is made of it: what a file says of its tables' sizes and of how
/// often it refers to the same thing is followed no further. The largest libraries that there are have a tenth in their tables.
const MOST: u64 = 256 << 20;

const X86_64: u64 = 62;
const AARCH64: u64 = 183;

/// The machine that this process runs on, as ELF numbers it.
const MACHINE: u64 = if cfg!(target_arch = "aarch64") { AARCH64 } else { X86_64 };

/// Checks that `path` is a whole shared library for this machine that exports `symbol`, and gives the first bytes of what
/// the symbol names.
///
/// # Errors
/// `NotFound` when there is no such file, `InvalidArgument` when it is something else; the message says what.
pub(crate) fn check(path: &Path, symbol: &str) -> Result<Head> {
    let (file, metadata) = opsmith_files::open(path)?;
    let reader = Reader { file: &file, size: metadata.len(), left: Cell::new(MOST) };
    check_file(&reader, symbol).map_err(|error| {
        let advice =
            if error.text().contains("damaged: ") { "\n  → build it or copy it again" } else { "" };
        error.with_text(|text| format!("{text}{advice}")).within(path.display())
    })
}

fn check_file(reader: &Reader<'_>, symbol: &str) -> Result<Head> {
    let start = reader.bytes("the ELF header", 0, reader.size.min(START as u64))?;
    check_start(&start)?;
    let headers = Headers::read(reader, &start)?;
    let dynamic = Dynamic::read(reader, &headers)?;
    let symbols = Symbols::read(reader, &headers, &dynamic)?;
    let relocated = relocations::check(reader, &headers, &dynamic, &symbols)?;
    arrays::check(&headers, &dynamic, &relocated)?;
    let named = symbols.exported(symbol).ok_or_else(|| {
        Error::invalid_argument(format!(
            "is a shared library, but not one of operators: it does not export `{symbol}` (does its crate have \
             `opsmith::library!`?)"
        ))
    })?;
    let length = size_of::<Head>() as u64;
    let offset = headers.place("the table of operators", named.value, length, READ)?;
    let bytes = reader.bytes("the table of operators", offset, length)?;
    let head: Head = bytes.try_into().unwrap_or_default();
    let size = field(&head, 0..8);
    ensure!(
        named.size == 0 || size <= named.size,
        InvalidArgument,
        "is damaged: its table of {size} bytes is in a symbol of {} bytes",
        named.size
    );
    Ok(head)
}

/// Reads parts of the file.
struct Reader<'a> {
    file: &'a File,
    size: u64,
    /// What is left of [`MOST`].
    left: Cell<u64>,
}

impl Reader<'_> {
    /// These bytes of the file, if it has them; `what` they are.
    fn bytes(&self, what: &str, offset: u64, length: u64) -> Result<Vec<u8>> {
        self.check_extent(what, offset, length)?;
        self.charge(length)?;
        let mut bytes = memory::filled(0, length as usize, what)?;
        self.file
            .read_exact_at(&mut bytes, offset)
            .map_err(|error| Error::invalid_argument(format!("{what} cannot be read: {error}")))?;
        Ok(bytes)
    }

    /// Counts bytes that are read, or taken for what is made of them.
    fn charge(&self, length: u64) -> Result<()> {
        let left = self.left.get().checked_sub(length);
        ensure!(
            left.is_some(),
            InvalidArgument,
            "is no library of operators: its tables have more than {MOST} bytes"
        );
        self.left.set(left.unwrap_or_default());
        Ok(())
    }

    /// The name at a place among names; none where it has no end.
    fn name<'b>(&self, names: &'b [u8], at: u64) -> Result<Option<&'b [u8]>> {
        let rest = usize::try_from(at).ok().and_then(|at| names.get(at..)).unwrap_or_default();
        let name = rest.iter().position(|byte| *byte == 0).map(|end| &rest[..end]);
        // Many may have the same long one, and each is looked at.
        self.charge(name.map_or(0, <[u8]>::len) as u64)?;
        Ok(name)
    }

    fn check_extent(&self, what: &str, offset: u64, length: u64) -> Result<()> {
        let end = offset.saturating_add(length);
        ensure!(end <= self.size, InvalidArgument, "{}", truncated(what, end, self.size));
        Ok(())
    }
}

/// The number in these bytes of an entry, eight at most.
fn field(entry: &[u8], place: Range<usize>) -> u64 {
    entry[place].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn truncated(what: &str, end: u64, size: u64) -> String {
    format!("is truncated or damaged: {what} should end at byte {end}, the file at byte {size}")
}

/// What the first bytes of a file say that it is, where that is not an ELF file of 64 bits for this machine.
fn check_start(start: &[u8]) -> Result<()> {
    ensure!(!start.is_empty(), InvalidArgument, "is an empty file");
    if !start.starts_with(b"\x7fELF") {
        bail!(InvalidArgument, "is not a shared library but {}", name_other(start));
    }
    ensure!(
        start.len() == START,
        InvalidArgument,
        "{}",
        truncated("the ELF header", START as u64, start.len() as u64)
    );
    ensure!(start[4] == 2, InvalidArgument, "is a 32-bit library; this process has 64 bits");
    ensure!(start[5] == 1, InvalidArgument, "is a library for a big-endian machine");
    let machine = field(start, 18..20);
    ensure!(
        machine == MACHINE,
        InvalidArgument,
        "is a library for {}; this machine is {}",
        machine_name(machine),
        machine_name(MACHINE)
    );
    match field(start, 16..18) {
        3 => Ok(()),
        2 => bail!(InvalidArgument, "is a program, not a shared library"),
        1 => bail!(InvalidArgument, "is an object file that was not linked to a shared library"),
        4 => bail!(InvalidArgument, "is a memory dump, not a shared library"),
        other => bail!(InvalidArgument, "is an ELF file of unknown type {other}"),
    }
}

/// A name for a file that is no ELF file, from its first bytes.
fn name_other(start: &[u8]) -> &'static str {
    const MACH_O: [&[u8]; 3] = [b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe"];
    if start.starts_with(b"!<arch>\n") {
        "an archive of object files (.a or .rlib); build the crate as a `cdylib`"
    } else if start.starts_with(b"PK\x03\x04") {
        "a ZIP archive, or a wheel: install it first"
    } else if start.starts_with(b"MZ") {
        "a Windows library"
    } else if MACH_O.iter().any(|magic| start.starts_with(magic)) {
        "a macOS library"
    } else if start.starts_with(b"#!") {
        "a script"
    } else if start.iter().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~')) {
        "a text file"
    } else {
        "data of an unknown kind"
    }
}

fn machine_name(machine: u64) -> String {
    match machine {
        X86_64 => "x86-64".to_owned(),
        AARCH64 => "AArch64".to_owned(),
        3 => "32-bit x86".to_owned(),
        40 => "32-bit ARM".to_owned(),
        243 => "RISC-V".to_owned(),
        21 => "PowerPC".to_owned(),
        22 => "S/390".to_owned(),
        other => format!("ELF machine {other}"),
    }
}
