"""What the cache takes on disk: how much it is, and what goes when it is more than it may be.

A process holds a shared lock on the `entry.json` of each library that it has loaded, for as long as it or a
child of it lives: what can be locked is in nobody's use. Files that Opsmith has not made are neither counted
nor removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from opsmith._errors import InvalidArgumentError
from opsmith.jit._cache import cache_folder, locked_at_once, read_json, touch
from opsmith.jit._errors import MOVE_CACHE
from opsmith.jit._own import STAMPS, own

VARIABLE = "OPSMITH_JIT_CACHE_LIMIT"
"""The environment variable that says how much the cache may take."""

_DEFAULT = 4 << 30
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

_KINDS = {"libraries": "library", "dependencies": "dependencies", "crates": "crates"}

# An hour: what a build of another process may have just found, and is about to use.
_FRESH = 3600.0

# Each takes one of the files that a process may have open.
_MOST_HELD = 256

_held: dict[Path, int] = {}
"""The files that say which libraries are in use, open."""


@dataclass(frozen=True)
class CachePart:
    """One part of the cache."""

    kind: str
    """`library`, `dependencies`, `crates` or `other`."""
    name: str
    """The folder, from the cache's."""
    size: int
    """The bytes that it takes on disk."""
    used: float
    """When it was last used, in seconds since 1970."""


@dataclass(frozen=True)
class CacheInfo:
    """What the cache takes on disk. As text it is a table."""

    folder: Path
    limit: int
    """How many bytes it may take."""
    parts: tuple[CachePart, ...]
    """The parts, the one that was used last in front."""

    @property
    def size(self) -> int:
        """How many bytes the cache takes on disk."""
        return sum(part.size for part in self.parts)

    def __str__(self) -> str:
        def row(part: CachePart) -> str:
            used = time.strftime("%Y-%m-%d %H:%M", time.localtime(part.used))
            return f"{_text(part.size):>9}  {used}  {part.name}"

        return "\n".join([f"{self.folder}: {_text(self.size)} of {_text(self.limit)}", *map(row, self.parts)])


def cache_info() -> CacheInfo:
    """What the cache of just-in-time builds holds, when each part was last used, and what it takes on disk.

        >>> print(jit.cache_info())

    Compiled CUDA kernels, in the folder `cuda`, are not included. Raises `InvalidArgumentError` if
    `OPSMITH_JIT_CACHE_LIMIT` is not a size, or the cache is not a folder.
    """
    folder = cache_folder()
    if folder.exists() and not folder.is_dir():
        raise InvalidArgumentError(
            f"the cache {folder} must be a folder, but is a file\n  → {MOVE_CACHE}, or delete it"
        )
    parts = sorted(_parts(folder), key=lambda part: part.used, reverse=True)
    return CacheInfo(folder, limit(), tuple(parts))


def limit() -> int:
    """How many bytes the cache may take."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return _DEFAULT
    told = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*(?:([KMGT]?)I?B?)", text.upper())
    if told is None:
        raise InvalidArgumentError(
            f"{VARIABLE}: {text!r} is not a size\n  → give bytes, or a number such as 500M or 2GB"
        )
    return int(float(told[1]) * _UNITS[told[2]])


def hold(entry: Path) -> bool:
    """Says that the library of this `entry.json` is in use, for as long as this process lives; false where it
    is gone.

    What is held is not removed, and what was last held is removed last.
    """
    try:
        file = os.open(entry, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    if not _is_there(file, entry):
        os.close(file)
        return False
    touch(entry)
    # Of those that are let go of the code stays in memory, and the file as long as there is room.
    while (before := _held.pop(entry, None)) is not None or len(_held) >= _MOST_HELD:
        os.close(_held.pop(next(iter(_held))) if before is None else before)
    _held[entry] = file
    return True


def _is_there(file: int, entry: Path) -> bool:
    """Locks the open file; whether it is still the one in its place."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        # It is being removed.
        return False
    except OSError:
        # A file system without locks has no processes that wait for one another either.
        pass
    try:
        return os.path.samestat(os.fstat(file), os.stat(entry))
    except OSError:
        return False


def make_room(cache: Path, keep: frozenset[Path], most: int) -> None:
    """Remove what was not used for longest until the cache takes at most `most` bytes.

    What is in use, is being built or is in `keep` stays.
    """
    with locked_at_once(cache, "room") as is_ours:
        if not is_ours:
            return
        _remove_killed(cache)
        parts = sorted(_parts(cache), key=lambda part: part.used)
        kept = {place.resolve() for place in keep}
        stays = [part.kind == "other" or (cache / part.name).resolve() in kept for part in parts]
        size = sum(part.size for part in parts)
        kept_size = sum(part.size for part, stay in zip(parts, stays, strict=True) if stay)
        # Where what has to stay is above it, no library would be left, and for nothing.
        most = most if kept_size < most else kept_size + most // 4
        for part, stay in zip(parts, stays, strict=True):
            if size <= most:
                break
            if not stay and _remove(cache, part):
                size -= part.size
        _remove_unused_sources(cache)


def _remove(cache: Path, part: CachePart) -> bool:
    place = cache / part.name
    if part.kind == "library":
        with _unused(place / "entry.json") as is_unused:
            # Renamed first: nobody finds half of it.
            return is_unused and _discard(cache, place)
    with locked_at_once(cache, f"{part.kind}-{place.name}") as is_ours:
        is_old = time.time() - _time(place / "used", place) >= _FRESH
        return is_ours and is_old and _discard(cache, place)


def _discard(cache: Path, place: Path) -> bool:
    away = cache / "building" / f"removed.{uuid4().hex}"
    try:
        away.parent.mkdir(mode=0o700, exist_ok=True)
        place.rename(away)
    except OSError:
        return False
    shutil.rmtree(away, ignore_errors=True)
    return True


@contextmanager
def _unused(entry: Path) -> Iterator[bool]:
    """Whether no process has the library; none gets it meanwhile."""
    try:
        # To write, which a network file system's locks that exclude others ask for.
        file = os.open(entry, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(file)


def _remove_killed(cache: Path) -> None:
    """What builds have left that were killed: nobody holds their lock."""
    for left in own(cache, "building"):
        with locked_at_once(cache, left.name.partition(".")[0]) as is_ours:
            if is_ours:
                shutil.rmtree(left, ignore_errors=True)


def _remove_unused_sources(cache: Path) -> None:
    """The sources, and the lists of files that were read, of libraries that are not there any more."""
    used: set[str] = set()
    for place in own(cache, "libraries"):
        entry = read_json(place / "entry.json")
        if isinstance(entry, dict):
            used.add(f"{entry.get('key')}.json")
            sources = entry.get("sources")
            for source in sources if isinstance(sources, list) else ():
                used.add(Path(str(source)).parent.name)
    for kind in ("sources", "inputs"):
        for place in own(cache, kind):
            with suppress(OSError):
                if place.name in used or time.time() - place.stat().st_mtime < _FRESH:
                    continue
                if kind == "sources":
                    shutil.rmtree(place, ignore_errors=True)
                else:
                    place.unlink()


def _parts(cache: Path) -> Iterator[CachePart]:
    for kind, name in _KINDS.items():
        for place in own(cache, kind):
            yield CachePart(name, f"{kind}/{place.name}", _size(place), _time(place / STAMPS[kind], place))
    for kind in ("sources", "inputs", "building"):
        if found := own(cache, kind):
            last = max(_time(place, cache / kind) for place in found)
            yield CachePart("other", kind, sum(map(_size, found)), last)


def _time(stamp: Path, place: Path) -> float:
    for path in (stamp, place):
        with suppress(OSError):
            return path.stat().st_mtime
    return 0.0


def _size(place: Path) -> int:
    """The bytes on disk: a file under several names is there once."""
    files = {}
    paths = [str(place)]
    for folder, _, names in os.walk(place):
        paths += [folder, *(os.path.join(folder, name) for name in names)]
    for path in paths:
        # Somebody else may be removing it.
        with suppress(OSError):
            status = os.lstat(path)
            files[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(files.values())


def _text(size: int) -> str:
    if size < _UNITS["K"]:
        return f"{size} bytes"
    for unit in ("K", "M"):
        if size < 1000 * _UNITS[unit]:
            return f"{size / _UNITS[unit]:.0f} {unit}B"
    return f"{size / _UNITS['G']:.1f} GB"
