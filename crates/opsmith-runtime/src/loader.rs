//! Opens shared objects: each file once, checked before it is opened and never closed.

use std::fmt;
use std::fs::Metadata;
use std::mem::offset_of;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library as SharedObject, RTLD_LOCAL, RTLD_NOW};
use opsmith_core::abi::{OPSMITH_ABI_VERSION, OpsmithLibrary};
use opsmith_core::fork::{Mutex, Turn};
use opsmith_core::{Error, Result, bail, ensure};

use crate::elf;
use crate::library::Library;

/// What a library exports.
const SYMBOL: &str = "opsmith_library_v1";

/// The libraries of this process but the standard one, in the order in which they were loaded.
static LOADED: Mutex<Vec<Loaded>> = Mutex::new(Vec::new());

/// Of who loads a library.
static TURN: Turn = Turn::new();

/// The file that is being opened; in a forked child also the one that was, on another thread.
static OPENING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A file that was opened, or a part of the program, and the library that stands for it.
struct Loaded {
    path: PathBuf,
    /// None for a part of the program.
    version: Option<FileVersion>,
    /// Its own, which is not the library's where that was known before.
    table: &'static OpsmithLibrary,
    library: Library,
}

/// What tells one file, as it was at one time, from another.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl From<&Metadata> for FileVersion {
    fn from(metadata: &Metadata) -> FileVersion {
        FileVersion {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

impl fmt::Display for FileVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanoseconds) = self.modified;
        write!(f, "{}:{seconds}.{nanoseconds:09}", self.size)
    }
}

impl Library {
    /// Loads the library in the file `path`. The same file, also under another name, gives the same library, and so does
    /// another file with a library of the same name and definitions.
    ///
    /// # Errors
    /// `NotFound` when there is no such file; `InvalidArgument` when it is not a library of operators, or is truncated
    /// or damaged; `FailedPrecondition` when it is of another ABI version, lacks a library that it needs, or has changed
    /// since it was loaded; `AlreadyExists` when another file defines a library of this name differently; and what is
    /// wrong with its definitions.
    pub fn open(path: impl AsRef<Path>) -> Result<Library> {
        open(path.as_ref())
    }

    /// Looks at the file `path` without opening it: whether it can be a library of operators of this ABI version.
    ///
    /// # Errors
    /// As [`open`](Self::open), as far as that can be told from the file alone.
    pub fn check(path: impl AsRef<Path>) -> Result<()> {
        check(path.as_ref())
    }

    /// The library that is part of this program: what `opsmith::library!` with `embedded = true` gives as its `table()`. The same
    /// table gives the same library, and so does another with the same name and definitions.
    ///
    /// ```ignore
    /// // SAFETY: the macro made the table, and it is a static.
    /// let library = unsafe { Library::from_table(my_ops::table()) }?;
    /// ```
    ///
    /// # Errors
    /// `FailedPrecondition` when it is of another ABI version; `AlreadyExists` when another library of this name is defined
    /// differently; what is wrong with its definitions.
    ///
    /// # Safety
    /// The table's functions and texts must do and be what `docs/abi.md` says, as those do that the macro makes.
    pub unsafe fn from_table(table: &'static OpsmithLibrary) -> Result<Library> {
        // SAFETY: it is a table that stays.
        embedded(unsafe { check_table(table) }?)
    }
}

/// The library in the file `path`: the one that is loaded already where the file, or one with the same definitions, was
/// opened before.
fn open(path: &Path) -> Result<Library> {
    if let Some(library) = path.metadata().ok().and_then(|metadata| known(FileVersion::from(&metadata))) {
        return Ok(library);
    }
    // Before it is opened: opening runs its initialisers, which register its ops with frameworks.
    check(path)?;
    let cannot_open =
        |error| Error::invalid_argument(format!("{}: cannot be opened: {error}", path.display()));
    let path = path.canonicalize().map_err(cannot_open)?;
    let version = FileVersion::from(&path.metadata().map_err(cannot_open)?);
    let _turn = TURN.take();
    if let Some(library) = known(version) {
        return Ok(library);
    }
    ensure!(
        LOADED.lock().iter().all(|known| known.path != path),
        FailedPrecondition,
        "{}: was loaded before and has changed since; a process cannot load it again: start a new one",
        path.display()
    );
    let library = Library::new(path.clone(), Some(version.to_string()), open_table(&path)?)?;
    keep(path, Some(version), library)
}

/// The library of a file that was opened and has not changed since.
fn known(version: FileVersion) -> Option<Library> {
    let loaded = LOADED.lock();
    loaded.iter().find(|known| known.version == Some(version)).map(|known| known.library.clone())
}

/// The library behind a table of this program: the one that stands for it already, where it was asked for before.
fn embedded(table: &'static OpsmithLibrary) -> Result<Library> {
    let _turn = TURN.take();
    if let Some(known) = LOADED.lock().iter().find(|known| std::ptr::eq(known.table, table)) {
        return Ok(known.library.clone());
    }
    let path = PathBuf::from("this program");
    let library = Library::new(path.clone(), None, table)?;
    keep(path, None, library)
}

/// Notes a library: the one that is known already, where that has the same name and definitions.
fn keep(path: PathBuf, version: Option<FileVersion>, library: Library) -> Result<Library> {
    let table = library.table();
    let mut loaded = LOADED.lock();
    let library = match loaded.iter().find(|known| known.library.name() == library.name()) {
        None => library,
        Some(known) if known.library.same_definitions(&library) => known.library.clone(),
        Some(known) => bail!(
            AlreadyExists,
            "{}: its library `{}` is already loaded from {} with other definitions",
            path.display(),
            library.name(),
            known.path.display()
        ),
    };
    loaded.push(Loaded { path, version, table, library: library.clone() });
    Ok(library)
}

/// Whether the file can be a library of operators, as far as can be told without opening it.
fn check(path: &Path) -> Result<()> {
    let head = elf::check(path, SYMBOL)?;
    check_head(head.into()).map_err(|error| error.within(path.display()))
}

/// Opens the file for good and checks what it exports.
fn open_table(path: &Path) -> Result<&'static OpsmithLibrary> {
    let place = path.display();
    // One thread opens at a time, so another one's is left from before a fork.
    ensure!(
        OPENING.lock().iter().all(|opening| opening != path),
        FailedPrecondition,
        "{place}: was being opened by another thread when this process was forked, and is half open; open it before"
    );
    OPENING.lock().push(path.to_owned());
    // SAFETY: the file is a library of operators; that its initialisers are sound is what loading code means.
    let object = unsafe { SharedObject::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    OPENING.lock().pop();
    let object = object.map_err(|error| {
        Error::failed_precondition(format!("{place}: the dynamic loader refused it: {}", reason(&error)))
    })?;
    // SAFETY: the symbol is data; it is read as far as its own size says.
    let table: *const OpsmithLibrary = unsafe { object.get::<*const OpsmithLibrary>(SYMBOL) }
        .map_err(|_| Error::invalid_argument(format!("{place}: does not export `{SYMBOL}`")))?
        .into_raw()
        .cast();
    // Frameworks and tensors keep pointers into a library, so none is ever closed.
    std::mem::forget(object);
    // SAFETY: the library stays open, and no more of the table is read than its size says.
    unsafe { check_table(table) }.map_err(|error| error.within(place))
}

/// The loader's own words, without libloading's.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Checks what every version of the table begins with: its size, then its version.
fn check_head(head: Head) -> Result<()> {
    let Head { size, version } = head;
    ensure!(size >= HEAD_SIZE, InvalidArgument, "its table of {size} bytes is too small to be one");
    ensure!(
        version == OPSMITH_ABI_VERSION,
        FailedPrecondition,
        "was built for version {version} of the Opsmith ABI; this is version {OPSMITH_ABI_VERSION}: rebuild it, or use \
         the `opsmith` that it was built for"
    );
    let needed = size_of::<OpsmithLibrary>();
    ensure!(
        size >= needed,
        InvalidArgument,
        "its table has {size} bytes; version {version} of the ABI has {needed}: rebuild it"
    );
    Ok(())
}

/// The table, where it is of this version of the ABI.
///
/// # Safety
/// `table` must point to a table that stays, of as many bytes as it says itself.
unsafe fn check_table(table: *const OpsmithLibrary) -> Result<&'static OpsmithLibrary> {
    // SAFETY: every version of the table begins with its size and, where that covers it, its version.
    let head = unsafe {
        let size = (&raw const (*table).size).read();
        let version = if size < HEAD_SIZE { 0 } else { (&raw const (*table).abi_version).read() };
        Head { size, version }
    };
    check_head(head)?;
    // SAFETY: the table is whole, of this version, and stays.
    Ok(unsafe { &*table })
}

/// What every version of the table begins with.
struct Head {
    size: usize,
    version: u32,
}

/// The bytes that a [`Head`] takes.
const HEAD_SIZE: usize = offset_of!(OpsmithLibrary, abi_version) + size_of::<u32>();

impl From<elf::Head> for Head {
    /// Reads the bytes of a little-endian, 64-bit file.
    fn from(bytes: elf::Head) -> Head {
        let words = u128::from_le_bytes(bytes);
        Head { size: words as usize, version: (words >> 64) as u32 }
    }
}
