//! Tensors in files: the safetensors format, written whole or not at all.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use opsmith_core::tensor::{MAX_RANK, row_major_strides};
use opsmith_core::{DType, Device, Error, Result, bail, memory};
use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensorError, SafeTensors, View};

use crate::buffer::Block;
use crate::tensor::Tensor;

/// The dtypes that files hold, beside safetensors' own names for them.
const DTYPES: [(DType, Dtype); 14] = [
    (DType::Bool, Dtype::BOOL),
    (DType::UInt8, Dtype::U8),
    (DType::Int8, Dtype::I8),
    (DType::Int16, Dtype::I16),
    (DType::UInt16, Dtype::U16),
    (DType::Float16, Dtype::F16),
    (DType::BFloat16, Dtype::BF16),
    (DType::Int32, Dtype::I32),
    (DType::UInt32, Dtype::U32),
    (DType::Float32, Dtype::F32),
    (DType::Complex64, Dtype::C64),
    (DType::Float64, Dtype::F64),
    (DType::Int64, Dtype::I64),
    (DType::UInt64, Dtype::U64),
];

/// The bytes of the number that a file begins with: how long what it says of the tensors is.
const LENGTH: u64 = size_of::<u64>() as u64;

/// So long that may be, as the format has it.
const MOST_HEADER: u64 = 100_000_000;

/// What errors call tensors that are in no file.
const PLACE: &str = "the tensors";

/// A tensor on its way to a file: in host memory, and dense.
struct Stored {
    tensor: Tensor,
    dtype: Dtype,
}

impl View for Stored {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        self.tensor.shape()
    }

    fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        self.tensor.bytes().into()
    }

    fn data_len(&self) -> usize {
        self.tensor.bytes().len()
    }
}

/// Tensors with names, and texts with names, as a file holds them.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) tensors: Vec<(String, Tensor)>,
    pub(crate) texts: HashMap<String, String>,
}

/// Writes tensors to a file in the safetensors format. A file that was there before stays as it was unless all is written.
///
/// # Errors
/// `Unimplemented` for a dtype that the format lacks; what the system says of the file.
pub fn save_tensors(path: impl AsRef<Path>, tensors: &[(&str, &Tensor)]) -> Result<()> {
    let tensors = tensors.iter().map(|(name, tensor)| ((*name).to_owned(), (*tensor).clone())).collect();
    write(path.as_ref(), Contents { tensors, texts: HashMap::new() })
}

/// Reads the tensors of a file in the safetensors format, by name.
///
/// # Errors
/// `NotFound` where there is no such file; `DataLoss` for one that is truncated, damaged or of another format.
pub fn load_tensors(path: impl AsRef<Path>) -> Result<Vec<(String, Tensor)>> {
    Ok(read(path.as_ref())?.tensors)
}

/// What [`save_tensors`] writes, in memory: for a server's answers say.
///
/// # Errors
/// `Unimplemented` for a dtype that the format lacks; `ResourceExhausted` without memory.
pub fn tensors_to_bytes(tensors: &[(&str, &Tensor)]) -> Result<Vec<u8>> {
    let tensors = tensors.iter().map(|(name, tensor)| ((*name).to_owned(), (*tensor).clone()));
    let mut all = stored(tensors.collect(), &PLACE)?;
    // As the format's own writer does, so that all elements are aligned.
    all.sort_by(|(a, left), (b, right)| right.dtype.cmp(&left.dtype).then_with(|| a.cmp(b)));
    let mut end = 0;
    let infos = all.iter().map(|(name, stored)| {
        let begin = end;
        end += stored.data_len();
        let (dtype, shape) = (stored.dtype, stored.tensor.shape().to_vec());
        (name.clone(), TensorInfo { dtype, shape, data_offsets: (begin, end) })
    });
    let failed = |error: &dyn Display| Error::invalid_argument(format!("{PLACE}: {error}"));
    let metadata = Metadata::new(None, infos.collect()).map_err(|error| failed(&error))?;
    let mut header = serde_json::to_vec(&metadata).map_err(|error| failed(&error))?;
    header.resize(header.len().next_multiple_of(LENGTH as usize), b' ');
    let mut bytes = Vec::new();
    memory::reserve(&mut bytes, LENGTH as usize + header.len() + end, PLACE)?;
    bytes.extend_from_slice(&(header.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&header);
    all.iter().for_each(|(_, stored)| bytes.extend_from_slice(stored.tensor.bytes()));
    Ok(bytes)
}

/// What [`load_tensors`] reads, from memory: a request that a server got say. The tensors share it.
///
/// # Errors
/// `DataLoss` for bytes that are truncated, damaged or of another format.
pub fn tensors_from_bytes(bytes: Vec<u8>) -> Result<Vec<(String, Tensor)>> {
    let (length, metadata) =
        SafeTensors::read_metadata(&bytes).map_err(|error| damaged(&PLACE, &error, bytes.len() as u64))?;
    tensors_of(&metadata, LENGTH as usize + length, bytes, &PLACE)
}

/// Whether files hold tensors of this dtype.
pub(crate) fn holds(dtype: DType) -> bool {
    DTYPES.iter().any(|(ours, _)| *ours == dtype)
}

/// Writes a file whole or not at all.
pub(crate) fn write(path: &Path, contents: Contents) -> Result<()> {
    let stored = stored(contents.tensors, &path.display())?;
    let texts = Some(contents.texts).filter(|texts| !texts.is_empty());
    // From where the tensors are: there need not be memory for all of them again.
    replace(path, |temporary| {
        let failed = |error: std::io::Error| in_file(path, &error);
        // The crate's own file is for nobody else to read; this one is for whom new files are.
        let permissions =
            std::fs::File::create(temporary).and_then(|file| file.metadata()).map_err(failed)?.permissions();
        safetensors::serialize_to_file(stored, texts, temporary).map_err(|error| match error {
            SafeTensorError::IoError(error) => failed(error),
            other => Error::invalid_argument(format!("{}: {other}", path.display())),
        })?;
        std::fs::set_permissions(temporary, permissions).map_err(failed)
    })
}

/// Tensors as files hold them.
fn stored(tensors: Vec<(String, Tensor)>, place: &dyn Display) -> Result<Vec<(String, Stored)>> {
    let stored = |(name, tensor): (String, Tensor)| {
        let Some((_, dtype)) = DTYPES.iter().find(|(ours, _)| *ours == tensor.dtype()) else {
            bail!(Unimplemented, "{place}: `{name}` is {}, which files cannot hold", tensor.dtype());
        };
        Ok((name, Stored { tensor: tensor.to(Device::CPU)?.to_contiguous()?, dtype: *dtype }))
    };
    tensors.into_iter().map(stored).collect()
}

/// Makes what `write` puts into a file that of `path`, at one moment.
fn replace(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let failed = |error: std::io::Error| in_file(path, &error);
    // Where a link leads to is replaced, not the link; and what is no file stays what it is.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if std::fs::metadata(&target).is_ok_and(|there| !there.is_file()) {
        bail!(InvalidArgument, "{}: is there and is no file, so it is not replaced", path.display());
    }
    let path = target.as_path();
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    static SAVES: AtomicUsize = AtomicUsize::new(0);
    let number = SAVES.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!(".{name}.{}.{number}", std::process::id()));
    let put = || {
        std::fs::File::open(&temporary)?.sync_all()?;
        std::fs::rename(&temporary, path)?;
        // The name is on the disk when its folder is, which not every file system can say. The new file is in its place
        // whatever comes of that: it would be no error after which the old one is there.
        let _ = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
        Ok(())
    };
    write(&temporary).and_then(|()| put().map_err(failed)).inspect_err(|_| {
        let _ = std::fs::remove_file(&temporary);
    })
}

/// Reads a file that [`write`] wrote, or another program in the same format. The tensors share the memory that it was read
/// into, but for those that are not aligned in it.
pub(crate) fn read(path: &Path) -> Result<Contents> {
    let (metadata, start, bytes) = read_all(path)?;
    let texts = metadata.metadata().clone().unwrap_or_default();
    Ok(Contents { tensors: tensors_of(&metadata, start, bytes, &path.display())?, texts })
}

/// The tensors whose elements are in `bytes` from `start` on.
fn tensors_of(
    metadata: &Metadata,
    start: usize,
    bytes: Vec<u8>,
    place: &dyn Display,
) -> Result<Vec<(String, Tensor)>> {
    let bytes = Arc::new(bytes);
    let mut tensors = Vec::new();
    for (name, info) in metadata.tensors() {
        let Some((dtype, _)) = DTYPES.iter().find(|(_, theirs)| *theirs == info.dtype) else {
            bail!(Unimplemented, "{place}: `{name}` is {:?}, a dtype not known here", info.dtype);
        };
        if info.shape.len() > MAX_RANK {
            let rank = info.shape.len();
            bail!(DataLoss, "{place}: `{name}` has {rank} dims, and no tensor has more than {MAX_RANK}");
        }
        let (from, to) = info.data_offsets;
        let own = &bytes[start + from..start + to];
        if *dtype == DType::Bool && own.iter().any(|byte| *byte > 1) {
            bail!(DataLoss, "{place}: `{name}` is bool and has bytes other than 0 and 1");
        }
        tensors.push((name, part(&bytes, own, *dtype, &info.shape)?));
    }
    Ok(tensors)
}

/// The error for what is no file of tensors.
fn damaged(place: &dyn Display, error: &SafeTensorError, size: u64) -> Error {
    let text = format!("{place}: no file of tensors (safetensors), or a damaged one: {error} ({size} bytes)");
    Error::new(opsmith_core::Code::DataLoss, text)
}

/// What a file of tensors says of them, where their bytes begin, and all its bytes: no more are read than the file says that it
/// has, and only where it has them.
fn read_all(path: &Path) -> Result<(Metadata, usize, Vec<u8>)> {
    let (mut file, found) = opsmith_files::open(path)?;
    let size = found.len();
    let damaged = |error| damaged(&path.display(), &error, size);
    let mut bytes = Vec::new();
    opsmith_files::take(&mut file, &mut bytes, LENGTH.min(size), path)?;
    let length = *bytes.first_chunk().ok_or_else(|| damaged(SafeTensorError::HeaderTooSmall))?;
    let length = u64::from_le_bytes(length);
    if length > MOST_HEADER {
        return Err(damaged(SafeTensorError::HeaderTooLarge));
    }
    if LENGTH + length > size {
        return Err(damaged(SafeTensorError::InvalidHeaderLength));
    }
    opsmith_files::take(&mut file, &mut bytes, length, path)?;
    let start = bytes.len();
    let header = std::str::from_utf8(&bytes[LENGTH as usize..]);
    let header = header.map_err(|error| damaged(SafeTensorError::InvalidHeader(error)))?;
    let metadata: Metadata = serde_json::from_str(header)
        .map_err(|error| damaged(SafeTensorError::InvalidHeaderDeserialization(error)))?;
    let data = metadata.data_len() as u64;
    if data.checked_add(start as u64) != Some(size) {
        return Err(damaged(SafeTensorError::MetadataIncompleteBuffer));
    }
    opsmith_files::take(&mut file, &mut bytes, data, path)?;
    Ok((metadata, start, bytes))
}

/// A tensor over a part of these bytes, or with a copy of it where its elements are not aligned.
fn part(bytes: &Arc<Vec<u8>>, own: &[u8], dtype: DType, shape: &[usize]) -> Result<Tensor> {
    // SAFETY: the bytes are those of a dense tensor, which its owner keeps and nobody writes.
    let tensor =
        unsafe { Tensor::from_foreign(bytes.clone(), own.as_ptr(), dtype, shape, &row_major_strides(shape)) };
    if tensor.as_view().is_well_formed() { Ok(tensor) } else { from_bytes(own, dtype, shape) }
}

/// A tensor with a copy of these bytes, which are as many as its elements have.
pub(crate) fn from_bytes(bytes: &[u8], dtype: DType, shape: &[usize]) -> Result<Tensor> {
    debug_assert_eq!(Some(bytes.len()), crate::tensor::byte_size(dtype, shape).ok());
    let block = Block::new(bytes.len())?;
    // SAFETY: the block is new and has room for the bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), block.as_ptr(), bytes.len()) };
    Ok(Tensor::own(block, dtype, shape))
}

/// An error of the system's at a file.
fn in_file(path: &Path, error: &std::io::Error) -> Error {
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => opsmith_core::Code::NotFound,
        std::io::ErrorKind::PermissionDenied => opsmith_core::Code::PermissionDenied,
        std::io::ErrorKind::StorageFull => opsmith_core::Code::ResourceExhausted,
        _ => opsmith_core::Code::FailedPrecondition,
    };
    Error::new(code, format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use opsmith_core::Code;

    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("opsmith-storage-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn tensors_come_back_as_they_were() {
        let folder = folder("back");
        let path = folder.join("tensors");
        let turned = Tensor::from_slice(&[1f32, 2., 3., 4.], &[2, 2]).unwrap().transpose(&[1, 0]).unwrap();
        let empty = Tensor::zeros(DType::Int64, &[0, 3]).unwrap();
        save_tensors(&path, &[("turned", &turned), ("empty", &empty)]).unwrap();
        let mut back = load_tensors(&path).unwrap();
        back.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(back[0].1.shape(), [0, 3]);
        assert_eq!(back[1].1.to_vec::<f32>().unwrap(), [1., 3., 2., 4.]);
        // They live on when the file is gone, and are copied when they are written.
        std::fs::remove_file(&path).unwrap();
        back[1].1.view_mut::<f32, ndarray::Ix2>().unwrap()[[0, 0]] = 9.0;
        assert_eq!(back[1].1.to_vec::<f32>().unwrap(), [9., 3., 2., 4.]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn tensors_in_memory_are_as_in_a_file() {
        let folder = folder("memory");
        let path = folder.join("tensors");
        let turned = Tensor::from_slice(&[1f64, 2., 3., 4.], &[2, 2]).unwrap().transpose(&[1, 0]).unwrap();
        let bytes = Tensor::from_slice(&[1u8, 2, 3], &[3]).unwrap();
        let all = [("b", &bytes), ("t", &turned)];
        let made = tensors_to_bytes(&all).unwrap();
        save_tensors(&path, &all).unwrap();
        assert_eq!(made, std::fs::read(&path).unwrap());
        let mut back = tensors_from_bytes(made.clone()).unwrap();
        back.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(back[0].1.to_vec::<u8>().unwrap(), [1, 2, 3]);
        assert_eq!(back[1].1.to_vec::<f64>().unwrap(), [1., 3., 2., 4.]);
        for length in 0..made.len() {
            let error = tensors_from_bytes(made[..length].to_vec()).unwrap_err();
            assert_eq!(error.code(), Code::DataLoss, "of {length} bytes: {error}");
        }
        for (rank, is_read) in [(MAX_RANK, true), (MAX_RANK + 1, false)] {
            let shape = vec!["1"; rank].join(",");
            let header = format!(r#"{{"a":{{"dtype":"I8","shape":[{shape}],"data_offsets":[0,1]}}}}"#);
            let made = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[7]].concat();
            assert_eq!(tensors_from_bytes(made).is_ok(), is_read, "of {rank} dims");
        }
        let text = Tensor::from_strings(&["x"], &[1]).unwrap();
        assert_eq!(tensors_to_bytes(&[("s", &text)]).unwrap_err().code(), Code::Unimplemented);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn no_more_is_read_than_a_file_says_that_it_has() {
        let folder = folder("sizes");
        let path = folder.join("tensors");
        save_tensors(&path, &[("a", &Tensor::zeros(DType::Int8, &[3]).unwrap())]).unwrap();
        // Far more than there is memory, and of no blocks.
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(1 << 42).unwrap();
        assert_eq!(load_tensors(&path).unwrap_err().code(), Code::DataLoss);
        let header = format!(r#"{{"a":{{"dtype":"I8","shape":[{0}],"data_offsets":[0,{0}]}}}}"#, 1_u64 << 42);
        std::fs::write(&path, [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat()).unwrap();
        let size = 8 + header.len() as u64 + (1 << 42);
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(size).unwrap();
        let error = load_tensors(&path).unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
        for (place, what) in [(Path::new("/dev/zero"), "is a device"), (&folder, "is a directory")] {
            let error = load_tensors(place).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument);
            assert!(error.message().contains(what), "{error}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_for_whom_new_files_are() {
        use std::os::unix::fs::PermissionsExt;

        let folder = folder("mode");
        let (path, other) = (folder.join("tensors"), folder.join("other"));
        save_tensors(&path, &[("a", &Tensor::zeros(DType::Int8, &[3]).unwrap())]).unwrap();
        std::fs::write(&other, "").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&other));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2, "nothing else is left");
        let (link, tensor) = (folder.join("link"), Tensor::zeros(DType::Int8, &[5]).unwrap());
        std::os::unix::fs::symlink(&path, &link).unwrap();
        save_tensors(&link, &[("a", &tensor)]).unwrap();
        assert!(link.is_symlink());
        assert_eq!(load_tensors(&path).unwrap()[0].1.shape(), [5]);
        assert_eq!(save_tensors(&folder, &[("a", &tensor)]).unwrap_err().code(), Code::InvalidArgument);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_damaged_file_is_an_error_and_a_failed_save_leaves_the_old_one() {
        let folder = folder("damaged");
        let path = folder.join("tensors");
        let tensor = Tensor::from_slice(&[1i32, 2, 3], &[3]).unwrap();
        save_tensors(&path, &[("a", &tensor)]).unwrap();
        let text = Tensor::from_strings(&["x"], &[1]).unwrap();
        assert_eq!(save_tensors(&path, &[("a", &text)]).unwrap_err().code(), Code::Unimplemented);
        assert_eq!(load_tensors(&path).unwrap()[0].1.to_vec::<i32>().unwrap(), [1, 2, 3]);
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(load_tensors(&path).unwrap_err().code(), Code::DataLoss, "of {length} bytes");
        }
        assert_eq!(load_tensors(folder.join("none")).unwrap_err().code(), Code::NotFound);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
