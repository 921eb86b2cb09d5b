"""The cache: a folder that any number of processes share.

| folder | what |
|---|---|
| `libraries/<name>-<key>/` | a library, and `entry.json` with its checksum |
| `inputs/<key>.json` | what else the compiler read for a build, for sources that include other files |
| `sources/<digest>/` | the sources of `load_inline`, where compiler messages find them |
| `dependencies/<key>/` | compiled crates, of one toolchain |
| `crates/<digest>/` | the sources of Opsmith's crates, from the package |
| `toolchains/` | what compilers say of themselves |
| `building/`, `locks/` | what is being made, and by whom |

What is made is made in `building` and renamed, so nothing half done is ever found in its place.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any
from uuid import uuid4


def cache_folder() -> Path:
    """The folder that just-in-time builds lie in: `OPSMITH_CACHE_DIR`, else `opsmith` in the user's caches.

    It may be deleted at any time that nothing is being built.
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
        return digest([path.read_bytes()])
    except OSError:
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
    """What a file says; none where there is none, or one that cannot be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that nobody ever reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        made.write_text(text, encoding="utf-8", newline="")
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


@contextmanager
def locked(folder: Path, name: str, waiting: Callable[[], None]) -> Iterator[None]:
    """Holds the lock `name`: one process or thread at a time; `waiting` is called where another has it.

    The system lets go of the lock when its holder dies, however it does.
    """
    locks = folder / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with open(locks / name, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def workplace(folder: Path, key: str) -> Iterator[Path]:
    """A new folder to build in, gone afterwards unless it was renamed.

    What killed builds of `key` have left goes as well, so it is to be used under the key's lock.
    """
    building = folder / "building"
    building.mkdir(parents=True, exist_ok=True)
    for left in building.glob(f"{key}.*"):
        shutil.rmtree(left, ignore_errors=True)
    # A build whose process was killed may have a compiler that goes on: its folder is never used again.
    made = building / f"{key}.{uuid4().hex}"
    made.mkdir()
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def put(made: Path, place: Path) -> None:
    """Move a folder to its place in the cache, in place of a broken one."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        shutil.rmtree(place)
    made.rename(place)
