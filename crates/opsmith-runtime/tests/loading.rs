//! Files that are no library, or not a whole one: each is refused with a message, and none ends the process.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use object::{Object, ObjectSection, ObjectSymbol};
use opsmith_core::{Code, Error};
use opsmith_runtime::Library;

/// A fresh file with this content.
fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("loading-{}-{name}", std::process::id()));
    fs::write(&path, content).unwrap();
    path
}

fn refusal(name: &str, content: &[u8]) -> Error {
    let path = file(name, content);
    let error = Library::open(&path).unwrap_err();
    assert!(error.message().contains(path.to_str().unwrap()), "{error}");
    fs::remove_file(path).unwrap();
    error
}

/// A library that a C compiler makes of this source with these options.
fn compiled(name: &str, source: &str, options: &[&str]) -> PathBuf {
    let (source, library) = (file(&format!("{name}.c"), source.as_bytes()), file(&format!("{name}.so"), b""));
    let options = ["-shared", "-fPIC", "-O2", "-o"]
        .iter()
        .copied()
        .map(Path::new)
        .chain([&*library, &*source])
        .chain(options.iter().map(Path::new));
    let made = Command::new("cc").args(options.collect::<Vec<_>>()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    fs::remove_file(source).unwrap();
    library
}

/// Where in the file the exported table lies.
fn table_offset(library: &[u8]) -> usize {
    let file = object::File::parse(library).unwrap();
    let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok("opsmith_library_v1")).unwrap();
    let section = file.section_by_index(symbol.section_index().unwrap()).unwrap();
    let (offset, _) = section.file_range().unwrap();
    (offset + symbol.address() - section.address()) as usize
}

/// The library with every occurrence of some bytes changed.
fn patched(library: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut patched = library.to_vec();
    let mut found = 0;
    for at in 0..library.len() - from.len() {
        if &library[at..at + from.len()] == from {
            patched[at..at + from.len()].copy_from_slice(to);
            found += 1;
        }
    }
    assert!(found > 0, "the library does not contain {}", String::from_utf8_lossy(from));
    patched
}

#[test]
fn what_is_not_a_library_is_named() {
    for (name, content, what) in [
        ("empty", &b""[..], "is an empty file"),
        ("text.py", b"import opsmith\n", "a text file"),
        ("script", b"#!/bin/sh\n", "a script"),
        ("wheel", b"PK\x03\x04\x00\x00", "a ZIP archive, or a wheel"),
        ("archive.a", b"!<arch>\nfoo", "an archive of object files"),
        ("windows.dll", b"MZ\x90\x00", "a Windows library"),
        ("macos.dylib", b"\xcf\xfa\xed\xfe\x07", "a macOS library"),
        ("noise", b"\x01\x02\xff\xfe", "data of an unknown kind"),
        ("short", b"\x7fELF\x02\x01", "is truncated or damaged"),
    ] {
        let error = refusal(name, content);
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains(what), "{error}");
    }
    let error = Library::open(env!("CARGO_MANIFEST_DIR")).unwrap_err();
    assert!(error.message().contains("is a directory"), "{error}");
    let error = Library::open("/does/not/exist.so").unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
}

#[test]
fn elf_files_of_other_kinds_are_named() {
    let library = fs::read(common::path()).unwrap();
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = library.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    for (name, content, what) in [
        ("class", with(4, &[1]), "32-bit"),
        ("order", with(5, &[2]), "big-endian"),
        ("program", with(16, &2u16.to_le_bytes()), "is a program"),
        ("object", with(16, &1u16.to_le_bytes()), "not linked"),
        ("dump", with(16, &4u16.to_le_bytes()), "memory dump"),
        ("machine", with(18, &243u16.to_le_bytes()), "RISC-V"),
        ("headers", with(32, &u64::MAX.to_le_bytes()), "the program headers"),
        ("sections", with(40, &(1u64 << 40).to_le_bytes()), "the section headers"),
        (
            "symbol",
            patched(&library, b"opsmith_library_v1", b"opsmith_library_v0"),
            "its hash table do not match",
        ),
    ] {
        let error = refusal(name, &content);
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        assert!(error.message().contains(what), "{error}");
    }
}

#[test]
fn no_more_is_read_than_a_library_has() {
    let mut library = fs::read(common::path()).unwrap();
    let at = |range: std::ops::Range<usize>| {
        library[range].iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte))
    };
    let names = at(40..48) + 64 * at(62..64);
    let size = 6_u64 << 30;
    library[names + 24..names + 32].fill(0);
    library[names + 32..names + 40].copy_from_slice(&size.to_le_bytes());
    let path = file("sparse.so", &library);
    fs::File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
    let began = Instant::now();
    let error = Library::open(&path).unwrap_err();
    assert!(error.message().contains("its tables have more than 268435456 bytes"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    fs::remove_file(path).unwrap();
    // As many sections as there can be, each with a long name.
    let (count, length) = (65_000_u64, 60_000);
    library.resize(library.len().next_multiple_of(8), 0);
    let (table, end) = (library.len() as u64, library.len() as u64 + 64 * count);
    let mut header = [0; 64];
    header[24..32].copy_from_slice(&end.to_le_bytes());
    header[32..40].copy_from_slice(&(length + 1_u64).to_le_bytes());
    library[40..48].copy_from_slice(&table.to_le_bytes());
    library[60..62].copy_from_slice(&(count as u16).to_le_bytes());
    library[62..64].fill(0);
    library.extend(header.repeat(count as usize));
    library.extend([b'x'].repeat(length as usize));
    library.push(0);
    assert!(refusal("names.so", &library).message().contains("more than 268435456 bytes"));
}

#[test]
fn what_compilers_make_beside_operators_is_not_damaged() {
    let chosen = "static int one(void) { return 1; }\nstatic int (*choose(void))(void) { return one; }\n\
                  int chosen(void) __attribute__((ifunc(\"choose\")));";
    let other = "void start(void) {} void end(void) {}";
    for (name, source, options) in [
        ("chosen", chosen, &[][..]),
        ("nothing", "static int x;", &[]),
        ("start", other, &["-Wl,-init=start,-fini=end"]),
        (
            "relative",
            "int x; int *a[200] = {&x, &x}; int *at(int i) { return a[i]; }",
            &["-Wl,-z,pack-relative-relocs", "-Wl,-Bsymbolic"],
        ),
    ] {
        let path = compiled(name, source, options);
        let error = Library::open(&path).unwrap_err();
        assert!(error.message().contains("not one of operators"), "{error}");
        fs::remove_file(path).unwrap();
    }
    let path = compiled("pages", other, &["-Wl,-z,max-page-size=1024"]);
    let error = Library::open(&path).unwrap_err();
    assert!(error.message().contains("is linked for pages of 1024 bytes"), "{error}");
    // As `--strip-section-headers` leaves it.
    let mut library = fs::read(common::path()).unwrap();
    for place in [40..48, 58..64] {
        library[place].fill(0);
    }
    assert!(refusal("headers.so", &library).message().contains("has no section headers"));
    fs::remove_file(path).unwrap();
}

#[test]
fn a_library_cut_off_anywhere_is_refused() {
    let library = fs::read(common::path()).unwrap();
    let places =
        (0..library.len()).step_by(library.len() / 97).chain([4, 63, 64, 65, 120, library.len() - 1]);
    for length in places {
        let error = refusal(&format!("cut-{length}"), &library[..length]);
        assert_eq!(error.code(), Code::InvalidArgument, "{length}: {error}");
    }
}

#[test]
fn another_version_and_a_table_too_small_are_refused() {
    let library = fs::read(common::path()).unwrap();
    let table = table_offset(&library);
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = library.clone();
        changed[table + at..table + at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let error = refusal("newer.so", &with(8, &7u32.to_le_bytes()));
    assert_eq!(error.code(), Code::FailedPrecondition);
    let own = format!("version {}", opsmith_core::abi::OPSMITH_ABI_VERSION);
    assert!(error.message().contains("version 7") && error.message().contains(&own), "{error}");
    for size in [0u64, 8, 11, 12, 64] {
        let error = refusal(&format!("small-{size}.so"), &with(0, &size.to_le_bytes()));
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains(&format!("{size} bytes")), "{error}");
    }
}

#[test]
fn one_file_is_one_library_and_a_copy_shares_it() {
    let library = common::library();
    assert_eq!(library.path(), common::library().path());
    let link = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("loading-{}-link.so", std::process::id()));
    std::os::unix::fs::symlink(common::path(), &link).unwrap();
    assert_eq!(Library::open(&link).unwrap().path(), library.path());
    fs::remove_file(link).unwrap();
    let copy = file("copy.so", &fs::read(common::path()).unwrap());
    assert_eq!(Library::open(&copy).unwrap().path(), library.path());
    fs::remove_file(copy).unwrap();
}

#[test]
fn a_library_that_defines_an_op_differently_is_refused() {
    let first = common::library();
    let content = fs::read(common::path()).unwrap();
    let other = file(
        "other.so",
        &patched(&content, b"message: string = 'it failed'", b"message: string = 'it fooled'"),
    );
    let error = Library::open(&other).unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists);
    for part in ["testops", first.path().to_str().unwrap(), other.to_str().unwrap()] {
        assert!(error.message().contains(part), "{error} lacks {part}");
    }
    fs::remove_file(other).unwrap();
}

#[test]
fn a_file_that_changed_since_it_was_loaded_is_refused() {
    let content = fs::read(common::path()).unwrap();
    let path = file("changing.so", &content);
    Library::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, &content).unwrap();
    let error = Library::open(&path).unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().contains("has changed since"), "{error}");
    fs::remove_file(path).unwrap();
}

#[test]
fn a_definition_that_is_not_well_formed_is_told() {
    let content = fs::read(common::path()).unwrap();
    let broken = patched(&content, b"message: string = 'it failed'", b"message: strong = 'it failed'");
    let error = refusal("broken.so", &broken);
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("strong") && error.message().contains('^'), "{error}");
}
