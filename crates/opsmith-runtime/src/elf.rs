//! Looks at a file before the dynamic loader does: a file that is not a whole library for this machine is refused with a
//! message that says what it is, where `dlopen` would say little or, for a truncated file, end the process with SIGBUS.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use object::elf::{self, FileHeader64, FileType, Machine, ProgramHeader64, SectionHeader64, Sym64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{LittleEndian, ReadCache, ReadRef};
use opsmith_core::{Error, Result, bail, ensure};

type Header = FileHeader64<LittleEndian>;
type Segment = ProgramHeader64<LittleEndian>;
type Section = SectionHeader64<LittleEndian>;
type Symbol = Sym64<LittleEndian>;

/// The first bytes of what a symbol names.
pub(crate) type Head = [u8; 16];

/// The machine that this process runs on, as ELF numbers it.
const MACHINE: Machine = if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 };

/// Checks that `path` is a whole shared library for this machine that exports `symbol`, and gives the first bytes of what
/// the symbol names; nothing where only the dynamic loader can find it.
///
/// # Errors
/// `NotFound` when there is no such file, `InvalidArgument` when it is something else; the message says what.
pub(crate) fn check(path: &Path, symbol: &str) -> Result<Option<Head>> {
    let place = path.display();
    let mut file = File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::not_found(format!("{place}: there is no such file")),
        _ => Error::invalid_argument(format!("{place}: cannot be opened: {error}")),
    })?;
    let metadata = file.metadata().map_err(|error| Error::invalid_argument(format!("{place}: {error}")))?;
    ensure!(!metadata.is_dir(), InvalidArgument, "{place}: is a directory, not an operator library");
    ensure!(metadata.is_file(), InvalidArgument, "{place}: is not a regular file");
    let mut start = Vec::new();
    file.by_ref()
        .take(64)
        .read_to_end(&mut start)
        .map_err(|error| Error::invalid_argument(format!("{place}: cannot be read: {error}")))?;
    check_start(&start)
        .and_then(|()| check_elf(&file, metadata.len(), symbol))
        .map_err(|error| error.within(place))
}

/// What the first bytes of a file say that it is, where that is not an ELF file of 64 bits for this machine.
fn check_start(start: &[u8]) -> Result<()> {
    ensure!(!start.is_empty(), InvalidArgument, "is an empty file");
    if !start.starts_with(&elf::ELFMAG) {
        bail!(InvalidArgument, "is not a shared library but {}", name_other(start));
    }
    ensure!(
        start.len() >= size_of::<Header>(),
        InvalidArgument,
        "{}",
        truncated("the ELF header", 64, start.len() as u64)
    );
    ensure!(start[4] == elf::ELFCLASS64.0, InvalidArgument, "is a 32-bit library; this process has 64 bits");
    ensure!(start[5] == elf::ELFDATA2LSB.0, InvalidArgument, "is a library for a big-endian machine");
    let machine = Machine(u16::from_le_bytes([start[18], start[19]]));
    ensure!(
        machine == MACHINE,
        InvalidArgument,
        "is a library for {}; this machine is {}",
        machine_name(machine),
        machine_name(MACHINE)
    );
    match FileType(u16::from_le_bytes([start[16], start[17]])) {
        elf::ET_DYN => Ok(()),
        elf::ET_EXEC => bail!(InvalidArgument, "is a program, not a shared library"),
        elf::ET_REL => bail!(InvalidArgument, "is an object file that was not linked to a shared library"),
        elf::ET_CORE => bail!(InvalidArgument, "is a memory dump, not a shared library"),
        other => bail!(InvalidArgument, "is an ELF file of unknown type {}", other.0),
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

fn machine_name(machine: Machine) -> String {
    match machine {
        elf::EM_X86_64 => "x86-64".to_owned(),
        elf::EM_AARCH64 => "AArch64".to_owned(),
        elf::EM_386 => "32-bit x86".to_owned(),
        elf::EM_ARM => "32-bit ARM".to_owned(),
        elf::EM_RISCV => "RISC-V".to_owned(),
        elf::EM_PPC64 => "PowerPC".to_owned(),
        elf::EM_S390 => "S/390".to_owned(),
        other => format!("ELF machine {}", other.0),
    }
}

/// Checks that everything the headers speak of lies in the file, and that the symbol is exported; gives the first bytes of
/// what it names.
fn check_elf(file: &File, size: u64, symbol: &str) -> Result<Option<Head>> {
    let data = ReadCache::new(file);
    let header = Header::parse(&data).map_err(malformed)?;
    let programs_at = header.e_phoff.get(LittleEndian);
    let programs_size = table_size(header.e_phnum(LittleEndian), size_of::<Segment>());
    check_extent("the program headers", programs_at, programs_size, size)?;
    let segments = header.program_headers(LittleEndian, &data).map_err(malformed)?;
    for segment in segments {
        let (offset, length) = segment.file_range(LittleEndian);
        check_extent("a segment", offset, length, size)?;
    }
    let is_dynamic = segments.iter().any(|segment| segment.p_type(LittleEndian) == elf::PT_DYNAMIC);
    ensure!(is_dynamic, InvalidArgument, "is damaged: it has no dynamic section");
    if header.e_shoff.get(LittleEndian) == 0 {
        // Without section headers only the dynamic loader can tell whether the symbol is there.
        return Ok(None);
    }
    let address = exported_address(header, &data, size, symbol)?;
    let loaded = segments.iter().filter(|segment| segment.p_type(LittleEndian) == elf::PT_LOAD);
    let mut offsets = loaded.filter_map(|segment| {
        let (offset, length) = segment.file_range(LittleEndian);
        let within = address.checked_sub(segment.p_vaddr(LittleEndian))?;
        (within < length).then(|| offset + within)
    });
    Ok(offsets.next().and_then(|offset| data.read_at::<Head>(offset).ok()).copied())
}

/// Where the exported symbol will lie, relative to where the library is loaded; checks the sections on the way.
fn exported_address<'a>(
    header: &Header,
    data: &'a ReadCache<&'a File>,
    size: u64,
    symbol: &str,
) -> Result<u64> {
    let sections_size = table_size(header.e_shnum(LittleEndian), size_of::<Section>());
    check_extent("the section headers", header.e_shoff.get(LittleEndian), sections_size, size)?;
    let sections = header.sections(LittleEndian, data).map_err(malformed)?;
    for section in sections.iter() {
        if let Some((offset, length)) = section.file_range(LittleEndian) {
            check_extent("a section", offset, length, size)?;
        }
    }
    let symbols = sections.symbols(LittleEndian, data, elf::SHT_DYNSYM).map_err(malformed)?;
    let is_exported = |entry: &&Symbol| {
        let name = symbols.strings().get(entry.st_name.get(LittleEndian));
        entry.st_shndx.get(LittleEndian) != elf::SHN_UNDEF && name.is_ok_and(|name| name == symbol.as_bytes())
    };
    let exported = symbols.iter().find(is_exported).ok_or_else(|| {
        Error::invalid_argument(format!(
            "is a shared library, but not one of operators: it does not export `{symbol}` (does its crate have \
             `opsmith::library!`?)"
        ))
    })?;
    Ok(exported.st_value.get(LittleEndian))
}

fn malformed(error: object::Error) -> Error {
    Error::invalid_argument(format!("is truncated or damaged: {error}"))
}

fn table_size(entries: u16, entry: usize) -> u64 {
    u64::from(entries) * entry as u64
}

fn check_extent(what: &str, offset: u64, length: u64, size: u64) -> Result<()> {
    let end = offset.saturating_add(length);
    ensure!(end <= size, InvalidArgument, "{}", truncated(what, end, size));
    Ok(())
}

fn truncated(what: &str, end: u64, size: u64) -> String {
    format!("is truncated or damaged: {what} should end at byte {end}, the file at byte {size}")
}
