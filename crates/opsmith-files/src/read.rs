//! Reading: only regular files are opened, so nothing is waited for that may never come; and no more memory is asked for than the
//! file's size, which the caller compares first with what such a file may have.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use opsmith_core::{Code, Error, Result, bail, ensure};

/// Opens a regular file for reading.
///
/// # Errors
/// `NotFound` where there is none, `PermissionDenied` where it may not be read, `InvalidArgument` for anything that is not a
/// regular file.
pub fn open(path: &Path) -> Result<(File, Metadata)> {
    let place = path.display();
    // What it is, is asked of what is open: a path may lead elsewhere a moment later. A pipe that nobody writes to would be waited
    // for, and a terminal would become this process's own.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| cannot("opened", path, &error))?;
    let metadata = file.metadata().map_err(|error| cannot("opened", path, &error))?;
    let kind = metadata.file_type();
    ensure!(kind.is_file(), InvalidArgument, "{place}: is {}, not a regular file", name(kind));
    Ok((file, metadata))
}

/// Reads a whole regular file, of at most `most` bytes.
///
/// # Errors
/// As [`open`] and [`take`]; `InvalidArgument` for a file with more bytes.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let (mut file, metadata) = open(path)?;
    let size = metadata.len();
    ensure!(size <= most, InvalidArgument, "{}: has {size} bytes; it may have {most}", path.display());
    let mut bytes = Vec::new();
    take(&mut file, &mut bytes, size, path)?;
    Ok(bytes)
}

/// Reads a whole regular file of text, of at most `most` bytes.
///
/// # Errors
/// As [`read`]; `InvalidArgument` for one that is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> Result<String> {
    String::from_utf8(read(path, most)?)
        .map_err(|error| Error::invalid_argument(format!("{}: is not UTF-8: {error}", path.display())))
}

/// Adds the next `size` bytes of a file to those that are there.
///
/// # Errors
/// `ResourceExhausted` where there is no memory for them, `DataLoss` where the file ends before.
pub fn take(file: &mut File, bytes: &mut Vec<u8>, size: u64, path: &Path) -> Result<()> {
    let place = path.display();
    if usize::try_from(size).map_or(true, |size| bytes.try_reserve_exact(size).is_err()) {
        bail!(ResourceExhausted, "{place}: there is no memory for {size} bytes of it");
    }
    let read = file.take(size).read_to_end(bytes).map_err(|error| cannot("read", path, &error))?;
    ensure!(read as u64 == size, DataLoss, "{place}: became shorter while it was read");
    Ok(())
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Error {
    let place = path.display();
    match error.kind() {
        ErrorKind::NotFound => Error::not_found(format!("{place}: there is no such file")),
        ErrorKind::PermissionDenied => {
            Error::new(Code::PermissionDenied, format!("{place}: cannot be {what}: {error}"))
        }
        // What the system says of a socket does not tell that it is one.
        _ if error.raw_os_error() == Some(libc::ENXIO) => {
            Error::invalid_argument(format!("{place}: is a socket or a device, not a regular file"))
        }
        _ => Error::invalid_argument(format!("{place}: cannot be {what}: {error}")),
    }
}

fn name(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a pipe"
    } else {
        "a device"
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_regular_files_are_read_and_none_is_waited_for() {
        let folder = std::env::temp_dir().join(format!("opsmith-files-read-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (pipe, socket, file) = (folder.join("pipe"), folder.join("socket"), folder.join("file"));
        let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: the path is a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let _listener = UnixListener::bind(&socket).unwrap();
        fs::write(&file, "text").unwrap();
        for (path, what) in [
            (pipe.as_path(), "is a pipe, not a regular file"),
            (&socket, "is a socket or a device, not a regular file"),
            (&folder, "is a directory, not a regular file"),
            (Path::new("/dev/zero"), "is a device, not a regular file"),
            (Path::new("a\0b"), "cannot be opened"),
        ] {
            let error = read(path, u64::MAX).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{error}");
            assert!(error.message().contains(what), "{error}");
        }
        assert_eq!(read(&folder.join("none"), 9).unwrap_err().code(), Code::NotFound);
        assert_eq!(read_text(&file, 4).unwrap(), "text");
        assert!(read(&file, 3).unwrap_err().message().ends_with("has 4 bytes; it may have 3"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_size_that_no_memory_has_is_an_error() {
        let path = std::env::temp_dir().join(format!("opsmith-files-sparse-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        // As large as file systems have them, and of no blocks.
        let size = [1 << 62, 1 << 46, 1 << 43].into_iter().find(|size| file.set_len(*size).is_ok()).unwrap();
        let error = read(&path, u64::MAX).unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
        assert!(error.message().contains(&size.to_string()), "{error}");
        fs::remove_file(&path).unwrap();
    }
}
