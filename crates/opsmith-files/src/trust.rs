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

/// Users of people begin here; below are those of services, whose groups people are put into.
const FIRST_PERSON: u32 = 1000;

/// Who this process is, and whom it cannot help but trust.
#[derive(Debug, Clone, Copy)]
struct Users {
    own: u32,
    /// The group that has nobody but this user, which files are made for to write to under the umask 002.
    private: Option<u32>,
    /// Whoever has the root of all folders has the system.
    system: u32,
    /// In a user namespace, the number that stands for everybody whom it does not know: the host's root as well as strangers.
    unknown: Option<u32>,
}

impl Users {
    fn get() -> Users {
        // SAFETY: the calls cannot fail and touch no memory.
        let (own, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        let groups = || fs::read_to_string("/etc/group").unwrap_or_default();
        let is_private = own >= FIRST_PERSON && group == own && !has_members(&groups(), group);
        let system = fs::symlink_metadata("/").map_or(0, |root| root.uid());
        let read = |file| fs::read_to_string(file).ok();
        let map = read("/proc/self/uid_map").filter(|map| !is_of_everybody(map));
        let unknown = map.and_then(|_| read("/proc/sys/kernel/overflowuid")?.trim().parse().ok());
        let system = if unknown == Some(system) { 0 } else { system };
        Users { own, private: is_private.then_some(group), system, unknown }
    }

    fn are_own(&self, owner: u32) -> bool {
        owner == 0 || owner == self.own && self.unknown != Some(owner)
    }
}

/// Whether the table of groups puts somebody into one beside those whose first it is.
fn has_members(groups: &str, group: u32) -> bool {
    groups.lines().any(|line| {
        let mut parts = line.split(':').skip(2);
        parts.next() == Some(&group.to_string()) && parts.next().is_some_and(|members| !members.is_empty())
    })
}

/// Whether a map of users to those outside of the namespace has all of them, as outside of any.
fn is_of_everybody(map: &str) -> bool {
    let counts = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    counts.sum::<u64>() >= u64::from(u32::MAX)
}

/// Whom a file may belong to beside this process's user and root, and who may write to it.
#[derive(Debug, Clone, Copy)]
pub struct Trust {
    users: Users,
    owner: Option<u32>,
    group: Option<u32>,
    writers: u32,
}

impl Trust {
    /// Those who could as well change this file, which is trusted already.
    pub fn like(known: &Metadata) -> Trust {
        let (owner, group) = (Some(known.uid()), Some(known.gid()));
        Trust { users: Users::get(), owner, group, writers: known.mode() & WRITERS }
    }

    /// This process's user alone; behind a door that is closed to others it does not matter whom a mode lets write.
    fn own(users: Users, closed: bool, found: &Metadata) -> Trust {
        Trust { users, owner: None, group: Some(found.gid()), writers: if closed { WRITERS } else { 0 } }
    }

    /// Checks what is known of the file at `path`. The way out of a refusal is `advice`.
    ///
    /// # Errors
    /// `PermissionDenied` with owner and mode.
    pub fn check(self, path: &Path, found: &Metadata, advice: &str) -> Result<()> {
        let (place, mode) = (path.display(), found.mode() & 0o7777);
        ensure!(
            self.users.are_own(found.uid()) || self.owner == Some(found.uid()),
            PermissionDenied,
            "{place}: belongs to user {} (mode {mode:04o}), from whom user {} takes no code\n  → {advice}",
            found.uid(),
            self.users.own
        );
        let shared = if self.group == Some(found.gid()) { self.writers } else { self.writers & 0o002 };
        let private = if self.users.private == Some(found.gid()) { 0o020 } else { 0 };
        // A link has a mode that nobody heeds.
        ensure!(
            found.is_symlink() || mode & WRITERS & !(shared | private) == 0,
            PermissionDenied,
            "{place}: others than its owner, user {}, can write to it (mode {mode:04o}), so no code is taken from it\n  → {advice}",
            found.uid()
        );
        Ok(())
    }
}

/// Checks that only this process's user and root can change what is at a path, or put something else there. Where there is
/// nothing, that is fine. The folder that it lies in is said by the environment variable `variable`.
///
/// A folder on the way may be one that others write to if only owners remove from it, as `/tmp`. What is in a folder of this
/// user's that lets nobody else in may be for anybody to write to, but not belong to others: they have put it there, and may
/// have it open still.
///
/// # Errors
/// `PermissionDenied` with the path that can be changed, its owner and mode.
pub fn check_own(path: &Path, variable: &str) -> Result<()> {
    check_within(path, variable, Users::get()).map(|_| ())
}

/// As [`check_own`]; gives whether nobody else gets at what is there.
fn check_within(path: &Path, variable: &str, users: Users) -> Result<bool> {
    let absolute = std::path::absolute(path)
        .map_err(|error| Error::invalid_argument(format!("{}: {error}", path.display())))?;
    let (mut at, mut closed, mut links) = (PathBuf::from("/"), false, 0);
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
            Err(error) if is_gone(&error) => return Ok(closed),
            Err(error) => {
                bail!(
                    PermissionDenied,
                    "{}: {error}\n  → set {variable} to a folder of your own",
                    at.display()
                )
            }
        };
        let mut trust = Trust::own(users, closed, &found);
        if !rest.is_empty() {
            trust.owner = Some(owner_on_the_way(users, &at, &found));
            trust.writers |= if found.mode() & STICKY == 0 { 0 } else { WRITERS };
        }
        trust.check(&at, &found, &advice(&at, variable))?;
        closed |= is_closed(users, &found);
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
    Ok(closed)
}

/// Who beside this process's user and root may own what lies on the way, found at `at`.
///
/// In a namespace the host's own folders belong to somebody unknown, and so do those of any stranger there. What is in a folder
/// that its owner alone writes to was put there by that owner; so from the root of all folders on it is the host's, down to
/// the first folder that everybody writes to.
fn owner_on_the_way(users: Users, at: &Path, found: &Metadata) -> u32 {
    let folder = at.parent().map(fs::symlink_metadata);
    let is_hosts = folder.is_some_and(|folder| folder.is_ok_and(|folder| folder.mode() & WRITERS == 0));
    if users.unknown == Some(found.uid()) && is_hosts { found.uid() } else { users.system }
}

/// Whether a folder lets nobody in but this process's user and root.
fn is_closed(users: Users, found: &Metadata) -> bool {
    found.is_dir() && found.mode() & OTHERS == 0 && users.are_own(found.uid())
}

/// Whether there is nothing, or another process has just removed it.
fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// As [`check_own`], of a folder and all that is in it. Other processes may be at work there, and remove what is found.
///
/// # Errors
/// As [`check_own`], and what the system says of the folder.
pub fn check_own_tree(path: &Path, variable: &str) -> Result<()> {
    let users = Users::get();
    let cannot = |error: std::io::Error| Error::failed_precondition(format!("{}: {error}", path.display()));
    // Nor is a closed folder passed by: what others own may have been put there before, and links lead out of it.
    let mut folders = vec![(path.to_owned(), check_within(path, variable, users)?)];
    while let Some((folder, closed)) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Err(error) if is_gone(&error) => continue,
            entries => entries.map_err(cannot)?,
        };
        for entry in entries {
            let entry = entry.map_err(cannot)?;
            let found = match entry.metadata() {
                Err(error) if is_gone(&error) => continue,
                found => found.map_err(cannot)?,
            };
            let at = entry.path();
            if found.is_symlink() {
                check_within(&at, variable, users)?;
            } else {
                Trust::own(users, closed, &found).check(&at, &found, &advice(&at, variable))?;
            }
            if found.is_dir() {
                folders.push((at, closed || is_closed(users, &found)));
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
        // Whoever runs the tests may have a group of their own.
        for mode in [0o666, 0o646] {
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
        set(&file, 0o666);
        check_own(&file, "CACHE").unwrap();
        check_own_tree(&folder, "CACHE").unwrap();
        set(&file, 0o644);
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
        if Users::get().own != 0 {
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
        set(&folder, 0o700);
        refused(&file, &file, "belongs to user 65533");
        assert!(check_own_tree(&folder, "CACHE").unwrap_err().message().contains("a/b/file: belongs"));
        set(&folder, 0o755);
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
    fn what_is_a_hosts_is_told_from_what_is_a_strangers() {
        if Users::get().own != 0 {
            eprintln!("skipped: only root can give files away");
            return;
        }
        let folder = folder("host").canonicalize().unwrap();
        let (a, file) = (folder.join("a"), folder.join("a/b/file"));
        let users = Users { unknown: Some(65_533), ..Users::get() };
        let check = || check_within(&file, "CACHE", users);
        chown(&a, Some(65_533), None).unwrap();
        check().unwrap();
        // Anybody could have put it there, or can exchange what is in it.
        set(&folder, 0o1777);
        assert!(check().unwrap_err().message().contains("/a: belongs to user 65533"));
        set(&folder, 0o755);
        set(&a, 0o777);
        assert!(check().unwrap_err().message().contains("/a: others"));
        set(&a, 0o1777);
        check().unwrap();
        set(&a, 0o755);
        // What is taken for code is nobody's whom the namespace does not know, not even where that is this user's number.
        chown(&file, Some(65_533), None).unwrap();
        for own in [0, 65_533] {
            let users = Users { own, ..users };
            assert!(check_within(&file, "CACHE", users).unwrap_err().message().contains("file: belongs"));
        }
        fs::remove_dir_all(&folder).unwrap();
        assert!(is_of_everybody("         0          0 4294967295\n"));
        assert!(!is_of_everybody("0 1000 1\n1 100000 65536\n") && !is_of_everybody(""));
    }

    #[test]
    fn a_group_of_the_users_own_may_write() {
        let folder = folder("group").canonicalize().unwrap();
        let (a, file) = (folder.join("a"), folder.join("a/b/file"));
        let group = fs::metadata(&file).unwrap().gid();
        let check = |private| check_within(&file, "CACHE", Users { private, ..Users::get() });
        set(&file, 0o664);
        set(&a, 0o775);
        check(Some(group)).unwrap();
        assert!(check(None).is_err() && check(Some(group + 1)).is_err());
        set(&a, 0o777);
        assert!(check(Some(group)).is_err());
        fs::remove_dir_all(&folder).unwrap();
        let groups = "root:x:0:\nana:x:1000:\nstaff:x:1001:ana,ben\n";
        assert!(!has_members(groups, 1000) && has_members(groups, 1001) && !has_members(groups, 100));
    }

    #[test]
    fn folders_that_come_and_go_are_no_failure() {
        let folder = folder("busy").canonicalize().unwrap();
        std::thread::scope(|scope| {
            let busy = scope.spawn(|| {
                for number in 0..200 {
                    let made = folder.join(format!("{}/deep", number % 7));
                    fs::create_dir_all(&made).unwrap();
                    fs::remove_dir_all(made.parent().unwrap()).unwrap();
                }
            });
            while !busy.is_finished() {
                check_own_tree(&folder, "CACHE").unwrap();
            }
        });
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_no_more_people_can_write_to_is_like_what_is_trusted() {
        let folder = folder("like");
        let (known, other) = (folder.join("a/b/file"), folder.join("a/b"));
        let check = |mode, other_mode| {
            set(&known, mode);
            set(&other, other_mode);
            let users = Users { private: None, ..Users::get() };
            let trust = Trust { users, ..Trust::like(&fs::metadata(&known).unwrap()) };
            trust.check(&other, &fs::metadata(&other).unwrap(), "").is_ok()
        };
        assert!(check(0o644, 0o755) && check(0o664, 0o775) && check(0o664, 0o755));
        assert!(!check(0o644, 0o775) && !check(0o664, 0o777));
        fs::remove_dir_all(&folder).unwrap();
    }
}
