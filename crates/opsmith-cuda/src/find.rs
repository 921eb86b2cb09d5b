//! Where NVRTC may be: said by the user, in the process already, where the system has it, or among Python's packages.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use opsmith_core::{Result, bail};

use crate::shared_object::SharedObject;

/// The environment variable that says where NVRTC is: a file, a folder that has it, or a Python environment.
pub const VARIABLE: &str = "OPSMITH_NVRTC";

/// Bare names, the newest first.
const NAMES: [&str; 4] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "libnvrtc.so.11.2"];

/// What to try to open, in this order.
///
/// # Errors
/// `NotFound` when the variable names a place that has none.
pub(crate) fn nvrtc_candidates() -> Result<Vec<PathBuf>> {
    if let Some(said) = env::var_os(VARIABLE).filter(|said| !said.is_empty()) {
        let found = in_place(Path::new(&said));
        if found.is_empty() {
            bail!(NotFound, "{VARIABLE} is {said:?}, where there is no libnvrtc.so");
        }
        return Ok(found);
    }
    let present = NAMES.into_iter().filter(|name| SharedObject::present(name).is_some()).map(PathBuf::from);
    let mut candidates: Vec<PathBuf> = present.collect();
    candidates.extend(NAMES.map(PathBuf::from));
    let toolkit = env::var_os("CUDA_HOME").map_or_else(|| PathBuf::from("/usr/local/cuda"), PathBuf::from);
    candidates.extend(in_place(&toolkit.join("lib64")));
    for environment in ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(env::var_os) {
        candidates.extend(in_place(Path::new(&environment)));
    }
    for packages in loaded_site_packages() {
        candidates.extend(in_packages(&packages));
    }
    Ok(candidates)
}

/// The libraries at a place: the file itself, those in a folder, those among a Python environment's packages.
pub(crate) fn in_place(place: &Path) -> Vec<PathBuf> {
    if place.is_file() {
        return vec![place.to_owned()];
    }
    let mut found = libraries_in(place);
    for python in folders_in(&place.join("lib"), "python") {
        found.extend(in_packages(&python.join("site-packages")));
    }
    found
}

/// The libraries among the packages of NVIDIA's in a folder of packages: `nvidia/cu13/lib`, `nvidia/cuda_nvrtc/lib`.
fn in_packages(packages: &Path) -> Vec<PathBuf> {
    folders_in(&packages.join("nvidia"), "cu")
        .iter()
        .flat_map(|part| libraries_in(&part.join("lib")))
        .collect()
}

fn folders_in(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_it = |name: &OsStr| name.as_bytes().starts_with(prefix.as_bytes());
    let mut folders: Vec<PathBuf> = Vec::new();
    // Put where they belong one by one: there are few, and every library carries this.
    for folder in entries.filter(|entry| is_it(&entry.file_name())).map(|entry| entry.path()) {
        folders.insert(folders.partition_point(|other| *other < folder), folder);
    }
    folders
}

/// Files `libnvrtc.so…` of a folder. The compiler's data, `libnvrtc-builtins`, is not one, and no pipe, which the dynamic loader
/// would wait for.
fn libraries_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = folders_in(folder, "libnvrtc.so");
    found.retain(|path| path.is_file());
    found.reverse();
    found
}

/// Folders of Python's packages from which something has been loaded into this process.
fn loaded_site_packages() -> Vec<PathBuf> {
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, folders: *mut c_void) -> c_int {
        // SAFETY: the system passes a valid description, whose name is a C string or null, and our own vector.
        let (name, folders) = unsafe {
            let name = (*info).dlpi_name;
            if name.is_null() {
                return 0;
            }
            (CStr::from_ptr(name).to_bytes(), &mut *folders.cast::<Vec<PathBuf>>())
        };
        const MARK: &[u8] = b"/site-packages/";
        if let Some(at) = name.windows(MARK.len()).position(|part| part == MARK) {
            let folder = PathBuf::from(OsStr::from_bytes(&name[..at + MARK.len() - 1]));
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        0
    }
    let mut folders: Vec<PathBuf> = Vec::new();
    // SAFETY: the function fits, and the vector outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut folders).cast()) };
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_environment_is_searched() {
        let root = env::temp_dir().join(format!("opsmith-find-{}", std::process::id()));
        let lib = root.join("lib/python3.12/site-packages/nvidia/cu13/lib");
        fs::create_dir_all(&lib).unwrap();
        for name in ["libnvrtc.so.13", "libnvrtc-builtins.so.13.2", "libcudart.so.13"] {
            fs::write(lib.join(name), "").unwrap();
        }
        let expected = vec![lib.join("libnvrtc.so.13")];
        assert_eq!(in_place(&root), expected);
        assert_eq!(in_place(&lib), expected);
        assert_eq!(in_place(&expected[0]), expected);
        assert!(in_place(&root.join("nowhere")).is_empty());
        fs::remove_dir_all(&root).unwrap();
    }
}
