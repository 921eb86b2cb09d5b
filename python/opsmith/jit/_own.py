"""What in the cache Opsmith has made.

The cache may be a folder that holds other things too. What is counted and what is removed has a name of the
form that builds give, and in it the file that they put there; links are not followed.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from opsmith._errors import Error
from opsmith.jit._cache import read_json

_DIGEST = "[0-9a-f]{32}"
_SOURCE = re.compile(rf"[a-z][a-z0-9_]*\.(rs|cu)|\.[a-z][a-z0-9_]*\.(rs|cu)\.{_DIGEST}")
_NAMES = {
    "libraries": re.compile("[a-z][a-z0-9_]*-[0-9a-f]{16}"),
    "dependencies": re.compile(_DIGEST),
    "crates": re.compile(_DIGEST),
    "building": re.compile(rf"((crates-)?{_DIGEST}|removed)\.{_DIGEST}"),
    "sources": re.compile(_DIGEST),
    "inputs": re.compile(rf"{_DIGEST}\.json|\.{_DIGEST}\.json\.{_DIGEST}"),
}
STAMPS = {"libraries": "entry.json", "dependencies": "used", "crates": "used"}
"""The file by which a folder is known, whose time says when it was last used."""


def own(cache: Path, kind: str) -> list[Path]:
    """What builds have put into the folder `kind` of the cache."""
    try:
        found = sorted((cache / kind).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [place for place in found if is_own(kind, place)]


def is_own(kind: str, place: Path) -> bool:
    """Whether a build has put that into the folder `kind` of the cache."""
    if not _NAMES[kind].fullmatch(place.name):
        return False
    if kind == "inputs":
        return _is(stat.S_ISREG, place) and _is_list(place)
    if not _is(stat.S_ISDIR, place):
        return False
    if kind in STAMPS:
        return _is(stat.S_ISREG, place / STAMPS[kind])
    return kind != "sources" or _has_only_sources(place)


def _is_list(file: Path) -> bool:
    """Whether it is a list of files that the compiler read, or one that was not finished."""
    if file.name.startswith("."):
        return True
    try:
        noted = read_json(file)
    except Error:  # somebody else's
        return False
    return isinstance(noted, list) and all(isinstance(path, str) for path in noted)


def _has_only_sources(folder: Path) -> bool:
    found = []
    with suppress(OSError):
        found = list(folder.iterdir())
    return bool(found) and all(_SOURCE.fullmatch(file.name) and _is(stat.S_ISREG, file) for file in found)


def _is(kind: Callable[[int], bool], place: Path) -> bool:
    try:
        return kind(place.lstat().st_mode)
    except OSError:
        return False
