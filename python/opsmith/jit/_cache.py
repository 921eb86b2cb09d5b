"""The cache: a folder that any number of processes share.

| folder | what |
|---|---|
| `libraries/<name>-<key>/` | a library, and `entry.json` with its checksum |
| `inputs/<key>.json` | what else the compiler read for a build, for sources that include other files |
| `sources/<digest>/` | the sources of `load_inline`, where compiler messages find them |
| `dependencies/<key>/` | compiled crates, of one toolchain and release of the package |
| `crates/<digest>/` | the sources of Opsmith's crates, from the package |
| `toolchains/` | what compilers say of themselves |
| `building/`, `locks/` | what is being made, and by whom |

What is made is made in `building` and renamed, so nothing half done is ever found in its place. All of it is
code, or decides which code runs: nothing is taken from where others than this user and root can write to, and
what is made is this user's alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from opsmith._errors import Error, ResourceExhaustedError
from opsmith._native import check_own, read_file

# What is noted of a build takes some kilobytes.
_MOST_JSON = 64 << 20


def cache_folder() -> Path:
    """The folder of just-in-time builds: `OPSMITH_CACHE_DIR`, else `opsmith` in the user's caches.

    You may delete it whenever nothing is being built.
    """
    own = os.environ.get("OPSMITH_CACHE_DIR")
    if own:
        return Path(own).absolute()
    caches = os.environ.get("XDG_CACHE_HOME", "")
    # The specification says that a relative path is to be ignored.
    base = Path(caches) if os.path.isabs(caches) else Path.home() / ".cache"
    return base / "opsmith"


def digest(parts: Iterable[str | bytes]) -> str:
    """A digest of parts, which depends on where one ends and the next begins."""
    state = blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def digest_of_file(path: Path) -> str | None:
    """The digest of a file's content; none where it cannot be read."""
    try:
        return digest([read_file(path)])
    except ResourceExhaustedError:
        raise
    except Error:
        return None


def fingerprint(folder: Path, skip: frozenset[str] = frozenset({"target", ".git"})) -> str:
    """A digest of the names, sizes and times of all files in a folder: it changes when one is edited."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in skip)
        for name in sorted(names):
            path = os.path.join(place, name)
            status = os.stat(path)
            found.append(f"{path}\0{status.st_size}\0{status.st_mtime_ns}")
    return digest(found)


def read_json(path: Path) -> Any:
    """What a file of the cache says; none where there is none, or one that cannot be read."""
    check_own(path)
    try:
        return json.loads(read_file(path, _MOST_JSON))
    except (Error, ValueError):
        return None


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, this user's alone."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def write(path: Path, text: str) -> None:
    """Write a new file, this user's alone."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "w", encoding="utf-8", newline="") as file:
        file.write(text)


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that nobody ever reads half of it."""
    make_folder(path.parent)
    made = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        write(made, text)
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


_held: set[IO[bytes]] = set()
"""The files of the locks that this process has."""


def _leave_to_parent() -> None:
    """A forked child has its parent's files, and would keep a lock for as long as it lives."""
    while _held:
        _held.pop().close()


os.register_at_fork(after_in_child=_leave_to_parent)


def touch(file: Path) -> None:
    """Note that something is used, by the time of a file of it."""
    # A cache that is read-only is not made smaller either.
    with suppress(OSError):
        file.touch(mode=0o600)


@contextmanager
def locked(folder: Path, name: str, waiting: Callable[[], None]) -> Iterator[None]:
    """Holds the lock `name`: one process or thread at a time; `waiting` is called where another has it.

    The system lets go of the lock when its holder dies, however it does.
    """
    with _lock_file(folder, name) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def locked_at_once(folder: Path, name: str) -> Iterator[bool]:
    """Holds the lock `name`, as `locked` does; false, and it is not held, where another has it."""
    with _lock_file(folder, name) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


@contextmanager
def _lock_file(folder: Path, name: str) -> Iterator[IO[bytes]]:
    """The file of the lock `name`, open; let go of afterwards."""
    locks = folder / "locks"
    make_folder(locks)
    check_own(locks / name)
    # A pipe in its place would be waited for.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    with open(os.open(locks / name, flags, 0o600), "rb+", buffering=0) as file:
        _held.add(file)
        try:
            yield file
        finally:
            _held.discard(file)
            # Closing it would not do while a forked child has it too.
            fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def workplace(folder: Path, key: str) -> Iterator[Path]:
    """A new folder to build in, gone afterwards unless it was renamed.

    What killed builds of `key` have left goes as well, so it is to be used under the key's lock.
    """
    building = folder / "building"
    make_folder(building)
    check_own(building)
    for left in building.glob(f"{key}.*"):
        shutil.rmtree(left, ignore_errors=True)
    # A build whose process was killed may have a compiler that goes on: its folder is never used again.
    made = building / f"{key}.{uuid4().hex}"
    made.mkdir(mode=0o700)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def put(made: Path, place: Path) -> None:
    """Move a folder to its place in the cache, in place of a broken one."""
    make_folder(place.parent)
    if place.exists():
        shutil.rmtree(place)
    made.rename(place)
