//! Whose files are taken for code: those of this process's user and of root that nobody else can change or exchange.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use opsmith_core::{Error, Result, bail, ensure};

/// The bits of a mode that say whether the group and everybody may write.
const WRITERS: u32 = 0o022;
/// That of a folder from which only owners remove.
const STICKY: u32 = 0o1000;
/// The bits of a mode that let the group and everybody at what is in a folder.
const OTHERS: u32 = 0o077;

/// As many symbolic links a path leads through; the system's own limit.
const MOST_LINKS: usize = 40;

/// Whom a file may belong to beside this process's user and root, and who may write to it.
#[derive(Debug, Clone, Copy)]
pub struct Trust {
    owner: u32,
    group: u32,
    writers: u32,
}

impl Trust {
    /// This process's user alone.
    pub fn own() -> Trust {
        // SAFETY: the call cannot fail and touches no memory.
        Trust { owner: unsafe { libc::geteuid() }, group: u32::MAX, writers: 0 }
    }

    /// Those who could as well change this file, which is trusted already.
    pub fn like(known: &Metadata) -> Trust {
        Trust { owner: known.uid(), group: known.gid(), writers: known.mode() & WRITERS }
    }

    /// Checks what is known of the file at `path`. The way out of a refusal is `advice`.
    ///
    /// # Errors
    /// `PermissionDenied` with owner and mode.
    pub fn check(self, path: &Path, found: &Metadata, advice: &str) -> Result<()> {
        let (place, mode) = (path.display(), found.mode() & 0o7777);
        ensure!(
            self.has(found.uid()),
            PermissionDenied,
            "{place}: belongs to user {} (mode {mode:04o}), from whom user {} takes no code\n  → {advice}",
            found.uid(),
            Trust::own().owner
        );
        let writers = if found.gid() == self.group { self.writers } else { self.writers & 0o002 };
        // A link has a mode that nobody heeds.
        ensure!(
            found.is_symlink() || mode & WRITERS & !writers == 0,
            PermissionDenied,
            "{place}: others than its owner, user {}, can write to it (mode {mode:04o}), so no code is taken from it\n  → {advice}",
            found.uid()
        );
        Ok(())
    }

    fn has(self, owner: u32) -> bool {
        [0, self.owner, Trust::own().owner].contains(&owner)
    }
}

/// Checks that only this process's user and root can change what is at a path, or put something else there. Where there is
/// nothing, that is fine. The folder that it lies in is said by the environment variable `variable`.
///
/// A folder on the way may be one that others write to if only owners remove from it, as `/tmp`, and whatever it is where a
/// folder above lets nobody else in.
///
/// # Errors
/// `PermissionDenied` with the path that can be changed, its owner and mode.
pub fn check_own(path: &Path, variable: &str) -> Result<()> {
    let absolute = std::path::absolute(path)
        .map_err(|error| Error::invalid_argument(format!("{}: {error}", path.display())))?;
    let (mut at, mut closed, mut links) = (PathBuf::from("/"), false, 0);
    // Whoever has the root of all folders has the system.
    let system = fs::symlink_metadata("/").map_err(|error| Error::internal(format!("/: {error}")))?.uid();
    let mut rest = names(&absolute);
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            at.pop();
            // The folder that lets nobody in may be one of those that were left.
            closed = false;
            continue;
        }
        at.push(name);
        let found = match fs::symlink_metadata(&at) {
            Ok(found) => found,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(());
            }
            Err(error) => {
                bail!(
                    PermissionDenied,
                    "{}: {error}\n  → set {variable} to a folder of your own",
                    at.display()
                )
            }
        };
        if rest.is_empty() {
            Trust::own().check(&at, &found, &advice(&at, variable))?;
        } else {
            let is_sticky = found.mode() & STICKY != 0;
            let trust = Trust { owner: system, group: found.gid(), writers: WRITERS };
            let trust = if closed || is_sticky { trust } else { Trust { writers: 0, ..trust } };
            trust.check(&at, &found, &advice(&at, variable))?;
            closed |= found.mode() & OTHERS == 0;
        }
        if found.is_symlink() {
            links += 1;
            ensure!(links <= MOST_LINKS, InvalidArgument, "{}: has too many links", path.display());
            let target = fs::read_link(&at)
                .map_err(|error| Error::invalid_argument(format!("{}: {error}", at.display())))?;
            at.pop();
            if target.is_absolute() {
                (at, closed) = (PathBuf::from("/"), false);
            }
            rest = names(&target).into_iter().chain(rest).collect();
        }
    }
    Ok(())
}

/// As [`check_own`], of a folder and all that is in it.
///
/// # Errors
/// As [`check_own`], and what the system says of the folder.
pub fn check_own_tree(path: &Path, variable: &str) -> Result<()> {
    check_own(path, variable)?;
    let cannot = |error: std::io::Error| Error::failed_precondition(format!("{}: {error}", path.display()));
    let mut folders = match fs::metadata(path) {
        Ok(found) if found.is_dir() => vec![path.to_owned()],
        _ => return Ok(()),
    };
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let found = match entry.metadata() {
                // Somebody may be building.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                found => found.map_err(cannot)?,
            };
            let at = entry.path();
            if found.is_symlink() {
                check_own(&at, variable)?;
            } else {
                Trust::own().check(&at, &found, &advice(&at, variable))?;
            }
            if found.is_dir() {
                folders.push(at);
            }
        }
    }
    Ok(())
}

fn names(path: &Path) -> VecDeque<OsString> {
    let named = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    named.map(|part| part.as_os_str().to_owned()).collect()
}

fn advice(at: &Path, variable: &str) -> String {
    format!(
        "delete it, or `chmod go-w {}` if it is yours, or set {variable} to a folder that only you can write to",
        at.display()
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use opsmith_core::Code;

    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("opsmith-trust-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::write(folder.join("a/b/file"), "").unwrap();
        for place in ["", "a", "a/b"] {
            set(&folder.join(place), 0o755);
        }
        set(&folder.join("a/b/file"), 0o644);
        folder
    }

    fn refused(path: &Path, of: &Path, what: &str) {
        let error = check_own(path, "CACHE").unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied);
        assert!(error.message().starts_with(&format!("{}: ", of.display())), "{error}");
        for part in [what, "  → delete it", "set CACHE"] {
            assert!(error.message().contains(part), "{error} lacks {part}");
        }
    }

    #[test]
    fn what_others_can_write_to_is_refused() {
        let folder = folder("mode").canonicalize().unwrap();
        let (a, b, file) = (folder.join("a"), folder.join("a/b"), folder.join("a/b/file"));
        check_own(&file, "CACHE").unwrap();
        check_own_tree(&folder, "CACHE").unwrap();
        for mode in [0o664, 0o646] {
            set(&file, mode);
            refused(&file, &file, &format!("(mode {mode:04o})"));
            assert!(check_own_tree(&folder, "CACHE").unwrap_err().message().contains("a/b/file: "));
        }
        set(&file, 0o644);
        set(&a, 0o777);
        refused(&file, &a, "(mode 0777)");
        refused(&folder.join("a/none"), &a, "(mode 0777)");
        // From where only owners remove, and behind a door that is closed to others.
        set(&a, 0o1777);
        check_own(&file, "CACHE").unwrap();
        refused(&a, &a, "(mode 1777)");
        set(&a, 0o777);
        set(&folder, 0o700);
        check_own(&file, "CACHE").unwrap();
        set(&folder, 0o755);
        // A link leads out of there, and to where it is no better.
        let outside = folder.with_extension("outside");
        fs::create_dir_all(&outside).unwrap();
        set(&outside, 0o777);
        fs::write(outside.join("file"), "").unwrap();
        set(&outside.join("file"), 0o644);
        set(&a, 0o700);
        symlink("../../../../../../../../../../".to_owned() + outside.to_str().unwrap(), b.join("link"))
            .unwrap();
        refused(&b.join("link/file"), &outside, "(mode 0777)");
        symlink(b.join("round"), b.join("round")).unwrap();
        assert!(check_own(&b.join("round"), "CACHE").unwrap_err().message().contains("too many links"));
        fs::remove_dir_all(&folder).unwrap();
        fs::remove_dir_all(&outside).unwrap();
    }

    #[test]
    fn what_belongs_to_somebody_else_is_refused() {
        if Trust::own().owner != 0 {
            eprintln!("skipped: only root can give files away");
            return;
        }
        let folder = folder("owner").canonicalize().unwrap();
        let (a, file) = (folder.join("a"), folder.join("a/b/file"));
        chown(&file, Some(65_533), None).unwrap();
        refused(&file, &file, "belongs to user 65533 (mode 0644), from whom user 0 takes no code");
        assert!(check_own_tree(&folder, "CACHE").unwrap_err().message().contains("a/b/file: belongs"));
        let known = fs::metadata(&file).unwrap();
        assert!(Trust::like(&known).check(&file, &known, "").is_ok());
        chown(&file, Some(0), None).unwrap();
        chown(&a, Some(65_533), None).unwrap();
        refused(&file, &a, "belongs to user 65533");
        chown(&a, Some(0), None).unwrap();
        let link = folder.join("link");
        symlink(&file, &link).unwrap();
        check_own(&link, "CACHE").unwrap();
        std::os::unix::fs::lchown(&link, Some(65_533), None).unwrap();
        refused(&link, &link, "belongs to user 65533");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_no_more_people_can_write_to_is_like_what_is_trusted() {
        let folder = folder("like");
        let (known, other) = (folder.join("a/b/file"), folder.join("a/b"));
        let check = |mode, other_mode| {
            set(&known, mode);
            set(&other, other_mode);
            let trust = Trust::like(&fs::metadata(&known).unwrap());
            trust.check(&other, &fs::metadata(&other).unwrap(), "").is_ok()
        };
        assert!(check(0o644, 0o755) && check(0o664, 0o775) && check(0o664, 0o755));
        assert!(!check(0o644, 0o775) && !check(0o664, 0o777));
        fs::remove_dir_all(&folder).unwrap();
    }
}
